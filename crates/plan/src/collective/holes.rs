//! Holes of tiles, and the owner's access to such tiles.
//!
//! A hole consists of elements that some ranks do not request, or that no rank writes.
//!
//! Problem: a tile is one section, but ranks may request or write only parts of it. To read the
//! tile, its owner reads one section that contains all parts, or each part. To write the tile, it
//! reads the missing elements first and writes one section (read-modify-write), or it writes part
//! by part.
//!
//! Approach: the caller, which has the state of the page cache and the rates of the disk, estimates
//! the time of both. On a cold or slow disk one large access is cheaper than many small ones; in
//! the page cache parts are cheaper.
//!
//! Invariants: elements that are read and written back get the values that other programs had
//! written before the read; later changes by other programs are lost. A tile is therefore read
//! first only if the ranks write at least one part in [`SPARSE`] of it, or if a hint states that no
//! other process writes. Encoded blocks are written as a whole in any case. A tile without requests
//! is not accessed.
//!
//! Reference: Thakur and Choudhary, "An Extended Two-Phase Method for Accessing Sections of Out-of-Core
//! Arrays", section 3.2.

use alloc::vec::Vec;

use super::plan::{useful, Collective, Tile};
use crate::plan::Direction;
use crate::section::Section;

/// A tile is sparse if the ranks write less than one part in `SPARSE` of it.
///
/// Its holes are then likely to belong to other programs.
pub const SPARSE: i64 = 4;
/// Estimate for an access that cannot be estimated.
///
/// For example, the access does not fit the budget, or the file no longer exists.
///
/// The other ranks wait for an estimate, so this is not an error; the access itself raises the
/// error.
pub const IMPOSSIBLE: i64 = 1 << 50;
/// Maximum number of parts that are estimated one by one.
///
/// More parts count as more expensive than a whole.
const PRICED: usize = 64;
/// Number of parts of a tile that are estimated to determine an owner's cost of writing in parts.
const SAMPLED: usize = 16;
/// Factor for parts that an owner writes one after another.
///
/// A rank that works independently has all its requests in flight (measured: writing in sequence
/// took 3 to 7 times as long on a slow device).
const IN_TURN: i64 = 3;

/// A tile of an owner, and the parts of it that the ranks request or write.
#[derive(Debug, Clone)]
pub struct Held {
    /// The tile.
    pub tile: Tile,
    /// The smallest section that contains all parts; for encoded blocks, the whole tile.
    pub section: Section,
    /// Number of elements of the section.
    pub elements: i64,
    /// Number of elements of all parts; elements in several parts are counted several times.
    pub useful: i64,
    /// The parts, in the order of the ranks.
    pub parts: Vec<Section>,
    encoded: bool,
}

/// Ways to write a tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Written as a whole; the ranks write all of it.
    Whole,
    /// Written as a whole after the missing elements were read.
    Rewritten,
    /// Written part by part.
    InParts,
}

/// Returns whether elements may be read and written back, if the ranks write `given` of them.
pub fn is_dense(elements: i64, given: i64, exclusive: bool) -> bool {
    given.saturating_mul(SPARSE) >= elements || exclusive
}

impl Held {
    /// The sections that are read. `price` returns the estimated time of an access, here and below.
    ///
    /// # Errors
    /// The errors of `price`.
    pub fn reads<E>(
        &self,
        mut price: impl FnMut(&Section) -> Result<i64, E>,
    ) -> Result<Vec<&Section>, E> {
        let whole = [&self.section];
        if self.useful >= self.elements || !(2..=PRICED).contains(&self.parts.len()) || self.encoded
        {
            return Ok(whole.to_vec());
        }
        let mut apart: Vec<&Section> = Vec::new();
        for part in &self.parts {
            // Several ranks may request the same part.
            if !apart.contains(&part) {
                apart.push(part);
            }
        }
        let mut cost = 0_i64;
        for part in &apart {
            cost = cost.saturating_add(price(part)?);
        }
        Ok(if cost < price(&self.section)? { apart } else { whole.to_vec() })
    }

    /// The way to write the tile.
    ///
    /// `in_order`: parts may share elements. `exclusive`: only these ranks write the array.
    ///
    /// # Errors
    /// The errors of `price`.
    pub fn way<E>(
        &self,
        in_order: bool,
        exclusive: bool,
        price: impl FnMut(Direction, &Section) -> Result<i64, E>,
    ) -> Result<Way, E> {
        let is_whole = |part: &Section| part.count() == Ok(self.elements);
        if self.parts.iter().any(is_whole) || (self.useful == self.elements && !in_order) {
            return Ok(Way::Whole);
        }
        let rewritten = self.encoded || self.is_rewritten(exclusive, price)?;
        Ok(if rewritten { Way::Rewritten } else { Way::InParts })
    }

    fn is_rewritten<E>(
        &self,
        exclusive: bool,
        mut price: impl FnMut(Direction, &Section) -> Result<i64, E>,
    ) -> Result<bool, E> {
        if !is_dense(self.elements, self.useful, exclusive) {
            return Ok(false);
        }
        if self.parts.len() > PRICED {
            return Ok(true);
        }
        let read = price(Direction::Read, &self.section)?;
        let both = read.saturating_add(price(Direction::Write, &self.section)?);
        let mut apart = 0_i64;
        for part in &self.parts {
            apart = apart.saturating_add(price(Direction::Write, part)?);
        }
        Ok(both < apart)
    }
}

impl Collective {
    /// Tile `n` of an owner with what ranks request of it; None if no rank requests anything.
    pub fn held_tile(&self, owner: u32, n: i64) -> Option<Held> {
        let tile = self.tile(owner, n)?;
        let table = self.table(&tile);
        let section = self.held(&tile, &table)?;
        let elements = section.count().unwrap_or(i64::MAX);
        let useful = useful(&table);
        let parts = table.into_iter().map(|piece| piece.section).collect();
        let encoded = self.is_encoded(tile.array);
        Some(Held { tile, section, elements, useful, parts, encoded })
    }

    /// Estimated time of a rank's part of the arrays as an owner.
    ///
    /// `price` returns the time of an access to an array; None if the rank has not opened the array
    /// (it then owns no part of it).
    pub fn owner_price<E>(
        &self,
        rank: u32,
        write: bool,
        exclusive: impl Fn(u32) -> bool,
        mut price: impl FnMut(u32, Direction, &Section) -> Result<Option<i64>, E>,
    ) -> i64 {
        let direction = if write { Direction::Write } else { Direction::Read };
        let mut total = 0_i64;
        for (array, section, given) in self.needed(rank) {
            let mut cost = || -> Result<i64, E> {
                let Some(cost) = price(array, direction, &section)? else { return Ok(0) };
                let elements = section.count().unwrap_or(i64::MAX);
                if !write || given >= elements {
                    return Ok(cost);
                }
                // Holes are read first, or are gaps between parts.
                let read = price(array, Direction::Read, &section)?.unwrap_or(0);
                let dense = is_dense(elements, given, exclusive(array));
                // The parts are those of the first tile, which may belong to another array.
                if self.arrays() > 1 || self.is_encoded(0) || dense {
                    return Ok(cost.saturating_add(read));
                }
                let (mut apart, mut sampled) = (0_i64, 0_i64);
                let first = self.held_tile(rank, 0).map_or_else(Vec::new, |held| held.parts);
                for part in first.iter().take(SAMPLED) {
                    apart = apart.saturating_add(price(array, direction, part)?.unwrap_or(0));
                    sampled = sampled.saturating_add(part.count().unwrap_or(i64::MAX));
                }
                let all = i128::from(IN_TURN) * i128::from(apart) * i128::from(given);
                let all = i64::try_from(all / i128::from(sampled.max(1))).unwrap_or(i64::MAX);
                Ok(cost.saturating_add(read.max(all.saturating_sub(cost))))
            };
            total = total.saturating_add(cost().unwrap_or(IMPOSSIBLE));
        }
        total
    }

    fn is_encoded(&self, array: u32) -> bool {
        self.job(array).is_some_and(|job| job.descriptor.encoded)
    }
}

#[cfg(test)]
mod tests;
