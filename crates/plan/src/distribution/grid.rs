//! Processor grids: ranks with coordinates, the last axis fastest.

use alloc::format;
use alloc::string::String;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use crate::error::PlanError;

/// Ranks arranged in a box, in row-major order: the last coordinate runs fastest.
///
/// A grid without axes has one rank.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Grid {
    shape: Vec<i64>,
}

fn bad<T>(why: String) -> Result<T, PlanError> {
    Err(PlanError::BadGrid(why))
}

/// MPI counts ranks in 32 bits.
const MOST_RANKS: i64 = i32::MAX as i64;
/// Maximum number of axes, more than any array has.
const MOST_AXES: usize = 64;

impl Grid {
    /// Creates a grid of this shape: every axis must have at least one rank.
    pub fn new(shape: Vec<i64>) -> Result<Grid, PlanError> {
        if let Some((axis, n)) = shape.iter().enumerate().find(|(_, n)| **n < 1) {
            return bad(format!("axis {axis} has {n} ranks; give at least 1 per axis"));
        }
        if shape.len() > MOST_AXES {
            return bad(format!("the grid has {} axes; use at most {MOST_AXES}", shape.len()));
        }
        let size = shape.iter().try_fold(1_i64, |n, p| n.checked_mul(*p));
        match size {
            Some(size) if size <= MOST_RANKS => Ok(Grid { shape }),
            _ => bad(format!("shape {shape:?} has more than {MOST_RANKS} ranks; use fewer")),
        }
    }

    /// The most balanced grid of `size` ranks in `ndim` axes, the longest axis first.
    ///
    /// Among all such shapes, the first axis is as short as possible, then the second, and so on,
    /// as specified for `MPI_Dims_create`.
    pub fn balanced(size: i64, ndim: usize) -> Result<Grid, PlanError> {
        if !(1..=MOST_RANKS).contains(&size) {
            return bad(format!("the grid has {size} ranks; give a size of 1 to {MOST_RANKS}"));
        }
        if ndim > MOST_AXES || (ndim == 0 && size > 1) {
            return bad(format!(
                "{size} ranks cannot be arranged in {ndim} axes; give 1 axis or more"
            ));
        }
        let mut primes = Vec::new();
        let mut rest = size;
        let mut p = 2;
        while p * p <= rest {
            while rest % p == 0 {
                primes.push(p);
                rest /= p;
            }
            p += 1;
        }
        if rest > 1 {
            primes.push(rest);
        }
        let mut divisors = vec![1];
        for p in &primes {
            let more: Vec<i64> = divisors.iter().map(|d| d * p).collect();
            divisors.extend(more);
            divisors.sort_unstable();
            divisors.dedup();
        }
        let mut shape = Vec::with_capacity(ndim);
        if !fill(size, ndim, size, (&divisors, &primes), &mut shape) {
            return bad(format!("{size} ranks cannot be arranged in {ndim} axes"));
        }
        Grid::new(shape)
    }

    /// Ranks along each axis.
    pub fn shape(&self) -> &[i64] {
        &self.shape
    }

    /// Number of axes.
    pub fn ndim(&self) -> usize {
        self.shape.len()
    }

    /// Number of ranks.
    pub fn size(&self) -> i64 {
        self.shape.iter().product()
    }

    /// Coordinates of a rank.
    pub fn coordinates(&self, rank: i64) -> Result<Vec<i64>, PlanError> {
        if !(0..self.size()).contains(&rank) {
            let size = self.size();
            return bad(format!("rank {rank} is not in the grid; it has ranks 0 to {}", size - 1));
        }
        let mut coordinates = vec![0; self.shape.len()];
        let mut rest = rank;
        for (at, n) in coordinates.iter_mut().zip(&self.shape).rev() {
            *at = rest % n;
            rest /= n;
        }
        Ok(coordinates)
    }

    /// The rank at these coordinates.
    pub fn rank(&self, coordinates: &[i64]) -> Result<i64, PlanError> {
        let inside = coordinates.iter().zip(&self.shape).all(|(at, n)| (0..*n).contains(at));
        if coordinates.len() != self.shape.len() || !inside {
            return bad(format!("coordinates {coordinates:?} are not in a grid of {self}"));
        }
        Ok(self.shape.iter().zip(coordinates).fold(0, |rank, (n, at)| rank * n + at))
    }
}

/// Appends `ndim` factors of `size` in descending order, none larger than `most`.
///
/// The first factor is the smallest possible, then the second, and so on.
fn fill(
    size: i64,
    ndim: usize,
    most: i64,
    (divisors, primes): (&[i64], &[i64]),
    shape: &mut Vec<i64>,
) -> bool {
    if ndim == 0 {
        return size == 1;
    }
    // No factor can be smaller than the largest prime in it. Without this check, there would be
    // many futile attempts.
    let least = primes.iter().rev().copied().find(|p| size % p == 0).unwrap_or(1);
    for d in divisors.iter().filter(|d| (least..=most).contains(*d) && size % **d == 0) {
        let room = (0..ndim).try_fold(1_i64, |n, _| n.checked_mul(*d)).unwrap_or(i64::MAX);
        if room < size {
            continue;
        }
        shape.push(*d);
        if fill(size / d, ndim - 1, *d, (divisors, primes), shape) {
            return true;
        }
        shape.pop();
    }
    false
}

impl core::fmt::Display for Grid {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        if self.shape.is_empty() {
            return write!(f, "1");
        }
        let words: Vec<String> = self.shape.iter().map(i64::to_string).collect();
        write!(f, "{}", words.join(" x "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coordinates_and_ranks_are_inverse() {
        let grid = Grid::new(vec![2, 3, 4]).unwrap();
        assert_eq!((24, 3), (grid.size(), grid.ndim()));
        assert_eq!(vec![1, 0, 2], grid.coordinates(14).unwrap());
        for rank in 0..24 {
            assert_eq!(Ok(rank), grid.rank(&grid.coordinates(rank).unwrap()));
        }
        assert!(grid.coordinates(24).is_err() && grid.coordinates(-1).is_err());
        assert!(grid.rank(&[0, 3, 0]).is_err() && grid.rank(&[0, 0]).is_err());
        let point = Grid::new(vec![]).unwrap();
        assert_eq!((1, Ok(0)), (point.size(), point.rank(&[])));
        assert_eq!("1", point.to_string());
    }

    #[test]
    fn impossible_grids_are_refused() {
        assert_eq!("bad-grid", Grid::new(vec![2, 0]).unwrap_err().code());
        assert!(Grid::new(vec![1 << 20, 1 << 20]).is_err());
        assert!(Grid::new(vec![i64::MAX, i64::MAX]).is_err());
        assert!(Grid::new(vec![1; 65]).is_err());
        assert!(Grid::balanced(0, 1).is_err() && Grid::balanced(2, 0).is_err());
    }

    #[test]
    fn balanced_grids_are_those_of_mpi() {
        let shape = |size, ndim| Grid::balanced(size, ndim).unwrap().shape().to_vec();
        assert_eq!(vec![3, 2], shape(6, 2));
        assert_eq!(vec![7, 1], shape(7, 2));
        assert_eq!(vec![4, 3, 2], shape(24, 3));
        assert_eq!(vec![4, 2, 2], shape(16, 3));
        assert_eq!(vec![320, 320], shape(102_400, 2));
        assert_eq!(vec![1, 1, 1], shape(1, 3));
        assert_eq!(Vec::<i64>::new(), shape(1, 0));
        assert_eq!(vec![i32::MAX as i64, 1], shape(i32::MAX as i64, 2));
        assert_eq!(64, Grid::balanced(2_095_133_040, 64).unwrap().ndim()); // 1600 divisors
    }

    #[test]
    fn balanced_grids_are_the_least_of_all() {
        for size in 1..200 {
            for ndim in 1..4_usize {
                let mut all: Vec<Vec<i64>> = vec![vec![]];
                for _ in 0..ndim {
                    let longer = |s: &Vec<i64>| {
                        let s = s.clone();
                        (1..=size).map(move |d| [s.clone(), vec![d]].concat())
                    };
                    all = all.iter().flat_map(longer).collect();
                    all.retain(|s| size % s.iter().product::<i64>() == 0);
                    all.retain(|s| s.windows(2).all(|w| w[0] >= w[1]));
                }
                all.retain(|s| s.iter().product::<i64>() == size);
                let expected = all.into_iter().min().unwrap();
                assert_eq!(expected, Grid::balanced(size, ndim).unwrap().shape());
            }
        }
    }
}
