//! The element of a given rank in the window around each element: medians, minima, maxima.
//!
//! Idea. Along the last axis all is done by vectors. For a piece of a row the columns of the windows, which
//! are the elements that the other axes add, are sorted by a network; then each window merges its columns by
//! another one (`network.rs`).
//!
//! Invariants. Every comparator either exchanges two elements or leaves them: results are elements of the
//! window, also where some are not a number and have no order.

use std::sync::Mutex;

use outcore_io::cpu::side_by_side;

use super::boundary::Boundary;
use super::network::{selecting, sorting, Comparator, Network};
use super::sweep::{lock, Refused};
use crate::simd::widest;

/// Elements that comparators work on at once.
const PIECE: usize = 64;
/// Elements of a row for which columns are sorted at once.
const PART: usize = 16 * PIECE;

/// Elements that have an order.
pub trait Ordered: Copy + Default + PartialOrd + Send + Sync {}

impl<T: Copy + Default + PartialOrd + Send + Sync> Ordered for T {}

/// A filter that takes the element of a rank.
#[derive(Debug)]
pub struct RankFilter<T> {
    shape: Vec<i64>,
    size: Vec<i64>,
    /// First neighbour of a window along each axis.
    first: Vec<i64>,
    boundary: Vec<Boundary>,
    fill: T,
    sort: Network,
    select: Network,
}

impl<T: Ordered> RankFilter<T> {
    /// Of an array of this shape, the slowest axis first; windows begin `size / 2 + origin` before an element.
    pub fn new(
        shape: &[usize],
        size: &[usize],
        origin: &[i64],
        boundary: Vec<Boundary>,
        fill: T,
        rank: usize,
    ) -> Result<RankFilter<T>, Refused> {
        let axes = shape.len();
        let all = [size.len(), origin.len(), boundary.len()];
        let volume = size.iter().try_fold(1usize, |all, n| all.checked_mul(*n));
        let fits = volume.is_some_and(|volume| rank < volume && volume <= 1024);
        if axes == 0 || all != [axes; 3] || !fits || shape.contains(&0) {
            return Err(Refused("a window that does not fit its array"));
        }
        let width = size[axes - 1];
        let column = volume.unwrap_or(1) / width;
        Ok(RankFilter {
            shape: shape.iter().map(|n| *n as i64).collect(),
            first: size.iter().zip(origin).map(|(n, o)| -(*n as i64 / 2) - o).collect(),
            size: size.iter().map(|n| *n as i64).collect(),
            boundary,
            fill,
            sort: sorting(column),
            select: selecting(width, column, rank),
        })
    }

    fn width(&self) -> usize {
        self.size[self.size.len() - 1] as usize
    }

    fn column(&self) -> usize {
        self.sort.order.len()
    }

    /// Elements that a lane works with.
    pub fn scratch(&self) -> usize {
        self.column() * (self.width() * PIECE + self.sorted())
    }

    /// Elements of a row of sorted columns: of a part, and of what its windows reach beyond it.
    fn sorted(&self) -> usize {
        PART + (self.width() - 1).next_multiple_of(PIECE)
    }

    /// Filters the rows `[from, to)` of the slowest axis into `out`.
    ///
    /// `block` has the rows from `begin` on: all that the windows reach, but for what lies outside of the
    /// array, which the boundary tells. `Wrap` along the slowest axis may count on beyond the ends.
    pub fn run(
        &self,
        block: &[T],
        begin: i64,
        out: &mut [T],
        (from, to): (i64, i64),
        scratch: &mut [T],
    ) -> Result<(), Refused> {
        let last = self.shape.len() - 1;
        let n = self.shape[last] as usize;
        let row: usize = self.shape[1..].iter().map(|n| *n as usize).product();
        let (rows, here) = ((to - from).max(0) as usize, (block.len() / row) as i64);
        if !block.len().is_multiple_of(row)
            || out.len() != rows * row
            || scratch.len() < self.scratch()
        {
            return Err(Refused("blocks that do not fit the rows of a filter"));
        }
        let scratches: Mutex<Vec<&mut [T]>> =
            Mutex::new(scratch.chunks_exact_mut(self.scratch()).collect());
        let lines = rows * row / n;
        let lanes = lock(&scratches).len().min(lines.max(1));
        let each = (lines / (8 * lanes)).clamp(1, 64);
        // With one axis there is one line; parts of it go to the lanes.
        let pieces = match last {
            0 => Mutex::new(out.chunks_mut(8 * PART).enumerate()),
            _ => Mutex::new(out.chunks_mut(each * n).enumerate()),
        };
        let missing = std::sync::atomic::AtomicBool::new(false);
        side_by_side(lanes, &|_| {
            let Some(scratch) = lock(&scratches).pop() else { return };
            loop {
                let next = lock(&pieces).next();
                let Some((k, out)) = next else { break };
                let mut sources = vec![];
                if last == 0 {
                    let start = from + (k * 8 * PART) as i64;
                    self.sources(block, begin, here, &[start], &mut sources);
                    self.line(&sources, begin, start, out, scratch);
                    continue;
                }
                for (j, out) in out.chunks_exact_mut(n).enumerate() {
                    let index = self.index(k * each + j, from);
                    if !self.sources(block, begin, here, &index, &mut sources) {
                        missing.store(true, std::sync::atomic::Ordering::Relaxed);
                        return;
                    }
                    self.line(&sources, 0, 0, out, scratch);
                }
            }
        });
        match missing.into_inner() {
            true => Err(Refused("a block without the neighbours of its rows")),
            false => Ok(()),
        }
    }

    /// Indices of line `number` of the result.
    fn index(&self, number: usize, from: i64) -> Vec<i64> {
        let last = self.shape.len() - 1;
        let mut index = vec![0; last];
        let mut rest = number as i64;
        for axis in (0..last).rev() {
            let n = if axis == 0 { i64::MAX } else { self.shape[axis] };
            index[axis] = rest % n;
            rest /= n;
        }
        index[0] += from;
        index
    }

    /// The lines whose elements are the columns of the windows of a line; none for numbers outside.
    /// False if the block has not all of them.
    fn sources<'a>(
        &self,
        block: &'a [T],
        begin: i64,
        here: i64,
        index: &[i64],
        sources: &mut Vec<Option<&'a [T]>>,
    ) -> bool {
        let last = self.shape.len() - 1;
        sources.clear();
        if last == 0 {
            sources.push(Some(block));
            return true;
        }
        let n = self.shape[last] as usize;
        let mut offset = vec![0; last];
        loop {
            let mut at = Some(0i64);
            for axis in 0..last {
                let wanted = index[axis] + self.first[axis] + offset[axis];
                let found = match axis {
                    0 if (begin..begin + here).contains(&wanted) => Some(wanted - begin),
                    0 => match self.boundary[0].source(wanted, self.shape[0]) {
                        Some(row) if (begin..begin + here).contains(&row) => Some(row - begin),
                        Some(_) => return false,
                        None => None,
                    },
                    _ => self.boundary[axis].source(wanted, self.shape[axis]),
                };
                at = at.zip(found).map(|(at, found)| match axis {
                    0 => found,
                    _ => at * self.shape[axis] + found,
                });
            }
            sources.push(at.map(|at| &block[at as usize * n..][..n]));
            let mut axis = last;
            loop {
                if axis == 0 {
                    return true;
                }
                axis -= 1;
                offset[axis] += 1;
                if offset[axis] < self.size[axis] {
                    break;
                }
                offset[axis] = 0;
            }
        }
    }

    /// Filters a line, or what of it is from `start` on; sources begin with element `begin`.
    fn line(
        &self,
        sources: &[Option<&[T]>],
        begin: i64,
        start: i64,
        out: &mut [T],
        scratch: &mut [T],
    ) {
        let (sorted, places) = scratch.split_at_mut(self.column() * self.sorted());
        for (k, out) in out.chunks_mut(PART).enumerate() {
            let at = start + (k * PART) as i64;
            widest(
                #[inline(always)]
                || self.part(sources, begin, at, out, sorted, places),
            );
        }
    }

    #[inline(always)]
    fn part(
        &self,
        sources: &[Option<&[T]>],
        begin: i64,
        at: i64,
        out: &mut [T],
        sorted: &mut [T],
        places: &mut [T],
    ) {
        let (places, _) = places.as_chunks_mut::<PIECE>();
        let row = self.sorted();
        let axis = self.shape.len() - 1;
        let needed = (out.len() + self.width() - 1).next_multiple_of(PIECE);
        for c in (0..needed).step_by(PIECE) {
            let first = at + self.first[axis] + c as i64;
            for (place, source) in places.iter_mut().zip(sources) {
                self.load(place, *source, begin, first);
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

    /// Elements from `first` on of a line, which begins with element `begin`, also beyond its ends.
    #[inline(always)]
    fn load(&self, place: &mut [T; PIECE], source: Option<&[T]>, begin: i64, first: i64) {
        let Some(source) = source else {
            *place = [self.fill; PIECE];
            return;
        };
        let inside = usize::try_from(first - begin).ok().and_then(|at| source.get(at..at + PIECE));
        if let Some(inside) = inside {
            place.copy_from_slice(inside);
            return;
        }
        let axis = self.shape.len() - 1;
        for (k, place) in place.iter_mut().enumerate() {
            let wanted = first + k as i64;
            let is_here = (begin..begin + source.len() as i64).contains(&wanted);
            let found = match is_here {
                true => Some(wanted),
                false => self.boundary[axis].source(wanted, self.shape[axis]),
            };
            // What no window reaches may be anything.
            let element = found.and_then(|at| source.get(usize::try_from(at - begin).ok()?));
            *place = element.copied().unwrap_or(self.fill);
        }
    }
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
