//! Lists of existing files of chunks (or shards), found by listing folders instead of querying each
//! name.
//!
//! Problem. An array may have a grid of 10^15 chunks and store three. An access to all of it must
//! cost only the three. Idea. The names of files are coordinates. A walk through the folders finds
//! the files inside a box. It enters no folder outside the box, and stops when querying every file
//! of the box is cheaper.
//!
//! Invariants. Every file of the box that can be opened is found. A folder that cannot be listed
//! counts as its first file; opening that file reports the error. The list is counted in the memory
//! budget, and a walk can be interrupted.

use std::io::ErrorKind;
use std::path::Path;

use super::naming::Naming;
use crate::error::StorageError;
use crate::pool::{Arena, Reservation};

/// Files of a box: their positions in it, numbered in C order, ascending.
#[derive(Debug, Default)]
pub struct Listed {
    /// Positions of the files.
    pub places: Vec<i64>,
    /// Reservations for the list.
    held: Vec<Reservation>,
}

/// Positions in one reservation, and bytes of each while the list grows.
const BLOCK: usize = 1 << 16;
const BYTES: u64 = 24;
/// Names between two checks for Ctrl-C.
const GLANCE: usize = 1 << 10;

impl Listed {
    fn push(&mut self, place: i64) -> Result<(), StorageError> {
        if self.places.len() == self.held.len() * BLOCK {
            let bytes = BLOCK as u64 * BYTES;
            self.held.push(Arena::global().reserve("the list of stored chunks", bytes)?);
        }
        self.places.push(place);
        Ok(())
    }

    /// Makes a list of positions that were found elsewhere.
    ///
    /// # Errors
    /// `Budget` if they do not fit the budget.
    pub fn from_places(places: impl IntoIterator<Item = i64>) -> Result<Listed, StorageError> {
        let mut listed = Listed::default();
        places.into_iter().try_for_each(|place| listed.push(place))?;
        listed.places.sort_unstable();
        Ok(listed)
    }

    /// Returns whether any position is in `low..=high`.
    pub fn meets(&self, low: i64, high: i64) -> bool {
        let first = self.places.partition_point(|&place| place < low);
        self.places.get(first).is_some_and(|&place| place <= high)
    }
}

/// Lists the files of the box of `count` coordinates from `lo` on; `None` after more than `most`
/// names.
///
/// # Errors
/// `Cancelled`; `Budget` if the list is too long.
pub fn list(
    naming: &Naming,
    (lo, count): (&[i64], &[i64]),
    most: usize,
    interrupted: &dyn Fn() -> bool,
) -> Result<Option<Listed>, StorageError> {
    let mut walk = Walk { naming, lo, count, left: most, interrupted, found: Listed::default() };
    if lo.is_empty() || count.contains(&0) {
        let exists = lo.is_empty() && naming.path(&[]).symlink_metadata().is_ok();
        return Ok(Some(Listed::from_places(exists.then_some(0))?));
    }
    let (folder, start) = naming.prefix.rsplit_once('/').unwrap_or(("", &naming.prefix));
    let folder = naming.root.join(folder);
    let whole = match naming.separator == "/" {
        true => walk.nested(&folder, start, 0, 0)?,
        false => walk.flat(&folder, start)?,
    };
    let mut found = walk.found;
    found.places.sort_unstable();
    found.places.dedup();
    Ok(whole.then_some(found))
}

struct Walk<'a> {
    naming: &'a Naming,
    lo: &'a [i64],
    count: &'a [i64],
    /// Names that may still be visited.
    left: usize,
    interrupted: &'a dyn Fn() -> bool,
    found: Listed,
}

impl Walk<'_> {
    /// Returns the position for coordinate `word` along an axis, given the position `place` along
    /// the axes before; `None` if it is not a coordinate, or outside the box.
    fn place(&self, axis: usize, place: i64, word: &str) -> Option<i64> {
        let digits = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
        let plain = digits && (word.len() == 1 || !word.starts_with('0'));
        let at = word.parse::<i64>().ok().filter(|_| plain)?.checked_sub(self.lo[axis])?;
        let inside = (0..self.count[axis]).contains(&at);
        inside.then(|| place.checked_mul(self.count[axis])?.checked_add(at)).flatten()
    }

    /// Returns the first position below a folder.
    fn first(&self, axis: usize, place: i64) -> i64 {
        self.count[axis..].iter().fold(place, |place, n| place.saturating_mul(*n))
    }

    /// Calls `each` with the names in a folder; returns false if there are too many.
    fn names(
        &mut self,
        folder: &Path,
        (axis, place): (usize, i64),
        each: &mut dyn FnMut(&mut Self, &str) -> Result<bool, StorageError>,
    ) -> Result<bool, StorageError> {
        let entries = match std::fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error)
                if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&error.kind()) =>
            {
                return Ok(true);
            }
            Err(_) => {
                self.found.push(self.first(axis, place))?;
                return Ok(true);
            }
        };
        for entry in entries {
            if self.left == 0 {
                return Ok(false);
            }
            self.left -= 1;
            if self.left.is_multiple_of(GLANCE) && (self.interrupted)() {
                return Err(StorageError::Cancelled);
            }
            let Ok(entry) = entry else {
                self.found.push(self.first(axis, place))?;
                break;
            };
            if let Some(name) = entry.file_name().to_str() {
                if !each(self, name)? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn nested(
        &mut self,
        folder: &Path,
        start: &str,
        axis: usize,
        place: i64,
    ) -> Result<bool, StorageError> {
        self.names(folder, (axis, place), &mut |walk, name| {
            let word = name.strip_prefix(start);
            let Some(place) = word.and_then(|word| walk.place(axis, place, word)) else {
                return Ok(true);
            };
            match axis + 1 == walk.lo.len() {
                true => walk.found.push(place).map(|()| true),
                false => walk.nested(&folder.join(name), "", axis + 1, place),
            }
        })
    }

    fn flat(&mut self, folder: &Path, start: &str) -> Result<bool, StorageError> {
        self.names(folder, (0, 0), &mut |walk, name| {
            let Some(words) = name.strip_prefix(start) else { return Ok(true) };
            let mut words = words.split(walk.naming.separator.as_str());
            let along = |place, axis| walk.place(axis, place, words.next()?);
            let place = (0..walk.lo.len()).try_fold(0, along);
            match place.filter(|_| words.next().is_none()) {
                Some(place) => walk.found.push(place).map(|()| true),
                None => Ok(true),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdir::TestDir;

    fn naming(dir: &TestDir, prefix: &str, separator: &str) -> Naming {
        let (prefix, separator) = (prefix.to_owned(), separator.to_owned());
        Naming { root: dir.path("a"), prefix, separator }
    }

    fn places(naming: &Naming, lo: &[i64], count: &[i64]) -> Vec<i64> {
        list(naming, (lo, count), usize::MAX, &|| false).unwrap().unwrap().places
    }

    #[test]
    fn files_of_a_box_are_found_whatever_they_are_called() {
        for (prefix, separator) in [("c/", "/"), ("c.", "."), ("", "/"), ("", ".")] {
            let dir = TestDir::new("listing");
            let naming = naming(&dir, prefix, separator);
            for cell in [[0, 0], [2, 1], [2, 7], [3, 5], [9, 1]] {
                let path = naming.path(&cell);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, b"x").unwrap();
            }
            for other in ["zarr.json", "c/x", "c/02", "c/-1", "1.", "01.1", "1.1.1", ".1.1.tmp"] {
                let path = naming.root.join(other);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, b"x").unwrap();
            }
            let whole = 1 << 31;
            let all = vec![0, 2 * whole + 1, 2 * whole + 7, 3 * whole + 5, 9 * whole + 1];
            assert_eq!(all, places(&naming, &[0, 0], &[whole, whole]));
            assert_eq!(vec![0, 9], places(&naming, &[2, 1], &[2, 5]));
            assert!(places(&naming, &[4, 0], &[5, whole]).is_empty());
            assert!(list(&naming, (&[0, 0], &[9, 9]), 2, &|| false).unwrap().is_none());
        }
    }

    #[test]
    fn a_folder_that_cannot_be_listed_counts_as_its_first_file() {
        let dir = TestDir::new("listing-loop");
        let naming = naming(&dir, "c/", "/");
        std::fs::create_dir_all(naming.root.join("c/3")).unwrap();
        std::fs::write(naming.root.join("c/4"), b"no folder").unwrap();
        std::os::unix::fs::symlink("5", naming.root.join("c/5")).unwrap(); // ELOOP, also for root
        assert_eq!(vec![35], places(&naming, &[0, 0], &[9, 7]));
    }

    #[test]
    fn a_walk_is_interrupted_and_its_list_is_counted() {
        let dir = TestDir::new("listing-stop");
        let naming = naming(&dir, "c/", "/");
        std::fs::create_dir_all(naming.root.join("c")).unwrap();
        (0..10).for_each(|k| std::fs::write(naming.path(&[k]), b"x").unwrap());
        let stopped = list(&naming, (&[0], &[1 << 40]), 9 + GLANCE, &|| true);
        assert!(matches!(stopped, Err(StorageError::Cancelled)));
        let found = list(&naming, (&[0], &[1 << 40]), 1 << 20, &|| false).unwrap().unwrap();
        assert!(found.held[0].bytes() >= 8 * found.places.len() as u64);
        assert!(found.meets(9, 20) && found.meets(0, 0) && !found.meets(10, 1 << 39));
    }
}
