//! Count, mean and sum of squared deviations, in one pass.
//!
//! In a leaf, elements are taken relative to one of them, its pivot, and their sums and sums of
//! squares are added in lanes. The deviation of the pivot is itself a term of the sum, so the loss
//! of precision is at most a factor of the length of a leaf. Nodes are merged by the formulas of
//! Chan, Golub and LeVeque.

use std::marker::PhantomData;

use super::fold::{Fold, Node, Rows, Run, LANES, LEAF, NARROW};

/// A type that can be converted to float64.
pub trait Real: Copy + Sync {
    /// The number.
    fn real(self) -> f64;
}

macro_rules! real {
    ($($type:ty),*) => {$(
        impl Real for $type {
            #[inline(always)]
            fn real(self) -> f64 {
                self as f64
            }
        }
    )*};
}

real!(u8, i8, u16, i16, u32, i32, u64, i64, f32, f64);

/// Moments of elements; with `NAN`, only of those that are not NaN.
///
/// Slots: three planes of each level, the current node, pivots, lanes of sums, of squares, and of
/// counts.
#[derive(Debug, Default)]
pub struct Moments<I, const NAN: bool>(PhantomData<I>);

/// Moments of nodes that have moments already.
#[derive(Debug, Default)]
pub struct MomentsOfNodes;

impl<I, const NAN: bool> Moments<I, NAN> {
    /// The reduction.
    pub fn new() -> Self {
        Moments(PhantomData)
    }
}

/// Planes: count, mean, sum of squared deviations.
const PLANES: usize = 3;
/// Number of values of the longest row that combines short ones.
const MOST: usize = LANES * NARROW;

/// The planes of the node in the first slots of `part`.
#[inline(always)]
fn planes(part: &mut [f64], (width, column, len): (usize, usize, usize)) -> [&mut [f64]; PLANES] {
    let (count, rest) = part.split_at_mut(width);
    let (mean, rest) = rest.split_at_mut(width);
    [count, mean, rest].map(|plane| &mut plane[column..][..len])
}

/// Merges the node in slots from `low` on into the one from `high` on; `low` has the lower indices.
#[inline(always)]
fn merge(state: &mut Rows<'_, f64>, low: usize, high: usize) {
    let place = (state.width, state.column, state.len);
    let (before, behind) = state.data.split_at_mut(high * state.width);
    let [counts, means, squares] = planes(behind, place);
    let left = planes(&mut before[low * state.width..], place);
    let (means, squares) = (&mut means[..counts.len()], &mut squares[..counts.len()]);
    let [a, b, c] = left.map(|plane| &plane[..counts.len()]);
    for i in 0..counts.len() {
        let (left, right) = (a[i], counts[i]);
        let both = left + right;
        let apart = means[i] - b[i];
        let share = right / both;
        let mean = b[i] + apart * share;
        let sum = c[i] + squares[i] + apart * apart * (left * share);
        // A node without elements has no mean.
        let (only_right, only_left) = (left == 0.0, right == 0.0);
        means[i] = if only_right {
            means[i]
        } else if only_left {
            b[i]
        } else {
            mean
        };
        squares[i] = if only_right {
            squares[i]
        } else if only_left {
            c[i]
        } else {
            sum
        };
        counts[i] = both;
    }
}

/// Carries the current node, that of `leaf`, up to the first level without a node.
#[inline(always)]
fn carry(state: &mut Rows<'_, f64>, (leaf, from): (usize, usize), levels: usize) {
    let node = PLANES * levels;
    let mut level = from;
    while leaf >> level & 1 == 1 {
        merge(state, PLANES * level, node);
        level += 1;
    }
    for plane in 0..PLANES {
        let (to, from) = state.two(PLANES * level + plane, node + plane);
        to.copy_from_slice(from);
    }
}

/// Merges the nodes of all leaves and the current one.
#[inline(always)]
fn collect(state: &mut Rows<'_, f64>, leaves: usize, levels: usize) {
    for level in (0..levels).filter(|level| leaves >> level & 1 == 1) {
        merge(state, PLANES * level, PLANES * levels);
    }
}

#[inline(always)]
fn push(state: &mut Rows<'_, f64>, node: &Node<'_, f64>, leaf: usize, levels: usize) {
    for plane in 0..PLANES {
        state.row(PLANES * levels + plane).copy_from_slice(node.plane(plane));
    }
    carry(state, (leaf, node.level), levels);
}

/// Adds the deviation of an element from the pivot to a lane.
#[inline(always)]
fn take<const NAN: bool>(x: f64, pivot: f64, sum: &mut f64, squares: &mut f64, count: &mut f64) {
    let apart = if NAN && x.is_nan() { 0.0 } else { x - pivot };
    *sum += apart;
    *squares += apart * apart;
    if NAN {
        *count += if x.is_nan() { 0.0 } else { 1.0 };
    }
}

/// Mean and sum of squared deviations from it, from sums relative to a pivot.
#[inline(always)]
fn centred(count: f64, pivot: f64, sum: f64, squares: f64) -> (f64, f64) {
    let shift = if count > 0.0 { sum / count } else { 0.0 };
    let rest = squares - sum * shift;
    // Not `max`, so that NaN is preserved.
    (if count > 0.0 { pivot + shift } else { 0.0 }, if rest < 0.0 { 0.0 } else { rest })
}

impl<I: Real, const NAN: bool> Moments<I, NAN> {
    const LANE_PLANES: usize = if NAN { 3 } else { 2 };

    fn pivot(levels: usize) -> usize {
        PLANES * (levels + 1)
    }

    fn sums(levels: usize) -> usize {
        Self::pivot(levels) + 1
    }

    fn squares(levels: usize) -> usize {
        Self::sums(levels) + LANES
    }

    fn counts(levels: usize) -> usize {
        // Without `NAN` nothing uses the lanes of counts, so they need no memory.
        if NAN {
            Self::squares(levels) + LANES
        } else {
            Self::squares(levels)
        }
    }

    /// Sets the pivots of a leaf.
    ///
    /// At the beginning of the leaf, its first row becomes the pivots; later, the first number
    /// replaces a NaN.
    #[inline(always)]
    fn pivots(
        state: &mut Rows<'_, f64>,
        run: &Run<'_, I>,
        (done, rows, inside): (usize, usize, usize),
        levels: usize,
    ) {
        if inside == 0 {
            for lane in Self::sums(levels)..Self::sums(levels) + Self::LANE_PLANES * LANES {
                state.row(lane).fill(0.0);
            }
            for (pivot, x) in state.row(Self::pivot(levels)).iter_mut().zip(run.row(0, done)) {
                *pivot = x.real();
            }
        }
        if NAN {
            for (column, pivot) in state.row(Self::pivot(levels)).iter_mut().enumerate() {
                let mut k = 0;
                while pivot.is_nan() && k < rows {
                    *pivot = run.row(0, done + k)[column].real();
                    k += 1;
                }
            }
        }
    }

    /// Computes the node of a leaf with `count` rows from its lanes.
    #[inline(always)]
    fn leaf(state: &mut Rows<'_, f64>, count: usize, levels: usize) {
        for plane in 0..Self::LANE_PLANES {
            let first = Self::sums(levels) + plane * LANES;
            let mut step = 1;
            while step < LANES {
                for lane in (0..LANES).step_by(2 * step) {
                    let (a, b) = state.two(first + lane, first + lane + step);
                    for (a, b) in a.iter_mut().zip(b) {
                        *a += *b;
                    }
                }
                step *= 2;
            }
        }
        let (width, len) = (state.width, state.len);
        let place = (width, state.column, len);
        let (nodes, lanes) = state.data.split_at_mut(Self::pivot(levels) * width);
        let [to_count, mean, squares] = planes(&mut nodes[PLANES * levels * width..], place);
        let row = |slot: usize| &lanes[(slot - Self::pivot(levels)) * width + place.1..][..len];
        let (pivots, sums) = (row(Self::pivot(levels)), row(Self::sums(levels)));
        let all = row(Self::squares(levels));
        let counts = if NAN { row(Self::counts(levels)) } else { sums };
        for n in 0..len {
            let count = if NAN { counts[n] } else { count as f64 };
            to_count[n] = count;
            (mean[n], squares[n]) = centred(count, pivots[n], sums[n], all[n]);
        }
    }

    /// Processes all rows of a leaf, which are short: `LEAF * N / LANES` elements.
    #[inline(always)]
    fn full<const N: usize>(state: &mut Rows<'_, f64>, x: &[I], levels: usize) {
        let len = N / LANES;
        let (mut sums, mut squares, mut counts) = ([0.0; N], [0.0; N], [0.0; N]);
        let mut pivots = [0.0; N];
        for n in 0..len {
            let mut column = x[n..].iter().step_by(len).map(|x| x.real());
            let first = column.next().unwrap_or(0.0);
            let pivot = if NAN && first.is_nan() {
                column.find(|x| !x.is_nan()).unwrap_or(first)
            } else {
                first
            };
            for lane in 0..LANES {
                pivots[lane * len + n] = pivot;
            }
        }
        for group in x.chunks_exact(N) {
            for n in 0..N {
                let (a, b, c) = (&mut sums[n], &mut squares[n], &mut counts[n]);
                take::<NAN>(group[n].real(), pivots[n], a, b, c);
            }
        }
        let mut step = 1;
        while step < LANES {
            for lane in (0..LANES).step_by(2 * step) {
                for n in 0..len {
                    let (to, from) = (lane * len + n, (lane + step) * len + n);
                    sums[to] += sums[from];
                    squares[to] += squares[from];
                    counts[to] += counts[from];
                }
            }
            step *= 2;
        }
        let place = (state.width, state.column, state.len);
        let node = &mut state.data[PLANES * levels * state.width..];
        let [to_count, mean, rest] = planes(node, place);
        for n in 0..len {
            let count = if NAN { counts[n] } else { LEAF as f64 };
            to_count[n] = count;
            (mean[n], rest[n]) = centred(count, pivots[n], sums[n], squares[n]);
        }
    }

    /// Processes rows of one leaf, which are short: `LANES` of them at a time as one long row.
    #[inline(always)]
    fn narrow(state: &mut Rows<'_, f64>, x: &[I], inside: usize, levels: usize) {
        let len = state.len;
        let size = LANES * len;
        let (mut pivots, mut sums) = ([0.0; MOST], [0.0; MOST]);
        let (mut squares, mut counts) = ([0.0; MOST], [0.0; MOST]);
        for lane in 0..LANES {
            let part = lane * len..(lane + 1) * len;
            pivots[part.clone()].copy_from_slice(state.row(Self::pivot(levels)));
            sums[part.clone()].copy_from_slice(state.row(Self::sums(levels) + lane));
            squares[part.clone()].copy_from_slice(state.row(Self::squares(levels) + lane));
            if NAN {
                counts[part].copy_from_slice(state.row(Self::counts(levels) + lane));
            }
        }
        let begin = inside % LANES * len;
        let head = if begin == 0 { 0 } else { (size - begin).min(x.len()) };
        for (k, x) in x[..head].iter().enumerate() {
            let n = begin + k;
            take::<NAN>(x.real(), pivots[n], &mut sums[n], &mut squares[n], &mut counts[n]);
        }
        let groups = x[head..].chunks_exact(size);
        let rest = groups.remainder();
        for group in groups {
            let (p, a, b) = (&pivots[..size], &mut sums[..size], &mut squares[..size]);
            let c = &mut counts[..size];
            for n in 0..size {
                take::<NAN>(group[n].real(), p[n], &mut a[n], &mut b[n], &mut c[n]);
            }
        }
        for (n, x) in rest.iter().enumerate() {
            take::<NAN>(x.real(), pivots[n], &mut sums[n], &mut squares[n], &mut counts[n]);
        }
        for lane in 0..LANES {
            let part = lane * len..(lane + 1) * len;
            state.row(Self::sums(levels) + lane).copy_from_slice(&sums[part.clone()]);
            state.row(Self::squares(levels) + lane).copy_from_slice(&squares[part.clone()]);
            if NAN {
                state.row(Self::counts(levels) + lane).copy_from_slice(&counts[part]);
            }
        }
    }

    /// Processes one row of one leaf.
    #[inline(always)]
    fn wide(state: &mut Rows<'_, f64>, x: &[I], lane: usize, levels: usize) {
        let width = state.width;
        let (column, len) = (state.column, state.len);
        let (low, high) = state.data.split_at_mut(Self::squares(levels) * width);
        let (pivots, sums) = low.split_at_mut(Self::sums(levels) * width);
        let pivots = &pivots[Self::pivot(levels) * width + column..][..len];
        let sums = &mut sums[lane * width + column..][..len];
        let x = &x[..len];
        if NAN {
            let (squares, counts) = high.split_at_mut(LANES * width);
            let squares = &mut squares[lane * width + column..][..len];
            let counts = &mut counts[lane * width + column..][..len];
            for n in 0..len {
                let x = x[n].real();
                take::<NAN>(x, pivots[n], &mut sums[n], &mut squares[n], &mut counts[n]);
            }
        } else {
            let squares = &mut high[lane * width + column..][..len];
            for n in 0..len {
                let x = x[n].real();
                take::<NAN>(x, pivots[n], &mut sums[n], &mut squares[n], &mut 0.0);
            }
        }
    }
}

impl<I: Real, const NAN: bool> Fold for Moments<I, NAN> {
    type In = I;
    type Acc = f64;
    type Out = f64;
    const PLANES: usize = PLANES;

    fn slots(levels: usize) -> usize {
        Self::sums(levels) + Self::LANE_PLANES * LANES
    }

    #[inline(always)]
    fn fold(&self, state: &mut Rows<'_, f64>, run: &Run<'_, I>, levels: usize) {
        let narrow = run.narrow();
        let mut done = 0;
        while done < run.rows {
            let at = run.first - run.base + done;
            let (leaf, inside) = (at / LEAF, at % LEAF);
            let rows = (LEAF - inside).min(run.rows - done);
            if narrow && rows == LEAF && run.len <= 2 {
                match run.len {
                    1 => Self::full::<LANES>(state, run.dense(done, rows), levels),
                    _ => Self::full::<{ 2 * LANES }>(state, run.dense(done, rows), levels),
                }
                carry(state, (leaf, 0), levels);
                done += rows;
                continue;
            }
            Self::pivots(state, run, (done, rows, inside), levels);
            if narrow {
                Self::narrow(state, run.dense(done, rows), inside, levels);
            } else {
                for k in 0..rows {
                    Self::wide(state, run.row(0, done + k), (inside + k) % LANES, levels);
                }
            }
            done += rows;
            if inside + rows == LEAF {
                Self::leaf(state, LEAF, levels);
                carry(state, (leaf, 0), levels);
            }
        }
    }

    #[inline(always)]
    fn push(&self, state: &mut Rows<'_, f64>, node: &Node<'_, f64>, levels: usize) {
        push(state, node, node.at / LEAF, levels);
    }

    #[inline(always)]
    fn root(&self, state: &mut Rows<'_, f64>, count: usize, levels: usize) {
        let (leaves, rest) = (count / LEAF, count % LEAF);
        if rest == 0 {
            for plane in 0..PLANES {
                state.row(PLANES * levels + plane).fill(0.0);
            }
        } else {
            Self::leaf(state, rest, levels);
        }
        collect(state, leaves, levels);
    }

    fn place(plane: usize, levels: usize) -> usize {
        PLANES * levels + plane
    }

    #[inline(always)]
    fn seal(value: f64) -> f64 {
        super::ops::one_nan(value)
    }
}

/// Number of levels of nodes if each index is a leaf.
fn fine(levels: usize) -> usize {
    levels + LEAF.ilog2() as usize
}

impl Fold for MomentsOfNodes {
    type In = f64;
    type Acc = f64;
    type Out = f64;
    const PLANES: usize = PLANES;

    fn slots(levels: usize) -> usize {
        PLANES * (fine(levels) + 1)
    }

    #[inline(always)]
    fn fold(&self, state: &mut Rows<'_, f64>, run: &Run<'_, f64>, levels: usize) {
        let levels = fine(levels);
        for k in 0..run.rows {
            for plane in 0..PLANES {
                state.row(PLANES * levels + plane).copy_from_slice(run.row(plane, k));
            }
            carry(state, (run.first - run.base + k, 0), levels);
        }
    }

    #[inline(always)]
    fn push(&self, state: &mut Rows<'_, f64>, node: &Node<'_, f64>, levels: usize) {
        let up = LEAF.ilog2() as usize;
        for plane in 0..PLANES {
            state.row(PLANES * fine(levels) + plane).copy_from_slice(node.plane(plane));
        }
        carry(state, (node.at, node.level + up), fine(levels));
    }

    #[inline(always)]
    fn root(&self, state: &mut Rows<'_, f64>, count: usize, levels: usize) {
        let levels = fine(levels);
        for plane in 0..PLANES {
            state.row(PLANES * levels + plane).fill(0.0);
        }
        collect(state, count, levels);
    }

    fn place(plane: usize, levels: usize) -> usize {
        PLANES * fine(levels) + plane
    }

    #[inline(always)]
    fn seal(value: f64) -> f64 {
        super::ops::one_nan(value)
    }
}
