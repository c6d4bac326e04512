//! The element of a given rank in the window around each element: medians, minima, maxima.
//!
//! Approach: vectors process the last axis. For a piece of a row, the columns of the windows, which
//! are the elements along the other axes, are sorted by a network; then each window merges its
//! columns by another network (`network.rs`).
//!
//! Invariants: every comparator either exchanges two elements or leaves them, so results are
//! elements of the window, even if some are NaN and have no order.

use std::sync::Mutex;

use outcore_io::cpu::side_by_side;

use super::network::{selecting, sorting, Comparator, Network};
use super::sweep::{lock, Refused};
use crate::simd::widest;

/// Number of elements that a comparator processes at a time.
const PIECE: usize = 64;
/// Number of elements of a row for which columns are sorted at a time.
const PART: usize = 8 * PIECE;
/// Number of parts that a lane takes at a time.
const TAKEN: usize = 16;
/// Maximum number of elements of a window.
const MOST: usize = 1024;

/// Elements with an order.
pub trait Ordered: Copy + Default + PartialOrd + Send + Sync {}

impl<T: Copy + Default + PartialOrd + Send + Sync> Ordered for T {}

/// A filter that selects the element of a given rank from windows of a given size.
#[derive(Debug)]
pub struct RankFilter {
    size: Vec<usize>,
    sort: Network,
    select: Network,
}

/// Elements in memory, the slowest axis first.
#[derive(Debug, Clone, Copy)]
pub struct Shaped<'a, T> {
    /// All elements, one after another.
    pub elements: &'a [T],
    /// Length of each axis.
    pub shape: &'a [usize],
}

impl RankFilter {
    /// Creates a filter for windows of this size along each axis, the slowest first.
    ///
    /// Ranks count from the smallest element.
    pub fn new(size: &[usize], rank: usize) -> Result<RankFilter, Refused> {
        let volume = size.iter().try_fold(1usize, |all, n| all.checked_mul(*n));
        let volume = volume.filter(|volume| rank < *volume && *volume <= MOST);
        let (Some(volume), Some(width)) = (volume, size.last()) else {
            return Err(Refused("a window must have elements, and not too many"));
        };
        let column = volume / width;
        Ok(RankFilter {
            size: size.to_vec(),
            sort: sorting(column),
            select: selecting(*width, column, rank),
        })
    }

    fn width(&self) -> usize {
        self.size.last().copied().unwrap_or(1)
    }

    fn column(&self) -> usize {
        self.sort.order.len()
    }

    /// Number of elements of a lane's scratch memory.
    pub fn scratch(&self) -> usize {
        self.column() * (self.width() * PIECE + self.sorted())
    }

    /// Length of a row of sorted columns: the part, and the reach of its windows past it.
    fn sorted(&self) -> usize {
        PART + (self.width() - 1).next_multiple_of(PIECE)
    }

    /// Filters into `out`, of the given shape.
    ///
    /// The window of its element 0 begins at `first` in the block. The block must contain all
    /// elements of all windows.
    pub fn run<T: Ordered>(
        &self,
        block: Shaped<'_, T>,
        out: &mut [T],
        shape: &[usize],
        first: &[usize],
        scratch: &mut [T],
    ) -> Result<(), Refused> {
        let axes = self.size.len();
        let lengths = [block.shape.len(), shape.len(), first.len()];
        let volume = |shape: &[usize]| shape.iter().product::<usize>();
        let fits = lengths == [axes; 3]
            && (0..axes).all(|k| first[k] + shape[k] + self.size[k] - 1 <= block.shape[k])
            && block.elements.len() == volume(block.shape)
            && out.len() == volume(shape)
            && scratch.len() >= self.scratch();
        if !fits {
            return Err(Refused("blocks do not match the windows of a filter"));
        }
        if out.is_empty() {
            return Ok(());
        }
        let n = shape[axes - 1];
        let scratches: Mutex<Vec<&mut [T]>> =
            Mutex::new(scratch.chunks_exact_mut(self.scratch()).collect());
        let lanes = lock(&scratches).len();
        // Parts of lines, in order.
        let parts = out.chunks_mut(n).flat_map(|line| line.chunks_mut(PART));
        let each = n.div_ceil(PART);
        let parts = Mutex::new(parts.enumerate());
        side_by_side(lanes, &|_| {
            let Some(scratch) = lock(&scratches).pop() else { return };
            let (sorted, places) = scratch.split_at_mut(self.column() * self.sorted());
            let mut sources = vec![];
            loop {
                let some: Vec<_> = lock(&parts).by_ref().take(TAKEN).collect();
                if some.is_empty() {
                    break;
                }
                for (number, out) in some {
                    self.sources(block, &index(number / each, shape), first, &mut sources);
                    let at = first[axes - 1] + number % each * PART;
                    widest(
                        #[inline(always)]
                        || self.part(&sources, at, out, sorted, places),
                    );
                }
            }
        });
        Ok(())
    }

    /// The lines that contain the columns of the windows of a line.
    fn sources<'a, T>(
        &self,
        block: Shaped<'a, T>,
        index: &[usize],
        first: &[usize],
        sources: &mut Vec<&'a [T]>,
    ) {
        let last = self.size.len() - 1;
        let n = block.shape[last];
        sources.clear();
        for number in 0..self.column() {
            let (mut rest, mut at, mut stride) = (number, 0, n);
            for axis in (0..last).rev() {
                at += (index[axis] + first[axis] + rest % self.size[axis]) * stride;
                rest /= self.size[axis];
                stride *= block.shape[axis];
            }
            sources.push(&block.elements[at..at + n]);
        }
    }

    #[inline(always)]
    fn part<T: Ordered>(
        &self,
        sources: &[&[T]],
        at: usize,
        out: &mut [T],
        sorted: &mut [T],
        places: &mut [T],
    ) {
        let (places, _) = places.as_chunks_mut::<PIECE>();
        let row = self.sorted();
        let needed = out.len() + self.width() - 1;
        for c in (0..needed).step_by(PIECE) {
            for (place, source) in places.iter_mut().zip(sources) {
                let length = PIECE.min(needed - c);
                place[..length].copy_from_slice(&source[at + c..][..length]);
            }
            compare(places, &self.sort);
            for (r, place) in self.sort.order.iter().enumerate() {
                sorted[r * row + c..][..PIECE].copy_from_slice(&places[*place]);
            }
        }
        let column = self.column();
        for (k, out) in out.chunks_mut(PIECE).enumerate() {
            for c in 0..self.width() {
                for r in 0..column {
                    let from = &sorted[r * row + k * PIECE + c..];
                    let length = from.len().min(PIECE);
                    places[c * column + r][..length].copy_from_slice(&from[..length]);
                }
            }
            compare(places, &self.select);
            out.copy_from_slice(&places[self.select.order[0]][..out.len()]);
        }
    }
}

/// Indices of a line along all axes but the last.
fn index(number: usize, shape: &[usize]) -> Vec<usize> {
    let mut index = vec![0; shape.len() - 1];
    let mut rest = number;
    for (slot, n) in index.iter_mut().zip(shape).rev() {
        *slot = rest % n;
        rest /= n;
    }
    index
}

#[inline(always)]
fn compare<T: Ordered>(places: &mut [[T; PIECE]], network: &Network) {
    for comparator in &network.comparators {
        let (Comparator::Both(a, b) | Comparator::Smaller(a, b) | Comparator::Larger(a, b)) =
            *comparator;
        let Ok([a, b]) = places.get_disjoint_mut([a, b]) else { continue };
        match comparator {
            Comparator::Both(..) => each(a, b, |x, y| if y < x { (y, x) } else { (x, y) }),
            Comparator::Smaller(..) => each(a, b, |x, y| (if y < x { y } else { x }, y)),
            Comparator::Larger(..) => each(a, b, |x, y| (x, if y < x { x } else { y })),
        }
    }
}

#[inline(always)]
fn each<T: Ordered>(a: &mut [T; PIECE], b: &mut [T; PIECE], two: impl Fn(T, T) -> (T, T)) {
    for (a, b) in a.iter_mut().zip(b) {
        (*a, *b) = two(*a, *b);
    }
}
