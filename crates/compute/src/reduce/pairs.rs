//! Reductions of complex numbers that combine both parts.
//!
//! These are products, extremes, and positions of extremes.
//!
//! Problem: a product or a comparison needs both parts of a number. Kernels for one more type, in
//! vectors of each width, would double the compile time.
//!
//! Approach: a complex number is two adjacent columns, so each number of columns is even, and the
//! state of one output has two columns. The basic instructions of the processor are sufficient;
//! vectors are not used (`WIDE`). Elements of a leaf are processed one after another, and leaves
//! and nodes as in a sum.
//!
//! Invariants: the left one of two values has the lower indices: among equal values, or NaNs, the
//! first one is the extreme, as in NumPy. A value with a NaN part counts as NaN.

use std::marker::PhantomData;

use super::arg::Ordered;
use super::fold::{Fold, Node, Rows, Run, LEAF};
use super::ops::Real;

/// Operations on two complex numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Merge {
    /// The product. The first element of the axis is multiplied by one, as in NumPy.
    ///
    /// For an infinite element, this makes a part NaN.
    Prod,
    /// The product of values that are products already.
    More,
    /// The smaller one: by the real parts, and if these are equal, by the imaginary parts.
    Min,
    /// The larger one.
    Max,
    /// The smaller one, ignoring NaN.
    NanMin,
    /// The larger one, ignoring NaN.
    NanMax,
}

/// A part of a complex number.
pub trait Part: Real + PartialOrd {
    /// The product of two complex numbers; each operation is rounded separately.
    fn times(a: [Self; 2], b: [Self; 2]) -> [Self; 2];
    /// 1 and 0: multiplication by this complex number changes no finite one.
    const ONE: [Self; 2];
}

macro_rules! part {
    ($($float:ty),*) => {$(
        impl Part for $float {
            const ONE: [$float; 2] = [1.0, 0.0];
            #[inline(always)]
            fn times(a: [$float; 2], b: [$float; 2]) -> [$float; 2] {
                [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]]
            }
        }
    )*};
}

part!(f32, f64);

#[inline(always)]
fn is_number<T: Part>(x: [T; 2]) -> bool {
    x[0].is_number() && x[1].is_number()
}

/// Returns whether `a` comes before `b`. Neither is NaN.
#[inline(always)]
fn below<T: Part>(a: [T; 2], b: [T; 2]) -> bool {
    a[0] < b[0] || (a[0] == b[0] && a[1] < b[1])
}

/// The better one, or the left one if neither is better.
///
/// With `NAN`, NaNs are ignored; otherwise a NaN is the result.
#[inline(always)]
fn best<T: Part, const LARGEST: bool, const NAN: bool>(a: [T; 2], b: [T; 2]) -> [T; 2] {
    let wins = match (is_number(a), is_number(b)) {
        (true, true) if LARGEST => below(a, b),
        (true, true) => below(b, a),
        (true, false) => !NAN,
        (false, number) => NAN && number,
    };
    if wins {
        b
    } else {
        a
    }
}

/// A reduction of complex numbers in pairs of columns.
///
/// Slots: one for each level, and the current leaf.
#[derive(Debug)]
pub struct Pairs<T> {
    merge: Merge,
    part: PhantomData<T>,
}

impl<T: Part> Pairs<T> {
    /// The reduction.
    pub fn new(merge: Merge) -> Self {
        Pairs { merge, part: PhantomData }
    }

    /// Computes `to[k] = merge(to[k], from[k])`, with swapped arguments unless `right`.
    #[inline(always)]
    fn take(&self, to: &mut [T], from: &[T], right: bool) {
        match self.merge {
            Merge::Prod | Merge::More => each(to, from, right, T::times),
            Merge::Min => each(to, from, right, best::<T, false, false>),
            Merge::Max => each(to, from, right, best::<T, true, false>),
            Merge::NanMin => each(to, from, right, best::<T, false, true>),
            Merge::NanMax => each(to, from, right, best::<T, true, true>),
        }
    }

    /// Carries the node in the last slot, that of `leaf`, up to the first level without a node.
    fn carry(&self, state: &mut Rows<'_, T>, (leaf, from): (usize, usize), levels: usize) {
        let mut level = from;
        while leaf >> level & 1 == 1 {
            let (low, node) = state.two(level, levels);
            self.take(node, low, false);
            level += 1;
        }
        let (to, node) = state.two(level, levels);
        to.copy_from_slice(node);
    }
}

/// Processes some rows, two columns at a time.
#[inline(always)]
fn each<T: Part>(to: &mut [T], from: &[T], right: bool, f: impl Fn([T; 2], [T; 2]) -> [T; 2]) {
    let merge = |a: [T; 2], b: [T; 2]| if right { f(a, b) } else { f(b, a) };
    if let [re, im] = to {
        // A single number stays in registers.
        [*re, *im] = from.as_chunks().0.iter().fold([*re, *im], |a, b| merge(a, *b));
        return;
    }
    for row in from.chunks_exact(to.len().max(1)) {
        to.as_chunks_mut()
            .0
            .iter_mut()
            .zip(row.as_chunks().0)
            .for_each(|(a, b)| *a = merge(*a, *b));
    }
}

impl<T: Part> Fold for Pairs<T> {
    type In = T;
    type Acc = T;
    type Out = T;
    const PLANES: usize = 1;
    const WIDE: bool = false;

    fn slots(levels: usize) -> usize {
        levels + 1
    }

    fn fold(&self, state: &mut Rows<'_, T>, run: &Run<'_, T>, levels: usize) {
        let mut done = 0;
        while done < run.rows {
            let at = run.first - run.base + done;
            let (leaf, inside) = (at / LEAF, at % LEAF);
            let rows = (LEAF - inside).min(run.rows - done);
            let to = state.row(levels);
            let mut begin = 0;
            if inside == 0 {
                to.copy_from_slice(run.row(0, done));
                if run.first + done == 0 && self.merge == Merge::Prod {
                    to.as_chunks_mut().0.iter_mut().for_each(|x| *x = T::times(T::ONE, *x));
                }
                begin = 1;
            }
            if run.narrow() {
                self.take(to, run.dense(done + begin, rows - begin), true);
            } else {
                (begin..rows).for_each(|k| self.take(to, run.row(0, done + k), true));
            }
            done += rows;
            if inside + rows == LEAF {
                self.carry(state, (leaf, 0), levels);
            }
        }
    }

    fn push(&self, state: &mut Rows<'_, T>, node: &Node<'_, T>, levels: usize) {
        state.row(levels).copy_from_slice(node.plane(0));
        self.carry(state, (node.at / LEAF, node.level), levels);
    }

    fn root(&self, state: &mut Rows<'_, T>, count: usize, levels: usize) {
        let (leaves, rest) = (count / LEAF, count % LEAF);
        let mut empty = rest == 0;
        for level in (0..levels).filter(|level| leaves >> level & 1 == 1) {
            let (low, node) = state.two(level, levels);
            if empty {
                node.copy_from_slice(low);
            } else {
                self.take(node, low, false);
            }
            empty = false;
        }
    }

    fn place(_plane: usize, levels: usize) -> usize {
        levels
    }

    fn seal(value: T) -> T {
        super::ops::one_nan(value)
    }
}

/// Computes cumulative products of complex numbers (pairs of columns), in place.
///
/// The axis has `rows` rows of `inner` columns. `before` has the products before the first rows.
/// Every operation is rounded separately, so the result does not depend on the cuts of the axis.
pub fn accumulate<T: Part>(y: &mut [T], rows: usize, inner: usize, before: Option<&[T]>) {
    let size = (rows * inner).max(1);
    let multiply = |to: &mut [T], by: &[T]| each(to, by, false, T::times);
    for (o, block) in y.chunks_exact_mut(size).enumerate() {
        if let Some(before) = before {
            multiply(&mut block[..inner], &before[o * inner..][..inner]);
        }
        for k in 1..rows {
            let (low, high) = block.split_at_mut(k * inner);
            multiply(&mut high[..inner], &low[(k - 1) * inner..]);
        }
    }
}

/// Index of the largest, or smallest, complex number, in pairs of columns.
///
/// The state has the ranks of both parts, and the index twice. With `nan`, NaNs have the lowest
/// ranks and are ignored, otherwise the highest.
#[derive(Debug)]
pub struct ArgPairs<T> {
    largest: bool,
    nan: bool,
    part: PhantomData<T>,
}

/// Variant for nodes that have ranks and indices already, along a further axis.
#[derive(Debug)]
pub struct ArgPairsOfNodes {
    step: i64,
}

impl<T> ArgPairs<T> {
    /// The reduction.
    pub fn new(largest: bool, nan: bool) -> Self {
        ArgPairs { largest, nan, part: PhantomData }
    }
}

impl ArgPairsOfNodes {
    /// Creates the reduction; each index of the axis adds `step` to the indices of the nodes.
    pub fn new(step: i64) -> Self {
        ArgPairsOfNodes { step }
    }
}

const RANK: usize = 0;
const INDEX: usize = 1;

/// Replaces ranks and index if the new ranks are better.
///
/// A negative index means that there is no element so far; it is always replaced.
#[inline(always)]
fn take(ranks: &mut [i64; 2], index: &mut [i64; 2], rank: [i64; 2], at: i64) {
    if index[0] < 0 || rank > *ranks {
        (*ranks, *index) = (rank, [at; 2]);
    }
}

#[inline(always)]
fn take_all(state: &mut Rows<'_, i64>, ranks: &[i64], indices: &[i64], shift: i64) {
    let (best, places) = state.two(RANK, INDEX);
    let best = best.as_chunks_mut().0.iter_mut().zip(places.as_chunks_mut().0);
    let more = ranks.as_chunks().0.iter().zip(indices.as_chunks::<2>().0);
    for ((best, place), (rank, index)) in best.zip(more) {
        take(best, place, *rank, index[0] + shift);
    }
}

impl<T: Ordered> Fold for ArgPairs<T> {
    type In = T;
    type Acc = i64;
    type Out = i64;
    const PLANES: usize = 2;
    const WIDE: bool = false;

    fn slots(_levels: usize) -> usize {
        2
    }

    fn fold(&self, state: &mut Rows<'_, i64>, run: &Run<'_, T>, _levels: usize) {
        if run.first == run.base {
            state.row(INDEX).fill(-1);
        }
        let other = if self.nan { i64::MIN } else { i64::MAX };
        for k in 0..run.rows {
            let (best, places) = state.two(RANK, INDEX);
            let best = best.as_chunks_mut().0.iter_mut().zip(places.as_chunks_mut().0);
            for ((best, place), x) in best.zip(run.row(0, k).as_chunks().0) {
                let [re, im]: [T; 2] = *x;
                let rank = match re.is_number() && im.is_number() {
                    true => [re.rank(self.largest), im.rank(self.largest)],
                    false => [other; 2],
                };
                take(best, place, rank, (run.first + k) as i64);
            }
        }
    }

    fn push(&self, state: &mut Rows<'_, i64>, node: &Node<'_, i64>, _levels: usize) {
        push(state, node);
    }

    fn root(&self, _state: &mut Rows<'_, i64>, _count: usize, _levels: usize) {}

    fn place(plane: usize, _levels: usize) -> usize {
        plane
    }

    fn seal(value: i64) -> i64 {
        value
    }
}

fn push(state: &mut Rows<'_, i64>, node: &Node<'_, i64>) {
    if node.at == 0 {
        state.row(INDEX).fill(-1);
    }
    take_all(state, node.plane(RANK), node.plane(INDEX), 0);
}

impl Fold for ArgPairsOfNodes {
    type In = i64;
    type Acc = i64;
    type Out = i64;
    const PLANES: usize = 2;
    const WIDE: bool = false;

    fn slots(_levels: usize) -> usize {
        2
    }

    fn fold(&self, state: &mut Rows<'_, i64>, run: &Run<'_, i64>, _levels: usize) {
        if run.first == run.base {
            state.row(INDEX).fill(-1);
        }
        for k in 0..run.rows {
            let shift = (run.first + k) as i64 * self.step;
            take_all(state, run.row(RANK, k), run.row(INDEX, k), shift);
        }
    }

    fn push(&self, state: &mut Rows<'_, i64>, node: &Node<'_, i64>, _levels: usize) {
        push(state, node);
    }

    fn root(&self, _state: &mut Rows<'_, i64>, _count: usize, _levels: usize) {}

    fn place(plane: usize, _levels: usize) -> usize {
        plane
    }

    fn seal(value: i64) -> i64 {
        value
    }
}
