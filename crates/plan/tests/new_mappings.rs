//! Files that are mapped for one access only: page faults count.
#![allow(clippy::unwrap_used)]

use outcore_plan::layout::Part;
use outcore_plan::{Direction, Layout, Method, Plan, Range, Request, Section, Strided, Terms};

fn method(ranges: [(i64, i64, i64); 2], fresh: bool) -> Method {
    of(512, ranges, fresh)
}

/// Of a section of a file of so many rows and columns.
fn of(side: i64, ranges: [(i64, i64, i64); 2], fresh: bool) -> Method {
    let (shape, item) = (vec![side, side], 8);
    let parts = vec![Part { file: 0, offset: 0, len: side * side * item }];
    let layout = Layout::Strided(Strided { shape, item, strides: vec![side * item, item], parts });
    let range = |(start, count, step)| Range::new(start, count, step).unwrap();
    let section = Section::new(ranges.map(range).to_vec());
    let user_stride = [section.shape()[1] * item, item];
    let request = Request {
        layout: &layout,
        table: None,
        section: &section,
        user_stride: &user_stride,
        direction: Direction::Read,
    };
    let terms = Terms { cached_permille: 1000, mapping: true, fresh, ..Terms::new(64 << 20) };
    Plan::new(&request, &terms).unwrap().method()
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
