//! Batches: which tiles of an owner share a round.
//!
//! Problem. A round costs a meeting of all ranks. Hundreds of small arrays have a tile each, and would
//! take a round each.
//!
//! Idea. Tiles of an owner are numbered, span by span. Spans of a single tile that follow each other share
//! a slot, as many as fit; a span of several tiles fills slots on its own. To leave the owner something to
//! read while the others copy, a batch is no larger than a quarter of what the owner has.
//!
//! Invariants. Memory and time are O(spans), whatever the number of tiles. Batches of an owner are
//! ranges of its tiles, one after another; tiles in a slot begin at pages.

use std::ops::Range;

use super::Span;

/// Tiles in a slot have pages of their own.
pub(super) const PAGE: i64 = 4096;
/// So many batches an owner has at least, where they are larger than the least tile.
const BATCHES: i64 = 4;

#[derive(Debug, Clone)]
struct Packed {
    span: Span,
    /// Tiles before its first one, and batches before the one that has it.
    tile: i64,
    batch: i64,
    /// Where its tile is in the slot.
    place: i64,
}

/// What one rank owns.
#[derive(Debug, Clone)]
pub(super) struct Batches {
    packed: Vec<Packed>,
    tiles: i64,
    batches: i64,
    bytes: i64,
}

impl Batches {
    /// `size` tells how many tiles a span has, and the bytes of one at most; no batch of several is
    /// larger than `most`.
    pub fn new(
        spans: Vec<Span>,
        size: impl Fn(&Span) -> (i64, i64),
        least: i64,
        most: i64,
    ) -> Batches {
        let all = spans.iter().fold(0_i64, |sum, span| {
            let (tiles, bytes) = size(span);
            sum.saturating_add(tiles.saturating_mul(bytes))
        });
        let cap = (all / BATCHES).clamp(least.min(most), most);
        let (mut tile, mut batch, mut bytes) = (0_i64, 0_i64, 0_i64);
        // Bytes of the batch that more can go into, if there is one: it is the last one so far.
        let mut open: Option<i64> = None;
        let mut packed = Vec::with_capacity(spans.len());
        for span in spans {
            let (tiles, each) = size(&span);
            if tiles == 0 {
                continue; // Nothing is owned by it.
            }
            let place = open.map_or(0, |held| held.saturating_add(PAGE - 1) & -PAGE);
            let joins = open.is_some() && tiles == 1 && place.saturating_add(each) <= cap;
            let (number, place) = if joins { (batch - 1, place) } else { (batch, 0) };
            packed.push(Packed { span, tile, batch: number, place });
            tile = tile.saturating_add(tiles);
            if !joins {
                batch = batch.saturating_add(tiles);
            }
            bytes = bytes.max(place.saturating_add(each));
            open = (tiles == 1).then_some(place.saturating_add(each));
        }
        Batches { packed, tiles: tile, batches: batch, bytes }
    }

    pub fn spans(&self) -> impl Iterator<Item = &Span> {
        self.packed.iter().map(|packed| &packed.span)
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

    /// The span of a tile, and the number of its first one.
    pub fn of_tile(&self, n: i64) -> Option<(&Span, i64)> {
        self.at_tile(n).map(|packed| (&packed.span, packed.tile))
    }

    /// Where in the slot a tile begins.
    pub fn place(&self, n: i64) -> i64 {
        self.at_tile(n).map_or(0, |packed| packed.place)
    }

    /// The tiles of batch `k`.
    pub fn batch(&self, k: i64) -> Range<i64> {
        if k < 0 || k >= self.batches {
            return self.tiles..self.tiles;
        }
        // The last span that begins in this batch or before it, and the first of that batch.
        let after = self.packed.partition_point(|packed| packed.batch <= k);
        let Some(last) = after.checked_sub(1).map(|n| &self.packed[n]) else { return 0..0 };
        let end = self.packed.get(after).map_or(self.tiles, |packed| packed.tile);
        if last.batch < k {
            let n = last.tile + (k - last.batch);
            return n..n + 1;
        }
        let first = self.packed.partition_point(|packed| packed.batch < k);
        let first = self.packed[first].tile;
        // A span of several tiles has its batch to itself, and the next ones.
        let alone = last.place == 0 && end - last.tile > 1;
        first..if alone { last.tile + 1 } else { end }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn span(array: u32) -> Span {
        Span { array, region: 0, low: 0, high: 1 }
    }

    /// Batches of spans with so many tiles, of so many bytes each.
    fn batches(sizes: &[(i64, i64)], least: i64, most: i64) -> Batches {
        let spans = (0..sizes.len() as u32).map(span).collect();
        Batches::new(spans, |span| sizes[span.array as usize], least, most)
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

    proptest! {
        #[test]
        fn batches_are_the_tiles_in_order(
            sizes in prop::collection::vec((0..5_i64, 1..20_000_i64), 0..30),
            least in 1..50_000_i64,
            most in 20_000..100_000_i64,
        ) {
            let made = batches(&sizes, least, most);
            prop_assert_eq!(sizes.iter().map(|(tiles, _)| tiles).sum::<i64>(), made.tiles());
            prop_assert!(made.bytes() <= most);
            let (mut next, size) = (0, |n| sizes[made.of_tile(n).unwrap().0.array as usize].1);
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
