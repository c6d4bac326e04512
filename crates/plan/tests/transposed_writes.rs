//! Number of partial writes of a cached page, if memory is transposed and a flush follows.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use outcore_plan::*;

const PAGE: i64 = 4096;

/// A section of rows of float64 elements, whose columns are contiguous in memory.
fn plan(rows: i64, columns: i64, all: i64, budget: i64) -> Plan {
    let layout = Layout::Strided(Strided::dense(&[rows, all], 8, Order::C, 0, 128).unwrap());
    let range = |count| Range::new(0, count, 1).unwrap();
    let section = Section::new(vec![range(rows), range(columns)]);
    let request = Request {
        layout: &layout,
        table: None,
        section: &section,
        user_stride: &[8, rows * 8],
        direction: Direction::Write,
    };
    let warm = Terms { cached_permille: 1000, mapping: true, ..Terms::new(budget) };
    Plan::new(&request, &Terms { flushed: true, ..warm }).unwrap()
}

/// Number of requests that write each page.
fn requests(plan: &Plan) -> BTreeMap<i64, i64> {
    let mut found = BTreeMap::new();
    for k in 0..plan.rounds() {
        for t in plan.round(k).unwrap().writes {
            let mut starts = vec![t.extents.offset];
            for (n, s) in t.extents.count.iter().zip(&t.extents.stride) {
                starts = starts.iter().flat_map(|at| (0..*n).map(move |i| at + i * s)).collect();
            }
            for at in starts {
                for page in at / PAGE..=(at + t.extents.len - 1) / PAGE {
                    *found.entry(page).or_insert(0) += 1;
                }
            }
        }
    }
    found
}

#[test]
fn runs_are_as_long_as_those_of_rows() {
    let plan = plan(1250, 5000, 10_000, 256 << 20);
    assert_eq!(Method::Window, plan.method());
    assert_eq!(1250, plan.cost().writes, "{}", plan.text());
    assert_eq!(1250 * 5000 * 8, plan.cost().written_bytes);
    assert_eq!(0, plan.cost().reads);
}

#[test]
fn few_pages_are_written_twice_where_rows_are_cut() {
    for (budget, share) in [(4 << 20, 3), (256 << 20, 8)] {
        let plan = plan(4000, 50_000, 50_000, budget);
        let pages = requests(&plan);
        let twice = pages.values().filter(|n| **n > 1).count();
        assert!(twice * share <= pages.len(), "{twice} of {}: {}", pages.len(), plan.text());
        assert!(plan.slot_bytes() <= budget);
    }
}
