//! Plans on real files: every method and engine against a naive loop, and failures.

#![allow(unsafe_code)]

use std::path::PathBuf;

use outcore_plan::{Layout, Part, Range, Request, Section, Strided, Terms};
use proptest::prelude::*;

use super::*;
use crate::backend::memory::Memory;
use crate::backend::threads::Threads;
use crate::testdir::TestDir;

/// An array in files, and its content.
struct Disk {
    dir: TestDir,
    layout: Layout,
    files: Vec<PathBuf>,
    /// Concatenated content of the parts.
    content: Vec<u8>,
}

/// A 3-d array of `item`-byte elements, in C or Fortran order, with a gap after each row, split
/// over `parts` files, each with a header.
fn disk(shape: &[i64], item: i64, fortran: bool, gap: i64, parts: usize) -> Disk {
    let dir = TestDir::new("exec");
    let mut strides = vec![0; shape.len()];
    let mut reach = item;
    let order: Vec<usize> =
        if fortran { (0..shape.len()).collect() } else { (0..shape.len()).rev().collect() };
    for (k, axis) in order.iter().enumerate() {
        strides[*axis] = reach;
        reach = reach * shape[*axis] + if k == 0 { gap * item } else { 0 };
    }
    let content: Vec<u8> =
        (0..reach).map(|k| (k.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let (mut files, mut list) = (Vec::new(), Vec::new());
    let each = content.len().div_ceil(parts).next_multiple_of(item as usize);
    for (number, part) in content.chunks(each).enumerate() {
        let header = 128 * (number + 1);
        let mut bytes = vec![0xAAu8; header];
        bytes.extend_from_slice(part);
        files.push(dir.file(&format!("part{number}"), &bytes));
        list.push(Part { file: number as u32, offset: header as i64, len: part.len() as i64 });
    }
    let layout = Layout::Strided(Strided { shape: shape.to_vec(), item, strides, parts: list });
    Disk { dir, layout, files, content }
}

impl Disk {
    fn strided(&self) -> &Strided {
        match &self.layout {
            Layout::Strided(strided) => strided,
            Layout::Chunked(_) => unreachable!("the tests' layouts are strided"),
        }
    }

    /// Returns the current content of the parts in the files.
    fn now(&self) -> Vec<u8> {
        let mut all = Vec::new();
        for part in &self.strided().parts {
            let bytes = std::fs::read(&self.files[part.file as usize]).unwrap();
            assert!(bytes[..part.offset as usize].iter().all(|byte| *byte == 0xAA));
            assert_eq!(bytes.len() as i64, part.offset + part.len);
            all.extend_from_slice(&bytes[part.offset as usize..]);
        }
        all
    }

    /// Returns the offsets of the section's elements, in C order.
    fn offsets(&self, section: &Section) -> Vec<usize> {
        let mut offsets = vec![0i64];
        for (range, stride) in section.ranges().iter().zip(&self.strided().strides) {
            let along = (0..range.count).map(|i| (range.start + i * range.step) * stride);
            let along: Vec<i64> = along.collect();
            offsets = offsets.iter().flat_map(|base| along.iter().map(move |o| base + o)).collect();
        }
        offsets.into_iter().map(|offset| offset as usize).collect()
    }
}

/// Returns strides of a caller's array in C or Fortran order, perhaps reversed.
fn user_strides(section: &Section, item: i64, fortran: bool, turned: bool) -> (Vec<i64>, i64, i64) {
    let counts: Vec<i64> = section.ranges().iter().map(|range| range.count).collect();
    let mut strides = vec![0; counts.len()];
    let mut reach = item;
    let axes: Vec<usize> =
        if fortran { (0..counts.len()).collect() } else { (0..counts.len()).rev().collect() };
    for axis in axes {
        strides[axis] = reach;
        reach *= counts[axis].max(1);
    }
    let mut origin = 0;
    if turned && !counts.is_empty() {
        origin = strides[0] * (counts[0] - 1).max(0);
        strides[0] = -strides[0];
    }
    (strides, origin, reach)
}

#[derive(Debug, Clone)]
struct Case {
    shape: Vec<i64>,
    item: i64,
    picks: Vec<(f64, f64, i64)>,
    flags: [bool; 6],
    gap: i64,
    parts: usize,
    method: Option<Method>,
    threads: usize,
    budget: i64,
    engine: u8,
}

fn cases() -> impl Strategy<Value = Case> {
    let method = prop::option::of(prop::sample::select(vec![
        Method::Straight,
        Method::Window,
        Method::Mapped,
        Method::List,
    ]));
    let item = prop::sample::select(vec![1i64, 2, 3, 4, 8, 16, 20]);
    (prop::collection::vec(1i64..40, 0..4), item, any::<[bool; 6]>()).prop_flat_map(
        move |(shape, item, flags)| {
            let picks = prop::collection::vec((0f64..1.0, 0f64..1.0, 1i64..6), shape.len());
            let rest = (0i64..9, 1usize..4, 1usize..4, (60_000i64..4_000_000), 0u8..3);
            (picks, rest, method.clone()).prop_map(move |(picks, rest, method)| Case {
                shape: shape.clone(),
                item,
                picks,
                flags,
                gap: rest.0,
                parts: rest.1,
                method,
                threads: rest.2,
                budget: rest.3,
                engine: rest.4,
            })
        },
    )
}

fn engine_of(number: u8) -> Box<dyn Engine> {
    match number {
        0 => Box::new(Threads),
        #[cfg(target_os = "linux")]
        1 if crate::backend::uring::permitted().is_ok() => Box::new(crate::backend::uring::Uring),
        _ => Box::new(Memory { seed: u64::from(number) }),
    }
}

fn section_of(case: &Case) -> Section {
    let range = |(n, (from, to, step)): (&i64, &(f64, f64, i64))| {
        let start = (*from * *n as f64) as i64;
        let count = ((*to * (*n - start + 1) as f64) as i64 + step - 1) / step;
        Range::new(start, count.min((n - start + step - 1) / step), *step).unwrap()
    };
    Section::new(case.shape.iter().zip(&case.picks).map(range).collect())
}

fn terms_of(case: &Case) -> Terms {
    let [_, _, _, cached, direct, exclusive] = case.flags;
    Terms {
        lanes: case.threads as i64,
        cached_permille: if cached { 1000 } else { 0 },
        mapping: true,
        direct,
        exclusive,
        method: case.method,
        request: 8192,
        window: 16 << 10,
        threads: case.threads as i64,
        flushed: exclusive,
        share: if direct { 1 << 20 } else { 256 },
        straight: if direct { 64 << 10 } else { 64 },
        ..Terms::new(case.budget)
    }
}

/// Runs one access; returns its report.
fn access(
    disk: &Disk,
    plan: &Plan,
    direction: Direction,
    memory: &mut [u8],
    origin: i64,
    engine: &dyn Engine,
) -> Result<Report, StorageError> {
    let files = FileTable::new(disk.files.clone(), direction == Direction::Write);
    let arena = Arena::new(64 << 20);
    let user = User::of(memory, origin as usize);
    let job = Job {
        plan,
        direction,
        files: &files,
        user,
        fill: &[],
        pipeline: None,
        sink: None,
        engine,
        arena: &arena,
        chunk_cache: CacheUse::Never,
        threads: 3,
        cached: false,
        flushed: true,
        interrupted: &|| false,
    };
    let report = run(&job);
    assert_eq!(0, arena.used());
    report
}

fn assert_report(plan: &Plan, direction: Direction, report: &Report) {
    let (cost, writes) = (plan.cost(), direction == Direction::Write);
    let expected = Report {
        reads: cost.reads,
        read_bytes: cost.read_bytes,
        writes: cost.writes,
        written_bytes: cost.written_bytes,
        mapped_bytes: cost.mapped_bytes,
        mapped_written_bytes: if writes { cost.mapped_bytes } else { 0 },
        decodes: cost.decodes,
        kept: 0,
        encodes: cost.encodes,
        rounds: cost.rounds,
        flushes: 0,
        times: report.times,
    };
    assert_eq!(expected, *report);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn reads_equal_a_naive_loop(case in cases()) {
        let [fortran, user_fortran, turned, ..] = case.flags;
        let disk = disk(&case.shape, case.item, fortran, case.gap, case.parts);
        let section = section_of(&case);
        let (user_stride, origin, bytes) = user_strides(&section, case.item, user_fortran, turned);
        let direction = Direction::Read;
        let request = Request {
            layout: &disk.layout, table: None, section: &section, user_stride: &user_stride, direction,
        };
        let plan = Plan::new(&request, &terms_of(&case)).unwrap();
        let mut memory = vec![0xEEu8; bytes as usize];
        let engine = engine_of(case.engine);
        let report = access(&disk, &plan, direction, &mut memory, origin, &*engine).unwrap();
        let mut expected = vec![0xEEu8; bytes as usize];
        for_each_element(&section, &user_stride, origin, &disk, |at, offset| {
            let item = case.item as usize;
            expected[at..at + item].copy_from_slice(&disk.content[offset..offset + item]);
        });
        prop_assert_eq!(expected, memory);
        assert_report(&plan, direction, &report);
    }

    #[test]
    fn writes_change_the_section_and_nothing_else(case in cases()) {
        let [fortran, user_fortran, turned, ..] = case.flags;
        let disk = disk(&case.shape, case.item, fortran, case.gap, case.parts);
        let section = section_of(&case);
        let (user_stride, origin, bytes) = user_strides(&section, case.item, user_fortran, turned);
        let direction = Direction::Write;
        let request = Request {
            layout: &disk.layout, table: None, section: &section, user_stride: &user_stride, direction,
        };
        let plan = Plan::new(&request, &terms_of(&case)).unwrap();
        let mut memory: Vec<u8> = (0..bytes).map(|k| (k * 7 + 1) as u8).collect();
        let engine = engine_of(case.engine);
        let report = access(&disk, &plan, direction, &mut memory, origin, &*engine).unwrap();
        let mut expected = disk.content.clone();
        for_each_element(&section, &user_stride, origin, &disk, |at, offset| {
            let item = case.item as usize;
            expected[offset..offset + item].copy_from_slice(&memory[at..at + item]);
        });
        prop_assert!(expected == disk.now());
        assert_report(&plan, direction, &report);
    }
}

/// Calls `each` with every element's position in the caller's memory and in the content.
fn for_each_element(
    section: &Section,
    user_stride: &[i64],
    origin: i64,
    disk: &Disk,
    mut each: impl FnMut(usize, usize),
) {
    let mut places = vec![origin];
    for (range, stride) in section.ranges().iter().zip(user_stride) {
        places = places
            .iter()
            .flat_map(|base| (0..range.count).map(move |i| base + i * stride))
            .collect();
    }
    for (at, offset) in places.into_iter().zip(disk.offsets(section)) {
        each(at as usize, offset);
    }
}

/// Makes a plan for the whole of a 1-d array of bytes.
fn whole(disk: &Disk, method: Method, direction: Direction) -> (Plan, usize) {
    let shape = disk.strided().shape.clone();
    let section = Section::whole(&shape).unwrap();
    let request = Request {
        layout: &disk.layout,
        table: None,
        section: &section,
        user_stride: &[1],
        direction,
    };
    let terms = Terms {
        mapping: true,
        method: Some(method),
        request: 64 << 10,
        window: 64 << 10,
        ..Terms::new(1 << 20)
    };
    (Plan::new(&request, &terms).unwrap(), shape[0] as usize)
}

const METHODS: [Method; 4] = [Method::Straight, Method::Window, Method::Mapped, Method::List];

#[test]
fn a_file_that_is_too_short_is_named() {
    let disk = disk(&[3_000_000], 1, false, 0, 1);
    let file = std::fs::OpenOptions::new().write(true).open(&disk.files[0]).unwrap();
    file.set_len(2_000_000).unwrap();
    for method in METHODS {
        let (plan, bytes) = whole(&disk, method, Direction::Read);
        let mut memory = vec![0; bytes];
        let error = access(&disk, &plan, Direction::Read, &mut memory, 0, &Threads).unwrap_err();
        assert_eq!("file-truncated", error.code(), "{method:?}: {error}");
        assert_eq!(Some(disk.files[0].as_path()), error.path());
    }
}

#[test]
fn a_missing_file_is_named() {
    let disk = disk(&[1000], 1, false, 0, 2);
    std::fs::remove_file(&disk.files[1]).unwrap();
    for method in METHODS {
        let (plan, bytes) = whole(&disk, method, Direction::Read);
        let mut memory = vec![0; bytes];
        let error = access(&disk, &plan, Direction::Read, &mut memory, 0, &Threads).unwrap_err();
        assert_eq!(
            ("not-found", Some(disk.dir.path("part1").as_path())),
            (error.code(), error.path())
        );
    }
}

#[test]
fn an_interrupt_ends_the_job() {
    let disk = disk(&[8_000_000], 1, false, 0, 1);
    for method in METHODS {
        let (plan, bytes) = whole(&disk, method, Direction::Read);
        let mut memory = vec![0u8; bytes];
        let files = FileTable::new(disk.files.clone(), false);
        let arena = Arena::new(16 << 20);
        let asked = std::cell::Cell::new(0);
        let user = User::of(&mut memory[..bytes], 0);
        let interrupted = || {
            asked.set(asked.get() + 1);
            asked.get() > 1
        };
        let job = Job {
            plan: &plan,
            direction: Direction::Read,
            files: &files,
            user,
            fill: &[],
            pipeline: None,
            sink: None,
            engine: &Threads,
            arena: &arena,
            chunk_cache: CacheUse::Never,
            threads: 1, // a helper might finish before this thread checks
            cached: true,
            flushed: false,
            interrupted: &interrupted,
        };
        let error = run(&job).unwrap_err();
        assert_eq!(StorageError::Cancelled, error, "{method:?}");
        assert_eq!(0, arena.used());
    }
}

#[test]
fn writing_needs_files_open_for_writing() {
    let disk = disk(&[1000], 1, false, 0, 1);
    let (plan, bytes) = whole(&disk, Method::Straight, Direction::Write);
    let mut memory = vec![0u8; bytes];
    let files = FileTable::new(disk.files.clone(), false);
    let job = Job {
        plan: &plan,
        direction: Direction::Write,
        files: &files,
        user: User::of(&mut memory[..bytes], 0),
        fill: &[],
        pipeline: None,
        sink: None,
        engine: &Threads,
        arena: &Arena::new(1 << 20),
        chunk_cache: CacheUse::Never,
        threads: 1,
        cached: true,
        flushed: false,
        interrupted: &|| false,
    };
    assert_eq!("read-only", run(&job).unwrap_err().code());
}

/// Outcome of a request: an error number, or the number of transferred bytes.
type Outcome = fn(usize) -> Result<usize, i32>;

/// An engine in which the request with this number has the given outcome; the others work normally.
struct Failing(u64, Outcome);

struct FailingSession {
    inner: Box<dyn crate::backend::Session>,
    number: u64,
    seen: u64,
    outcome: Outcome,
}

impl Engine for Failing {
    fn name(&self) -> &'static str {
        "failing"
    }

    fn session(&self, depth: usize) -> Result<Box<dyn crate::backend::Session>, StorageError> {
        let inner = Memory { seed: 5 }.session(depth)?;
        Ok(Box::new(FailingSession { inner, number: self.0, seen: 0, outcome: self.1 }))
    }
}

impl crate::backend::Session for FailingSession {
    fn room(&self) -> usize {
        self.inner.room()
    }

    fn pending(&self) -> usize {
        self.inner.pending()
    }

    unsafe fn submit(&mut self, request: crate::backend::Request) {
        // SAFETY: passed on unchanged.
        unsafe { self.inner.submit(request) };
    }

    fn flush(&mut self) -> Result<(), StorageError> {
        self.inner.flush()
    }

    fn wait(
        &mut self,
        at_least: usize,
        done: &mut Vec<crate::backend::Completion>,
    ) -> Result<(), StorageError> {
        let before = done.len();
        self.inner.wait(at_least, done)?;
        for completion in &mut done[before..] {
            self.seen += 1;
            if self.seen == self.number {
                completion.result = completion.result.and_then(self.outcome);
            }
        }
        Ok(())
    }
}

#[test]
fn a_failing_disk_is_named_whichever_request_it_hits() {
    let disk = disk(&[1_000_000], 1, false, 0, 1);
    for direction in [Direction::Read, Direction::Write] {
        let (plan, bytes) = whole(&disk, Method::List, direction);
        let cost = plan.cost();
        let requests = cost.reads + cost.writes;
        assert!(requests > 4);
        for number in 1..=requests {
            let mut memory = vec![0u8; bytes];
            let engine = Failing(number as u64, |_| Err(libc::EIO));
            let error = access(&disk, &plan, direction, &mut memory, 0, &engine).unwrap_err();
            assert_eq!("disk-failure", error.code(), "request {number}");
            assert_eq!(Some(disk.files[0].as_path()), error.path());
        }
    }
}

#[test]
fn bytes_that_are_missing_at_the_end_of_a_request_are_an_error() {
    let disk = disk(&[1_000_000], 1, false, 0, 1);
    let outcomes: [Outcome; 3] = [|_| Ok(0), |len| Ok(len / 2), |len| Ok(len - 1)];
    for (direction, code) in
        [(Direction::Read, "file-truncated"), (Direction::Write, "disk-failure")]
    {
        let (plan, bytes) = whole(&disk, Method::List, direction);
        let requests = plan.cost().reads + plan.cost().writes;
        let mut failed = 0;
        for (number, outcome) in (1..=requests).flat_map(|n| outcomes.map(|outcome| (n, outcome))) {
            let mut memory = vec![0u8; bytes];
            let engine = Failing(number as u64, outcome);
            match access(&disk, &plan, direction, &mut memory, 0, &engine) {
                // A read of whole blocks may reach beyond the array: those bytes are not needed.
                Ok(_) => assert!(direction == Direction::Read && memory == disk.content),
                Err(error) => {
                    assert_eq!((code, Some(disk.files[0].as_path())), (error.code(), error.path()));
                    failed += 1;
                }
            }
        }
        assert!(requests > 4 && failed >= 3 * requests - 1, "{failed} of {requests}");
    }
}

#[test]
fn a_budget_that_others_hold_gives_fewer_lanes_then_an_error() {
    let disk = disk(&[4_000_000], 1, false, 0, 1);
    let (plan, bytes) = whole(&disk, Method::Window, Direction::Read);
    assert!(plan.lanes() > 1);
    let files = FileTable::new(disk.files.clone(), false);
    let mut memory = vec![0u8; bytes];
    let user = User::of(&mut memory[..bytes], 0);
    let arena = Arena::new(plan.slot_bytes() as u64 + 8192);
    let mut job = Job {
        plan: &plan,
        direction: Direction::Read,
        files: &files,
        user,
        fill: &[],
        pipeline: None,
        sink: None,
        engine: &Threads,
        arena: &arena,
        chunk_cache: CacheUse::Never,
        threads: 4,
        cached: true,
        flushed: false,
        interrupted: &|| false,
    };
    run(&job).unwrap();
    let tight = Arena::new(plan.slot_bytes() as u64 / 2);
    job.arena = &tight;
    assert_eq!("budget-too-small", run(&job).unwrap_err().code());
    assert!(memory == disk.content);
}

#[test]
fn a_list_that_will_be_flushed_is_sent_to_the_disk_round_by_round() {
    let disk = disk(&[9_000_000], 1, false, 0, 1);
    let (plan, bytes) = whole(&disk, Method::List, Direction::Write);
    assert!(plan.rounds() > 1);
    let writes = |k| plan.round(k).unwrap().writes.len() as u64;
    for (flushed, expected) in [(false, 0), (true, (0..plan.rounds()).map(writes).sum())] {
        let mut memory = vec![7u8; bytes];
        let files = FileTable::new(disk.files.clone(), true);
        let arena = Arena::new(64 << 20);
        let job = Job {
            plan: &plan,
            direction: Direction::Write,
            files: &files,
            user: User::of(&mut memory[..bytes], 0),
            fill: &[],
            pipeline: None,
            sink: None,
            engine: &Threads,
            arena: &arena,
            chunk_cache: CacheUse::Never,
            threads: 2,
            cached: false,
            flushed,
            interrupted: &|| false,
        };
        let shared = Shared::new(&job);
        deep::drive(&shared).unwrap();
        assert_eq!(expected, shared.writeback.lock().unwrap().told);
    }
}

#[cfg(feature = "testing")]
#[test]
fn a_file_is_looked_at_once_for_all_lanes_of_an_access() {
    use crate::backend::faulty::{arm, Fault, Faults, Rule};
    use crate::backend::sys::Kind;
    use crate::original::{FileId, Original};

    let disk = disk(&[1000], 1, false, 0, 1);
    let (plan, bytes) = whole(&disk, Method::List, Direction::Write);
    let mut memory = vec![7u8; bytes];
    let path = &disk.files[0];
    let original = Original::new(FileId::at(path).unwrap());
    let files = FileTable::new(disk.files.clone(), true).known(vec![Some(original)]);
    let arena = Arena::new(64 << 20);
    let job = Job {
        plan: &plan,
        direction: Direction::Write,
        files: &files,
        user: User::of(&mut memory[..bytes], 0),
        fill: &[],
        pipeline: None,
        sink: None,
        engine: &Threads,
        arena: &arena,
        chunk_cache: CacheUse::Never,
        threads: 4,
        cached: false,
        flushed: false,
        interrupted: &|| false,
    };
    let shared = Shared::new(&job);
    let inside = path.parent().unwrap().file_name().unwrap().to_str().unwrap().to_owned();
    // A second query of the file fails.
    let rule = Rule::every(2, Fault::Errno(libc::ENOENT)).on(Kind::Look).path(&inside);
    let _armed = arm(Faults::new([rule]));
    let shared = &shared;
    std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..4).map(|_| scope.spawn(|| shared.length(0))).collect();
        let found: Vec<_> = lanes.into_iter().map(|lane| lane.join().unwrap()).collect();
        assert!(found.iter().all(|length| *length == found[0] && length.is_ok()), "{found:?}");
    });
    assert_eq!("not-found", Shared::new(&job).length(0).unwrap_err().code());
}
