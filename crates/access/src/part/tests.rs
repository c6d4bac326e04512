use outcore_plan::Layout;

use super::*;
use crate::hints::Hints;
use crate::testing::{budget, chunked, section, Never, TestDir};

/// Calls `test` with a batch of an access to a section of an array of 100 by 100 in chunks of 10.
fn with(
    direction: Direction,
    axes: &[(i64, i64, i64)],
    mode: Mode,
    test: &mut dyn FnMut(&mut Part),
) {
    let dir = TestDir::new("part");
    let described = chunked(dir.path(), &[95, 100], &[10, 10], 0);
    let Layout::Chunked(layout) = &described.layout else { unreachable!() };
    let (section, found, hints) = (section(axes), Found::default(), Hints::default());
    let context = Context { layout, described: &described, found: &found, interrupts: &Never };
    let touched = layout.touched(&section).unwrap();
    let cells = Cells { lo: touched.lo, count: touched.count };
    let (strides, data) = ([100, 1], User::none());
    let access = Access { direction, section: &section, strides: &strides, data, hints: &hints };
    test(&mut Part {
        context: &context,
        access: &access,
        section: &section,
        cells: &cells,
        data,
        codecs: None,
        budget: 1 << 20,
        tables: 4096,
        least: 8192,
        more_follow: false,
        chunk_cache: CacheUse::Never,
        mode,
        times: 1,
        listed: None,
    });
}

#[test]
fn a_chunk_is_covered_if_the_section_has_all_that_the_array_has_of_it() {
    with(Direction::Write, &[(5, 90, 1), (0, 100, 1)], Mode::Run, &mut |part| {
        let told = |cell: [i64; 2]| (part.touches(&cell), part.covers(&cell));
        assert_eq!((true, false), told([0, 0]), "five rows of ten");
        assert_eq!((true, true), told([1, 9]));
        assert_eq!((true, true), told([9, 0]), "the array ends within the chunk");
    });
    with(Direction::Write, &[(0, 10, 2), (30, 2, 25)], Mode::Run, &mut |part| {
        let told = |cell: [i64; 2]| (part.touches(&cell), part.covers(&cell));
        assert_eq!((true, false), told([0, 3]), "every second row");
        assert_eq!((false, false), told([0, 4]), "a step leads over it");
        assert_eq!((true, false), told([1, 5]));
        assert_eq!((false, false), told([2, 5]));
    });
}

#[test]
fn what_would_do_lasts_unless_chunks_are_written_in_part() {
    let lasts = |direction, axes: &[(i64, i64, i64)], more: bool| {
        let mut told = false;
        with(direction, axes, Mode::Run, &mut |part| {
            part.more_follow = more;
            told = part.lasts();
        });
        told
    };
    let (whole, some) = ([(10, 10, 1), (0, 100, 1)], [(11, 9, 1), (0, 100, 1)]);
    assert!(lasts(Direction::Read, &some, false) && lasts(Direction::Write, &whole, false));
    assert!(!lasts(Direction::Write, &some, false));
    assert!(!lasts(Direction::Read, &some, true));
}

#[test]
fn tables_are_counted_before_there_are_any() {
    let _one = budget(1 << 20);
    let axes = [(0, 10, 1), (0, 10, 1)];
    with(Direction::Read, &axes, Mode::Run, &mut |part| {
        let held = part.reserve_tables().unwrap().unwrap();
        assert_eq!(4096, held.bytes());
        drop(held);
        part.budget = -1;
        let refused = part.reserve_tables().unwrap_err();
        assert!(refused.to_string().contains("12288"), "the tables and the least: {refused}");
    });
    with(Direction::Read, &axes, Mode::Look, &mut |part| {
        part.tables = 1 << 30;
        assert!(part.reserve_tables().unwrap().is_none(), "who looks needs none to be free");
    });
}

#[test]
fn only_a_run_has_memory_of_its_own() {
    let axes = [(0, 10, 1), (0, 10, 1)];
    for (mode, ours) in [(Mode::Run, 7), (Mode::Look, 0), (Mode::Nested, i64::MAX)] {
        with(Direction::Read, &axes, mode, &mut |part| assert_eq!(ours, part.ours(7)));
    }
}
