use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicU32;

use super::*;
use crate::guard::Keeper;
use crate::testing::{budget, TestDir};

/// Chunks of four bytes, at places of a file that a map specifies.
#[derive(Debug, Default)]
struct Format {
    path: PathBuf,
    places: Mutex<BTreeMap<Vec<i64>, i64>>,
    /// Number of chunks of each call.
    commits: Mutex<Vec<usize>>,
    stretched: AtomicU32,
    read_only: bool,
    held: Arc<AtomicU32>,
}

impl Library for Format {
    fn fetch(&self, cells: &Cells, _locked: bool) -> Result<Vec<i64>, StorageError> {
        let places = lock(&self.places);
        let row = |cell| [places.get(&cell).copied().unwrap_or(-1), 4, 0];
        Ok(cells.iter().flat_map(row).collect())
    }

    fn stored(&self, _: &[i64], _: &[i64], _: bool) -> Result<Listed, StorageError> {
        Listed::from_places([])
    }

    fn commits(&self) -> bool {
        !self.read_only
    }

    fn commit(&self, chunks: Staged) -> Result<Staged, StorageError> {
        let (mut number, mut file) = (0, std::fs::read(&self.path).unwrap());
        while let Some((cell, mask, bytes)) = chunks.chunk(number) {
            assert_eq!(0, mask);
            let at = file.len() as i64;
            file.extend_from_slice(bytes);
            lock(&self.places).insert(cell.to_vec(), at);
            number += 1;
        }
        std::fs::write(&self.path, file).unwrap();
        lock(&self.commits).push(number);
        Ok(chunks)
    }

    fn load(&self, new: i64) -> Result<i64, Fault> {
        Ok(new)
    }

    fn stretches(&self) -> bool {
        true
    }

    fn stretch(&self) -> Result<(), StorageError> {
        self.stretched.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

#[derive(Debug)]
struct Locks(Arc<AtomicU32>);

struct Release(Arc<AtomicU32>);

impl Drop for Release {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Keeper for Locks {
    fn recover(&self) -> Result<(), StorageError> {
        Ok(())
    }

    fn hold(&self) -> Result<Held, StorageError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(Release(self.0.clone())))
    }
}

fn table(path: &Path, read_only: bool, guarded: bool) -> (Table, Arc<Format>) {
    let format = Arc::new(Format { path: path.to_path_buf(), read_only, ..Format::default() });
    let log = path.with_extension("log");
    let guard = guarded.then(|| Guard { log, keeper: Arc::new(Locks(format.held.clone())) });
    let size = ChunkSize { decoded: 4, limit: 4, encoded: false };
    (Table::new(path.to_path_buf(), None, format.clone(), guard, size), format)
}

fn cells(count: i64) -> Cells {
    Cells { lo: vec![0], count: vec![count] }
}

#[test]
fn encoded_chunks_are_handed_over_when_the_room_is_used() {
    let _one = budget(1 << 24);
    let dir = TestDir::new("table-sink");
    let (table, format) = table(&dir.file("a", b"head"), false, false);
    // Two pages: one is left while an object of the other exists.
    let room = AtomicUsize::new(2 * PAGE);
    let sink = table.begin(1000, &room);
    for k in 0..10 {
        sink.commit(&[k], 0, &[k as u8; 1000]).unwrap();
    }
    assert_eq!(vec![4, 4], *lock(&format.commits));
    sink.finish().unwrap();
    assert_eq!(vec![4, 4, 2], *lock(&format.commits));
    let file = std::fs::read(dir.path().join("a")).unwrap();
    let expected: Vec<u8> = (0..10).flat_map(|k| vec![k; 1000]).collect();
    assert!(file[4..] == expected[..]);
    assert_eq!(0, Arena::global().used());
}

#[test]
fn a_chunk_that_is_larger_than_the_room_is_handed_over_alone() {
    let _one = budget(1 << 24);
    let dir = TestDir::new("table-large");
    let (table, format) = table(&dir.file("a", b""), false, false);
    let room = AtomicUsize::new(0);
    let sink = table.begin(10_000, &room);
    for k in 0..3 {
        sink.commit(&[k], 0, &[k as u8; 10_000]).unwrap();
    }
    sink.finish().unwrap();
    assert_eq!(vec![1, 1, 1], *lock(&format.commits));
}

#[test]
fn a_table_that_stores_nothing_refuses() {
    let _one = budget(1 << 24);
    let dir = TestDir::new("table-read-only");
    let (table, format) = table(&dir.file("a", b""), true, false);
    let room = AtomicUsize::new(0);
    let sink = table.begin(4, &room);
    sink.commit(&[0], 0, &[1; 4]).unwrap();
    assert_eq!("read-only", sink.finish().unwrap_err().code());
    assert!(lock(&format.commits).is_empty());
}

#[test]
fn missing_chunks_are_made_of_the_fill_value_and_others_are_left_alone() {
    let _one = budget(1 << 24);
    let dir = TestDir::new("table-made");
    let path = dir.file("a", b"head1234");
    let (table, format) = table(&path, false, true);
    lock(&format.places).insert(vec![1], 4);
    let (found, lock_held) = table.in_place(&cells(3), &[7, 8], &|_| true, Patience::NONE).unwrap();
    assert!(lock_held.is_some() && found.files.writable());
    assert_eq!(vec![2], *lock(&format.commits), "both that are missing in one call");
    let stored: Vec<i64> = found.table.stored.iter().map(|at| at.unwrap().offset).collect();
    assert_eq!(vec![8, 4, 12], stored);
    assert_eq!(b"head1234\x07\x08\x07\x08\x07\x08\x07\x08", &std::fs::read(&path).unwrap()[..]);
    assert_eq!(0, format.held.load(Ordering::SeqCst), "the library's lock is given back");
    assert_eq!(0, Arena::global().used());
}

#[test]
fn chunks_are_made_while_programs_of_the_library_are_kept_out() {
    let _one = budget(1 << 24);
    let dir = TestDir::new("table-held");
    let (table, format) = table(&dir.file("a", b""), false, true);
    let held = table.hold().unwrap();
    assert!(held.is_some());
    assert_eq!(1, format.held.load(Ordering::SeqCst));
    drop(held);
    assert_eq!(0, format.held.load(Ordering::SeqCst));
    let writer = table.lock(Patience::NONE).unwrap();
    assert!(writer.is_some() && table.share(Patience::NONE).is_err());
}

#[test]
fn making_chunks_is_refused_before_anything_is_stored() {
    let _one = budget(PAGE as u64);
    let dir = TestDir::new("table-refused");
    let (table, format) = table(&dir.file("a", b""), false, false);
    let refused = table.in_place(&cells(1), &[7], &|_| true, Patience::NONE).map(drop).unwrap_err();
    let StorageError::Budget(refused) = refused else { panic!("{refused}") };
    assert_eq!(2 * PAGE as u64, refused.needed, "a chunk, and the same on its way");
    assert!(lock(&format.commits).is_empty());
}

#[test]
fn what_is_stored_is_made_as_long_as_the_array_once() {
    let dir = TestDir::new("table-stretched");
    let (table, format) = table(&dir.file("a", b""), false, false);
    assert!(table.is_short());
    table.stretch().unwrap();
    table.stretch().unwrap();
    assert!(!table.is_short());
    assert_eq!(1, format.stretched.load(Ordering::SeqCst));
}

#[test]
fn rows_that_reach_beyond_the_file_are_damage() {
    let dir = TestDir::new("table-damaged");
    let (table, format) = table(&dir.file("a", b"12345"), false, false);
    lock(&format.places).insert(vec![0], 2);
    let damaged = table.resolve(&cells(1), false, false).map(drop).unwrap_err();
    assert_eq!("chunk-table-damaged", damaged.code());
    lock(&format.places).insert(vec![0], 1);
    assert!(table.resolve(&cells(1), false, false).is_ok());
}
