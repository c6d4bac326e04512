//! Index lists of a request, and their checks.

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use crate::error::PlanError;
use crate::layout::{Layout, Strided};
use crate::section::{Range, Section};

/// Ways to combine the lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lists<'a> {
    /// Point `i` has the coordinates `lists[k][i]`: lists of one length.
    Points(&'a [&'a [i64]]),
    /// All combinations of the lists, the last list fastest.
    Outer(&'a [&'a [i64]]),
    /// One list of flat indices: positions along the indexed axes in C order.
    Flat(&'a [i64]),
}

/// Elements, or blocks of them, chosen by lists along some axes. Negative indices count from the end.
#[derive(Debug, Clone, Copy)]
pub struct Index<'a> {
    /// The indexed axes, ascending.
    pub axes: &'a [usize],
    /// The lists of the indexed axes.
    pub lists: Lists<'a>,
    /// Ranges of the other axes; those of indexed axes are ignored.
    pub rest: &'a Section,
    /// Byte stride of the caller's array from one point to the next.
    pub point: i64,
    /// Byte strides of the caller's array along each axis; those of indexed axes are ignored.
    pub strides: &'a [i64],
}

/// One loop over the points: the contribution of its indices to the address in the file.
pub(super) enum Source<'a> {
    /// One list for each of some axes.
    Lists(Vec<(usize, &'a [i64])>),
    /// One list of flat indices.
    Flat(&'a [i64]),
    /// A regular axis whose elements are separate points.
    Regular(usize),
}

pub(super) struct Loop<'a> {
    pub len: usize,
    pub source: Source<'a>,
    pub user: i64,
}

pub(super) fn shape_of(layout: &Layout) -> &[i64] {
    match layout {
        Layout::Strided(layout) => &layout.shape,
        Layout::Chunked(layout) => &layout.shape,
    }
}

fn outside(axis: usize, position: usize, value: i64, len: i64) -> PlanError {
    PlanError::BadIndex { axis, position: position as u64, value, len }
}

/// Converts an index that may be negative into one counted from the front.
pub(super) fn wrapped(value: i64, len: i64) -> i64 {
    value.wrapping_add(len & (value >> 63))
}

/// Rejects the first index outside an axis of `len` elements.
fn check(list: &[i64], axis: usize, len: i64) -> Result<(), PlanError> {
    // Whole blocks are checked by signs, without a branch, so that a processor handles many indices
    // per instruction. The position is only searched if an index is invalid.
    for (number, block) in list.chunks(4096).enumerate() {
        let sign = |value: i64| value.wrapping_add(len) | (len - 1).wrapping_sub(value);
        if block.iter().fold(0, |signs, value| signs | sign(*value)) >= 0 {
            continue;
        }
        for (k, value) in block.iter().enumerate() {
            if *value < -len || *value >= len {
                return Err(outside(axis, number * 4096 + k, *value, len));
            }
        }
    }
    Ok(())
}

impl<'a> Index<'a> {
    /// Number of points.
    pub fn len(&self) -> Result<usize, PlanError> {
        let product =
            |lists: &[&[i64]]| lists.iter().try_fold(1_usize, |n, list| n.checked_mul(list.len()));
        match self.lists {
            Lists::Points(lists) => Ok(lists.first().map_or(0, |list| list.len())),
            Lists::Flat(list) => Ok(list.len()),
            Lists::Outer(lists) => match lists.iter().any(|list| list.is_empty()) {
                true => Ok(0),
                false => product(lists)
                    .filter(|n| i64::try_from(*n).is_ok())
                    .ok_or(PlanError::TooLarge("the number of points")),
            },
        }
    }

    /// Returns whether there are no points.
    pub fn is_empty(&self) -> Result<bool, PlanError> {
        Ok(self.len()? == 0)
    }

    /// Number of elements of the regular axes at each point.
    pub fn block(&self) -> Result<i64, PlanError> {
        let ranges = self.rest.ranges().iter().enumerate();
        let rest = ranges.filter(|(d, _)| !self.axes.contains(d));
        rest.map(|(_, range)| range.count)
            .try_fold(1_i64, |n, count| n.checked_mul(count))
            .ok_or(PlanError::TooLarge("a block"))
    }

    /// Rejects lists that do not match the array.
    ///
    /// Reasons: wrong numbers of lists or entries, axes that do not ascend, indices outside.
    pub fn check(&self, shape: &[i64]) -> Result<(), PlanError> {
        let bad = |why| Err(PlanError::BadSection { what: format!("{:?}", self.axes), why });
        let ascend = self.axes.windows(2).all(|pair| pair[0] < pair[1]);
        if self.axes.is_empty() || !ascend || self.axes.iter().any(|d| *d >= shape.len()) {
            return bad("indexed axes must ascend and exist");
        }
        if self.strides.len() != shape.len() || self.rest.ndim() != shape.len() {
            return bad("each axis of the array needs a range and a stride");
        }
        match self.lists {
            Lists::Points(lists) | Lists::Outer(lists) => {
                if lists.len() != self.axes.len() {
                    return bad("each indexed axis needs a list");
                }
                let alike = |pair: &[&[i64]]| pair[0].len() == pair[1].len();
                if matches!(self.lists, Lists::Points(_)) && !lists.windows(2).all(alike) {
                    return bad("lists of points must have one length");
                }
                for (list, axis) in lists.iter().zip(self.axes) {
                    check(list, *axis, shape[*axis])?;
                }
            }
            Lists::Flat(list) => {
                let elements = self.axes.iter().try_fold(1_i64, |n, d| n.checked_mul(shape[*d]));
                let elements = elements.ok_or(PlanError::TooLarge("the indexed axes"))?;
                check(list, self.axes[0], elements)?;
            }
        }
        self.len()?;
        Ok(())
    }

    /// Returns, for each axis, whether its elements lie inside the block of a point.
    ///
    /// The other regular axes are walked as points, because their elements are as far apart as
    /// points, or because a block might cross a border of parts.
    pub fn inner(&self, layout: &Strided) -> Vec<bool> {
        let least = self.axes.iter().map(|d| layout.strides[*d]).min().unwrap_or(0);
        let one = layout.parts.len() == 1;
        (0..layout.shape.len())
            .map(|d| one && !self.axes.contains(&d) && layout.strides[d] < least)
            .collect()
    }

    /// The section common to all points, for the plan.
    ///
    /// The inner axes have their ranges, the others one element at index 0.
    pub fn cell(&self, layout: &Layout) -> Result<Section, PlanError> {
        let shape = shape_of(layout);
        let one = |d: usize| Range { start: 0, count: shape[d].min(1), step: 1 };
        let inner = match layout {
            Layout::Strided(layout) => self.inner(layout),
            Layout::Chunked(layout) => {
                (0..layout.shape.len()).map(|d| !self.axes.contains(&d)).collect()
            }
        };
        let ranges = self.rest.ranges().iter().zip(inner).enumerate();
        let range = |(d, (r, inner)): (usize, (&Range, bool))| if inner { *r } else { one(d) };
        Ok(Section::new(ranges.map(range).collect()))
    }

    /// The loops over all points, the slowest first.
    pub(super) fn loops(&self, layout: &Layout) -> Result<Vec<Loop<'a>>, PlanError> {
        let mut loops = Vec::new();
        match self.lists {
            Lists::Points(lists) => {
                let source = self.axes.iter().copied().zip(lists.iter().copied()).collect();
                let source = Source::Lists(source);
                loops.push(Loop { len: self.len()?, source, user: self.point });
            }
            Lists::Flat(list) => {
                let source = Source::Flat(list);
                loops.push(Loop { len: list.len(), source, user: self.point });
            }
            Lists::Outer(lists) => {
                let mut user = self.point;
                for (axis, list) in self.axes.iter().zip(lists).rev() {
                    let source = Source::Lists(vec![(*axis, *list)]);
                    loops.insert(0, Loop { len: list.len(), source, user });
                    user = user.saturating_mul(list.len() as i64);
                }
            }
        }
        if let Layout::Strided(layout) = layout {
            let inner = self.inner(layout);
            for (d, range) in self.rest.ranges().iter().enumerate() {
                if !inner[d] && !self.axes.contains(&d) {
                    let len = usize::try_from(range.count).unwrap_or(usize::MAX);
                    let (source, user) = (Source::Regular(d), self.strides[d]);
                    loops.push(Loop { len, source, user });
                }
            }
            // In the order of the file, as far as loops allow.
            let stride = |one: &Loop| match &one.source {
                Source::Lists(lists) => lists.iter().map(|(d, _)| layout.strides[*d]).max(),
                Source::Flat(_) => self.axes.iter().map(|d| layout.strides[*d]).max(),
                Source::Regular(d) => Some(layout.strides[*d]),
            };
            loops.sort_by_key(|one| core::cmp::Reverse(stride(one)));
        }
        Ok(loops)
    }

    /// The section of point `k` of an array of this shape.
    ///
    /// It has the point's element along the indexed axes and the ranges of the others. The index
    /// must be checked.
    pub fn section(&self, k: usize, shape: &[i64]) -> Result<Section, PlanError> {
        let mut ranges = self.rest.ranges().to_vec();
        let mut set = |axis: usize, index: i64| {
            ranges[axis] = Range { start: index, count: 1, step: 1 };
        };
        match self.lists {
            Lists::Points(lists) => {
                for (axis, list) in self.axes.iter().zip(lists) {
                    set(*axis, wrapped(list[k], shape[*axis]));
                }
            }
            Lists::Outer(lists) => {
                let mut left = k;
                for (axis, list) in self.axes.iter().zip(lists).rev() {
                    set(*axis, wrapped(list[left % list.len()], shape[*axis]));
                    left /= list.len();
                }
            }
            Lists::Flat(list) => {
                let elements: i64 = self.axes.iter().map(|axis| shape[*axis]).product();
                let mut left = wrapped(list[k], elements);
                for axis in self.axes.iter().rev() {
                    set(*axis, left % shape[*axis]);
                    left /= shape[*axis];
                }
            }
        }
        Ok(Section::new(ranges))
    }

    /// Lowest byte and one past the highest byte of the caller's array that the points touch.
    ///
    /// Both are relative to its first element.
    pub fn reach(&self, layout: &Layout) -> Result<(i64, i64), PlanError> {
        let item = match layout {
            Layout::Strided(layout) => layout.item,
            Layout::Chunked(layout) => layout.item,
        };
        let points = i64::try_from(self.len()?).unwrap_or(i64::MAX);
        let regular = self.rest.ranges().iter().zip(self.strides).enumerate();
        let regular = regular.filter(|(d, _)| !self.axes.contains(d));
        let loops = regular.map(|(_, (range, stride))| (range.count, *stride));
        let (mut low, mut high) = (0_i64, item);
        for (count, stride) in loops.chain([(points, self.point)]) {
            let far = (count - 1).max(0).checked_mul(stride);
            let far = far.ok_or(PlanError::TooLarge("the caller's array"))?;
            let sum = |at: i64, more| {
                at.checked_add(more).ok_or(PlanError::TooLarge("the caller's array"))
            };
            (low, high) = (sum(low, far.min(0))?, sum(high, far.max(0))?);
        }
        Ok((low, high))
    }

    /// Number of points, including those of regular axes that are walked as points.
    pub fn places(&self, layout: &Layout) -> Result<usize, PlanError> {
        let loops = self.loops(layout)?;
        if loops.iter().any(|one| one.len == 0) {
            return Ok(0);
        }
        let product = loops.iter().try_fold(1_usize, |n, one| n.checked_mul(one.len));
        product
            .filter(|n| i64::try_from(*n).is_ok())
            .ok_or(PlanError::TooLarge("the number of points"))
    }
}
