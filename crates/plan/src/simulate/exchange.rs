//! Messages between the ranks in one round, and the tasks of owners for their tiles.
//!
//! Loads are computed exactly from the table of each tile if the tables have at most [`EXACT`]
//! intersections in total. Otherwise (10^5 ranks that all request parts of 10^5 tiles send 10^10
//! messages) they are computed from sums along each axis. The number of members of a region that
//! intersect a tile, and the number of tiles of this round that a member intersects, are
//! differences of two positions in sorted lists; the number of bytes is a difference of two prefix
//! sums. Axes are treated as independent. This is exact if tiles are cut along one axis (rows,
//! columns) or members form a grid, and sections have no steps; otherwise it is an estimate.

use alloc::vec;
use alloc::vec::Vec;

use super::machine::{time, Machine, Manner};
use super::stream::Stream;
use crate::collective::{hull, ArrayDescriptor, Collective, Region, Tile};
use crate::section::Section;

/// Maximum number of intersections that are computed exactly.
const EXACT: i64 = 1 << 24;
/// More pieces than this count as more expensive than a whole.
const PRICED: usize = 64;
/// Number of parts of a byte, as unit of sums.
const PARTS: i128 = 1 << 10;

/// The task of one owner for its tile.
pub(super) struct Needed {
    pub owner: u32,
    pub array: u32,
    /// The smallest section that contains the requested elements.
    pub held: Section,
    /// True if the ranks request (write) all of it.
    pub full: bool,
    /// Pieces that are written separately, because they are a small part of the tile or cost less.
    pub pieces: Vec<Section>,
}

/// Loads of ranks in one round: messages and copies.
#[derive(Default)]
pub(super) struct Loads {
    /// For each rank: number of messages at either end, bytes out, bytes in, bytes copied.
    of: Vec<(i64, i64, i64, i64)>,
    pub messages: i64,
    pub bytes: i64,
}

impl Loads {
    pub fn new(ranks: u32) -> Loads {
        Loads { of: vec![(0, 0, 0, 0); ranks as usize], ..Loads::default() }
    }

    pub fn packet(&mut self, from: u32, to: u32, bytes: i64, per_node: u32) {
        if from / per_node == to / per_node {
            self.of[to as usize].3 += bytes;
            return;
        }
        let sender = &mut self.of[from as usize];
        (sender.0, sender.1, sender.3) = (sender.0 + 1, sender.1 + bytes, sender.3 + bytes);
        let getter = &mut self.of[to as usize];
        (getter.0, getter.2, getter.3) = (getter.0 + 1, getter.2 + bytes, getter.3 + bytes);
        self.messages += 1;
        self.bytes += bytes;
    }

    /// Adds one end of many messages; messages are counted at the owner's end.
    pub fn end(&mut self, rank: u32, messages: i64, bytes: i64, out: bool, owner: bool) {
        let load = &mut self.of[rank as usize];
        load.0 += messages;
        *(if out { &mut load.1 } else { &mut load.2 }) += bytes;
        load.3 += bytes;
        if owner {
            self.messages += messages;
            self.bytes += bytes;
        }
    }

    /// Copy time of the rank that copies most.
    pub fn copies(&self, machine: &Machine) -> i64 {
        time(self.of.iter().map(|r| r.3).max().unwrap_or(0), machine.copy_rate)
    }

    /// Time of the slowest node.
    pub fn ns(&self, machine: &Machine) -> i64 {
        let node = |ranks: &[(i64, i64, i64, i64)]| {
            let busy = |r: &(i64, i64, i64, i64)| {
                r.0.saturating_mul(machine.message_ns).saturating_add(time(r.3, machine.copy_rate))
            };
            let own = ranks.iter().map(busy).max().unwrap_or(0);
            let (out, home) = ranks.iter().fold((0, 0), |(a, b), r| (a + r.1, b + r.2));
            own.saturating_add(time(i64::max(out, home), machine.message_rate))
        };
        self.of.chunks(machine.per_node as usize).map(node).max().unwrap_or(0)
    }
}

/// Members of a region.
struct Members {
    each: Vec<Member>,
    /// The members' intervals along each axis of the array.
    axes: Vec<Line>,
}

struct Member {
    rank: u32,
    /// Bytes, in units of `PARTS`.
    bytes: i128,
    /// First index and one past the last on each axis.
    bounds: Vec<(i64, i64)>,
}

/// Intervals with weights that are uniformly spread over each.
struct Line {
    count: i64,
    weight: i128,
    starts: Sums,
    stops: Sums,
}

impl Line {
    fn new(intervals: impl Iterator<Item = (i64, i64, i128)>) -> Line {
        let (mut starts, mut stops, mut sum) = (vec![], vec![], 0);
        for (low, high, weight) in intervals {
            let each = weight / i128::from((high - low).max(1));
            sum += each * i128::from(high - low);
            starts.push((low, each));
            stops.push((high, each));
        }
        let count = starts.len() as i64;
        Line { count, weight: sum, starts: Sums::new(starts), stops: Sums::new(stops) }
    }

    /// Number of intervals that intersect `low..high`.
    fn intersection(&self, low: i64, high: i64) -> i64 {
        // An interval that ends at `low` does not intersect it.
        self.starts.below(high) as i64 - self.stops.below(low + 1) as i64
    }

    /// The weight of the intervals within `low..high`.
    fn within(&self, low: i64, high: i64) -> i128 {
        let weight = |x| self.starts.at(x) - self.stops.at(x);
        weight(high) - weight(low)
    }
}

/// Returns `of` times a fraction.
fn scaled(of: i128, part: i128, whole: i128) -> i128 {
    const FINE: u32 = 40;
    if whole <= 0 {
        return of;
    }
    (of * ((part << FINE) / whole)) >> FINE
}

/// Sorted places with prefix sums: `at(x)` is the sum of `weight * (x - place)` of places below `x`.
struct Sums {
    places: Vec<i64>,
    weights: Vec<i128>,
    moments: Vec<i128>,
}

impl Sums {
    fn new(mut list: Vec<(i64, i128)>) -> Sums {
        list.sort_unstable();
        let (mut weights, mut moments) = (vec![0], vec![0]);
        let (mut weight, mut moment) = (0, 0);
        for (place, w) in &list {
            weight += w;
            moment += w * i128::from(*place);
            weights.push(weight);
            moments.push(moment);
        }
        Sums { places: list.into_iter().map(|(place, _)| place).collect(), weights, moments }
    }

    fn below(&self, x: i64) -> usize {
        self.places.partition_point(|place| *place < x)
    }

    fn at(&self, x: i64) -> i128 {
        let n = self.below(x);
        self.weights[n] * i128::from(x) - self.moments[n]
    }
}

/// Loads for each round of a plan.
pub(super) struct Exchanges<'a> {
    plan: &'a Collective,
    ranks: u32,
    /// Sums for each region of each array; None if tables are used.
    summed: Option<Vec<Vec<Members>>>,
}

impl<'a> Exchanges<'a> {
    pub fn new(plan: &'a Collective, ranks: u32) -> Exchanges<'a> {
        let members = |tile: &Tile| plan.regions(tile.array)[tile.region as usize].members.len();
        let mut looked = 0_i64;
        for owner in plan.owners() {
            let each = plan.tile(owner, 0).map_or(0, |tile| members(&tile) as i64);
            looked = looked.saturating_add(each.saturating_mul(plan.tiles(owner)));
        }
        let summed = (looked > EXACT).then(|| Self::sums(plan));
        Exchanges { plan, ranks, summed }
    }

    #[cfg(test)]
    pub(super) fn always_summed(plan: &'a Collective, ranks: u32) -> Exchanges<'a> {
        Exchanges { plan, ranks, summed: Some(Self::sums(plan)) }
    }

    fn sums(plan: &Collective) -> Vec<Vec<Members>> {
        let of_array = |array: usize| {
            let Some(job) = plan.job(array as u32) else { return vec![] };
            let member = |k: &u32| {
                let access = &plan.accesses(array as u32)[*k as usize];
                let elements = i128::from(access.section.count().unwrap_or(i64::MAX));
                Member {
                    rank: access.rank,
                    bytes: elements * i128::from(job.descriptor.item) * PARTS,
                    bounds: bounds(&access.section),
                }
            };
            let members = |region: &Region| {
                let each: Vec<Member> = region.members.iter().map(member).collect();
                let line = |d: usize| {
                    Line::new(each.iter().map(|m| (m.bounds[d].0, m.bounds[d].1, m.bytes)))
                };
                let axes = (0..job.descriptor.shape.len()).map(line).collect();
                Members { each, axes }
            };
            plan.regions(array as u32).iter().map(members).collect()
        };
        (0..plan.arrays()).map(of_array).collect()
    }

    /// Tasks of owners and loads of ranks in round `k`.
    pub fn round(
        &self,
        k: i64,
        write: bool,
        machine: &Machine,
        manner: &Manner,
    ) -> (Vec<Needed>, Loads) {
        let tiles: Vec<(u32, Tile)> = self
            .plan
            .owners()
            .flat_map(|owner| self.plan.batch(owner, k).map(move |n| (owner, n)))
            .filter_map(|(owner, n)| Some((owner, self.plan.tile(owner, n)?)))
            .collect();
        match &self.summed {
            None => self.looked_at(&tiles, write, machine, manner),
            Some(regions) => self.added_up(&tiles, write, regions),
        }
    }

    fn looked_at(
        &self,
        tiles: &[(u32, Tile)],
        write: bool,
        machine: &Machine,
        manner: &Manner,
    ) -> (Vec<Needed>, Loads) {
        let (mut needed, mut loads) = (vec![], Loads::new(self.ranks));
        for (owner, tile) in tiles {
            let table = self.plan.table(tile);
            let (Some(held), Some(job)) =
                (hull(table.iter().map(|piece| &piece.section)), self.plan.job(tile.array))
            else {
                continue;
            };
            let count = |section: &Section| section.count().unwrap_or(i64::MAX);
            let mut useful = 0_i64;
            let mut last: Option<(u32, i64)> = None;
            let mut deliver = |packet: Option<(u32, i64)>| {
                if let Some((rank, bytes)) = packet {
                    let (from, to) = if write { (rank, *owner) } else { (*owner, rank) };
                    loads.packet(from, to, bytes, machine.per_node);
                }
            };
            for piece in &table {
                let elements = count(&piece.section);
                useful = useful.saturating_add(elements);
                let rank = job.accesses[piece.access as usize].rank;
                let bytes = elements * job.descriptor.item;
                last = match last {
                    Some((other, sum)) if other == rank => Some((rank, sum + bytes)),
                    _ => {
                        deliver(last);
                        Some((rank, bytes))
                    }
                };
            }
            deliver(last);
            let elements = count(&held);
            let full = useful >= elements;
            let little = manner.sparse > 0 && useful.saturating_mul(manner.sparse) < elements;
            let mut pieces: Vec<Section> = vec![];
            if write && !full {
                pieces.extend(table.into_iter().map(|piece| piece.section));
                if !little && rewrites(&job.descriptor, &held, &pieces, manner) {
                    pieces.clear();
                }
            }
            needed.push(Needed { owner: *owner, array: tile.array, held, full, pieces });
        }
        (needed, loads)
    }

    fn added_up(
        &self,
        tiles: &[(u32, Tile)],
        write: bool,
        regions: &[Vec<Members>],
    ) -> (Vec<Needed>, Loads) {
        let (mut needed, mut loads) = (vec![], Loads::new(self.ranks));
        let mut sorted: Vec<&(u32, Tile)> = tiles.iter().collect();
        sorted.sort_by_key(|(owner, tile)| (tile.array, tile.region, *owner));
        for group in sorted.chunk_by(|a, b| (a.1.array, a.1.region) == (b.1.array, b.1.region)) {
            let (array, region) = (group[0].1.array, group[0].1.region);
            let members = &regions[array as usize][region as usize];
            let Some(job) = self.plan.job(array) else { continue };
            let total: i128 = members.each.iter().map(|m| m.bytes).sum();
            let mut shares = vec![];
            for (owner, tile) in group {
                let bounds = bounds(&tile.section);
                let (mut count, mut bytes) = ((members.each.len() as i128) * PARTS, total);
                for (line, (low, high)) in members.axes.iter().zip(&bounds) {
                    let intersection = i128::from(line.intersection(*low, *high));
                    count = scaled(count, intersection, i128::from(line.count));
                    bytes = scaled(bytes, line.within(*low, *high), line.weight);
                }
                if bytes == 0 {
                    continue;
                }
                let (packets, own) = (whole(count).max(1), whole(bytes));
                loads.end(*owner, packets, own, !write, true);
                let elements = tile.section.count().unwrap_or(i64::MAX);
                needed.push(Needed {
                    owner: *owner,
                    array,
                    held: tile.section.clone(),
                    full: own >= elements.saturating_mul(job.descriptor.item),
                    pieces: vec![],
                });
                shares.push((bounds, bytes));
            }
            let tiles: Vec<Line> = (0..members.axes.len())
                .map(|d| Line::new(shares.iter().map(|(b, bytes)| (b[d].0, b[d].1, *bytes))))
                .collect();
            let all: i128 = shares.iter().map(|(_, bytes)| bytes).sum();
            let mut found = vec![];
            for member in &members.each {
                let (mut count, mut bytes) =
                    ((shares.len() as i128) * PARTS, scaled(all, member.bytes, total));
                let mut fewest = i64::MAX;
                for ((line, others), (low, high)) in
                    tiles.iter().zip(&members.axes).zip(&member.bounds)
                {
                    let intersection = i128::from(line.intersection(*low, *high));
                    count = scaled(count, intersection, i128::from(line.count));
                    // The bytes of this round in the member's interval, times the member's share of
                    // all bytes there, along the axis on which this is most selective.
                    let beside = others.intersection(*low, *high);
                    if beside < fewest {
                        fewest = beside;
                        let there = others.within(*low, *high);
                        bytes = scaled(line.within(*low, *high), member.bytes, there);
                    }
                }
                if bytes > 0 {
                    found.push((member.rank, whole(count).max(1), bytes));
                }
            }
            // Owners and members have the same total in this round.
            let sum: i128 = found.iter().map(|(_, _, bytes)| bytes).sum();
            for (rank, packets, bytes) in found {
                loads.end(rank, packets, whole(scaled(all, bytes, sum)), write, false);
            }
        }
        needed.sort_by_key(|n| n.owner);
        (needed, loads)
    }
}

/// Returns whether a tile is rewritten instead of writing its pieces, as in `collective/holes.rs`.
fn rewrites(
    descriptor: &ArrayDescriptor,
    held: &Section,
    pieces: &[Section],
    manner: &Manner,
) -> bool {
    let Some(price) = manner.price.filter(|_| pieces.len() <= PRICED) else { return true };
    let of = |section| price.of(&Stream::new(descriptor, section, 0, manner));
    let apart = pieces.iter().map(of).fold(0_i64, i64::saturating_add);
    of(held).saturating_mul(2) < apart
}

/// Converts units of `PARTS` to bytes, rounded.
fn whole(parts: i128) -> i64 {
    i64::try_from((parts + PARTS / 2) / PARTS).unwrap_or(i64::MAX >> 8)
}

fn bounds(section: &Section) -> Vec<(i64, i64)> {
    section.ranges().iter().map(|r| (r.start, r.stop())).collect()
}
