//! One lane of a pass: bands, tile by tile, level by level.
//!
//! Approach: a lane has memory for two tiles: one has a level with all its neighbours, the other
//! receives the next level. An element has the same place relative to the tile's corner at each
//! level, and the corner moves by the radius, so the neighbours in the previous level are at fixed
//! distances.
//!
//! Invariants: a cell is accessed after the previous band has finished it. Elements outside the
//! array are filled in before they are used; unused elements may have any value.

use std::sync::atomic::Ordering;

use super::boundary::Boundary;
use super::sums::{change, change_of_pairs, weighted, Real};
use super::sweep::{lock, Shared, Sweep};
use crate::simd::widest;

pub(super) struct Lane<'a, T> {
    sweep: &'a Sweep<T>,
    /// The current level, and the next one.
    tiles: [&'a mut [T]; 2],
    /// The last columns of the previous tile, for each level.
    edges: &'a mut [T],
    /// The largest change of each level, as `Real::magnitude`.
    pub changes: Vec<i64>,
}

/// The current position of a lane.
#[derive(Clone, Copy)]
struct At {
    /// Positions of the band.
    from: i64,
    to: i64,
    tile: i64,
    /// The current level.
    level: usize,
}

/// A part of the array: first index and one past the last along each axis.
type Region = Vec<(i64, i64)>;

impl<'a, T: Real> Lane<'a, T> {
    pub fn new(sweep: &'a Sweep<T>, scratch: &'a mut [T]) -> Self {
        let tile = sweep.extents[0] as usize * sweep.local[0];
        let (one, rest) = scratch.split_at_mut(tile);
        let (two, edges) = rest.split_at_mut(tile);
        Lane { sweep, tiles: [one, two], edges, changes: vec![0; sweep.levels] }
    }

    /// Computes all levels of a band.
    pub fn band(&mut self, shared: &Shared<'_, T>, band: usize) {
        let (from, to) = self.sweep.band(band, shared.from, shared.to);
        let mut out = lock(&shared.out[band]);
        for tile in 0..self.sweep.tiles() {
            self.read(shared, At { from, to, tile, level: 0 });
            for level in 0..self.sweep.levels {
                let at = At { from, to, tile, level };
                let cell = tile as usize * self.sweep.levels + level;
                if let Some(before) = band.checked_sub(1) {
                    let mut turns = 0;
                    while shared.done[before].load(Ordering::Acquire) <= cell {
                        turns += 1;
                        if turns < 1000 {
                            std::hint::spin_loop();
                        } else {
                            std::thread::yield_now();
                        }
                    }
                }
                self.keep(&mut lock(&shared.cells[cell]), at);
                shared.done[band].store(cell + 1, Ordering::Release);
                self.pass_on(at);
                self.next_level(at, &mut out);
                self.tiles.swap(0, 1);
            }
        }
    }

    /// Index in a tile of element 0 of the array, along each axis.
    ///
    /// It is relative to the tile's corner at the current level.
    fn origin(&self, at: At) -> Vec<i64> {
        let sweep = self.sweep;
        let level = at.level as i64;
        (0..sweep.shape.len())
            .map(|axis| match (axis, sweep.columns) {
                (0, _) => 2 * sweep.radius[0] - (at.from - level * sweep.radius[0]),
                (1, Some(columns)) => {
                    2 * sweep.radius[1] - (at.tile * columns - level * sweep.radius[1])
                }
                _ => sweep.radius[axis],
            })
            .collect()
    }

    /// The part of a level in a tile that a band has.
    fn region(&self, at: At) -> Region {
        let sweep = self.sweep;
        (0..sweep.shape.len())
            .map(|axis| match axis {
                0 => (sweep.reached(at.level, at.from), sweep.reached(at.level, at.to)),
                1 => sweep.span(at.tile, at.level),
                _ => (0, sweep.shape[axis]),
            })
            .collect()
    }

    /// Copies the rows of level 0.
    fn read(&mut self, shared: &Shared<'_, T>, at: At) {
        let region = self.region(at);
        let mut first = vec![0; region.len()];
        first[0] = shared.from;
        let from = Walk { strides: &self.sweep.strides, first: &first };
        let origin: Vec<i64> = self.origin(at).iter().map(|n| -n).collect();
        let to = Walk { strides: &self.sweep.local, first: &origin };
        let length = run_of(&region) * self.sweep.width;
        each_run(&region, |index| {
            let (source, target) = (from.flat(index), to.flat(index));
            self.tiles[0][target..target + length]
                .copy_from_slice(&shared.new[source..source + length]);
        });
    }

    /// Loads the rows of a cell that the previous band stored, and stores those for the next one.
    fn keep(&mut self, cell: &mut [T], at: At) {
        let sweep = self.sweep;
        let twice = 2 * sweep.radius[0] as usize;
        let (row, here) = (sweep.kept_row(at.tile, at.level), sweep.local[0]);
        if twice == 0 || row == 0 {
            return;
        }
        let column = match sweep.columns {
            Some(_) => {
                let origin = self.origin(at)[1];
                (sweep.span(at.tile, at.level).0 + origin) as usize * sweep.local[1]
            }
            None => 0,
        };
        let (kept, head) = cell.split_at_mut(twice * row);
        let tile = &mut self.tiles[0];
        for (n, kept) in kept.chunks_exact(row).enumerate() {
            tile[n * here + column..][..row].copy_from_slice(kept);
        }
        let rows = (at.to - at.from) as usize;
        for (n, kept) in kept.chunks_exact_mut(row).enumerate() {
            kept.copy_from_slice(&tile[(rows + n) * here + column..][..row]);
        }
        if !sweep.is_ring() {
            return;
        }
        let (first, last) = sweep.domain(at.level);
        let corner = at.from - at.level as i64 * sweep.radius[0] - twice as i64;
        let region = self.region(at)[0];
        for g in region.0..region.1.min(first + twice as i64) {
            let n = (g - first) as usize;
            head[n * row..][..row]
                .copy_from_slice(&self.tiles[0][(g - corner) as usize * here + column..][..row]);
        }
        // Past its end, the ring begins again.
        for g in last.max(corner)..(corner + twice as i64 + rows as i64).min(last + twice as i64) {
            let n = (g - first).rem_euclid(sweep.shape[0]) as usize;
            self.tiles[0][(g - corner) as usize * here + column..][..row]
                .copy_from_slice(&head[n * row..][..row]);
        }
    }

    /// Loads the last columns of the previous tile, and stores those of this one.
    fn pass_on(&mut self, at: At) {
        let Some(columns) = self.sweep.columns else { return };
        let edge = self.sweep.edge();
        if edge == 0 {
            return;
        }
        let here = self.sweep.local[0];
        let last = columns as usize * self.sweep.local[1];
        let rows = self.sweep.extents[0] as usize;
        let edges = self.edges[at.level * rows * edge..][..rows * edge].chunks_exact_mut(edge);
        let rows = self.tiles[0].chunks_exact_mut(here);
        for (edge, row) in edges.zip(rows) {
            // For few numbers, calls of a copy function would take longer.
            row.iter_mut().zip(edge.iter()).for_each(|(to, from)| *to = *from);
            edge.iter_mut().zip(&row[last..]).for_each(|(to, from)| *to = *from);
        }
    }

    /// Computes the next level from the current one.
    fn next_level(&mut self, at: At, out: &mut [T]) {
        let next = At { level: at.level + 1, ..at };
        let region = self.region(next);
        if region.iter().any(|(first, last)| first >= last) {
            return;
        }
        self.surround(at, &region);
        let origin: Vec<i64> = self.origin(at).iter().map(|n| -n).collect();
        let is_last = next.level == self.sweep.levels;
        let mut first = vec![0; region.len()];
        let strides = if is_last {
            first[0] = self.sweep.reached(next.level, at.from);
            &self.sweep.strides
        } else {
            first = self.origin(next).iter().map(|n| -n).collect();
            &self.sweep.local
        };
        let [tile, other] = &mut self.tiles;
        let job = Job {
            sweep: self.sweep,
            region: &region,
            from: Walk { strides: &self.sweep.local, first: &origin },
            to: Walk { strides, first: &first },
            x: tile,
            out: if is_last { out } else { other },
            change: 0,
        };
        let change = widest(
            #[inline(always)]
            || job.run(),
        );
        let most = &mut self.changes[at.level];
        *most = change.max(*most);
    }

    /// Fills in the elements outside the array around a region of the next level.
    fn surround(&mut self, at: At, region: &Region) {
        let sweep = self.sweep;
        let origin = self.origin(at);
        for axis in 0..region.len() {
            let (radius, n) = (sweep.radius[axis], sweep.shape[axis]);
            let boundary = sweep.boundary[axis];
            let ring = axis == 0 && sweep.is_ring();
            if radius == 0 || ring || boundary == Boundary::Untouched {
                continue;
            }
            let (first, last) = (region[axis].0 - radius, region[axis].1 + radius);
            for index in (first..0).chain(n..last) {
                let target = (index + origin[axis]) as usize;
                let source = boundary.source(index, n).map(|index| (index + origin[axis]) as usize);
                self.copy_slices(axis, source, target);
            }
        }
    }

    /// Copies the slice with one index along an axis to another index.
    ///
    /// Without a source, the slice is filled with the constant.
    fn copy_slices(&mut self, axis: usize, source: Option<usize>, target: usize) {
        let sweep = self.sweep;
        let stride = sweep.local[axis];
        let block = stride * sweep.extents[axis] as usize;
        for block in self.tiles[0].chunks_exact_mut(block) {
            match source {
                Some(source) if stride < 8 => {
                    for n in 0..stride {
                        block[target * stride + n] = block[source * stride + n];
                    }
                }
                Some(source) => {
                    block.copy_within(source * stride..(source + 1) * stride, target * stride);
                }
                None => {
                    let place = block[target * stride..][..stride].chunks_exact_mut(sweep.width);
                    place.for_each(|place| place.copy_from_slice(&sweep.fill[..sweep.width]));
                }
            }
        }
    }
}

/// One level of one tile.
struct Job<'a, T> {
    sweep: &'a Sweep<T>,
    region: &'a Region,
    from: Walk<'a>,
    to: Walk<'a>,
    x: &'a [T],
    out: &'a mut [T],
    change: i64,
}

impl<T: Real> Job<'_, T> {
    /// Computes the level; returns the largest change.
    #[inline(always)]
    fn run(mut self) -> i64 {
        let sweep = self.sweep;
        let last = self.region.len() - 1;
        // Elements that have all neighbours, if the others do not change.
        let inner: Region = (0..=last)
            .map(|axis| {
                let ((low, high), radius) = (self.region[axis], sweep.radius[axis]);
                match sweep.boundary[axis] {
                    Boundary::Untouched => {
                        let low_end = low.max(radius).min(high);
                        (low_end, high.min(sweep.shape[axis] - radius).max(low_end))
                    }
                    _ => (low, high),
                }
            })
            .collect();
        let width = sweep.width;
        let runs = self.region[last];
        each_run(
            self.region,
            #[inline(always)]
            |index| {
                let (mut source, mut target) = (self.from.flat(index), self.to.flat(index));
                let outer = index[..last].iter().zip(&inner);
                let inside = outer.into_iter().all(|(n, (low, high))| low <= n && n < high);
                let (low, high) = if inside { inner[last] } else { (runs.0, runs.0) };
                for (length, changes) in
                    [(low - runs.0, false), (high - low, true), (runs.1 - high, false)]
                {
                    let length = length as usize * width;
                    let out = &mut self.out[target..target + length];
                    let old = &self.x[source..source + length];
                    if !changes {
                        out.copy_from_slice(old);
                    } else if length > 0 {
                        weighted(out, self.x, source, &sweep.taps);
                        if let Some(columns) = sweep.measured {
                            let (from, to) = counted(index, last, low, high, columns);
                            let (new, old) =
                                (&out[from * width..to * width], &old[from * width..to * width]);
                            let change = match width {
                                1 => change(new, old),
                                _ => change_of_pairs(new, old),
                            };
                            self.change = change.max(self.change);
                        }
                    }
                    source += length;
                    target += length;
                }
            },
        );
        self.change
    }
}

/// The part of a run from `low` to `high` in the measured columns.
#[inline(always)]
fn counted(index: &[i64], last: usize, low: i64, high: i64, columns: (i64, i64)) -> (usize, usize) {
    let all = (high - low) as usize;
    match last {
        0 => (0, all),
        1 => {
            let from = columns.0.clamp(low, high);
            ((from - low) as usize, (columns.1.clamp(from, high) - low) as usize)
        }
        _ if (columns.0..columns.1).contains(&index[1]) => (0, all),
        _ => (0, 0),
    }
}

/// Positions of the array's elements in memory.
struct Walk<'a> {
    strides: &'a [usize],
    /// Index of the first element in memory.
    first: &'a [i64],
}

impl Walk<'_> {
    #[inline(always)]
    fn flat(&self, index: &[i64]) -> usize {
        let steps = index.iter().zip(self.first).zip(self.strides);
        steps.map(|((n, first), stride)| (n - first) as usize * stride).sum()
    }
}

/// Number of elements of a run along the last axis.
fn run_of(region: &Region) -> usize {
    region.last().map_or(0, |(first, last)| (last - first).max(0) as usize)
}

/// Calls `work` with the first index of each run along the last axis.
#[inline(always)]
fn each_run(region: &Region, mut work: impl FnMut(&[i64])) {
    if region.iter().any(|(first, last)| first >= last) {
        return;
    }
    let mut index: Vec<i64> = region.iter().map(|(first, _)| *first).collect();
    let outer = region.len() - 1;
    loop {
        work(&index);
        let mut axis = outer;
        loop {
            if axis == 0 {
                return;
            }
            axis -= 1;
            index[axis] += 1;
            if index[axis] < region[axis].1 {
                break;
            }
            index[axis] = region[axis].0;
        }
    }
}
