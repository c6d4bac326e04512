//! Ends of strings of fixed length.
//!
//! Problem. A file may mark the end of its strings in another way than memory does, which fills
//! them up with NULs: a C string ends with its first NUL, whatever follows, and a Fortran string
//! with its last character that is not a space.
//!
//! Idea. Elements are read unchanged; then the bytes after the end of each string are replaced by
//! NULs, in the caller's memory.
//!
//! Invariants. Only bytes of elements that were read change; a second pass changes nothing more.

#![allow(unsafe_code)]

use crate::error::StorageError;
use crate::exec::User;

/// Mark of the end of a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The first NUL, or the last byte.
    Nul,
    /// The last byte that is not a space.
    Space,
}

/// Strings of an element, at regular distances.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Strings {
    /// Bytes from the beginning of the element to the first string.
    pub offset: usize,
    /// Bytes of each string.
    pub len: usize,
    /// Mark of their end.
    pub end: End,
    /// Number and distance in bytes for each loop over the strings; empty for a single string.
    pub loops: Vec<(usize, usize)>,
}

impl Strings {
    /// Returns the end of the last byte that the strings occupy in the element.
    fn reach(&self) -> Option<usize> {
        let far = |at: usize, (number, distance): &(usize, usize)| {
            number.saturating_sub(1).checked_mul(*distance)?.checked_add(at)
        };
        self.loops.iter().try_fold(self.offset.checked_add(self.len)?, far)
    }

    fn finish(&self, element: &mut [u8], loops: &[(usize, usize)], at: usize) {
        match loops.split_first() {
            Some(((number, distance), inner)) => {
                (0..*number).for_each(|k| self.finish(element, inner, at + k * distance));
            }
            None => {
                let string = &mut element[at..at + self.len];
                let end = match self.end {
                    End::Nul => string.iter().position(|byte| *byte == 0),
                    End::Space => {
                        string.iter().rposition(|byte| *byte != b' ').map(|last| last + 1)
                    }
                };
                let none = if self.end == End::Nul { self.len } else { 0 };
                string[end.unwrap_or(none)..].fill(0);
            }
        }
    }
}

/// Fills up the strings of all elements of an array in memory with NULs.
///
/// `axes` are the number of elements and the distance between them along each axis, in bytes.
///
/// # Errors
/// `BadJob` if strings are outside their element, or elements outside the caller's array.
pub fn finish(
    user: User,
    axes: &[(i64, i64)],
    item: usize,
    strings: &[Strings],
) -> Result<(), StorageError> {
    if strings.is_empty() || axes.iter().any(|(number, _)| *number < 1) {
        return Ok(());
    }
    let bad = |what: &str| StorageError::BadJob(format!("strings outside of {what}"));
    if strings.iter().any(|one| one.reach().is_none_or(|reach| reach > item)) {
        return Err(bad("their element"));
    }
    let (mut low, mut high) = (0_i64, i64::try_from(item).unwrap_or(i64::MAX));
    for (number, distance) in axes {
        let far = (number - 1).checked_mul(*distance).ok_or_else(|| bad("memory"))?;
        low = low.saturating_add(far.min(0));
        high = high.saturating_add(far.max(0));
    }
    let user = user.within(low, high)?;
    let mut position = vec![0_i64; axes.len()];
    loop {
        let shift: i64 = position.iter().zip(axes).map(|(k, (_, distance))| k * distance).sum();
        let first = user.origin().wrapping_offset(shift as isize);
        // SAFETY: the element is inside the bytes `low..high` around the origin, which are the
        // caller's (`User::new`), and no other thread touches them.
        let element = unsafe { std::slice::from_raw_parts_mut(first, item) };
        strings.iter().for_each(|one| one.finish(element, &one.loops, one.offset));
        // The next position, the last axis fastest.
        let Some(axis) = (0..axes.len()).rev().find(|d| position[*d] + 1 < axes[*d].0) else {
            return Ok(());
        };
        position[axis] += 1;
        position[axis + 1..].fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(len: usize, end: End) -> Strings {
        Strings { offset: 0, len, end, loops: vec![] }
    }

    #[test]
    fn strings_end_where_the_file_says() {
        let mut memory = *b"ab\0cabcd\0bcda  d    a \0 \0\0\0 ";
        let nul = one(4, End::Nul);
        finish(User::of(&mut memory, 0), &[(3, 4)], 4, &[nul]).unwrap();
        assert_eq!(b"ab\0\0abcd\0\0\0\0a  d    a \0 \0\0\0 ", &memory);
        let space = one(4, End::Space);
        finish(User::of(&mut memory, 12), &[(4, 4)], 4, &[space]).unwrap();
        assert_eq!(b"ab\0\0abcd\0\0\0\0a  d\0\0\0\0a \0\0\0\0\0\0", &memory);
    }

    #[test]
    fn only_strings_of_the_elements_change() {
        // Elements of 8 bytes: a number and two strings; in reverse order, skipping every second
        // one.
        let mut memory = *b"\0xa\0ca\0c--------\0yb\0cb\0c--------";
        let strings = Strings { offset: 2, len: 3, end: End::Nul, loops: vec![(2, 3)] };
        finish(User::of(&mut memory, 16), &[(2, -16), (1, 99)], 8, &[strings]).unwrap();
        assert_eq!(b"\0xa\0\0a\0\0--------\0yb\0\0b\0\0--------", &memory);
    }

    #[test]
    fn strings_outside_are_refused() {
        let mut memory = [1_u8; 16];
        let mut wrong = |user: usize, axes: &[(i64, i64)], strings: Strings| {
            let user = User::of(&mut memory, user);
            matches!(finish(user, axes, 8, &[strings]), Err(StorageError::BadJob(_)))
        };
        assert!(wrong(0, &[(1, 8)], one(9, End::Nul)));
        let loops = vec![(3, 3)];
        assert!(wrong(0, &[(1, 8)], Strings { loops, ..one(3, End::Nul) }));
        assert!(wrong(0, &[(3, 8)], one(8, End::Nul)));
        assert!(wrong(0, &[(2, -8)], one(8, End::Nul)));
        assert!(wrong(0, &[(i64::MAX, i64::MAX)], one(8, End::Nul)));
        assert!(!wrong(0, &[(2, 8), (0, 8)], one(8, End::Nul)));
    }
}
