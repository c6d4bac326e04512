//! Block-cyclic assignment of the tiles of an array to its owners, one by one.
//!
//! Problem: with [`Cut::Cyclic`](super::Cut::Cyclic) the tiles of an owner are scattered over the
//! array. A list of them would grow with the number of elements.
//!
//! Approach: the tiles of all regions are numbered consecutively; tile `g` is the `g / S`-th tile
//! of share `g % S`. Bisection in the sums of tiles finds its region, and arithmetic gives its
//! section. The tiles of a share are a [`CyclicPart`]: two numbers. If there are few tiles, each is
//! a separate span, so that tiles of small regions, or of several arrays, share slots as their
//! sizes allow.
//!
//! Invariants: each tile is in one part. Memory is O(shares + regions), whatever the number of
//! tiles.
//!
//! Reference: Thakur and Choudhary, section 6 (block-cyclic).

use alloc::vec::Vec;

use super::domains::Share;
use super::parts::{CyclicPart, Part, Span};
use super::tiles::Tiling;

/// Maximum number of tiles per share and region for which each tile is a separate span.
const FEW: i64 = 4;

/// Block-cyclic assignment of the tiles of an array to its owners.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BlockCyclic {
    /// Number of tiles of the regions up to and including each one.
    ends: Vec<i64>,
    shares: i64,
    /// Maximum bytes of a tile.
    longest: i64,
}

impl BlockCyclic {
    /// The assignment for an array with at least one share.
    pub fn new(tilings: &[Tiling], shares: usize) -> BlockCyclic {
        let mut sum = 0_i64;
        let end = |tiling: &Tiling| {
            sum = sum.saturating_add(tiling.tiles(0, tiling.units()));
            sum
        };
        let ends = tilings.iter().map(end).collect();
        let longest = tilings.iter().map(Tiling::tile_bytes).max().unwrap_or(0);
        BlockCyclic { ends, shares: shares.max(1) as i64, longest }
    }

    /// Maximum bytes of a tile.
    pub fn tile_bytes(&self) -> i64 {
        self.longest
    }

    fn all(&self) -> i64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Number of tiles of a part.
    pub fn tiles(&self, cyclic_part: CyclicPart) -> i64 {
        (self.all() - i64::from(cyclic_part.share) + self.shares - 1) / self.shares
    }

    /// Region and number in the region of tile `k` of a part.
    pub fn tile(&self, cyclic_part: CyclicPart, k: i64) -> (u32, i64) {
        self.place(i64::from(cyclic_part.share) + k * self.shares)
    }

    /// Region and number in the region of a tile, given its number among all tiles.
    fn place(&self, tile: i64) -> (u32, i64) {
        let region = self.ends.partition_point(|end| *end <= tile);
        (region as u32, tile - self.before(region))
    }

    fn before(&self, region: usize) -> i64 {
        region.checked_sub(1).map_or(0, |k| self.ends[k])
    }

    /// The parts of the owners, in order: cyclic parts, or a span for each tile if there are few.
    pub fn parts(&self, array: u32, tilings: &[Tiling], shares: &[Share]) -> Vec<(u32, Part)> {
        let few = FEW.saturating_mul(self.shares + self.ends.len() as i64);
        if self.all() > few {
            let cyclic_part = |(share, own): (u32, &Share)| {
                (own.rank, Part::CyclicPart(CyclicPart { array, share }))
            };
            return (0..).zip(shares).map(cyclic_part).collect();
        }
        let span = |tile: i64| {
            let (region, n) = self.place(tile);
            let tiling = tilings.get(region as usize)?;
            let (low, high) = tiling.units_of_tile(0, tiling.units(), n)?;
            let rank = shares[(tile % self.shares) as usize].rank;
            Some((rank, Part::Span(Span { array, region, low, high })))
        };
        (0..self.all()).filter_map(span).collect()
    }

    /// Spans with as many tiles as a part has of each region, but consecutive ones.
    ///
    /// No two parts have the same tiles.
    pub fn rows<'a>(
        &'a self,
        cyclic_part: CyclicPart,
        tilings: &'a [Tiling],
    ) -> impl Iterator<Item = Span> + 'a {
        let row = move |(k, tiling): (usize, &Tiling)| {
            let tiles = self.ends[k] - self.before(k);
            let turn = (i64::from(cyclic_part.share) - self.before(k)).rem_euclid(self.shares);
            let (each, more) = (tiles / self.shares, tiles % self.shares);
            let first = turn * each + turn.min(more);
            let count = each + i64::from(turn < more);
            let units = tiling.units();
            let (low, _) = tiling.units_of_tile(0, units, first).filter(|_| count > 0)?;
            let (_, high) = tiling.units_of_tile(0, units, first + count - 1)?;
            Some(Span { array: cyclic_part.array, region: k as u32, low, high })
        };
        tilings.iter().enumerate().filter_map(row)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::collective::batches::Batches;
    use crate::collective::{regions, Access, Agreed, ArrayDescriptor, Collective, Cut, Job, Tile};
    use crate::section::{Range, Section};

    /// All tiles in a list, assigned one after another; the reference for [`BlockCyclic`].
    fn listed(tilings: &[Tiling], shares: &[Share]) -> Vec<(u32, Span)> {
        let (mut spans, mut turn) = (Vec::new(), 0);
        for (region, tiling) in tilings.iter().enumerate() {
            let mut low = 0;
            let units = tiling.units();
            while low < units {
                let high = tiling.end_of_tile(low).min(units);
                let span = Span { array: 0, region: region as u32, low, high };
                spans.push((shares[turn % shares.len()].rank, span));
                (turn, low) = (turn + 1, high);
            }
        }
        spans
    }

    fn descriptor(
        shape: &[i64],
        grain: &[i64],
        turned: bool,
        lead: Option<i64>,
    ) -> ArrayDescriptor {
        let mut order: Vec<usize> = (0..shape.len()).collect();
        if turned {
            order.reverse();
        }
        ArrayDescriptor {
            shape: shape.to_vec(),
            item: 4,
            order,
            grain: grain.to_vec(),
            encoded: false,
            lead,
        }
    }

    fn range(len: i64) -> impl Strategy<Value = Range> {
        (0..len, 1..=len, 1..4_i64)
            .prop_map(move |(a, n, s)| Range::new(a, n.min((len - a + s - 1) / s), s).unwrap())
    }

    fn access((rank, ranges): (usize, Vec<Range>)) -> Access {
        Access { rank: rank as u32, item: 0, section: Section::new(ranges) }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

        /// Compares the owner, order and batch of each tile with the list.
        #[test]
        fn a_deal_is_the_list_of_its_tiles(
            boxes in prop::collection::vec((range(24), range(18), range(7)), 1..6),
            turned in any::<bool>(), chunk in 1..4_i64, ranks in 1..6_u32, backward in any::<bool>(),
            slot in prop_oneof![40..400_i64, 400..9000_i64], least in 1..300_i64, gap in 0..200_i64, lead in prop::option::of(0..64_i64),
        ) {
            let descriptor = descriptor(&[24, 18, 7], &[chunk, 1, chunk], turned, lead);
            let boxes = boxes.into_iter().map(|(a, b, c)| vec![a, b, c]);
            let accesses: Vec<Access> = boxes.enumerate().map(access).collect();
            let share = |k: u32| Share { rank: if backward { ranks - 1 - k } else { k }, part: 1 };
            let shares: Vec<Share> = (0..ranks).map(share).collect();
            let all = ranks.max(accesses.len() as u32);
            let agreed = Agreed {
                ranks: all, slot, gap, align: 64, least, cut: Cut::Cyclic, write: false,
            };
            let job = Job { descriptor: descriptor.clone(), accesses: accesses.clone(), shares: shares.clone() };
            let plan = Collective::new(vec![job], &agreed).unwrap();
            let tilings = &plan.jobs[0].tilings;
            prop_assert_eq!(plan.regions(0), &regions(&descriptor, &accesses, gap)[..]);
            let list = listed(tilings, &shares);
            let cyclic = plan.jobs[0].cyclic.as_ref().unwrap();
            for owner in 0..all {
                let mine: Vec<Span> =
                    list.iter().filter(|(rank, _)| *rank == owner).map(|(_, span)| *span).collect();
                prop_assert_eq!(mine.len() as i64, plan.tiles(owner));
                for (n, span) in (0..).zip(&mine) {
                    let section = tilings[span.region as usize].tile(span.low, span.high, 0).unwrap();
                    let tile = Tile { array: 0, region: span.region, section };
                    prop_assert_eq!(Some(tile), plan.tile(owner, n));
                }
                prop_assert_eq!(None, plan.tile(owner, mine.len() as i64));
                // In batches, tiles of several regions get the space of the longest tile.
                let bytes = |span: &Span| tilings[span.region as usize].tile_bytes();
                let size = |part: &Part| match part {
                    Part::Span(span) => (1, bytes(span)),
                    Part::CyclicPart(_) => (0, 0),
                };
                let spans = mine.iter().copied().map(Part::Span).collect();
                let listed = Batches::new(spans, size, least, slot.max(cyclic.tile_bytes()));
                let few = list.len() as i64 <= FEW * (i64::from(ranks) + tilings.len() as i64);
                if few || tilings.len() == 1 {
                    for k in 0..listed.rounds() {
                        prop_assert_eq!(listed.batch(k), plan.batch(owner, k));
                    }
                    for n in 0..plan.tiles(owner) {
                        prop_assert_eq!(listed.place(n), plan.place(owner, n));
                    }
                }
            }
        }

        /// Checks that rows have as many tiles as the part, and that no tile is in two rows.
        #[test]
        fn rows_are_all_tiles(sizes in prop::collection::vec(1..40_i64, 1..6), shares in 1..9_u32) {
            let tiling = |rows: i64| {
                let descriptor = descriptor(&[40, 16], &[1, 1], false, None);
                let section = Section::new(vec![Range::new(0, rows, 1).unwrap(), Range::new(0, 16, 1).unwrap()]);
                let region = crate::collective::Region { section, members: vec![] };
                Tiling::new(&descriptor, &region, 64, 64, 1).unwrap()
            };
            let tilings: Vec<Tiling> = sizes.iter().copied().map(tiling).collect();
            let cyclic = BlockCyclic::new(&tilings, shares as usize);
            let mut seen = alloc::collections::BTreeSet::new();
            for share in 0..shares {
                let cyclic_part = CyclicPart { array: 0, share };
                let mut tiles = 0;
                for row in cyclic.rows(cyclic_part, &tilings) {
                    tiles += row.high - row.low;
                    prop_assert!((row.low..row.high).all(|unit| seen.insert((row.region, unit))));
                }
                prop_assert_eq!(cyclic.tiles(cyclic_part), tiles);
            }
            prop_assert_eq!(sizes.iter().sum::<i64>(), seen.len() as i64);
        }
    }
}
