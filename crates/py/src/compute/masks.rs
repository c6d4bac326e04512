//! Masks: the places that one chooses, and the elements of a block.

use numpy::{PyReadonlyArray1, PyReadwriteArray1};
use outcore_compute::masked::{extent, take_bytes};
use outcore_compute::nonzero::places;
use outcore_io::cpu::cores;
use pyo3::prelude::*;

use crate::errors::{detached, Class, Fault};

/// Fill `out` with the places of the non-zero bytes of a mask, in ascending order; `out` has as many
/// elements.
#[pyfunction]
pub fn nonzero_places(
    py: Python<'_>,
    mask: PyReadonlyArray1<'_, u8>,
    mut out: PyReadwriteArray1<'_, i64>,
) -> PyResult<()> {
    let (mask, out) = (mask.as_slice(), out.as_slice_mut());
    let (Ok(mask), Ok(out)) = (mask, out) else {
        return Err(bad("a mask and its places must be contiguous").into());
    };
    let right = detached(py, || Ok::<bool, Fault>(places(mask, cores(), out)))?;
    if !right {
        return Err(bad(CHANGED).into());
    }
    Ok(())
}

/// Return how many bytes of a mask are not zero, and how many runs of `unit` bytes hold one that is not.
#[pyfunction]
pub fn mask_extent(
    py: Python<'_>,
    mask: PyReadonlyArray1<'_, u8>,
    unit: usize,
) -> PyResult<(usize, usize)> {
    let Ok(mask) = mask.as_slice() else {
        return Err(bad("a mask must be contiguous").into());
    };
    Ok(detached(py, || Ok::<_, Fault>(extent(mask, unit, cores())))?)
}

/// Copy the elements of `item` bytes of a block that a mask chooses to the front of `out`; return their
/// number.
#[pyfunction]
pub fn take_masked(
    py: Python<'_>,
    block: PyReadonlyArray1<'_, u8>,
    item: usize,
    mask: PyReadonlyArray1<'_, u8>,
    mut out: PyReadwriteArray1<'_, u8>,
    lanes: usize,
) -> PyResult<usize> {
    let (Ok(block), Ok(mask), Ok(out)) = (block.as_slice(), mask.as_slice(), out.as_slice_mut())
    else {
        return Err(bad("a block, its mask and the result must be contiguous").into());
    };
    let taken = detached(py, || Ok::<_, Fault>(take_bytes((block, item), mask, out, lanes)))?;
    taken.ok_or_else(|| bad(CHANGED).into())
}

const CHANGED: &str = "a mask changed while it was used as an index; do not modify it during the \
     call";

fn bad(text: &str) -> Fault {
    Fault::new(Class::Usage, "bad-index", text.to_owned())
}
