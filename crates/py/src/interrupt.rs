//! Ctrl-C while the GIL is released.
//!
//! Python's handlers run with the GIL only. The executor asks now and then, on the thread that
//! called it; every twentieth of a second the answer is looked up for real.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use outcore_io::StorageError;
use pyo3::prelude::*;

use crate::errors::Fault;

const PERIOD: Duration = Duration::from_millis(50);

/// The exception that a signal handler raised, if one did.
pub struct Interrupts {
    state: Mutex<State>,
}

struct State {
    next: Instant,
    raised: Option<PyErr>,
}

impl Default for Interrupts {
    fn default() -> Interrupts {
        let state = State { next: Instant::now() + PERIOD, raised: None };
        Interrupts { state: Mutex::new(state) }
    }
}

impl Interrupts {
    /// Whether to stop.
    pub fn check(&self) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.raised.is_some() {
            return true;
        }
        let now = Instant::now();
        if now < state.next {
            return false;
        }
        state.raised = Python::attach(|py| py.check_signals()).err();
        state.next = Instant::now() + PERIOD;
        state.raised.is_some()
    }

    /// The same as an error.
    pub fn stop(&self) -> Result<(), Fault> {
        match self.check() {
            true => Err(StorageError::Cancelled.into()),
            false => Ok(()),
        }
    }

    /// Whether a handler raised something.
    pub fn raised(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).raised.is_some()
    }

    /// What was raised.
    pub fn take(&self) -> Option<PyErr> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).raised.take()
    }
}
