//! Loops over blocks in their Python form: see `outcore_access::loops`.

use std::sync::Arc;
use std::time::Duration;

use outcore_access::blocks::OfArray;
use outcore_access::loops::{self, Start};
use outcore_access::Hints;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::calls::python;
use crate::errors::{foreign, Fault};
use crate::open::Open;

/// Change how many seconds a loop waits for loops that make no progress; for tests.
#[pyfunction]
pub fn wait_for_loops(seconds: f64) -> PyResult<()> {
    let patience = Duration::try_from_secs_f64(seconds);
    loops::wait_for_loops(patience.map_err(|e| PyValueError::new_err(e.to_string()))?);
    Ok(())
}

/// A loop that has begun: the memory of its blocks, until it is released.
#[pyclass(module = "outcore._core", frozen)]
pub struct Loop(loops::Loop);

#[pymethods]
impl Loop {
    /// Least bytes that reading (or writing) a block needs, in addition to the blocks.
    #[getter]
    fn least(&self) -> u64 {
        self.0.least()
    }

    /// Record that the calling thread is the one that works with the blocks.
    fn step(&self) {
        self.0.step();
    }

    /// End the loop. Another call does nothing.
    fn release(&self) {
        self.0.release();
    }
}

/// Begins a loop over blocks that `choose` chooses: it takes the bytes that they may have together, and
/// returns the bytes that they will have, or would need. Each block is copied to `target`, if it is given.
pub fn begin(
    py: Python<'_>,
    (open, path, hints): (&Arc<Open>, &str, &Hints),
    choose: &Py<PyAny>,
    target: Option<&Arc<Open>>,
) -> Result<Loop, Fault> {
    let elements = open.shape().iter().fold(1, |all: i64, n| all.saturating_mul(*n));
    let begun = open.outside(py, |signals| {
        let choose = |room: u64| -> Result<u64, outcore_access::Fault> {
            let chosen = python(|py| choose.bind(py).call1((room,))?.extract::<u64>());
            chosen.map_err(|error| foreign(error).into())
        };
        let target = target.map(|target| &***target);
        let blocks = OfArray { open, choose: &choose, target, elements };
        Start { blocks: &blocks, path, hints }.begin(signals)
    });
    begun.map(Loop)
}
