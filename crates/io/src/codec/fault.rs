//! Errors of a step of a pipeline.

use crate::error::{BudgetFailure, CodecFailure, StorageError};

/// Reason why a step failed. The pipeline adds the name of the codec, the executor the chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The codec cannot have written the input, or an option is wrong; the text explains it.
    Bad(String),
    /// Encoding only: the input cannot be made smaller. Store it without this step and mark that in
    /// the chunk's filter mask.
    Incompressible,
    /// The library needs more memory than expected, and the budget does not have it.
    Memory(BudgetFailure),
    /// A decoder above this crate failed for a reason other than the input.
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
