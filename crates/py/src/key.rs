//! Keys: NumPy basic indexing, converted to a regular section.
//!
//! Problem. A user writes `a[3, ..., ::-2, None]`; the planner accepts sections with steps of at least 1, and
//! byte strides of any sign.
//!
//! Idea. Each axis of the array becomes one ascending range. The axes of the result are stored in a separate
//! list: an axis of the array (perhaps reversed) or a new one. A reversed axis is read in ascending order
//! into memory with a negative stride, so it costs nothing.
//!
//! Invariant. `section` has one range per axis of the array; `axes` holds each axis that was not
//! indexed by an integer exactly once, in order.

use numpy::{PyUntypedArray, PyUntypedArrayMethods};
use outcore_plan::{Range, Section};
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{
    PyBool, PyEllipsis, PyInt, PyList, PySlice, PySliceMethods, PyString, PyTuple, PyType,
};

use crate::errors::{Class, Fault};

/// One axis of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Axis {
    /// `None` in the key: length 1, not an axis of the array.
    New,
    /// Axis number of the array; `reversed` if the key has a negative step there.
    Of(usize, bool),
}

/// A parsed key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// The chosen elements, one range per axis of the array.
    pub section: Section,
    /// The axes of the result.
    pub axes: Vec<Axis>,
    /// Every axis was given an integer and there was no `...`: NumPy returns a scalar.
    pub scalar: bool,
}

/// Place of element `[0, ..., 0]` of the section in a user's array, and the strides from there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Walk {
    /// Bytes from the array's data pointer to element 0 of the section.
    pub shift: i64,
    /// Byte strides, one per axis of the section.
    pub strides: Vec<i64>,
}

impl Selection {
    /// Returns the shape that NumPy gives to the result.
    pub fn shape(&self) -> Vec<i64> {
        let ranges = self.section.ranges();
        let length = |axis: &Axis| match axis {
            Axis::New => 1,
            Axis::Of(d, _) => ranges.get(*d).map_or(1, |r| r.count),
        };
        self.axes.iter().map(length).collect()
    }

    /// Returns the number of elements, or an error if it does not fit 63 bits.
    pub fn size(&self) -> Result<i64, Fault> {
        let mut counts = self.section.ranges().iter().map(|r| r.count);
        if counts.clone().any(|n| n == 0) {
            return Ok(0);
        }
        let product = counts.try_fold(1_i64, |all, n| all.checked_mul(n));
        product.ok_or_else(|| {
            Fault::new(Class::Section, "too-large", "the section has more than 2**63 elements")
        })
    }

    /// Returns the walk along the section for memory whose axes are `self.axes`, with these byte strides.
    pub fn walk(&self, strides: &[i64]) -> Walk {
        let ranges = self.section.ranges();
        let mut walk = Walk { shift: 0, strides: vec![0; ranges.len()] };
        for (axis, stride) in self.axes.iter().zip(strides) {
            let Axis::Of(d, reversed) = *axis else { continue };
            let (Some(range), Some(slot)) = (ranges.get(d), walk.strides.get_mut(d)) else {
                continue;
            };
            if reversed {
                // An array in memory: its extent fits 63 bits, so the product does.
                walk.shift += (range.count - 1).max(0) * stride;
                *slot = -stride;
            } else {
                *slot = *stride;
            }
        }
        walk
    }

    /// Returns the part with result indices `start .. start + count` along result axis `k`.
    pub fn part(&self, k: usize, start: i64, count: i64) -> Result<Selection, Fault> {
        let mut ranges = self.section.ranges().to_vec();
        if let Some(Axis::Of(d, reversed)) = self.axes.get(k).copied() {
            if let Some(range) = ranges.get_mut(d) {
                let low = if reversed { range.count - start - count } else { start };
                *range = Range::new(range.start + low * range.step, count, range.step)?;
            }
        }
        Ok(Selection {
            section: Section::new(ranges),
            axes: self.axes.clone(),
            scalar: self.scalar,
        })
    }
}

/// Parses `key` for an array of this `shape`; `path` is for the error message.
pub fn parse(key: &Bound<'_, PyAny>, shape: &[i64], path: &str) -> PyResult<Selection> {
    let reader = Reader { shape, path };
    match key.cast::<PyTuple>() {
        Ok(tuple) => reader.items(&tuple.iter().collect::<Vec<_>>()),
        Err(_) => reader.items(std::slice::from_ref(key)),
    }
}

/// Kind of an item of a key, before it is applied to an axis.
enum Kind<'a, 'py> {
    Slice(&'a Bound<'py, PySlice>),
    Number(Bound<'py, PyAny>),
}

/// Effect of one item of a key on its axis.
enum Item {
    Range(Range, bool),
    Point(Range),
}

struct Reader<'a> {
    shape: &'a [i64],
    path: &'a str,
}

impl Reader<'_> {
    fn items(&self, items: &[Bound<'_, PyAny>]) -> PyResult<Selection> {
        let ndim = self.shape.len();
        let (mut used, mut dots) = (0_usize, false);
        for item in items {
            if item.is_none() {
                continue;
            }
            if item.is_instance_of::<PyEllipsis>() {
                if dots {
                    return Err(self.bad_index("a key can hold '...' only once").into());
                }
                dots = true;
            } else {
                used += 1;
            }
        }
        if used > ndim {
            // Report invalid items first: `a[[1, 2], mask]` is fancy, not too long.
            items.iter().try_for_each(|item| self.check_kind(item))?;
            let message = format!(
                "the key has {used} indices for '{}', which has {ndim} axes; omit some, or use None \
                 for a new axis",
                self.path
            );
            return Err(self.fault("too-many-indices", message).into());
        }
        let mut ranges = Vec::with_capacity(ndim);
        let mut axes = Vec::with_capacity(ndim.max(items.len()));
        let mut points = 0;
        for item in items {
            if item.is_none() {
                axes.push(Axis::New);
            } else if item.is_instance_of::<PyEllipsis>() {
                self.rest(ndim - used, &mut ranges, &mut axes)?;
            } else {
                let found = match self.item(item, ranges.len()) {
                    Ok(found) => found,
                    Err(error) => {
                        // Next to a mask of several axes it may be the index of another axis.
                        items.iter().try_for_each(|item| self.check_kind(item))?;
                        return Err(error);
                    }
                };
                match found {
                    Item::Point(range) => {
                        ranges.push(range);
                        points += 1;
                    }
                    Item::Range(range, reversed) => {
                        axes.push(Axis::Of(ranges.len(), reversed));
                        ranges.push(range);
                    }
                }
            }
        }
        self.rest(ndim - ranges.len(), &mut ranges, &mut axes)?;
        let scalar = points == ndim && axes.is_empty() && !dots;
        Ok(Selection { section: Section::new(ranges), axes, scalar })
    }

    /// Adds the next `n` axes whole.
    fn rest(&self, n: usize, ranges: &mut Vec<Range>, axes: &mut Vec<Axis>) -> PyResult<()> {
        for _ in 0..n {
            let axis = ranges.len();
            let len = self.shape.get(axis).copied().unwrap_or(0);
            axes.push(Axis::Of(axis, false));
            ranges.push(Range::new(0, len, 1).map_err(Fault::from)?);
        }
        Ok(())
    }

    /// Checks whether basic indexing accepts this item, at any position.
    fn check_kind(&self, item: &Bound<'_, PyAny>) -> PyResult<()> {
        if item.is_none() || item.is_instance_of::<PyEllipsis>() {
            return Ok(());
        }
        self.kind(item).map(|_| ())
    }

    /// Parses one item for one axis.
    fn item(&self, item: &Bound<'_, PyAny>, axis: usize) -> PyResult<Item> {
        let len = self.shape.get(axis).copied().unwrap_or(0);
        match self.kind(item)? {
            Kind::Slice(slice) => self.slice(slice, axis, len),
            Kind::Number(number) => self.point(&number, axis, len),
        }
    }

    fn kind<'a, 'py>(&self, item: &'a Bound<'py, PyAny>) -> PyResult<Kind<'a, 'py>> {
        if let Ok(slice) = item.cast::<PySlice>() {
            return Ok(Kind::Slice(slice));
        }
        if item.is_exact_instance_of::<PyInt>() {
            return Ok(Kind::Number(item.clone()));
        }
        self.refuse_fancy(item)?;
        match index_of(item) {
            Ok(number) => Ok(Kind::Number(number)),
            Err(error) if error.is_instance_of::<PyTypeError>(item.py()) => {
                let kind = item.get_type().name()?;
                Err(self
                    .bad_index(&format!(
                        "'{kind}' is not a valid index; use integers, slices, '...' or None"
                    ))
                    .into())
            }
            Err(error) => Err(error),
        }
    }

    fn slice(&self, slice: &Bound<'_, PySlice>, axis: usize, len: i64) -> PyResult<Item> {
        let found = slice.indices(len as isize).map_err(|error| {
            if error.is_instance_of::<PyValueError>(slice.py()) {
                let text = format!(
                    "the step of the slice on axis {axis} of '{}' is zero; use 1, or omit it",
                    self.path
                );
                Fault::new(Class::Usage, "zero-step", text).at(self.path).into()
            } else {
                error
            }
        })?;
        let (start, count, step) =
            (found.start as i64, found.slicelength as i64, found.step as i64);
        let range = if step >= 0 || count == 0 {
            Range::new(start.max(0), count, step.max(1))
        } else {
            // count - 1 steps down from start stay inside 0..len: no overflow.
            Range::new(start + (count - 1) * step, count, step.checked_neg().unwrap_or(i64::MAX))
        };
        Ok(Item::Range(range.map_err(Fault::from)?, step < 0))
    }

    fn point(&self, number: &Bound<'_, PyAny>, axis: usize, len: i64) -> PyResult<Item> {
        let index = match number.extract::<i64>() {
            Ok(index) => index,
            Err(error) if error.is_instance_of::<PyOverflowError>(number.py()) => {
                return Err(self.out_of_bounds(&number.str()?.to_string(), axis, len).into());
            }
            Err(error) => return Err(error),
        };
        let from_start = if index < 0 { index.checked_add(len) } else { Some(index) };
        match from_start {
            Some(at) if (0..len).contains(&at) => {
                Ok(Item::Point(Range::new(at, 1, 1).map_err(Fault::from)?))
            }
            _ => Err(self.out_of_bounds(&index.to_string(), axis, len).into()),
        }
    }

    fn refuse_fancy(&self, item: &Bound<'_, PyAny>) -> PyResult<()> {
        let what = if item.is_instance_of::<PyBool>() || is_numpy_bool(item)? {
            "a boolean"
        } else if item.is_instance_of::<PyList>() || item.is_instance_of::<PyTuple>() {
            "a list of indices"
        } else if let Ok(array) = item.cast::<PyUntypedArray>() {
            if array.ndim() == 0 && array.dtype().getattr("kind")?.eq("b")? {
                "a boolean"
            } else if array.ndim() > 0 {
                "an array of indices"
            } else {
                return Ok(());
            }
        } else if item.is_instance_of::<PyString>() {
            "a field name"
        } else {
            return Ok(());
        };
        let message = format!(
            "'{}' was indexed with {what}, which is not supported here; use integers, slices with \
             any step, '...' or None: read a section that covers the elements, then index the \
             result",
            self.path
        );
        Err(Fault::new(Class::Unsupported, "fancy-index", message).at(self.path).into())
    }

    fn out_of_bounds(&self, index: &str, axis: usize, len: i64) -> Fault {
        let inside = if len == 0 { "empty".to_owned() } else { format!("outside 0..{}", len - 1) };
        let message = if len == 0 {
            format!(
                "index {index} on axis {axis} of '{}' is invalid: the axis is {inside}; call \
                 resize() first to make the array longer",
                self.path
            )
        } else {
            format!(
                "index {index} on axis {axis} of '{}' is {inside}; use an index inside the axis, or \
                 call resize() first to make the array longer (slices are clipped to the array as \
                 in NumPy, single indices are not)",
                self.path
            )
        };
        self.fault("index-out-of-bounds", message)
    }

    fn bad_index(&self, why: &str) -> Fault {
        self.fault("bad-index", format!("the key for '{}' is invalid: {why}", self.path))
    }

    fn fault(&self, code: &'static str, message: String) -> Fault {
        Fault::new(Class::Section, code, message).at(self.path)
    }
}

fn index_of<'py>(item: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    static INDEX: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = item.py();
    let index = INDEX.get_or_try_init(py, || {
        py.import("operator").and_then(|m| m.getattr("index")).map(Bound::unbind)
    })?;
    index.bind(py).call1((item,))
}

fn is_numpy_bool(item: &Bound<'_, PyAny>) -> PyResult<bool> {
    static BOOL: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    item.is_instance(BOOL.import(item.py(), "numpy", "bool_")?.as_any())
}
