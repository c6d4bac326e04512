//! Points with their addresses, and the addresses of a move.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use super::grid::Grid;

/// Addresses of points in one of the places of a move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Addresses {
    /// At regular distances.
    Row {
        /// Address of the first point.
        first: i64,
        /// Bytes from one point to the next.
        stride: i64,
    },
    /// Anywhere: bytes from the first element of the place.
    List(Vec<i64>),
    /// Those of some points of an access, in the file or in the caller's array.
    Shared(Shared),
}

/// Some of the addresses of an access: nothing is copied.
#[derive(Clone, PartialEq, Eq)]
pub struct Shared {
    points: Arc<Points>,
    range: Range<usize>,
    user: bool,
    /// No address is below the first, or above the second.
    bounds: (i64, i64),
}

/// Without the points themselves.
impl core::fmt::Debug for Shared {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "points {:?} of {}", self.range, self.points.len())
    }
}

/// How many blocks, one behind the other on both sides, each address of a move stands for.
#[derive(Clone, PartialEq, Eq)]
pub enum Counts {
    /// One each.
    One,
    /// Listed.
    List(Vec<u32>),
    /// Those of some runs of an access: nothing is copied.
    Shared(Arc<Points>, Range<usize>),
}

/// Without the numbers.
impl core::fmt::Debug for Counts {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.list() {
            None => write!(f, "one block each"),
            Some(list) => write!(f, "counts of {} runs", list.len()),
        }
    }
}

impl Counts {
    /// The numbers, where they are listed; none where each is 1.
    pub fn list(&self) -> Option<&[u32]> {
        match self {
            Counts::One => None,
            Counts::List(list) => Some(list),
            Counts::Shared(points, range) => Some(&points.counts[range.clone()]),
        }
    }

    /// Blocks at so many addresses.
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

    /// The addresses, where they are listed; none at regular distances.
    pub fn list(&self) -> Option<&[i64]> {
        match self {
            Addresses::Row { .. } => None,
            Addresses::List(list) => Some(list),
            Addresses::Shared(shared) => Some(shared.list()),
        }
    }

    /// Lowest and highest address of so many points, at least one; of shared ones bounds that are perhaps wider.
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

    /// Whether so many addresses are all in `low..=high`; from one to the other it is less than 2^63.
    pub(crate) fn within(&self, number: usize, low: i64, high: i64) -> bool {
        // The sign of one of the differences tells, whatever overflows: they add up to `high - low`.
        let sign = |a: i64| a.wrapping_sub(low) | high.wrapping_sub(a);
        match self.list() {
            Some(list) => list.iter().fold(0, |signs, a| signs | sign(*a)) >= 0,
            None => (sign(self.of(0)) | sign(self.of(number - 1))) >= 0,
        }
    }

    /// Whether runs of blocks of `item` bytes at the addresses begin at `low` or above, their last ones at `high` or
    /// below.
    pub(crate) fn hold(&self, runs: &[u32], item: i64, low: i64, high: i64) -> bool {
        let holds = |(k, blocks): (usize, &u32)| {
            let (first, more) = (self.of(k), i64::from(*blocks) - 1);
            let last = more.checked_mul(item).and_then(|past| first.checked_add(past));
            more >= 0 && first >= low && last.is_some_and(|last| last <= high)
        };
        runs.iter().enumerate().all(holds)
    }
}

/// Lowest and highest of some addresses.
pub(super) fn bounds(list: &[i64]) -> (i64, i64) {
    // Some at once: none waits for what came of the one before it.
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

/// Points of one access, with their addresses: one by one, or as runs of points whose blocks lie one behind the
/// other, on both sides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Points {
    /// Strided layouts: bytes from element `[0, ..., 0]`, through the concatenation of the parts, each of
    /// which begins at a multiple of a window (`Padded`). Chunked ones: number of the chunk along the indexed axes, shifted by `cell_bits`, plus bytes inside a chunk.
    pub(super) file: Vec<i64>,
    /// In the caller's array. No two points have the same address.
    pub(super) user: Addresses,
    /// Points of each run, whose addresses are those of its first one; empty where each point is listed.
    /// A run lies in one window.
    pub(super) counts: Vec<u32>,
    /// Bytes from one point of a run to the next.
    pub(super) step: i64,
    /// Points, those inside of runs included.
    pub(super) number: usize,
    /// A window has `1 << bits` of these addresses.
    pub(super) bits: u32,
    /// A chunk has `1 << cell_bits` of them; as many as there are in strided layouts.
    pub(super) cell_bits: u32,
    /// How chunks are counted.
    pub(super) grid: Grid,
    /// Lowest and highest of `file`.
    pub(super) bounds: (i64, i64),
    /// The windows that hold points, ascending; none before the points are ordered.
    pub(super) windows: Vec<Window>,
}

/// The points of one window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Its number: addresses shifted by the bits of a window.
    pub number: i64,
    /// Its first run, or point where each is listed.
    pub first: usize,
    /// One past its last.
    pub end: usize,
    /// Points, those inside of runs included.
    pub points: usize,
    /// Different addresses among them, if somebody asked.
    pub distinct: usize,
}

impl Points {
    /// Number of points.
    pub fn len(&self) -> usize {
        self.number
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.number == 0
    }

    /// Number of runs; of points where each is listed.
    pub fn runs(&self) -> usize {
        self.file.len()
    }

    /// A window has two to the power of this many addresses.
    pub fn bits(&self) -> u32 {
        self.bits
    }

    /// Points of run `k`.
    pub fn count(&self, k: usize) -> i64 {
        self.counts.get(k).map_or(1, |n| i64::from(*n))
    }

    /// Points of each of some runs.
    pub(crate) fn counts(self: &Arc<Points>, range: Range<usize>) -> Counts {
        match self.counts.is_empty() {
            true => Counts::One,
            false => Counts::Shared(Arc::clone(self), range),
        }
    }

    /// Points of some runs.
    pub(crate) fn points_of(&self, range: Range<usize>) -> usize {
        match self.counts.get(range.clone()) {
            Some(counts) if !counts.is_empty() => counts.iter().map(|n| *n as usize).sum(),
            _ => range.len(),
        }
    }

    /// The windows that hold points, ascending; none before [`Points::order`].
    pub fn windows(&self) -> &[Window] {
        &self.windows
    }

    /// How chunks are counted.
    pub fn grid(&self) -> &Grid {
        &self.grid
    }

    /// The number of the chunk in which a window lies.
    pub fn cell(&self, window: &Window) -> i64 {
        window.number >> (self.cell_bits - self.bits)
    }

    /// The address of the first point of run `k`: see `file`.
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
        // Those of a window, or of all points: each is looked at once.
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

    /// Bytes that the lists of points take, here and in the plan.
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

/// Points of an access, as one plan of it has them: all, or those of some chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen<'a> {
    /// The points, ordered where the array is chunked.
    pub points: &'a Arc<Points>,
    /// Those of these windows; nothing for points in no order.
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

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
