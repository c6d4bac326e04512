//! Pages of a file that are in the page table of a mapping of it.
//!
//! Problem: a copy out of a mapping takes a page fault for each page that is not in the page table
//! yet, which costs more than a small read; and a fault adds 2 MiB or 64 KiB, depending on the
//! folios of the page cache. The file itself shows neither.
//!
//! Idea: `/proc/self/pagemap` has a word for each page of this process, which includes whether the
//! page is present. Some of the pages that will be read are looked up. If they are absent, one byte
//! is read in a few places, and the pages that this adds in addition show the size of folios.
//!
//! Invariants: the file is opened for one query, so a forked child never reads its parent's; only
//! page table entries change.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::mapping::Mapping;
use crate::page::GRANULE;
use crate::probe;

/// Bit of a word for a present page.
const PRESENT: u64 = 1 << 63;

/// Pages of a mapping, estimated from a few of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entered {
    /// Share of the pages that are not in the page table, in thousandths.
    pub absent: i64,
    /// Share of places where a page fault adds far more than 64 KiB, in thousandths; 0 if no page
    /// is absent.
    pub large: i64,
}

/// The page table of this process.
struct PageTable {
    words: File,
    page: usize,
}

impl PageTable {
    fn open() -> Option<PageTable> {
        let page = usize::try_from(probe::page_size()).ok()?;
        Some(PageTable { words: File::open("/proc/self/pagemap").ok()?, page })
    }

    fn present(&self, address: usize) -> Option<bool> {
        let mut word = [0; 8];
        let at = (address / self.page * word.len()) as u64;
        self.words.read_exact_at(&mut word, at).ok()?;
        Some(u64::from_ne_bytes(word) & PRESENT != 0)
    }
}

impl Mapping {
    /// Looks up the pages of some bytes, and if any is absent, reads a byte in each of the places
    /// `tries`; `None` if the system does not report it.
    ///
    /// Positions are bytes from the beginning of the file.
    pub fn entered(&self, looks: &[usize], tries: &[usize]) -> Option<Entered> {
        let table = PageTable::open()?;
        let present = |at: usize| table.present(self.as_ptr() as usize + at);
        let mut absent = 0;
        for at in looks {
            absent += i64::from(!present(*at)?);
        }
        let (mut large, mut known) = (0, 0);
        for at in if absent > 0 { tries } else { &[] } {
            // In the same 2 MiB, and farther away than the pages that the kernel adds around a
            // small folio.
            let around = [2, 4, 8, 16].map(|part| at ^ (GRANULE / part));
            let around: Vec<usize> = around.into_iter().filter(|far| *far < self.len()).collect();
            let mut far = None;
            for at in &around {
                if far.is_none() && !present(*at)? {
                    far = Some(*at);
                }
            }
            self.enter(*at);
            known += i64::from(!around.is_empty());
            // If all pages are present, no fault remains.
            let entered = far.map_or(Some(true), present)?;
            large += i64::from(!around.is_empty() && entered);
        }
        let (looked, known) = (looks.len().max(1) as i64, known.max(1));
        Some(Entered { absent: absent * 1000 / looked, large: large * 1000 / known })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open_file::OpenFile;
    use crate::pool::Arena;
    use crate::testdir::TestDir;

    #[test]
    fn pages_are_absent_until_they_are_read() {
        let dir = TestDir::new("entered");
        let path = dir.file("a", &vec![5u8; 16 << 20]);
        let arena = Arena::new(64 << 20);
        let file = OpenFile::open(&path, false).unwrap();
        let mapping = file.mapping(16 << 20, &arena).unwrap();
        let looks: Vec<usize> = (0..8).map(|k| k * GRANULE + 100).collect();
        assert_eq!(1000, mapping.entered(&looks, &[]).unwrap().absent);
        // A lookup adds no page, a read does; it counts within the budget.
        assert_eq!(1000, mapping.entered(&looks, &[]).unwrap().absent);
        assert_eq!(0, arena.mapped());
        looks[..2].iter().for_each(|at| mapping.enter(*at));
        assert_eq!(750, mapping.entered(&looks, &[]).unwrap().absent);
        assert_eq!(2 * GRANULE as u64, arena.mapped());
        looks.iter().for_each(|at| mapping.enter(*at));
        let none = Entered { absent: 0, large: 0 };
        assert_eq!(Some(none), mapping.entered(&looks, &looks));
        // There is nothing to read after the end.
        mapping.enter(16 << 20);
        assert_eq!(8 * GRANULE as u64, arena.mapped());
    }

    #[test]
    fn places_that_are_tried_tell_what_a_fault_enters() {
        let dir = TestDir::new("tried");
        let path = dir.file("a", &vec![5u8; 16 << 20]);
        let arena = Arena::new(64 << 20);
        let file = OpenFile::open(&path, false).unwrap();
        let mapping = file.mapping(16 << 20, &arena).unwrap();
        let looks: Vec<usize> = (0..4).map(|k| 2 * k * GRANULE + 100).collect();
        let tries: Vec<usize> = looks.iter().map(|at| at + GRANULE).collect();
        let first = mapping.entered(&looks, &tries).unwrap();
        assert_eq!(1000, first.absent);
        assert_eq!(4 * GRANULE as u64, arena.mapped(), "the places that were tried");
        let table = PageTable::open().unwrap();
        let far =
            |at: &usize| table.present(mapping.as_ptr() as usize + (at ^ (GRANULE / 2))).unwrap();
        let large = tries.iter().filter(|at| far(at)).count() as i64;
        assert_eq!(250 * large, first.large);
        // The same result again, although these pages are present now.
        assert_eq!(Some(first), mapping.entered(&looks, &tries));
        // If all pages are present, a fault costs nothing.
        (0..256).for_each(|k| mapping.enter(k << 16));
        assert_eq!(0, mapping.entered(&looks, &tries).unwrap().absent);
    }

    #[test]
    fn a_fault_enters_few_pages_where_folios_are_small() {
        let dir = TestDir::new("small");
        let path = dir.file("a", &vec![5u8; 8 << 20]);
        let file = OpenFile::open(&path, true).unwrap();
        file.settle().unwrap();
        probe::evict(file.fd(), 0, 8 << 20).unwrap();
        // From now on, each page that a mapping reads is a separate folio.
        let arena = Arena::new(64 << 20);
        let mapping = file.mapping(8 << 20, &arena).unwrap();
        let tries = [GRANULE, 2 * GRANULE, 3 * GRANULE];
        let small = Some(Entered { absent: 1000, large: 0 });
        assert_eq!(small, mapping.entered(&[100], &tries));
        // Pages that were added for another access do not count.
        mapping.enter(GRANULE + GRANULE / 2);
        assert_eq!(small, mapping.entered(&[100], &[GRANULE]));
    }
}
