//! Chunk stores: stored chunks are found again, damage is rejected, concurrent changes of several
//! writers are all preserved.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use outcore_io::backend::sys;
use outcore_io::lock::{Mode, Patience, Range};
use outcore_io::store::files::FileStore;
use outcore_io::store::shards::{IndexFormat, ShardStore};
use outcore_io::store::table::from_rows;
use outcore_io::store::{Cells, ChunkSize, ChunkStore, Naming, Resolved};
use outcore_io::{CodecSpec, Pipeline};

/// A separate folder with a file to lock; removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let unique = format!("outcore-stores-{name}-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(unique);
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("zarr.json"), b"{}").unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Chunks of 64 bytes, in a grid of 6 by 5.
const GRID: [i64; 2] = [6, 5];
const LEN: usize = 64;

fn naming(root: &Path) -> Naming {
    Naming { root: root.to_path_buf(), prefix: "c/".into(), separator: "/".into() }
}

fn pipeline(encoded: bool) -> Pipeline {
    let specs = [CodecSpec::new("zstd"), CodecSpec::new("crc32c")];
    Pipeline::new(if encoded { &specs } else { &[] }, LEN).unwrap()
}

fn size(encoded: bool) -> ChunkSize {
    let limit = pipeline(encoded).stored_limit() as i64;
    ChunkSize { decoded: LEN as i64, limit, encoded }
}

fn file_store(root: &Path, encoded: bool) -> Box<dyn ChunkStore> {
    let lock = root.join("zarr.json");
    Box::new(FileStore::new(naming(root), lock, GRID.to_vec(), size(encoded)))
}

const AT_END: IndexFormat = IndexFormat { at_end: true, crc32c: true };
const AT_START: IndexFormat = IndexFormat { at_end: false, crc32c: false };

/// A store with shards of 4 by 2 chunks: those at the upper edges reach over the grid.
fn shard_store(root: &Path, index: IndexFormat, encoded: bool) -> Box<dyn ChunkStore> {
    let (lock, shard) = (root.join("zarr.json"), vec![4, 2]);
    let store = ShardStore::new(naming(root), lock, GRID.to_vec(), shard, index, size(encoded));
    Box::new(store.unwrap())
}

fn all_stores(root: &Path, encoded: bool) -> Vec<Box<dyn ChunkStore>> {
    let mut stores = vec![file_store(&root.join("files"), encoded)];
    for (name, index) in [("end", AT_END), ("start", AT_START)] {
        stores.push(shard_store(&root.join(name), index, encoded));
    }
    for name in ["files", "end", "start"] {
        std::fs::create_dir_all(root.join(name)).unwrap();
        std::fs::write(root.join(name).join("zarr.json"), b"{}").unwrap();
    }
    stores
}

fn cells(lo: [i64; 2], count: [i64; 2]) -> Cells {
    Cells::new(&lo, &count, &GRID).unwrap()
}

fn everything() -> Cells {
    cells([0, 0], GRID)
}

/// Returns the decoded chunks of a box; `None` for a missing one.
fn read(resolved: &Resolved, encoded: bool) -> Vec<Option<Vec<u8>>> {
    let pipeline = pipeline(encoded);
    let mut scratch = vec![0; pipeline.decode_scratch()];
    let mut chunk = |stored: &outcore_plan::Stored| {
        let file = resolved.files.open(stored.file).unwrap();
        let mut bytes = vec![0; stored.len as usize];
        // SAFETY: the vector has this length.
        unsafe { file.read_at(stored.offset, bytes.as_mut_ptr(), bytes.len()) }.unwrap();
        let mut out = vec![0; LEN];
        pipeline.decode(&bytes, stored.mask, &mut out, &mut scratch).unwrap();
        out
    };
    resolved.table.stored.iter().map(|stored| stored.as_ref().map(&mut chunk)).collect()
}

fn patient() -> Patience<'static> {
    Patience { timeout: Some(std::time::Duration::from_secs(60)), cancelled: None }
}

/// Reads, changes, encodes and stores the chunks of a box for which `change` returns true.
fn update(
    store: &dyn ChunkStore,
    cells: &Cells,
    change: impl Fn(&[i64], &mut Vec<u8>) -> bool + Sync,
) {
    let guard = store.lock(cells, patient()).unwrap();
    let before = read(&store.resolve(cells, false).unwrap(), true);
    let sink = store.begin(cells, &|_| true).unwrap();
    let work: Vec<_> = cells.iter().zip(before).collect();
    std::thread::scope(|scope| {
        for part in work.chunks(work.len().div_ceil(2).max(1)) {
            let (sink, change) = (&sink, &change);
            scope.spawn(move || {
                let pipeline = pipeline(true);
                let mut scratch = vec![0; pipeline.encode_scratch()];
                for (cell, old) in part {
                    let mut chunk = old.clone().unwrap_or_else(|| vec![0; LEN]);
                    if change(cell, &mut chunk) {
                        let encoded = pipeline.encode(&chunk, &mut scratch).unwrap();
                        sink.commit(cell, encoded.mask, encoded.bytes).unwrap();
                    }
                }
            });
        }
    });
    sink.finish().unwrap();
    drop(guard);
}

#[test]
fn encoded_chunks_come_back_and_the_others_stay() {
    let folder = Folder::new("encoded");
    for store in all_stores(&folder.0, true) {
        let store = store.as_ref();
        let empty = store.resolve(&everything(), false).unwrap();
        assert!(empty.table.stored.iter().all(Option::is_none) && empty.files.is_empty());
        let value = |cell: &[i64]| (cell[0] * 10 + cell[1]) as u8;
        // A box that begins and ends inside shards, then one chunk of it, then another box.
        let first = cells([1, 1], [4, 3]);
        update(store, &first, |cell, chunk| {
            chunk.fill(value(cell));
            true
        });
        let old = store.resolve(&first, false).unwrap();
        update(store, &cells([2, 2], [1, 1]), |_, chunk| {
            chunk[0] = 200;
            true
        });
        update(store, &everything(), |cell, chunk| {
            chunk[1] = 201;
            cell[0] == 5
        });
        store.flush().unwrap();
        let now = read(&store.resolve(&everything(), false).unwrap(), true);
        for (cell, chunk) in everything().iter().zip(now) {
            let mut expected = first.contains(&cell).then(|| vec![value(&cell); LEN]);
            if cell == [2, 2] {
                expected.as_mut().unwrap()[0] = 200;
            }
            if cell[0] == 5 {
                expected.get_or_insert(vec![0; LEN])[1] = 201;
            }
            assert_eq!(expected, chunk, "{cell:?} of {store:?}");
        }
        // A reader that resolved before the changes still reads the old chunks.
        for (cell, chunk) in first.iter().zip(read(&old, true)) {
            assert_eq!(Some(vec![value(&cell); LEN]), chunk);
        }
    }
    let left = walk(&folder.0).into_iter().filter(|path| path.contains("outcore-tmp"));
    assert_eq!(0, left.count(), "temporary files are left");
}

fn walk(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => names.extend(walk(&path)),
            false => names.push(path.to_string_lossy().into_owned()),
        }
    }
    names
}

#[test]
fn a_batch_that_is_not_finished_leaves_shards_as_they_were() {
    let folder = Folder::new("unfinished");
    let store = shard_store(&folder.0, AT_END, true);
    update(store.as_ref(), &everything(), |_, chunk| {
        chunk.fill(1);
        true
    });
    let before = walk(&folder.0);
    let sink = store.begin(&everything(), &|_| true).unwrap();
    sink.commit(&[0, 0], 0, b"not even zstd").unwrap();
    let bad = sink.commit(&[6, 0], 0, b"outside").unwrap_err();
    assert_eq!("internal-job", bad.code());
    drop(sink);
    assert_eq!(before, walk(&folder.0));
    let now = read(&store.resolve(&everything(), false).unwrap(), true);
    assert!(now.into_iter().all(|chunk| chunk == Some(vec![1; LEN])));
}

#[test]
fn plain_chunks_are_created_once_and_written_in_place_by_all() {
    let folder = Folder::new("plain");
    for store in all_stores(&folder.0, false) {
        // Sixteen threads, each writing its own byte of every four in all chunks.
        std::thread::scope(|scope| {
            for t in 0..16u64 {
                let store = store.as_ref();
                scope.spawn(move || {
                    let place = store.in_place(&everything(), &[9, 8], patient()).unwrap();
                    for stored in place.resolved.table.stored.iter().flatten() {
                        let file = place.resolved.files.open(stored.file).unwrap();
                        let at = stored.offset + 4 * t as i64;
                        // SAFETY: one byte is read from a variable.
                        unsafe { file.write_at(at, &(100 + t as u8), 1) }.unwrap();
                    }
                });
            }
        });
        store.flush().unwrap();
        let expected: Vec<u8> = (0..LEN)
            .map(|i| if i % 4 == 0 { 100 + i as u8 / 4 } else { 9 - i as u8 % 2 })
            .collect();
        let now = read(&store.resolve(&everything(), false).unwrap(), false);
        assert_eq!(30, now.len());
        for chunk in now {
            assert_eq!(Some(&expected), chunk.as_ref(), "{store:?}");
        }
    }
}

#[test]
fn plain_chunks_that_nobody_wants_are_neither_opened_nor_created() {
    let folder = Folder::new("leapt");
    let made = || walk(&folder.0).iter().filter(|name| name.contains("/c/")).count();
    for (store, files) in all_stores(&folder.0, false).into_iter().zip([4, 2, 2]) {
        // Two or none of the 4 x 2 chunks of a shard.
        let wanted = |cell: &[i64]| cell[0] < 2 && cell[1] % 4 == 0;
        let before = made();
        let place = store.in_place_some(&everything(), &[7], &wanted, patient()).unwrap();
        assert_eq!(files, place.resolved.files.len(), "{store:?}");
        for (cell, stored) in everything().iter().zip(&place.resolved.table.stored) {
            assert_eq!(wanted(&cell), stored.is_some(), "{store:?} {cell:?}");
        }
        drop(place);
        assert_eq!(files, made() - before, "{store:?}");
        let found = store.resolve_some(&everything(), false, &wanted).unwrap();
        assert_eq!(files, found.files.len());
    }
}

#[test]
fn plain_shards_made_by_others_are_completed() {
    let folder = Folder::new("complete");
    let path = folder.0.join("c/0/0");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    // One chunk, number 5 of the shard, after a gap.
    let mut entries = vec![(u64::MAX, u64::MAX); 8];
    entries[5] = (10, LEN as u64);
    std::fs::write(&path, shard_file(&entries, &[7; 80], AT_END)).unwrap();
    let store = shard_store(&folder.0, AT_END, false);
    let one = cells([2, 1], [1, 1]);
    assert_eq!(Some(vec![7; LEN]), read(&store.resolve(&one, false).unwrap(), false)[0]);
    let place = store.in_place(&cells([0, 0], [1, 1]), &[0], patient()).unwrap();
    assert_eq!(1, place.resolved.files.len());
    drop(place);
    for (cell, chunk) in
        everything().iter().zip(read(&store.resolve(&everything(), false).unwrap(), false))
    {
        let expected = match cell[..] {
            [2, 1] => Some(vec![7; LEN]),
            [r, c] if r < 4 && c < 2 => Some(vec![0; LEN]),
            _ => None,
        };
        assert_eq!(expected, chunk, "{cell:?}");
    }
}

/// Makes a shard file from the body and its index, at the end or at the start.
fn shard_file(entries: &[(u64, u64)], body: &[u8], index: IndexFormat) -> Vec<u8> {
    let mut raw: Vec<u8> =
        entries.iter().flat_map(|&(a, b)| [a.to_le_bytes(), b.to_le_bytes()].concat()).collect();
    if index.crc32c {
        raw.extend(crc32c::crc32c(&raw).to_le_bytes());
    }
    if index.at_end {
        [body, &raw].concat()
    } else {
        [&raw, body].concat()
    }
}

#[test]
fn indexes_that_cannot_be_true_are_refused() {
    let folder = Folder::new("index");
    let path = folder.0.join("c/0/0");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let none = (u64::MAX, u64::MAX);
    let good = vec![(0, 40), (40, 40), none, none, none, none, none, none];
    let with = |k: usize, entry: (u64, u64)| {
        let mut entries = good.clone();
        entries[k] = entry;
        shard_file(&entries, &[1; 100], AT_END)
    };
    let store = shard_store(&folder.0, AT_END, true);
    let resolve = |content: &[u8]| {
        std::fs::write(&path, content).unwrap();
        store.resolve(&cells([0, 0], [4, 2]), false)
    };
    let resolved = resolve(&shard_file(&good, &[1; 100], AT_END)).unwrap();
    assert_eq!(2, resolved.table.stored.iter().flatten().count());
    let mut flipped = with(0, (0, 40));
    flipped[110] ^= 1;
    let max = i64::MAX as u64;
    for (content, part) in [
        (flipped, "checksum of the shard's index is wrong"),
        (vec![], "the shard has 0 bytes, its index alone has 132"),
        (vec![0; 131], "the shard has 131 bytes"),
        (with(1, (39, 40)), "share bytes"),
        (with(1, (0, 40)), "share bytes"),
        (with(1, (90, 40)), "overlaps the index"),
        (with(1, (100, 5)), "overlaps the index"),
        (with(1, (240, 5)), "outside the file, which has 232 bytes"),
        (with(1, (max, 40)), "outside the file"),
        (with(1, (max - 5, 10)), "outside the file"),
        (with(1, (1 << 63, 40)), "outside the file"),
        (with(1, (u64::MAX, 40)), "outside the file"),
        (with(1, (40, u64::MAX)), "outside the file"),
        (with(1, (40, 0)), "outside 1..="),
        (with(1, (40, 1 << 40)), "outside 1..="),
    ] {
        let error = resolve(&content).unwrap_err();
        assert_eq!("chunk-table-damaged", error.code(), "{error}");
        let text = error.to_string();
        assert!(text.contains(part) && text.contains("c/0/0"), "{text}");
        assert!(store.begin(&everything(), &|_| true).is_err(), "{part}");
    }
    let start = shard_store(&folder.0, AT_START, true);
    std::fs::write(&path, shard_file(&[(100, 40); 8], &[1; 100], AT_START)).unwrap();
    let error = start.resolve(&cells([0, 0], [1, 1]), false).unwrap_err();
    assert!(error.to_string().contains("overlaps the index"), "{error}");
}

#[test]
fn chunk_files_that_cannot_be_true_are_refused() {
    let folder = Folder::new("chunk-files");
    let path = folder.0.join("c/0/0");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let one = cells([0, 0], [1, 1]);
    for (encoded, len, code, part) in [
        (false, LEN - 1, "file-truncated", "ends at byte 63"),
        (false, LEN + 1, "chunk-table-damaged", "has 65 bytes"),
        (true, 0, "chunk-table-damaged", "its write was interrupted"),
        (true, 1 << 20, "chunk-table-damaged", "at most"),
    ] {
        std::fs::write(&path, vec![0; len]).unwrap();
        let error = file_store(&folder.0, encoded).resolve(&one, false).unwrap_err();
        assert_eq!(code, error.code());
        assert!(error.to_string().contains(part), "{error}");
    }
    std::fs::remove_file(&path).unwrap();
    let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: a C string and a number.
    assert_eq!(0, unsafe { libc::mkfifo(name.as_ptr(), 0o600) });
    for kind in ["pipe", "folder"] {
        if kind == "folder" {
            std::fs::remove_file(&path).unwrap();
            std::fs::create_dir(&path).unwrap();
        }
        let error = file_store(&folder.0, true).resolve(&one, false).unwrap_err();
        assert!(error.to_string().contains("not a regular file"), "{kind}: {error}");
    }
    let file = folder.0.join("c/1");
    std::fs::write(file, b"a file where a folder should be").unwrap();
    let beyond = file_store(&folder.0, true).resolve(&cells([1, 0], [1, 1]), false).unwrap();
    assert_eq!(vec![None], beyond.table.stored);
}

#[test]
fn names_follow_zarr() {
    let root = PathBuf::from("/a");
    let name = |prefix: &str, separator: &str, cell: &[i64]| {
        let (root, prefix, separator) = (root.clone(), prefix.into(), separator.into());
        Naming { root, prefix, separator }.path(cell).to_string_lossy().into_owned()
    };
    assert_eq!("/a/c/1/20", name("c/", "/", &[1, 20]));
    assert_eq!("/a/c.1.20", name("c.", ".", &[1, 20]));
    assert_eq!("/a/1.20", name("", ".", &[1, 20]));
    assert_eq!("/a/c", name("c/", "/", &[]));
    assert_eq!("/a/c", name("c.", ".", &[]));
    assert_eq!("/a/0", name("", ".", &[]));
}

#[test]
fn rows_of_a_table_are_checked() {
    let path = Path::new("a.h5");
    let row = cells([0, 0], [1, 3]);
    let rows = |rows: &[i64], encoded| from_rows(&row, rows, size(encoded), 3, 1000, path);
    let table = rows(&[100, 50, 1, -1, 0, 0, 150, 50, 0], true).unwrap();
    let first = outcore_plan::Stored { file: 3, offset: 100, len: 50, mask: 1 };
    assert_eq!((Some(first), None), (table.stored[0], table.stored[1]));
    for (numbers, part) in [
        ([100, 50, 0, 149, 50, 0, 200, 50, 0], "share bytes"),
        ([100, 50, 0, 100, 50, 0, 200, 50, 0], "share bytes"),
        ([100, 50, 0, 951, 50, 0, 200, 50, 0], "the file ends at 1000"),
        ([100, 50, 0, i64::MAX, 50, 0, 200, 50, 0], "the file ends at 1000"),
        ([100, 50, 0, -2, 50, 0, 200, 50, 0], "the file ends at 1000"),
        ([100, 50, 0, 300, i64::MAX, 0, 200, 50, 0], "outside 1..="),
        ([100, 50, 0, 300, 0, 0, 200, 50, 0], "outside 1..="),
        ([100, 50, 0, 300, 50, -1, 200, 50, 0], "filter mask"),
        ([100, 50, 0, 300, 50, 1 << 32, 200, 50, 0], "filter mask"),
    ] {
        let error = rows(&numbers, true).unwrap_err();
        assert_eq!("chunk-table-damaged", error.code());
        assert!(error.to_string().contains(part), "{error}");
    }
    let plain = rows(&[100, 50, 0, 200, 64, 0, 300, 64, 0], false).unwrap_err();
    assert!(plain.to_string().contains("50 bytes instead of 64"), "{plain}");
    assert_eq!("internal-job", rows(&[1, 2, 3], true).unwrap_err().code());
}

#[test]
fn writers_of_one_batch_wait_for_each_other() {
    let folder = Folder::new("locks");
    for store in all_stores(&folder.0, true) {
        let held = store.lock(&cells([0, 0], [2, 2]), patient()).unwrap();
        let other = store.lock(&cells([1, 1], [5, 4]), Patience::NONE).unwrap_err();
        assert_eq!("locked", other.code());
        store.lock(&cells([4, 2], [2, 3]), Patience::NONE).unwrap();
        drop(held);
        store.lock(&everything(), Patience::NONE).unwrap();
    }
    // Several ranges on one descriptor: a failure releases all of them.
    let path = folder.0.join("zarr.json");
    let lock = |ranges: &[Range]| {
        outcore_io::lock::FileLock::acquire_all(&path, ranges, Mode::Exclusive, Patience::NONE)
    };
    let (a, b) = (Range { start: 0, len: 1 }, Range { start: 5, len: 2 });
    let held = lock(&[b]).unwrap();
    assert!(held.fd().as_raw_fd() >= 0);
    assert!(lock(&[a, b]).is_err());
    lock(&[a]).unwrap();
    drop(held);
    lock(&[a, b]).unwrap();
}

/// Each process of the next test adds one to its own element of every chunk, many times.
const ROUNDS: u8 = 60;
const CHILDREN: usize = 3;

#[test]
fn processes_that_change_one_encoded_chunk_lose_nothing() {
    if let Ok(job) = std::env::var("OUTCORE_STORES_CHILD") {
        let (child, root) = job.split_once(':').unwrap();
        let child: usize = child.parse().unwrap();
        for _ in 0..ROUNDS {
            for (name, sharded) in [("files", false), ("shards", true)] {
                let root = Path::new(root).join(name);
                let store = match sharded {
                    true => shard_store(&root, AT_END, true),
                    false => file_store(&root, true),
                };
                update(store.as_ref(), &cells([1, 0], [1, 2]), |_, chunk| {
                    chunk[child] += 1;
                    true
                });
            }
        }
        return;
    }
    let folder = Folder::new("processes");
    for name in ["files", "shards"] {
        std::fs::create_dir_all(folder.0.join(name)).unwrap();
        std::fs::write(folder.0.join(name).join("zarr.json"), b"{}").unwrap();
    }
    let children: Vec<_> = (0..CHILDREN)
        .map(|child| {
            std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "processes_that_change_one_encoded_chunk_lose_nothing"])
                .env("OUTCORE_STORES_CHILD", format!("{child}:{}", folder.0.display()))
                .stdout(std::process::Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    for store in [
        file_store(&folder.0.join("files"), true),
        shard_store(&folder.0.join("shards"), AT_END, true),
    ] {
        let now = read(&store.resolve(&cells([1, 0], [1, 2]), false).unwrap(), true);
        for chunk in now {
            assert_eq!([ROUNDS; CHILDREN], chunk.unwrap()[..CHILDREN], "{store:?}");
        }
    }
}

#[test]
fn many_files_are_found_in_order() {
    let folder = Folder::new("many");
    let grid = vec![40, 50];
    let lock = folder.0.join("zarr.json");
    let store = FileStore::new(naming(&folder.0), lock, grid.clone(), size(false));
    for i in (0..40).step_by(3) {
        std::fs::create_dir_all(folder.0.join(format!("c/{i}"))).unwrap();
        for j in 0..10 {
            let file = std::fs::File::create(folder.0.join(format!("c/{i}/{j}"))).unwrap();
            file.write_all_at(&[(i + j) as u8; LEN], 0).unwrap();
        }
    }
    let some = Cells::new(&[1, 2], &[30, 20], &grid).unwrap();
    let resolved = store.resolve(&some, false).unwrap();
    let chunks = read(&resolved, false);
    assert_eq!(600, chunks.len());
    for (cell, chunk) in some.iter().zip(chunks) {
        let there = cell[0] % 3 == 0 && cell[1] < 10;
        assert_eq!(there.then(|| vec![(cell[0] + cell[1]) as u8; LEN]), chunk, "{cell:?}");
    }
    assert!(Cells::new(&[0, 0], &[41, 1], &grid).is_err());
    assert!(Cells::new(&[1, 0], &[i64::MAX, 1], &grid).is_err());
}

#[test]
fn a_shard_of_more_chunks_than_a_batch_of_others_is_made_and_found_whole() {
    const CHUNKS: i64 = (1 << 16) + 5;
    for encoded in [true, false] {
        let folder = Folder::new("many-chunks");
        std::fs::write(folder.0.join("meta"), b"{}").unwrap();
        let naming = Naming { root: folder.0.clone(), prefix: "c/".into(), separator: "/".into() };
        let size = ChunkSize { decoded: 2, limit: 2, encoded };
        let (grid, lock) = (vec![CHUNKS], folder.0.join("meta"));
        let store =
            ShardStore::new(naming, lock, grid.clone(), grid.clone(), AT_END, size).unwrap();
        let all = Cells::new(&[0], &[CHUNKS], &grid).unwrap();
        let bytes = |k: i64| [k as u8, (k >> 8) as u8];
        if encoded {
            let sink = store.begin(&all, &|_| true).unwrap();
            (0..CHUNKS).for_each(|k| sink.commit(&[k], 0, &bytes(k)).unwrap());
            sink.finish().unwrap();
        } else {
            let place = store.in_place(&all, &[9], Patience::NONE).unwrap();
            for (k, stored) in place.resolved.table.stored.iter().enumerate() {
                let stored = stored.unwrap();
                let file = place.resolved.files.open(stored.file).unwrap();
                sys::write_at(file.fd(), &bytes(k as i64), stored.offset).unwrap();
            }
        }
        let found = store.resolve(&all, false).unwrap();
        assert_eq!(CHUNKS as usize, found.table.stored.len());
        let file = found.files.open(0).unwrap();
        for k in [0, 1, CHUNKS / 2, CHUNKS - 1] {
            let mut seen = [0; 2];
            let at = found.table.stored[k as usize].unwrap().offset;
            assert_eq!(Ok(2), sys::read_at(file.fd(), &mut seen, at));
            assert_eq!(bytes(k), seen, "chunk {k}, encoded {encoded}");
        }
    }
    let grid = vec![outcore_io::store::LARGEST_BOX + 1];
    assert_eq!("internal-job", Cells::new(&[0], &grid, &grid).unwrap_err().code());
}
