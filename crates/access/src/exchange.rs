//! The copies of a two-phase collective: between slots, messages and the arrays of a rank.
//!
//! Problem. In a round a rank takes its parts out of tiles in slots that it shares memory with, or gets them
//! in messages from owners on other nodes; in a write it gives them.
//!
//! Idea. Which part of a tile is whose follows from the plan (`Collective::pieces`), so nothing is said: both ends
//! of a message walk the same tiles and pieces in the same order, and only elements travel.
//!
//! Invariants. Nothing is touched outside the memory that the caller gives (`slot::copy`). A message has the
//! pieces of one rank after another's; of each those of one tile after another's.
//!
//! Reference: Thakur and Choudhary, "An Extended Two-Phase Method for Accessing Sections of Out-of-Core
//! Arrays", sections 3.1 and 3.2.

use outcore_io::exec::User;
use outcore_io::slot::{self, Sectioned};
use outcore_plan::collective::{Collective, Packets, Piece, Tile};
use outcore_plan::Direction;

use crate::error::Fault;

/// An array of a rank, with the axes of the array on disk, walked upwards.
#[derive(Debug, Clone)]
pub struct UserArray<'a> {
    /// Its memory, from the first element on.
    pub data: User<'a>,
    /// Its shape.
    pub shape: Vec<i64>,
    /// Bytes from one element to the next, per axis.
    pub strides: Vec<i64>,
    /// Bytes of an element.
    pub item: i64,
}

/// The copies of one round, in one direction: out of slots and messages, or into them.
#[derive(Clone, Copy)]
pub struct Exchange<'a> {
    /// Who owns what in which round.
    pub plan: &'a Collective,
    /// The round.
    pub k: i64,
    /// Read: from the owners; write: to them.
    pub direction: Direction,
    /// Of each message only that number of its packets of so many bytes at most.
    pub packet: Option<(usize, i64)>,
}

impl Exchange<'_> {
    /// Between the arrays of a rank and the slots of these owners. Returns bytes.
    ///
    /// # Errors
    /// What does not lie where the plan says.
    pub fn copy(
        &self,
        rank: u32,
        slots: &[(u32, User)],
        arrays: &[UserArray],
    ) -> Result<usize, Fault> {
        let mut bytes = 0;
        for (owner, slot) in slots {
            for (tile, at) in self.tiles(*owner) {
                for piece in self.plan.pieces(&tile, rank) {
                    bytes += self.piece(&tile, &piece, slot.shifted(at), arrays)?;
                }
            }
        }
        Ok(bytes)
    }

    /// Between an owner's slot and the messages for these ranks (in a write: from them, a later rank over an
    /// earlier one), packed one after another. Returns bytes.
    ///
    /// # Errors
    /// As of [`copy`](Exchange::copy).
    pub fn pack(
        &self,
        owner: u32,
        slot: User,
        ranks: &[u32],
        packed: User,
    ) -> Result<usize, Fault> {
        let tiles: Vec<(Tile, i64)> = self.tiles(owner).collect();
        let mut at = 0;
        for rank in ranks {
            let mut chosen = Chosen::of(self.packet);
            for (tile, place) in &tiles {
                for piece in self.plan.pieces(tile, *rank) {
                    if chosen.next(self.plan.piece_bytes(tile, &piece)) {
                        let there = packed.shifted(at as i64);
                        at += self.packed(tile, &piece, slot.shifted(*place), there)?;
                    }
                }
            }
        }
        Ok(at)
    }

    /// The other end: between messages from these owners (in a write: for them) and a rank's arrays. Returns
    /// bytes.
    ///
    /// # Errors
    /// As of [`copy`](Exchange::copy).
    pub fn unpack(
        &self,
        rank: u32,
        owners: &[u32],
        packed: User,
        arrays: &[UserArray],
    ) -> Result<usize, Fault> {
        let mut at = 0;
        for owner in owners {
            let mut chosen = Chosen::of(self.packet);
            for (tile, _) in self.tiles(*owner) {
                for piece in self.plan.pieces(&tile, rank) {
                    if chosen.next(self.plan.piece_bytes(&tile, &piece)) {
                        // What is packed is a tile of its own: just this piece.
                        let alone = Tile { section: piece.section.clone(), ..tile };
                        at += self.piece(&alone, &piece, packed.shifted(at as i64), arrays)?;
                    }
                }
            }
        }
        Ok(at)
    }

    /// The tiles that an owner has in its slot, and where.
    fn tiles(&self, owner: u32) -> impl Iterator<Item = (Tile, i64)> + '_ {
        let place = move |n| Some((self.plan.tile(owner, n)?, self.plan.place(owner, n)));
        self.plan.batch(owner, self.k).filter_map(place)
    }

    /// Copies one piece between a tile in memory and an array of the rank whose access it is.
    fn piece(
        &self,
        tile: &Tile,
        piece: &Piece,
        memory: User,
        arrays: &[UserArray],
    ) -> Result<usize, Fault> {
        let job = self.plan.job(tile.array).ok_or_else(|| wrong("no such array".to_owned()))?;
        let access = job.accesses.get(piece.access as usize);
        let access = access.ok_or_else(|| wrong("no such access".to_owned()))?;
        let item = job.descriptor.item;
        let fits = |array: &&UserArray| array.shape == access.section.shape() && array.item == item;
        let array = arrays
            .get(access.item as usize)
            .filter(fits)
            .ok_or_else(|| wrong(format!("array {} is not of its section's shape", access.item)))?;
        let strides = slot::packed(&tile.section, &job.descriptor.order, item);
        let place = Sectioned { memory, section: &tile.section, strides: &strides };
        let section = &access.section;
        let held = Sectioned { memory: array.data, section, strides: &array.strides };
        Ok(slot::copy(&place, &held, &piece.section, item, self.direction)?)
    }

    /// Copies one piece between a tile in a slot and its place in a message.
    fn packed(
        &self,
        tile: &Tile,
        piece: &Piece,
        memory: User,
        packed: User,
    ) -> Result<usize, Fault> {
        let job = self.plan.job(tile.array).ok_or_else(|| wrong("no such array".to_owned()))?;
        let (item, order, section) = (job.descriptor.item, &job.descriptor.order, &piece.section);
        let strides = slot::packed(&tile.section, order, item);
        let along = slot::packed(section, order, item);
        let place = Sectioned { memory, section: &tile.section, strides: &strides };
        let held = Sectioned { memory: packed, section, strides: &along };
        Ok(slot::copy(&place, &held, section, item, self.direction)?)
    }
}

fn wrong(text: String) -> Fault {
    slot::wrong(text).into()
}

/// Which pieces of a message go: those of one packet, or all.
struct Chosen(Option<(usize, Packets)>);

impl Chosen {
    fn of(packet: Option<(usize, i64)>) -> Chosen {
        Chosen(packet.map(|(number, most)| (number, Packets::new(most))))
    }

    fn next(&mut self, bytes: i64) -> bool {
        self.0.as_mut().is_none_or(|(number, packets)| packets.next(bytes) == *number)
    }
}

#[cfg(test)]
mod tests;
