//! Crashes at every point, with every loss of unsynced work: the result is old or new.
//!
//! And failures of every single call: the error is reported, the old content stays, no file is left
//! over.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use outcore_io::backend::faulty::{arm, Fault, Faults, Op, Rule};
use outcore_io::backend::replay::{Disk, Loss};
use outcore_io::backend::sys::{self, Kind};
use outcore_io::backend::{choose, Choice, Request};
use outcore_io::durable::{self, move_into_place, TempFile, Writer};
use outcore_io::exec::{run, CacheUse, Job, User};
use outcore_io::lock::Patience;
use outcore_io::store::files::FileStore;
use outcore_io::store::shards::{IndexFormat, ShardStore};
use outcore_io::store::{Cells, ChunkSize, ChunkStore, Naming};
use outcore_io::{Arena, FileTable, OpenFile, StorageError};
use outcore_plan::{Direction, Layout, Method, Part, Plan, Range, Section, Strided, Terms};

#[path = "crash/places.rs"]
mod places;

/// The armed plan applies to the whole process: one test at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

struct Folder(PathBuf, #[allow(dead_code)] MutexGuard<'static, ()>);

impl Folder {
    fn new(name: &str) -> Folder {
        let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let path =
            std::env::temp_dir().join(format!("outcore-crash-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path.canonicalize().unwrap(), turn)
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns the folder before `work`, and all its operations on the folder.
fn recorded(folder: &Folder, work: impl FnOnce()) -> (Disk, Vec<Op>) {
    let before = Disk::snapshot(&folder.0).unwrap();
    let faults = Faults::new([]);
    let armed = arm(faults.clone());
    work();
    drop(armed);
    (before, faults.log())
}

fn losses(torn: u64) -> impl Iterator<Item = Loss> {
    [Loss::Nothing, Loss::Unsynced, Loss::NamesFirst]
        .into_iter()
        .chain((0..torn).map(|seed| Loss::Torn { seed }))
}

/// Calls `check` with the disks that a crash may leave, `torn` of them at random for each step;
/// `done` is true after the last step.
fn every_crash(before: &Disk, ops: &[Op], torn: u64, mut check: impl FnMut(&Disk, bool, &str)) {
    for end in 0..=ops.len() {
        for loss in losses(torn) {
            let after = before.after_crash(&ops[..end], loss);
            check(
                &after,
                end == ops.len(),
                &format!("{loss:?} after {end} of {} steps", ops.len()),
            );
        }
    }
}

fn content(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(7).wrapping_add(seed) | 1).collect()
}

/// Replaces a file with the steps of the library.
fn replace(path: &Path, bytes: &[u8]) -> Result<(), StorageError> {
    let file = TempFile::replacing(path, false, Writer::Descriptor)?;
    file.write(bytes, 0)?;
    file.publish(false)
}

#[test]
fn replace_leaves_the_old_or_the_new_content() {
    let folder = Folder::new("replace");
    let path = folder.0.join("a");
    for (old, new) in [(0, 20_000), (20_000, 100), (5_000, 5_000), (1, 300_000)] {
        let (old, new) = (content(2, old), content(100, new));
        std::fs::write(&path, &old).unwrap();
        let (before, ops) = recorded(&folder, || replace(&path, &new).unwrap());
        assert!(ops.len() >= 4, "{ops:?}");
        every_crash(&before, &ops, 64, |disk, done, when| {
            let seen = disk.read(&path).unwrap_or_else(|| panic!("the file is gone: {when}"));
            assert!(seen == new || (seen == old && !done), "{} bytes: {when}", seen.len());
        });
        assert_eq!(new, std::fs::read(&path).unwrap());
    }
}

#[test]
fn publish_leaves_nothing_or_all() {
    let folder = Folder::new("publish");
    let path = folder.0.join("fresh");
    let bytes = content(9, 50_000);
    let (before, ops) = recorded(&folder, || {
        let temp = TempFile::beside(&path).unwrap();
        temp.reserve(bytes.len() as i64).unwrap();
        for (number, part) in bytes.chunks(7_000).enumerate().rev() {
            sys::write_at(temp.fd(), part, number as i64 * 7_000).unwrap();
        }
        temp.publish(true).unwrap();
    });
    every_crash(&before, &ops, 64, |disk, done, when| match disk.read(&path) {
        Some(seen) => assert!(seen == bytes, "a broken file under its name: {when}"),
        None => assert!(!done, "lost: {when}"),
    });
}

/// Checks that the models find the mistakes that they are made for: a test of the tests.
#[test]
fn a_file_is_on_the_disk_before_it_is_named_and_its_name_after() {
    let folder = Folder::new("order");
    let (temp, target) = (folder.0.join("t"), folder.0.join("a"));
    let made = || std::fs::write(&temp, b"made elsewhere").unwrap();
    let moved = |exclusive| {
        made();
        let work = || drop(move_into_place(&temp, &target, &folder.0.join("aside"), exclusive));
        recorded(&folder, work).1
    };
    for exclusive in [true, false] {
        let ops = moved(exclusive);
        assert!(matches!(&ops[..], [Op::Rename { .. }, Op::SyncFolder { .. }]), "{ops:?}");
    }
    let (_, ops) = recorded(&folder, || replace(&target, b"new").unwrap());
    let [Op::Create { .. }, Op::Write { .. }, Op::Sync { .. }, end @ ..] = &ops[..] else {
        panic!("{ops:?}")
    };
    assert!(matches!(end, [Op::Rename { .. }, Op::SyncFolder { .. }]), "{ops:?}");
    // The folder of a bare name is the current one.
    durable::sync_folder_of(Path::new("a bare name")).unwrap();
}

#[test]
fn where_nothing_can_be_reserved_what_is_free_is_asked() {
    let folder = Folder::new("reserve");
    let path = folder.0.join("a");
    let fd = sys::open(&path, libc::O_RDWR | libc::O_CREAT, 0o644).unwrap();
    let _armed = arm(Faults::new([Rule::from(1, Fault::Errno(libc::EOPNOTSUPP))
        .on(Kind::Allocate)
        .path("crash-reserve")]));
    let reserve =
        |start, end| durable::reserve(fd.as_raw_fd(), &path, start, end).map_err(|e| e.code());
    for (start, end, expected) in
        [(0, 4000, 4000), (2000, 5000, 5000), (0, 3000, 5000), (0, 0, 5000)]
    {
        assert_eq!(Ok(()), reserve(start, end));
        assert_eq!(expected, std::fs::metadata(&path).unwrap().len());
    }
    // The largest size of a file, for which no disk here has space.
    assert_eq!(Err("disk-full"), reserve(0, 15 << 40));
    assert_eq!(5000, std::fs::metadata(&path).unwrap().len());
}

#[test]
fn a_rename_without_sync_is_found_out() {
    let folder = Folder::new("control");
    let path = folder.0.join("a");
    std::fs::write(&path, b"old").unwrap();
    let (before, ops) = recorded(&folder, || {
        let temp = TempFile::beside(&path).unwrap();
        sys::write_at(temp.fd(), b"new", 0).unwrap();
        temp.install(false).unwrap();
    });
    let broken = |loss| {
        let after = before.after_crash(&ops, loss);
        !matches!(after.read(&path), Some(b"old" | b"new"))
    };
    assert!(broken(Loss::NamesFirst));
    assert!(!broken(Loss::Nothing) && !broken(Loss::Unsynced));
    assert!((0..64).any(|seed| broken(Loss::Torn { seed })));
    // A sync of the bytes alone does not make the name durable.
    let (before, ops) = recorded(&folder, || {
        let temp = TempFile::beside(&path).unwrap();
        sys::write_at(temp.fd(), b"newer", 0).unwrap();
        temp.sync().unwrap();
        temp.install(false).unwrap();
    });
    let seen = |loss| before.after_crash(&ops, loss).read(&path).map(<[u8]>::to_vec);
    assert_eq!(Some(b"new".to_vec()), seen(Loss::Unsynced));
    assert_eq!(Some(b"newer".to_vec()), seen(Loss::NamesFirst));
}

#[test]
fn a_disk_after_a_crash_can_be_written_out_and_opened() {
    let folder = Folder::new("materialise");
    std::fs::create_dir(folder.0.join("sub")).unwrap();
    let path = folder.0.join("sub/a");
    let (before, ops) = recorded(&folder, || replace(&path, b"bytes").unwrap());
    let copy = folder.0.join("copy");
    before.after_crash(&ops, Loss::Unsynced).write_to(&folder.0, &copy).unwrap();
    assert_eq!(b"bytes".as_slice(), std::fs::read(copy.join("sub/a")).unwrap());
    assert_eq!(Disk::snapshot(&copy).unwrap().names().count(), 1);
}

#[test]
fn whichever_call_fails_the_old_content_stays_and_nothing_is_left_behind() {
    let folder = Folder::new("failures");
    let path = folder.0.join("a");
    let kinds = [Kind::Create, Kind::Write, Kind::Sync, Kind::Rename];
    for (kind, errno, code) in kinds
        .into_iter()
        .flat_map(|kind| [(kind, libc::EIO, "disk-failure"), (kind, libc::ENOSPC, "disk-full")])
    {
        std::fs::write(&path, b"old").unwrap();
        let rule = Rule::only(1, Fault::Errno(errno)).on(kind);
        let armed = arm(Faults::new([rule]));
        let error = replace(&path, &content(1, 10_000)).unwrap_err();
        drop(armed);
        assert_eq!(code, error.code(), "{kind:?}: {error}");
        assert_eq!(Some(path.as_path()), error.path(), "{error}");
        assert_eq!(b"old".as_slice(), std::fs::read(&path).unwrap(), "{kind:?}");
        assert_eq!(["a"], folder.names().as_slice(), "{kind:?}");
    }
    // A disk that becomes full during a write, and one with short writes.
    let half = Rule::from(1, Fault::Errno(libc::ENOSPC)).on(Kind::Write).at(5_000..i64::MAX);
    let bites = Rule::every(1, Fault::Short(4_000)).on(Kind::Write);
    let armed = arm(Faults::new([half, bites.clone()]));
    assert_eq!("disk-full", replace(&path, &content(1, 10_000)).unwrap_err().code());
    drop(armed);
    assert_eq!(b"old".as_slice(), std::fs::read(&path).unwrap());
    let armed = arm(Faults::new([bites]));
    replace(&path, &content(1, 10_000)).unwrap();
    drop(armed);
    assert_eq!(content(1, 10_000), std::fs::read(&path).unwrap());
}

#[test]
fn a_table_of_more_files_than_it_keeps_open_syncs_all_that_were_written() {
    let folder = Folder::new("many");
    let paths: Vec<PathBuf> = (0..300).map(|k| folder.0.join(format!("{k:03}"))).collect();
    paths.iter().for_each(|path| std::fs::write(path, b"old").unwrap());
    let table = FileTable::new(paths.clone(), true);
    let (before, ops) = recorded(&folder, || {
        for number in 0..300 {
            let file = table.open(number).unwrap();
            // SAFETY: three bytes of a static.
            unsafe { file.write_at(0, b"new".as_ptr(), 3) }.unwrap();
        }
        table.sync().unwrap();
    });
    let after = before.after_crash(&ops, Loss::Unsynced);
    let lost = paths.iter().filter(|path| after.read(path) != Some(b"new")).count();
    assert_eq!(0, lost);
    // A failure of the disk is reported, also for a file that is no longer open.
    let rule = Rule::only(1, Fault::Errno(libc::EIO)).on(Kind::Sync).path("/299");
    let armed = arm(Faults::new([rule]));
    let error = table.sync().unwrap_err();
    drop(armed);
    assert_eq!(("disk-failure", Some(paths[299].as_path())), (error.code(), error.path()));
    // Another sync would succeed; lost data stays lost.
    assert_eq!(error, table.sync().unwrap_err());
}

#[test]
fn a_transfer_that_the_system_cuts_short_goes_on_and_one_that_ends_is_an_error() {
    let folder = Folder::new("ends");
    let (path, bytes) = (folder.0.join("a"), content(4, 1000));
    std::fs::write(&path, vec![0; 1000]).unwrap();
    let file = OpenFile::open(&path, true).unwrap();
    let all = |kind, fault| {
        let _armed = arm(Faults::new([Rule::only(1, fault).on(kind).path("crash-ends")]));
        let mut back = vec![0; 1000];
        // SAFETY: both have the given length.
        let done = unsafe {
            file.write_at(0, bytes.as_ptr(), 1000)
                .and_then(|()| file.read_at(0, back.as_mut_ptr(), 1000))
        };
        done.map(|()| back).map_err(|error| error.code())
    };
    for kind in [Kind::Write, Kind::Read] {
        assert_eq!(Ok(bytes.clone()), all(kind, Fault::Short(7)));
    }
    assert_eq!(Err("disk-failure"), all(Kind::Write, Fault::End(999)));
    assert_eq!(Err("file-truncated"), all(Kind::Read, Fault::End(999)));
}

#[test]
fn armed_engines_fail_and_are_logged_like_plain_calls() {
    let folder = Folder::new("engines");
    let path = folder.0.join("a");
    let bytes = content(3, 64 << 10);
    for choice in [Choice::Threads, Choice::Uring] {
        let fd = sys::open(&path, libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC, 0o644).unwrap();
        let before = Disk::snapshot(&folder.0).unwrap();
        let faults = Faults::new([
            Rule::only(3, Fault::Errno(libc::EIO)).on(Kind::Write).path("crash-engines"),
            Rule::only(2, Fault::Short(10)).on(Kind::Write),
            Rule::only(1, Fault::End(7)).on(Kind::Read),
        ]);
        let armed = arm(faults.clone());
        let engine = choose(choice).engine;
        assert_eq!("faulty", engine.name());
        let mut session = engine.session(4).unwrap();
        let mut back = vec![0u8; 100];
        let mut run = |request| {
            let mut done = Vec::new();
            // SAFETY: the memory outlives the wait that follows.
            unsafe { session.submit(request) };
            session.wait(1, &mut done).unwrap();
            done[0].result
        };
        let part = |number: usize| Request {
            tag: number as u64,
            fd: fd.as_raw_fd(),
            offset: number as i64 * 10_000,
            len: 10_000,
            memory: bytes[number * 10_000..].as_ptr().cast_mut(),
            write: true,
            dontcache: false,
        };
        let results: Vec<_> = (0..4).map(|number| run(part(number))).collect();
        assert_eq!([Ok(10_000), Ok(10_000), Err(libc::EIO), Ok(10_000)], results.as_slice());
        let read = Request { len: 100, memory: back.as_mut_ptr(), write: false, ..part(3) };
        assert_eq!([Ok(7), Ok(100)], [run(read), run(read)]);
        drop(session);
        drop(armed);
        let after = before.after_crash(&faults.log(), Loss::Nothing);
        assert_eq!(after.read(&path).unwrap(), std::fs::read(&path).unwrap());
        assert_eq!(&bytes[..20_000], &after.read(&path).unwrap()[..20_000]);
        assert!(before.after_crash(&faults.log(), Loss::Unsynced).read(&path).unwrap().is_empty());
    }
}

const GRID: [i64; 2] = [3, 4];

fn store(folder: &Path, sharded: bool) -> Box<dyn ChunkStore> {
    store_of(folder, sharded, ChunkSize { decoded: 6_000, limit: 10_000, encoded: true })
}

fn store_of(folder: &Path, sharded: bool, size: ChunkSize) -> Box<dyn ChunkStore> {
    let naming =
        Naming { root: folder.to_path_buf(), prefix: "c.".to_owned(), separator: ".".to_owned() };
    let lock = folder.join("meta");
    if sharded {
        let index = IndexFormat { at_end: true, crc32c: true };
        let (grid, per_shard) = (GRID.to_vec(), vec![2, 2]);
        Box::new(ShardStore::new(naming, lock, grid, per_shard, index, size).unwrap())
    } else {
        Box::new(FileStore::new(naming, lock, GRID.to_vec(), size))
    }
}

/// Stores all chunks of a box with contents made from `seed`.
fn put(store: &dyn ChunkStore, cells: &Cells, seed: u8) -> Result<(), StorageError> {
    let _guard = store.lock(cells, Patience::NONE)?;
    let sink = store.begin(cells, &|_| true)?;
    for cell in cells.iter() {
        sink.commit(&cell, 0, &chunk(seed, &cell))?;
    }
    sink.finish()
}

fn chunk(seed: u8, cell: &[i64]) -> Vec<u8> {
    content(seed + (cell[0] * 4 + cell[1]) as u8, 3_000 + 500 * cell[1] as usize)
}

/// Returns the stored bytes of all chunks.
fn get(store: &dyn ChunkStore) -> Result<Vec<Option<Vec<u8>>>, StorageError> {
    let cells = Cells::new(&[0, 0], &GRID, &GRID)?;
    let resolved = store.resolve(&cells, false)?;
    let one = |stored: &outcore_plan::Stored| {
        let mut bytes = vec![0; stored.len as usize];
        let file = resolved.files.open(stored.file)?;
        let fd = file.fd();
        sys::read_at(fd, &mut bytes, stored.offset)
            .map_err(|errno| StorageError::io("read", file.path(), errno))?;
        Ok(bytes)
    };
    resolved.table.stored.iter().map(|stored| stored.as_ref().map(one).transpose()).collect()
}

/// Calls `check` with every chunk of every crash, read through a fresh store.
#[allow(clippy::panic, reason = "a helper of tests")]
fn every_crash_of_chunks(
    folder: &Folder,
    (before, ops): (&Disk, &[Op]),
    open: impl Fn(&Path) -> Box<dyn ChunkStore>,
    mut check: impl FnMut(&[i64], Option<Vec<u8>>, bool, &str),
) {
    let all = Cells::new(&[0, 0], &GRID, &GRID).unwrap();
    let copy = folder.0.with_extension("copy");
    let mut last = None;
    every_crash(before, ops, 8, |disk, done, when| {
        if last.as_ref() != Some(disk) {
            let _ = std::fs::remove_dir_all(&copy);
            disk.write_to(&folder.0, &copy).unwrap();
            last = Some(disk.clone());
        }
        let seen = get(&*open(&copy)).unwrap_or_else(|error| panic!("{error}: {when}"));
        for (cell, bytes) in all.iter().zip(seen) {
            check(&cell, bytes, done, when);
        }
    });
    let _ = std::fs::remove_dir_all(&copy);
}

#[test]
fn chunks_that_were_safe_stay_old_or_new() {
    for sharded in [false, true] {
        let folder = Folder::new(if sharded { "shards" } else { "chunks" });
        std::fs::write(folder.0.join("meta"), b"{}").unwrap();
        let all = Cells::new(&[0, 0], &GRID, &GRID).unwrap();
        let some = Cells::new(&[1, 1], &[2, 2], &GRID).unwrap();
        let first = store(&folder.0, sharded);
        put(&*first, &all, 1).unwrap();
        first.flush().unwrap();
        drop(first);

        let second = store(&folder.0, sharded);
        let (before, ops) = recorded(&folder, || {
            put(&*second, &some, 50).unwrap();
            second.flush().unwrap();
        });
        let open = |copy: &Path| store(copy, sharded);
        every_crash_of_chunks(&folder, (&before, &ops), open, |cell, bytes, done, when| {
            let bytes = bytes.unwrap_or_else(|| panic!("chunk {cell:?} is gone: {when}"));
            let new = some.contains(cell) && bytes == chunk(50, cell);
            let old = bytes == chunk(1, cell) && !(done && some.contains(cell));
            assert!(new || old, "chunk {cell:?} is neither old nor new: {when}");
        });
    }
}

#[test]
fn new_chunks_are_missing_or_whole() {
    for sharded in [false, true] {
        let folder = Folder::new(if sharded { "new-shards" } else { "new-chunks" });
        std::fs::write(folder.0.join("meta"), b"{}").unwrap();
        let some = Cells::new(&[0, 1], &[3, 3], &GRID).unwrap();
        let fresh = store(&folder.0, sharded);
        let (before, ops) = recorded(&folder, || {
            put(&*fresh, &some, 20).unwrap();
            fresh.flush().unwrap();
        });
        let open = |copy: &Path| store(copy, sharded);
        let mut whole = 0;
        every_crash_of_chunks(
            &folder,
            (&before, &ops),
            open,
            |cell, bytes, done, when| match bytes {
                Some(bytes) => {
                    assert!(some.contains(cell), "chunk {cell:?}: {when}");
                    assert!(bytes == chunk(20, cell), "chunk {cell:?} is torn: {when}");
                    whole += 1;
                }
                None => assert!(!done || !some.contains(cell), "chunk {cell:?} is lost: {when}"),
            },
        );
        assert!(whole > some.len());
    }
}

/// Chunks without codecs: created whole with the fill value first, then written in place.
#[test]
fn new_chunks_that_are_written_in_place_are_missing_or_whole() {
    const FILL: [u8; 2] = [3, 0xfe];
    let size = ChunkSize { decoded: 6_000, limit: 6_000, encoded: false };
    for sharded in [false, true] {
        let folder = Folder::new(if sharded { "plain-shards" } else { "plain-chunks" });
        std::fs::write(folder.0.join("meta"), b"{}").unwrap();
        let open = |path: &Path| store_of(path, sharded, size);
        let some = Cells::new(&[0, 1], &[3, 2], &GRID).unwrap();
        let fresh = open(&folder.0);
        let (before, ops) = recorded(&folder, || {
            let place = fresh.in_place(&some, &FILL, Patience::NONE).unwrap();
            for (cell, stored) in some.iter().zip(&place.resolved.table.stored) {
                let (stored, new) = (stored.unwrap(), content(cell[0] as u8, 6_000));
                let file = place.resolved.files.open(stored.file).unwrap();
                sys::write_at(file.fd(), &new, stored.offset).unwrap();
            }
            drop(place);
            fresh.flush().unwrap();
        });
        every_crash_of_chunks(&folder, (&before, &ops), open, |cell, bytes, done, when| {
            let written = some.contains(cell);
            let Some(bytes) = bytes else {
                return assert!(!done || !written, "chunk {cell:?} is lost: {when}");
            };
            let new = content(cell[0] as u8, 6_000);
            let each = bytes.iter().zip(&new).zip(FILL.iter().cycle());
            let wrong = each.filter(|((seen, new), fill)| {
                seen != fill && (seen != new || !written) || (done && written && seen != new)
            });
            assert_eq!(0, wrong.count(), "chunk {cell:?}: {when}");
        });
    }
}

#[test]
fn whichever_call_fails_chunks_are_old_or_new_and_nothing_is_left_behind() {
    for sharded in [false, true] {
        let folder = Folder::new(if sharded { "failing-shards" } else { "failing-chunks" });
        std::fs::write(folder.0.join("meta"), b"{}").unwrap();
        let all = Cells::new(&[0, 0], &GRID, &GRID).unwrap();
        put(&*store(&folder.0, sharded), &all, 1).unwrap();
        let names = folder.names();
        for kind in [Kind::Create, Kind::Write, Kind::Sync, Kind::Rename] {
            for nth in 1..=3 {
                let rule = Rule::only(nth, Fault::Errno(libc::EIO)).on(kind);
                let armed = arm(Faults::new([rule]));
                let error = put(&*store(&folder.0, sharded), &all, 50).unwrap_err();
                drop(armed);
                assert_eq!("disk-failure", error.code(), "{kind:?} {nth}: {error}");
                // The error names the chunk or shard, not its temporary file.
                let told = names.iter().find(|name| error.path() == Some(&*folder.0.join(name)));
                assert!(told.is_some_and(|name| name.starts_with("c.")), "{kind:?} {nth}: {error}");
                assert_eq!(names, folder.names(), "{kind:?} {nth}");
                for (cell, bytes) in all.iter().zip(get(&*store(&folder.0, sharded)).unwrap()) {
                    let bytes = bytes.unwrap();
                    assert!(bytes == chunk(1, &cell) || bytes == chunk(50, &cell), "{cell:?}");
                }
            }
        }
        // After a failure the same work succeeds.
        put(&*store(&folder.0, sharded), &all, 50).unwrap();
        let seen = get(&*store(&folder.0, sharded)).unwrap();
        assert!(all.iter().zip(seen).all(|(cell, bytes)| bytes == Some(chunk(50, &cell))));
    }
}

/// Writes a byte into each of some chunks without codecs; returns their files by inode number.
fn write_in_place(store: &dyn ChunkStore, cells: &Cells) -> Vec<u64> {
    use std::os::unix::fs::MetadataExt;
    let place = store.in_place(cells, &[3], Patience::NONE).unwrap();
    let stored = place.resolved.table.stored.iter().flatten();
    let write = |stored: &outcore_plan::Stored| {
        let file = place.resolved.files.open(stored.file).unwrap();
        sys::write_at(file.fd(), b"new", stored.offset).unwrap();
        std::fs::metadata(file.path()).unwrap().ino()
    };
    stored.map(write).collect()
}

fn synced(ops: &[Op], inode: u64) -> bool {
    ops.iter().any(|op| matches!(op, Op::Sync { inode: one } if *one == inode))
}

const PLAIN: ChunkSize = ChunkSize { decoded: 6_000, limit: 6_000, encoded: false };

#[test]
fn a_flush_waits_for_another_that_has_begun() {
    let folder = Folder::new("two-flushes");
    std::fs::write(folder.0.join("meta"), b"{}").unwrap();
    let all = Cells::new(&[0, 0], &GRID, &GRID).unwrap();
    let store = store_of(&folder.0, false, PLAIN);
    store.in_place(&all, &[3], Patience::NONE).unwrap();
    store.flush().unwrap();
    let slow = Rule::every(1, Fault::Delay(Duration::from_millis(100))).on(Kind::Sync);
    let faults = Faults::new([slow]);
    let armed = arm(faults.clone());
    let files = write_in_place(&*store, &all);
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (store, files, faults) = (&store, &files, &faults);
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(20 * number));
                store.flush().unwrap();
                let log = faults.log();
                let late = files.iter().filter(|file| !synced(&log, **file)).count();
                assert_eq!(0, late, "flush {number} did not wait");
            });
        }
    });
    drop(armed);
}

#[test]
fn a_failed_sync_keeps_no_other_file_from_the_disk_and_is_not_forgotten() {
    for sharded in [false, true] {
        let folder = Folder::new(if sharded { "lost-shard" } else { "lost-chunk" });
        std::fs::write(folder.0.join("meta"), b"{}").unwrap();
        let all = Cells::new(&[0, 0], &GRID, &GRID).unwrap();
        let store = store_of(&folder.0, sharded, PLAIN);
        store.in_place(&all, &[3], Patience::NONE).unwrap();
        store.flush().unwrap();
        let fails = Rule::only(1, Fault::Errno(libc::EIO)).on(Kind::Sync).path("/c.0.0");
        let faults = Faults::new([fails]);
        let armed = arm(faults.clone());
        let files = write_in_place(&*store, &all);
        let error = store.flush().unwrap_err();
        assert_eq!("disk-failure", error.code());
        assert!(error.to_string().contains("write it again"), "{error}");
        let bad = std::fs::metadata(folder.0.join("c.0.0")).unwrap();
        let bad = std::os::unix::fs::MetadataExt::ino(&bad);
        let log = faults.log();
        for file in files {
            assert_eq!(file != bad, synced(&log, file), "sharded {sharded}");
        }
        assert!(log.contains(&Op::SyncFolder { path: folder.0.clone() }));
        // The kernel would report success: the bytes are lost nevertheless.
        assert_eq!(error, store.flush().unwrap_err());
        write_in_place(&*store, &all);
        assert_eq!(error, store.flush().unwrap_err());
        let anew = store_of(&folder.0, sharded, PLAIN);
        write_in_place(&*anew, &all);
        anew.flush().unwrap();
        drop(armed);
    }
}

#[test]
fn what_a_flush_could_not_try_is_tried_by_the_next() {
    let folder = Folder::new("untried");
    std::fs::write(folder.0.join("meta"), b"{}").unwrap();
    let all = Cells::new(&[0, 0], &GRID, &GRID).unwrap();
    let store = store_of(&folder.0, false, PLAIN);
    let faults = Faults::new([]);
    let armed = arm(faults.clone());
    write_in_place(&*store, &all);
    store.flush().unwrap();
    let files = write_in_place(&*store, &all);
    let before = faults.log().len();
    // A name that temporarily cannot be opened.
    let (name, aside) = (folder.0.join("c.2.3"), folder.0.join("aside"));
    std::fs::rename(&name, &aside).unwrap();
    std::os::unix::fs::symlink(&name, &name).unwrap();
    let error = store.flush().unwrap_err();
    assert_eq!(Some(name.as_path()), error.path(), "{error}");
    let tried = files.iter().filter(|file| synced(&faults.log()[before..], **file)).count();
    assert_eq!(files.len() - 1, tried);
    std::fs::rename(&aside, &name).unwrap();
    store.flush().unwrap();
    let missing = files.iter().filter(|file| !synced(&faults.log()[before..], **file)).count();
    assert_eq!(0, missing);
    drop(armed);
}

/// Each thread writes its own rows of an array of bytes over many files, through mappings.
#[test]
fn what_threads_wrote_through_mappings_is_safe_after_their_flush() {
    const FILES: usize = 300; // more than a table keeps open
    const THREADS: i64 = 8;
    const ROW: i64 = 64;
    let folder = Folder::new("mapped");
    let paths: Vec<PathBuf> = (0..FILES).map(|k| folder.0.join(format!("{k:03}"))).collect();
    let len = THREADS * ROW;
    paths.iter().for_each(|path| std::fs::write(path, vec![0; len as usize]).unwrap());
    let parts = (0..FILES as u32).map(|file| Part { file, offset: 0, len }).collect();
    let (shape, strides) = (vec![FILES as i64 * THREADS, ROW], vec![ROW, 1]);
    let layout = Layout::Strided(Strided { shape, item: 1, strides, parts });
    let table = FileTable::new(paths.clone(), true);
    let arena = Arena::new(64 << 20);
    let engine = choose(Choice::Threads).engine;
    let terms = Terms {
        mapping: true,
        exclusive: true,
        method: Some(Method::Mapped),
        cached_permille: 1000,
        ..Terms::new(1 << 20)
    };
    let before = Disk::snapshot(&folder.0).unwrap();
    let faults = Faults::new([]);
    let armed = arm(faults.clone());
    let write = |thread: i64, seed: u8| {
        let rows = Range::new(thread, FILES as i64, THREADS).unwrap();
        let section = Section::new(vec![rows, Range::new(0, ROW / 2, 2).unwrap()]);
        let request = outcore_plan::Request {
            layout: &layout,
            table: None,
            section: &section,
            user_stride: &[ROW / 2, 1],
            direction: Direction::Write,
        };
        let plan = Plan::new(&request, &terms).unwrap();
        assert_eq!(Method::Mapped, plan.method());
        let mut memory = content(seed, FILES * ROW as usize / 2);
        let user = User::of(&mut memory[..], 0);
        let job = Job {
            plan: &plan,
            direction: Direction::Write,
            files: &table,
            user,
            fill: &[],
            pipeline: None,
            sink: None,
            engine: &*engine,
            arena: &arena,
            chunk_cache: CacheUse::Never,
            threads: 2,
            cached: true,
            flushed: false,
            interrupted: &|| false,
        };
        run(&job).unwrap();
        table.sync().unwrap();
        let after = before.after_crash(&faults.log(), Loss::Unsynced);
        for (path, new) in paths.iter().zip(memory.chunks(ROW as usize / 2)) {
            let seen = &after.read(path).unwrap()[(thread * ROW) as usize..];
            let lost = new.iter().zip(seen.iter().step_by(2)).filter(|(new, seen)| new != seen);
            assert_eq!(0, lost.count(), "thread {thread}, {}", path.display());
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let write = &write;
            scope.spawn(move || (0..3).for_each(|turn| write(thread, (thread * 3 + turn) as u8)));
        }
    });
    drop(armed);
}

#[test]
fn a_flush_reaches_all_folders_and_misses_none_but_those_that_a_resize_removed() {
    let folder = Folder::new("folders");
    let root = folder.0.join("a.zarr");
    std::fs::create_dir(&root).unwrap();
    std::fs::write(root.join("meta"), b"{}").unwrap();
    let naming = Naming { root: root.clone(), prefix: "c/".to_owned(), separator: "/".to_owned() };
    let size = ChunkSize { decoded: 6_000, limit: 10_000, encoded: true };
    let store = FileStore::new(naming, root.join("meta"), GRID.to_vec(), size);
    let all = Cells::new(&[0, 0], &GRID, &GRID).unwrap();
    let (_, ops) = recorded(&folder, || {
        put(&store, &all, 1).unwrap();
        store.flush().unwrap();
    });
    for name in ["c/0", "c/1", "c/2", "c", ""] {
        let path = root.join(name).components().collect();
        assert!(ops.contains(&Op::SyncFolder { path }), "{name:?} in {ops:?}");
    }
    put(&store, &all, 2).unwrap();
    std::fs::remove_dir_all(root.join("c/2")).unwrap();
    store.flush().unwrap();
    put(&store, &all, 3).unwrap();
    std::fs::remove_dir_all(&root).unwrap();
    let error = store.flush().unwrap_err();
    assert_eq!(("not-found", Some(root.as_path())), (error.code(), error.path()));
}

#[test]
fn a_new_chunk_that_cannot_take_its_name_is_an_error() {
    let all = Cells::new(&[0, 0], &GRID, &GRID).unwrap();
    for errno in [libc::EIO, libc::ENOSPC] {
        // A separate folder each: the threads that did not fail may have made nearly all chunks.
        let folder = Folder::new("names");
        std::fs::write(folder.0.join("meta"), b"{}").unwrap();
        let store = store_of(&folder.0, false, PLAIN);
        let failing = Rule::only(3, Fault::Errno(errno)).on(Kind::RenameNew).path("crash-names");
        let armed = arm(Faults::new([failing]));
        let error = store.in_place(&all, &[3], Patience::NONE).err().unwrap();
        drop(armed);
        assert!(matches!(error.code(), "disk-failure" | "disk-full"), "{error}");
    }
}
