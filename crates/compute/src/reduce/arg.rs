//! Index of the first extreme element.

use std::marker::PhantomData;

use super::fold::{Fold, Node, Rows, Run, LANES};

/// A type whose values have the order of integers; NaN comes first.
pub trait Ordered: Copy + Sync {
    /// An integer that is larger for better values.
    ///
    /// It is equal for equal values, including zeros of both signs.
    fn rank(self, largest: bool) -> i64;
    /// Returns whether the value is not NaN.
    fn is_number(self) -> bool;
}

macro_rules! ordered {
    ($($type:ty),*) => {$(
        impl Ordered for $type {
            #[inline(always)]
            fn rank(self, largest: bool) -> i64 {
                let rank = self as i64;
                // !x is -1 - x, which reverses the order without overflow.
                if largest { rank } else { !rank }
            }
            #[inline(always)]
            fn is_number(self) -> bool {
                true
            }
        }
    )*};
}

ordered!(u8, i8, u16, i16, u32, i32, i64);

impl Ordered for u64 {
    #[inline(always)]
    fn rank(self, largest: bool) -> i64 {
        ((self ^ 1 << 63) as i64).rank(largest)
    }
    #[inline(always)]
    fn is_number(self) -> bool {
        true
    }
}

macro_rules! floating {
    ($($type:ty => $int:ty),*) => {$(
        impl Ordered for $type {
            #[inline(always)]
            fn rank(self, largest: bool) -> i64 {
                // Both zeros have the same rank.
                let bits = (self + 0.0).to_bits() as $int;
                let key = bits ^ ((bits >> (<$int>::BITS - 1)) & <$int>::MAX);
                let rank = if largest { key } else { !key };
                if self.is_nan() { i64::MAX } else { rank as i64 }
            }
            #[inline(always)]
            fn is_number(self) -> bool {
                !self.is_nan()
            }
        }
    )*};
}

floating!(f32 => i32, f64 => i64);

/// Index of the largest, or smallest, element; the first of equal ones.
///
/// With `NAN`, NaNs are ignored.
#[derive(Debug)]
pub struct Arg<I, const NAN: bool> {
    largest: bool,
    element: PhantomData<I>,
}

/// Variant for nodes that have rank and index already, along a further axis.
#[derive(Debug)]
pub struct ArgOfNodes {
    step: i64,
}

impl<I, const NAN: bool> Arg<I, NAN> {
    /// The reduction.
    pub fn new(largest: bool) -> Self {
        Arg { largest, element: PhantomData }
    }
}

impl ArgOfNodes {
    /// Creates the reduction; each index of the axis adds `step` to the indices of the nodes.
    pub fn new(step: i64) -> Self {
        ArgOfNodes { step }
    }
}

const RANK: usize = 0;
const INDEX: usize = 1;
/// Number of elements whose best rank is found before its place.
const GROUP: usize = 512;
/// The initial state: no element is worse, and an equally bad element has a lower index.
const NOTHING: (i64, i64) = (i64::MIN, i64::MAX);

#[inline(always)]
fn better(rank: i64, index: i64, than: (i64, i64)) -> bool {
    rank > than.0 || (rank == than.0 && index < than.1)
}

#[inline(always)]
fn clear(state: &mut Rows<'_, i64>) {
    state.row(RANK).fill(NOTHING.0);
    state.row(INDEX).fill(NOTHING.1);
}

#[inline(always)]
fn push(state: &mut Rows<'_, i64>, node: &Node<'_, i64>) {
    if node.at == 0 {
        clear(state);
    }
    let (ranks, indices) = state.two(RANK, INDEX);
    for n in 0..ranks.len() {
        let (rank, index) = (node.plane(RANK)[n], node.plane(INDEX)[n]);
        if better(rank, index, (ranks[n], indices[n])) {
            (ranks[n], indices[n]) = (rank, index);
        }
    }
}

impl<I: Ordered, const NAN: bool> Arg<I, NAN> {
    #[inline(always)]
    fn rank(&self, x: I) -> i64 {
        if NAN && !x.is_number() {
            i64::MIN
        } else {
            x.rank(self.largest)
        }
    }

    /// Processes a dense axis in groups of elements.
    ///
    /// The best rank of a group is found first, and its place only if it beats all before.
    #[inline(always)]
    fn dense(&self, state: &mut Rows<'_, i64>, run: &Run<'_, I>) {
        let mut best = (state.row(RANK)[0], state.row(INDEX)[0]);
        let mut first = run.first as i64;
        for group in run.dense(0, run.rows).chunks(GROUP) {
            let mut ranks = [i64::MIN; LANES];
            let parts = group.chunks_exact(LANES);
            let rest = parts.remainder();
            for part in parts {
                for lane in 0..LANES {
                    ranks[lane] = ranks[lane].max(self.rank(part[lane]));
                }
            }
            let lanes = ranks.into_iter().fold(i64::MIN, i64::max);
            let rank = rest.iter().fold(lanes, |rank, x| rank.max(self.rank(*x)));
            if rank > best.0 || best == NOTHING {
                let place = group.iter().position(|x| self.rank(*x) == rank);
                best = (rank, first + place.unwrap_or(0) as i64);
            }
            first += group.len() as i64;
        }
        (state.row(RANK)[0], state.row(INDEX)[0]) = best;
    }
}

impl<I: Ordered, const NAN: bool> Fold for Arg<I, NAN> {
    type In = I;
    type Acc = i64;
    type Out = i64;
    const PLANES: usize = 2;

    fn slots(_levels: usize) -> usize {
        2
    }

    #[inline(always)]
    fn fold(&self, state: &mut Rows<'_, i64>, run: &Run<'_, I>, _levels: usize) {
        if run.first == run.base {
            clear(state);
        }
        if run.narrow() && run.len == 1 {
            return self.dense(state, run);
        }
        for k in 0..run.rows {
            let index = (run.first + k) as i64;
            let x = run.row(0, k);
            let (ranks, indices) = state.two(RANK, INDEX);
            let x = &x[..ranks.len()];
            let indices = &mut indices[..ranks.len()];
            for n in 0..ranks.len() {
                let rank = self.rank(x[n]);
                let wins = rank > ranks[n] || indices[n] == NOTHING.1;
                ranks[n] = if wins { rank } else { ranks[n] };
                indices[n] = if wins { index } else { indices[n] };
            }
        }
    }

    #[inline(always)]
    fn push(&self, state: &mut Rows<'_, i64>, node: &Node<'_, i64>, _levels: usize) {
        push(state, node);
    }

    #[inline(always)]
    fn root(&self, _state: &mut Rows<'_, i64>, _count: usize, _levels: usize) {}

    fn place(plane: usize, _levels: usize) -> usize {
        plane
    }

    fn seal(value: i64) -> i64 {
        value
    }
}

impl Fold for ArgOfNodes {
    type In = i64;
    type Acc = i64;
    type Out = i64;
    const PLANES: usize = 2;

    fn slots(_levels: usize) -> usize {
        2
    }

    #[inline(always)]
    fn fold(&self, state: &mut Rows<'_, i64>, run: &Run<'_, i64>, _levels: usize) {
        if run.first == run.base {
            clear(state);
        }
        for k in 0..run.rows {
            let shift = (run.first + k) as i64 * self.step;
            let (x, index) = (run.row(RANK, k), run.row(INDEX, k));
            let (ranks, indices) = state.two(RANK, INDEX);
            for n in 0..ranks.len() {
                if better(x[n], index[n] + shift, (ranks[n], indices[n])) {
                    (ranks[n], indices[n]) = (x[n], index[n] + shift);
                }
            }
        }
    }

    #[inline(always)]
    fn push(&self, state: &mut Rows<'_, i64>, node: &Node<'_, i64>, _levels: usize) {
        push(state, node);
    }

    #[inline(always)]
    fn root(&self, _state: &mut Rows<'_, i64>, _count: usize, _levels: usize) {}

    fn place(plane: usize, _levels: usize) -> usize {
        plane
    }

    fn seal(value: i64) -> i64 {
        value
    }
}
