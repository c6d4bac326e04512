//! Geometry and planning for arrays larger than memory. Pure data: no files, no threads, no clock.
//!
//! Read in this order:
//!
//! | module      | question it answers                                               |
//! |-------------|-------------------------------------------------------------------|
//! | [`section`] | which elements? (regular sections, n-d, any stride)               |
//! | [`slabs`]   | which pieces of a section are under a limit?                      |
//! | [`layout`]  | where do they live in the files?                                  |
//! | [`terms`]   | what do the machine, the file and the user allow?                 |
//! | [`points`]  | which elements, if they are chosen one by one?                    |
//! | [`plan`]    | what is to be done, in rounds? (the value everything turns on)    |
//! | [`request`] | what is asked?                                                    |
//! | [`planner`] | which method, which rounds: [`Plan`]                              |
//! | `choose`    | what does each method cost here?                                  |
//! | [`price`]   | what does an access cost, beside those of other ranks?             |
//! | `address`   | pages, alignment, loops of strides: arithmetic                     |
//! | `nest`      | loops over file and memory, the geometry of all strided planners  |
//! | `method`    | how is a nest cut for a method?                                   |
//! | `piece`     | a nest that is cut, and the way to its bytes                      |
//! | `chunks`    | which chunks, whole or in place?                                  |
//! | `cut`       | loops cut into rounds                                             |
//! | `emit`      | one round's steps: straight, mapped, gathered                     |
//! | `cost`      | what does it all take, exactly?                                   |
//! | `text`      | the plan to read                                                  |
//! | [`distribution`] | which rank owns which elements, who sends what to whom?          |
//! | [`check`]   | is a round safe to run? ([`CheckedRound`])                        |
//! | [`collective`] | many ranks at once: who owns what, in which round?  |
//! | [`assign`]  | many files at once: which rank reads which?                       |
//! | [`simulate`] | what would it take on a machine that is only a model?            |
//! | [`resident`] | how had a new array best lie, for the sections that are typical of it? |
//! | [`gaps`]    | which gaps between written pages had better be written, too?      |
//! | [`error`]   | why can it not be done?                                           |
//!
//! `DESIGN.md` beside this crate tells the invariants and how a plan is checked.

// What the compiler keeps out: files, threads, clocks and the environment are in `std`, which only tests
// of this crate have.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod address;
pub mod assign;
pub mod check;
mod choose;
mod chunks;
pub mod collective;
mod cost;
mod cut;
pub mod distribution;
mod emit;
pub mod error;
pub mod gaps;
pub mod layout;
mod method;
mod nest;
mod piece;
pub mod plan;
pub mod planner;
pub mod points;
pub mod price;
pub mod request;
pub mod resident;
pub mod section;
pub mod simulate;
pub mod slabs;
pub mod terms;
mod text;
pub mod trial;

pub use address::nests;
pub use check::{check, Bounds, CheckedRound};
pub use choose::{is_cached, CACHED};
pub use error::PlanError;
pub use layout::{ChunkTable, Chunked, GridBox, Layout, Order, Part, Stored, Strided};
pub use plan::{
    Channel, ChunkRead, ChunkWrite, Cost, Direction, Family, IndexedMove, Method, Move, Place,
    Round, Transfer,
};
pub use planner::Plan;
pub use points::{Addresses, Counts, Index, Lists, Points};
pub use price::Priced;
pub use request::Request;
pub use section::{Range, Section};
pub use slabs::{Slab, Slabs};
pub use terms::{Coding, Faults, Home, Rates, Terms};
