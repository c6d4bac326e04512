//! `_core.Records`: what ranks told each other at the start of a collective.

use std::sync::{Arc, OnceLock};

use numpy::{PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use outcore_plan::collective::{self as plan, Mismatch, Said, Stage, Wanted};
use pyo3::prelude::*;

use crate::buffers;
use crate::errors::{Class, Fault};

/// Of an item: names of its array and its file, words of the array, words of the section.
type Words = (i64, i64, Vec<i64>, Vec<i64>);

/// The records of all ranks.
#[pyclass(module = "outcore._core", frozen)]
pub struct Records {
    records: Arc<plan::Records>,
    arrays: OnceLock<Vec<Wanted>>,
}

fn array_of<'py>(py: Python<'py>, words: &[i64]) -> PyResult<Bound<'py, PyUntypedArray>> {
    let array = buffers::empty(py, &[words.len() as i64], &numpy::dtype::<i64>(py), false)?;
    // SAFETY: the array is new, dense, and of as many words; nobody else knows it yet.
    unsafe {
        let data = buffers::memory(&array).data.cast::<i64>();
        std::ptr::copy_nonoverlapping(words.as_ptr(), data, words.len());
    }
    Ok(array)
}

/// This rank's record, at least as many words as `failed_record` has. `items`: names of the array
/// and its file, words of the array (`Array.descriptor`), and of the section. With `done` this rank has read
/// what it wants.
#[pyfunction]
#[pyo3(signature = (call, settings, items, done = false))]
pub fn record(
    py: Python<'_>,
    call: i64,
    settings: Vec<i64>,
    items: Vec<Words>,
    done: bool,
) -> PyResult<Bound<'_, PyUntypedArray>> {
    let stage = if done { Stage::Done } else { Stage::Ready };
    let said = |(name, file, descriptor, section)| Said { name, file, descriptor, section };
    let items: Vec<Said> = items.into_iter().map(said).collect();
    array_of(py, &plan::record(call, stage, &settings, &items).map_err(Fault::from)?)
}

/// The record of a rank that has what it wants, and says its items only if others want something; or of a
/// call without items. `name`: it has one section of the array that is called so.
#[pyfunction]
#[pyo3(signature = (call, settings, name = None))]
pub fn brief_record(
    py: Python<'_>,
    call: i64,
    settings: Vec<i64>,
    name: Option<i64>,
) -> PyResult<Bound<'_, PyUntypedArray>> {
    array_of(py, &plan::unsaid(call, &settings, name).map_err(Fault::from)?)
}

/// What a rank says that could not make its record.
#[pyfunction]
pub fn failed_record(py: Python<'_>) -> PyResult<Bound<'_, PyUntypedArray>> {
    array_of(py, &plan::failed())
}

#[pymethods]
impl Records {
    /// From an array of int64, a row for each rank.
    #[new]
    fn new(rows: &Bound<'_, PyUntypedArray>) -> PyResult<Records> {
        let word = rows.dtype().itemsize() == 8 && rows.dtype().kind() == b'i';
        if rows.ndim() != 2 || !word || !rows.is_c_contiguous() {
            let text = "records are a dense array of int64, a row for each rank".to_owned();
            return Err(Fault::new(Class::Internal, "bad-record", text).into());
        }
        // SAFETY: the array is dense and of this type and length; NumPy aligns its own, and others are
        // read unaligned below.
        let words: Vec<i64> = unsafe {
            let data = buffers::memory(rows).data.cast::<i64>().cast_const();
            (0..rows.len()).map(|k| data.add(k).read_unaligned()).collect()
        };
        let records = plan::Records::new(words, rows.shape()[1]).map_err(Fault::from)?;
        Ok(Records { records: Arc::new(records), arrays: OnceLock::new() })
    }

    /// Whether any rank failed, whether all made the same call, and the words of the longest record.
    #[getter]
    fn verdict(&self) -> (bool, bool, i64) {
        (self.records.any_failed(), self.records.same_call(), self.records.longest())
    }

    /// Version and call of each rank.
    fn calls(&self) -> Vec<(i64, i64)> {
        self.records.calls().collect()
    }

    /// One of the settings, of all ranks.
    fn setting(&self, number: usize) -> Vec<i64> {
        self.records.setting(number).collect()
    }

    /// One of the settings, of the first rank that brought an item.
    fn first_setting(&self, number: usize) -> i64 {
        self.records.first_setting(number)
    }

    /// Whether all ranks made the same call, have what they want, and said the same of a setting. With
    /// `one`, each must have brought one section of the same array.
    fn settled(&self, same: usize, one: bool) -> bool {
        self.records.settled(same, one)
    }

    /// Whether any rank has still to say its items.
    #[getter]
    fn unsaid(&self) -> bool {
        self.records.any_unsaid()
    }

    /// Reads all items. None if they fit together; otherwise what is odd (`"descriptor"`, `"array"`), and
    /// on which ranks. With `one`, all ranks must have brought one section of the same array.
    fn compare(&self, py: Python<'_>, one: bool) -> PyResult<Option<(&'static str, Vec<u32>)>> {
        match py.detach(|| self.records.arrays(one)) {
            Ok(arrays) => {
                let _ = self.arrays.set(arrays);
                Ok(None)
            }
            Err(Mismatch::ArrayDescriptor(rank)) => Ok(Some(("descriptor", vec![rank]))),
            Err(Mismatch::Array(ranks)) => Ok(Some(("array", ranks))),
            Err(Mismatch::Words(error)) => Err(Fault::from(error).into()),
        }
    }

    /// Names of the arrays, in the order in which they were brought.
    #[getter]
    fn names(&self) -> Vec<i64> {
        self.wanted().iter().map(|wanted| wanted.name).collect()
    }

    /// Names of their files; odd where only one process at a time may write it.
    #[getter]
    fn files(&self) -> Vec<i64> {
        self.wanted().iter().map(|wanted| wanted.file).collect()
    }

    /// Whether any array is stored in blocks that are encoded.
    #[getter]
    fn encoded(&self) -> bool {
        self.wanted().iter().any(|wanted| wanted.descriptor.encoded)
    }

    /// Bytes of the largest block that has one owner.
    #[getter]
    fn block(&self) -> i64 {
        self.wanted().iter().map(Wanted::block).max().unwrap_or(0)
    }

    /// The same ranks and settings, as if they had brought this array alone.
    fn alone(&self, array: usize) -> Records {
        let wanted: Vec<Wanted> = self.wanted().get(array).into_iter().cloned().collect();
        Records { records: Arc::clone(&self.records), arrays: OnceLock::from(wanted) }
    }

    /// Ranks that have an array.
    fn have(&self, array: usize) -> Vec<u32> {
        self.wanted().get(array).map_or_else(Vec::new, |wanted| wanted.have.clone())
    }

    /// Bytes that anybody wants of each array, each once.
    fn union(&self, py: Python<'_>) -> Vec<i64> {
        py.detach(|| self.wanted().iter().map(Wanted::union).collect())
    }

    /// Bytes that each rank wants of each array: of all ranks of the first array, then of the next.
    fn requests<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyUntypedArray>> {
        let ranks = self.records.ranks();
        let each = self.wanted().iter().flat_map(|wanted| wanted.requests(ranks));
        array_of(py, &each.collect::<Vec<i64>>())
    }
}

impl Records {
    /// The arrays; none before `compare`.
    pub fn wanted(&self) -> &[Wanted] {
        self.arrays.get().map_or(&[], Vec::as_slice)
    }

    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.records.ranks()
    }
}
