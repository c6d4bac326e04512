//! Errors of planning.

use alloc::string::String;

use thiserror::Error;

/// Reasons for which planning fails. Each variant has a stable [`code`](PlanError::code).
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PlanError {
    /// An invalid range or section (negative count, step below one, overflow).
    #[error("section {what} is invalid: {why}")]
    BadSection {
        /// The section as text.
        what: String,
        /// The reason.
        why: &'static str,
    },
    /// The section reaches outside the array.
    #[error("section {section} reaches outside axis {axis} of length {len}")]
    OutOfBounds {
        /// The section as text.
        section: String,
        /// The first axis that does not fit.
        axis: usize,
        /// The length of that axis.
        len: i64,
    },
    /// An index of a list is outside its axis.
    #[error(
        "index {value} at position {position} of the list for axis {axis} is outside the axis of {len} \
         elements; give indices of at least -{len} and below {len}"
    )]
    BadIndex {
        /// The axis, or the first of several axes that are indexed as one.
        axis: usize,
        /// Position of the index in the list.
        position: u64,
        /// Value of the index.
        value: i64,
        /// Length of the axis.
        len: i64,
    },
    /// The layout is inconsistent (strides that overlap, parts that are too short, ...).
    #[error("the layout is inconsistent: {0}")]
    BadLayout(String),
    /// A size does not fit 63 bits.
    #[error("{0} does not fit in 63 bits; split the array")]
    TooLarge(&'static str),
    /// The section touches more chunks than one access may.
    #[error(
        "the section touches {chunks} chunks, but one access may touch at most {most} (fewer under a \
         small budget); access a part of it, such as some of its rows"
    )]
    TooManyChunks {
        /// Chunks that the section touches.
        chunks: i64,
        /// The limit.
        most: i64,
    },
    /// A method that a hint forces cannot perform this access.
    #[error(
        "method {method} cannot perform this access: {why}; let the planner choose the method"
    )]
    Impossible {
        /// The requested method.
        method: &'static str,
        /// The reason.
        why: &'static str,
    },
    /// The budget is too small for the smallest possible round.
    #[error(
        "{what} needs at least {needed} bytes of buffer, but the budget leaves {budget} bytes"
    )]
    BudgetTooSmall {
        /// The operation.
        what: &'static str,
        /// The smallest sufficient budget, bytes.
        needed: i64,
        /// The given budget, bytes.
        budget: i64,
    },
    /// Requests of ranks that are not a matrix of bytes, or do not match the other arguments.
    #[error("these requests cannot be assigned: {0}")]
    BadRequests(String),
    /// Invalid parameters of a modelled machine.
    #[error(
        "invalid machine: counts, sizes and rates must be at least 1, times below 10^12 ns, and blocks \
         must divide stripes: {0}"
    )]
    BadMachine(String),
    /// No assignment satisfies the request.
    #[error("no assignment is possible: {0}")]
    Unassignable(String),
    /// An assignment with too many alternatives for an exhaustive search.
    #[error(
        "method \"exact\" tries all assignments, but {0}. Use method \"matching\", which has the least \
         traffic for equally many files, or \"balanced\""
    )]
    TooManyToTry(String),
    /// An invalid distribution.
    #[error("invalid distribution: {0}")]
    BadDistribution(String),
    /// An invalid grid of ranks, or a rank outside the grid.
    #[error("invalid grid of ranks: {0}")]
    BadGrid(String),
    /// A plan that breaks one of its own rules: a bug in a planner, caught by `check`.
    #[error("plan breaks rule {rule}: {detail}")]
    Broken {
        /// Number of the rule in `DESIGN.md`.
        rule: u8,
        /// The violation that was found.
        detail: String,
    },
}

impl PlanError {
    /// Stable code; append-only, listed in `docs/status/error-codes.md`.
    pub fn code(&self) -> &'static str {
        match self {
            PlanError::BadSection { .. } => "bad-section",
            PlanError::OutOfBounds { .. } | PlanError::BadIndex { .. } => "index-out-of-bounds",
            PlanError::BadLayout(_) => "bad-layout",
            PlanError::TooLarge(_) => "too-large",
            PlanError::TooManyChunks { .. } => "too-many-chunks",
            PlanError::Impossible { .. } => "method-impossible",
            PlanError::BudgetTooSmall { .. } => "budget-too-small",
            PlanError::BadRequests(_) => "bad-requests",
            PlanError::BadMachine(_) => "bad-machine",
            PlanError::Unassignable(_) => "assignment-impossible",
            PlanError::TooManyToTry(_) => "assignment-too-large",
            PlanError::BadDistribution(_) => "bad-distribution",
            PlanError::BadGrid(_) => "bad-grid",
            PlanError::Broken { .. } => "broken-plan",
        }
    }
}
