//! Page faults of mappings made for one access only, and of mappings that are reused.
#![allow(clippy::unwrap_used)]

use outcore_plan::layout::Part;
use outcore_plan::{
    Direction, Faults, Layout, Method, Plan, Range, Request, Section, Strided, Terms,
};

type Ranges = [(i64, i64, i64); 2];

fn method(ranges: Ranges, fresh: bool) -> Method {
    of(512, ranges, fresh)
}

/// The method for a section of a square file with the given side.
fn of(side: i64, ranges: Ranges, fresh: bool) -> Method {
    plan([side; 2], ranges, fresh.then(|| Faults::of_new(1))).method()
}

/// A cached read of a section of an array with elements of 8 bytes.
fn plan(shape: [i64; 2], ranges: Ranges, faults: Option<Faults>) -> Plan {
    planned(shape, ranges, Direction::Read, &Terms { faults, ..warm() })
}

fn warm() -> Terms {
    Terms { cached_permille: 1000, mapping: true, ..Terms::new(64 << 20) }
}

fn planned(shape: [i64; 2], ranges: Ranges, direction: Direction, terms: &Terms) -> Plan {
    let (item, [rows, columns]) = (8, shape);
    let parts = vec![Part { file: 0, offset: 0, len: rows * columns * item }];
    let strides = vec![columns * item, item];
    let layout = Layout::Strided(Strided { shape: shape.to_vec(), item, strides, parts });
    let range = |(start, count, step)| Range::new(start, count, step).unwrap();
    let section = Section::new(ranges.map(range).to_vec());
    let user_stride = [section.shape()[1] * item, item];
    let request = Request {
        layout: &layout,
        table: None,
        section: &section,
        user_stride: &user_stride,
        direction,
    };
    Plan::new(&request, terms).unwrap()
}

#[test]
fn a_few_rows_of_a_chunk_are_read_by_calls() {
    let rows = [(0, 8, 64), (0, 512, 1)];
    assert_ne!(method(rows, true), Method::Mapped);
}

#[test]
fn a_sparse_block_of_a_chunk_is_read_in_windows() {
    let block = [(0, 74, 7), (0, 103, 5)];
    assert_eq!(method(block, false), Method::Mapped);
    assert_eq!(method(block, true), Method::Window);
}

#[test]
fn a_column_of_a_chunk_is_mapped_all_the_same() {
    assert_eq!(method([(0, 512, 1), (0, 1, 1)], true), Method::Mapped);
}

#[test]
fn a_column_of_a_small_chunk_is_not_worth_a_mapping_of_its_own() {
    let column = [(0, 64, 1), (0, 1, 1)];
    assert_eq!(of(64, column, true), Method::Window);
    assert_eq!(of(128, [(0, 128, 1), (0, 1, 1)], false), Method::Mapped);
}

#[test]
fn chunks_of_one_file_share_its_mapping() {
    let small = |chunks| plan([64, 64], [(0, 64, 1), (0, 1, 1)], Some(Faults::of_new(chunks)));
    assert_eq!((Method::Window, Method::Mapped), (small(1).method(), small(100).method()));
    // Each mapping has its own page faults.
    let rows = |chunks| plan([512, 512], [(0, 8, 64), (0, 512, 1)], Some(Faults::of_new(chunks)));
    assert_eq!((Method::Straight, Method::Straight), (rows(1).method(), rows(1000).method()));
    assert_eq!(None, rows(1000).rent(), "the next access finds another mapping");
}

/// A column whose elements are 64 KiB apart: a page fault for each, if folios are small.
const TALL: [i64; 2] = [1 << 14, 1 << 13];
const COLUMN: Ranges = [(0, 1 << 14, 1), (7, 1, 1)];

fn kept(absent: i64, large: i64, rent: i64) -> Option<Faults> {
    Some(Faults { absent, large, chunks: 0, rent })
}

#[test]
fn page_faults_are_asked_for_where_they_decide() {
    assert_eq!(Method::Mapped, plan(TALL, COLUMN, None).method());
    assert!(plan(TALL, COLUMN, None).turns_on_faults());
    assert!(!plan(TALL, COLUMN, kept(0, 0, 0)).turns_on_faults(), "they are known");
    let forced = Terms { method: Some(Method::Mapped), ..warm() };
    assert!(!planned(TALL, COLUMN, Direction::Read, &forced).turns_on_faults());
    assert!(!planned(TALL, COLUMN, Direction::Write, &warm()).turns_on_faults());
    let cold = Terms { cached_permille: 0, ..warm() };
    assert!(!planned(TALL, COLUMN, Direction::Read, &cold).turns_on_faults());
    // A few rows do not justify a query of the mapping. For a block, copies take longer than page
    // faults.
    assert!(!plan(TALL, [(0, 500, 1), (7, 1, 1)], None).turns_on_faults());
    assert!(plan(TALL, [(0, 1000, 1), (7, 1, 1)], None).turns_on_faults());
    assert!(!plan(TALL, [(0, 1 << 12, 1), (0, 1 << 13, 1)], None).turns_on_faults());
}

#[test]
fn pages_that_are_there_or_come_many_at_once_are_read_through_the_mapping() {
    let column = |faults| plan(TALL, COLUMN, faults);
    assert_eq!(Method::Straight, column(kept(1000, 0, 0)).method());
    assert!(column(kept(1000, 0, 0)).rent().unwrap() > 0);
    for faults in [kept(0, 0, 0), kept(100, 0, 0), kept(1000, 1000, 0)] {
        assert_eq!((Method::Mapped, None), (column(faults).method(), column(faults).rent()));
    }
}

#[test]
fn who_reads_again_enters_the_pages_when_calls_have_cost_as_much() {
    let cases = [(1000, 1 << 14), (800, 1 << 14), (600, 1 << 14), (1000, 1 << 12), (700, 1 << 11)];
    for (absent, rows) in cases {
        let column = [(0, rows, 1), (7, 1, 1)];
        let first = plan(TALL, column, kept(absent, 0, 0));
        let (each, pages) = (first.rent().unwrap(), rows * absent / 1000 * 1_500);
        let (mut rent, mut reads) = (0, 1);
        loop {
            let plan = plan(TALL, column, kept(absent, 0, rent));
            if plan.method() == Method::Mapped {
                assert_eq!(Some(0), plan.rent(), "the pages are paid for");
                assert!(plan.why().contains("earlier reads"), "{}", plan.why());
                break;
            }
            assert_eq!(Some(rent + each), plan.rent());
            (rent, reads) = (rent + each, reads + 1);
            assert!(reads < 100, "{absent} {rows}");
        }
        let nearest = (2 * pages + each) / (2 * each);
        assert_eq!(nearest.max(2), reads, "{absent} {rows}: {pages} in steps of {each}");
    }
}
