//! What goes between the ranks in one round, and what owners need of their tiles.
//!
//! Exactly, from the table of each tile, as long as that is at most [`EXACT`] intersections in all.
//! Beyond (10^5 ranks that all want something of 10^5 tiles send 10^10 messages) sums along the slowest
//! axis: how many members of a region meet a tile, and how many tiles of this round a member meets, is
//! a difference of two ranks in sorted lists; how many bytes, one of two prefix sums. Both are exact for
//! sections without steps whose members agree on the other axes; else messages are counted that could
//! be left out, and bytes are spread evenly over a member's extent.

use super::{time, Machine, Manner};
use crate::collective::{hull, Collective, Tile};
use crate::section::Section;

/// Most intersections that are looked at.
const EXACT: i64 = 1 << 24;
/// Parts of a byte, in sums.
const PARTS: i128 = 1 << 10;

/// What one owner has to do for its tile.
pub(super) struct Needed {
    pub owner: u32,
    pub array: u32,
    /// The smallest section that holds what is wanted.
    pub held: Section,
    /// Whether all of it is wanted (given).
    pub full: bool,
    /// What is written alone, because it is little of the tile.
    pub pieces: Vec<Section>,
}

/// What ranks send, get and copy in one round.
#[derive(Default)]
pub(super) struct Loads {
    /// Of each rank: messages at either end, bytes out, bytes in, bytes copied.
    of: Vec<(i64, i64, i64, i64)>,
    pub messages: i64,
    pub bytes: i64,
}

impl Loads {
    fn new(ranks: u32) -> Loads {
        Loads { of: vec![(0, 0, 0, 0); ranks as usize], ..Loads::default() }
    }

    fn letter(&mut self, from: u32, to: u32, bytes: i64, per_node: u32) {
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

    /// One end of many messages.
    fn end(&mut self, rank: u32, messages: i64, bytes: i64, out: bool) {
        let load = &mut self.of[rank as usize];
        load.0 += messages;
        *(if out { &mut load.1 } else { &mut load.2 }) += bytes;
        load.3 += bytes;
        if out {
            self.messages += messages;
            self.bytes += bytes;
        }
    }

    /// How long the slowest node takes.
    pub fn ns(&self, machine: &Machine) -> i64 {
        let node = |ranks: &[(i64, i64, i64, i64)]| {
            let busy =
                |r: &(i64, i64, i64, i64)| r.0 * machine.message_ns + time(r.3, machine.copy_rate);
            let own = ranks.iter().map(busy).max().unwrap_or(0);
            let (out, home) = ranks.iter().fold((0, 0), |(a, b), r| (a + r.1, b + r.2));
            own + time(i64::max(out, home), machine.message_rate)
        };
        self.of.chunks(machine.per_node as usize).map(node).max().unwrap_or(0)
    }
}

/// Members of a region along the slowest axis.
struct Members {
    /// Rank, first index, one past the last, bytes at each index in parts.
    each: Vec<(u32, i64, i64, i128)>,
    starts: Sums,
    stops: Sums,
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

/// How many of the intervals meet `low..high`, and what of their weight lies in it.
fn within(starts: &Sums, stops: &Sums, low: i64, high: i64) -> (i64, i128) {
    // An interval that ends at `low` does not meet it.
    let count = starts.below(high) - stops.below(low + 1);
    let weight = |x| starts.at(x) - stops.at(x);
    (count as i64, weight(high) - weight(low))
}

/// Answers for each round of a plan.
pub(super) struct Exchanges<'a> {
    plan: &'a Collective,
    ranks: u32,
    /// Of each region of each array; none where tables are looked at.
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
            let slowest = job.ground.order.first();
            let member = |k: &u32| {
                let access = &job.accesses[*k as usize];
                let bytes = i128::from(access.section.count().unwrap_or(i64::MAX))
                    * i128::from(job.ground.item);
                let (low, high) = slowest.map_or((0, 1), |axis| {
                    let range = access.section.ranges()[*axis];
                    (range.start, range.stop())
                });
                (access.rank, low, high, bytes * PARTS / i128::from((high - low).max(1)))
            };
            let regions = plan.regions(array as u32).iter();
            regions
                .map(|region| {
                    let each: Vec<_> = region.members.iter().map(member).collect();
                    let starts = Sums::new(each.iter().map(|m| (m.1, m.3)).collect());
                    let stops = Sums::new(each.iter().map(|m| (m.2, m.3)).collect());
                    Members { each, starts, stops }
                })
                .collect()
        };
        (0..plan.arrays()).map(of_array).collect()
    }

    /// Round `k`: what owners need, and what goes between the ranks.
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
            .filter_map(|owner| Some((owner, self.plan.tile(owner, k)?)))
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
            let mut deliver = |letter: Option<(u32, i64)>| {
                if let Some((rank, bytes)) = letter {
                    let (from, to) = if write { (rank, *owner) } else { (*owner, rank) };
                    loads.letter(from, to, bytes, machine.per_node);
                }
            };
            for piece in &table {
                let elements = count(&piece.section);
                useful = useful.saturating_add(elements);
                let rank = job.accesses[piece.access as usize].rank;
                let bytes = elements * job.ground.item;
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
            let sparse = write && !full && little;
            let pieces = if sparse {
                table.into_iter().map(|piece| piece.section).collect()
            } else {
                vec![]
            };
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
            let whole = &self.plan.regions(array)[region as usize].section;
            let mut shares = vec![];
            for (owner, tile) in group {
                let elements = tile.section.count().unwrap_or(i64::MAX);
                let (low, high, share) = stretch(job.ground.order.first(), &tile.section, whole);
                shares.push((low, high, share));
                let (count, bytes) = within(&members.starts, &members.stops, low, high);
                let bytes = (bytes / PARTS * share / PARTS) as i64;
                if count == 0 {
                    continue;
                }
                loads.end(*owner, count, bytes, !write);
                needed.push(Needed {
                    owner: *owner,
                    array,
                    held: tile.section.clone(),
                    full: bytes >= elements.saturating_mul(job.ground.item),
                    pieces: vec![],
                });
            }
            let starts = Sums::new(shares.iter().map(|s| (s.0, s.2)).collect());
            let stops = Sums::new(shares.iter().map(|s| (s.1, s.2)).collect());
            for (rank, low, high, bytes) in &members.each {
                let (count, share) = within(&starts, &stops, *low, *high);
                loads.end(*rank, count, (bytes * share / PARTS / PARTS) as i64, write);
            }
        }
        needed.sort_by_key(|n| n.owner);
        (needed, loads)
    }
}

/// A tile along the slowest axis, and its part of the region there.
fn stretch(axis: Option<&usize>, tile: &Section, region: &Section) -> (i64, i64, i128) {
    let Some(axis) = axis else { return (0, 1, PARTS) };
    let range = tile.ranges()[*axis];
    let others = |s: &Section| {
        let counts = s.ranges().iter().enumerate().filter(|(d, _)| d != axis);
        counts.fold(1_i128, |n, (_, r)| n * i128::from(r.count))
    };
    (range.start, range.stop(), others(tile) * PARTS / others(region).max(1))
}
