//! Copies between a slot and an array in memory: how tiles of a collective reach the ranks.
//!
//! Problem. An owner has a tile in its slot, packed in the order of the file; a rank wants the part
//! that is in its section, in an array with strides of its own, or gives it.
//!
//! Idea. Sections are lattices: a piece of both is a strided copy, whose addresses follow from the
//! three sections. Where the slot is somebody else's (shared memory), this is the whole exchange.
//!
//! Invariants. Nothing outside the slot is touched, whatever the sections say: the span of the copy is
//! compared with the slot's length. For the array the caller vouches.

#![allow(unsafe_code)]

use outcore_plan::{Direction, Section};

use crate::copy::{Loops, Side};
use crate::error::StorageError;

/// A tile in a slot.
#[derive(Debug, Clone, Copy)]
pub struct Slot<'a> {
    /// First byte.
    pub data: *mut u8,
    /// Bytes.
    pub len: usize,
    /// The elements of the tile.
    pub tile: &'a Section,
    /// Byte strides in the slot from one element of the tile to the next, per axis.
    pub strides: &'a [i64],
}

/// An array in memory that holds a section.
#[derive(Debug, Clone, Copy)]
pub struct UserBuffer<'a> {
    /// Its first element.
    pub data: *mut u8,
    /// The section.
    pub section: &'a Section,
    /// Byte strides from one element of the section to the next, per axis.
    pub strides: &'a [i64],
}

/// Byte strides of a tile that is packed in this order of axes, slowest first.
pub fn packed(tile: &Section, order: &[usize], item: i64) -> Vec<i64> {
    let mut strides = vec![item; tile.ndim()];
    let mut stride = item;
    for axis in order.iter().rev() {
        if let (Some(slot), Some(range)) = (strides.get_mut(*axis), tile.ranges().get(*axis)) {
            *slot = stride;
            stride = stride.saturating_mul(range.count.max(1));
        }
    }
    strides
}

/// Where a piece of a section begins in memory that holds the section, and the strides along it.
fn walk(piece: &Section, within: &Section, strides: &[i64]) -> Option<(i64, Vec<i64>)> {
    let mut at = 0_i64;
    let mut along = Vec::with_capacity(strides.len());
    if piece.ndim() != within.ndim() || strides.len() != within.ndim() {
        return None;
    }
    for ((p, w), stride) in piece.ranges().iter().zip(within.ranges()).zip(strides) {
        let first = (p.start - w.start) / w.step;
        let last = first.checked_add((p.count - 1).checked_mul((p.step / w.step).max(1))?)?;
        let on_lattice = (p.start - w.start) % w.step == 0 && (p.count < 2 || p.step % w.step == 0);
        if first < 0 || last >= w.count || !on_lattice {
            return None;
        }
        at = at.checked_add(first.checked_mul(*stride)?)?;
        along.push(stride.checked_mul((p.step / w.step).max(1))?);
    }
    Some((at, along))
}

/// Copies a piece of both from the slot to the array ([`Direction::Read`]) or back. Returns bytes.
///
/// # Errors
/// `BadJob` if the piece is not a part of both, or does not lie in the slot.
///
/// # Safety
/// `slot.data` is valid for `slot.len` bytes, and `held` for all elements of its section; both for
/// writing where they are written. Nobody writes what is read here meanwhile, or touches what is written.
pub unsafe fn copy(
    slot: &Slot<'_>,
    held: &UserBuffer<'_>,
    piece: &Section,
    item: i64,
    direction: Direction,
) -> Result<usize, StorageError> {
    if piece.is_empty() {
        return Ok(0);
    }
    let wrong = || StorageError::BadJob(format!("piece {piece} of tile {}", slot.tile));
    let (slot_at, slot_along) = walk(piece, slot.tile, slot.strides).ok_or_else(wrong)?;
    let (held_at, held_along) = walk(piece, held.section, held.strides).ok_or_else(wrong)?;
    let (in_slot, in_held) = ((slot_at, &slot_along[..]), (held_at, &held_along[..]));
    let count = piece.shape();
    let (loops, side) = match direction {
        Direction::Read => (Loops::new(in_slot, in_held, &count, item)?, Side::Source),
        Direction::Write => (Loops::new(in_held, in_slot, &count, item)?, Side::Destination),
    };
    let (low, high) = loops.span(side);
    if low < 0 || usize::try_from(high).map_or(true, |high| high > slot.len) {
        return Err(wrong());
    }
    // SAFETY: the span lies in the slot; the array's side holds all of its section, of which the piece
    // is a part (`walk`). The caller vouches for the rest.
    unsafe {
        match direction {
            Direction::Read => loops.run(slot.data, held.data),
            Direction::Write => loops.run(held.data, slot.data),
        }
    }
    Ok(loops.bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use outcore_plan::Range;

    fn section(ranges: &[(i64, i64, i64)]) -> Section {
        Section::new(ranges.iter().map(|(a, n, s)| Range::new(*a, *n, *s).unwrap()).collect())
    }

    #[test]
    fn a_piece_goes_out_and_comes_back() {
        // Rows 2, 4, 6 and columns 1..9 of the array; the rank holds rows 0, 4, 8 and columns 3, 6.
        let tile = section(&[(2, 3, 2), (1, 8, 1)]);
        let wanted = section(&[(0, 3, 4), (3, 2, 3)]);
        let piece = tile.intersect(&wanted).unwrap();
        let mut slot: Vec<u8> = (0..24).collect();
        let mut array = [0_u8; 6];
        let strides = packed(&tile, &[0, 1], 1);
        let held = UserBuffer { data: array.as_mut_ptr(), section: &wanted, strides: &[2, 1] };
        let held_slot = Slot { data: slot.as_mut_ptr(), len: 24, tile: &tile, strides: &strides };
        // SAFETY: both arrays are as long as their sections.
        let bytes = unsafe { copy(&held_slot, &held, &piece, 1, Direction::Read) }.unwrap();
        assert_eq!((2, [0, 0, 10, 13, 0, 0]), (bytes, array));
        array[2] = 99;
        let held = UserBuffer { data: array.as_mut_ptr(), ..held };
        // SAFETY: as above.
        unsafe { copy(&held_slot, &held, &piece, 1, Direction::Write) }.unwrap();
        assert_eq!((99, 13), (slot[10], slot[13]));
    }

    #[test]
    fn what_is_not_there_is_refused() {
        let tile = section(&[(0, 4, 1)]);
        let mut slot = [0_u8; 3];
        let mut array = [0_u8; 8];
        let held =
            UserBuffer { data: array.as_mut_ptr(), section: &section(&[(0, 8, 1)]), strides: &[1] };
        let short = Slot { data: slot.as_mut_ptr(), len: 3, tile: &tile, strides: &[1] };
        for piece in [section(&[(0, 4, 1)]), section(&[(3, 2, 1)])] {
            // SAFETY: the array holds its section; the slot is what is checked.
            let result = unsafe { copy(&short, &held, &piece, 1, Direction::Read) };
            assert!(matches!(result, Err(StorageError::BadJob(_))), "{result:?}");
        }
    }
}
