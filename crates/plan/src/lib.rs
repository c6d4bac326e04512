//! Geometry and planning for arrays larger than memory. Pure data: no files, no threads, no clock.
//!
//! Read in this order:
//!
//! | module      | question it answers                                            |
//! |-------------|----------------------------------------------------------------|
//! | [`section`] | which elements? (regular sections, n-d, any stride)            |
//! | [`layout`]  | where do they live in the files?                               |
//! | [`plan`]    | what is to be done, in rounds? (the value everything turns on) |
//! | [`error`]   | why can it not be done?                                        |
//!
//! `DESIGN.md` beside this crate tells the invariants and how a plan is checked.

pub mod error;
pub mod layout;
pub mod plan;
pub mod section;

pub use error::PlanError;
pub use layout::{ChunkTable, Chunked, Layout, Part, Stored, Strided};
pub use plan::{
    Channel, ChunkRead, ChunkWrite, Cost, Direction, Family, Method, Move, Place, Round, Terms,
    Transfer,
};
pub use section::{Range, Section};
