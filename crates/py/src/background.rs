//! `_core.Background`: an access that goes on in a thread of its own, without the GIL.
//!
//! Problem. While ranks exchange a round their owners read the next one. Threads of Python would take the
//! GIL from those that exchange.
//!
//! Idea. A thread of the system for each of them, and a handle to wait for it.
//!
//! Invariants. Memory that it uses is referenced by the handle, which waits for the thread before it goes.
//! Where the system has no more threads, it is done before `start` returns.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::Builder;

use pyo3::prelude::*;

use crate::errors::{caught, Fault};

/// Something that was started.
#[pyclass(module = "outcore._core", frozen)]
pub struct Background {
    progress: Arc<Progress>,
    /// What it uses.
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
    /// Told once.
    failure: Option<Fault>,
}

impl Progress {
    /// Waits until it has ended.
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
    /// Whether it has ended, well or not.
    #[getter]
    fn done(&self) -> bool {
        self.progress.state.lock().unwrap_or_else(PoisonError::into_inner).ended
    }

    /// Wait until it has ended; raise what went wrong, the first time.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.progress.wait());
        let mut state = self.progress.state.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(state.failure.take().map_or(Ok(()), Err)?)
    }
}

impl Background {
    /// Starts `work`, which uses what `kept` refers to.
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

    /// What had nothing to do.
    pub(crate) fn ended() -> Background {
        let progress = Arc::<Progress>::default();
        progress.end(Ok(()));
        Background { progress, _kept: vec![] }
    }

    /// What tells that it has ended.
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
