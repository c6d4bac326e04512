//! Places of masks.

use numpy::{PyReadonlyArray1, PyReadwriteArray1};
use outcore_compute::nonzero::places;
use outcore_io::cpu::cores;
use pyo3::prelude::*;

use crate::errors::{detached, Class, Fault};

/// Fills `out` with the places of the bytes of a mask that are not zero, ascending; `out` has as many elements.
#[pyfunction]
pub fn nonzero_places(
    py: Python<'_>,
    mask: PyReadonlyArray1<'_, u8>,
    mut out: PyReadwriteArray1<'_, i64>,
) -> PyResult<()> {
    let bad = |text: &str| Fault::new(Class::Usage, "bad-index", text.to_owned());
    let (mask, out) = (mask.as_slice(), out.as_slice_mut());
    let (Ok(mask), Ok(out)) = (mask, out) else {
        return Err(bad("a mask and its places are contiguous").into());
    };
    let right = detached(py, || Ok::<bool, Fault>(places(mask, cores(), out)))?;
    if !right {
        return Err(
            bad("a mask was changed while its places were looked for; keep it as it is").into()
        );
    }
    Ok(())
}
