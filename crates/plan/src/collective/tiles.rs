//! Tiles: pieces of a region that fit a slot.
//!
//! Problem: a rank reads its part of a region piece by piece, each piece as long in the file as its
//! slot allows. Every rank must be able to compute the position of piece `k` of any other rank
//! without communication.
//!
//! Approach: in file order, a tile takes whole axes from the fastest end while they fit a slot; the
//! next axis is cut, and the axes outside it are walked. A piece that is one index thick along the
//! cut axis is a *unit*. Units are numbered along the file, a part of a region is a range of
//! numbers, and a *tile* is as many consecutive units as fit a slot. If blocks have a single owner,
//! a unit is one block thick, so no tile cuts a block.
//!
//! Invariants: tiles of a range of units are disjoint and cover it; tile `k` is computed by
//! arithmetic.

use alloc::vec::Vec;

use super::access::ArrayDescriptor;
use super::regions::Region;
use crate::error::PlanError;
use crate::section::{Range, Section};

/// A region with its division into units and tiles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tiling {
    section: Section,
    order: Vec<usize>,
    /// Block length per axis, in file order; 1 if any cut is allowed.
    grain: Vec<i64>,
    /// Number of cells (indices, or blocks) per axis, in file order.
    cells: Vec<i64>,
    /// Position of the cut axis in file order.
    cut: usize,
    /// Maximum bytes of a unit.
    unit: i64,
    /// Maximum number of units in a tile.
    most: i64,
    /// Offset of the array in the file, and byte strides per axis, in file order.
    place: Option<(i64, Vec<i64>)>,
}

impl Tiling {
    /// Cuts a region into tiles of at most `slot` bytes.
    ///
    /// Tiles have at most `wanted` bytes, if that cuts no unit. Rows of less than `align` bytes are
    /// cut at multiples of it.
    pub fn new(
        descriptor: &ArrayDescriptor,
        region: &Region,
        wanted: i64,
        slot: i64,
        align: i64,
    ) -> Result<Tiling, PlanError> {
        let order = descriptor.order.clone();
        let section = region.section.clone();
        let ranges: Vec<Range> = order.iter().map(|axis| section.ranges()[*axis]).collect();
        let block =
            order.iter().fold(descriptor.item, |n, axis| n.saturating_mul(descriptor.grain[*axis]));
        // Blocks that can be read in parts are cut if they do not fit. With a long step, whole
        // blocks would give empty cells for the blocks that it skips.
        let whole = descriptor.encoded || block <= wanted.min(slot);
        let thickness = |(axis, r): (&usize, &Range)| {
            if whole && r.step == 1 {
                descriptor.grain[*axis]
            } else {
                1
            }
        };
        let grain: Vec<i64> = order.iter().zip(&ranges).map(thickness).collect();
        let cells: Vec<i64> = ranges
            .iter()
            .zip(&grain)
            .map(|(r, g)| if *g == 1 { r.count } else { (r.stop() - 1) / g - r.start / g + 1 })
            .collect();
        let thick = |place: usize| grain[place].min(ranges[place].count.max(1));
        let outside = |place: usize| (0..place).fold(1, |n: i64, k| n.saturating_mul(thick(k)));
        let (mut cut, mut inner) = (0, descriptor.item);
        for place in (0..order.len()).rev() {
            let full = inner.saturating_mul(ranges[place].count);
            let fits = full.saturating_mul(outside(place)) <= wanted.min(slot);
            if !fits || place == 0 {
                cut = place;
                break;
            }
            inner = full;
        }
        let thickness = if order.is_empty() { 1 } else { thick(cut) };
        let unit = inner.saturating_mul(thickness).saturating_mul(outside(cut));
        if unit > slot {
            return Err(PlanError::BudgetTooSmall {
                what: "a block of the array in a collective",
                needed: unit,
                budget: slot,
            });
        }
        let mut most = (wanted.min(slot) / unit).max(1);
        let step = ranges.get(cut).map_or(1, |r| r.step);
        let apart =
            if order.is_empty() { align } else { descriptor.stride(cut).saturating_mul(step) };
        if apart < align && align % apart == 0 && most > align / apart {
            most -= most % (align / apart);
        }
        let strides = (0..order.len()).map(|place| descriptor.stride(place)).collect();
        let place = descriptor.lead.map(|lead| (lead, strides));
        Ok(Tiling { section, order, grain, cells, cut, unit, most, place })
    }

    /// Number of units.
    pub fn units(&self) -> i64 {
        self.cells.iter().take(self.cut + 1).product()
    }

    /// Number of units in one index (or block) of the slowest axis.
    pub(super) fn units_per_cell(&self) -> i64 {
        self.cells.iter().take(self.cut + 1).skip(1).product()
    }

    /// The bounding section.
    pub fn section(&self) -> &Section {
        &self.section
    }

    /// The cell of the slowest axis that contains the first index at or after `index`.
    pub(super) fn cell_at(&self, index: i64) -> i64 {
        let Some(axis) = self.order.first() else { return 0 };
        let r = self.section.ranges()[*axis];
        let below = r.members(0, index).1;
        if self.grain[0] == 1 {
            return below;
        }
        let first = r.start / self.grain[0];
        let cell = (index + self.grain[0] - 1) / self.grain[0] - first;
        cell.clamp(0, self.cells[0])
    }

    /// The first byte of a unit in the file; None if unknown.
    pub(super) fn begin(&self, unit: i64) -> Option<i64> {
        let (lead, strides) = self.place.as_ref()?;
        let (mut at, mut rest) = (*lead, unit);
        for place in (0..self.order.len()).rev() {
            let range = self.section.ranges()[self.order[place]];
            let cell = match place.cmp(&self.cut) {
                core::cmp::Ordering::Greater => 0,
                core::cmp::Ordering::Equal | core::cmp::Ordering::Less if place > 0 => {
                    let cells = self.cells[place].max(1);
                    let cell = rest.rem_euclid(cells);
                    rest = rest.div_euclid(cells);
                    cell
                }
                _ => rest,
            };
            let index = if self.grain[place] == 1 {
                range.index(cell)
            } else {
                ((range.start / self.grain[place] + cell) * self.grain[place]).max(range.start)
            };
            at = at.saturating_add(index.saturating_mul(strides[place]));
        }
        Some(at)
    }

    /// Maximum bytes of a unit.
    pub fn unit_bytes(&self) -> i64 {
        self.unit
    }

    /// Maximum bytes of a tile.
    pub fn tile_bytes(&self) -> i64 {
        let row = self.cells.get(self.cut).copied().unwrap_or(1);
        self.unit.saturating_mul(self.most.min(row))
    }

    /// The slowest axis of the array.
    pub(super) fn slowest(&self) -> Option<usize> {
        self.order.first().copied()
    }

    /// One past the last unit of the tile that begins with unit `low`.
    #[cfg(test)]
    pub(super) fn end_of_tile(&self, low: i64) -> i64 {
        (low + self.most).min((low / self.row() + 1) * self.row())
    }

    /// A box that contains the units `low..high`, for display and for estimates.
    pub fn cover(&self, low: i64, high: i64) -> Section {
        let mut ranges = self.section.ranges().to_vec();
        let (mut first, mut last) = (low, (high - 1).max(low));
        // Walk outwards from the cut axis: the axes inside the outermost axis on which both ends
        // differ are covered wholly.
        for place in (0..=self.cut.min(self.order.len().saturating_sub(1))).rev() {
            if self.order.is_empty() {
                break;
            }
            let cells = self.cells[place].max(1);
            let (from, to) = (first % cells, last % cells);
            (first, last) = (first / cells, last / cells);
            let (from, to) = if first == last { (from, to + 1) } else { (0, cells) };
            let range = &mut ranges[self.order[place]];
            *range = self.cells_of(place, *range, from, to);
        }
        Section::new(ranges)
    }

    /// The indices in the cells `low..high` of an axis.
    fn cells_of(&self, place: usize, range: Range, low: i64, high: i64) -> Range {
        let grain = self.grain[place];
        let (first, count) = if grain == 1 {
            (low, high - low)
        } else {
            let block = range.start / grain;
            range.members((block + low) * grain, (block + high) * grain)
        };
        range.part(first, count)
    }

    /// Number of units in a row of consecutive units.
    fn row(&self) -> i64 {
        self.cells.get(self.cut).copied().unwrap_or(1).max(1)
    }

    /// Number of tiles in the units `low..high`.
    pub fn tiles(&self, low: i64, high: i64) -> i64 {
        if low >= high {
            return 0;
        }
        let row = self.row();
        let in_row = |n: i64| (n + self.most - 1) / self.most;
        let (first, last) = (low / row, (high - 1) / row);
        if first == last {
            return in_row(high - low);
        }
        let begun = in_row((first + 1) * row - low);
        let ended = in_row(high - last * row);
        begun + (last - first - 1) * in_row(row) + ended
    }

    /// Tile number `k` of the units `low..high`.
    pub fn tile(&self, low: i64, high: i64, k: i64) -> Option<Section> {
        self.units_of_tile(low, high, k).map(|(from, to)| self.part(from, to))
    }

    /// First unit of tile number `k`, and one past its last unit.
    pub(super) fn units_of_tile(&self, low: i64, high: i64, k: i64) -> Option<(i64, i64)> {
        if k < 0 || k >= self.tiles(low, high) {
            return None;
        }
        let row = self.row();
        let in_row = |n: i64| (n + self.most - 1) / self.most;
        let first_end = ((low / row + 1) * row).min(high);
        let begun = in_row(first_end - low);
        let from = if k < begun {
            low + k * self.most
        } else {
            let (line, place) = ((k - begun) / in_row(row), (k - begun) % in_row(row));
            first_end + line * row + place * self.most
        };
        let to = (from + self.most).min(high).min((from / row + 1) * row);
        Some((from, to))
    }

    /// The section of the consecutive units `from..to`.
    fn part(&self, from: i64, to: i64) -> Section {
        let mut ranges = self.section.ranges().to_vec();
        if self.order.is_empty() {
            return Section::new(ranges);
        }
        let mut outer = from / self.row();
        for place in (0..=self.cut).rev() {
            let (low, high) = if place == self.cut {
                (from % self.row(), (to - 1) % self.row() + 1)
            } else {
                let cell = outer % self.cells[place];
                outer /= self.cells[place];
                (cell, cell + 1)
            };
            let range = &mut ranges[self.order[place]];
            *range = self.cells_of(place, *range, low, high);
        }
        Section::new(ranges)
    }
}
