//! Copies between a slot and an array in memory: how tiles of a collective call reach the ranks.
//!
//! Problem. An owner has a tile in its slot, packed in the order of the file. A rank reads the part
//! that is in its section into an array with its own strides, or provides that part.
//!
//! Idea. Sections are lattices: a piece of both is a strided copy, whose addresses follow from the
//! three sections. If the slot of another rank is in shared memory, this copy is the whole
//! exchange.
//!
//! Invariants. No byte outside the memory of either side is touched, whatever the sections are: the
//! span of the copy is compared with both.

#![allow(unsafe_code)]

use outcore_plan::{Direction, Section};

use crate::copy::{Loops, Side};
use crate::error::StorageError;
use crate::exec::User;

/// Memory that holds a section: a tile in a slot or a message, or the array of a rank.
#[derive(Clone, Copy)]
pub struct Sectioned<'a> {
    /// Memory, starting at the first element.
    pub memory: User<'a>,
    /// Section that the memory holds.
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

/// Error for a tile or a piece that does not match the plan.
pub fn wrong(text: String) -> StorageError {
    StorageError::BadJob(text)
}

/// Returns where a piece begins in memory that holds a section, and the strides along the piece;
/// `None` if the piece is not a part of the section.
pub fn within(piece: &Section, whole: &Section, strides: &[i64]) -> Option<(i64, Vec<i64>)> {
    let mut at = 0_i64;
    let mut along = Vec::with_capacity(strides.len());
    if piece.ndim() != whole.ndim() || strides.len() != whole.ndim() {
        return None;
    }
    for ((p, w), stride) in piece.ranges().iter().zip(whole.ranges()).zip(strides) {
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

/// Copies a piece of both sections from the slot to the array ([`Direction::Read`]) or back;
/// returns bytes.
///
/// # Errors
/// `BadJob` if the piece is not a part of both sections, or is outside their memory.
pub fn copy(
    slot: &Sectioned<'_>,
    held: &Sectioned<'_>,
    piece: &Section,
    item: i64,
    direction: Direction,
) -> Result<usize, StorageError> {
    if piece.is_empty() {
        return Ok(0);
    }
    let wrong = || wrong(format!("piece {piece} of tile {}", slot.section));
    let (slot_at, slot_along) = within(piece, slot.section, slot.strides).ok_or_else(wrong)?;
    let (held_at, held_along) = within(piece, held.section, held.strides).ok_or_else(wrong)?;
    let slot = Placed { memory: slot.memory, at: slot_at, strides: &slot_along };
    let held = Placed { memory: held.memory, at: held_at, strides: &held_along };
    let (source, target) = match direction {
        Direction::Read => (&slot, &held),
        Direction::Write => (&held, &slot),
    };
    copy_placed(source, target, &piece.shape(), item)
}

/// Elements within a piece of memory: offset of the first one, and byte strides.
#[derive(Clone, Copy)]
pub struct Placed<'a> {
    /// Memory that holds the elements.
    pub memory: User<'a>,
    /// Bytes from the origin of the memory to the first element of the copy.
    pub at: i64,
    /// Byte strides between elements, for each axis.
    pub strides: &'a [i64],
}

/// Copies `count` elements between two memories that do not overlap; returns bytes.
///
/// # Errors
/// `BadJob` if some of the elements are outside their memory.
pub fn copy_placed(
    source: &Placed<'_>,
    target: &Placed<'_>,
    count: &[i64],
    item: i64,
) -> Result<usize, StorageError> {
    let loops = Loops::new((source.at, source.strides), (target.at, target.strides), count, item)?;
    if loops.bytes() == 0 {
        return Ok(0);
    }
    let ((low, high), (first, last)) = (loops.span(Side::Source), loops.span(Side::Destination));
    let (source, target) = (
        source.memory.within(low as i64, high as i64)?,
        target.memory.within(first as i64, last as i64)?,
    );
    // SAFETY: both spans are inside the memory of their sides. By the contract of `User::new` this
    // memory is valid, and no other thread uses it, while this runs.
    unsafe { loops.run(source.origin(), target.origin()) };
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
        let slots = User::of(&mut slot, 0);
        let place = Sectioned { memory: slots, section: &tile, strides: &strides };
        let mut read = |direction| {
            let memory = User::of(&mut array, 0);
            let held = Sectioned { memory, section: &wanted, strides: &[2, 1] };
            let bytes = copy(&place, &held, &piece, 1, direction).unwrap();
            let found = array;
            array[2] = 99;
            (bytes, found)
        };
        assert_eq!((2, [0, 0, 10, 13, 0, 0]), read(Direction::Read));
        read(Direction::Write);
        assert_eq!((99, 13), (slot[10], slot[13]));
    }

    #[test]
    fn what_is_not_there_is_refused() {
        let (tile, all) = (section(&[(0, 4, 1)]), section(&[(0, 8, 1)]));
        let (mut slot, mut array) = ([0_u8; 3], [0_u8; 8]);
        let short = Sectioned { memory: User::of(&mut slot, 0), section: &tile, strides: &[1] };
        let held = Sectioned { memory: User::of(&mut array, 0), section: &all, strides: &[1] };
        for piece in [section(&[(0, 4, 1)]), section(&[(3, 2, 1)])] {
            for direction in [Direction::Read, Direction::Write] {
                // One side is too short, then the other.
                for (one, other) in [(&short, &held), (&held, &short)] {
                    let result = copy(one, other, &piece, 1, direction);
                    assert!(matches!(result, Err(StorageError::BadJob(_))), "{result:?}");
                }
            }
        }
    }
}
