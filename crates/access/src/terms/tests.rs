use outcore_plan::Part;

use super::*;
use crate::testing::{self, budget, TestDir};

fn strided(described: &crate::described::Described) -> &Strided {
    match &described.layout {
        Layout::Strided(layout) => layout,
        Layout::Chunked(_) => unreachable!(),
    }
}

#[test]
fn looks_are_spread_over_all_axes() {
    let axes = [(4, 1000), (6, 10)];
    let at: Vec<i64> = (0..24).map(|look| element(&axes, look, 24)).collect();
    let all = (0..4).flat_map(|i| (0..6).map(move |j| 1000 * i + 10 * j));
    assert_eq!(all.collect::<Vec<_>>(), at, "as many looks as elements see each");
    let few: Vec<i64> = (0..4).map(|look| element(&axes, look, 4)).collect();
    assert_eq!(vec![0, 1000, 2000, 3000], few);
}

#[test]
fn a_byte_is_found_in_its_part() {
    let parts = [(0, 100, 10), (1, 0, 5), (0, 500, 5)];
    let parts = parts.map(|(file, offset, len)| Part { file, offset, len }).to_vec();
    let layout = Strided { shape: vec![20], item: 1, strides: vec![1], parts };
    assert_eq!(Some((0, 100, 10)), locate(&layout, 0));
    assert_eq!(Some((0, 109, 1)), locate(&layout, 9));
    assert_eq!(Some((1, 0, 5)), locate(&layout, 10));
    assert_eq!(Some((0, 503, 2)), locate(&layout, 18));
    assert_eq!(None, locate(&layout, 20));
}

#[test]
fn the_number_of_looks_follows_the_section() {
    let dir = TestDir::new("looks");
    let described = testing::dense(&dir.file("a", &vec![1; 8 << 20]), &[1024, 1024], 8);
    let files = described.table(false);
    let looks = |axes: &[(i64, i64, i64)]| {
        let mut seen = Vec::new();
        let section = testing::section(axes);
        let looks = look(strided(&described), &section, &files, &mut |_, offset, len| {
            seen.push((offset, len));
            Some(())
        });
        assert_eq!(looks, Some(seen.len() as i64));
        seen
    };
    assert_eq!(0, looks(&[(5, 1, 1), (0, 500, 1)]).len(), "a page is fetched in any case");
    let whole = looks(&[(5, 2, 1), (0, 1024, 1)]);
    assert_eq!(vec![(5 * 8192, 2 * 8192)], whole, "a few pages are looked at as a whole");
    assert_eq!(FEW_LOOKS as usize, looks(&[(0, 100, 10), (0, 10, 1)]).len());
    assert_eq!(LOOKS as usize, looks(&[(0, 1024, 1), (0, 1024, 1)]).len());
    let sparse = looks(&[(0, 100, 10), (3, 1, 1)]);
    assert!(sparse.iter().all(|(offset, len)| offset % 81920 == 24 && *len == 8));
}

#[test]
fn what_was_just_written_is_cached_and_holes_are_not_stored() {
    let dir = TestDir::new("cached");
    let path = dir.file("a", &vec![1; 4 << 20]);
    let described = testing::dense(&path, &[1 << 22], 1);
    let (files, section) = (described.table(true), testing::section(&[(0, 1 << 22, 1)]));
    if probe::cached(files.open(0).unwrap().fd(), 0, 4096).is_some() {
        assert_eq!(Some(1000), cached(strided(&described), &section, &files));
    } else {
        eprintln!("SKIPPED: this file system does not tell what is in the page cache");
    }
    assert!(stored(strided(&described), &section, &files));
    let hole = dir.path().join("hole");
    std::fs::File::create(&hole).unwrap().set_len(4 << 20).unwrap();
    let described = testing::dense(&hole, &[1 << 22], 1);
    assert!(!stored(strided(&described), &section, &described.table(true)));
}

#[test]
fn terms_say_what_hints_ask_for() {
    let dir = TestDir::new("terms");
    let described = testing::dense(&dir.file("a", &[1; 8192]), &[8192], 1);
    let (files, found) = (described.table(false), Found::default());
    let hints = Hints { threads: Some(2), method: Some(Method::List), ..Hints::default() };
    let plain = terms(&hints, &found, &files, Some(700), None, 1 << 20);
    assert_eq!(
        (Some(Method::List), 700, true),
        (plain.method, plain.cached_permille, plain.mapping)
    );
    assert_eq!((DEEP, 2), (plain.lanes, plain.threads), "the disk wants more rounds than threads");
    let coded = terms(&hints, &found, &files, None, Some(Coding::default()), 1 << 20);
    assert_eq!((None, 2), (coded.method, coded.lanes), "codecs have no methods");
    let past = Hints { cache: Cache::Bypass, ..Hints::default() };
    let past = terms(&past, &found, &files, Some(700), None, 1 << 20);
    assert_eq!((0, false), (past.cached_permille, past.mapping));
    let kept = Hints { cache: Cache::Keep, ..Hints::default() };
    let kept = terms(&kept, &found, &files, Some(700), None, 1 << 20);
    assert!(!kept.direct && kept.mapping);
}

#[test]
fn only_who_has_the_file_to_himself_passes_the_page_cache() {
    let (found, direct) = (Found::default(), Terms { direct: true, block: 512, ..Terms::new(0) });
    let dir = TestDir::new("past");
    let layout = testing::dense(&dir.file("a", b""), &[1 << 20], 1).layout;
    let bypass = Hints { cache: Cache::Bypass, exclusive: true, ..Hints::default() };
    let page = probe::page_size();
    let write = past_cache(direct.clone(), &bypass, &found, &layout, Direction::Write);
    assert_eq!((true, page), (write.scarce, write.block), "a page goes one way or the other");
    let read = past_cache(direct.clone(), &bypass, &found, &layout, Direction::Read);
    assert_eq!((true, 512), (read.scarce, read.block));
    let shared = Hints { exclusive: false, ..bypass.clone() };
    let shared = past_cache(direct.clone(), &shared, &found, &layout, Direction::Write);
    assert!(!shared.scarce && shared.block == 512);
    let buffered = Terms { direct: false, ..direct };
    assert!(!past_cache(buffered, &bypass, &found, &layout, Direction::Write).scarce);
}

#[test]
fn a_refusal_counts_what_others_keep() {
    let _one = budget(1 << 20);
    let _held = Arena::global().reserve("a test", 10 * PAGE as u64).unwrap();
    let needed = |hints: &Hints, ours: i64| {
        let error = PlanError::BudgetTooSmall { what: "a test", needed: 1, budget: 0 };
        match refused(error, hints, ours) {
            PlanError::BudgetTooSmall { needed, .. } => needed / PAGE as i64,
            other => panic!("{other}"),
        }
    };
    assert_eq!(11, needed(&Hints::default(), 0));
    assert_eq!(8, needed(&Hints::default(), 3 * PAGE as i64), "what is ours is given back");
    assert_eq!(1, needed(&Hints::default(), i64::MAX));
    let hint = Hints { memory: Some(PAGE as u64), ..Hints::default() };
    assert_eq!(1, needed(&hint, 0), "others do not matter where a hint is the limit");
    let other = refused(PlanError::TooLarge("a test"), &hint, 0);
    assert_eq!(PlanError::TooLarge("a test"), other);
}

#[test]
fn memory_is_counted_in_whole_pages() {
    let page = PAGE as i64;
    assert_eq!((0, page, page, 2 * page), (pages(0), pages(1), pages(page), pages(page + 1)));
    let _one = budget(10 * PAGE as u64 + 1);
    assert_eq!(10 * page, super::budget(&Hints::default()));
    assert_eq!(0, super::budget(&Hints { memory: Some(4095), ..Hints::default() }));
}

#[test]
fn writing_a_chunk_takes_at_least_what_reading_it_takes() {
    let pipeline = Pipeline::new(&[outcore_io::CodecSpec::new("zstd")], 1 << 16).unwrap();
    let strides = vec![1];
    let layout = Chunked::new(vec![1 << 20], 1, vec![1 << 16], strides, true, 1 << 17).unwrap();
    let coding = coding(&pipeline, None);
    let read = least(&layout, &pipeline, &coding, Direction::Read);
    let write = least(&layout, &pipeline, &coding, Direction::Write);
    assert!(2 << 16 < read && read < write, "{read} {write}");
    let collected = super::coding(&pipeline, Some(1 << 20));
    assert!(write < least(&layout, &pipeline, &collected, Direction::Write));
    let plain = Chunked { encoded: false, ..layout };
    assert_eq!(PAGE as i64, least(&plain, &pipeline, &coding, Direction::Write));
}
