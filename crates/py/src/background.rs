//! `_core.Background`: an access that runs in a separate thread, without the GIL.
//!
//! Problem. While ranks exchange a round, their owners read the next one. Threads of Python would take the
//! GIL from the ranks that exchange.
//!
//! Idea. A thread of the operating system for each access, and a handle to wait for it.
//!
//! Invariants. The handle references the memory that the thread uses, and waits for the thread before it is
//! dropped. If the system has no more threads, the work is done before `start` returns.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::Builder;

use pyo3::prelude::*;

use crate::errors::{caught, Fault};

/// Work that was started.
#[pyclass(module = "outcore._core", frozen)]
pub struct Background {
    progress: Arc<Progress>,
    /// Objects that it uses.
    _kept: Vec<Py<PyAny>>,
}

#[derive(Default)]
pub(crate) struct Progress {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    ended: bool,
    /// Reported once.
    failure: Option<Fault>,
}

impl Progress {
    /// Waits until the work has ended.
    pub(crate) fn wait(&self) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.ended.wait_while(state, |state| !state.ended));
    }

    fn end(&self, result: Result<(), Fault>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.ended, state.failure) = (true, result.err());
        self.ended.notify_all();
    }
}

#[pymethods]
impl Background {
    /// True if the work has ended, successfully or not.
    #[getter]
    fn done(&self) -> bool {
        self.progress.state.lock().unwrap_or_else(PoisonError::into_inner).ended
    }

    /// Wait until the work has ended; raise its error, the first time.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.progress.wait());
        let mut state = self.progress.state.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(state.failure.take().map_or(Ok(()), Err)?)
    }
}

impl Background {
    /// Starts `work`, which uses the objects in `kept`.
    pub(crate) fn start(
        py: Python<'_>,
        kept: Vec<Py<PyAny>>,
        work: impl FnOnce() -> Result<(), Fault> + Send + 'static,
    ) -> Background {
        let progress = Arc::<Progress>::default();
        let (told, todo) = (progress.clone(), Arc::new(Mutex::new(Some(work))));
        let run = {
            let todo = todo.clone();
            move || {
                let work = todo.lock().unwrap_or_else(PoisonError::into_inner).take();
                if let Some(work) = work {
                    told.end(caught(work));
                }
            }
        };
        let again = run.clone();
        if Builder::new().name("outcore-rounds".to_owned()).spawn(run).is_err() {
            py.detach(again);
        }
        Background { progress, _kept: kept }
    }

    /// Returns a handle for work that had nothing to do.
    pub(crate) fn ended() -> Background {
        let progress = Arc::<Progress>::default();
        progress.end(Ok(()));
        Background { progress, _kept: vec![] }
    }

    /// Returns the flag that is set when the work has ended.
    pub(crate) fn progress(&self) -> Arc<Progress> {
        self.progress.clone()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if !self.done() {
            Python::attach(|py| py.detach(|| self.progress.wait()));
        }
    }
}
