//! Copies of rows between several regions of memory and the order of a list.
//!
//! Problem: a rank takes elements out of the slots of many owners. In the order of the slots, each
//! element goes to another cache line of the result, and a store that misses the caches delays
//! those after it; in the order of the result, each element comes from another line. Approach:
//! owners store elements window by window of the file, and within a window in the order of the
//! rank's list. Walking the list therefore reads as many streams as there are windows, each
//! forwards, and writes one: a merge. Sending values to owners is the reverse, as in a radix sort.
//!
//! Invariants: a place is checked before it is used. If two places of one call are equal, the last
//! row remains.

/// Number of low bits of a place that hold the row; the other bits are the number of a region.
pub const REGION: u32 = 40;

/// The selected rows of a list.
#[derive(Clone, Copy)]
pub enum Listed<'a> {
    /// All rows, from the first one on.
    All,
    /// The rows with these numbers.
    Some(&'a [i64]),
}

/// Error: a place, or a row, that does not exist; the value is its position in the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missing(pub usize);

fn split(place: i64) -> Option<(usize, usize)> {
    let place = u64::try_from(place).ok()?;
    Some(((place >> REGION) as usize, (place & ((1 << REGION) - 1)) as usize))
}

fn part(bytes: &[u8], at: usize, row: usize) -> Option<&[u8]> {
    let first = at.checked_mul(row)?;
    bytes.get(first..first.checked_add(row)?)
}

fn part_mut(bytes: &mut [u8], at: usize, row: usize) -> Option<&mut [u8]> {
    let first = at.checked_mul(row)?;
    bytes.get_mut(first..first.checked_add(row)?)
}

/// Calls `one` with the number of each row of the list, and its place.
///
/// Stops at the first invalid one.
fn each(
    places: &[i64],
    listed: Listed,
    mut one: impl FnMut(usize, (usize, usize)) -> Option<()>,
) -> Result<(), Missing> {
    let number = |k: usize| match listed {
        Listed::All => Some(k),
        Listed::Some(rows) => usize::try_from(*rows.get(k)?).ok(),
    };
    for (k, place) in places.iter().enumerate() {
        split(*place).and_then(|place| one(number(k)?, place)).ok_or(Missing(k))?;
    }
    Ok(())
}

/// Copies rows of `N` bytes, so that the compiler knows the size; with `N` = 0, of `row` bytes.
fn take_some<const N: usize>(
    regions: &[&[u8]],
    places: &[i64],
    listed: Listed,
    rows: &mut [u8],
    row: usize,
) -> Result<(), Missing> {
    let row = if N == 0 { row } else { N };
    each(places, listed, |number, (region, at)| {
        let from = part(regions.get(region)?, at, row)?;
        part_mut(rows, number, row)?.copy_from_slice(from);
        Some(())
    })
}

fn put_some<const N: usize>(
    regions: &mut [&mut [u8]],
    places: &[i64],
    listed: Listed,
    rows: &[u8],
    row: usize,
) -> Result<(), Missing> {
    let row = if N == 0 { row } else { N };
    each(places, listed, |number, (region, at)| {
        let from = part(rows, number, row)?;
        part_mut(regions.get_mut(region)?, at, row)?.copy_from_slice(from);
        Some(())
    })
}

/// Copies the row at each place to the row of the list.
///
/// # Errors
/// The first place, or row, that does not exist; the rows before it were copied.
pub fn take(
    regions: &[&[u8]],
    places: &[i64],
    listed: Listed,
    rows: &mut [u8],
    row: usize,
) -> Result<(), Missing> {
    match row {
        1 => take_some::<1>(regions, places, listed, rows, row),
        2 => take_some::<2>(regions, places, listed, rows, row),
        4 => take_some::<4>(regions, places, listed, rows, row),
        8 => take_some::<8>(regions, places, listed, rows, row),
        16 => take_some::<16>(regions, places, listed, rows, row),
        _ => take_some::<0>(regions, places, listed, rows, row),
    }
}

/// Copies each row of the list to its place.
///
/// # Errors
/// As for [`take`].
pub fn put(
    regions: &mut [&mut [u8]],
    places: &[i64],
    listed: Listed,
    rows: &[u8],
    row: usize,
) -> Result<(), Missing> {
    match row {
        1 => put_some::<1>(regions, places, listed, rows, row),
        2 => put_some::<2>(regions, places, listed, rows, row),
        4 => put_some::<4>(regions, places, listed, rows, row),
        8 => put_some::<8>(regions, places, listed, rows, row),
        16 => put_some::<16>(regions, places, listed, rows, row),
        _ => put_some::<0>(regions, places, listed, rows, row),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(region: usize, at: usize) -> i64 {
        ((region as i64) << REGION) + at as i64
    }

    #[test]
    fn rows_of_all_sizes_go_there_and_back() {
        for row in [1, 2, 3, 4, 8, 16, 24] {
            let regions: Vec<Vec<u8>> =
                (0..3_u8).map(|k| (0..5 * row).map(|n| 50 * k + n as u8).collect()).collect();
            let sources: Vec<&[u8]> = regions.iter().map(Vec::as_slice).collect();
            let places = [place(2, 4), place(0, 0), place(1, 3), place(2, 0)];
            let numbers = [3, 0, 5, 1];
            let expected: Vec<&[u8]> = [(2, 4), (0, 0), (1, 3), (2, 0)]
                .iter()
                .map(|(k, at): &(usize, usize)| &regions[*k][at * row..(at + 1) * row])
                .collect();
            let mut rows = vec![0xff; 4 * row];
            take(&sources, &places, Listed::All, &mut rows, row).unwrap();
            assert_eq!(expected.concat(), rows);
            let mut some = vec![0xff; 6 * row];
            take(&sources, &places, Listed::Some(&numbers), &mut some, row).unwrap();
            for (number, one) in numbers.iter().zip(&expected) {
                assert_eq!(*one, &some[*number as usize * row..][..row]);
            }
            // Rows that are not in the list do not change.
            assert!(some[2 * row..3 * row].iter().all(|byte| *byte == 0xff));
            for (listed, from) in [(Listed::All, &rows), (Listed::Some(&numbers), &some)] {
                let mut back = vec![vec![0; 5 * row]; 3];
                let mut targets: Vec<&mut [u8]> = back.iter_mut().map(Vec::as_mut_slice).collect();
                put(&mut targets, &places, listed, from, row).unwrap();
                for (k, (there, was)) in back.iter().zip(&regions).enumerate() {
                    for at in 0..5 {
                        let one = at * row..(at + 1) * row;
                        let given = places.contains(&place(k, at));
                        let expected = if given { &was[one.clone()] } else { &vec![0; row][..] };
                        assert_eq!(expected, &there[one]);
                    }
                }
            }
        }
    }

    #[test]
    fn what_there_is_not_is_named_and_nothing_else_is_touched() {
        let (source, mut rows) = ([1_u8; 16], [0_u8; 16]);
        for wrong in [place(0, 2), place(1, 0), -1, i64::MAX, (1 << REGION) - 1] {
            let places = [place(0, 1), wrong];
            assert_eq!(Err(Missing(1)), take(&[&source], &places, Listed::All, &mut rows, 8));
            let mut target = [0_u8; 16];
            assert_eq!(Err(Missing(1)), put(&mut [&mut target], &places, Listed::All, &source, 8));
        }
        for numbers in [&[0, 2][..], &[0, -1], &[0]] {
            let places = [place(0, 1), place(0, 0)];
            let listed = Listed::Some(numbers);
            assert_eq!(Err(Missing(1)), take(&[&source], &places, listed, &mut rows, 8));
        }
    }
}
