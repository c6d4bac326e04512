//! Writes past the page cache: whole blocks by direct requests, what is beside them through the cache.
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

/// Plans the write of a section out of memory in `order`, and runs it in a world of bytes.
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
        (&[40, 500], 4, 20, &[(3, 30), (7, 301)]),    // runs that begin anywhere
        (&[40, 500], 3, 5, &[(3, 30), (7, 301)]),     // of elements that are cut by blocks
        (&[40, 7], 100, 5, &[(3, 30), (1, 5)]),       // larger than blocks
        (&[5, 9, 6, 4], 8, 3, &[(1, 3), (2, 5), (0, 6), (0, 4)]), // runs of several axes
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
                // Sides come first, and nothing of them later.
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
    // A page at each end of each run, and no other byte, goes through the cache.
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
    assert!(text.contains("past the page cache") && text.contains("(cached, before whole blocks)"));
}
