//! Pages that a write into cold data reads first, counted one by one.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use outcore_plan::*;

const PAGE: i64 = 4096;

fn plan(shape: [i64; 2], offset: i64, ranges: [(i64, i64, i64); 2], terms: &Terms) -> Plan {
    let layout = Layout::Strided(Strided::dense(&shape, 4, Order::C, 0, offset).unwrap());
    let range = |(start, count, step)| Range::new(start, count, step).unwrap();
    let section = Section::new(ranges.map(range).to_vec());
    let request = Request {
        layout: &layout,
        table: None,
        section: &section,
        user_stride: &[ranges[1].1 * 4, 4],
        direction: Direction::Write,
    };
    Plan::new(&request, terms).unwrap()
}

fn cold() -> Terms {
    Terms { mapping: true, ..Terms::new(256 << 20) }
}

/// First byte and length of every extent.
fn extents(transfers: &[Transfer]) -> Vec<(i64, i64)> {
    let mut all = Vec::new();
    for t in transfers {
        let mut starts = vec![t.extents.offset];
        for (n, s) in t.extents.count.iter().zip(&t.extents.stride) {
            starts = starts.iter().flat_map(|at| (0..*n).map(move |i| at + i * s)).collect();
        }
        all.extend(starts.into_iter().map(|at| (at, t.extents.len)));
    }
    all
}

/// Checks the reads of a plan, and that its cost is the sum over rounds. Returns (reads, writes).
///
/// A round must read each page that it writes in part, and no page that it does not write.
fn verify(plan: &Plan) -> (i64, i64) {
    let (mut reads, mut writes) = (0, 0);
    for k in 0..plan.rounds() {
        let round = plan.round(k).unwrap();
        assert!(round.slot_bytes <= plan.slot_bytes());
        let read = extents(&round.reads);
        let pages: BTreeSet<i64> = read.iter().map(|(at, _)| at / PAGE).collect();
        let written = extents(&round.writes);
        let mut touched = BTreeSet::new();
        for (at, len) in &written {
            touched.extend(at / PAGE..=(at + len - 1) / PAGE);
            assert!(at % PAGE == 0 || pages.contains(&(at / PAGE)), "{}", plan.text());
            let end = at + len;
            assert!(end % PAGE == 0 || pages.contains(&(end / PAGE)), "{}", plan.text());
        }
        assert!(pages.is_subset(&touched), "{}", plan.text());
        reads += read.len() as i64;
        writes += written.len() as i64;
    }
    assert_eq!((reads, writes), (plan.cost().reads, plan.cost().writes));
    (reads, writes)
}

#[test]
fn a_column_reads_its_pages() {
    let n = 16384;
    let column = plan([n, n], 128, [(0, n, 1), (9, 1, 1)], &cold());
    assert_eq!((n, 4 * n), (column.cost().reads, column.cost().read_bytes));
    assert!(column.fetches() && !column.writes_back());
    assert!(column.rounds() >= 8, "some are read while others are written");
}

#[test]
fn long_runs_read_their_ends_alone() {
    // Requests are cheap and bytes are expensive.
    let mut terms = cold();
    terms.method = Some(Method::Straight);
    (terms.share, terms.gap, terms.rates.latency_ns) = (1 << 18, 1000, 10);
    for (row, start, count) in
        [(16384, 0, 8192), (16384, 7, 8192), (17000, 0, 9000), (1 << 19, 5, 500_000)]
    {
        for offset in [0, 128] {
            let plan = plan([40, row], offset, [(1, 30, 1), (start, count, 1)], &terms);
            let (reads, _) = verify(&plan);
            let aligned = row % 1024 == 0 && count % 1024 == 0 && offset == 0 && start == 0;
            assert_eq!(if aligned { 0 } else { 60 }, reads, "{}", plan.text());
        }
    }
}

#[test]
fn one_run_is_cut_at_pages() {
    let plan = plan([64, 1 << 19], 128, [(3, 20, 1), (0, 1 << 19, 1)], &cold());
    assert!(!plan.fetches());
    let mut ends: Vec<i64> = Vec::new();
    for k in 0..plan.rounds() {
        let round = plan.round(k).unwrap();
        ends.extend(extents(&round.writes).iter().map(|(at, len)| at + len));
    }
    assert_eq!(1, ends.iter().filter(|end| **end % PAGE != 0).count());
    assert_eq!(ends.len() as i64, plan.cost().writes);
}

#[test]
fn nothing_is_read_where_there_is_nothing_to_read() {
    let column = [(0, 16384, 1), (9, 1, 1)];
    let read = |terms: Terms| plan([16384, 16384], 128, column, &terms).cost().reads;
    assert_eq!(0, read(Terms { stored: false, ..cold() }));
    assert_eq!(0, read(Terms { cached_permille: 1000, ..cold() }));
    assert_eq!(16384, read(cold()));
}

#[test]
fn a_budget_that_does_not_hold_what_is_read_is_no_error() {
    let small = Terms { budget: 64, ..cold() };
    let halves = [(0, 4096, 1), (0, 512, 1)];
    assert!(plan([4096, 1024], 128, halves, &cold()).fetches());
    let plan = plan([4096, 1024], 128, halves, &small);
    assert!(plan.slot_bytes() * plan.lanes() <= 64);
}
