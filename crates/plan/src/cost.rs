//! Exact cost of a plan, without running it or listing its rounds.
//!
//! Problem: 10^9 rounds cannot be added up one by one. Approach: the blocks of each loop have at
//! most three lengths, so boxes have few shapes, each counted once and multiplied. Only the cost of
//! direct I/O depends on where an extent begins, and only modulo the block: the histogram of these
//! residues over all extents is a cyclic convolution of one arithmetic progression per loop,
//! `O(axes * block)` steps. Tested invariant: the cost equals the sum over all rounds.

use alloc::vec;
use alloc::vec::Vec;

use crate::emit::{self, Means};
use crate::nest::{Axis, Nest};
use crate::piece::{Fetch, Piece, Way};
use crate::plan::{Channel, Cost};

/// Adds the cost of all rounds of a piece.
pub(crate) fn piece_cost(piece: &Piece, means: Means, cost: &mut Cost) {
    let nest = &piece.nest;
    let classes: Vec<_> = (0..nest.axes.len()).map(|d| piece.cut.classes(nest, d)).collect();
    let mut pick = vec![0; classes.len()];
    loop {
        let mut b = nest.clone();
        let mut times = 1;
        let mut starts = Vec::with_capacity(pick.len());
        for (d, &p) in pick.iter().enumerate() {
            let class = classes[d][p];
            times *= class.repeat;
            b.base += class.start * b.axes[d].file;
            b.axes[d].count = class.len;
            if class.repeat > 1 {
                starts.push(Axis {
                    count: class.repeat,
                    file: class.len * b.axes[d].file,
                    user: 0,
                });
            }
        }
        match piece.fetch {
            Some(Fetch::Pages(how)) => emit::pages_cost(&b, how, means, times, cost),
            Some(Fetch::Edges(edges)) => emit::edges_cost(&b, edges, times, cost),
            None => {}
        }
        boxes_cost(&b, piece.way, means, times, starts, cost);
        let Some(d) = (0..pick.len()).rev().find(|&d| pick[d] + 1 < classes[d].len()) else {
            return;
        };
        pick[d] += 1;
        pick[d + 1..].fill(0);
    }
}

/// Adds the cost of `times` boxes of equal shape, which begin along the loops `starts`.
fn boxes_cost(b: &Nest, way: Way, means: Means, times: i64, starts: Vec<Axis>, cost: &mut Cost) {
    match way {
        Way::Straight { paged } => emit::straight_cost(b, paged, means, times, cost),
        Way::Mapped => cost.mapped_bytes = emit::add(cost.mapped_bytes, times, b.bytes()),
        Way::Gather(how) | Way::Sides(how) => {
            let len = b.extent(how.level);
            if how.channel != Channel::Direct {
                let extents = times.saturating_mul(b.steps(how.level));
                emit::gather_cost(len, how, means, 0, extents, cost);
                return;
            }
            let mut loops = starts;
            loops.extend_from_slice(&b.axes[..how.level]);
            for (residue, n) in residues(b.base, &loops, means.unit(how)) {
                match way {
                    Way::Sides(_) => emit::sides_cost(len, means, residue, n, cost),
                    _ => emit::gather_cost(len, how, means, residue, n, cost),
                }
            }
        }
    }
}

/// Number of times that `base + sum(i[d] * file[d])` has each value modulo `block`, a power of two.
fn residues(base: i64, loops: &[Axis], block: i64) -> Vec<(i64, i64)> {
    let number = loops.iter().fold(1_i64, |n, a| n.saturating_mul(a.count));
    if number <= 64 {
        return (0..number).map(|k| (nth(base, loops, k).rem_euclid(block), 1)).collect();
    }
    let unit = loops.iter().fold(block, |g, a| gcd(g, a.file.rem_euclid(block)));
    let cycle = block / unit;
    let mut histogram = vec![0_i64; cycle as usize];
    histogram[0] = 1;
    for a in loops.iter().filter(|a| a.count > 1) {
        histogram = convolve(&histogram, a.count, a.file.rem_euclid(block) / unit);
    }
    let residue = |k: usize| (base + k as i64 * unit).rem_euclid(block);
    histogram.iter().enumerate().filter(|(_, n)| **n > 0).map(|(k, n)| (residue(k), *n)).collect()
}

/// Address number `k`.
fn nth(base: i64, loops: &[Axis], mut k: i64) -> i64 {
    loops.iter().fold(base, |at, a| {
        let step = k % a.count;
        k /= a.count;
        at + step * a.file
    })
}

/// The histogram of `x + i * step` for `i < count`, modulo its length.
fn convolve(histogram: &[i64], count: i64, step: i64) -> Vec<i64> {
    let cycle = histogram.len() as i64;
    let orbits = gcd(cycle, step);
    let period = cycle / orbits;
    let (full, rest) = (count / period, count % period);
    let at = |k: i64| k.wrapping_mul(step) & (cycle - 1); // the cycle is a power of two
    let mut result = vec![0; histogram.len()];
    for orbit in 0..orbits {
        let value = |k: i64| histogram[((orbit + at(k)) % cycle) as usize];
        let sum: i64 = (0..period).map(value).sum();
        // A sliding window of the last `rest` members of the orbit.
        let mut window: i64 = (1 - rest..=0).map(value).sum();
        for k in 0..period {
            result[((orbit + at(k)) % cycle) as usize] = full * sum + window;
            window += value(k + 1) - value(k + 1 - rest);
        }
    }
    result
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 {
        a
    } else {
        gcd(b, a % b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn residues_are_those_of_all_extents() {
        let axis = |count, file| Axis { count, file, user: 0 };
        let cases: [&[Axis]; 5] = [
            &[],
            &[axis(7, 24)],
            &[axis(1000, 24)],
            &[axis(50, 4096), axis(33, 40)],
            &[axis(13, 100_000), axis(9, 1000), axis(21, 12)],
        ];
        for loops in cases {
            for block in [1, 64, 512] {
                let mut expected = vec![0; block as usize];
                let total: i64 = loops.iter().map(|a| a.count).product();
                for k in 0..total {
                    expected[(nth(131, loops, k) % block) as usize] += 1;
                }
                let mut actual = vec![0; block as usize];
                residues(131, loops, block).iter().for_each(|(r, n)| actual[*r as usize] += *n);
                assert_eq!(expected, actual);
            }
        }
    }
}
