//! Sizes up to the end of 63 bits, and layouts that lie: errors, never a panic or a wrapped number.
#![allow(clippy::unwrap_used, clippy::panic)]

use outcore_plan::*;
use proptest::prelude::*;

/// Small, near a power of two, or near the end.
fn number() -> impl Strategy<Value = i64> {
    prop_oneof![
        4 => 0..20_i64,
        1 => Just(4096),
        2 => (0..63_u32, -2..3_i64).prop_map(|(bits, d)| (1_i64 << bits.min(62)).saturating_add(d)),
        1 => (0..100_i64).prop_map(|d| i64::MAX - d),
        1 => any::<i64>(),
    ]
}

fn numbers(n: usize) -> impl Strategy<Value = Vec<i64>> {
    prop::collection::vec(number(), n)
}

fn terms() -> impl Strategy<Value = Terms> {
    let method = prop_oneof![
        3 => Just(None),
        1 => prop::sample::select(vec![
            Method::Straight, Method::Window, Method::Mapped, Method::List, Method::Chunks,
        ]).prop_map(Some),
    ];
    (numbers(8), any::<[bool; 4]>(), method).prop_map(|(n, [a, b, c, sane], method)| Terms {
        budget: n[0],
        lanes: n[1],
        cached_permille: n[2],
        block: if sane { 4096 } else { n[3] },
        gap: n[4],
        request: if sane { 1 << 20 } else { n[5] },
        window: n[6],
        share: if sane { 1 << 20 } else { n[7] },
        mapping: a,
        direct: b,
        exclusive: c,
        method,
        ..Terms::new(1 << 24)
    })
}

/// Plans, counts, prints, and checks the first and last rounds.
fn go_through(request: &Request, terms: &Terms) -> Result<(), PlanError> {
    let plan = Plan::new(request, terms)?;
    let (cost, text) = (plan.cost(), plan.why());
    assert!(cost.useful_bytes >= 0 && cost.read_bytes >= 0 && cost.written_bytes >= 0);
    assert!(!text.is_empty());
    let bounds = Bounds {
        slot_bytes: plan.slot_bytes(),
        files: vec![i64::MAX; 2],
        user: (-i64::MAX, i64::MAX),
        fill: i64::MAX,
        block: plan.block(),
    };
    for k in [0, 1, plan.rounds() / 2, plan.rounds().saturating_sub(1)] {
        if k < plan.rounds() {
            check(plan.round(k)?, &bounds)?;
        }
    }
    Ok(())
}

/// Refusals are fine, plans that break their own rules are not.
fn judge(outcome: Result<(), PlanError>) -> Result<(), TestCaseError> {
    match outcome {
        Err(PlanError::Broken { rule, detail }) => {
            Err(TestCaseError::fail(format!("rule {rule}: {detail}")))
        }
        _ => Ok(()),
    }
}

fn section(of: &[i64]) -> Option<Section> {
    let ranges = of.chunks(3).map(|c| Range::new(c[0], c[1], c[2]).ok());
    Some(Section::new(ranges.collect::<Option<_>>()?))
}

/// Ranges as large as the axes have room for.
fn fitting(shape: &[i64], wish: &[i64]) -> Section {
    let range = |(n, w): (&i64, &[i64])| {
        let start = w[0].unsigned_abs() as i64 & i64::MAX;
        let start = if *n > 0 { start % n } else { 0 };
        let step = 1 + (w[1].unsigned_abs() as i64 & i64::MAX) % 7;
        let count = if *n > 0 { (n - start - 1) / step + 1 } else { 0 };
        Range::new(start, count, step).unwrap()
    };
    Section::new(shape.iter().zip(wish.chunks(2)).map(range).collect())
}

fn direction() -> impl Strategy<Value = Direction> {
    prop_oneof![Just(Direction::Read), Just(Direction::Write)]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 20_000, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn any_numbers_at_all(n in numbers(24), terms in terms(), direction in direction()) {
        let layout = Strided {
            shape: n[0..2].to_vec(),
            item: n[2],
            strides: n[3..5].to_vec(),
            parts: vec![
                Part { file: 0, offset: n[5], len: n[6] },
                Part { file: 1, offset: n[7], len: n[8] },
            ],
        };
        let Some(section) = section(&n[9..15]) else { return Ok(()) };
        let layout = Layout::Strided(layout);
        let request = Request {
            layout: &layout,
            table: None,
            section: &section,
            user_stride: &n[15..17],
            direction,
        };
        judge(go_through(&request, &terms))?;
    }

    #[test]
    fn large_dense_arrays(
        bits in prop::collection::vec(0..40_u32, 0..5),
        less in prop::collection::vec(0..3_i64, 5),
        item in 1..20_i64,
        wish in numbers(10),
        transposed in any::<bool>(),
        terms in terms(),
        direction in direction(),
    ) {
        let shape: Vec<i64> =
            bits.iter().zip(&less).map(|(b, d)| ((1_i64 << b) - d).max(0)).collect();
        let section = fitting(&shape, &wish);
        let order = if transposed { Order::F } else { Order::C };
        let Ok(layout) = Strided::dense(&shape, item, Order::C, 0, 128) else { return Ok(()) };
        let Ok(user) = order.strides(&section.shape(), item) else { return Ok(()) };
        let layout = Layout::Strided(layout);
        let request =
            Request { layout: &layout, table: None, section: &section, user_stride: &user, direction };
        judge(go_through(&request, &terms))?;
    }

    #[test]
    fn any_chunks_at_all(n in numbers(30), terms in terms(), direction in direction()) {
        let layout = Chunked {
            shape: n[0..2].to_vec(),
            item: n[2],
            chunk: n[3..5].to_vec(),
            strides: if n[5] % 2 == 0 {
                Order::C.strides(&n[3..5], n[2]).unwrap_or(vec![1, 1])
            } else {
                n[6..8].to_vec()
            },
            encoded: n[8] % 2 == 0,
            encoded_bound: n[9],
        };
        if layout.validate().is_err() {
            return Ok(());
        }
        let section = fitting(&layout.shape, &n[10..14]);
        let touched = layout.touched(&section).unwrap();
        let cells = touched.cells().unwrap_or(i64::MAX);
        let batch = layout.batches(&section, 5).unwrap().next();
        prop_assert_eq!(batch.is_none(), section.is_empty());
        let Some(batch) = batch else { return Ok(()) };
        let (section, touched) =
            if cells <= 5 { (section, touched) } else { (batch.section, batch.touched) };
        let stored: Vec<_> = (0..touched.cells().unwrap())
            .map(|k| (k % 3 < 2).then_some(Stored { file: 0, offset: n[20], len: n[21], mask: 0 }))
            .collect();
        let table = ChunkTable { lo: touched.lo, count: touched.count, stored };
        let layout = Layout::Chunked(layout);
        let request = Request {
            layout: &layout,
            table: Some(&table),
            section: &section,
            user_stride: &n[22..24],
            direction,
        };
        judge(go_through(&request, &terms))?;
    }
}

#[test]
fn arrays_of_2_to_the_62_bytes_are_planned_and_larger_ones_refused() {
    let layout = Layout::Strided(Strided::dense(&[1 << 30, 1 << 29], 8, Order::C, 0, 0).unwrap());
    let section = Section::whole(&[1 << 30, 1 << 29]).unwrap();
    let user = [1 << 32, 8];
    let request = Request {
        layout: &layout,
        table: None,
        section: &section,
        user_stride: &user,
        direction: Direction::Read,
    };
    let plan = Plan::new(&request, &Terms::new(1 << 28)).unwrap();
    assert_eq!(1 << 62, plan.cost().read_bytes);
    go_through(&request, &Terms { direct: true, ..Terms::new(1 << 28) }).unwrap();
    let refused = Strided::dense(&[1 << 30, 1 << 30], 8, Order::C, 0, 0);
    assert_eq!(Err(PlanError::TooLarge("the array")), refused);
    let strides = vec![1 << 40, 1];
    let refused = Chunked::new(vec![1 << 40, 1 << 40], 1, vec![1, 1 << 40], strides, false, 0);
    assert_eq!(Err(PlanError::TooLarge("the array")), refused);
}

#[test]
fn a_long_step_over_endless_chunks_ends() {
    let layout = Chunked::new(vec![1 << 60], 1, vec![1], vec![1], true, 10).unwrap();
    let section = Section::new(vec![Range::new(3, 1000, 1 << 49).unwrap()]);
    let batches: Vec<_> = layout.batches(&section, 1 << 20).unwrap().collect();
    assert_eq!(1000, batches.len());
    assert!(batches.iter().all(|b| b.touched.cells().unwrap() == 1));
}
