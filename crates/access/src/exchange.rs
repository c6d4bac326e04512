//! The copies of a two-phase collective between slots, messages and the arrays of a rank.
//!
//! Problem. In a round of a read, a rank takes its parts out of tiles in slots that it shares memory with, or
//! receives them in messages from owners on other nodes. In a write it copies its parts into slots or sends
//! them.
//!
//! Idea. The plan determines the rank of each part of a tile (`Collective::pieces`), so messages need no
//! headers: both ends of a message loop over the same tiles and pieces in the same order, and only elements
//! travel.
//!
//! Invariants. Nothing is accessed outside the memory that the caller passes (`slot::copy`). A message holds
//! the pieces of one rank after those of another, and within a rank the pieces of one tile after those of
//! another.
//!
//! Reference: Thakur and Choudhary, "An Extended Two-Phase Method for Accessing Sections of Out-of-Core
//! Arrays", sections 3.1 and 3.2.

use outcore_io::exec::User;
use outcore_io::slot::{self, Sectioned};
use outcore_plan::collective::{Collective, Packets, Piece, Tile};
use outcore_plan::Direction;

use crate::error::Fault;

/// An array of a rank, with the axes of the array on disk, each in ascending order.
#[derive(Debug, Clone)]
pub struct UserArray<'a> {
    /// Memory of the array, from its first element on.
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
    /// The plan, which determines the owner of each tile in each round.
    pub plan: &'a Collective,
    /// Number of the round.
    pub k: i64,
    /// Read: from the owners. Write: to the owners.
    pub direction: Direction,
    /// Restricts each message to the packet with this number, of packets of at most this many bytes.
    pub packet: Option<(usize, i64)>,
}

impl Exchange<'_> {
    /// Copies between the arrays of a rank and the slots of these owners. Returns the number of bytes.
    ///
    /// # Errors
    /// An array or a slot that does not have the memory that the plan requires.
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

    /// Copies between an owner's slot and the messages for these ranks, packed one after another. In a write
    /// it copies from the messages; a later rank overwrites an earlier one. Returns the number of bytes.
    ///
    /// # Errors
    /// The errors of [`copy`](Exchange::copy).
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

    /// Makes the copies at the other end: between messages from these owners (in a write: for them) and the
    /// arrays of a rank. Returns the number of bytes.
    ///
    /// # Errors
    /// The errors of [`copy`](Exchange::copy).
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
                        // Each packed piece is a separate tile that consists of only this piece.
                        let alone = Tile { section: piece.section.clone(), ..tile };
                        at += self.piece(&alone, &piece, packed.shifted(at as i64), arrays)?;
                    }
                }
            }
        }
        Ok(at)
    }

    /// Returns the tiles that an owner has in its slot, and their places there.
    fn tiles(&self, owner: u32) -> impl Iterator<Item = (Tile, i64)> + '_ {
        let place = move |n| Some((self.plan.tile(owner, n)?, self.plan.place(owner, n)));
        self.plan.batch(owner, self.k).filter_map(place)
    }

    /// Copies one piece between a tile in memory and an array of the rank that makes the access.
    fn piece(
        &self,
        tile: &Tile,
        piece: &Piece,
        memory: User,
        arrays: &[UserArray],
    ) -> Result<usize, Fault> {
        let job = self
            .plan
            .job(tile.array)
            .ok_or_else(|| wrong("the plan has no such array".to_owned()))?;
        let access = job.accesses.get(piece.access as usize);
        let access = access.ok_or_else(|| wrong("the plan has no such access".to_owned()))?;
        let item = job.descriptor.item;
        let fits = |array: &&UserArray| array.shape == access.section.shape() && array.item == item;
        let array = arrays.get(access.item as usize).filter(fits).ok_or_else(|| {
            wrong(format!("array {} does not have the shape of its section", access.item))
        })?;
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
        let job = self
            .plan
            .job(tile.array)
            .ok_or_else(|| wrong("the plan has no such array".to_owned()))?;
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

/// Selects the pieces of a message: those of one packet, or all.
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
