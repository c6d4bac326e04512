//! Buffers, engines, codecs; runs the plans of `outcore-plan`.
//!
//! The only crate with `unsafe`; `SAFETY.md` lists what it relies on, `DESIGN.md` which module does
//! what.

pub mod backend;
pub mod codec;
pub mod durable;
pub mod error;
pub mod lock;
pub mod pool;
pub mod process;

pub use codec::{CodecSpec, Encoded, OptionValue, Pipeline};
pub use error::{BudgetFailure, CodecFailure, IoFailure, ShortRead, StorageError};
pub use pool::{Arena, Buffer, Reservation};
