//! Loops over blocks, as Python holds them: see `outcore_access::loops`.

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

/// Changes for how many seconds a loop waits for others that stand still; for tests.
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
    /// Bytes that reading (or writing) a block takes at least, beside the blocks.
    #[getter]
    fn least(&self) -> u64 {
        self.0.least()
    }

    /// The thread that calls this is the one that works with the blocks.
    fn step(&self) {
        self.0.step();
    }

    /// The loop has ended. Saying so twice does nothing.
    fn release(&self) {
        self.0.release();
    }
}

/// Begins a loop over blocks that `choose` chooses: it takes the bytes that they may have together, and
/// returns those that they will have, or would need. Each is copied to `target`, if there is one.
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
