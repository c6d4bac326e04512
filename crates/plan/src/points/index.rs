//! What is asked for by index lists, checked, and turned into addresses.

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use super::grid::Grid;
use super::list::{bounds, Addresses, Points};
use crate::address::round_up;
use crate::error::PlanError;
use crate::layout::{Chunked, Layout, Part, Strided};
use crate::section::{Range, Section};

/// How the lists belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lists<'a> {
    /// Point `i` has the coordinates `lists[k][i]`: lists of one length.
    Points(&'a [&'a [i64]]),
    /// Each list by itself: all combinations, the last list fastest.
    Outer(&'a [&'a [i64]]),
    /// One list of numbers that count the elements along the indexed axes in C order.
    Flat(&'a [i64]),
}

/// Elements, or blocks of them, chosen by lists along some axes. Negative indices count from the end.
#[derive(Debug, Clone, Copy)]
pub struct Index<'a> {
    /// The indexed axes, ascending.
    pub axes: &'a [usize],
    /// Their lists.
    pub lists: Lists<'a>,
    /// Ranges of the other axes; those of indexed axes say nothing.
    pub rest: &'a Section,
    /// Byte strides of the caller's array: from one point to the next, then along each axis of the array;
    /// those of indexed axes say nothing.
    pub point: i64,
    /// See `point`.
    pub strides: &'a [i64],
}

/// One loop over the points: what an index of it adds to the address in the file.
enum Source<'a> {
    /// One list for each of some axes.
    Lists(Vec<(usize, &'a [i64])>),
    /// One list of flat numbers.
    Flat(&'a [i64]),
    /// A regular axis whose elements are points of their own.
    Regular(usize),
}

struct Loop<'a> {
    len: usize,
    source: Source<'a>,
    user: i64,
}

/// How a coordinate becomes an address.
enum Rule<'a> {
    Strided(&'a Strided),
    Chunked { layout: &'a Chunked, grid: Grid, cell_bits: u32 },
}

fn shape_of(layout: &Layout) -> &[i64] {
    match layout {
        Layout::Strided(layout) => &layout.shape,
        Layout::Chunked(layout) => &layout.shape,
    }
}

fn outside(axis: usize, position: usize, value: i64, len: i64) -> PlanError {
    PlanError::BadIndex { axis, position: position as u64, value, len }
}

/// Counted from the front.
fn wrapped(value: i64, len: i64) -> i64 {
    value + (len & (value >> 63))
}

/// Refuses the first index that is not inside an axis of `len` elements.
fn check(list: &[i64], axis: usize, len: i64) -> Result<(), PlanError> {
    // Whole blocks without a branch, by signs, of which processors add up many at once; the position only
    // where something is wrong.
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

    /// Whether there are none.
    pub fn is_empty(&self) -> Result<bool, PlanError> {
        Ok(self.len()? == 0)
    }

    /// Elements of the regular axes at each point.
    pub fn block(&self) -> Result<i64, PlanError> {
        let ranges = self.rest.ranges().iter().enumerate();
        let rest = ranges.filter(|(d, _)| !self.axes.contains(d));
        rest.map(|(_, range)| range.count)
            .try_fold(1_i64, |n, count| n.checked_mul(count))
            .ok_or(PlanError::TooLarge("a block"))
    }

    /// Refuses lists that do not fit the array: a wrong number of them or of their entries, axes that do not
    /// ascend, indices outside.
    pub fn check(&self, shape: &[i64]) -> Result<(), PlanError> {
        let bad = |why| Err(PlanError::BadSection { what: format!("{:?}", self.axes), why });
        let ascend = self.axes.windows(2).all(|pair| pair[0] < pair[1]);
        if self.axes.is_empty() || !ascend || self.axes.iter().any(|d| *d >= shape.len()) {
            return bad("indexed axes ascend, and the array has them");
        }
        if self.strides.len() != shape.len() || self.rest.ndim() != shape.len() {
            return bad("each axis of the array has a range and a stride");
        }
        match self.lists {
            Lists::Points(lists) | Lists::Outer(lists) => {
                if lists.len() != self.axes.len() {
                    return bad("each indexed axis has a list");
                }
                let alike = |pair: &[&[i64]]| pair[0].len() == pair[1].len();
                if matches!(self.lists, Lists::Points(_)) && !lists.windows(2).all(alike) {
                    return bad("lists of points have one length");
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

    /// Whether points of a strided array are single runs of its regular axes: the axes whose elements lie
    /// inside the block of a point. The others are walked as points, because their elements lie as far
    /// apart as points do, or because a block might lie across two parts.
    pub fn inner(&self, layout: &Strided) -> Vec<bool> {
        let least = self.axes.iter().map(|d| layout.strides[*d]).min().unwrap_or(0);
        let one = layout.parts.len() == 1;
        (0..layout.shape.len())
            .map(|d| one && !self.axes.contains(&d) && layout.strides[d] < least)
            .collect()
    }

    /// The section that all points have, for the plan: the inner axes with their ranges, the others with one
    /// element at index 0.
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
    fn loops(&self, layout: &Layout) -> Result<Vec<Loop<'a>>, PlanError> {
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
            // In the order of the file, so far as loops can be.
            let stride = |one: &Loop| match &one.source {
                Source::Lists(lists) => lists.iter().map(|(d, _)| layout.strides[*d]).max(),
                Source::Flat(_) => self.axes.iter().map(|d| layout.strides[*d]).max(),
                Source::Regular(d) => Some(layout.strides[*d]),
            };
            loops.sort_by_key(|one| core::cmp::Reverse(stride(one)));
        }
        Ok(loops)
    }

    /// The section of point `k` of an array of this shape: its element along the indexed axes, the ranges of the
    /// others. The index was checked.
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

    /// Lowest byte and one past the highest byte of the caller's array that the points touch, from its first
    /// element on.
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

    /// Number of points, those of regular axes that are walked as points included.
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

    /// The addresses of points `range`, in the order of the loops. The index was checked. Windows have
    /// `1 << bits` bytes. Chunks are windows where they are smaller, or encoded: and chunks that are
    /// written must be, because none may be made twice. `shard` is the number of chunks in a shard
    /// along each axis of the array: chunks of a shard follow each other.
    pub fn place(
        &self,
        layout: &Layout,
        shard: Option<&[i64]>,
        range: core::ops::Range<usize>,
        bits: u32,
    ) -> Result<Points, PlanError> {
        let rule = Rule::of(layout, self.axes, shard)?;
        let loops = self.loops(layout)?;
        let (cell_bits, bits) = match (&rule, layout) {
            (Rule::Chunked { cell_bits, .. }, Layout::Chunked(layout)) if layout.encoded => {
                (*cell_bits, *cell_bits)
            }
            (Rule::Chunked { cell_bits, .. }, _) => (*cell_bits, bits.min(*cell_bits)),
            (Rule::Strided(_), _) => (62, bits.min(62)),
        };
        let shape = shape_of(layout);
        let number = range.len();
        let mut file = vec![0_i64; number];
        let row = match loops.as_slice() {
            [only] => Some(only.user),
            _ => None,
        };
        let mut user = if row.is_some() { Vec::new() } else { vec![0_i64; number] };
        // The innermost loop runs through; what the others add is found once for each run of it.
        let Some((inner, outer)) = loops.split_last() else {
            return Err(PlanError::BadLayout("an index without lists".into()));
        };
        let mut at = range.start;
        let mut done = 0;
        while done < number {
            let first = at % inner.len;
            let run = (inner.len - first).min(number - done);
            let mut left = at / inner.len;
            let (mut base, mut memory) = (0_i64, 0_i64);
            for one in outer.iter().rev() {
                let k = left % one.len;
                left /= one.len;
                let mut address = [0];
                self.add(&rule, &one.source, k, shape, &mut address);
                base += address[0];
                memory += k as i64 * one.user;
            }
            let part = &mut file[done..done + run];
            if base != 0 {
                part.fill(base);
            }
            self.add(&rule, &inner.source, first, shape, part);
            if row.is_none() {
                let addresses = user[done..done + run].iter_mut().enumerate();
                addresses.for_each(|(k, a)| *a = memory + (first + k) as i64 * inner.user);
            }
            done += run;
            at += run;
        }
        let user = match row {
            Some(stride) => Addresses::Row { first: range.start as i64 * stride, stride },
            None => Addresses::List(user),
        };
        if let Layout::Strided(layout) = layout {
            Padded::new(&layout.parts, bits).pad(&mut file);
        }
        let grid = match rule {
            Rule::Strided(_) => Grid::default(),
            Rule::Chunked { grid, .. } => grid,
        };
        let bounds = bounds(&file);
        Ok(Points { file, user, bits, cell_bits, grid, bounds, windows: Vec::new() })
    }

    /// Adds to addresses what the indices of one loop from `first` on give.
    fn add(
        &self,
        rule: &Rule,
        source: &Source,
        first: usize,
        shape: &[i64],
        addresses: &mut [i64],
    ) {
        let run = first..first + addresses.len();
        match source {
            Source::Lists(lists) => {
                for (axis, list) in lists {
                    let indices = list[run.clone()].iter().map(|i| wrapped(*i, shape[*axis]));
                    rule.add(self.axes, *axis, indices, addresses);
                }
            }
            Source::Flat(list) => {
                let elements: i64 = self.axes.iter().map(|d| shape[*d]).product();
                let mut below = 1;
                for axis in self.axes.iter().rev() {
                    let len = shape[*axis];
                    let of = |i: &i64| wrapped(*i, elements) / below % len;
                    rule.add(self.axes, *axis, list[run.clone()].iter().map(of), addresses);
                    below *= len;
                }
            }
            Source::Regular(axis) => {
                let range = self.rest.ranges()[*axis];
                let indices = run.map(|k| range.start + k as i64 * range.step);
                rule.add(self.axes, *axis, indices, addresses);
            }
        }
    }
}

impl<'a> Rule<'a> {
    fn of(
        layout: &'a Layout,
        axes: &[usize],
        shard: Option<&[i64]>,
    ) -> Result<Rule<'a>, PlanError> {
        let chunked = match layout {
            Layout::Strided(layout) => return Ok(Rule::Strided(layout)),
            Layout::Chunked(layout) => layout,
        };
        let grid = Grid::new(chunked, axes, shard)?;
        let bytes = chunked.chunk_bytes();
        let cell_bits = 64 - (bytes - 1).max(1).leading_zeros();
        match grid.cells.checked_mul(1_i64 << cell_bits.min(62)) {
            Some(_) if cell_bits < 62 => Ok(Rule::Chunked { layout: chunked, grid, cell_bits }),
            _ => Err(PlanError::TooLarge("the array")),
        }
    }

    /// Adds what indices along one axis give.
    fn add(
        &self,
        axes: &[usize],
        axis: usize,
        indices: impl Iterator<Item = i64>,
        addresses: &mut [i64],
    ) {
        match self {
            Rule::Strided(layout) => {
                let stride = layout.strides[axis];
                addresses.iter_mut().zip(indices).for_each(|(a, i)| *a += i * stride);
            }
            Rule::Chunked { layout, grid, cell_bits } => {
                let (chunk, stride) = (layout.chunk[axis], layout.strides[axis]);
                let place = axes.iter().position(|d| *d == axis).unwrap_or(0);
                let divide = Divide::by(chunk);
                addresses.iter_mut().zip(indices).for_each(|(a, i)| {
                    let (number, rest) = divide.of(i);
                    *a += (grid.part(place, number) << cell_bits) + rest * stride;
                });
            }
        }
    }
}

/// The parts of a strided array, each moved up so that it begins with a window: no window has points of two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Padded {
    /// In the concatenation, and in that of the parts that were moved up: first byte of each part.
    starts: Vec<(i64, i64)>,
}

impl Padded {
    pub fn new(parts: &[Part], bits: u32) -> Padded {
        let (mut plain, mut padded) = (0_i64, 0_i64);
        let starts = parts.iter().map(|part| {
            let start = (plain, padded);
            plain = plain.saturating_add(part.len);
            padded = round_up(padded.saturating_add(part.len), 1 << bits);
            start
        });
        Padded { starts: starts.collect() }
    }

    fn pad(&self, addresses: &mut [i64]) {
        if self.starts.len() < 2 {
            return;
        }
        for address in addresses {
            let part = self.starts.partition_point(|(plain, _)| plain <= address) - 1;
            let (plain, padded) = self.starts[part];
            *address += padded - plain;
        }
    }

    /// The part in which a padded address lies, and where that part begins.
    pub fn part(&self, address: i64) -> (usize, i64) {
        let part = self.starts.partition_point(|(_, padded)| *padded <= address).max(1) - 1;
        (part, self.starts.get(part).map_or(0, |(_, padded)| *padded))
    }
}

/// Division of small numbers: a processor takes ten times as long for numbers of 64 bits as for these.
#[derive(Clone, Copy)]
pub(super) struct Divide {
    by: i64,
    small: u32,
}

impl Divide {
    pub fn by(by: i64) -> Divide {
        Divide { by, small: u32::try_from(by).unwrap_or(0) }
    }

    pub fn of(self, i: i64) -> (i64, i64) {
        match (u32::try_from(i), self.small) {
            (Ok(i), small) if small > 0 => (i64::from(i / small), i64::from(i % small)),
            _ => (i / self.by, i % self.by),
        }
    }
}
