//! NumPy arrays as memory: allocation, pointers, strides, casts.
//!
//! This is the only file of the crate that uses NumPy's C interface, and with it raw pointers. An array is
//! passed to the core as [`Memory`]: the address of its first element, and its strides. The owner of a
//! `Memory` keeps the array alive (it holds a reference on the caller's stack) until the core is done, also
//! while the GIL is released.

#![allow(unsafe_code)]

use numpy::npyffi::{
    PyArrayObject, NPY_ARRAY_C_CONTIGUOUS, NPY_ARRAY_F_CONTIGUOUS, NPY_ARRAY_WRITEABLE,
    PY_ARRAY_API,
};
use numpy::{PyArrayDescr, PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::PyTypeInfo;

use outcore_access::reach;
use outcore_io::exec::User;
use outcore_io::pool::PAGE;
use outcore_plan::Section;

use crate::errors::{Class, Fault};

/// Address and strides of an array in memory.
#[derive(Debug, Clone)]
pub struct Memory {
    /// Address of element `[0, ..., 0]`.
    pub data: *mut u8,
    /// Bytes from one element to the next, per axis.
    pub strides: Vec<i64>,
}

// SAFETY: a Memory is an address; its user must own the array, as the module text states.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Returns all elements of an array of this shape.
    ///
    /// # Safety
    /// As for [`user`](Memory::user); the caller chooses the lifetime.
    pub unsafe fn whole<'a>(&self, shape: &[i64], item: i64) -> User<'a> {
        let (mut low, mut high) = (0, item);
        for (count, stride) in shape.iter().zip(&self.strides) {
            let far = (count - 1).max(0) * stride;
            (low, high) = (low + far.min(0), high + far.max(0));
        }
        // SAFETY: all elements of the array lie in low..high around the first one.
        unsafe { User::new(self.data, low, high) }
    }

    /// Returns the elements of a section for the core, from `shift` bytes after the first element on, with
    /// these strides.
    ///
    /// # Safety
    /// The array has these strides, and the shape of the section; it is kept alive until the core is done,
    /// and may be written if it is read into.
    pub unsafe fn user<'a>(
        &'a self,
        shift: i64,
        section: &Section,
        strides: &[i64],
        item: i64,
    ) -> User<'a> {
        let (low, high) = reach(section, strides, item);
        // SAFETY: all elements of the array lie in low..high around this one.
        unsafe { User::new(self.data.wrapping_offset(shift as isize), low, high) }
    }
}

fn fields(array: &Bound<'_, PyUntypedArray>) -> (*mut u8, i32) {
    let object: *mut PyArrayObject = array.as_array_ptr();
    // SAFETY: `array` is a live ndarray and we hold the GIL; the fields are only read.
    unsafe { ((*object).fields.data.cast(), (*object).fields.flags) }
}

/// Returns the memory of `array`.
pub fn memory(array: &Bound<'_, PyUntypedArray>) -> Memory {
    let strides = array.strides().iter().map(|n| *n as i64).collect();
    Memory { data: fields(array).0, strides }
}

/// Returns whether NumPy lets `array` be written.
pub fn writeable(array: &Bound<'_, PyUntypedArray>) -> bool {
    fields(array).1 & NPY_ARRAY_WRITEABLE != 0
}

/// Returns the shape of `array`.
pub fn shape(array: &Bound<'_, PyUntypedArray>) -> Vec<i64> {
    array.shape().iter().map(|n| *n as i64).collect()
}

/// Calls `PyArray_NewFromDescr`: an array over `data` with these strides in bytes, or contiguous as `flags`
/// specify if there are none; in newly allocated memory if there is no `data`.
///
/// # Safety
///
/// All elements from `data` on must be valid (to write, if the array is written) for as long as the array
/// exists, unless its base is set to their owner.
unsafe fn new_array<'py>(
    py: Python<'py>,
    shape: &[i64],
    dtype: &Bound<'py, PyArrayDescr>,
    strides: Option<&[i64]>,
    data: *mut u8,
    flags: i32,
) -> PyResult<Bound<'py, PyUntypedArray>> {
    let mut dims: Vec<isize> = shape.iter().map(|n| *n as isize).collect();
    let mut steps: Option<Vec<isize>> =
        strides.map(|all| all.iter().map(|n| *n as isize).collect());
    let nd = i32::try_from(dims.len()).map_err(|_| {
        Fault::new(Class::Usage, "too-many-indices", "an array has too many axes; use fewer")
    })?;
    // SAFETY: PyArray_NewFromDescr takes over one reference to the descriptor (into_dtype_ptr gives one
    // away), reads `nd` lengths and, if there are any, as many strides, and returns a new reference or null.
    // It allocates memory if there is no data; otherwise the caller promises that the data is valid.
    unsafe {
        let array = PY_ARRAY_API.PyArray_NewFromDescr(
            py,
            PyUntypedArray::type_object_raw(py),
            dtype.clone().into_dtype_ptr(),
            nd,
            dims.as_mut_ptr(),
            steps.as_mut().map_or(std::ptr::null_mut(), Vec::as_mut_ptr),
            data.cast(),
            flags,
            std::ptr::null_mut(),
        );
        Ok(Bound::from_owned_ptr_or_err(py, array)?.cast_into_unchecked())
    }
}

/// Makes a new array with unspecified content.
pub fn empty<'py>(
    py: Python<'py>,
    shape: &[i64],
    dtype: &Bound<'py, PyArrayDescr>,
    fortran: bool,
) -> PyResult<Bound<'py, PyUntypedArray>> {
    // SAFETY: the array has its own memory. Without data, any flag but 0 means Fortran order.
    unsafe { new_array(py, shape, dtype, None, std::ptr::null_mut(), i32::from(fortran)) }
}

/// As [`empty`], with `bytes` bytes, beginning at a given offset modulo a page: a view of an array with one
/// page more.
pub fn empty_at<'py>(
    py: Python<'py>,
    shape: &[i64],
    dtype: &Bound<'py, PyArrayDescr>,
    fortran: bool,
    (bytes, place): (i64, i64),
) -> PyResult<Bound<'py, PyUntypedArray>> {
    let page = PAGE as i64;
    let around = empty(py, &[bytes.saturating_add(page)], &numpy::dtype::<u8>(py), false)?;
    let first = fields(&around).0;
    let data = first.wrapping_offset((place - first as i64).rem_euclid(page) as isize);
    let flags = if fortran { NPY_ARRAY_F_CONTIGUOUS } else { NPY_ARRAY_C_CONTIGUOUS };
    // SAFETY: the `bytes` bytes from `data` on lie in `around`, which becomes the base (SetBaseObject takes
    // over the reference, also if it fails) and lives as long as the array.
    unsafe {
        let array = new_array(py, shape, dtype, None, data, flags | NPY_ARRAY_WRITEABLE)?;
        match PY_ARRAY_API.PyArray_SetBaseObject(py, array.as_array_ptr(), around.into_ptr()) {
            0 => Ok(array),
            _ => Err(PyErr::fetch(py)),
        }
    }
}

/// Makes a new array of these numbers.
pub fn array_of<'py>(py: Python<'py>, words: &[i64]) -> PyResult<Bound<'py, PyUntypedArray>> {
    let array = empty(py, &[words.len() as i64], &numpy::dtype::<i64>(py), false)?;
    // SAFETY: the array is new, dense, and has as many words; nothing else refers to it yet.
    unsafe {
        let data = memory(&array).data.cast::<i64>();
        std::ptr::copy_nonoverlapping(words.as_ptr(), data, words.len());
    }
    Ok(array)
}

/// Returns the scalar that a 0-d array holds.
pub fn scalar<'py>(array: Bound<'py, PyUntypedArray>) -> PyResult<Bound<'py, PyAny>> {
    let py = array.py();
    // SAFETY: PyArray_Return takes over the reference and returns a new one, or null on failure.
    unsafe {
        let result = PY_ARRAY_API.PyArray_Return(py, array.into_ptr().cast());
        Bound::from_owned_ptr_or_err(py, result)
    }
}

/// Converts `value`, which is not an array, to an array of this type, as NumPy's assignment does.
pub fn converted<'py>(
    value: &Bound<'py, PyAny>,
    dtype: &Bound<'py, PyArrayDescr>,
) -> PyResult<Bound<'py, PyUntypedArray>> {
    let py = value.py();
    let numpy = py.import("numpy")?;
    if value.is_instance(&numpy.getattr("generic")?)? {
        // NumPy's scalars keep their own rules: asarray would cast a date to a number.
        let one = numpy.call_method1("empty", ((), dtype))?;
        one.set_item(py.Ellipsis(), value)?;
        return Ok(one.cast_into()?);
    }
    Ok(numpy.call_method1("asarray", (value, dtype))?.cast_into()?)
}

/// Executes `to[...] = from`, with the casts and broadcasts of NumPy's assignment.
pub fn assign(to: &Bound<'_, PyUntypedArray>, from: &Bound<'_, PyUntypedArray>) -> PyResult<()> {
    let py = to.py();
    // SAFETY: both are live ndarrays and we hold the GIL.
    let status =
        unsafe { PY_ARRAY_API.PyArray_CopyInto(py, to.as_array_ptr(), from.as_array_ptr()) };
    if status < 0 {
        Err(PyErr::fetch(py))
    } else {
        Ok(())
    }
}

/// Makes an array over memory that another object owns.
///
/// # Safety
///
/// `shape` elements of `dtype`, with the strides of `memory`, must be valid (to write, if the view is
/// written) for as long as the view exists.
pub unsafe fn view<'py>(
    py: Python<'py>,
    memory: &Memory,
    shape: &[i64],
    dtype: &Bound<'py, PyArrayDescr>,
) -> PyResult<Bound<'py, PyUntypedArray>> {
    // SAFETY: the caller guarantees the strides and the memory.
    unsafe { new_array(py, shape, dtype, Some(&memory.strides), memory.data, NPY_ARRAY_WRITEABLE) }
}

/// Returns the strides of `array` as if it had this shape: strides of 0 repeat.
pub fn broadcast(
    array: &Bound<'_, PyUntypedArray>,
    shape: &[i64],
    path: &str,
) -> Result<Memory, Fault> {
    let have = self::shape(array);
    let Memory { data, strides } = memory(array);
    let extra = have.len().saturating_sub(shape.len());
    let fits = have.iter().take(extra).all(|n| *n == 1)
        && have.iter().rev().zip(shape.iter().rev()).all(|(n, want)| n == want || *n == 1);
    if !fits {
        let message = format!(
            "a value of shape {have:?} cannot be broadcast to the section of shape {shape:?} of \
             '{path}'; pass a value whose trailing axes equal those of the section, or are 1"
        );
        return Err(Fault::new(Class::Usage, "broadcast", message).at(path));
    }
    let mut all = vec![0; shape.len()];
    let pairs = have.iter().zip(&strides).rev();
    for (slot, (n, stride)) in all.iter_mut().rev().zip(pairs) {
        *slot = if *n == 1 { 0 } else { *stride };
    }
    Ok(Memory { data, strides: all })
}
