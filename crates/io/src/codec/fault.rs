//! Why a step of a pipeline gives up.

use crate::error::{BudgetFailure, CodecFailure, StorageError};

/// Why a step gave up. The pipeline adds the name of the codec, the executor the chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The input is not what the codec writes, or an option is wrong; the text says how.
    Bad(String),
    /// Encoding only: the input cannot be made smaller; store it without this step and say so in
    /// the chunk's filter mask.
    Incompressible,
    /// The library needs more memory than was to be expected, and it is not there.
    Memory(BudgetFailure),
    /// Code above this crate that decodes failed, and not because of the input.
    Other(Box<StorageError>),
}

impl Fault {
    pub(super) fn new(why: impl Into<String>) -> Fault {
        Fault::Bad(why.into())
    }

    pub(super) fn of(self, codec: &'static str) -> StorageError {
        let why = match self {
            Fault::Bad(why) => why,
            Fault::Memory(failure) => return StorageError::Budget(failure),
            Fault::Other(error) => return *error,
            Fault::Incompressible => "the chunk cannot be compressed".to_owned(),
        };
        StorageError::Codec(CodecFailure {
            codec,
            why,
            path: Default::default(),
            offset: None,
            chunk: Vec::new(),
        })
    }
}
