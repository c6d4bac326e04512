//! Messages of a two-phase round, in parts that fit the buffer of a rank.
//!
//! They have the bytes that this rank sends to and receives from each rank.
//!
//! Problem: a message can be as large as a slot, and there are as many messages as ranks, but the
//! buffer for all of them may be two slots. In addition, a rank that requests the same elements
//! several times receives more bytes of a tile than the tile holds, so one message can be larger
//! than the buffer.
//!
//! Approach: in part `p` of a round, two ranks exchange if the sum of their numbers, modulo the
//! number of ranks, is in the `p`-th interval. Each rank then has about as many partners in each
//! part, and every pair can compute its part without communication. All ranks halve the interval as
//! often as the rank with most bytes needs it. Messages that are then still larger than a slot are
//! split into packets (`packets.rs`), one in each part. If the order of the ranks matters
//! (`Collective::in_order`), sums are not taken modulo the number of ranks, so that an owner
//! receives from lower ranks first.
//!
//! Invariants: a rank receives a message in the same part in which the other rank sends it.
//! `largest(need())` is at most two slots, or one packet if it cannot be smaller.

use alloc::vec;
use alloc::vec::Vec;

use super::packets::Packets;
use super::plan::{Collective, Piece, Tile};

/// Bytes for each rank, by packet.
type Counts = Vec<Vec<i64>>;

/// The messages of a rank in a round.
#[derive(Debug, Clone)]
pub struct Messages {
    sent: Counts,
    received: Counts,
    /// Bytes of a slot, which is also the maximum of a packet.
    most: i64,
    /// Position of each rank on the line whose intervals are parts.
    place: Vec<usize>,
    /// The length of the line, and the number of times that it can be halved.
    line: usize,
    halvings: u32,
}

/// Messages that are sent and received concurrently.
///
/// The fields are the bytes for and from each rank, and the number of the packet if messages have
/// several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessagePart {
    /// Bytes for each rank.
    pub sent: Vec<i64>,
    /// Bytes from each rank.
    pub received: Vec<i64>,
    /// Number of the packet; None if messages have one.
    pub packet: Option<usize>,
}

/// The partners of a rank that exchange by messages in a round.
#[derive(Debug, Clone, Copy)]
pub struct Peers<'a> {
    /// Number of ranks.
    pub ranks: usize,
    /// Number of this rank.
    pub me: u32,
    /// True if its own tiles are exchanged.
    pub owns: bool,
    /// Ranks that exchange with this rank as an owner.
    pub partners: &'a [u32],
    /// Owners that exchange with this rank.
    pub owners: &'a [u32],
}

impl Messages {
    /// The messages of round `k`.
    pub fn new(plan: &Collective, k: i64, peers: &Peers, write: bool) -> Messages {
        let Peers { ranks, me, owns, partners, owners } = *peers;
        let most = plan.slot_bytes();
        // Bytes of this rank's tiles for others, and bytes for this rank from owners.
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

    /// Number of halvings that this rank needs; beyond the maximum, the number of further packets.
    pub fn need(&self) -> u32 {
        let packets = self.sent.len().max(self.received.len());
        if packets > 1 {
            return self.halvings + packets as u32 - 1;
        }
        let room = self.most.saturating_mul(2);
        (0..self.halvings).find(|need| self.largest(*need) <= room).unwrap_or(self.halvings)
    }

    /// Width of the interval of a part, and the maximum number of packets of a message.
    fn widths(&self, need: u32) -> (usize, usize) {
        let width = 1 << self.halvings.saturating_sub(need).min(usize::BITS - 2);
        (width, need.saturating_sub(self.halvings) as usize + 1)
    }

    /// Maximum bytes that this rank sends and receives concurrently, after `need` halvings.
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

    /// Part `number` of the round, after `need` halvings; None after the last part.
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

/// Records a message of `bytes` bytes, in packets if it is larger than `most`.
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
    /// Bytes of an owner's tiles of round `k` that each rank requests.
    pub fn bytes_by_rank(&self, owner: u32, k: i64, ranks: usize) -> Vec<i64> {
        self.bytes_of_tiles(owner, self.batch(owner, k), ranks)
    }

    /// Bytes of a range of an owner's tiles that each rank requests.
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

    /// Bytes of an owner's tiles of round `k` that a rank requests.
    fn bytes_between(&self, owner: u32, k: i64, rank: u32) -> i64 {
        self.pieces_between(owner, k, rank).sum()
    }

    /// Bytes of the packets of that message, at most `most` each.
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
