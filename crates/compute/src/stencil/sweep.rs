//! The geometry of a pass over an array that makes many time steps of a stencil.
//!
//! Problem: single steps read and write the array once each. A pass of `levels` steps reads it once
//! and writes it once. But the rows of all levels in progress do not fit a cache, and rows of one
//! level that are recomputed, or taken from the wrong level, change the result.
//!
//! Approach: hyper-rows of the slowest axis come in order. Level `t` lags `t * radius` rows behind
//! level 0, so that all rows it needs are available; only the last `2 * radius` hyper-rows of each
//! level are stored. The second axis is cut into tiles that lag in the same way (parallelograms),
//! so that a tile goes through all levels within the cache; the last `2 * radius` columns of each
//! level pass from tile to tile. Positions count the rows of level 0: in the rows `[p, q)` of
//! positions, level `t` has the rows `[p - t r, q - t r)`.
//!
//! A ring (`Wrap` along the slowest axis) has no first row: level `t` begins with row `t r` and
//! wraps around to it. For this purpose its first `2 r` hyper-rows are stored until the end. A ring
//! therefore computes and reads nothing twice, either.
//!
//! Lanes: rows are cut into bands. A band needs only the stored rows of the previous band, cell by
//! cell (a tile, a level), in the same order: lanes take bands and follow each other, one cell
//! apart.
//!
//! Invariants: each element of each level is computed once, by the same sum. The cuts of rows and
//! columns and the number of lanes do not change any bit.
//!
//! References: Wonnacott, "Using time skewing to eliminate idle time due to memory bandwidth and network
//! limitations", IPDPS 2000; Wolf, Lam, "A data locality optimizing algorithm", PLDI 1991 (skewing, then
//! tiling).

use std::fmt;
use std::sync::atomic::AtomicUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::boundary::Boundary;
use super::sums::{Real, Taps};

/// A neighbour with its weight.
#[derive(Debug, Clone)]
pub struct Tap<T> {
    /// Its distance along each axis.
    pub offset: Vec<i64>,
    /// Its weight: real and imaginary part.
    pub weight: (T, T),
}

/// Parameters of a pass.
#[derive(Debug, Clone)]
pub struct Problem<T> {
    /// Lengths of the array's axes, the slowest axis first.
    pub shape: Vec<usize>,
    /// Numbers in an element: 1, or 2 for complex arrays.
    pub width: usize,
    /// Rule for elements beyond the ends of each axis.
    pub boundary: Vec<Boundary>,
    /// The number of `Boundary::Constant`: real and imaginary part.
    pub fill: (T, T),
    /// The stencil, in the order in which products are added.
    pub taps: Vec<Tap<T>>,
    /// Time steps of the pass.
    pub levels: usize,
    /// Hyper-rows of a band.
    pub rows: usize,
    /// Columns of a tile; None if rows are not cut.
    pub columns: Option<usize>,
    /// Columns in which the largest change of each step is measured; None for no measurement.
    ///
    /// The columns apply only if there is a second axis.
    pub measured: Option<(i64, i64)>,
}

/// Error: an invalid pass, or blocks that do not match it.
#[derive(Debug)]
pub struct Refused(pub &'static str);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// The geometry of a pass.
#[derive(Debug)]
pub struct Sweep<T> {
    pub(super) shape: Vec<i64>,
    pub(super) width: usize,
    pub(super) radius: Vec<i64>,
    pub(super) boundary: Vec<Boundary>,
    pub(super) fill: [T; 2],
    pub(super) levels: usize,
    pub(super) rows: i64,
    /// Columns of a tile; None if rows are not cut.
    pub(super) columns: Option<i64>,
    pub(super) measured: Option<(i64, i64)>,
    /// Distances of elements along each axis in numbers, in the array and in a tile.
    pub(super) strides: Vec<usize>,
    pub(super) local: Vec<usize>,
    /// Lengths of a tile's axes, including all neighbours.
    pub(super) extents: Vec<i64>,
    pub(super) taps: Taps<T>,
}

/// Data shared by lanes.
pub(super) struct Shared<'a, T> {
    pub new: &'a [T],
    /// Position of the first row of `new`, and one past the last row of the bands.
    pub from: i64,
    pub to: i64,
    /// Stored rows of each cell, tile by tile and level by level.
    pub cells: Vec<Mutex<&'a mut [T]>>,
    /// Rows of the last level, for each band.
    pub out: Vec<Mutex<&'a mut [T]>>,
    /// Number of cells that each band has finished.
    pub done: Vec<AtomicUsize>,
    pub next: AtomicUsize,
    pub changes: Mutex<&'a mut [f64]>,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T: Real> Sweep<T> {
    /// Creates the geometry of a pass; fails for invalid parameters.
    pub fn new(problem: Problem<T>) -> Result<Sweep<T>, Refused> {
        let Problem { shape, width, boundary, fill, taps, levels, rows, columns, measured } =
            problem;
        let axes = shape.len();
        let fits = axes > 0
            && boundary.len() == axes
            && taps.iter().all(|tap| tap.offset.len() == axes)
            && matches!(width, 1 | 2)
            && shape.iter().all(|n| *n > 0);
        if !fits || levels == 0 || rows == 0 || columns == Some(0) {
            return Err(Refused("the axes of a stencil do not match its array, or there are none"));
        }
        let radius: Vec<i64> = (0..axes)
            .map(|axis| taps.iter().map(|tap| tap.offset[axis].abs()).max().unwrap_or(0))
            .collect();
        let columns = columns.filter(|_| axes > 1 && boundary[1] != Boundary::Wrap);
        let columns = columns.map(|n| n as i64);
        let shape: Vec<i64> = shape.into_iter().map(|n| n as i64).collect();
        let extents: Vec<i64> = (0..axes)
            .map(|axis| match axis {
                0 => rows as i64 + 2 * radius[0],
                1 => columns.unwrap_or(shape[1]) + 2 * radius[1],
                _ => shape[axis] + 2 * radius[axis],
            })
            .collect();
        let strides = packed(&shape, width)?;
        let local = packed(&extents, width)?;
        let flat = |tap: &Tap<T>| {
            let steps = tap.offset.iter().zip(&local);
            steps.map(|(offset, stride)| *offset as isize * *stride as isize).sum()
        };
        let imaginary: Vec<T> = taps.iter().map(|tap| tap.weight.1).collect();
        let complex = imaginary.iter().any(|part| *part != T::default());
        if complex && width != 2 {
            return Err(Refused("real elements cannot have complex weights"));
        }
        let taps = Taps {
            offsets: taps.iter().map(flat).collect(),
            weights: taps.iter().map(|tap| tap.weight.0).collect(),
            imaginary: complex.then_some(imaginary),
        };
        Ok(Sweep {
            shape,
            width,
            radius,
            boundary,
            fill: [fill.0, fill.1],
            levels,
            rows: rows as i64,
            columns,
            measured,
            strides,
            local,
            extents,
            taps,
        })
    }

    /// Number of positions of the whole pass: rows of the array, and the lag of the last level.
    pub fn positions(&self) -> i64 {
        let rounds = if self.is_ring() { 2 } else { 1 };
        self.shape[0] + rounds * self.levels as i64 * self.radius[0]
    }

    pub(super) fn is_ring(&self) -> bool {
        self.boundary[0] == Boundary::Wrap && self.radius[0] > 0
    }

    /// First row of a level, and one past its last; in a ring, rows continue past its end.
    pub(super) fn domain(&self, level: usize) -> (i64, i64) {
        let first = if self.is_ring() { level as i64 * self.radius[0] } else { 0 };
        (first, first + self.shape[0])
    }

    /// One past the last row of a level that positions below `position` complete.
    pub(super) fn reached(&self, level: usize, position: i64) -> i64 {
        let (first, last) = self.domain(level);
        (position - level as i64 * self.radius[0]).clamp(first, last)
    }

    /// Rows of the last level that the positions `[from, to)` complete.
    ///
    /// In a ring they continue past its end.
    pub fn ready(&self, from: i64, to: i64) -> (i64, i64) {
        (self.reached(self.levels, from), self.reached(self.levels, to))
    }

    /// Number of tiles along the second axis.
    pub(super) fn tiles(&self) -> i64 {
        self.columns.map_or(1, |columns| {
            let lag = self.levels as i64 * self.radius[1];
            (self.shape[1] + lag + columns - 1) / columns
        })
    }

    /// Columns of a level in a tile.
    pub(super) fn span(&self, tile: i64, level: usize) -> (i64, i64) {
        let Some(columns) = self.columns else {
            return (0, self.shape.get(1).copied().unwrap_or(1));
        };
        let first = tile * columns - level as i64 * self.radius[1];
        (first.clamp(0, self.shape[1]), (first + columns).clamp(0, self.shape[1]))
    }

    /// Numbers in a stored hyper-row of a cell.
    pub(super) fn kept_row(&self, tile: i64, level: usize) -> usize {
        let (first, last) = self.span(tile, level);
        match self.columns {
            Some(_) => (last - first) as usize * self.local[1],
            None => self.local[0],
        }
    }

    /// Number of stored hyper-rows of a cell: the last ones, and for a ring also the first ones.
    pub(super) fn kept_rows(&self) -> usize {
        let both = if self.is_ring() { 4 } else { 2 };
        both * self.radius[0] as usize
    }

    /// Numbers that are stored from call to call.
    pub fn kept(&self) -> usize {
        let tiles = 0..self.tiles();
        let cells = tiles.flat_map(|tile| (0..self.levels).map(move |level| (tile, level)));
        let row: usize = cells.map(|(tile, level)| self.kept_row(tile, level)).sum();
        row * self.kept_rows()
    }

    /// Numbers of a lane's scratch memory.
    pub fn scratch(&self) -> usize {
        let edges = match self.columns {
            Some(_) => self.levels * self.extents[0] as usize * self.edge(),
            None => 0,
        };
        2 * self.extents[0] as usize * self.local[0] + edges
    }

    /// Numbers of a row that pass from one tile to the next.
    pub(super) fn edge(&self) -> usize {
        2 * self.radius[1] as usize * self.local[1]
    }

    /// Positions of a band of a call.
    pub(super) fn band(&self, band: usize, from: i64, to: i64) -> (i64, i64) {
        let first = from + band as i64 * self.rows;
        (first, (first + self.rows).min(to))
    }
}

/// Strides of packed memory, in numbers.
fn packed(extents: &[i64], width: usize) -> Result<Vec<usize>, Refused> {
    let mut strides = vec![0; extents.len()];
    let mut stride = width;
    for (slot, n) in strides.iter_mut().zip(extents).rev() {
        *slot = stride;
        let next = usize::try_from(*n).ok().and_then(|n| stride.checked_mul(n));
        stride =
            next.filter(|n| *n <= isize::MAX as usize / 64).ok_or(Refused("too many elements"))?;
    }
    Ok(strides)
}
