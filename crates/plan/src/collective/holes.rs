//! Holes: what not every rank wants, or nobody gives, of a tile; and how its owner accesses it then.
//!
//! Problem. A tile is one section, but ranks may want or give only parts of it. To read it its owner reads
//! one section that holds all parts, or each part. To write it it reads what is missing first and writes one
//! section (read-modify-write), or it writes part by part.
//!
//! Idea. Both are priced, by whoever knows the state of the page cache and the figures of the disk: on a
//! cold or slow disk a large access is cheaper than many small ones, in the page cache parts are.
//!
//! Invariants. What is read and written back is what other programs wrote until it was read: what they write
//! after that is undone. So only tiles of which one part in [`SPARSE`] or more is given are read first,
//! unless a hint states that no other process writes. Encoded blocks are written whole in any case. A tile of which
//! nobody wants anything is left alone.
//!
//! Reference: Thakur and Choudhary, "An Extended Two-Phase Method for Accessing Sections of Out-of-Core
//! Arrays", section 3.2.

use alloc::vec::Vec;

use super::plan::{useful, Collective, Tile};
use crate::plan::Direction;
use crate::section::Section;

/// Of a tile of which less than one part in so many is given, holes are somebody else's as much as ours.
pub const SPARSE: i64 = 4;
/// What cannot be priced (it does not fit the budget, the file is gone). The others wait for a price, so
/// that is no error; the access itself says what is wrong.
pub const IMPOSSIBLE: i64 = 1 << 50;
/// So many parts are priced one by one; what has more is taken for dearer than a whole.
const PRICED: usize = 64;
/// Of a tile that is written in parts so many are priced to tell what an owner costs.
const SAMPLED: usize = 16;
/// An owner writes parts one after the other; a rank on its own has all its requests under way (measured: 3
/// to 7 times as long on a slow device).
const IN_TURN: i64 = 3;

/// A tile of an owner, and what of it the ranks want or give.
#[derive(Debug, Clone)]
pub struct Held {
    /// The tile.
    pub tile: Tile,
    /// The smallest section that holds all parts; of what is stored in blocks the whole tile.
    pub section: Section,
    /// Its elements.
    pub elements: i64,
    /// Elements of all parts, each as often as it is wanted.
    pub useful: i64,
    /// The parts, in the order of the ranks.
    pub parts: Vec<Section>,
    encoded: bool,
}

/// How a tile is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// All of it is given.
    Whole,
    /// What is missing is read first.
    Rewritten,
    /// Part by part.
    InParts,
}

/// Whether so many of the elements may be read and written back.
pub fn is_dense(elements: i64, given: i64, exclusive: bool) -> bool {
    given.saturating_mul(SPARSE) >= elements || exclusive
}

impl Held {
    /// The sections that are read. `price` tells what reading one costs, here and below.
    ///
    /// # Errors
    /// What `price` says.
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
            // Several ranks may want the same.
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

    /// How it is written; `in_order`: parts may share elements. With `exclusive` nobody but these ranks
    /// writes the array.
    ///
    /// # Errors
    /// What `price` says.
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

    /// What a rank's part of the arrays costs it as an owner. `price` tells what an access to an array
    /// costs; None if the rank has not opened it (it owns nothing of it then).
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
                // Holes are read first, or are between parts.
                let read = price(array, Direction::Read, &section)?.unwrap_or(0);
                let dense = is_dense(elements, given, exclusive(array));
                // Parts are those of the first tile, which may be of another array.
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
