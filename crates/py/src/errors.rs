//! From the enums of the core to the exceptions of `outcore/errors.py`.
//!
//! Every failure becomes a [`Fault`]: class, stable code, message, numbers. The matches below have no
//! catch-all, so a new variant of the core does not compile until its exception in Python is chosen here.

use std::sync::Arc;

use outcore_access::error::TOO_MANY_OPEN;
use outcore_access::nesting::Inside;
use outcore_access::Reason;
use outcore_io::error::Foreign;
use outcore_io::StorageError;
use outcore_plan::PlanError;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyModule};

/// The class of `errors.py` to which a failure belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// The section does not fit the array.
    Section,
    /// A distribution, or a grid of ranks, is impossible.
    Distribution,
    /// The work does not fit the budget.
    Budget,
    /// The file is not what its format promises.
    Format,
    /// The request is valid, but not supported.
    Unsupported,
    /// An operating system call failed.
    Storage,
    /// An argument is invalid for every call.
    Usage,
    /// A bug.
    Internal,
    /// Ctrl-C: not an error of outcore; raised as `KeyboardInterrupt`.
    Interrupt,
}

impl Class {
    fn name(self) -> &'static str {
        match self {
            Class::Section => "SectionError",
            Class::Distribution => "DistributionError",
            Class::Budget => "BudgetError",
            Class::Format => "FormatError",
            Class::Unsupported => "UnsupportedError",
            Class::Storage => "StorageError",
            Class::Usage => "UsageError",
            Class::Internal | Class::Interrupt => "InternalError",
        }
    }
}

/// A failure to raise in Python.
#[derive(Debug)]
pub struct Fault(Box<Inner>);

#[derive(Debug)]
struct Inner {
    class: Class,
    code: &'static str,
    message: String,
    path: Option<String>,
    details: Vec<(&'static str, i64)>,
    /// An exception that called Python code raised, passed on unchanged.
    raised: Option<PyErr>,
}

impl Fault {
    /// Creates a failure that was found in this crate.
    pub fn new(class: Class, code: &'static str, message: impl Into<String>) -> Fault {
        let message = message.into();
        Fault(Box::new(Inner { class, code, message, path: None, details: vec![], raised: None }))
    }

    /// Adds the file or array concerned.
    pub fn at(mut self, path: &str) -> Fault {
        self.0.path.get_or_insert_with(|| path.to_owned());
        self
    }

    /// Adds a number for code that handles the error: `offset`, `length`, `errno`, `needed`.
    pub fn with(mut self, name: &'static str, value: i64) -> Fault {
        self.0.details.push((name, value));
        self
    }
}

/// Converts an exception of Python code that the core called: a refusal of memory becomes one again.
pub fn foreign(error: PyErr) -> StorageError {
    let (needed, words) = Python::attach(|py| {
        let value = error.value(py);
        let needed: Option<i64> = value.getattr("needed").and_then(|needed| needed.extract()).ok();
        (needed, value.getattr("message").and_then(|text| text.extract::<String>()))
    });
    let raised = format!("the format raised {error}");
    let text = needed.and(words.ok()).unwrap_or(raised);
    StorageError::Foreign(Foreign { text, needed, raised: Arc::new(error) })
}

impl From<outcore_access::Fault> for Fault {
    fn from(fault: outcore_access::Fault) -> Fault {
        let mut found = Fault::from(fault.reason().clone());
        if let Some(path) = fault.path() {
            found = found.at(path);
        }
        let mut more = None;
        for (_, value) in found.0.details.iter_mut().filter(|(name, _)| *name == "needed") {
            *value = value.saturating_add(fault.beside_bytes());
            if *value < fault.enough_bytes() {
                *value = fault.enough_bytes();
                more = Some(format!("The whole access needs a budget of {value} bytes."));
            }
        }
        fault.hints().iter().chain(&more).fold(found, |found, hint| found.hint(hint))
    }
}

impl From<Reason> for Fault {
    fn from(reason: Reason) -> Fault {
        let (code, text) = (reason.code(), reason.to_string());
        let new = |class| Fault::new(class, code, text);
        match reason {
            Reason::Storage(error) => error.into(),
            Reason::Nested { .. } => new(Class::Usage),
            Reason::MissingChunk { .. } => new(Class::Storage),
            Reason::Busy => new(Class::Budget),
            Reason::BlockTooLarge { needed, .. } => {
                new(Class::Budget).with("needed", i64::try_from(needed).unwrap_or(i64::MAX))
            }
        }
    }
}

impl From<PyErr> for Fault {
    fn from(error: PyErr) -> Fault {
        let mut fault = Fault::new(Class::Internal, "raised", "");
        fault.0.raised = Some(error);
        fault
    }
}

impl From<PlanError> for Fault {
    fn from(error: PlanError) -> Fault {
        let (class, code, text) = (plan_class(&error), error.code(), error.to_string());
        let fault = Fault::new(class, code, text);
        match error {
            PlanError::BudgetTooSmall { needed, .. } => fault
                .with("needed", needed)
                .hint("Raise outcore.memory() or Hints(memory=...) to at least that amount."),
            PlanError::BadSection { .. }
            | PlanError::OutOfBounds { .. }
            | PlanError::BadIndex { .. }
            | PlanError::BadLayout(_)
            | PlanError::TooLarge(_)
            | PlanError::TooManyChunks { .. }
            | PlanError::Impossible { .. }
            | PlanError::BadRequests(_)
            | PlanError::BadMachine(_)
            | PlanError::Unassignable(_)
            | PlanError::TooManyToTry(_)
            | PlanError::BadDistribution(_)
            | PlanError::BadGrid(_)
            | PlanError::Broken { .. } => fault,
        }
    }
}

fn plan_class(error: &PlanError) -> Class {
    match error {
        PlanError::BadSection { .. }
        | PlanError::OutOfBounds { .. }
        | PlanError::BadIndex { .. }
        | PlanError::TooLarge(_)
        | PlanError::TooManyChunks { .. } => Class::Section,
        PlanError::BadLayout(_) => Class::Format,
        PlanError::Impossible { .. }
        | PlanError::BadRequests(_)
        | PlanError::BadMachine(_)
        | PlanError::Unassignable(_)
        | PlanError::TooManyToTry(_) => Class::Usage,
        PlanError::BudgetTooSmall { .. } => Class::Budget,
        PlanError::BadDistribution(_) | PlanError::BadGrid(_) => Class::Distribution,
        PlanError::Broken { .. } => Class::Internal,
    }
}

impl From<StorageError> for Fault {
    fn from(error: StorageError) -> Fault {
        let (code, text) = (error.code(), error.to_string());
        let path = error.path().map(|path| path.to_string_lossy().into_owned());
        let new = |class| Fault::new(class, code, text.clone());
        let fault = match error {
            StorageError::Io(io) => new(Class::Storage)
                .with("errno", io.errno.into())
                .maybe("offset", io.offset)
                .maybe("length", io.len),
            StorageError::ShortRead(short) => {
                new(Class::Storage).with("offset", short.offset).with("length", short.len)
            }
            StorageError::Shrunk { .. }
            | StorageError::Replaced { .. }
            | StorageError::LeadsOut { .. } => new(Class::Storage),
            StorageError::Budget(budget) => new(Class::Budget).with(
                "needed",
                i64::try_from(budget.needed.saturating_add(budget.used)).unwrap_or(i64::MAX),
            ),
            StorageError::Plan(plan) => return plan.into(),
            StorageError::Foreign(foreign) => {
                if let Some(needed) = foreign.needed {
                    return new(Class::Budget).with("needed", needed);
                }
                return match foreign.raised.downcast_ref::<PyErr>() {
                    Some(raised) => Python::attach(|py| raised.clone_ref(py)).into(),
                    None => Fault::new(Class::Internal, code, text),
                };
            }
            StorageError::Codec(codec) => new(Class::Format).maybe("offset", codec.offset),
            StorageError::Index(index) => new(Class::Format).maybe("offset", index.offset),
            StorageError::NotRegular { .. } => new(Class::Format),
            StorageError::ReadOnly { .. } => new(Class::Usage),
            StorageError::Locked { .. } | StorageError::InUse { .. } => new(Class::Storage),
            StorageError::Cancelled => new(Class::Interrupt),
            StorageError::Unavailable { .. } => new(Class::Usage),
            StorageError::BadJob(_) => new(Class::Internal),
        };
        match path {
            Some(path) => fault.at(&path),
            None => fault,
        }
    }
}

impl Fault {
    fn maybe(self, name: &'static str, value: Option<i64>) -> Fault {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// Adds the next step.
    pub fn hint(mut self, text: &str) -> Fault {
        self.0.message.push_str(if self.0.message.ends_with('.') { " " } else { ". " });
        self.0.message.push_str(text);
        self
    }

    fn build(self, py: Python<'_>) -> PyResult<PyErr> {
        let Inner { class, code, message, path, details, raised } = *self.0;
        if let Some(raised) = raised {
            return Ok(raised);
        }
        if class == Class::Interrupt {
            // The handler that Python installed will raise; make sure that something is raised.
            py.check_signals()?;
            return Ok(PyKeyboardInterrupt::new_err(message));
        }
        static ERRORS: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
        let errors =
            ERRORS.get_or_try_init(py, || py.import("outcore.errors").map(Bound::unbind))?.bind(py);
        let keywords = PyDict::new(py);
        keywords.set_item("code", code)?;
        keywords.set_item("path", path)?;
        for (name, value) in details {
            keywords.set_item(name, value)?;
        }
        let error = errors.getattr(class.name())?.call((message,), Some(&keywords))?;
        Ok(PyErr::from_value(error))
    }
}

impl From<Fault> for PyErr {
    fn from(fault: Fault) -> PyErr {
        Python::attach(|py| fault.build(py).unwrap_or_else(|error| error))
    }
}

/// Runs `work` without the GIL. A panic inside is a bug; Python gets an `InternalError`.
pub fn detached<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, Fault> + Send,
) -> Result<T, Fault> {
    py.detach(|| caught(work))
}

/// Runs `work`; a panic is a failure, too. Calls that it makes back into Python count as nested.
pub fn caught<T>(work: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    let _inside = Inside::enter();
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "a panic without a message".to_owned());
        let message =
            format!("the core stopped in an impossible state: {text}; please report this");
        Err(Fault::new(Class::Internal, "panic", message))
    })
}

/// Every code that the compiled module can raise, with its class.
#[rustfmt::skip]
pub const CODES: &[(&str, Class)] = &[
    // outcore-plan
    ("bad-section", Class::Section),
    ("index-out-of-bounds", Class::Section),
    ("bad-layout", Class::Format),
    ("too-large", Class::Section),
    ("too-many-chunks", Class::Section),
    ("method-impossible", Class::Usage),
    ("budget-too-small", Class::Budget),
    ("bad-distribution", Class::Distribution),
    ("bad-grid", Class::Distribution),
    ("broken-plan", Class::Internal),
    ("bad-requests", Class::Usage),
    ("assignment-impossible", Class::Usage),
    ("assignment-too-large", Class::Usage),
    // outcore-io
    ("not-found", Class::Storage),
    ("permission-denied", Class::Storage),
    ("read-only-file-system", Class::Storage),
    ("already-exists", Class::Storage),
    ("disk-full", Class::Storage),
    ("disk-failure", Class::Storage),
    (TOO_MANY_OPEN, Class::Storage),
    ("io-failure", Class::Storage),
    ("file-truncated", Class::Storage),
    ("file-changed", Class::Storage),
    ("link-leads-out", Class::Storage),
    ("codec-failure", Class::Format),
    ("chunk-table-damaged", Class::Format),
    ("not-regular", Class::Format),
    ("read-only", Class::Usage),
    ("locked", Class::Storage),
    ("unavailable", Class::Usage),
    ("internal-job", Class::Internal),
    // outcore-access
    ("missing-chunk", Class::Storage),
    ("block-too-large", Class::Budget),
    ("nested-call", Class::Usage),
    // this crate
    ("bad-index", Class::Section),
    ("too-many-indices", Class::Section),
    ("fancy-index", Class::Unsupported),
    ("zero-step", Class::Usage),
    ("out-mismatch", Class::Usage),
    ("broadcast", Class::Usage),
    ("bad-hint", Class::Usage),
    ("closed", Class::Usage),
    ("bad-layout-info", Class::Internal),
    ("object-dtype", Class::Unsupported),
    ("panic", Class::Internal),
    ("bad-block", Class::Internal),
];

/// Return class names by code, for the table of error codes and its test.
#[pyfunction]
pub fn error_codes(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let codes = PyDict::new(py);
    for (code, class) in CODES {
        codes.set_item(code, class.name())?;
    }
    Ok(codes)
}
