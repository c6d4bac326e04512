//! Ctrl-C while the GIL is released.
//!
//! Python's handlers run only with the GIL. The executor checks periodically, on the thread that called it;
//! signals are actually checked every twentieth of a second. Another thread can stop a call in the background
//! ([`Stop`]), which is noticed at the next check.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use outcore_access::admission::Handling;
use outcore_access::Interrupts;
use pyo3::prelude::*;

pyo3::import_exception!(concurrent.futures, CancelledError);

thread_local! {
    /// Flags that may stop the calls of this thread, the innermost last.
    static STOPS: RefCell<Vec<Arc<AtomicBool>>> = const { RefCell::new(Vec::new()) };
}

/// Stops the calls in its `with` block, on the thread of that block, with `CancelledError`.
#[pyclass(module = "outcore._core", frozen)]
pub struct Stop(Arc<AtomicBool>);

#[pymethods]
impl Stop {
    #[new]
    fn new() -> Stop {
        Stop(Arc::default())
    }

    /// Stop them.
    fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        STOPS.with_borrow_mut(|stops| stops.push(slf.get().0.clone()));
        slf
    }

    #[pyo3(signature = (*_ended))]
    fn __exit__(&self, _ended: &Bound<'_, pyo3::types::PyTuple>) {
        STOPS.with_borrow_mut(|stops| stops.pop());
    }
}

const PERIOD: Duration = Duration::from_millis(50);
/// While handlers run, no other thread checks for signals.
const FAR: Duration = Duration::from_secs(3600);

/// The exception that a signal handler raised, or that another thread requested.
pub struct Signals {
    stop: Option<Arc<AtomicBool>>,
    state: Mutex<State>,
}

struct State {
    next: Instant,
    raised: Option<PyErr>,
}

impl Default for Signals {
    fn default() -> Signals {
        let state = State { next: Instant::now() + PERIOD, raised: None };
        let stop = STOPS.with_borrow(|stops| stops.last().cloned());
        Signals { stop, state: Mutex::new(state) }
    }
}

impl Signals {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the raised exception.
    pub fn take(&self) -> Option<PyErr> {
        self.lock().raised.take()
    }
}

impl Interrupts for Signals {
    fn check(&self) -> bool {
        let mut state = self.lock();
        if state.raised.is_some() {
            return true;
        }
        if self.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            state.raised = Some(CancelledError::new_err("the call was stopped before its end"));
            return true;
        }
        let now = Instant::now();
        if now < state.next {
            return false;
        }
        // Handlers may run for long, and other threads of the access check here at the same time.
        state.next = now + FAR;
        drop(state);
        let raised = {
            let _handling = Handling::begin();
            Python::attach(|py| py.check_signals()).err()
        };
        let mut state = self.lock();
        state.next = Instant::now() + PERIOD;
        if state.raised.is_none() {
            state.raised = raised;
        }
        state.raised.is_some()
    }

    fn raised(&self) -> bool {
        self.lock().raised.is_some()
    }
}
