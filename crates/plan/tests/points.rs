//! Rules 4 to 6 of `DESIGN.md`, and the exactness of `Cost`, for elements that are chosen one by one: random lists
//! against the enumeration of `common/cases.rs`.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::sync::Arc;

use common::cases::*;
use common::World;
use outcore_plan::points::Chosen;
use outcore_plan::*;
use proptest::prelude::*;

/// A case in which some axes are indexed by lists.
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
    // The caller's array: points outside of blocks, blocks of whatever strides.
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

/// Hands the plan of a case to `work`, with a function that plans it for another budget.
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
    // In pieces it is the same.
    let half = places / 2;
    let pieces = [0..half, half..places].map(|r| index.place(&case.layout, None, r, bits).unwrap());
    assert_eq!(places, pieces[0].len() + pieces[1].len());
    let write = case.direction == Direction::Write;
    let chunked = matches!(case.layout, Layout::Chunked(_));
    let mapped = case.terms.method == Some(Method::Mapped)
        || case.terms.method.is_none() && is_cached(case.terms.cached_permille);
    if ordered || write || chunked || !(mapped && case.terms.mapping) {
        points.order(write.then_some(item_of(case) as i64));
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

    /// A round that passes the check touches nothing outside its places, whatever its lists are.
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
