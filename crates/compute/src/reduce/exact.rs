//! Reductions whose result does not depend on the order: integers, extremes, any and all.

use std::marker::PhantomData;

use super::fold::{Fold, Node, Rows, Run};
use super::ops::Op;
use super::tree::add;

/// Number of values that are processed as one row if rows are short.
const GROUP: usize = 128;

/// An operation whose result does not depend on the order.
#[derive(Debug, Default)]
pub struct Exact<O>(PhantomData<O>);

impl<O> Exact<O> {
    /// The reduction.
    pub fn new() -> Self {
        Exact(PhantomData)
    }
}

impl<O: Op> Exact<O> {
    /// Processes short rows, several at a time as one row of `size` values.
    #[inline(always)]
    fn narrow(state: &mut Rows<'_, O::Acc>, run: &Run<'_, O::In>, size: usize) {
        let mut sums = [O::IDENTITY; GROUP];
        let sums = &mut sums[..size];
        let groups = run.dense(0, run.rows).chunks_exact(size);
        let rest = groups.remainder();
        for group in groups {
            for (a, b) in sums.iter_mut().zip(group) {
                *a = O::merge(*a, O::lift(*b));
            }
        }
        for (a, b) in sums.iter_mut().zip(rest) {
            *a = O::merge(*a, O::lift(*b));
        }
        let to = state.row(0);
        for row in sums.chunks_exact(to.len()) {
            add::<O>(to, row);
        }
    }

    #[inline(always)]
    fn wide(state: &mut Rows<'_, O::Acc>, run: &Run<'_, O::In>) {
        let to = state.row(0);
        let len = to.len();
        let mut k = 0;
        while k + 4 <= run.rows {
            let [a, b, c, d] = [0, 1, 2, 3].map(|n| &run.row(0, k + n)[..len]);
            for n in 0..len {
                let low = O::merge(O::lift(a[n]), O::lift(b[n]));
                let high = O::merge(O::lift(c[n]), O::lift(d[n]));
                to[n] = O::merge(to[n], O::merge(low, high));
            }
            k += 4;
        }
        for k in k..run.rows {
            for (a, b) in to.iter_mut().zip(run.row(0, k)) {
                *a = O::merge(*a, O::lift(*b));
            }
        }
    }
}

impl<O: Op> Fold for Exact<O> {
    type In = O::In;
    type Acc = O::Acc;
    type Out = O::Out;
    const PLANES: usize = 1;

    fn slots(_levels: usize) -> usize {
        1
    }

    #[inline(always)]
    fn fold(&self, state: &mut Rows<'_, O::Acc>, run: &Run<'_, O::In>, _levels: usize) {
        if run.first == run.base {
            state.row(0).fill(O::IDENTITY);
        }
        match (run.narrow(), run.len) {
            // With a length that the compiler knows, values stay in registers.
            (true, 1) => Self::narrow(state, run, GROUP / 2),
            (true, len) => Self::narrow(state, run, GROUP / len * len),
            (false, _) => Self::wide(state, run),
        }
    }

    #[inline(always)]
    fn push(&self, state: &mut Rows<'_, O::Acc>, node: &Node<'_, O::Acc>, _levels: usize) {
        match node.at {
            0 => state.row(0).copy_from_slice(node.plane(0)),
            _ => add::<O>(state.row(0), node.plane(0)),
        }
    }

    #[inline(always)]
    fn root(&self, state: &mut Rows<'_, O::Acc>, count: usize, _levels: usize) {
        if count == 0 {
            state.row(0).fill(O::IDENTITY);
        }
    }

    fn place(_plane: usize, _levels: usize) -> usize {
        0
    }

    #[inline(always)]
    fn seal(value: O::Acc) -> O::Out {
        O::seal(value)
    }
}
