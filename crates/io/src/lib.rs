//! Buffers, engines, codecs; runs the plans of `outcore-plan`.
//!
//! The only crate with `unsafe`; `SAFETY.md` lists what it relies on, `DESIGN.md` which module does
//! what.

pub mod backend;
pub mod beneath;
pub mod board;
pub mod chunk_cache;
pub mod claim;
pub mod codec;
pub mod copy;
mod copy_stream;
mod copy_tile;
pub mod cpu;
mod crew;
pub mod descriptors;
pub mod durable;
pub mod error;
pub mod exec;
pub mod files;
pub mod flush;
pub mod gaps;
pub mod loan;
pub mod lock;
pub mod mapping;
pub mod measure;
pub mod original;
pub mod pool;
pub mod probe;
pub mod process;
mod resident;
pub mod segment;
pub mod slot;
pub mod store;
#[cfg(test)]
mod testdir;

pub use claim::Claim;
pub use codec::{CodecSpec, Coder, Encoded, Needs, OptionValue, Pipeline};
pub use error::{BudgetFailure, CodecFailure, IndexFailure, IoFailure, ShortRead, StorageError};
pub use files::{FileRef, FileTable, OpenFile};
pub use loan::Pages;
pub use mapping::Mapping;
pub use pool::{Arena, Buffer, Reservation};
pub use segment::Segment;
