//! Gaps between written pages, made dirty before a flush and never rewritten.
//!
//! Problem: after a sparse write, single pages are dirty, and `fsync` sends them to the disk one by
//! one. Reading the gaps and writing them back makes few large requests, but undoes concurrent
//! writes of other processes into the gaps (0010 states when that is allowed).
//!
//! Idea: the pages of a gap only have to be *dirty*. One atomic `or` with zero on a byte of a
//! shared mapping makes a page dirty: no byte changes, and because it is atomic on memory that all
//! programs of the machine share, no concurrent store is lost. The planner (`outcore_plan::gaps`)
//! decides which gaps are cheaper to write than to skip; this module makes them dirty where pages
//! are in the page cache already.
//!
//! Invariants: only files of file systems of this machine alone; only pages that are cached
//! (nothing is read for it) and stored (a hole stays a hole). If it is not wanted or not possible,
//! only time is lost. A file that was shortened is an error, because written data is lost.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use outcore_plan::gaps::{Cluster, Clusters, Prices};
use outcore_plan::Family;

use crate::claim;
use crate::error::StorageError;
use crate::files::{FileTable, OpenFile};
use crate::pool::Arena;
use crate::probe;

/// Largest number of remembered families; writes beyond are flushed as they are.
const REMEMBERED: usize = 1024;

/// Size of the dirty unit if the kernel keeps a file in large folios and does not report it.
const FOLIO: i64 = 2 << 20;

/// Writes since the last flush, as loops.
#[derive(Debug, Default)]
pub struct Written {
    families: Mutex<Vec<(u32, Family)>>,
}

impl Written {
    fn lock(&self) -> MutexGuard<'_, Vec<(u32, Family)>> {
        self.families.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records extents of files; an extent that continues the previous one is merged with it.
    pub fn add(&self, written: Vec<(u32, Family)>) {
        let mut families = self.lock();
        for (file, family) in written {
            if let Some((last_file, last)) = families.last_mut() {
                let one = last.count.is_empty() && family.count.is_empty() && *last_file == file;
                if one && last.offset + last.len == family.offset {
                    last.len = last.len.saturating_add(family.len);
                    continue;
                }
            }
            if families.len() < REMEMBERED {
                families.push((file, family));
            }
        }
    }

    /// Makes gaps dirty where that pays, before a flush; returns the pages and forgets the writes.
    ///
    /// With `send`, write-back of the written data is started.
    ///
    /// # Errors
    /// `Shrunk` if a file is shorter than the data written to it.
    pub fn fill(
        &self,
        files: &FileTable,
        prices: &Prices,
        arena: &Arena,
        send: bool,
    ) -> Result<u64, StorageError> {
        let mut of_file: BTreeMap<u32, Vec<Family>> = BTreeMap::new();
        for (file, family) in std::mem::take(&mut *self.lock()) {
            of_file.entry(file).or_default().push(family);
        }
        let mut pages = 0;
        for (file, families) in &of_file {
            let file = match files.open(*file) {
                // A replaced file was not written; if it was, the flush reports it.
                Err(StorageError::Replaced { .. }) => continue,
                found => found?,
            };
            if let Some(file) = file.kept() {
                pages += fill(file, families, prices, arena)?;
                if send {
                    Clusters::new(families, prices)
                        .for_each(|all| file.send(all.start, all.end - all.start));
                }
            }
        }
        Ok(pages)
    }
}

/// Returns whether a flush of these extents alone would make gaps dirty: then it is too early to
/// start their write-back.
pub fn waits(written: &[(u32, Family)], prices: &Prices) -> bool {
    written.iter().any(|(_, family)| {
        let mut clusters = Clusters::new(std::slice::from_ref(family), prices);
        clusters.next().is_some_and(|cluster| prices.pays(&cluster, 0))
    })
}

fn fill(
    file: &OpenFile,
    families: &[Family],
    prices: &Prices,
    arena: &Arena,
) -> Result<u64, StorageError> {
    let mut pages = 0;
    let mut local = None;
    for cluster in Clusters::new(families, prices) {
        if !prices.pays(&cluster, 0) || !prices.pays(&cluster, unit(file, &cluster)) {
            continue;
        }
        if !*local.get_or_insert_with(|| file.writable() && claim::is_local(file)) {
            break;
        }
        pages += fill_cluster(file, &cluster, arena)?;
    }
    Ok(pages)
}

/// Returns how many bytes of a file become dirty with one of its pages. A write to a part of a
/// folio marks all its pages, so if more pages are marked than were written, folios are large.
fn unit(file: &OpenFile, cluster: &Cluster) -> i64 {
    let len = cluster.end - cluster.start;
    match probe::dirty(file.fd(), cluster.start, len) {
        Some(dirty) if dirty <= cluster.written() + cluster.missing() / 8 => probe::page_size(),
        _ => FOLIO,
    }
}

fn fill_cluster(file: &OpenFile, cluster: &Cluster, arena: &Arena) -> Result<u64, StorageError> {
    let page = probe::page_size();
    let len = file.len()?;
    if cluster.end > len.saturating_add(page - 1) / page * page {
        return Err(StorageError::Shrunk { path: file.path().to_path_buf() });
    }
    // Gaps end below the last page that was written, so they are inside the file.
    let last = cluster.gaps.last().map_or(0, |gap| gap.1);
    let Ok(mapping) = file.mapping(last, arena) else { return Ok(0) };
    if i64::try_from(mapping.len()).is_ok_and(|mapped| mapped < last) {
        return Err(StorageError::Shrunk { path: file.path().to_path_buf() });
    }
    let ready = |first: i64, end: i64| {
        probe::cached(file.fd(), first, end - first) == Some(1000)
            && !probe::has_hole(file.fd(), first, end.min(len) - first)
    };
    let all = ready(cluster.start, cluster.end);
    let mut pages = 0;
    for (first, end) in &cluster.gaps {
        if all || ready(*first, *end) {
            pages += mapping.touch(*first as usize, *end as usize);
        }
    }
    match mapping.check(file) {
        Err(shrunk @ StorageError::Shrunk { .. }) => Err(shrunk),
        // A page of a gap got no space (copy on write): `fsync` reports errors of the rest.
        _ => Ok(pages),
    }
}

#[cfg(test)]
#[allow(unsafe_code)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use outcore_plan::Terms;

    use super::*;
    use crate::files::FileRef;
    use crate::testdir::TestDir;

    const PAGES: i64 = 256;

    fn slow() -> Prices {
        let mut terms = Terms::new(0);
        terms.rates.latency_ns = 5_000_000;
        terms.rates.device = 200_000_000;
        terms.rates.stream = 100_000_000;
        Prices::new(probe::page_size(), &terms)
    }

    /// A few bytes in every fourth page.
    fn fourths() -> Family {
        let page = probe::page_size();
        Family { offset: 100, len: 50, count: vec![PAGES / 4], stride: vec![4 * page] }
    }

    /// Pages of the gaps between them.
    const BETWEEN: u64 = 3 * (PAGES as u64 / 4 - 1);

    fn bytes() -> Vec<u8> {
        (0..PAGES * probe::page_size()).map(|k| (k % 251) as u8).collect()
    }

    /// Writes `len` bytes of 7 at each extent of a family of one loop.
    fn put(file: &OpenFile, family: &Family, len: usize) {
        let memory = vec![7u8; len];
        for k in 0..family.count[0] {
            let offset = family.offset + k * family.stride[0];
            // SAFETY: the memory holds `len` bytes.
            unsafe { file.write_at(offset, memory.as_ptr(), len) }.unwrap();
        }
    }

    fn fill_table(table: &FileTable, written: Vec<(u32, Family)>, prices: &Prices) -> u64 {
        let all = Written::default();
        all.add(written);
        let arena = Arena::new(64 << 20);
        let pages = all.fill(table, prices, &arena, false).unwrap();
        assert_eq!(
            0,
            all.fill(table, prices, &arena, false).unwrap(),
            "what was written is forgotten"
        );
        pages
    }

    #[test]
    fn pages_between_become_dirty_and_no_byte_changes() {
        let dir = TestDir::new("gaps");
        let path = dir.file("a", b"");
        let table = FileTable::new(vec![path.clone()], true);
        let FileRef::Kept(file) = table.open(0).unwrap() else { unreachable!() };
        // Page by page: a write into a large folio would mark the whole folio.
        let page = probe::page_size() as usize;
        for (k, part) in bytes().chunks(page).enumerate() {
            // SAFETY: the memory holds a page.
            unsafe { file.write_at((k * page) as i64, part.as_ptr(), page) }.unwrap();
        }
        let local = claim::is_local(file);
        let mut expected = bytes();
        for k in 0..PAGES / 4 {
            let at = (100 + k * 4 * probe::page_size()) as usize;
            expected[at..at + 50].fill(7);
        }
        let all = PAGES * probe::page_size();
        let last = all - 3 * probe::page_size();
        // The kernel may clean pages at any time, but not in every attempt.
        for attempt in 0..50 {
            file.settle().unwrap();
            put(file, &fourths(), 50);
            let before = probe::dirty(file.fd(), 0, all);
            if before == Some(0) && attempt < 49 {
                continue; // already cleaned, or the file system does not report it
            }
            let pages = fill_table(&table, vec![(0, fourths())], &slow());
            if probe::cached(file.fd(), 0, last) != Some(1000) {
                continue; // evicted meanwhile
            }
            assert_eq!(if local { BETWEEN } else { 0 }, pages);
            let dirty = probe::dirty(file.fd(), 0, last);
            assert_eq!(expected, std::fs::read(&path).unwrap());
            if !local || before.is_none_or(|bytes| bytes == 0) || dirty == Some(last) {
                return;
            }
        }
        panic!("pages of the gaps did not become dirty");
    }

    #[test]
    fn gaps_that_are_dear_cold_or_holes_are_left_alone() {
        let dir = TestDir::new("left-alone");
        let page = probe::page_size();
        let table = FileTable::new(vec![dir.file("a", &bytes()), dir.path("b")], true);
        // The disk is fast, so it is not worth it.
        let fast = Prices::new(page, &Terms::new(0));
        let FileRef::Kept(file) = table.open(0).unwrap() else { unreachable!() };
        put(file, &fourths(), 50);
        assert_eq!(0, fill_table(&table, vec![(0, fourths())], &fast));
        // Cold: not read for it.
        let whole = Family { offset: 0, len: page, ..fourths() };
        if probe::evict(file.fd(), 0, PAGES * page).is_ok() {
            put(file, &whole, page as usize);
            let cold = probe::cached(file.fd(), 0, PAGES * page).is_some_and(|cached| cached < 400);
            let filled = fill_table(&table, vec![(0, whole.clone())], &slow());
            assert_eq!(0, if cold { filled } else { 0 });
        }
        // Holes, although they were read.
        let sparse = std::fs::File::create(dir.path("b")).unwrap();
        sparse.set_len((PAGES * page) as u64).unwrap();
        assert!(std::fs::read(dir.path("b")).unwrap().iter().all(|byte| *byte == 0));
        let FileRef::Kept(file) = table.open(1).unwrap() else { unreachable!() };
        put(file, &whole, page as usize);
        file.settle().unwrap();
        let blocks = sparse.metadata().unwrap().blocks();
        assert_eq!(0, fill_table(&table, vec![(1, whole)], &slow()));
        file.settle().unwrap();
        assert_eq!(blocks, sparse.metadata().unwrap().blocks());
    }

    #[test]
    fn a_file_that_was_shortened_is_an_error() {
        let dir = TestDir::new("gaps-shrunk");
        let path = dir.file("a", &bytes());
        let table = FileTable::new(vec![path.clone()], true);
        let FileRef::Kept(file) = table.open(0).unwrap() else { unreachable!() };
        put(file, &fourths(), 50);
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(5000).unwrap();
        let written = Written::default();
        written.add(vec![(0, fourths())]);
        let result = written.fill(&table, &slow(), &Arena::new(64 << 20), false);
        if claim::is_local(file) {
            assert_eq!("file-changed", result.unwrap_err().code());
        }
        assert_eq!(5000, file.len().unwrap());
    }

    #[test]
    fn what_is_remembered_is_bounded_and_what_continues_is_one() {
        let written = Written::default();
        let one = |offset| (0, Family { offset, len: 10, count: vec![], stride: vec![] });
        for k in 0..5000 {
            written.add(vec![one(10 * k)]);
        }
        assert_eq!(vec![(0, Family { len: 50_000, ..one(0).1 })], *written.lock());
        for k in 0..5000 {
            written.add(vec![one(100_000 + 20 * k)]);
        }
        assert_eq!(REMEMBERED, written.lock().len());
        assert!(waits(&[(0, fourths())], &slow()) && !waits(&[one(0)], &slow()));
    }

    #[test]
    fn what_another_process_stores_is_never_undone() {
        const ROUNDS: u32 = 20_000;
        let dir = TestDir::new("gaps-others");
        let page = probe::page_size() as usize;
        let file = OpenFile::open(&dir.file("a", &vec![0u8; 4 * page]), true).unwrap();
        let mapping = file.mapping(4 * page as i64, &Arena::new(64 << 20)).unwrap();
        // SAFETY: the child stores into a mapping inherited from its parent, and leaves.
        let child = unsafe { libc::fork() };
        if child == 0 {
            for round in 0..ROUNDS {
                for at in 0..4 {
                    // SAFETY: bytes of the mapping, the same ones that `touch` uses.
                    unsafe {
                        let byte = mapping.as_ptr().add(at * page);
                        byte.write_volatile(round as u8);
                        std::hint::spin_loop();
                        if byte.read_volatile() != round as u8 {
                            libc::_exit(1);
                        }
                    }
                }
            }
            // SAFETY: as above.
            unsafe { libc::_exit(0) };
        }
        let (mut status, mut pages) = (-1, 0);
        // SAFETY: polls the child made above.
        while unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == 0 {
            pages += mapping.touch(0, 4 * page);
        }
        assert_eq!(0, status, "a store was undone after {pages} touches");
        mapping.check(&file).unwrap();
    }
}
