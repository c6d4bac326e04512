//! Accesses: planned for the current state of the machine, and run within the memory budget.
//!
//! `outcore-plan` decides from given terms; `outcore-io` runs the plan. This crate is between them: it
//! examines the page cache and the disk to determine the terms, waits for memory that other accesses hold,
//! keeps writers of the same bytes apart, and plans again if the state of the machine differs from the
//! assumptions. Its caller (the bindings) provides memory, receives its results, and is called back through
//! the traits [`Interrupts`], [`table::Library`], [`guard::Keeper`] and [`loops::Blocks`].
//!
//! | module             | purpose                                                             |
//! |--------------------|---------------------------------------------------------------------|
//! | [`described`]      | facts that are known about an array before a file is open           |
//! | [`hints`]          | the user's hints                                                    |
//! | [`step`]           | a request, and the plan that runs now                               |
//! | [`terms`]          | state of the machine and the file, as terms of the planner          |
//! | `habit`            | whether a flush will follow; what a mapping would have saved so far |
//! | `learning`         | trials of unknown disks                                             |
//! | [`disk_agreement`] | what ranks know of disks, made equal                                |
//! | [`admission`]      | accesses that may hold memory now, and those that wait              |
//! | [`loops`]          | memory that is held between accesses                                |
//! | [`nesting`]        | calls inside another call of the same thread                        |
//! | `windows`          | turns of writers in place                                           |
//! | [`guard`]          | locks against a format's own library                                |
//! | [`table`]          | chunks whose table belongs to such a library                        |
//! | `chunks`           | batches of chunks                                                   |
//! | `part`             | one batch: its content, and the requested part of it                |
//! | `empty`            | batches without stored chunks, which have equal plans               |
//! | `prefetch`         | extents of a plan that are read ahead                               |
//! | [`open`]           | an open array: [`Open`] runs, prefetches, flushes                   |
//! | [`indexed`]        | elements that are chosen one by one: their slabs and their order    |
//! | [`survey`]         | cost and memory of an access                                        |
//! | [`blocks`]         | what a loop over blocks needs                                       |
//! | [`many`]           | sections of many arrays: order and number of threads                |
//! | [`two_phase`]      | reads and writes of an owner in a round of a collective             |
//! | [`exchange`]       | copies between slots, messages and the arrays of a rank             |
//! | [`cast`]           | parts of a value of another type                                    |
//! | [`error`]          | reasons for which an access was not performed                       |

#![forbid(unsafe_code)]

pub mod admission;
pub mod blocks;
pub mod cast;
mod chunks;
pub mod described;
pub mod disk_agreement;
mod empty;
pub mod error;
pub mod exchange;
pub mod guard;
mod habit;
pub mod hints;
pub mod indexed;
mod interrupt;
mod learning;
pub mod loops;
pub mod many;
pub mod nesting;
pub mod open;
mod part;
mod prefetch;
pub mod step;
pub mod survey;
pub mod table;
pub mod terms;
#[cfg(test)]
mod testing;
pub mod two_phase;
mod windows;

pub use error::{Fault, Reason};
pub use habit::InParts;
pub use hints::{Cache, Hints};
pub use indexed::IndexedAccess;
pub use interrupt::Interrupts;
pub use open::Open;
pub use step::{placed, reach, Access};
