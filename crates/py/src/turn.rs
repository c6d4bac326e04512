//! A turn at the memory for work of Python code: see `outcore_access::admission`.

use outcore_access::admission;
use pyo3::prelude::*;

use crate::errors::{foreign, Fault};
use crate::interrupt::Signals;

/// Call `work`, which takes locks on files and makes accesses, in one turn: a thread that holds such a lock
/// must never wait for a turn, because threads with a turn may wait for the lock. If `work` is refused memory
/// that others hold, it is called again, alone.
#[pyfunction]
pub fn whole_in_turn(py: Python<'_>, work: Py<PyAny>) -> PyResult<()> {
    let signals = Signals::default();
    let mut raised = None;
    let result = py.detach(|| {
        admission::in_turn(&signals, || {
            Python::attach(|py| {
                let error = work.call0(py).map(drop).err();
                raised = error.as_ref().map(|error| error.clone_ref(py));
                error.map_or(Ok(()), |error| Err(foreign(error).into()))
            })
        })
    });
    match (result, signals.take().or(raised)) {
        (Ok(()), _) => Ok(()),
        (Err(_), Some(raised)) => Err(raised),
        (Err(fault), None) => Err(Fault::from(fault).into()),
    }
}
