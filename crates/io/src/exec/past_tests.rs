//! Writes that bypass the page cache, on real files.

#![allow(unsafe_code)]

use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicUsize;
use std::sync::Arc;

use outcore_plan::{Home, Layout, Part, Range, Request, Section, Strided, Terms};

use super::*;
use crate::backend::threads::Threads;
use crate::backend::{self, Completion, Session};
use crate::probe;
use crate::testdir::TestDir;

const PAGE_BYTES: i64 = 4096;
const HEADER: i64 = 128;

/// Plans a write of bytes `start..start + count` in each of `rows` rows of `row` bytes, from an
/// array without gaps.
fn plan(rows: i64, row: i64, part: (i64, i64), request: i64) -> Plan {
    plan_within(2 << 20, rows, row, part, request)
}

/// Makes the same plan with a budget for buffers.
fn plan_within(budget: i64, rows: i64, row: i64, part: (i64, i64), request: i64) -> Plan {
    plan_from(None, budget, (rows, row), part, request)
}

/// Makes the same plan for memory at a given place.
fn plan_from(
    home: Option<Home>,
    budget: i64,
    (rows, row): (i64, i64),
    (start, count): (i64, i64),
    request: i64,
) -> Plan {
    let parts = vec![Part { file: 0, offset: HEADER, len: rows * row }];
    let layout =
        Layout::Strided(Strided { shape: vec![rows, row], item: 1, strides: vec![row, 1], parts });
    let section =
        Section::new(vec![Range::new(0, rows, 1).unwrap(), Range::new(start, count, 1).unwrap()]);
    let request_ = Request {
        layout: &layout,
        table: None,
        section: &section,
        user_stride: &[count, 1],
        direction: Direction::Write,
    };
    let (scarce, exclusive, direct) = (true, true, true);
    let terms =
        Terms { scarce, exclusive, direct, block: PAGE_BYTES, request, home, ..Terms::new(budget) };
    Plan::new(&request_, &Terms { share: budget / 8, ..terms }).unwrap()
}

/// Runs a plan through the given engine.
fn written(plan: &Plan, file: &std::path::Path, memory: &[u8], engine: &dyn Engine) -> Report {
    let files = FileTable::new(vec![file.to_path_buf()], true);
    let arena = Arena::new(64 << 20);
    // SAFETY: the memory is borrowed for the call and is only read.
    let user = unsafe { User::new(memory.as_ptr().cast_mut(), 0, memory.len() as i64) };
    let job = Job {
        plan,
        direction: Direction::Write,
        files: &files,
        user,
        fill: &[],
        pipeline: None,
        sink: None,
        engine,
        arena: &arena,
        chunk_cache: CacheUse::Never,
        threads: 2,
        cached: false,
        flushed: false,
        interrupted: &|| false,
    };
    let report = run(&job).unwrap();
    files.sync().unwrap();
    report
}

/// Returns the expected file content, from its old bytes and the caller's.
fn expected(old: &[u8], memory: &[u8], row: i64, (start, count): (i64, i64)) -> Vec<u8> {
    let mut all = old.to_vec();
    for (k, part) in memory.chunks(count as usize).enumerate() {
        let at = (HEADER + k as i64 * row + start) as usize;
        all[at..at + part.len()].copy_from_slice(part);
    }
    all
}

fn bytes(len: i64) -> Vec<u8> {
    (0..len).map(|k| (k.wrapping_mul(2_654_435_761) >> 11) as u8).collect()
}

fn engines() -> Vec<Arc<dyn Engine>> {
    let mut all: Vec<Arc<dyn Engine>> = vec![Arc::new(Threads)];
    if crate::backend::uring::permitted().is_ok() {
        all.push(backend::choose(backend::Choice::Uring).engine);
    }
    all
}

#[test]
fn the_file_has_every_byte_wherever_runs_begin() {
    let dir = TestDir::new("past");
    // Rows of whole pages, with tiles at their borders or not; unaligned rows; runs longer than
    // requests; one run.
    for (rows, row, part) in [
        (64, 32768, (3968, 16384)),
        (64, 32768, (0, 16384)),
        (70, 20_011, (701, 13_333)),
        (3, 600_000, (17, 590_001)),
        (20, 50_000, (0, 50_000)),
    ] {
        for engine in engines() {
            let plan = plan(rows, row, part, 64 << 10);
            assert!(plan.past_cache().is_some(), "{}", plan.text());
            let old = vec![0xA5; (HEADER + rows * row + 77) as usize];
            let path = dir.file("a", &old);
            let memory = bytes(rows * part.1);
            let report = written(&plan, &path, &memory, &*engine);
            let cost = plan.cost();
            assert_eq!(
                (cost.writes, cost.written_bytes, cost.rounds),
                (report.writes, report.written_bytes, report.rounds)
            );
            assert!(std::fs::read(&path).unwrap() == expected(&old, &memory, row, part));
        }
    }
}

#[test]
fn the_disk_takes_whole_pages_from_where_they_are() {
    let dir = TestDir::new("past-home");
    // Rows of whole pages; one run that begins within a page.
    for (rows, row, part) in [(64, 32768, (3968, 16384)), (1, 2_000_000, (701, 1_900_001))] {
        for engine in engines() {
            let first = (HEADER + part.0) % PAGE_BYTES;
            let room = vec![0_u8; (rows * part.1 + 2 * PAGE_BYTES) as usize];
            let skipped = room.as_ptr().align_offset(PAGE_BYTES as usize) + first as usize;
            let mut room = room;
            let memory = &mut room[skipped..skipped + (rows * part.1) as usize];
            memory.copy_from_slice(&bytes(rows * part.1));
            let home = Some(Home { at: memory.as_ptr() as i64, page: PAGE_BYTES });
            let plan = plan_from(home, 2 << 20, (rows, row), part, 64 << 10);
            let blocks = plan.past_cache().unwrap()..plan.rounds();
            assert!(blocks.into_iter().all(|k| plan.round(k).unwrap().moves.is_empty()));
            let old = vec![0xA5; (HEADER + rows * row + 77) as usize];
            let path = dir.file("a", &old);
            let report = written(&plan, &path, memory, &*engine);
            assert_eq!(plan.cost().writes, report.writes);
            assert!(std::fs::read(&path).unwrap() == expected(&old, memory, row, part));
        }
    }
}

/// Returns whether files of this folder support direct I/O, so that the effect is visible.
fn passes(path: &std::path::Path) -> bool {
    let file = OpenFile::open(path, true).unwrap();
    probe::direct_alignment(path).is_some() && file.direct().is_some()
}

#[test]
fn whole_pages_are_not_left_in_the_page_cache() {
    let dir = TestDir::new("past-pages");
    let (rows, row, part) = (64, 32768, (3968, 16384));
    let path = dir.path("a");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len((HEADER + rows * row) as u64).unwrap();
    if !passes(&path) {
        return; // a file system without direct I/O
    }
    let memory = bytes(rows * part.1);
    written(&plan(rows, row, part, 1 << 20), &path, &memory, &Threads);
    let open = OpenFile::open(&path, false).unwrap();
    let cached = |at, len| probe::cached(open.fd(), at, len);
    let Some(_) = cached(0, PAGE_BYTES) else { return };
    for k in 0..rows {
        assert_eq!(Some(0), cached(HEADER + k * row + part.0, part.1));
    }
    // A later read does not return old data, clean or dirty, from the cache.
    let old = std::fs::read(&path).unwrap();
    file.write_all_at(&[1; 5000], (HEADER + part.0 + 1000) as u64).unwrap();
    let memory: Vec<u8> = memory.iter().map(|byte| !byte).collect();
    written(&plan(rows, row, part, 1 << 20), &path, &memory, &Threads);
    assert!(std::fs::read(&path).unwrap() == expected(&old, &memory, row, part));
}

/// An engine that checks the sides of all runs at each of its writes.
struct Watching {
    file: std::fs::File,
    /// Position of each side, and its final bytes.
    sides: Vec<(u64, Vec<u8>)>,
    requests: AtomicUsize,
    early: AtomicUsize,
}

struct Watched<'a>(Box<dyn Session>, &'a Watching);

impl Engine for &'static Watching {
    fn name(&self) -> &'static str {
        "watching"
    }

    fn session(&self, depth: usize) -> Result<Box<dyn Session>, StorageError> {
        Ok(Box::new(Watched(Threads.session(depth)?, self)))
    }
}

impl Session for Watched<'_> {
    fn room(&self) -> usize {
        self.0.room()
    }

    fn pending(&self) -> usize {
        self.0.pending()
    }

    unsafe fn submit(&mut self, request: backend::Request) {
        let there = |(at, bytes): &(u64, Vec<u8>)| {
            let mut now = vec![0; bytes.len()];
            self.1.file.read_exact_at(&mut now, *at).is_ok() && now == *bytes
        };
        if request.write {
            self.1.requests.fetch_add(1, Ordering::Relaxed);
            if !self.1.sides.iter().all(there) {
                self.1.early.fetch_add(1, Ordering::Relaxed);
            }
        }
        // SAFETY: the caller's promise.
        unsafe { self.0.submit(request) };
    }

    fn flush(&mut self) -> Result<(), StorageError> {
        self.0.flush()
    }

    fn wait(&mut self, at_least: usize, done: &mut Vec<Completion>) -> Result<(), StorageError> {
        self.0.wait(at_least, done)
    }
}

/// A page that becomes dirty next to a direct write may overlap with it: the kernel then reports a
/// failure at the next sync.
#[test]
fn no_block_is_written_before_the_sides_of_all_runs_are() {
    let dir = TestDir::new("past-order");
    let (rows, row, part) = (300, 20_011, (701, 13_333));
    let path = dir.file("a", &vec![0; (HEADER + rows * row) as usize]);
    let memory = bytes(rows * part.1);
    let side = |k: i64| {
        let first = HEADER + k * row + part.0;
        let len = -first & (PAGE_BYTES - 1);
        let at = (k * part.1) as usize;
        (first as u64, memory[at..at + len as usize].to_vec())
    };
    let watching = Box::leak(Box::new(Watching {
        file: std::fs::File::open(&path).unwrap(),
        sides: (0..rows).map(side).collect(),
        requests: AtomicUsize::new(0),
        early: AtomicUsize::new(0),
    }));
    let watching: &'static Watching = watching;
    // Rounds so small that rounds of blocks would not wait for a worker.
    let plan = plan_within(400 << 10, rows, row, part, 1 << 20);
    written(&plan, &path, &memory, &watching);
    assert_eq!(rows as usize, watching.requests.load(Ordering::Relaxed));
    assert_eq!(0, watching.early.load(Ordering::Relaxed));
}
