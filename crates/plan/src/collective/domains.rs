//! File domains: the part of the file that each owner accesses.
//!
//! Problem: P ranks request sections of the same arrays. If each reads its own, the disk gets many
//! small interleaved requests, some of them twice. The files are therefore divided: within one
//! operation each byte has one owner, and only the owner reads or writes it.
//!
//! Approach: the units of all regions of an array are lined up in the order of the file; a domain
//! is an interval of the line. The ways of cutting differ only in the measure along the line:
//!
//! | [`Cut`]     | equal parts of                                 | use when                        |
//! |-------------|------------------------------------------------|---------------------------------|
//! | `Fixed`     | the whole array (the paper's static partition) | requests cover the array        |
//! | `Bounding`  | the bounding sections (the paper's dynamic one) | requests are dense in them      |
//! | `Requested` | the cost of accessing the requested elements   | requests are not dense; the default |
//! | `Cyclic`    | tiles, assigned one by one ([`BlockCyclic`](super::block_cyclic::BlockCyclic)) | requests are clustered |
//!
//! The cost is measured in bytes: the requested bytes, plus the bytes read between one index of the
//! slowest axis and the next, or the bytes that cost as much as a request (`gap` of the
//! collective). Otherwise, many requests for short pieces would fall to few owners.
//!
//! Borders are then moved to the nearest multiple of the size of a block or stripe in the file, or
//! to the first unit after it, so that no two owners access the same block or stripe. A border
//! stays if moving it would leave an owner without units.
//!
//! With several arrays, each array has its own shares: ranks, and the amount of the array for each
//! ([`assign`](crate::assign) finds good ones).
//!
//! Invariants: domains are disjoint and cover every region, whatever the shares. Equal input gives
//! equal output on every rank: integers only.
//!
//! Cost: O(P log P) time, O(P) memory.
//!
//! Reference: Thakur and Choudhary, section 4 (static, dynamic) and 6 (block-cyclic, fewer I/O ranks).

use alloc::vec;
use alloc::vec::Vec;

use super::access::{Access, ArrayDescriptor};
use super::parts::{Part, Span};
use super::regions::Region;
use super::tiles::Tiling;

/// Measures for cutting a file into equal parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// The whole array, along its slowest axis.
    Fixed,
    /// The bounding sections.
    Bounding,
    /// The cost of accessing the requested elements.
    Requested,
    /// Tiles, assigned round-robin.
    Cyclic,
}

/// The amount of an array that a rank owns, relative to the sum of all shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// The rank.
    pub rank: u32,
    /// Its amount.
    pub part: i64,
}

/// One region on the line, with the measure along its slowest axis.
struct Stretch<'a> {
    tiling: &'a Tiling,
    /// Points at which the measure changes.
    ///
    /// Each has a cell of the slowest axis, and the measure of all cells before it.
    profile: Vec<(i64, i128)>,
}

impl Stretch<'_> {
    fn weight(&self) -> i128 {
        self.profile.last().map_or(0, |(_, sum)| *sum)
    }

    /// The unit before which the given amount of the measure lies.
    fn unit(&self, weight: i128) -> i64 {
        let per_cell = i128::from(self.tiling.units_per_cell());
        let k = self.profile.partition_point(|(_, sum)| *sum <= weight);
        let Some((cell, sum)) = self.profile.get(k) else { return self.tiling.units() };
        let (from, before) = if k == 0 { (0, 0) } else { self.profile[k - 1] };
        let (cells, part) = (i128::from(cell - from), sum - before);
        let units = i128::from(from) * per_cell + scaled(cells * per_cell, weight - before, part);
        units as i64
    }

    /// The unit nearest to a border that is aligned in the file.
    ///
    /// An aligned unit begins at a multiple of `align` bytes, or is the first one after it, and is
    /// between `low` and `next`, exclusive. If there is none, the border is returned.
    fn aligned(&self, border: i64, low: i64, next: i64, align: i64) -> i64 {
        let begin = |unit| self.tiling.begin(unit);
        let Some(at) = begin(border).filter(|_| align > 1) else { return border };
        let below = at - at.rem_euclid(align);
        let distance = |unit: &i64| begin(*unit).map_or(i64::MAX, |b| b.abs_diff(at) as i64);
        // The first one of two at the same distance.
        let found = [below, below.saturating_add(align)].map(|byte| self.first_at(byte, border));
        let inside = found.into_iter().filter(|unit| low < *unit && *unit < next);
        inside.min_by_key(distance).unwrap_or(border)
    }

    /// The first unit that begins at or after this byte of the file, searched from a unit near it.
    fn first_at(&self, byte: i64, near: i64) -> i64 {
        let before = |unit: i64| self.tiling.begin(unit).is_some_and(|begin| begin < byte);
        let units = self.tiling.units();
        let (mut low, mut high, mut reach) = (near, near, 1);
        while low > 0 && !before(low - 1) {
            (high, low) = (low - 1, (low - reach).max(0));
            reach = reach.saturating_mul(2);
        }
        reach = 1;
        while high < units && before(high) {
            (low, high) = (high + 1, high.saturating_add(reach).min(units));
            reach = reach.saturating_mul(2);
        }
        while low < high {
            let middle = low + (high - low) / 2;
            if before(middle) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

/// Cuts one array into intervals: the spans of each share, in order.
pub fn cut(
    array: u32,
    descriptor: &ArrayDescriptor,
    accesses: &[Access],
    regions: &[Region],
    tilings: &[Tiling],
    shares: &[Share],
    (how, align, gap): (Cut, i64, i64),
) -> Vec<(u32, Part)> {
    let span =
        |region: usize, low, high| Part::Span(Span { array, region: region as u32, low, high });
    let length = descriptor.order.first().map_or(1, |axis| descriptor.shape[*axis]);
    let mut spans = Vec::new();
    let stretches: Vec<Stretch> = tilings
        .iter()
        .zip(regions)
        .map(|(tiling, region)| {
            let profile = profile(descriptor, gap, tiling, region, accesses, how);
            Stretch { tiling, profile }
        })
        .collect();
    let all: i128 = stretches.iter().map(Stretch::weight).sum();
    let parts: i128 = shares.iter().map(|share| i128::from(share.part)).sum();
    // The measure before the end of each share.
    let mut given = 0_i128;
    let ends: Vec<i128> = shares
        .iter()
        .map(|share| {
            given += i128::from(share.part);
            scaled(all, given, parts)
        })
        .collect();
    let (mut owner, mut before) = (0, 0_i128);
    for (region, stretch) in stretches.iter().enumerate() {
        let (units, weight) = (stretch.tiling.units(), stretch.weight());
        let mut low = 0;
        while low < units {
            // The end of an owner's part, if borders are not moved.
            let end = |owner: usize| match how {
                _ if owner + 1 >= shares.len() => units,
                Cut::Fixed => {
                    let index =
                        scaled(i128::from(length), (owner + 1) as i128, shares.len() as i128);
                    stretch.tiling.cell_at(index as i64) * stretch.tiling.units_per_cell()
                }
                _ if ends[owner] >= before + weight => units,
                _ => stretch.unit(ends[owner] - before),
            };
            let mut high = end(owner);
            if low < high && high < units {
                // The next owner that has a part must not lose all of it.
                let next = (owner + 1..shares.len()).map(end).find(|next| *next > high);
                high = stretch.aligned(high, low, next.unwrap_or(units), align);
            }
            if high > low {
                spans.push((shares[owner].rank, span(region, low, high)));
                low = high;
            }
            if low < units {
                owner += 1;
            }
        }
        before += weight;
    }
    spans
}

/// `all * part / parts`, approximately if `parts` is very large.
fn scaled(all: i128, mut part: i128, mut parts: i128) -> i128 {
    while parts >= 1 << 56 {
        (part, parts) = (part / 2, parts / 2);
    }
    if parts <= 0 {
        return all;
    }
    all / parts * part + all % parts * part / parts
}

/// The measure along the slowest axis of a region.
fn profile(
    descriptor: &ArrayDescriptor,
    gap: i64,
    tiling: &Tiling,
    region: &Region,
    accesses: &[Access],
    how: Cut,
) -> Vec<(i64, i128)> {
    let per_cell = tiling.units_per_cell();
    let cells = tiling.units() / per_cell.max(1);
    let box_weight = i128::from(tiling.unit_bytes()) * i128::from(per_cell);
    let even = vec![(cells, box_weight * i128::from(cells))];
    let Some(axis) = tiling.slowest().filter(|_| how == Cut::Requested) else { return even };
    // Sections that several ranks request count once.
    let mut sections: Vec<_> =
        region.members.iter().map(|k| &accesses[*k as usize].section).collect();
    sections.sort();
    sections.dedup();
    let mut events: Vec<(i64, i128)> = Vec::with_capacity(2 * sections.len());
    for section in sections {
        let range = section.ranges()[axis];
        let others = section.ranges().iter().enumerate().filter(|(d, _)| *d != axis);
        let each: i128 = others
            .fold(i128::from(descriptor.item), |n, (_, r)| n.saturating_mul(i128::from(r.count)));
        let (low, high) = (tiling.cell_at(range.start), tiling.cell_at(range.stop()).max(1));
        let low = low.min(high - 1);
        let density = (each * i128::from(range.count) * 64 / i128::from(high - low)).max(1);
        events.push((low, density));
        events.push((high, -density));
    }
    events.sort_unstable();
    // To get to the next cell, the bytes in between are read, or a request is made that costs as
    // much as `gap` bytes.
    let blocks = descriptor.encoded || descriptor.grain.iter().any(|n| *n > 1);
    let step = region.section.ranges()[axis].step;
    let apart = 64 * i128::from(descriptor.stride(0)) * i128::from(step);
    let dearest = if blocks { 0 } else { 64 * i128::from(gap.max(0)) };
    let (mut sum, mut density, mut at) = (0_i128, 0_i128, 0_i64);
    let mut profile = Vec::new();
    for (cell, change) in events {
        if cell > at {
            // Bytes that several ranks request are read once. Bytes that no rank requests are nearly
            // free: they are not read.
            let wanted = density.min(box_weight * 64);
            let between = if wanted > 0 { (apart - wanted).clamp(0, dearest) } else { 1 };
            sum += (wanted + between) * i128::from(cell - at);
            profile.push((cell, sum));
            at = cell;
        }
        density += change;
    }
    if at < cells {
        sum += i128::from(cells - at);
        profile.push((cells, sum));
    }
    profile
}
