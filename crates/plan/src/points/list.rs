//! Points with their addresses, and the addresses of a move.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use super::grid::Grid;

/// Addresses of points in the source or target of a move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Addresses {
    /// Addresses at regular distances.
    Row {
        /// Address of the first point.
        first: i64,
        /// Bytes from one point to the next.
        stride: i64,
    },
    /// Any addresses: bytes from the first element of the source or target.
    List(Vec<i64>),
    /// Addresses of some points of an access, in the file or in the caller's array.
    Shared(Shared),
}

/// Some of the addresses of an access, without a copy.
#[derive(Clone, PartialEq, Eq)]
pub struct Shared {
    points: Arc<Points>,
    range: Range<usize>,
    user: bool,
    /// Lower and upper bound of the addresses.
    bounds: (i64, i64),
}

/// Omits the points.
impl core::fmt::Debug for Shared {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "points {:?} of {}", self.range, self.points.len())
    }
}

/// Number of adjacent blocks, on both sides, at each address of a move.
#[derive(Clone, PartialEq, Eq)]
pub enum Counts {
    /// One block at each address.
    One,
    /// Listed numbers.
    List(Vec<u32>),
    /// The numbers of some runs of an access, without a copy.
    Shared(Arc<Points>, Range<usize>),
}

/// Omits the numbers.
impl core::fmt::Debug for Counts {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.list() {
            None => write!(f, "one block each"),
            Some(list) => write!(f, "counts of {} runs", list.len()),
        }
    }
}

impl Counts {
    /// The numbers if they are listed; None if each is 1.
    pub fn list(&self) -> Option<&[u32]> {
        match self {
            Counts::One => None,
            Counts::List(list) => Some(list),
            Counts::Shared(points, range) => Some(&points.counts[range.clone()]),
        }
    }

    /// Number of blocks at `number` addresses.
    pub fn blocks(&self, number: usize) -> u64 {
        match self.list() {
            None => number as u64,
            Some(list) => list.iter().map(|n| u64::from(*n)).sum(),
        }
    }
}

impl Shared {
    fn list(&self) -> &[i64] {
        match (&self.points.user, self.user) {
            (Addresses::List(list), true) => &list[self.range.clone()],
            _ => &self.points.file[self.range.clone()],
        }
    }
}

impl Addresses {
    /// The address of point `k`.
    pub fn of(&self, k: usize) -> i64 {
        match self {
            Addresses::Row { first, stride } => first + k as i64 * stride,
            Addresses::List(list) => list[k],
            Addresses::Shared(shared) => shared.list()[k],
        }
    }

    /// The addresses if they are listed; None at regular distances.
    pub fn list(&self) -> Option<&[i64]> {
        match self {
            Addresses::Row { .. } => None,
            Addresses::List(list) => Some(list),
            Addresses::Shared(shared) => Some(shared.list()),
        }
    }

    /// Lowest and highest address of `number` points, at least one.
    ///
    /// For shared addresses, the bounds may be wider.
    pub fn span(&self, number: usize) -> (i64, i64) {
        match self {
            Addresses::Row { .. } => {
                let (first, last) = (self.of(0), self.of(number - 1));
                (first.min(last), first.max(last))
            }
            Addresses::List(list) => bounds(list),
            Addresses::Shared(shared) => shared.bounds,
        }
    }

    /// Returns whether `number` addresses are all in `low..=high`, an interval of less than 2^63.
    pub(crate) fn within(&self, number: usize, low: i64, high: i64) -> bool {
        // Despite overflows, the sign of one of the differences is negative for an address outside:
        // the differences add up to `high - low`.
        let sign = |a: i64| a.wrapping_sub(low) | high.wrapping_sub(a);
        match self.list() {
            Some(list) => list.iter().fold(0, |signs, a| signs | sign(*a)) >= 0,
            None => (sign(self.of(0)) | sign(self.of(number - 1))) >= 0,
        }
    }

    /// Returns whether runs of blocks of `item` bytes lie between `low` and `high`.
    ///
    /// Each run must begin at `low` or above, and its last block at `high` or below.
    pub(crate) fn hold(&self, runs: &[u32], item: i64, low: i64, high: i64) -> bool {
        let holds = |(k, blocks): (usize, &u32)| {
            let (first, more) = (self.of(k), i64::from(*blocks) - 1);
            let last = more.checked_mul(item).and_then(|past| first.checked_add(past));
            more >= 0 && first >= low && last.is_some_and(|last| last <= high)
        };
        runs.iter().enumerate().all(holds)
    }
}

/// Lowest and highest address of a list.
pub(super) fn bounds(list: &[i64]) -> (i64, i64) {
    // Four independent minima and maxima, so that no comparison waits for the previous one.
    let (mut low, mut high) = ([i64::MAX; 4], [i64::MIN; 4]);
    let mut blocks = list.chunks_exact(4);
    for block in &mut blocks {
        for k in 0..4 {
            low[k] = low[k].min(block[k]);
            high[k] = high[k].max(block[k]);
        }
    }
    let rest = blocks.remainder().iter().copied();
    let least = rest.clone().chain(low).fold(i64::MAX, i64::min);
    (least, rest.chain(high).fold(i64::MIN, i64::max))
}

/// Points of one access, with their addresses.
///
/// Points are listed one by one, or as runs of points whose blocks are adjacent on both sides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Points {
    /// Addresses in the file.
    ///
    /// Strided layouts: bytes from element `[0, ..., 0]`, through the concatenation of the parts,
    /// each of which begins at a multiple of a window (`Padded`). Chunked layouts: the number of
    /// the chunk along the indexed axes, shifted by `cell_bits`, plus bytes inside a chunk.
    pub(super) file: Vec<i64>,
    /// Addresses in the caller's array. No two points have the same address.
    pub(super) user: Addresses,
    /// Number of points of each run; empty if each point is listed.
    ///
    /// The addresses of a run are those of its first point. A run lies in one window.
    pub(super) counts: Vec<u32>,
    /// Bytes from one point of a run to the next.
    pub(super) step: i64,
    /// Number of points, including those inside runs.
    pub(super) number: usize,
    /// A window has `1 << bits` addresses.
    pub(super) bits: u32,
    /// A chunk has `1 << cell_bits` addresses; in strided layouts, all addresses are in one chunk.
    pub(super) cell_bits: u32,
    /// Numbering of chunks.
    pub(super) grid: Grid,
    /// Lowest and highest of `file`.
    pub(super) bounds: (i64, i64),
    /// The windows that contain points, ascending; empty before the points are ordered.
    pub(super) windows: Vec<Window>,
}

/// The points of one window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Its number: addresses shifted by the bits of a window.
    pub number: i64,
    /// Its first run, or its first point if each point is listed.
    pub first: usize,
    /// One past its last run or point.
    pub end: usize,
    /// Number of points, including those inside runs.
    pub points: usize,
    /// Number of different addresses, if it was requested.
    pub distinct: usize,
}

impl Points {
    /// Number of points.
    pub fn len(&self) -> usize {
        self.number
    }

    /// Returns whether there are no points.
    pub fn is_empty(&self) -> bool {
        self.number == 0
    }

    /// Number of runs, or of points if each point is listed.
    pub fn runs(&self) -> usize {
        self.file.len()
    }

    /// A window has two to the power of this many addresses.
    pub fn bits(&self) -> u32 {
        self.bits
    }

    /// Number of points of run `k`.
    pub fn count(&self, k: usize) -> i64 {
        self.counts.get(k).map_or(1, |n| i64::from(*n))
    }

    /// Number of points of each of some runs.
    pub(crate) fn counts(self: &Arc<Points>, range: Range<usize>) -> Counts {
        match self.counts.is_empty() {
            true => Counts::One,
            false => Counts::Shared(Arc::clone(self), range),
        }
    }

    /// Number of points of some runs.
    pub(crate) fn points_of(&self, range: Range<usize>) -> usize {
        match self.counts.get(range.clone()) {
            Some(counts) if !counts.is_empty() => counts.iter().map(|n| *n as usize).sum(),
            _ => range.len(),
        }
    }

    /// The windows that contain points, ascending; empty before [`Points::order`].
    pub fn windows(&self) -> &[Window] {
        &self.windows
    }

    /// Numbering of chunks.
    pub fn grid(&self) -> &Grid {
        &self.grid
    }

    /// The number of the chunk that contains a window.
    pub fn cell(&self, window: &Window) -> i64 {
        window.number >> (self.cell_bits - self.bits)
    }

    /// The address of the first point of run `k`; see `file`.
    pub fn address(&self, k: usize) -> i64 {
        self.file[k]
    }

    /// Address of the first point of a run inside its chunk, or in the file.
    pub(crate) fn inside(&self, k: usize) -> i64 {
        self.file[k] & ((1_i64 << self.cell_bits) - 1)
    }

    /// Addresses of some runs in the caller's array.
    pub(crate) fn user(self: &Arc<Points>, range: Range<usize>) -> Addresses {
        match &self.user {
            Addresses::Row { stride, .. } => {
                Addresses::Row { first: self.user.of(range.start), stride: *stride }
            }
            Addresses::List(list) => {
                let bounds = bounds(&list[range.clone()]);
                Addresses::Shared(Shared { points: Arc::clone(self), range, user: true, bounds })
            }
            Addresses::Shared(_) => self.user.clone(),
        }
    }

    /// Addresses of some runs in the file.
    pub(crate) fn there(self: &Arc<Points>, range: Range<usize>) -> Addresses {
        // All runs of a window, or all points: each bound is computed once.
        let bounds = match self.windows.is_empty() {
            true => self.bounds,
            false => {
                let first = self.file[range.start] >> self.bits << self.bits;
                let last = self.file[range.end - 1] >> self.bits << self.bits;
                (first, last.saturating_add((1 << self.bits) - 1).min(self.bounds.1))
            }
        };
        Addresses::Shared(Shared { points: Arc::clone(self), range, user: false, bounds })
    }

    /// Bytes that the lists of points need, here and in the plan.
    pub fn bytes(&self) -> usize {
        let user = match &self.user {
            Addresses::List(list) => list.capacity(),
            _ => 0,
        };
        8 * (self.file.capacity() + user)
            + 4 * self.counts.capacity()
            + self.windows.capacity() * core::mem::size_of::<Window>()
    }
}

/// The points of one plan: all points of an access, or those of some chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen<'a> {
    /// The points, which must be ordered for a chunked array.
    pub points: &'a Arc<Points>,
    /// The range of windows of these points; ignored for unordered points.
    pub windows: Range<usize>,
}

impl Chosen<'_> {
    /// Number of points.
    pub fn len(&self) -> usize {
        match self.points.windows().get(self.windows.clone()) {
            Some(some) if !some.is_empty() => some.iter().map(|window| window.points).sum(),
            _ => self.points.len(),
        }
    }

    /// Returns whether there are no points.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
