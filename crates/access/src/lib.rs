//! Accesses: plans made for the machine as it is now, and run within the memory budget.
//!
//! `outcore-plan` decides from terms that somebody states; `outcore-io` runs what was decided. Between
//! them somebody has to look at the page cache and the disk to state the terms, wait for memory that
//! others hold, keep writers of the same bytes apart, and plan again when the state of the machine was
//! not what was assumed. That is this crate. What calls it (the bindings) gives it memory, hears its
//! answers and is called back through the traits [`Interrupts`], [`table::Library`], [`guard::Keeper`] and
//! [`loops::Blocks`].
//!
//! | module        | question it answers                                                  |
//! |---------------|----------------------------------------------------------------------|
//! | [`described`] | what is known of an array before a file is open?                     |
//! | [`hints`]     | what does the user ask for beside the data?                          |
//! | [`step`]      | what is asked, and which plan of it runs now?                        |
//! | [`terms`]     | what do the machine and the file allow now?                          |
//! | `habit`       | will a flush follow? what would a mapping have saved so far?         |
//! | `learning`    | is the disk known, or had a part better come first?                  |
//! | [`disk_agreement`] | do all ranks know the disk, and the same of it?                |
//! | [`admission`] | who may hold memory now, and who waits?                              |
//! | [`loops`]     | who may hold memory between accesses?                                |
//! | [`nesting`]   | is this call made inside another one of its thread?                  |
//! | `windows`     | who may write in place beside whom?                                  |
//! | [`guard`]     | who keeps a format's own library out of the file?                    |
//! | [`table`]     | where are chunks whose table belongs to such a library?              |
//! | `chunks`      | which chunks at once?                                                |
//! | `part`        | what does a batch of them hold, and what of it is asked for?         |
//! | `empty`       | which batches are alike, as nothing of them is stored?               |
//! | `prefetch`    | what of a plan is read ahead?                                        |
//! | [`open`]      | an open array: [`Open`] runs, prefetches, flushes                    |
//! | [`indexed`]   | elements that are chosen one by one: in which slabs, in which order? |
//! | [`survey`]    | what would an access take, and what would it cost?                   |
//! | [`blocks`]    | what does a loop over blocks of it need?                             |
//! | [`many`]      | sections of many arrays: in which order, and on how many threads?    |
//! | [`two_phase`] | what does an owner read and write in a round of a collective?        |
//! | [`exchange`]  | which bytes go between slots, messages and the arrays of a rank?     |
//! | [`cast`]      | a value of another type: in which parts?                             |
//! | [`error`]     | why was it not done?                                                 |

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
