//! Writes that bypass the page cache.
//!
//! Direct requests write whole blocks; the sides go through the cache.
#![allow(dead_code, clippy::unwrap_used, clippy::panic, clippy::type_complexity)]

mod common;

use common::World;
use outcore_plan::*;

const BLOCK: i64 = 64;

fn terms() -> Terms {
    let (scarce, exclusive, direct) = (true, true, true);
    let terms = Terms { scarce, exclusive, direct, block: BLOCK, ..Terms::new(1 << 20) };
    Terms { straight: 4 * BLOCK, share: 16_000, request: 16 * BLOCK, mapping: true, ..terms }
}

/// Plans the write of a section from memory in `order`, and runs it in a simulated world of bytes.
fn written(
    shape: &[i64],
    item: i64,
    offset: i64,
    ranges: &[(i64, i64)],
    order: Order,
    terms: &Terms,
) -> Plan {
    let layout = Strided::dense(shape, item, Order::C, 0, offset).unwrap();
    let len = offset + shape.iter().product::<i64>() * item;
    let ranges = ranges.iter().map(|(start, count)| Range::new(*start, *count, 1).unwrap());
    let section = Section::new(ranges.collect());
    let memory = Strided::dense(&section.shape(), item, order, 0, 0).unwrap();
    let layout = Layout::Strided(layout);
    let request = Request {
        layout: &layout,
        table: None,
        section: &section,
        user_stride: &memory.strides,
        direction: Direction::Write,
    };
    let plan = Plan::new(&request, terms).unwrap();
    let bytes = section.count().unwrap() * item;
    let user: Vec<u8> = (0..bytes).map(|k| (k * 7 + k / 251) as u8).collect();
    let old = vec![0xA5; len as usize];
    let mut world = World::new(vec![old.clone()], user.clone(), 0, Vec::new(), terms.block);
    world.home = terms.home.map(|home| home.at);
    world.run(&plan);
    let Layout::Strided(layout) = &layout else { panic!() };
    let mut expected = old;
    let origin = section.ranges().iter().map(|r| r.start).collect::<Vec<_>>();
    for index in section.indices() {
        let to: i64 = index.iter().zip(&layout.strides).map(|(i, s)| i * s).sum();
        let from: i64 = index
            .iter()
            .zip(&origin)
            .zip(&memory.strides)
            .map(|((i, first), s)| (i - first) * s)
            .sum();
        let (to, from) = ((offset + to) as usize, from as usize);
        expected[to..to + item as usize].copy_from_slice(&user[from..from + item as usize]);
    }
    assert!(expected == world.files[0], "{}", plan.text());
    assert!(world.file_writes[0].iter().all(|times| *times <= 1), "{}", plan.text());
    if plan.past_cache().is_none() {
        return plan;
    }
    assert_eq!(bytes, world.file_writes[0].iter().map(|n| i64::from(*n)).sum::<i64>());
    let cost = plan.cost();
    assert_eq!((world.cost.writes, bytes), (cost.writes, cost.written_bytes), "{}", plan.text());
    assert!(plan.slot_bytes() * plan.lanes() <= terms.budget);
    plan
}

#[test]
fn every_byte_is_written_once_wherever_runs_begin() {
    let cases: [(&[i64], i64, i64, &[(i64, i64)]); 9] = [
        (&[40, 512], 4, 128, &[(3, 30), (0, 512)]),   // one run
        (&[40, 512], 4, 128, &[(3, 30), (128, 256)]), // runs of whole blocks
        (&[40, 500], 4, 20, &[(3, 30), (7, 301)]),    // runs with any alignment
        (&[40, 500], 3, 5, &[(3, 30), (7, 301)]),     // elements that blocks cut
        (&[40, 7], 100, 5, &[(3, 30), (1, 5)]),       // elements larger than blocks
        (&[5, 9, 6, 4], 8, 3, &[(1, 3), (2, 5), (0, 6), (0, 4)]), // runs over several axes
        (&[5, 90, 6, 4], 8, 3, &[(1, 3), (2, 80), (0, 6), (0, 4)]),
        (&[3, 9000], 2, 1, &[(0, 3), (1, 8998)]), // longer than requests and rounds
        (&[20_000], 1, 77, &[(1, 19_991)]),
    ];
    for (shape, item, offset, ranges) in cases {
        for order in [Order::C, Order::F] {
            for budget in [1 << 20, 40_000, 9000] {
                let plan =
                    written(shape, item, offset, ranges, order, &Terms { budget, ..terms() });
                let past = plan.past_cache();
                assert!(past.is_some() || budget < 10_000, "{}", plan.text());
                // Sides are written first, and none later.
                for k in 0..plan.rounds() {
                    let direct = |t: &Transfer| t.channel == Channel::Direct;
                    let writes = plan.round(k).unwrap().writes;
                    let blocks = past.is_some_and(|first| k >= first);
                    assert!(writes.iter().all(|t| direct(t) == blocks), "{}", plan.text());
                }
            }
        }
    }
}

#[test]
fn runs_of_whole_blocks_have_no_sides() {
    let aligned = written(&[40, 512], 4, 128, &[(3, 30), (128, 256)], Order::F, &terms());
    let sides: usize =
        (0..aligned.past_cache().unwrap()).map(|k| aligned.round(k).unwrap().moves.len()).sum();
    assert_eq!((0, 30), (sides, aligned.cost().writes));
    // Only a page at each end of each run goes through the cache.
    let beside = written(&[40, 512], 4, 120, &[(3, 30), (128, 256)], Order::F, &terms());
    let mut cached = 0;
    for k in 0..beside.rounds() {
        for t in beside.round(k).unwrap().writes.iter().filter(|t| t.channel != Channel::Direct) {
            let (first, end) =
                t.channel.written(t.extents.offset, t.extents.offset + t.extents.len, BLOCK);
            cached += (end - first) * t.extents.count.iter().product::<i64>();
        }
    }
    assert_eq!((30 * BLOCK, 90), (cached, beside.cost().writes));
}

#[test]
fn memory_that_lies_in_its_pages_as_the_file_does_is_written_from_where_it_is() {
    // (first byte in the file, address of memory, columns): at the same byte of a page, or not.
    let moved = |offset, at, columns, budget| {
        let home = Some(Home { at, page: BLOCK });
        let terms = Terms { home, budget, ..terms() };
        let ranges = [(3, 30), (128, columns)];
        let plan = written(&[40, 512], 4, offset, &ranges, Order::C, &terms);
        let blocks = plan.past_cache().unwrap()..plan.rounds();
        let rounds: Vec<Round> = blocks.map(|k| plan.round(k).unwrap()).collect();
        let writes = rounds.iter().flat_map(|round| &round.writes);
        let here = writes.clone().all(|t| t.memory == Place::User);
        let moves: usize = rounds.iter().map(|round| round.moves.len()).sum();
        assert_eq!(here, moves == 0);
        (here, plan.slot_bytes())
    };
    for budget in [1 << 20, 9000] {
        assert!(moved(128, 0, 256, budget).0);
        assert!(moved(120, 56, 256, budget).0);
        assert!(!moved(128, 8, 256, budget).0, "elsewhere in its page");
        assert!(!moved(128, 0, 250, budget).0, "rows of memory are no whole pages");
    }
    // Slots are used only for the sides of rows.
    assert!(moved(128, 0, 256, 1 << 20).1 <= 30 * 2 * BLOCK);
}

#[test]
fn only_where_it_pays_and_nobody_else_writes() {
    let plan = |terms: &Terms| {
        written(&[40, 512], 4, 128, &[(3, 30), (128, 256)], Order::F, terms).past_cache().is_some()
    };
    assert!(plan(&terms()));
    assert!(!plan(&Terms { scarce: false, ..terms() }));
    assert!(!plan(&Terms { exclusive: false, ..terms() }));
    assert!(!plan(&Terms { direct: false, ..terms() }));
    assert!(!plan(&Terms { cached_permille: 600, ..terms() }));
    assert!(!plan(&Terms { method: Some(Method::List), ..terms() }));
    assert!(!plan(&Terms { straight: 8192, ..terms() }), "runs are short");
    let few = Terms { straight: 4 * BLOCK, ..terms() };
    let small = written(&[40, 512], 4, 128, &[(3, 1), (0, 128)], Order::F, &few);
    assert_eq!(None, small.past_cache());
    let text = written(&[40, 512], 4, 120, &[(3, 30), (128, 256)], Order::F, &terms()).text();
    assert!(
        text.contains("bypassing the page cache") && text.contains("(cached, before whole blocks)")
    );
}

/// Plans the write of rows of an array of chunks of 64 x 16 elements of 4 bytes, and runs it.
///
/// Each chunk is in a separate file.
fn chunks_written(first: i64, rows: i64, missing: bool, terms: &Terms) -> Plan {
    let (grid, chunk) = ([2, 3], [64, 16]);
    let strides = Order::C.strides(&chunk, 4).unwrap();
    let layout = Chunked::new(vec![128, 48], 4, chunk.to_vec(), strides, false, 0).unwrap();
    let len = layout.chunk_bytes();
    let stored = (0..6).map(|file| Stored { file, offset: 0, len, mask: 0 });
    let stored = stored.map(|one| (!missing || one.file != 1).then_some(one)).collect();
    let table = ChunkTable { lo: vec![0, 0], count: grid.to_vec(), stored };
    let ranges = vec![Range::new(first, rows, 1).unwrap(), Range::new(0, 48, 1).unwrap()];
    let section = Section::new(ranges);
    let layout = Layout::Chunked(layout);
    let request = Request {
        layout: &layout,
        table: Some(&table),
        section: &section,
        user_stride: &[48 * 4, 4],
        direction: Direction::Write,
    };
    let plan = Plan::new(&request, terms).unwrap();
    if missing {
        return plan;
    }
    let user: Vec<u8> = (0..rows * 48 * 4).map(|k| (k * 7 + k / 251) as u8).collect();
    let old = vec![vec![0xA5; len as usize]; 6];
    let mut world = World::new(old.clone(), user.clone(), 0, Vec::new(), terms.block);
    world.run(&plan);
    let mut expected = old;
    for (at, byte) in user.iter().enumerate() {
        let (row, column) = (first + at as i64 / 192, at as i64 % 192);
        let file = row / 64 * 3 + column / 64;
        expected[file as usize][(row % 64 * 64 + column % 64) as usize] = *byte;
    }
    assert!(expected == world.files, "{}", plan.text());
    let times = world.file_writes.iter().flatten().map(|n| i64::from(*n));
    assert_eq!(user.len() as i64, times.sum::<i64>(), "{}", plan.text());
    plan
}

#[test]
fn chunks_in_files_of_their_own_are_written_past_the_cache_in_whole_blocks() {
    let terms = Terms { straight: 8 * BLOCK, ..terms() };
    for (first, rows) in [(0, 128), (0, 64), (30, 70), (64, 32)] {
        let plan = chunks_written(first, rows, false, &terms);
        assert_eq!(Some(0), plan.past_cache(), "{}", plan.text());
        for k in 0..plan.rounds() {
            let writes = plan.round(k).unwrap().writes;
            assert!(writes.iter().all(|t| t.channel == Channel::Direct), "{}", plan.text());
        }
        assert_eq!(0, plan.cost().reads);
    }
    // The write goes through the page cache if a row of a chunk is not a whole block, if a chunk
    // does not exist yet, if the page cache holds the data, and if other processes write.
    let wide = Terms { block: 4 * BLOCK, ..terms.clone() };
    assert_eq!(None, chunks_written(3, 61, false, &wide).past_cache());
    assert_eq!(None, chunks_written(0, 64, true, &terms).past_cache());
    let held = Terms { scarce: false, ..terms.clone() };
    assert_eq!(None, chunks_written(0, 64, false, &held).past_cache());
    let shared = Terms { exclusive: false, ..terms.clone() };
    assert_eq!(None, chunks_written(0, 64, false, &shared).past_cache());
}

#[test]
fn pages_of_sides_are_read_before_many_at_once() {
    // Pages have 4096 bytes here: rows of two pages, written from the middle of one page to the
    // next page.
    let terms = Terms { block: 4096, straight: 4096, share: 1 << 20, ..terms() };
    let terms = Terms { request: 1 << 20, budget: 8 << 20, ..terms };
    let reads = |first: i64| {
        let ranges = [(0, 40), (first, 8192 * 4 - first)];
        let plan = written(&[40, 8192 * 4], 1, 0, &ranges, Order::C, &terms);
        assert!(plan.past_cache().is_some(), "{}", plan.text());
        let past = plan.past_cache().unwrap();
        for k in 0..plan.rounds() {
            let round = plan.round(k).unwrap();
            assert!(k < past || round.reads.is_empty());
        }
        plan.cost().reads
    };
    assert_eq!((0, 40), (reads(4096), reads(5000)));
}

#[test]
fn a_short_read_passes_a_cache_that_would_not_keep_what_lies_beside_it() {
    let direct = |elements: i64, terms: &Terms| {
        let layout = Layout::Strided(Strided::dense(&[100_000], 8, Order::C, 0, 128).unwrap());
        let section = Section::new(vec![Range::new(5001, elements, 1).unwrap()]);
        let request = Request {
            layout: &layout,
            table: None,
            section: &section,
            user_stride: &[8],
            direction: Direction::Read,
        };
        let plan = Plan::new(&request, terms).unwrap();
        let reads: Vec<Transfer> =
            (0..plan.rounds()).flat_map(|k| plan.round(k).unwrap().reads).collect();
        assert!(!reads.is_empty());
        reads.iter().all(|read| read.channel == Channel::Direct)
    };
    let scarce = Terms { scarce: true, direct: true, block: 512, ..Terms::new(1 << 20) };
    let plenty = Terms { scarce: false, ..scarce.clone() };
    assert!(direct(4096, &scarce));
    assert!(!direct(256, &scarce), "a page or two");
    assert!(!direct(4096, &plenty));
    assert!(direct(65_536, &plenty));
    assert!(!direct(4096, &Terms { cached_permille: 600, ..scarce }));
}
