//! Messages of a round of two-phase: how much this rank sends to whom and receives from whom, in parts that
//! fit its buffer.
//!
//! Problem. A message can be as large as a slot, and there are as many as ranks; the buffer for all of them
//! may be two slots. And a rank that asks for the same elements several times gets more of a tile than the
//! tile holds: then one message is larger than the buffer.
//!
//! Idea. In part `p` of a round ranks exchange whose numbers add up to something in the `p`-th interval, modulo
//! their number: each rank has about as many partners in each part, and every pair knows its part without
//! asking. All ranks halve the interval as often as the rank with most to say needs it. Messages that are
//! larger than a slot even then go in packets (`packets.rs`), one in each part. Where the order of the ranks
//! counts (`Collective::in_order`) sums are not taken modulo their number, so that an owner hears of lower
//! ranks first.
//!
//! Invariants. What a rank sends in a part another one expects in the same part. `largest(need())` is two slots
//! at most, or a packet where there is nothing smaller.

use alloc::vec;
use alloc::vec::Vec;

use super::packets::Packets;
use super::plan::{Collective, Piece, Tile};

/// Bytes for each rank, by packet.
type Counts = Vec<Vec<i64>>;

/// What a rank sends and receives in a round.
#[derive(Debug, Clone)]
pub struct Messages {
    sent: Counts,
    received: Counts,
    /// Bytes of a slot: of a packet, too.
    most: i64,
    /// Where each rank is in the line of which parts are intervals.
    place: Vec<usize>,
    /// The length of the line, and how often it can be halved.
    line: usize,
    halvings: u32,
}

/// What is sent and received at once: bytes for and from each rank, and which packet of the messages that is
/// if there are several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessagePart {
    /// Bytes for each rank.
    pub sent: Vec<i64>,
    /// Bytes from each rank.
    pub received: Vec<i64>,
    /// Number of the packet.
    pub packet: Option<usize>,
}

/// Who exchanges by messages in a round.
#[derive(Debug, Clone, Copy)]
pub struct Peers<'a> {
    /// Number of ranks.
    pub ranks: usize,
    /// This rank.
    pub me: u32,
    /// Whether its own tiles are exchanged.
    pub owns: bool,
    /// Ranks that it exchanges with as an owner.
    pub partners: &'a [u32],
    /// Owners that it exchanges with.
    pub owners: &'a [u32],
}

impl Messages {
    /// Those of round `k`.
    pub fn new(plan: &Collective, k: i64, peers: &Peers, write: bool) -> Messages {
        let Peers { ranks, me, owns, partners, owners } = *peers;
        let most = plan.slot_bytes();
        // What owners have of others, and what this rank has of owners.
        let (mut tiles, mut sections) = (vec![vec![0; ranks]], vec![vec![0; ranks]]);
        if owns {
            let counts = plan.bytes_by_rank(me, k, ranks);
            for &rank in partners {
                let bytes = counts.get(rank as usize).copied().unwrap_or(0);
                put(&mut tiles, rank, bytes, most, || plan.packets(me, k, rank, most));
            }
        }
        for &owner in owners {
            let bytes = plan.bytes_between(owner, k, me);
            put(&mut sections, owner, bytes, most, || plan.packets(owner, k, me, most));
        }
        let (sent, received) = if write { (sections, tiles) } else { (tiles, sections) };
        let line = if plan.in_order() { 2 * ranks - 1 } else { ranks };
        let place = |rank: usize| {
            let sum = rank + me as usize;
            if plan.in_order() {
                sum
            } else {
                sum % ranks.max(1)
            }
        };
        let halvings = line.saturating_sub(1).checked_ilog2().map_or(0, |bits| bits + 1);
        Messages { sent, received, most, place: (0..ranks).map(place).collect(), line, halvings }
    }

    /// How often all ranks have to halve the interval for this one; beyond that, how many more packets it needs.
    pub fn need(&self) -> u32 {
        let packets = self.sent.len().max(self.received.len());
        if packets > 1 {
            return self.halvings + packets as u32 - 1;
        }
        let room = self.most.saturating_mul(2);
        (0..self.halvings).find(|need| self.largest(*need) <= room).unwrap_or(self.halvings)
    }

    /// How wide the interval of a part is, and how many packets a message may have.
    fn widths(&self, need: u32) -> (usize, usize) {
        let width = 1 << self.halvings.saturating_sub(need).min(usize::BITS - 2);
        (width, need.saturating_sub(self.halvings) as usize + 1)
    }

    /// Bytes that this rank sends and receives at once, at most, if all halve so often.
    pub fn largest(&self, need: u32) -> i64 {
        let (width, packets) = self.widths(need);
        let parts = self.line.div_ceil(width);
        let mut largest = 0;
        for packet in 0..packets {
            let mut sums = vec![0_i64; parts];
            for counts in [&self.sent, &self.received] {
                for (bytes, place) in counts.get(packet).into_iter().flatten().zip(&self.place) {
                    sums[place / width] = sums[place / width].saturating_add(*bytes);
                }
            }
            largest = sums.into_iter().fold(largest, i64::max);
        }
        largest
    }

    /// Part `number` of the round, if all halve so often; None behind the last one.
    pub fn part(&self, need: u32, number: usize) -> Option<MessagePart> {
        let (width, packets) = self.widths(need);
        let (first, packet) = (number / packets * width, number % packets);
        if first >= self.line {
            return None;
        }
        let inside = |counts: &Counts| {
            let mut some = vec![0; self.place.len()];
            if let Some(counts) = counts.get(packet) {
                for ((one, bytes), place) in some.iter_mut().zip(counts).zip(&self.place) {
                    if (first..first + width).contains(place) {
                        *one = *bytes;
                    }
                }
            }
            some
        };
        let (sent, received) = (inside(&self.sent), inside(&self.received));
        Some(MessagePart { sent, received, packet: (packets > 1).then_some(packet) })
    }
}

/// Notes a message of so many bytes; one that is larger than `most` in packets.
fn put(counts: &mut Counts, rank: u32, bytes: i64, most: i64, cut: impl FnOnce() -> Vec<i64>) {
    let Some(ranks) = counts.first().map(Vec::len) else { return };
    let packets = if bytes > most { cut() } else { vec![bytes] };
    while counts.len() < packets.len() {
        counts.push(vec![0; ranks]);
    }
    for (row, bytes) in counts.iter_mut().zip(packets) {
        if let Some(count) = row.get_mut(rank as usize) {
            *count = bytes;
        }
    }
}

impl Collective {
    /// Bytes that each rank wants of an owner's tiles of round `k`.
    pub fn bytes_by_rank(&self, owner: u32, k: i64, ranks: usize) -> Vec<i64> {
        self.bytes_of_tiles(owner, self.batch(owner, k), ranks)
    }

    /// Bytes that each rank wants of a range of an owner's tiles.
    pub fn bytes_of_tiles(
        &self,
        owner: u32,
        tiles: core::ops::Range<i64>,
        ranks: usize,
    ) -> Vec<i64> {
        let mut counts = vec![0; ranks];
        for tile in tiles.filter_map(|n| self.tile(owner, n)) {
            let Some(job) = self.job(tile.array) else { continue };
            for piece in self.table(&tile) {
                let rank = job.accesses.get(piece.access as usize).map_or(0, |access| access.rank);
                if let Some(count) = counts.get_mut(rank as usize) {
                    *count += self.piece_bytes(&tile, &piece);
                }
            }
        }
        counts
    }

    /// Bytes that a rank wants of an owner's tiles of round `k`.
    fn bytes_between(&self, owner: u32, k: i64, rank: u32) -> i64 {
        self.pieces_between(owner, k, rank).sum()
    }

    /// The same in packets of at most `most` bytes: what each holds.
    pub fn packets(&self, owner: u32, k: i64, rank: u32, most: i64) -> Vec<i64> {
        let (mut packets, mut held) = (Packets::new(most), Vec::new());
        for bytes in self.pieces_between(owner, k, rank) {
            let number = packets.next(bytes);
            held.resize(held.len().max(number + 1), 0);
            held[number] += bytes;
        }
        held
    }

    /// Bytes of the pieces of a message, in their order.
    fn pieces_between(&self, owner: u32, k: i64, rank: u32) -> impl Iterator<Item = i64> + '_ {
        let tiles = self.batch(owner, k).filter_map(move |n| self.tile(owner, n));
        tiles.flat_map(move |tile| {
            let bytes = |piece: &Piece| self.piece_bytes(&tile, piece);
            self.pieces(&tile, rank).iter().map(bytes).collect::<Vec<_>>()
        })
    }

    /// Bytes of a piece.
    pub fn piece_bytes(&self, tile: &Tile, piece: &Piece) -> i64 {
        let item = self.job(tile.array).map_or(0, |job| job.descriptor.item);
        piece.section.count().unwrap_or(0) * item
    }
}

#[cfg(test)]
mod tests;
