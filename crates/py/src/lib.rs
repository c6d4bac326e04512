//! The compiled module `outcore._core`: translation between Python and the core, no decisions.

use pyo3::prelude::*;

/// The core of outcore.
#[pymodule]
mod _core {
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(m: &Bound<'_, PyModule>) -> PyResult<()> {
        m.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
