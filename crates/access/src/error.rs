//! Reasons for which an access was not performed.
//!
//! Errors of the layers below, errors of this crate, and errors of code above that was called from here are
//! one [`Reason`]. A [`Fault`] is a reason on its way to the caller: each function that passes it on may add
//! the name of the array, the next step, and how much more memory is needed.

use std::fmt;

use outcore_io::StorageError;
use outcore_plan::PlanError;
use thiserror::Error;

/// The code of a shortage of open files.
pub const TOO_MANY_OPEN: &str = "too-many-open-files";

/// Every reason for which an access is not performed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Reason {
    /// The access could not be planned or run.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A nested call cannot have a resource, because the outer call of its thread may hold it.
    #[error(
        "'{path}': this call was made inside another call of the same thread (by a signal handler, \
         a finalizer or another callback), and {what}, perhaps by the outer call, which cannot end \
         before this one; only record the event in the callback, and make the call after the outer \
         one has returned"
    )]
    Nested {
        /// Path of the array or the file.
        path: String,
        /// The obstacle.
        what: String,
    },
    /// A chunk that was never written, if that must be an error.
    #[error(
        "chunk {chunk:?} of '{path}' was never written, which Hints(missing='error') makes an \
         error; use missing='fill' to read the fill value"
    )]
    MissingChunk {
        /// Path of the array.
        path: String,
        /// Place of the chunk in the grid of chunks.
        chunk: Vec<i64>,
    },
    /// Other accesses hold the memory temporarily: a caller that has a turn tries again alone.
    #[error("other accesses hold the memory budget; wait for them, or raise outcore.memory()")]
    Busy,
    /// The blocks of a loop and the buffers that read them do not fit the budget together.
    #[error(
        "a loop over blocks of '{path}' needs a budget of {needed} bytes, {least} of them for \
         reading, but the budget is {limit} bytes: {why}; raise outcore.memory() or \
         Hints(memory=...) to at least {needed} bytes, or pass a smaller shape="
    )]
    BlockTooLarge {
        /// Path of the array.
        path: String,
        /// Bytes of a sufficient budget.
        needed: u64,
        /// Bytes of that budget for reading.
        least: u64,
        /// Bytes of the budget.
        limit: u64,
        /// The holder of the rest of the budget.
        why: &'static str,
    },
}

impl Reason {
    /// Returns the stable code; codes are append-only and listed in `docs/status/error-codes.md`.
    pub fn code(&self) -> &'static str {
        match self {
            Reason::Storage(error) => error.code(),
            Reason::Nested { .. } => "nested-call",
            Reason::MissingChunk { .. } => "missing-chunk",
            Reason::Busy => "budget-too-small",
            Reason::BlockTooLarge { .. } => "block-too-large",
        }
    }
}

/// A reason, and what callers added to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault(Box<Inner>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Inner {
    reason: Reason,
    path: Option<String>,
    hints: Vec<String>,
    beside: i64,
    enough: i64,
}

impl Fault {
    /// Adds the file or array concerned, unless it is known.
    #[must_use]
    pub fn at(mut self, path: &str) -> Fault {
        self.0.path.get_or_insert_with(|| path.to_owned());
        self
    }

    /// Adds the next step.
    #[must_use]
    pub fn hint(mut self, text: &str) -> Fault {
        self.0.hints.push(text.to_owned());
        self
    }

    /// Adds to a refusal of memory that `bytes` more are needed, for `what`.
    #[must_use]
    pub fn beside(mut self, what: &str, bytes: i64) -> Fault {
        self.0.beside = self.0.beside.saturating_add(bytes);
        self.hint(&format!("Add {bytes} bytes for {what}."))
    }

    /// Adds to a refusal of memory that no smaller budget is sufficient, whatever was refused first.
    #[must_use]
    pub fn at_least(mut self, bytes: i64) -> Fault {
        if self.is_about_memory() && bytes > self.0.enough {
            self.0.enough = bytes;
        }
        self
    }

    /// Returns whether memory was refused. A moment later it may be available.
    pub fn is_about_memory(&self) -> bool {
        match &self.0.reason {
            Reason::Storage(StorageError::Budget(_)) => true,
            Reason::Storage(StorageError::Foreign(raised)) => raised.needed.is_some(),
            Reason::Storage(StorageError::Plan(error)) => {
                matches!(error, PlanError::BudgetTooSmall { .. })
            }
            Reason::Busy | Reason::BlockTooLarge { .. } => true,
            Reason::Storage(_) | Reason::Nested { .. } | Reason::MissingChunk { .. } => false,
        }
    }

    /// Returns the bytes of a sufficient budget, if memory was refused and the amount is known.
    pub fn needed(&self) -> Option<i64> {
        match &self.0.reason {
            Reason::Storage(StorageError::Budget(failure)) => {
                i64::try_from(failure.needed.saturating_add(failure.used)).ok()
            }
            Reason::Storage(StorageError::Plan(PlanError::BudgetTooSmall { needed, .. })) => {
                Some(*needed)
            }
            Reason::Storage(StorageError::Foreign(raised)) => raised.needed,
            Reason::BlockTooLarge { needed, .. } => i64::try_from(*needed).ok(),
            _ => None,
        }
    }

    /// Returns whether too many files are open. A moment later there may be fewer.
    pub fn is_about_files(&self) -> bool {
        self.0.reason.code() == TOO_MANY_OPEN
    }

    /// Returns whether there is too little of a resource that other accesses may release.
    pub fn is_about_room(&self) -> bool {
        self.is_about_memory() || self.is_about_files()
    }

    /// Returns whether the work was cancelled.
    pub fn is_cancelled(&self) -> bool {
        matches!(self.0.reason, Reason::Storage(StorageError::Cancelled))
    }

    /// Returns the reason.
    pub fn reason(&self) -> &Reason {
        &self.0.reason
    }

    /// Returns the file or array concerned.
    pub fn path(&self) -> Option<&str> {
        self.0.path.as_deref()
    }

    /// Returns the next steps, each as a sentence.
    pub fn hints(&self) -> &[String] {
        &self.0.hints
    }

    /// Returns the budget below which another part of the same access would be refused memory.
    pub fn enough_bytes(&self) -> i64 {
        self.0.enough
    }

    /// Returns the bytes that are needed in addition to those of the reason.
    pub fn beside_bytes(&self) -> i64 {
        self.0.beside
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.reason)?;
        self.0.hints.iter().try_for_each(|hint| write!(f, "; {hint}"))
    }
}

impl std::error::Error for Fault {}

impl From<Reason> for Fault {
    fn from(reason: Reason) -> Fault {
        Fault(Box::new(Inner { reason, path: None, hints: vec![], beside: 0, enough: 0 }))
    }
}

impl From<StorageError> for Fault {
    fn from(error: StorageError) -> Fault {
        let path = error.path().map(|path| path.to_string_lossy().into_owned());
        let mut fault = Fault::from(Reason::Storage(error));
        fault.0.path = path;
        fault
    }
}

impl From<PlanError> for Fault {
    fn from(error: PlanError) -> Fault {
        Reason::Storage(error.into()).into()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use outcore_io::error::Foreign;
    use outcore_io::BudgetFailure;

    use super::*;

    fn refused() -> Fault {
        let failure = BudgetFailure { what: "a test", needed: 10, limit: 8, used: 1 };
        StorageError::Budget(failure).into()
    }

    #[test]
    fn refusals_of_memory_are_told_from_others() {
        let too_small = PlanError::BudgetTooSmall { what: "a test", needed: 2, budget: 1 };
        let raised = |needed| Foreign { text: "full".to_owned(), needed, raised: Arc::new(()) };
        let above: Fault = StorageError::Foreign(raised(Some(3))).into();
        assert!(!Fault::from(StorageError::Foreign(raised(None))).is_about_room());
        for fault in [refused(), too_small.into(), Reason::Busy.into(), above] {
            assert!(fault.is_about_memory() && fault.is_about_room(), "{fault}");
            assert!(!fault.is_about_files() && !fault.is_cancelled());
        }
        let files: Fault = StorageError::no_place("open", Path::new("a")).into();
        assert!(files.is_about_files() && files.is_about_room() && !files.is_about_memory());
        let nested = Reason::Nested { path: "a".to_owned(), what: "it is locked".to_owned() };
        for fault in [StorageError::Cancelled.into(), Fault::from(nested)] {
            assert!(!fault.is_about_room());
        }
        assert!(Fault::from(StorageError::Cancelled).is_cancelled());
    }

    #[test]
    fn the_file_that_failed_is_named_before_the_array() {
        let failed: Fault = StorageError::io("read", Path::new("a/c.0"), 5).into();
        assert_eq!(Some("a/c.0"), failed.at("a").path());
        assert_eq!(Some("a"), refused().at("a").at("b").path());
    }

    #[test]
    fn what_is_needed_beside_is_added_and_said() {
        let fault = refused().beside("the cast", 100).beside("the write", i64::MAX);
        assert_eq!(i64::MAX, fault.beside_bytes());
        let text = fault.to_string();
        assert!(text.contains("Add 100 bytes for the cast."), "{text}");
        assert_eq!(2, fault.hints().len());
    }

    #[test]
    fn an_error_of_a_plan_has_its_own_code() {
        let fault = Fault::from(PlanError::TooLarge("a section"));
        assert_eq!(PlanError::TooLarge("a section").code(), fault.reason().code());
    }
}
