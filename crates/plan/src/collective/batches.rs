//! Batches: tiles of an owner that share a round.
//!
//! Problem: a round costs a synchronisation of all ranks. Hundreds of small arrays have one tile
//! each, and would take one round each.
//!
//! Approach: the tiles of an owner are numbered, span by span. Consecutive spans of a single tile
//! share a slot, as many as fit. A span of several tiles fills slots by itself, and so does a part
//! of a block-cyclic assignment, with as many tiles in a slot as fit. A batch is at most a quarter
//! of the owner's bytes, so that the owner has tiles to read while the other ranks copy.
//!
//! Invariants: memory and time are O(spans and parts), whatever the number of tiles. Batches of an
//! owner are ranges of its tiles, one after another; tiles in a slot begin at pages.

use alloc::vec::Vec;
use core::ops::Range;

use super::parts::Part;
use crate::address::PAGE;

/// Minimum number of batches of an owner, if they are larger than the least tile.
const BATCHES: i64 = 4;

#[derive(Debug, Clone)]
struct Packed {
    part: Part,
    /// Number of tiles before the part's first one, and of batches before the batch of that tile.
    tile: i64,
    batch: i64,
    /// Position of the part's first tile in the slot.
    place: i64,
    /// Number of the part's tiles in a batch, and bytes from one of them to the next.
    each: i64,
    apart: i64,
}

/// The parts that one rank owns, packed into batches.
#[derive(Debug, Clone)]
pub(super) struct Batches {
    packed: Vec<Packed>,
    tiles: i64,
    batches: i64,
    bytes: i64,
}

impl Batches {
    /// Packs parts into batches.
    ///
    /// `size` returns the number of tiles of a part and the maximum bytes of a tile. A batch of
    /// several tiles has at most `most` bytes.
    pub fn new(
        parts: Vec<Part>,
        size: impl Fn(&Part) -> (i64, i64),
        least: i64,
        most: i64,
    ) -> Batches {
        let all = parts.iter().fold(0_i64, |sum, part| {
            let (tiles, bytes) = size(part);
            sum.saturating_add(tiles.saturating_mul(bytes))
        });
        let cap = (all / BATCHES).clamp(least.min(most), most);
        let pages = |bytes: i64| bytes.saturating_add(PAGE - 1) & -PAGE;
        let (mut tile, mut batch, mut bytes) = (0_i64, 0_i64, 0_i64);
        // Bytes of the last batch, if more tiles can be added to it.
        let mut open: Option<i64> = None;
        let mut packed = Vec::with_capacity(parts.len());
        for part in parts {
            let (tiles, long) = size(&part);
            if tiles == 0 {
                continue; // A part without tiles.
            }
            let place = open.map_or(0, pages);
            let joins = open.is_some() && tiles == 1 && place.saturating_add(long) <= cap;
            let (number, place) = if joins { (batch - 1, place) } else { (batch, 0) };
            let apart = pages(long);
            let each = match part {
                Part::CyclicPart(_) if long <= cap => ((cap - long) / apart.max(1) + 1).min(tiles),
                _ => 1,
            };
            packed.push(Packed { part, tile, batch: number, place, each, apart });
            tile = tile.saturating_add(tiles);
            if !joins {
                batch = batch.saturating_add((tiles - 1) / each + 1);
            }
            bytes = bytes.max(place.saturating_add((each - 1) * apart).saturating_add(long));
            open = (tiles == 1).then_some(place.saturating_add(long));
        }
        Batches { packed, tiles: tile, batches: batch, bytes }
    }

    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        self.packed.iter().map(|packed| &packed.part)
    }

    /// Number of tiles.
    pub fn tiles(&self) -> i64 {
        self.tiles
    }

    /// Number of batches.
    pub fn rounds(&self) -> i64 {
        self.batches
    }

    /// Bytes of the largest batch.
    pub fn bytes(&self) -> i64 {
        self.bytes
    }

    fn at_tile(&self, n: i64) -> Option<&Packed> {
        let after = self.packed.partition_point(|packed| packed.tile <= n);
        self.packed.get(after.checked_sub(1)?)
    }

    /// The part of a tile, and the number of the part's first tile.
    pub fn of_tile(&self, n: i64) -> Option<(&Part, i64)> {
        self.at_tile(n).map(|packed| (&packed.part, packed.tile))
    }

    /// Position of a tile in the slot.
    pub fn place(&self, n: i64) -> i64 {
        let place = |p: &Packed| p.place + (n - p.tile) % p.each * p.apart;
        self.at_tile(n).map_or(0, place)
    }

    /// The tiles of batch `k`.
    pub fn batch(&self, k: i64) -> Range<i64> {
        if k < 0 || k >= self.batches {
            return self.tiles..self.tiles;
        }
        // The last part that begins in this batch or before it, and the first part of that batch.
        let after = self.packed.partition_point(|packed| packed.batch <= k);
        let Some(last) = after.checked_sub(1).map(|n| &self.packed[n]) else { return 0..0 };
        let end = self.packed.get(after).map_or(self.tiles, |packed| packed.tile);
        // A part of several tiles has its batches to itself.
        if last.batch < k || last.place == 0 && end - last.tile > 1 {
            let n = last.tile + (k - last.batch) * last.each;
            return n..(n + last.each).min(end);
        }
        let first = self.packed.partition_point(|packed| packed.batch < k);
        self.packed[first].tile..end
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::collective::parts::{CyclicPart, Span};

    fn span(array: u32) -> Part {
        Part::Span(Span { array, region: 0, low: 0, high: 1 })
    }

    fn array(part: &Part) -> usize {
        match part {
            Part::Span(span) => span.array as usize,
            Part::CyclicPart(cyclic_part) => cyclic_part.array as usize,
        }
    }

    /// Batches of spans with the given numbers of tiles and bytes of each tile.
    fn batches(sizes: &[(i64, i64)], least: i64, most: i64) -> Batches {
        let spans = (0..sizes.len() as u32).map(span).collect();
        Batches::new(spans, |span| sizes[array(span)], least, most)
    }

    #[test]
    fn small_arrays_share_rounds() {
        let many = batches(&[(1, 65_536); 50], 262_144, 8 << 20);
        assert_eq!((50, 5), (many.tiles(), many.rounds()));
        assert_eq!(0..12, many.batch(0));
        assert_eq!(48..50, many.batch(4));
        assert_eq!(50..50, many.batch(5));
        assert_eq!((0, 65_536, 0), (many.place(0), many.place(1), many.place(12)));
        assert_eq!(12 * 65_536, many.bytes());
        let mixed = batches(&[(1, 10), (3, 100), (1, 10), (0, 50), (1, 20)], 9999, 1 << 20);
        let all: Vec<_> = (0..mixed.rounds()).map(|k| mixed.batch(k)).collect();
        assert_eq!(vec![0..1, 1..2, 2..3, 3..4, 4..6], all);
        assert_eq!(vec![0, 0, 0, 0, 0, PAGE], (0..6).map(|n| mixed.place(n)).collect::<Vec<_>>());
    }

    #[test]
    fn hands_fill_slots() {
        let parts =
            vec![span(0), Part::CyclicPart(CyclicPart { array: 1, share: 0 }), span(2), span(2)];
        let sizes = [(1, 10), (7, 5000), (1, 10)];
        let made = Batches::new(parts, |part| sizes[array(part)], 20_000, 1 << 20);
        let all: Vec<_> = (0..made.rounds()).map(|k| made.batch(k)).collect();
        assert_eq!(vec![0..1, 1..3, 3..5, 5..7, 7..8, 8..10], all);
        assert_eq!((0, 2 * PAGE, 0), (made.place(1), made.place(2), made.place(3)));
        assert_eq!(2 * PAGE + 5000, made.bytes());
    }

    proptest! {
        #[test]
        fn batches_are_the_tiles_in_order(
            sizes in prop::collection::vec((0..5_i64, 1..20_000_i64), 0..30),
            assigned in any::<u32>(),
            least in 1..50_000_i64,
            most in 20_000..100_000_i64,
        ) {
            let cyclic_part = |array| Part::CyclicPart(CyclicPart { array, share: 0 });
            let part = |k| if assigned >> k & 1 == 1 { cyclic_part(k) } else { span(k) };
            let parts = (0..sizes.len() as u32).map(part).collect();
            let made = Batches::new(parts, |part| sizes[array(part)], least, most);
            prop_assert_eq!(sizes.iter().map(|(tiles, _)| tiles).sum::<i64>(), made.tiles());
            prop_assert!(made.bytes() <= most);
            let (mut next, size) = (0, |n| sizes[array(made.of_tile(n).unwrap().0)].1);
            for k in 0..made.rounds() {
                let batch = made.batch(k);
                prop_assert!(batch.start == next && batch.end > next);
                next = batch.end;
                let mut free = 0;
                for n in batch.clone() {
                    prop_assert!(made.place(n) >= free && made.place(n) % PAGE == 0);
                    free = made.place(n) + size(n);
                    prop_assert!(free <= made.bytes());
                }
                prop_assert_eq!(0, made.place(batch.start));
            }
            prop_assert_eq!(next, made.tiles());
            prop_assert!(made.batch(made.rounds()).is_empty() && made.batch(-1).is_empty());
        }
    }
}
