//! Memory of chunk stores in addition to chunks, measured by the allocator, against their own
//! numbers.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::PathBuf;
use std::sync::atomic::{AtomicIsize, Ordering};

use outcore_io::lock::Patience;
use outcore_io::store::files::FileStore;
use outcore_io::store::shards::{IndexFormat, ShardStore};
use outcore_io::store::table::from_rows;
use outcore_io::store::{Cells, ChunkSize, ChunkStore, Naming, BYTES_A_CHUNK};

/// Counts allocated bytes, and their maximum since the last reset.
struct Counting;

static NOW: AtomicIsize = AtomicIsize::new(0);
static MOST: AtomicIsize = AtomicIsize::new(0);

fn count(bytes: isize) {
    let now = NOW.fetch_add(bytes, Ordering::Relaxed) + bytes;
    MOST.fetch_max(now, Ordering::Relaxed);
}

// SAFETY: the system's allocator does everything.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Checks that `work` holds at most `promised` bytes at a time, and at least `promised / loose`.
fn within<T>(what: &str, promised: u64, loose: u64, work: impl FnOnce() -> T) -> T {
    let before = NOW.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let result = work();
    let held = (MOST.load(Ordering::Relaxed) - before) as u64;
    println!("{what}: {held} of {promised}");
    assert!(held <= promised, "{what}: {held} bytes held, {promised} promised");
    assert!(held * loose >= promised, "{what}: only {held} bytes held, {promised} promised");
    result
}

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A single test, so that no other test allocates concurrently.
#[test]
fn stores_hold_what_they_say() {
    let root = std::env::temp_dir().join(format!("outcore-held-{}", std::process::id()));
    std::fs::create_dir_all(root.join("a folder")).unwrap();
    let folder = Folder(root.clone());
    let lock = root.join("zarr.json");
    std::fs::write(&lock, b"{}").unwrap();
    let naming =
        || Naming { root: root.join("a folder"), prefix: "c/".into(), separator: "/".into() };
    let size = ChunkSize { decoded: 64, limit: 100, encoded: true };
    let bytes = [1u8; 64];
    let replace = |store: &dyn ChunkStore, cells: &Cells| {
        let _guard = store.lock(cells, Patience { timeout: None, cancelled: None }).unwrap();
        let before = store.resolve(cells, false).unwrap();
        let sink = store.begin(cells, &|_| true).unwrap();
        cells.iter().for_each(|cell| sink.commit(&cell, 0, &bytes).unwrap());
        sink.finish().unwrap();
        drop(before);
    };

    let grid = vec![12, 16];
    let cells = Cells::new(&[0, 0], &grid, &grid).unwrap();
    let files = FileStore::new(naming(), lock.clone(), grid.clone(), size);
    replace(&files, &cells);
    within("replaced files", files.held_bytes(&cells, true), 4, || replace(&files, &cells));
    within("files", files.held_bytes(&cells, false), 4, || files.resolve(&cells, false).unwrap());

    let grid = vec![64, 128];
    for (per_shard, index) in [(vec![64, 128], true), (vec![16, 32], false)] {
        let cells = Cells::new(&[0, 0], &grid, &grid).unwrap();
        let index = IndexFormat { at_end: index, crc32c: true };
        let (naming, lock) = (Naming { prefix: format!("{index:?}/"), ..naming() }, lock.clone());
        let shards = ShardStore::new(naming, lock, grid.clone(), per_shard, index, size).unwrap();
        replace(&shards, &cells);
        let held = |replacing| shards.held_bytes(&cells, replacing);
        within("replaced shards", held(true), 4, || replace(&shards, &cells));
        within("shards", held(false), 4, || shards.resolve(&cells, false).unwrap());
        // A few chunks of large shards, where the indexes dominate.
        let few = Cells::new(&[0, 0], &[2, 2], &grid).unwrap();
        let held = |replacing| shards.held_bytes(&few, replacing);
        within("a few replaced", held(true), 4, || replace(&shards, &few));
        within("a few", held(false), 4, || shards.resolve(&few, false).unwrap());
    }

    let cells = Cells::new(&[0, 0], &grid, &grid).unwrap();
    let promised = cells.len() as u64 * BYTES_A_CHUNK;
    within("rows", promised, 4, || {
        let rows: Vec<i64> = (0..cells.len() as i64).flat_map(|k| [64 * k, 64, 0]).collect();
        let len = 64 * cells.len() as i64;
        from_rows(&cells, &rows, size, 0, len, &lock).unwrap()
    });
    drop(folder);
}
