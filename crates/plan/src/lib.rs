//! Geometry and planning for arrays larger than memory. Pure data: no files, threads or clock.
//!
//! Read in this order:
//!
//! | module      | contents                                                          |
//! |-------------|-------------------------------------------------------------------|
//! | [`section`] | the requested elements (regular sections, n-d, any stride)        |
//! | [`slabs`]   | pieces of a section below a limit                                 |
//! | [`layout`]  | the places of elements in files                                   |
//! | [`terms`]   | limits of the machine, the file and the user                      |
//! | [`points`]  | elements that are chosen one by one                               |
//! | [`plan`]    | the steps of an access, in rounds (the central value)             |
//! | [`request`] | one access to plan                                                |
//! | [`planner`] | choice of method and rounds: [`Plan`]                             |
//! | `choose`    | estimated time of each method                                     |
//! | [`price`]   | estimated time of an access next to those of other ranks          |
//! | `address`   | arithmetic of pages, alignment and loops of strides               |
//! | `nest`      | loops over file and memory, the geometry of all strided planners  |
//! | `method`    | cuts of a nest for a method                                       |
//! | `piece`     | a nest that is cut, and the way to its bytes                      |
//! | `chunks`    | access to chunks, whole or in place                               |
//! | `cut`       | loops cut into rounds                                             |
//! | `emit`      | steps of one round: straight, mapped, gathered                    |
//! | `cost`      | exact counts of a plan                                            |
//! | `text`      | human-readable form of a plan                                     |
//! | [`distribution`] | owners of elements, messages between ranks                   |
//! | [`check`]   | safety check of a round ([`CheckedRound`])                        |
//! | [`collective`] | accesses of many ranks: domains and rounds of each rank        |
//! | [`assign`]  | accesses to many files: assignment of files to ranks              |
//! | [`simulate`] | time of an access on a modelled machine                          |
//! | [`resident`] | layout of a new array for its typical sections                   |
//! | [`gaps`]    | gaps between written pages that are worth writing                 |
//! | [`error`]   | errors of planning                                                |
//!
//! `DESIGN.md` of this crate describes the invariants and the check of plans.

// The compiler enforces purity: files, threads, clocks and the environment are in `std`, which only
// the tests of this crate use.
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
