//! Chunked plans on real files: encoded and plain, some chunks missing, read and written.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;

use outcore_plan::{
    ChunkTable, Chunked, Coding, Layout, PlanError, Range, Request, Section, Stored, Terms,
};
use proptest::prelude::*;

use super::*;
use crate::backend::memory::Memory;
use crate::codec::{CodecSpec, OptionValue};
use crate::testdir::TestDir;

const ITEM: i64 = 4;

/// A chunked 2-d array of 4-byte elements in one file; every third chunk is missing.
struct Disk {
    _dir: TestDir,
    file: PathBuf,
    layout: Layout,
    table: ChunkTable,
    pipeline: Pipeline,
    grid: [i64; 2],
    chunk: [i64; 2],
    shape: [i64; 2],
    /// Elements of the array.
    elements: Vec<[u8; 4]>,
}

const FILL: [u8; 4] = [9, 8, 7, 6];

fn disk(shape: [i64; 2], chunk: [i64; 2], codecs: &[&str], missing: bool) -> Disk {
    let dir = TestDir::new("exec-chunks");
    let itemsize = || vec![("itemsize".to_owned(), OptionValue::Int(ITEM))];
    let options = |name: &str| if name == "shuffle" { itemsize() } else { Vec::new() };
    let spec = |name: &&str| CodecSpec { name: (*name).to_owned(), options: options(name) };
    let specs: Vec<CodecSpec> = codecs.iter().map(spec).collect();
    let bytes = (chunk[0] * chunk[1] * ITEM) as usize;
    let pipeline = Pipeline::new(&specs, bytes).unwrap();
    let grid = [(shape[0] + chunk[0] - 1) / chunk[0], (shape[1] + chunk[1] - 1) / chunk[1]];
    let mut elements = vec![FILL; (shape[0] * shape[1]) as usize];
    let mut file = vec![0xAAu8; 64];
    let mut stored = Vec::new();
    let mut scratch = vec![0; pipeline.scratch_bytes()];
    for cell in 0..grid[0] * grid[1] {
        if missing && cell % 3 == 1 {
            stored.push(None);
            continue;
        }
        let (ci, cj) = (cell / grid[1], cell % grid[1]);
        let mut decoded = vec![0u8; bytes];
        for i in 0..chunk[0] {
            for j in 0..chunk[1] {
                let (row, column) = (ci * chunk[0] + i, cj * chunk[1] + j);
                let value = ((row * 1000 + column) as u32).to_le_bytes();
                let at = ((i * chunk[1] + j) * ITEM) as usize;
                decoded[at..at + 4].copy_from_slice(&value);
                if row < shape[0] && column < shape[1] {
                    elements[(row * shape[1] + column) as usize] = value;
                }
            }
        }
        let encoded = pipeline.encode(&decoded, &mut scratch).unwrap();
        let (offset, len) = (file.len() as i64, encoded.bytes.len() as i64);
        stored.push(Some(Stored { file: 0, offset, len, mask: encoded.mask }));
        file.extend_from_slice(encoded.bytes);
    }
    let strides = vec![chunk[1] * ITEM, ITEM];
    let encoded = !codecs.is_empty();
    let (shape_list, chunk_list) = (shape.to_vec(), chunk.to_vec());
    let layout = Layout::Chunked(Chunked {
        shape: shape_list,
        item: ITEM,
        chunk: chunk_list,
        strides,
        encoded,
        encoded_bound: pipeline.encoded_bound() as i64,
    });
    let table = ChunkTable { lo: vec![0, 0], count: grid.to_vec(), stored };
    let path = dir.file("chunks", &file);
    Disk { file: path, _dir: dir, layout, table, pipeline, grid, chunk, shape, elements }
}

/// Chunks that the sink of a job received, decoded, by coordinates.
type Chunks = BTreeMap<Vec<i64>, Vec<u8>>;

fn access(
    disk: &Disk,
    section: &Section,
    direction: Direction,
    memory: &mut [u8],
    method: Option<Method>,
) -> Result<(Chunks, Report), StorageError> {
    access_within(disk, section, direction, memory, method, 8 << 20)
}

/// Runs an access within the smallest sufficient budget, or `budget` if that is larger.
fn access_within(
    disk: &Disk,
    section: &Section,
    direction: Direction,
    memory: &mut [u8],
    method: Option<Method>,
    budget: i64,
) -> Result<(Chunks, Report), StorageError> {
    let width = section.ranges()[1].count * ITEM;
    let request = Request {
        layout: &disk.layout,
        table: Some(&disk.table),
        section,
        user_stride: &[width, ITEM],
        direction,
    };
    let needs = |decodes, encodes| disk.pipeline.needs(decodes, encodes).bytes() as i64;
    let coding = Coding {
        decode_scratch: disk.pipeline.decode_scratch() as i64,
        encode_scratch: disk.pipeline.encode_scratch() as i64,
        decoder: needs(true, false),
        encoder: needs(false, true),
        both: needs(true, true),
        held: 0,
        spare: 0,
    };
    let budget = budget & -(PAGE as i64);
    let terms = Terms { lanes: 3, mapping: true, method, coding, ..Terms::new(budget) };
    let plan = match Plan::new(&request, &terms) {
        Err(PlanError::BudgetTooSmall { needed, .. }) if needed > budget => {
            let needed = needed + PAGE as i64 - 1;
            return access_within(disk, section, direction, memory, method, needed);
        }
        other => other?,
    };
    let received = Mutex::new(Chunks::new());
    let sink = |chunk: &[i64], mask: u32, bytes: &[u8]| {
        let mut decoded = vec![0; disk.pipeline.decoded_len()];
        let mut scratch = vec![0; disk.pipeline.scratch_bytes()];
        disk.pipeline.decode(bytes, mask, &mut decoded, &mut scratch)?;
        assert!(received.lock().unwrap().insert(chunk.to_vec(), decoded).is_none());
        Ok(())
    };
    let files = FileTable::new(vec![disk.file.clone()], direction == Direction::Write);
    // Exactly the budget of the plan.
    let arena = Arena::new(budget as u64);
    let job = Job {
        plan: &plan,
        direction,
        files: &files,
        user: User::of(&mut memory[..], 0),
        fill: &FILL,
        pipeline: Some(&disk.pipeline),
        sink: Some(&sink),
        engine: &Memory { seed: 3 },
        arena: &arena,
        chunk_cache: CacheUse::Never,
        threads: 3,
        cached: false,
        flushed: false,
        interrupted: &|| false,
    };
    let report = run(&job);
    assert_eq!(0, arena.used());
    let report = report?;
    let cost = plan.cost();
    if !disk.pipeline.is_empty() {
        // In whole pages once for all lanes; with one lane it equals the cost.
        let peak = (cost.peak_bytes as u64).next_multiple_of(PAGE as u64);
        assert!(arena.peak() <= peak, "{} of {peak}", arena.peak());
    }
    assert_eq!(cost.writes, report.writes);
    // The length of encoded chunks is known only afterwards.
    assert!(report.written_bytes <= cost.written_bytes);
    assert_eq!(
        (cost.reads, cost.read_bytes, cost.decodes, cost.encodes, cost.rounds, cost.mapped_bytes),
        (
            report.reads,
            report.read_bytes,
            report.decodes,
            report.encodes,
            report.rounds,
            report.mapped_bytes
        )
    );
    Ok((received.into_inner().unwrap(), report))
}

fn sections() -> impl Strategy<Value = ([i64; 2], [i64; 2], Section)> {
    let axis =
        (1i64..60, 1i64..25, 0f64..1.0, 0f64..1.0, 1i64..4).prop_map(|(n, c, from, to, step)| {
            let start = (from * n as f64) as i64;
            let most = (n - start + step - 1) / step;
            let count = 1 + (to * (most - 1) as f64) as i64;
            (n, c, Range::new(start, count, step).unwrap())
        });
    (axis.clone(), axis).prop_map(|(a, b)| ([a.0, b.0], [a.1, b.1], Section::new(vec![a.2, b.2])))
}

fn pipelines() -> impl Strategy<Value = Vec<&'static str>> {
    prop::sample::select(vec![
        vec![],
        vec!["zstd"],
        vec!["shuffle", "deflate"],
        vec!["crc32c"],
        vec!["blosc"],
        vec!["lzf", "zstd"],
    ])
}

fn budgets() -> impl Strategy<Value = i64> {
    prop::sample::select(vec![8 << 20, 1 << 20, 300_000, 100_000, 4096])
}

/// Returns the index in the array of every element of a section, in C order.
fn indices(disk: &Disk, section: &Section) -> Vec<(i64, i64)> {
    let [rows, columns] = [&section.ranges()[0], &section.ranges()[1]];
    assert!(rows.stop() <= disk.shape[0] && columns.stop() <= disk.shape[1]);
    let along = |range: &Range| {
        let Range { start, count, step } = *range;
        (0..count).map(move |i| start + i * step)
    };
    along(rows).flat_map(|i| along(columns).map(move |j| (i, j))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(250))]

    #[test]
    fn chunks_are_read_as_they_were_written(
        (shape, chunk, section) in sections(), codecs in pipelines(), missing in any::<bool>(),
        list in any::<bool>(), budget in budgets(),
    ) {
        let disk = disk(shape, chunk, &codecs, missing);
        let wanted = indices(&disk, &section);
        let mut memory = vec![0xEEu8; wanted.len() * 4];
        let method = (list && codecs.is_empty()).then_some(Method::List);
        access_within(&disk, &section, Direction::Read, &mut memory, method, budget).unwrap();
        let expected: Vec<u8> =
            wanted.iter().flat_map(|(i, j)| disk.elements[(i * shape[1] + j) as usize]).collect();
        prop_assert_eq!(expected, memory);
    }

    #[test]
    fn chunks_are_written_whole_and_change_only_the_section(
        (shape, chunk, section) in sections(), codecs in pipelines(), missing in any::<bool>(),
        list in any::<bool>(), budget in budgets(),
    ) {
        let disk = disk(shape, chunk, &codecs, missing);
        let wanted = indices(&disk, &section);
        let mut memory: Vec<u8> = (0..wanted.len() * 4).map(|k| (k * 13 + 5) as u8).collect();
        let method = (list && codecs.is_empty()).then_some(Method::List);
        let (received, _) =
            access_within(&disk, &section, Direction::Write, &mut memory, method, budget).unwrap();
        let mut elements = disk.elements.clone();
        for ((i, j), value) in wanted.iter().zip(memory.chunks(4)) {
            elements[(i * shape[1] + j) as usize].copy_from_slice(value);
        }
        let file = std::fs::read(&disk.file).unwrap();
        for cell in 0..disk.grid[0] * disk.grid[1] {
            let coordinates = vec![cell / disk.grid[1], cell % disk.grid[1]];
            let in_place = disk.table.stored[cell as usize];
            let content: &[u8] = match (received.get(&coordinates), in_place) {
                (Some(decoded), _) => decoded,
                (None, Some(stored)) if codecs.is_empty() => {
                    &file[stored.offset as usize..(stored.offset + stored.len) as usize]
                }
                (None, _) => {
                    let touched = wanted.iter().any(|(i, j)| {
                        i / disk.chunk[0] == coordinates[0] && j / disk.chunk[1] == coordinates[1]
                    });
                    prop_assert!(!touched, "chunk {:?} was not stored", coordinates);
                    continue;
                }
            };
            for i in 0..disk.chunk[0] {
                for j in 0..disk.chunk[1] {
                    let row = coordinates[0] * disk.chunk[0] + i;
                    let column = coordinates[1] * disk.chunk[1] + j;
                    if row < shape[0] && column < shape[1] {
                        let at = ((i * disk.chunk[1] + j) * ITEM) as usize;
                        let expected = &elements[(row * shape[1] + column) as usize];
                        prop_assert_eq!(&expected[..], &content[at..at + 4]);
                    }
                }
            }
        }
    }
}

#[test]
fn a_damaged_chunk_is_named() {
    let disk = disk([40, 40], [20, 20], &["deflate"], false);
    let mut file = std::fs::read(&disk.file).unwrap();
    let third = disk.table.stored[2].unwrap();
    file[third.offset as usize + 5] ^= 0xFF;
    std::fs::write(&disk.file, &file).unwrap();
    let section = Section::whole(&[40, 40]).unwrap();
    let mut memory = vec![0; 40 * 40 * 4];
    let error = access(&disk, &section, Direction::Read, &mut memory, None).unwrap_err();
    let StorageError::Codec(failure) = error else { panic!("{error}") };
    let expected = (disk.file.clone(), Some(third.offset), vec![1, 0]);
    assert_eq!(expected, (failure.path, failure.offset, failure.chunk));
}

#[test]
fn a_panic_on_a_worker_ends_the_job_with_an_error() {
    let disk = disk([64, 64], [16, 16], &[], true);
    let section = Section::whole(&[64, 64]).unwrap();
    let request = Request {
        layout: &disk.layout,
        table: Some(&disk.table),
        section: &section,
        user_stride: &[64 * ITEM, ITEM],
        direction: Direction::Write,
    };
    let terms = Terms { lanes: 3, method: Some(Method::List), ..Terms::new(4 << 20) };
    let plan = Plan::new(&request, &terms).unwrap();
    let sink = |_: &[i64], _: u32, _: &[u8]| panic!("in the sink of a test");
    let files = FileTable::new(vec![disk.file.clone()], true);
    let arena = Arena::new(64 << 20);
    let mut memory = vec![1u8; (64 * 64 * ITEM) as usize];
    let job = Job {
        plan: &plan,
        direction: Direction::Write,
        files: &files,
        user: User::of(&mut memory[..], 0),
        fill: &FILL,
        pipeline: None,
        sink: Some(&sink),
        engine: &Memory { seed: 5 },
        arena: &arena,
        chunk_cache: CacheUse::Never,
        threads: 2,
        cached: false,
        flushed: false,
        interrupted: &|| false,
    };
    let error = run(&job).unwrap_err();
    assert_eq!("internal-job", error.code());
    assert_eq!(0, arena.used());
}

#[test]
fn seconds_are_parted_by_what_lanes_do() {
    let section = Section::whole(&[600, 500]).unwrap();
    let mut memory = vec![0; 600 * 500 * 4];
    let mut times = |codecs: &[&str], direction| {
        let disk = disk([600, 500], [100, 100], codecs, false);
        access(&disk, &section, direction, &mut memory, None).unwrap().1.times
    };
    let read = times(&["deflate"], Direction::Read);
    assert!(read.io.min(read.decode).min(read.copy).min(read.plan) > 0, "{read:?}");
    assert_eq!(0, read.encode);
    let written = times(&["deflate"], Direction::Write);
    assert!(written.io.min(written.encode).min(written.copy) > 0, "{written:?}");
    assert_eq!(0, written.decode, "whole chunks are not read");
    let plain = times(&[], Direction::Read);
    assert_eq!((0, 0), (plain.decode, plain.encode));
    assert!(plain.io + plain.copy > 0, "{plain:?}");
}

#[cfg(feature = "testing")]
#[test]
fn a_disk_that_takes_long_shows_in_the_seconds_of_io() {
    use crate::backend::faulty::{arm, Fault, Faults, Rule};
    use crate::backend::sys::Kind;

    let disk = disk([400, 500], [100, 100], &["deflate"], false);
    let section = Section::whole(&[400, 500]).unwrap();
    let mut memory = vec![0; 400 * 500 * 4];
    let inside = disk.file.parent().unwrap().file_name().unwrap().to_str().unwrap().to_owned();
    let delay = std::time::Duration::from_millis(5);
    let slow = Rule::every(1, Fault::Delay(delay)).on(Kind::Read).path(&inside);
    let read = {
        let _armed = arm(Faults::new([slow]));
        access(&disk, &section, Direction::Read, &mut memory, None).unwrap().1
    };
    // Twenty chunks, each read by one call.
    assert_eq!(20, read.reads);
    assert!(read.times.io >= 20 * nanoseconds(delay), "{read:?}");
}
