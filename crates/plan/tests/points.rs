//! Rules 4 to 6 of `DESIGN.md`, and the exactness of `Cost`, for listed elements.
//!
//! Random lists are compared with the enumeration of `common/cases.rs`.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::sync::Arc;

use common::cases::*;
use common::World;
use outcore_plan::points::Chosen;
use outcore_plan::*;
use proptest::prelude::*;

/// A case with some axes indexed by lists.
fn listed_case(numbers: Vec<u32>, sizes: Vec<u32>) -> Option<Case> {
    let mut case = case(numbers);
    let mut dice = Dice { numbers: sizes, next: 0 };
    let shape = match &case.layout {
        Layout::Strided(l) => l.shape.clone(),
        Layout::Chunked(l) => l.shape.clone(),
    };
    let ndim = shape.len();
    if ndim == 0 {
        return None;
    }
    let mut axes: Vec<usize> = (0..ndim).filter(|_| dice.yes()).collect();
    if axes.is_empty() {
        axes.push(dice.below(ndim as i64) as usize);
    }
    let kind = dice.one_of(&[Kind::Points, Kind::Outer, Kind::Flat]);
    let mut list = |len: i64, number: i64| -> Vec<i64> {
        let runs = dice.yes();
        let mut last = 0;
        let mut one = |dice: &mut Dice| {
            last = if runs && dice.below(4) > 0 { (last + 1) % len } else { dice.below(len) };
            if dice.below(5) == 4 {
                last - len
            } else {
                last
            }
        };
        match len {
            0 => Vec::new(),
            _ => (0..number).map(|_| one(&mut dice)).collect(),
        }
    };
    let lists: Vec<Vec<i64>> = match kind {
        Kind::Points => {
            let none = axes.iter().any(|d| shape[*d] == 0);
            let number = if none { 0 } else { list(31, 1)[0].rem_euclid(31) };
            axes.iter().map(|d| list(shape[*d], number)).collect()
        }
        Kind::Outer => {
            let number = |len: i64| if axes.len() > 2 { len.min(3) } else { len.min(9) };
            axes.iter().map(|d| list(shape[*d], number(shape[*d]))).collect()
        }
        Kind::Flat => {
            let elements = axes.iter().map(|d| shape[*d]).product();
            vec![list(elements, 40)]
        }
    };
    // The caller's array: points outside of blocks, blocks with any strides.
    let item = item_of(&case) as i64;
    let counts: Vec<i64> = case
        .section
        .ranges()
        .iter()
        .enumerate()
        .map(|(d, r)| if axes.contains(&d) { 1 } else { r.count })
        .collect();
    let points = match kind {
        Kind::Points | Kind::Flat => lists[0].len(),
        Kind::Outer => lists.iter().map(Vec::len).product(),
    } as i64;
    let order = if dice.yes() { Order::C } else { Order::F };
    case.user_stride = order.strides(&counts, item).unwrap();
    let block: i64 = counts.iter().product::<i64>() * item;
    let point = block + if dice.yes() { item * dice.below(3) } else { 0 };
    let slack = dice.below(20);
    case.zero = slack;
    case.user = dice.bytes(slack + points * point + block + slack);
    case.lists = Some(Listed { axes, lists, kind, point });
    Some(case)
}

/// Passes the plan of a case to `work`, with a function that plans it for another budget.
fn planned<T>(
    case: &Case,
    (bits, ordered): (u32, bool),
    work: impl FnOnce(&dyn Fn(i64) -> Result<Plan, PlanError>) -> T,
) -> T {
    let listed = case.lists.as_ref().unwrap();
    let lists: Vec<&[i64]> = listed.lists.iter().map(Vec::as_slice).collect();
    let index = Index {
        axes: &listed.axes,
        lists: match listed.kind {
            Kind::Points => Lists::Points(&lists),
            Kind::Outer => Lists::Outer(&lists),
            Kind::Flat => Lists::Flat(lists[0]),
        },
        rest: &case.section,
        point: listed.point,
        strides: &case.user_stride,
    };
    let shape = match &case.layout {
        Layout::Strided(l) => &l.shape,
        Layout::Chunked(l) => &l.shape,
    };
    index.check(shape).unwrap();
    let places = index.places(&case.layout).unwrap();
    let whole = case.direction == Direction::Write || case.terms.method == Some(Method::Chunks);
    let bits = match case.layout {
        Layout::Chunked(_) if whole => 62,
        _ => bits,
    };
    let mut points = index.place(&case.layout, None, 0..places, bits).unwrap();
    // Placing in pieces gives the same result.
    let half = places / 2;
    let pieces = [0..half, half..places].map(|r| index.place(&case.layout, None, r, bits).unwrap());
    assert_eq!(places, pieces[0].len() + pieces[1].len());
    let write = case.direction == Direction::Write;
    let chunked = matches!(case.layout, Layout::Chunked(_));
    let mapped = case.terms.method == Some(Method::Mapped)
        || case.terms.method.is_none() && is_cached(case.terms.cached_permille);
    if ordered || write || chunked || !(mapped && case.terms.mapping) {
        let count = write.then_some(item_of(case) as i64);
        points.order(count);
        let how = (bits, count);
        assert_eq!(points, index.ordered(&case.layout, None, 0..places, how).unwrap());
    }
    let points = Arc::new(points);
    let cell = index.cell(&case.layout).unwrap();
    let windows = 0..points.windows().len();
    let chosen = Chosen { points: &points, windows };
    let request = Request {
        layout: &case.layout,
        table: case.table.as_ref(),
        section: &cell,
        user_stride: &case.user_stride,
        direction: case.direction,
    };
    work(&|budget| Plan::indexed(&request, &chosen, &Terms { budget, ..case.terms.clone() }))
}

fn verify(case: &Case, bits: u32, ordered: bool) -> &'static str {
    planned(case, (bits, ordered), |plan| verify_planned(case, plan))
}

fn verify_planned(case: &Case, planned: &dyn Fn(i64) -> Result<Plan, PlanError>) -> &'static str {
    let plan = match planned(case.terms.budget) {
        Ok(plan) => plan,
        Err(PlanError::BudgetTooSmall { needed, .. }) => {
            assert!(needed > case.terms.budget);
            for more in [0, 1, 63, 64, 999, needed / 3, needed, 1 << 40] {
                planned(needed + more).unwrap();
            }
            return "budget";
        }
        Err(PlanError::Impossible { .. }) => return "impossible",
        Err(error) => panic!("{error}"),
    };
    let peak = plan.lane_bytes() * plan.lanes() + plan.held();
    assert!(peak <= case.terms.budget, "{}", plan.text());
    assert!(!plan.text().is_empty() && !plan.why().is_empty());
    let (files, user) = (case.files.clone(), case.user.clone());
    let mut world = World::new(files, user, case.zero, case.fill.clone(), case.terms.block);
    world.encoded = matches!(&case.layout, Layout::Chunked(l) if l.encoded);
    world.run(&plan);
    world.cost.useful_bytes = (elements(case).len() * item_of(case)) as i64;
    world.cost.peak_bytes =
        plan.lane_bytes() * plan.lanes().min(plan.rounds() as i64) + plan.held();
    assert_eq!(world.cost, plan.cost(), "cost\n{}", plan.text());
    match case.direction {
        Direction::Read => check_read(case, &world),
        Direction::Write => check_write(case, &world),
    }
    if plan.rounds() > 1 {
        "rounds"
    } else {
        plan.method().name()
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 8_000, failure_persistence: None, max_shrink_iters: 4000, ..ProptestConfig::default()
    })]

    #[test]
    fn lists_are_read_and_written_element_by_element(
        numbers in prop::collection::vec(any::<u32>(), 160),
        sizes in prop::collection::vec(any::<u32>(), 120),
        bits in 3..14_u32,
        ordered in any::<bool>(),
    ) {
        if let Some(case) = listed_case(numbers, sizes) {
            let outcome = std::panic::catch_unwind(|| verify(&case, bits, ordered));
            prop_assert!(outcome.is_ok(), "{case:#?}");
        }
    }
}

/// Changes one number of a move by lists.
fn corrupt(m: &mut IndexedMove, dice: &mut Dice) {
    for points in [&mut m.src_points, &mut m.dst_points] {
        *points = Addresses::List((0..m.points).map(|k| points.of(k)).collect());
    }
    let mut numbers = vec![&mut m.src_at, &mut m.dst_at, &mut m.item];
    numbers.extend(m.count.iter_mut().chain(&mut m.src_stride).chain(&mut m.dst_stride));
    for points in [&mut m.src_points, &mut m.dst_points] {
        if let Addresses::List(list) = points {
            numbers.extend(list);
        }
    }
    if let (Some(counts), true) = (m.counts.list(), dice.yes()) {
        let mut counts = counts.to_vec();
        let k = dice.below(counts.len() as i64) as usize;
        counts[k] = [counts[k] + 1, counts[k] - 1, u32::MAX, 0, 1000][dice.below(5) as usize];
        m.counts = Counts::List(counts);
        return;
    }
    let k = dice.below(numbers.len() as i64) as usize;
    let old = *numbers[k];
    *numbers[k] = match dice.below(7) {
        0 => old + 1,
        1 => old - 1,
        2 => old.wrapping_neg(),
        3 => i64::MAX - dice.below(100),
        4 => i64::MIN + dice.below(100),
        5 => old + dice.below(2000) - 1000,
        _ => old.saturating_mul(2),
    };
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 8_000, failure_persistence: None, max_shrink_iters: 4000, ..ProptestConfig::default()
    })]

    /// Checks that a round that passes the check touches nothing outside its places.
    ///
    /// Its lists may have any values.
    #[test]
    fn corrupted_lists_do_no_harm(
        numbers in prop::collection::vec(any::<u32>(), 160),
        sizes in prop::collection::vec(any::<u32>(), 120),
        bits in 3..14_u32,
        change in prop::collection::vec(any::<u32>(), 5),
    ) {
        let Some(case) = listed_case(numbers, sizes) else { return Ok(()) };
        let mut dice = Dice { numbers: change, next: 0 };
        let plan = planned(&case, (bits, true), |plan| plan(case.terms.budget));
        let Ok(plan) = plan else { return Ok(()) };
        if plan.rounds() == 0 {
            return Ok(());
        }
        let mut round = plan.round(dice.below(plan.rounds() as i64) as u64).unwrap();
        let Some(last) = round.indexed.last_mut() else { return Ok(()) };
        corrupt(last, &mut dice);
        let (files, user) = (case.files.clone(), case.user.clone());
        let mut world = World::new(files, user, case.zero, case.fill.clone(), case.terms.block);
        if let Ok(round) = check(round, &world.bounds(plan.slot_bytes())) {
            world.touch(&round);
        }
    }
}

#[test]
fn the_first_index_that_is_outside_is_named() {
    let rest = Section::whole(&[10, 4]).unwrap();
    let list: Vec<i64> = (0..10_000).map(|k| if k == 7001 { 10 } else { k % 20 - 10 }).collect();
    let lists: [&[i64]; 1] = [&list];
    let check = |axes: &[usize], lists| {
        let index = Index { axes, lists, rest: &rest, point: 8, strides: &[0, 8] };
        index.check(&[10, 4])
    };
    let bad = |axis, position, value, len| Err(PlanError::BadIndex { axis, position, value, len });
    assert_eq!(bad(0, 7001, 10, 10), check(&[0], Lists::Points(&lists)));
    assert_eq!(bad(1, 0, -10, 4), check(&[1], Lists::Outer(&lists)));
    assert_eq!(Ok(()), check(&[0, 1], Lists::Flat(&list)));
    assert_eq!(bad(0, 1, 40, 40), check(&[0, 1], Lists::Flat(&[39, 40])));
}

/// An index of one list of elements of an array of one axis, packed in memory.
fn with_list<T>(list: &[i64], item: i64, work: impl FnOnce(&Index) -> T) -> T {
    let rest = Section::new(vec![Range { start: 0, count: 1, step: 1 }]);
    work(&Index { axes: &[0], lists: Lists::Flat(list), rest: &rest, point: item, strides: &[0] })
}

fn plain(len: i64, item: i64) -> Layout {
    let parts = vec![Part { file: 0, offset: 128, len: len * item }];
    Layout::Strided(Strided { shape: vec![len], item, strides: vec![item], parts })
}

fn runs_of(list: &[i64], layout: &Layout, bits: u32) -> Points {
    with_list(list, 8, |index| {
        let how = (bits, None);
        index.ordered(layout, None, 0..list.len(), how).unwrap()
    })
}

#[test]
fn neighbours_are_kept_as_runs() {
    let layout = plain(1 << 20, 8);
    // 100 runs of 1000, unordered and overlapping.
    let starts: Vec<i64> = (0..100).map(|k| k * k * 7919 % 900_000).collect();
    let clustered: Vec<i64> = starts.iter().flat_map(|first| *first..first + 1000).collect();
    let points = runs_of(&clustered, &layout, 22);
    // A window of 4 MiB is half of the array: a run across its border counts as two.
    let crossing = starts.iter().filter(|first| (**first..*first + 999).contains(&524_287)).count();
    assert_eq!((100_000, 100 + crossing), (points.len(), points.runs()));
    let windows = core::mem::size_of_val(points.windows());
    assert!(points.bytes() <= 20 * points.runs() + 2 * windows, "{}", points.bytes());
    assert_eq!(100_000, points.windows().iter().map(|window| window.points).sum::<usize>());
    // Copies use runs, too.
    let section = Section::new(vec![Range { start: 0, count: 1, step: 1 }]);
    let request = Request {
        layout: &layout,
        table: None,
        section: &section,
        user_stride: &[0],
        direction: Direction::Read,
    };
    let points = Arc::new(points);
    let chosen = Chosen { points: &points, windows: 0..points.windows().len() };
    let terms = Terms { mapping: true, cached_permille: 1000, ..Terms::new(1 << 30) };
    let plan = Plan::indexed(&request, &chosen, &terms).unwrap();
    let rounds: Vec<Round> = (0..plan.rounds()).map(|k| plan.round(k).unwrap()).collect();
    let moves = rounds.iter().flat_map(|round| &round.indexed);
    assert_eq!(100 + crossing, moves.clone().map(|m| m.points).sum::<usize>());
    assert_eq!(800_000, moves.map(IndexedMove::bytes).sum::<i64>());
    assert_eq!(800_000, plan.cost().mapped_bytes);
}

#[test]
fn runs_end_with_their_chunks() {
    // Chunks of 800 bytes, in cells of 1024: nothing is stored after the end of a chunk.
    let list: Vec<i64> = (0..5000).collect();
    for encoded in [true, false] {
        let chunked = Chunked::new(vec![5000], 8, vec![100], vec![8], encoded, 4000).unwrap();
        let points = runs_of(&list, &Layout::Chunked(chunked), 30);
        let each: Vec<usize> = points.windows().iter().map(|window| window.points).collect();
        assert_eq!((vec![100; 50], 50), (each, points.runs()), "encoded: {encoded}");
    }
}

#[test]
fn what_are_no_runs_is_listed() {
    let layout = plain(1 << 20, 8);
    let listed = |list: &[i64]| assert_eq!(list.len(), runs_of(list, &layout, 22).runs());
    listed(&(0..5000).map(|k| k * k * 7919 % (1 << 20)).collect::<Vec<i64>>());
    listed(&(0..5000).rev().collect::<Vec<i64>>()); // descending
    listed(&(0..5000).map(|k| k * 2).collect::<Vec<i64>>()); // every second index
    listed(&(0..4000).map(|k| k + k / 3 * 5).collect::<Vec<i64>>()); // runs of three
    listed(&[7; 5000]);
    // The samples indicate runs, but there are none.
    let mut some: Vec<i64> = (0..100_000).map(|k| k * k * 31 % (1 << 20)).collect();
    for look in 0..16 {
        let at = look * (100_000 - 64) / 15;
        some[at..at + 64].iter_mut().zip(0..).for_each(|(one, k)| *one = k);
    }
    listed(&some);
    // In memory they are not adjacent.
    let list: Vec<i64> = (0..5000).collect();
    with_list(&list, 16, |index| {
        assert_eq!(5000, index.place(&layout, None, 0..5000, 22).unwrap().runs());
    });
    // Runs of four are the shortest that pay off.
    let list: Vec<i64> = (0..4000).map(|k| k + k / 4 * 5).collect();
    assert_eq!(1000, runs_of(&list, &layout, 40).runs());
    // Negative indices, and rows of a table.
    let list: Vec<i64> = (-5000..0).collect();
    assert_eq!(1, runs_of(&list, &layout, 40).runs());
    let rest = Section::whole(&[1000, 4]).unwrap();
    let layout = Layout::Strided(Strided {
        shape: vec![1000, 4],
        item: 8,
        strides: vec![32, 8],
        parts: vec![Part { file: 0, offset: 0, len: 32_000 }],
    });
    let list: Vec<i64> = (100..300).chain(50..60).collect();
    let lists: [&[i64]; 1] = [&list];
    let strides = [0, 8];
    let mut index = Index {
        axes: &[0],
        lists: Lists::Points(&lists),
        rest: &rest,
        point: 32,
        strides: &strides,
    };
    assert_eq!(2, index.place(&layout, None, 0..210, 22).unwrap().runs());
    index.strides = &[0, 16];
    assert_eq!(210, index.place(&layout, None, 0..210, 22).unwrap().runs());
}

#[test]
fn points_are_put_in_order_while_they_are_computed() {
    let chunked = |encoded| {
        Chunked::new(vec![200, 300], 4, vec![20, 30], vec![120, 4], encoded, 4000).unwrap()
    };
    let parts = |lens: &[i64]| {
        let part = |(file, len): (usize, &i64)| Part { file: file as u32, offset: 64, len: *len };
        lens.iter().enumerate().map(part).collect()
    };
    let strided = |parts| {
        Layout::Strided(Strided { shape: vec![200, 300], item: 4, strides: vec![1200, 4], parts })
    };
    let layouts = [
        strided(parts(&[240_000])),
        strided(parts(&[100_000, 4000, 136_000])),
        Layout::Chunked(chunked(true)),
        Layout::Chunked(chunked(false)),
    ];
    let random: Vec<i64> = (0..10_000).map(|k| k * k * 7919 % 60_000 - 60_000 * (k % 2)).collect();
    let clustered: Vec<i64> = (0..10_000).map(|k| k / 50 * 7919 % 59_000 + k % 50).collect();
    let sorted: Vec<i64> = (0..10_000).map(|k| k * 5).collect();
    // Indices that ascend by one from the last element to the first.
    let around: Vec<i64> = (0..10_000).map(|k| k % 100 - 50).collect();
    let rest = Section::whole(&[200, 300]).unwrap();
    for layout in &layouts {
        for list in [&random, &clustered, &sorted, &around] {
            for (bits, shard) in [(10, None), (14, None), (30, Some(&[2_i64, 3][..]))] {
                let lists = Lists::Flat(list);
                let (axes, strides) = ([0, 1], [0, 0]);
                let index = Index { axes: &axes, lists, rest: &rest, point: 4, strides: &strides };
                let shard = shard.filter(|_| matches!(layout, Layout::Chunked(_)));
                for range in [0..10_000, 777..9000] {
                    let mut expected = index.place(layout, shard, range.clone(), bits).unwrap();
                    expected.order(Some(4));
                    let found = index.ordered(layout, shard, range.clone(), (bits, Some(4)));
                    let found = found.unwrap();
                    assert_eq!(expected, found);
                    let lone = |k| index.place(layout, shard, k..k + 1, bits).unwrap().address(0);
                    let mut each: Vec<i64> = range.map(lone).collect();
                    each.sort_by_key(|address| address >> found.bits());
                    let runs = (0..found.runs()).map(|k| (found.address(k), found.count(k)));
                    let points = runs.flat_map(|(first, n)| (0..n).map(move |k| first + 4 * k));
                    assert_eq!(each, points.collect::<Vec<i64>>());
                    let numbers: Vec<i64> = found.windows().iter().map(|w| w.number).collect();
                    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]));
                }
            }
        }
    }
}
