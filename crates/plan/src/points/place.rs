//! Computation of the addresses of an index's points, one by one or as runs.
//!
//! Problem: ten million indices are 80 MB, and so are their addresses; codes often request
//! neighbours, which a few numbers can describe. Approach: addresses are computed one block at a
//! time, in the first-level cache. For points that are adjacent on both sides, so that their blocks
//! are one interval of bytes, only the first point and their number are stored. Samples of the list
//! determine whether to try this; if it does not pay off after all, each point is listed.
//!
//! Invariants: runs and single points are equivalent. A run lies in one window, so ordering, rounds
//! and chunks never split it.
//!
//! Source: No and Choudhary, section 3.1.1, compress the indices of a schedule in the same way.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use super::grid::{Divide, Grid};
use super::index::{shape_of, wrapped, Index, Loop, Source};
use super::list::{Addresses, Points};
use super::order::DIGIT;
use crate::address::round_up;
use crate::error::PlanError;
use crate::layout::{Chunked, Layout, Part, Strided};

/// Number of addresses that are computed in one step.
const BLOCK: usize = 1 << 11;
/// Minimum average number of points per run for which runs are stored.
///
/// A run takes 20 bytes, a listed point 8.
const WORTH: usize = 4;
/// Minimum average number of points of long runs.
///
/// Only the addresses of their first points are computed.
const LONG: usize = 16;
/// Number of samples of a list.
const LOOKS: usize = 16;
/// Number of points of each sample.
const LOOK: usize = 64;

/// Rule that converts a coordinate into an address.
enum Rule<'a> {
    Strided(&'a Strided),
    Chunked { layout: &'a Chunked, grid: Grid, cell_bits: u32 },
}

/// The addresses of all points of an index, computed on demand.
pub(super) struct Walk<'a> {
    index: &'a Index<'a>,
    shape: &'a [i64],
    rule: Rule<'a>,
    loops: Vec<Loop<'a>>,
    padded: Option<Padded>,
    bits: u32,
    cell_bits: u32,
    /// Bytes of a point's block, if it is one interval on both sides.
    stretch: Option<i64>,
}

impl Index<'_> {
    /// The addresses of points `range`, in the order of the loops.
    ///
    /// The index must be checked. Windows have `1 << bits` bytes. Chunks are windows if they are
    /// smaller, or encoded; chunks that are written must be windows, because none may be written
    /// twice. `shard` is the number of chunks in a shard along each axis of the array: chunks of a
    /// shard follow each other.
    pub fn place(
        &self,
        layout: &Layout,
        shard: Option<&[i64]>,
        range: Range<usize>,
        bits: u32,
    ) -> Result<Points, PlanError> {
        let walk = Walk::new(self, layout, shard, bits)?;
        Ok(walk.runs(range.clone()).unwrap_or_else(|| walk.points(range)))
    }

    /// The addresses in the order of windows; those of one window stay in order.
    ///
    /// With `count`, the size of an element, different addresses are counted.
    pub fn ordered(
        &self,
        layout: &Layout,
        shard: Option<&[i64]>,
        range: Range<usize>,
        (bits, count): (u32, Option<i64>),
    ) -> Result<Points, PlanError> {
        let walk = Walk::new(self, layout, shard, bits)?;
        let runs = walk.runs(range.clone());
        if let Some(points) = runs.is_none().then(|| walk.scattered(range.clone(), count)).flatten()
        {
            return Ok(points);
        }
        let mut points = runs.unwrap_or_else(|| walk.points(range));
        points.order(count);
        Ok(points)
    }

    /// Bytes of a point's block, if adjacent points have adjacent blocks.
    ///
    /// The block must be one interval of bytes in the file and in the caller's array. Otherwise
    /// None.
    fn stretch(&self, layout: &Layout) -> Option<i64> {
        let others = self.rest.ranges().iter().enumerate().filter(|(d, _)| !self.axes.contains(d));
        match layout {
            // A block of several elements crosses chunks, each with different loops.
            Layout::Chunked(layout) => {
                others.map(|(_, range)| range).all(|range| range.count == 1).then_some(layout.item)
            }
            Layout::Strided(layout) => {
                let inner = self.inner(layout);
                let mut loops: Vec<(i64, i64, i64)> = others
                    .filter(|(d, range)| inner[*d] && range.count > 1)
                    .map(|(d, r)| (layout.strides[d] * r.step, self.strides[d], r.count))
                    .collect();
                loops.sort_unstable();
                let grown = |bytes: i64, (file, user, count): (i64, i64, i64)| {
                    (file == bytes && user == bytes).then(|| bytes.checked_mul(count)).flatten()
                };
                loops.into_iter().try_fold(layout.item, grown)
            }
        }
    }
}

impl<'a> Walk<'a> {
    fn new(
        index: &'a Index<'a>,
        layout: &'a Layout,
        shard: Option<&[i64]>,
        bits: u32,
    ) -> Result<Walk<'a>, PlanError> {
        let rule = Rule::of(layout, index.axes, shard)?;
        let loops = index.loops(layout)?;
        if loops.is_empty() {
            return Err(PlanError::BadLayout("an index has no lists".into()));
        }
        let (cell_bits, bits) = match (&rule, layout) {
            (Rule::Chunked { cell_bits, .. }, Layout::Chunked(layout)) if layout.encoded => {
                (*cell_bits, *cell_bits)
            }
            (Rule::Chunked { cell_bits, .. }, _) => (*cell_bits, bits.min(*cell_bits)),
            (Rule::Strided(_), _) => (62, bits.min(62)),
        };
        let padded = match layout {
            Layout::Strided(layout) if layout.parts.len() > 1 => {
                Some(Padded::new(&layout.parts, bits))
            }
            _ => None,
        };
        let (shape, stretch) = (shape_of(layout), index.stretch(layout));
        Ok(Walk { index, shape, rule, loops, padded, bits, cell_bits, stretch })
    }

    /// Byte stride of the caller's array from one point to the next; None if it varies.
    fn row(&self) -> Option<i64> {
        match self.loops.as_slice() {
            [only] => Some(only.user),
            _ => None,
        }
    }

    /// Computes the addresses of some points from point `at` on.
    ///
    /// Those in the caller's array are computed only if `user` is not empty.
    fn fill(&self, at: usize, file: &mut [i64], user: &mut [i64]) {
        let Some((inner, outer)) = self.loops.split_last() else { return };
        let (mut at, mut done) = (at, 0);
        // The innermost loop runs through; the contribution of the outer loops is computed once for
        // each run of it.
        while done < file.len() {
            let first = at % inner.len;
            let run = (inner.len - first).min(file.len() - done);
            let mut left = at / inner.len;
            let (mut base, mut memory) = (0_i64, 0_i64);
            for one in outer.iter().rev() {
                let k = left % one.len;
                left /= one.len;
                let mut address = [0];
                self.add(&one.source, k, &mut address);
                base += address[0];
                memory += k as i64 * one.user;
            }
            let part = &mut file[done..done + run];
            part.fill(base);
            self.add(&inner.source, first, part);
            if let Some(user) = user.get_mut(done..done + run) {
                let addresses = user.iter_mut().enumerate();
                let along = |k: usize| (first as i64).wrapping_add(k as i64);
                let of = |k: usize| memory.wrapping_add(along(k).wrapping_mul(inner.user));
                addresses.for_each(|(k, a)| *a = of(k));
            }
            done += run;
            at += run;
        }
        if let Some(padded) = &self.padded {
            padded.pad(file);
        }
    }

    /// Adds the contribution of the indices of one loop, from `first` on, to addresses.
    fn add(&self, source: &Source, first: usize, addresses: &mut [i64]) {
        let (index, shape) = (self.index, self.shape);
        let run = first..first + addresses.len();
        match source {
            Source::Lists(lists) => {
                for (axis, list) in lists {
                    let indices = list[run.clone()].iter().map(|i| wrapped(*i, shape[*axis]));
                    self.rule.add(index.axes, *axis, indices, addresses);
                }
            }
            Source::Flat(list) => {
                let elements: i64 = index.axes.iter().map(|d| shape[*d]).product();
                let list = list[run].iter().map(|i| wrapped(*i, elements));
                if let [axis] = index.axes {
                    return self.rule.add(index.axes, *axis, list, addresses);
                }
                let mut below = 1;
                for axis in index.axes.iter().rev() {
                    let len = shape[*axis];
                    let of = |i: i64| i / below % len;
                    self.rule.add(index.axes, *axis, list.clone().map(of), addresses);
                    below *= len;
                }
            }
            Source::Regular(axis) => {
                let range = index.rest.ranges()[*axis];
                let indices = run.map(|k| range.start + k as i64 * range.step);
                self.rule.add(index.axes, *axis, indices, addresses);
            }
        }
    }

    fn grid(&self) -> Grid {
        match &self.rule {
            Rule::Strided(_) => Grid::default(),
            Rule::Chunked { grid, .. } => grid.clone(),
        }
    }

    /// All points, each listed.
    fn points(&self, range: Range<usize>) -> Points {
        let number = range.len();
        let mut file = vec![0_i64; number];
        let (user, mut list) = match self.row() {
            Some(stride) => {
                (Some(Addresses::Row { first: range.start as i64 * stride, stride }), Vec::new())
            }
            None => (None, vec![0_i64; number]),
        };
        let mut bounds = (i64::MAX, i64::MIN);
        for done in (0..number).step_by(BLOCK) {
            let end = number.min(done + BLOCK);
            let own = if user.is_none() { &mut list[done..end] } else { &mut [] };
            self.fill(range.start + done, &mut file[done..end], own);
            let (low, high) = super::list::bounds(&file[done..end]);
            bounds = (bounds.0.min(low), bounds.1.max(high));
        }
        self.made(file, user.unwrap_or(Addresses::List(list)), Vec::new(), (number, bounds))
    }

    fn made(
        &self,
        file: Vec<i64>,
        user: Addresses,
        counts: Vec<u32>,
        (number, bounds): (usize, (i64, i64)),
    ) -> Points {
        Points {
            file,
            user,
            counts,
            step: self.stretch.unwrap_or(0),
            number,
            bits: self.bits,
            cell_bits: self.cell_bits,
            grid: self.grid(),
            bounds,
            windows: Vec::new(),
        }
    }

    /// Number of windows: one more than the largest number of a window.
    fn windows(&self) -> i64 {
        let bytes = match &self.rule {
            Rule::Strided(layout) => Padded::new(&layout.parts, self.bits).end,
            Rule::Chunked { grid, .. } => grid.cells.saturating_mul(1 << self.cell_bits),
        };
        bytes.saturating_add((1 << self.bits) - 1) >> self.bits
    }

    /// All points, each listed, in the order of their windows.
    ///
    /// None if the order needs more than one pass, or none.
    fn scattered(&self, range: Range<usize>, count: Option<i64>) -> Option<Points> {
        let number = range.len();
        let windows = usize::try_from(self.windows()).ok()?;
        if windows > 1 << DIGIT || number < BLOCK || self.looks_ordered(&range) {
            return None;
        }
        let mut places = vec![0_usize; windows];
        let (mut block, mut own) = ([0_i64; BLOCK], [0_i64; BLOCK]);
        let (mut last, mut ascends) = (0, true);
        for at in range.clone().step_by(BLOCK) {
            let block = &mut block[..BLOCK.min(range.end - at)];
            self.fill(at, block, &mut []);
            for address in block {
                let window = *address >> self.bits;
                *places.get_mut(window as usize)? += 1;
                ascends &= last <= window;
                last = window;
            }
        }
        if ascends {
            return None;
        }
        let mut ends = Vec::new();
        let mut sum = 0;
        for place in &mut places {
            let points = core::mem::replace(place, sum);
            if points > 0 {
                sum += points;
                ends.push(sum);
            }
        }
        let (mut file, mut user) = (vec![0_i64; number], vec![0_i64; number]);
        let mut bounds = (i64::MAX, i64::MIN);
        for at in range.clone().step_by(BLOCK) {
            let len = BLOCK.min(range.end - at);
            let (block, own) = (&mut block[..len], &mut own[..len]);
            self.addresses(at, block, own);
            let (low, high) = super::list::bounds(block);
            bounds = (bounds.0.min(low), bounds.1.max(high));
            for (address, memory) in block.iter().zip(own) {
                let place = places.get_mut((*address >> self.bits) as usize)?;
                // If another thread changes the list during this call, other elements are selected,
                // but memory stays safe.
                *file.get_mut(*place)? = *address;
                *user.get_mut(*place)? = *memory;
                *place += 1;
            }
        }
        let mut points = self.made(file, Addresses::List(user), Vec::new(), (number, bounds));
        let mut first = 0;
        for end in ends {
            let window = points.window(first..end, count);
            points.windows.push(window);
            first = end;
        }
        Some(points)
    }

    /// Returns whether windows ascend in a sample of points.
    ///
    /// An unordered list fails even this test.
    fn looks_ordered(&self, range: &Range<usize>) -> bool {
        let mut last = i64::MIN;
        (0..LOOKS).all(|look| {
            let mut address = [0];
            self.fill(range.start + look * (range.len() - 1) / (LOOKS - 1), &mut address, &mut []);
            let before = core::mem::replace(&mut last, address[0] >> self.bits);
            before <= last
        })
    }

    /// The points as runs; None if the runs are too short to pay off.
    fn runs(&self, range: Range<usize>) -> Option<Points> {
        let step = self.stretch?;
        let most = range.len() / WORTH;
        if self.row().is_some_and(|stride| stride != step) {
            return None;
        }
        let long = self.promises(&range, step)?;
        if let Some(list) = self.neighbours(step).filter(|_| long) {
            return self.runs_of(&list, range, most);
        }
        let (mut block, mut own) = ([0_i64; BLOCK], [0_i64; BLOCK]);
        let (mut file, mut user, mut counts) = (Vec::new(), Vec::new(), Vec::new());
        let mut bounds = (i64::MAX, i64::MIN);
        let mut open: Option<Run> = None;
        for at in range.clone().step_by(BLOCK) {
            let number = BLOCK.min(range.end - at);
            let (block, own) = (&mut block[..number], &mut own[..number]);
            self.addresses(at, block, own);
            let mut k = 0;
            while k < number {
                let joined = match &mut open {
                    Some(run) => run.join(step, self.bits, &block[k..], &own[k..]),
                    None => 0,
                };
                k += joined;
                if k == number {
                    break;
                }
                let next = Run { file: block[k], user: own[k], points: 1 };
                if let Some(run) = open.replace(next) {
                    if file.len() == most {
                        return None;
                    }
                    run.close(step, (&mut file, &mut user, &mut counts), &mut bounds);
                }
                k += 1;
            }
        }
        if let Some(run) = open {
            run.close(step, (&mut file, &mut user, &mut counts), &mut bounds);
        }
        if file.len() > most {
            return None;
        }
        file.shrink_to_fit();
        user.shrink_to_fit();
        counts.shrink_to_fit();
        Some(self.made(file, Addresses::List(user), counts, (range.len(), bounds)))
    }

    /// Like `fill`, but always computes the addresses in the caller's array.
    fn addresses(&self, at: usize, file: &mut [i64], user: &mut [i64]) {
        match self.row() {
            Some(stride) => {
                self.fill(at, file, &mut []);
                let memory = |k: usize| (at as i64).wrapping_add(k as i64).wrapping_mul(stride);
                user.iter_mut().enumerate().for_each(|(k, a)| *a = memory(k));
            }
            None => self.fill(at, file, user),
        }
    }

    /// Returns whether runs are long in some samples of the points; None if they do not pay off.
    fn promises(&self, range: &Range<usize>, step: i64) -> Option<bool> {
        if range.len() <= LOOKS * LOOK {
            return (range.len() >= WORTH).then_some(true);
        }
        let (mut file, mut user) = ([0_i64; LOOK], [0_i64; LOOK]);
        let mut runs = 0;
        for look in 0..LOOKS {
            let at = range.start + look * (range.len() - LOOK) / (LOOKS - 1);
            self.addresses(at, &mut file, &mut user);
            let next = file.windows(2).zip(user.windows(2));
            runs += next.filter(|(f, u)| f[1] - f[0] != step || u[1] - u[0] != step).count();
        }
        (runs * WORTH <= LOOKS * LOOK).then_some(runs * LONG <= LOOKS * LOOK)
    }

    /// The list of the innermost loop, if its consecutive indices are adjacent on both sides.
    fn neighbours(&self, step: i64) -> Option<Neighbours<'a>> {
        let inner = self.loops.last().filter(|inner| inner.user == step)?;
        let (axis, list) = match &inner.source {
            Source::Lists(lists) => match lists.as_slice() {
                [(axis, list)] => (*axis, *list),
                _ => return None,
            },
            Source::Flat(list) => (*self.index.axes.last()?, *list),
            Source::Regular(_) => return None,
        };
        let one = self.index.axes.len() == 1;
        match &self.rule {
            Rule::Strided(layout) if self.padded.is_none() && layout.strides[axis] == step => {
                let packed = |pair: &[usize]| {
                    let [outer, inner] = [pair[0], pair[1]].map(|d| layout.strides[d]);
                    Some(outer) == inner.checked_mul(layout.shape[pair[1]])
                };
                let flat = matches!(inner.source, Source::Flat(_));
                let same = !flat || self.index.axes.windows(2).all(packed);
                same.then_some(Neighbours { list, chunk: i64::MAX })
            }
            Rule::Chunked { layout, .. } if one && layout.strides[axis] == step => {
                Some(Neighbours { list, chunk: layout.chunk[axis] })
            }
            _ => None,
        }
    }

    /// Finds runs directly in a list; computes only the addresses of their first points.
    fn runs_of(&self, of: &Neighbours, range: Range<usize>, most: usize) -> Option<Points> {
        let step = self.stretch?;
        let (mut file, mut user, mut counts) = (Vec::new(), Vec::new(), Vec::new());
        let mut bounds = (i64::MAX, i64::MIN);
        let (mut first, mut memory) = ([0], [0]);
        let mut at = range.start;
        while at < range.end {
            if file.len() == most {
                return None;
            }
            self.addresses(at, &mut first, &mut memory);
            let inside = first[0] & ((1 << self.cell_bits) - 1);
            let window = ((first[0] | ((1 << self.bits) - 1)) - first[0]) / step.max(1) + 1;
            let room = window.min(of.chunk - inside / step.max(1)).clamp(1, i64::from(u32::MAX));
            let place = at % of.list.len();
            let len = (of.list.len() - place).min(range.end - at).min(room as usize);
            let points = ascending(&of.list[place..place + len]);
            let run = Run { file: first[0], user: memory[0], points: points as u32 };
            run.close(step, (&mut file, &mut user, &mut counts), &mut bounds);
            at += points;
        }
        file.shrink_to_fit();
        user.shrink_to_fit();
        counts.shrink_to_fit();
        Some(self.made(file, Addresses::List(user), counts, (range.len(), bounds)))
    }
}

/// A list whose indices are adjacent on both sides if they ascend by one.
struct Neighbours<'a> {
    list: &'a [i64],
    /// Number of elements of a chunk along the axis, if chunks end runs.
    chunk: i64,
}

/// Number of first indices that ascend by one.
///
/// The last index of an axis, which may be written as -1, is not followed by the first.
fn ascending(list: &[i64]) -> usize {
    let Some(first) = list.first().copied() else { return 0 };
    let most = match usize::try_from(first.wrapping_neg()) {
        Ok(below) if first < 0 => list.len().min(below),
        _ => list.len(),
    };
    let differs = |k: usize| list[k].wrapping_sub(first).wrapping_sub(k as i64);
    let mut k = 1;
    // Sixteen indices in one step, without a branch.
    while k + 16 <= most && (k..k + 16).fold(0, |all, k| all | differs(k)) == 0 {
        k += 16;
    }
    while k < most && differs(k) == 0 {
        k += 1;
    }
    k
}

/// A run that may be extended.
struct Run {
    file: i64,
    user: i64,
    points: u32,
}

impl Run {
    /// Adds as many of the next points as belong to the run; returns their number.
    fn join(&mut self, step: i64, bits: u32, file: &[i64], user: &[i64]) -> usize {
        let past = i64::from(self.points) * step;
        let room = (u32::MAX - self.points) as usize;
        // The number of points that fit its window.
        let window = (self.file | ((1_i64 << bits) - 1)) - self.file - past;
        let window = if window < 0 { 0 } else { window as u64 / step.max(1) as u64 + 1 };
        let most = file.len().min(room).min(usize::try_from(window).unwrap_or(usize::MAX));
        let (from, to) = (self.file + past, self.user + past);
        let differs = |k: usize| {
            let past = (k as i64).wrapping_mul(step);
            file[k].wrapping_sub(from.wrapping_add(past))
                | user[k].wrapping_sub(to.wrapping_add(past))
        };
        let mut k = 0;
        // Sixteen points in one step, without a branch.
        while k + 16 <= most && (k..k + 16).fold(0, |all, k| all | differs(k)) == 0 {
            k += 16;
        }
        while k < most && differs(k) == 0 {
            k += 1;
        }
        self.points += k as u32;
        k
    }

    fn close(
        self,
        step: i64,
        (file, user, counts): (&mut Vec<i64>, &mut Vec<i64>, &mut Vec<u32>),
        bounds: &mut (i64, i64),
    ) {
        let last = self.file + i64::from(self.points - 1) * step;
        *bounds = (bounds.0.min(self.file), bounds.1.max(last));
        file.push(self.file);
        user.push(self.user);
        counts.push(self.points);
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

    /// Adds the contribution of indices along one axis.
    ///
    /// There are no overflow checks, which would double the time: checked indices do not overflow,
    /// and the check of a round would detect it.
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
                let add = |(a, i): (&mut i64, i64)| *a = a.wrapping_add(i.wrapping_mul(stride));
                addresses.iter_mut().zip(indices).for_each(add);
            }
            Rule::Chunked { layout, grid, cell_bits } => {
                let (chunk, stride) = (layout.chunk[axis], layout.strides[axis]);
                let place = axes.iter().position(|d| *d == axis).unwrap_or(0);
                let divide = Divide::by(chunk);
                addresses.iter_mut().zip(indices).for_each(|(a, i)| {
                    let (number, rest) = divide.of(i);
                    let chunk = grid.part(place, number) << cell_bits;
                    *a = a.wrapping_add(chunk).wrapping_add(rest.wrapping_mul(stride));
                });
            }
        }
    }
}

/// The parts of a strided array, padded so that each begins with a window.
///
/// No window has points of two parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Padded {
    /// First byte of each part in the concatenation, and in the concatenation of padded parts.
    starts: Vec<(i64, i64)>,
    /// End of the padded concatenation.
    end: i64,
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
        let starts = starts.collect();
        Padded { starts, end: padded }
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

    /// The part that contains a padded address, and the padded start of that part.
    pub fn part(&self, address: i64) -> (usize, i64) {
        let part = self.starts.partition_point(|(_, padded)| *padded <= address).max(1) - 1;
        (part, self.starts.get(part).map_or(0, |(_, padded)| *padded))
    }
}
