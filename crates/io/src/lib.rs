//! Buffers, engines, codecs; runs the plans of `outcore-plan`.
//!
//! `SAFETY.md` lists the conditions that the `unsafe` code relies on, `DESIGN.md` the purpose of
//! each module. `unsafe` code is only in files that allow it; `ARCHITECTURE.md` lists them.

#![deny(unsafe_code)]

pub mod backend;
pub mod beneath;
pub mod chunk_cache;
mod chunk_shelf;
pub mod claim;
pub mod codec;
pub mod copy;
mod copy_indexed;
mod copy_row;
mod copy_stream;
mod copy_strips;
mod copy_tile;
pub mod cpu;
pub mod descriptors;
pub mod disks;
pub mod durable;
pub mod error;
pub mod exec;
pub mod files;
pub mod flush;
mod futex;
pub mod gaps;
mod lease;
pub mod lock;
mod lock_table;
pub mod lookup3;
pub mod mapping;
pub mod measure;
pub mod node_barrier;
mod open_file;
pub mod original;
pub mod page;
pub mod page_table;
mod pinned;
pub mod pool;
pub mod probe;
pub mod process;
pub mod reclaimable;
mod region;
mod resident;
pub mod segment;
pub mod slot;
mod stamp;
pub mod store;
pub mod strings;
pub mod temporary;
#[cfg(test)]
mod testdir;
pub mod word_locks;
mod worker_pool;

pub use claim::Claim;
pub use codec::{CodecSpec, Coder, Encoded, Needs, OptionValue, Pipeline};
pub use error::{BudgetFailure, CodecFailure, IndexFailure, IoFailure, ShortRead, StorageError};
pub use files::{FileRef, FileTable};
pub use mapping::Mapping;
pub use open_file::OpenFile;
pub use pool::{Arena, Buffer, Reservation};
pub use reclaimable::Pages;
pub use segment::Segment;
pub use word_locks::WordLocks;
