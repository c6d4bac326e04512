//! Sums and products of floating-point numbers: lanes, leaves, and a tree of them.

use std::marker::PhantomData;

use super::fold::{Fold, Node, Rows, Run, LANES, LEAF, NARROW};
use super::ops::Op;

/// An operation whose result depends on the order.
#[derive(Debug, Default)]
pub struct Tree<O>(PhantomData<O>);

impl<O> Tree<O> {
    /// The reduction.
    pub fn new() -> Self {
        Tree(PhantomData)
    }
}

/// Computes `to[k] = to[k] + from[k]`.
#[inline(always)]
pub(super) fn add<O: Op>(to: &mut [O::Acc], from: &[O::Acc]) {
    for (a, b) in to.iter_mut().zip(from) {
        *a = O::merge(*a, *b);
    }
}

/// Computes `to[k] = to[k] + from[k]`, with elements.
#[inline(always)]
fn take<O: Op>(to: &mut [O::Acc], from: &[O::In]) {
    for (a, b) in to.iter_mut().zip(from) {
        *a = O::merge(*a, O::lift(*b));
    }
}

/// The same, with `N` elements at a time.
#[inline(always)]
fn groups<O: Op, const N: usize>(to: &mut [O::Acc], from: &[O::In]) {
    let mut sums = [O::IDENTITY; N];
    sums.copy_from_slice(&to[..N]);
    let groups = from.chunks_exact(N);
    let rest = groups.remainder();
    for group in groups {
        for (a, b) in sums.iter_mut().zip(group) {
            *a = O::merge(*a, O::lift(*b));
        }
    }
    to[..N].copy_from_slice(&sums);
    take::<O>(to, rest);
}

impl<O: Op> Tree<O> {
    /// Combines lanes `levels..levels + LANES` into the first of them.
    #[inline(always)]
    fn lanes(state: &mut Rows<'_, O::Acc>, levels: usize) {
        let mut step = 1;
        while step < LANES {
            for lane in (0..LANES).step_by(2 * step) {
                let (a, b) = state.two(levels + lane, levels + lane + step);
                add::<O>(a, b);
            }
            step *= 2;
        }
    }

    /// Carries the node in the first lane up to the first level without a node.
    #[inline(always)]
    fn carry(state: &mut Rows<'_, O::Acc>, (leaf, from): (usize, usize), levels: usize) {
        let mut level = from;
        while leaf >> level & 1 == 1 {
            let (low, node) = state.two(level, levels);
            for (a, b) in node.iter_mut().zip(low) {
                *a = O::merge(*b, *a);
            }
            level += 1;
        }
        let (to, node) = state.two(level, levels);
        to.copy_from_slice(node);
    }

    /// Processes short rows, `LANES` at a time as one long row.
    #[inline(always)]
    fn narrow(state: &mut Rows<'_, O::Acc>, run: &Run<'_, O::In>, levels: usize, len: usize) {
        let mut lanes = [O::IDENTITY; LANES * NARROW];
        let lanes = &mut lanes[..LANES * len];
        let mut done = 0;
        while done < run.rows {
            let at = run.first - run.base + done;
            let (leaf, inside) = (at / LEAF, at % LEAF);
            let rows = (LEAF - inside).min(run.rows - done);
            if inside == 0 {
                lanes.fill(O::IDENTITY);
            } else {
                for (lane, values) in lanes.chunks_exact_mut(len).enumerate() {
                    values.copy_from_slice(state.row(levels + lane));
                }
            }
            let x = run.dense(done, rows);
            let begin = inside % LANES * len;
            let head = if begin == 0 { 0 } else { (LANES * len - begin).min(x.len()) };
            take::<O>(&mut lanes[begin..], &x[..head]);
            match len {
                // With lengths that the compiler knows, values stay in registers.
                1 => groups::<O, LANES>(lanes, &x[head..]),
                2 => groups::<O, { 2 * LANES }>(lanes, &x[head..]),
                3 => groups::<O, { 3 * LANES }>(lanes, &x[head..]),
                4 => groups::<O, { 4 * LANES }>(lanes, &x[head..]),
                _ => x[head..].chunks(LANES * len).for_each(|group| take::<O>(lanes, group)),
            }
            done += rows;
            if inside + rows == LEAF {
                let mut step = 1;
                while step < LANES {
                    for lane in (0..LANES).step_by(2 * step) {
                        let (low, high) = lanes.split_at_mut((lane + step) * len);
                        add::<O>(&mut low[lane * len..][..len], &high[..len]);
                    }
                    step *= 2;
                }
                state.row(levels).copy_from_slice(&lanes[..len]);
                Self::carry(state, (leaf, 0), levels);
            } else {
                for (lane, values) in lanes.chunks_exact(len).enumerate() {
                    state.row(levels + lane).copy_from_slice(values);
                }
            }
        }
    }

    #[inline(always)]
    fn wide(state: &mut Rows<'_, O::Acc>, run: &Run<'_, O::In>, levels: usize) {
        let mut done = 0;
        while done < run.rows {
            let at = run.first - run.base + done;
            let (leaf, inside) = (at / LEAF, at % LEAF);
            let rows = (LEAF - inside).min(run.rows - done);
            if inside == 0 {
                for lane in 0..LANES {
                    state.row(levels + lane).fill(O::IDENTITY);
                }
            }
            let mut k = 0;
            // Several rows of a lane at a time: its sums are loaded and stored only once.
            while k + 4 * LANES <= rows {
                for next in k..k + LANES {
                    let [a, b, c, d] = [0, 1, 2, 3].map(|n| run.row(0, done + next + n * LANES));
                    let lane = state.row(levels + (inside + next) % LANES);
                    let len = lane.len();
                    let (a, b, c, d) = (&a[..len], &b[..len], &c[..len], &d[..len]);
                    for n in 0..len {
                        let mut sum = O::merge(lane[n], O::lift(a[n]));
                        sum = O::merge(sum, O::lift(b[n]));
                        sum = O::merge(sum, O::lift(c[n]));
                        lane[n] = O::merge(sum, O::lift(d[n]));
                    }
                }
                k += 4 * LANES;
            }
            for k in k..rows {
                take::<O>(state.row(levels + (inside + k) % LANES), run.row(0, done + k));
            }
            done += rows;
            if inside + rows == LEAF {
                Self::lanes(state, levels);
                Self::carry(state, (leaf, 0), levels);
            }
        }
    }
}

impl<O: Op> Fold for Tree<O> {
    type In = O::In;
    type Acc = O::Acc;
    type Out = O::Out;
    const PLANES: usize = 1;

    fn slots(levels: usize) -> usize {
        levels + LANES
    }

    #[inline(always)]
    fn fold(&self, state: &mut Rows<'_, O::Acc>, run: &Run<'_, O::In>, levels: usize) {
        match (run.narrow(), run.len) {
            (true, 1) => Self::narrow(state, run, levels, 1),
            (true, len) => Self::narrow(state, run, levels, len),
            (false, _) => Self::wide(state, run, levels),
        }
    }

    #[inline(always)]
    fn push(&self, state: &mut Rows<'_, O::Acc>, node: &Node<'_, O::Acc>, levels: usize) {
        state.row(levels).copy_from_slice(node.plane(0));
        Self::carry(state, (node.at / LEAF, node.level), levels);
    }

    #[inline(always)]
    fn root(&self, state: &mut Rows<'_, O::Acc>, count: usize, levels: usize) {
        let (leaves, rest) = (count / LEAF, count % LEAF);
        // Missing elements of an unfinished leaf change nothing: x + -0.0 is x.
        if rest == 0 {
            state.row(levels).fill(O::IDENTITY);
        } else {
            Self::lanes(state, levels);
        }
        for level in (0..levels).filter(|level| leaves >> level & 1 == 1) {
            let (low, node) = state.two(level, levels);
            for (a, b) in node.iter_mut().zip(low) {
                *a = O::merge(*b, *a);
            }
        }
    }

    fn place(_plane: usize, levels: usize) -> usize {
        levels
    }

    #[inline(always)]
    fn seal(value: O::Acc) -> O::Out {
        O::seal(value)
    }
}
