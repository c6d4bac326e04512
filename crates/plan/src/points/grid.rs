//! Numbers of chunks along indexed axes, consecutive within each shard.

use alloc::vec::Vec;

use crate::error::PlanError;
use crate::layout::Chunked;

/// The grid of chunks along the indexed axes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Grid {
    /// The indexed axes.
    axes: Vec<usize>,
    /// Number of chunks of a shard along each of them; 1 without shards.
    group: Vec<i64>,
    /// Increments of a chunk's number per step to the next shard, and within a shard.
    steps: Vec<(i64, i64)>,
    /// One more than the largest number of a chunk.
    pub(crate) cells: i64,
}

impl Grid {
    /// The grid of a layout along some axes.
    ///
    /// `shard` is the number of chunks in a shard along each axis of the array.
    pub fn new(layout: &Chunked, axes: &[usize], shard: Option<&[i64]>) -> Result<Grid, PlanError> {
        let all = layout.grid();
        let group: Vec<i64> =
            axes.iter().map(|axis| shard.map_or(1, |shard| shard[*axis].max(1))).collect();
        let mut steps = alloc::vec![(0, 0); axes.len()];
        let mut inner = 1_i64;
        let more = |n: i64, times: i64| {
            n.checked_mul(times).ok_or(PlanError::TooLarge("the number of chunks"))
        };
        for k in (0..axes.len()).rev() {
            steps[k].1 = inner;
            inner = more(inner, group[k])?;
        }
        let mut cells = inner;
        for (k, axis) in axes.iter().enumerate().rev() {
            steps[k].0 = cells;
            cells = more(cells, ((all[*axis] + group[k] - 1) / group[k]).max(1))?;
        }
        Ok(Grid { axes: axes.to_vec(), group, steps, cells })
    }

    /// The indexed axes.
    pub fn axes(&self) -> &[usize] {
        &self.axes
    }

    /// Contribution of chunk `chunk` along indexed axis number `k` to the number of a chunk.
    pub(crate) fn part(&self, k: usize, chunk: i64) -> i64 {
        let (shard, inside) = self.steps[k];
        match self.group[k] {
            1 => chunk * shard,
            group => chunk / group * shard + chunk % group * inside,
        }
    }

    /// The number of a chunk, given its coordinates along all axes of the array.
    pub fn number(&self, chunk: &[i64]) -> i64 {
        self.axes.iter().enumerate().map(|(k, axis)| self.part(k, chunk[*axis])).sum()
    }

    /// The coordinates of a chunk along the indexed axes.
    pub fn coordinates(&self, number: i64) -> Vec<i64> {
        let (mut shards, mut inside) = (number, number % self.group.iter().product::<i64>());
        let along = self.steps.iter().zip(&self.group).map(|((shard, chunk), group)| {
            let (outer, inner) = (shards / shard, inside / chunk);
            (shards, inside) = (shards % shard, inside % chunk);
            outer * group + inner
        });
        along.collect()
    }

    /// The number of the shard of a chunk, or of the chunk itself without shards.
    pub fn shard(&self, number: i64) -> i64 {
        number / self.group.iter().product::<i64>().max(1)
    }
}

/// Division of small numbers, ten times as fast as a 64-bit division.
#[derive(Clone, Copy)]
pub(super) struct Divide {
    by: i64,
    small: u32,
}

impl Divide {
    pub fn by(by: i64) -> Divide {
        Divide { by, small: u32::try_from(by).unwrap_or(0) }
    }

    pub fn of(self, i: i64) -> (i64, i64) {
        match (u32::try_from(i), self.small) {
            (Ok(i), small) if small > 0 => (i64::from(i / small), i64::from(i % small)),
            _ => (i / self.by, i % self.by),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_of_a_shard_follow_each_other() {
        let strides = alloc::vec![4, 4, 1];
        let layout =
            Chunked::new(alloc::vec![70, 9, 50], 1, alloc::vec![10, 1, 4], strides, true, 100);
        let layout = layout.unwrap();
        for (axes, shard) in [
            (alloc::vec![0, 2], Some(&[2_i64, 3, 4][..])),
            (alloc::vec![0, 1, 2], None),
            (alloc::vec![1], Some(&[1, 2, 1])),
        ] {
            let grid = Grid::new(&layout, &axes, shard).unwrap();
            let all = layout.grid();
            let mut seen = Vec::new();
            let mut chunk = alloc::vec![0; 3];
            for a in 0..all[0] {
                for b in 0..all[1] {
                    for c in 0..all[2] {
                        chunk.copy_from_slice(&[a, b, c]);
                        let number = grid.number(&chunk);
                        let along: Vec<i64> = axes.iter().map(|axis| chunk[*axis]).collect();
                        assert_eq!(along, grid.coordinates(number));
                        assert!(number < grid.cells);
                        let of = |d: usize| shard.map_or(chunk[d], |shard| chunk[d] / shard[d]);
                        let shard: Vec<i64> = axes.iter().map(|axis| of(*axis)).collect();
                        seen.push((grid.shard(number), shard));
                    }
                }
            }
            seen.sort();
            seen.dedup();
            // Each shard has one number, and each number belongs to one shard.
            let mut numbers: Vec<i64> = seen.iter().map(|(number, _)| *number).collect();
            numbers.dedup();
            assert_eq!(seen.len(), numbers.len());
        }
    }
}
