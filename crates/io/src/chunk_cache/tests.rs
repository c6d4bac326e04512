//! Cached chunks are found only while they are valid, and are evicted when memory is short.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicUsize;
use std::time::SystemTime;

use super::*;
use crate::chunk_shelf::FRUITLESS;
use crate::codec::{CodecSpec, Pipeline};
use crate::testdir::TestDir;

/// Bytes of a chunk.
const LEN: usize = 16 << 10;

struct Place {
    _dir: TestDir,
    path: PathBuf,
    arena: Arena,
    pipeline: Pipeline,
}

impl Place {
    /// Makes a file of many "chunks" and an arena; `None`, with a printed reason, if nothing can be
    /// cached here.
    fn new(name: &str, limit: u64) -> Option<Place> {
        let dir = TestDir::new(name);
        let path = dir.file("a", &vec![1; 4 * LEN]);
        let pipeline = Pipeline::new(&[CodecSpec::new("gzip").int("level", 1)], LEN).unwrap();
        let arena = Arena::new(limit);
        arena.keep_chunks_after(Duration::ZERO);
        if !claim::is_local(&OpenFile::open(&path, false).unwrap()) {
            eprintln!("skipped: {} is not on a local file system", path.display());
            return None;
        }
        Some(Place { _dir: dir, path, arena, pipeline })
    }

    fn open(&self) -> OpenFile {
        OpenFile::open(&self.path, false).unwrap()
    }

    fn key(&self, file: &OpenFile, chunk: i64) -> (Seen, Key) {
        let seen = Seen::now(file, &self.arena).unwrap();
        let stored = Stored { file: 0, offset: chunk, len: 1, mask: 0 };
        (seen, Key::new(seen, &stored, LEN, &self.pipeline))
    }

    fn keep(&self, chunk: i64) {
        self.keep_as(chunk, CacheUse::Keep);
    }

    fn keep_as(&self, chunk: i64, usage: CacheUse) {
        let file = self.open();
        self.arena.keep_chunk(&file, self.key(&file, chunk), &[chunk as u8; LEN], usage);
    }

    /// The byte of which a chunk consists, if it is found.
    fn find(&self, chunk: i64) -> Option<u8> {
        let found = self.arena.chunks().find(&self.key(&self.open(), chunk).1)?;
        found.with(|bytes| {
            assert_eq!(LEN, bytes.len());
            assert!(bytes.iter().all(|byte| *byte == bytes[0]));
            bytes[0]
        })
    }

    fn found(&self, chunks: std::ops::Range<i64>) -> Vec<i64> {
        chunks.filter(|chunk| self.find(*chunk).is_some()).collect()
    }

    /// Bytes in use, cached for reuse, and of cached chunks.
    fn sums(&self) -> (u64, u64, u64) {
        (self.arena.used(), self.arena.kept(), self.arena.kept_chunks().1)
    }
}

#[test]
fn a_budget_that_shrinks_forgets_which_chunks_were_there() {
    let Some(place) = Place::new("chunk-cache-shrinks", 16 * START) else { return };
    let again = |place: &Place| (0..4).for_each(|chunk| place.keep_as(chunk, CacheUse::Again));
    again(&place);
    assert_eq!(Vec::<i64>::new(), place.found(0..4));
    place.arena.set_limit(LEN as u64);
    place.arena.set_limit(16 * START);
    // They do not count as chunks that are read again.
    again(&place);
    assert_eq!(Vec::<i64>::new(), place.found(0..4));
    again(&place);
    assert_eq!(vec![0, 1, 2, 3], place.found(0..4));
}

/// Waits for a tick of the clock of file times.
fn tick() {
    std::thread::sleep(Duration::from_millis(20));
}

fn replace(path: &Path, bytes: &[u8]) {
    let fresh = path.with_extension("fresh");
    std::fs::write(&fresh, bytes).unwrap();
    std::fs::rename(&fresh, path).unwrap();
}

#[test]
fn what_was_decoded_from_other_bytes_is_not_found() {
    let Some(place) = Place::new("cache-changes", 64 << 20) else { return };
    let text = place.path.clone();
    let changes: [(&str, &dyn Fn()); 4] = [
        ("replaced by the same bytes", &|| replace(&text, &vec![1; 4 * LEN])),
        ("written in place", &|| std::fs::write(&text, vec![2; 4 * LEN]).unwrap()),
        ("cut", &|| {
            let file = std::fs::OpenOptions::new().write(true).open(&text).unwrap();
            file.set_len(2 * LEN as u64).unwrap();
        }),
        ("written, and given its old time again", &|| {
            let then = std::fs::metadata(&text).unwrap().modified().unwrap();
            std::fs::write(&text, vec![3; 2 * LEN]).unwrap();
            std::fs::File::open(&text).unwrap().set_modified(then).unwrap();
        }),
    ];
    for (what, change) in changes {
        place.keep(7);
        assert_eq!(Some(7), place.find(7), "before it was {what}");
        assert_eq!(None, place.find(8));
        tick();
        change();
        assert_eq!(None, place.find(7), "{what}");
        tick();
    }
    // The same bytes decoded with other codecs are another chunk.
    place.keep(7);
    let other = Pipeline::new(&[CodecSpec::new("gzip").int("level", 2)], LEN).unwrap();
    let other = Place { pipeline: other, _dir: TestDir::new("cache-none"), ..place };
    assert_eq!(None, other.find(7));
}

#[test]
fn a_file_that_was_changed_just_now_is_not_kept() {
    let Some(place) = Place::new("cache-racy", 64 << 20) else { return };
    place.arena.keep_chunks_after(Duration::from_millis(100));
    place.keep(7);
    assert_eq!(None, place.find(7));
    std::thread::sleep(Duration::from_millis(120));
    place.keep(7);
    assert_eq!(Some(7), place.find(7));
    // A time in the future does not show when the file was changed.
    let ahead = SystemTime::now() + Duration::from_secs(3600);
    std::fs::File::open(&place.path).unwrap().set_modified(ahead).unwrap();
    std::thread::sleep(Duration::from_millis(120));
    place.keep(7);
    assert_eq!(None, place.find(7));
}

#[test]
fn chunks_are_free_memory_and_give_way_at_once() {
    let limit = 64 * LEN as u64;
    let Some(place) = Place::new("cache-gives-way", limit) else { return };
    (0..20).for_each(|chunk| place.keep(chunk));
    // A quarter of the limit, the most recent ones; a chunk that was used counts as recent.
    assert_eq!((4..20).collect::<Vec<_>>(), place.found(0..20));
    assert_eq!((0, 0, limit / 4), place.sums());
    assert_eq!((limit, 0), (place.arena.available(), place.arena.peak()));
    place.find(4);
    place.keep(20);
    assert_eq!([4].into_iter().chain(6..21).collect::<Vec<_>>(), place.found(0..21));
    // A request for all memory except five chunks succeeds.
    let held = place.arena.reserve("a test", limit - 5 * LEN as u64).unwrap();
    assert_eq!((limit - 5 * LEN as u64, 0, 5 * LEN as u64), place.sums());
    let rest = place.arena.buffer("a test", 5 * LEN).unwrap();
    assert_eq!((limit, 0, 0), place.sums());
    // Nothing is cached without free memory.
    place.keep(1);
    assert_eq!(None, place.find(1));
    drop((held, rest));
    place.keep(1);
    assert_eq!(Some(1), place.find(1));
    place.arena.set_limit(2 * LEN as u64);
    assert_eq!((0, 0), place.arena.kept_chunks());
}

#[test]
fn the_cache_grows_when_more_would_have_been_found() {
    let Some(place) = Place::new("cache-grows", 1 << 30) else { return };
    let room = (START as usize / LEN) as i64;
    (0..room + 10).for_each(|chunk| place.keep(chunk));
    assert_eq!(START, place.arena.kept_chunks().1);
    // The first ten were evicted. Now they are cached, and none is evicted for them.
    (0..10).for_each(|chunk| place.keep(chunk));
    assert_eq!((room + 10) as usize, place.found(0..room + 10).len());
    // New chunks do not increase the room, and after a while nothing is evicted for them.
    (room + 10..room + 100).for_each(|chunk| place.keep(chunk));
    assert_eq!((room + 10) as usize, place.arena.kept_chunks().0);
    let gone = room as usize + 10 - place.found(0..room + 10).len();
    assert_eq!(FRUITLESS, gone);
    // Since some were found, others are cached at first use again.
    place.keep(room + 100);
    assert_eq!(Some((room + 100) as u8), place.find(room + 100));
}

#[test]
fn a_long_sweep_leaves_names_and_what_comes_again_is_kept() {
    let Some(place) = Place::new("cache-sweeps", 1 << 30) else { return };
    place.keep(0);
    let sweep = 1..2 * (START as usize / LEN) as i64;
    assert_eq!(CacheUse::Again, place.arena.cache_use(sweep.end * LEN as i64));
    sweep.clone().for_each(|chunk| place.keep_as(chunk, CacheUse::Again));
    assert_eq!((1, LEN as u64), place.arena.kept_chunks());
    sweep.clone().for_each(|chunk| place.keep_as(chunk, CacheUse::Again));
    assert_eq!(sweep.end as usize, place.found(0..sweep.end).len());
    // Chunks that cannot all fit are not cached at all.
    assert_eq!(CacheUse::Find, place.arena.cache_use((1 << 28) + 1));
    place.keep_as(sweep.end, CacheUse::Find);
    place.keep_as(sweep.end, CacheUse::Find);
    assert_eq!(None, place.find(sweep.end));
}

#[test]
fn threads_find_true_bytes_within_the_limit() {
    let limit = 40 * LEN as u64;
    let Some(place) = Place::new("cache-threads", limit) else { return };
    let found = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for seed in 0..3i64 {
            let (place, found) = (&place, &found);
            scope.spawn(move || {
                for k in 0..3000 {
                    let chunk = (k * 7 + seed * 3) % 17;
                    match place.find(chunk) {
                        Some(byte) => {
                            assert_eq!(chunk as u8, byte);
                            found.fetch_add(1, Ordering::Relaxed);
                        }
                        None => place.keep(chunk),
                    }
                }
            });
        }
        scope.spawn(|| {
            for k in 0..3000 {
                let bytes = (k * 104_729) % (limit as usize);
                if let Ok(mut buffer) = place.arena.buffer("a test", bytes + 1) {
                    buffer.as_mut_slice()[bytes] = 1;
                    // The thread that has the memory has it alone.
                    assert!(place.arena.committed() <= limit);
                }
            }
        });
    });
    assert!(found.into_inner() > 0);
    assert_eq!(0, place.arena.used());
    place.arena.give_way(u64::MAX);
    assert_eq!((0, 0), place.arena.kept_chunks());
    assert!(place.arena.committed() <= limit);
}
