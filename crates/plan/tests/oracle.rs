//! Rules 4 to 6 of `DESIGN.md`, and the exactness of `Cost`.
//!
//! Random plans are run byte by byte and compared with an enumeration of the elements that uses
//! only the definition of each layout.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::cases::*;
use common::World;
use outcore_plan::*;
use proptest::prelude::*;

fn verify(case: &Case) -> &'static str {
    let request = Request {
        layout: &case.layout,
        table: case.table.as_ref(),
        section: &case.section,
        user_stride: &case.user_stride,
        direction: case.direction,
    };
    let plan = match Plan::new(&request, &case.terms) {
        Ok(plan) => plan,
        Err(PlanError::BudgetTooSmall { needed, .. }) => {
            check_refusal(&request, &case.terms, needed);
            return "budget";
        }
        Err(PlanError::Impossible { .. }) => return "impossible",
        Err(error) => panic!("{error}"),
    };
    assert_eq!(plan, Plan::new(&request, &case.terms).unwrap());
    // More lanes than the terms specify are used only if rounds are small and come from the disk.
    assert!((1..=case.terms.lanes.max(16)).contains(&plan.lanes()));
    let peak = plan.lane_bytes() * plan.lanes() + plan.held();
    assert!(peak <= case.terms.budget, "{}", plan.text());
    assert!(!plan.text().is_empty());
    if let (Some(method), true) = (case.terms.method, plan.rounds() > 0) {
        assert_eq!(method, plan.method());
    }
    let mut world = World::new(
        case.files.clone(),
        case.user.clone(),
        case.zero,
        case.fill.clone(),
        case.terms.block,
    );
    world.encoded = matches!(&case.layout, Layout::Chunked(l) if l.encoded);
    world.home = case.terms.home.map(|home| home.at);
    world.run(&plan);
    world.cost.useful_bytes = case.section.count().unwrap() * item_of(case) as i64;
    world.cost.peak_bytes =
        plan.lane_bytes() * plan.lanes().min(plan.rounds() as i64) + plan.held();
    let coding = case.terms.coding;
    let contexts = match (world.cost.decodes > 0, world.cost.encodes > 0) {
        (false, false) => 0,
        (true, false) => coding.decoder,
        (false, true) => coding.encoder,
        (true, true) => coding.both,
    };
    assert_eq!(contexts, plan.contexts());
    assert_eq!((world.cost.decodes > 0, world.cost.encodes > 0), plan.codes());
    assert!(world.cost.encodes == 0 || plan.held() >= coding.held);
    assert_eq!(world.cost, plan.cost(), "cost\n{}", plan.text());
    match case.direction {
        Direction::Read => check_read(case, &world),
        Direction::Write => check_write(case, &world),
    }
    plan.method().name()
}

/// Checks that the budget in the error is the smallest sufficient one.
///
/// Any larger budget must be sufficient, too.
fn check_refusal(request: &Request, terms: &Terms, needed: i64) {
    assert!(needed > terms.budget);
    for more in [0, 1, 63, 64, 999, needed / 3, needed, 5 * needed, 1 << 40] {
        Plan::new(request, &Terms { budget: needed + more, ..terms.clone() }).unwrap();
    }
    let less = Plan::new(request, &Terms { budget: needed - 1, ..terms.clone() });
    assert!(matches!(less, Err(PlanError::BudgetTooSmall { .. })), "{less:?}");
}

/// Checks that batches of chunks partition the section, each within its limit.
fn check_batches(case: &Case) {
    let Layout::Chunked(layout) = &case.layout else { return };
    let mut found = Vec::new();
    for batch in layout.batches(&case.section, case.cut).unwrap() {
        assert!(layout.touched(&batch.section).unwrap().cells().unwrap() <= case.cut);
        for (d, r) in batch.section.ranges().iter().enumerate() {
            let whole = case.section.ranges()[d];
            assert_eq!(whole.start + batch.at[d] * whole.step, r.start);
        }
        found.extend(batch.section.indices());
    }
    found.sort();
    let mut expected: Vec<_> = case.section.indices().collect();
    expected.sort();
    assert_eq!(expected, found);
}

/// Changes one number somewhere in a round.
fn corrupt(round: &mut Round, dice: &mut Dice) {
    let mut numbers: Vec<&mut i64> = Vec::new();
    for t in round.reads.iter_mut().chain(&mut round.writes) {
        let e = &mut t.extents;
        numbers.extend([&mut e.offset, &mut e.len, &mut t.at]);
        numbers.extend(e.count.iter_mut().chain(&mut e.stride).chain(&mut t.at_stride));
    }
    for m in &mut round.moves {
        numbers.extend([&mut m.src_at, &mut m.dst_at, &mut m.item]);
        numbers.extend(m.count.iter_mut().chain(&mut m.src_stride).chain(&mut m.dst_stride));
    }
    for c in &mut round.chunk_writes {
        numbers.extend([&mut c.at, &mut c.len, &mut c.staged_at, &mut c.scratch, &mut c.bound]);
    }
    for c in &mut round.chunk_reads {
        let s = &mut c.stored;
        numbers.extend([&mut s.offset, &mut s.len, &mut c.staged_at, &mut c.at, &mut c.len]);
        numbers.extend([&mut c.scratch_at, &mut c.scratch]);
    }
    numbers.push(&mut round.slot_bytes);
    let k = dice.below(numbers.len() as i64) as usize;
    let old = *numbers[k];
    *numbers[k] = match dice.below(8) {
        0 => old + 1,
        1 => old - 1,
        2 => -old,
        3 => 0,
        4 => old.saturating_mul(2),
        5 => i64::MAX - dice.below(100),
        6 => i64::MIN + dice.below(100),
        _ => old + dice.below(2000) - 1000,
    };
}

/// Checks that a corrupted round that passes the check touches nothing outside its places.
fn check_corrupted(case: &Case, dice: &mut Dice) {
    let request = Request {
        layout: &case.layout,
        table: case.table.as_ref(),
        section: &case.section,
        user_stride: &case.user_stride,
        direction: case.direction,
    };
    let Ok(plan) = Plan::new(&request, &case.terms) else { return };
    if plan.rounds() == 0 {
        return;
    }
    let mut round = plan.round(dice.below(plan.rounds().min(1 << 30) as i64) as u64).unwrap();
    corrupt(&mut round, dice);
    let (files, user) = (case.files.clone(), case.user.clone());
    let mut world = World::new(files, user, case.zero, case.fill.clone(), case.terms.block);
    world.home = case.terms.home.map(|home| home.at);
    if let Ok(round) = check(round, &world.bounds(plan.slot_bytes())) {
        world.touch(&round);
    }
}

fn numbers(seed: u64) -> Vec<u32> {
    let mut state = seed.wrapping_mul(0x9E3779B97F4A7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 16) as u32
    };
    (0..160).map(|_| next()).collect()
}

/// The features that a case exercised, for the test of the tests.
fn kinds(case: &Case, method: &str, plan: Option<&Plan>) -> Vec<String> {
    let way = if case.direction == Direction::Read { "read" } else { "write" };
    let layout = match &case.layout {
        Layout::Strided(l) if l.parts.len() > 1 => "parts",
        Layout::Strided(_) => "strided",
        Layout::Chunked(l) if l.encoded => "encoded",
        Layout::Chunked(_) => "chunks",
    };
    let mut kinds = vec![format!("{way} {layout} {method}")];
    let Some(plan) = plan else { return kinds };
    if plan.rounds() > 1 {
        kinds.push(format!("{way} {layout} {method} rounds"));
    }
    for k in 0..plan.rounds() {
        let round = plan.round(k).unwrap();
        if !round.reads.is_empty() && !round.writes.is_empty() {
            kinds.push(format!("patch {layout}"));
        }
        for t in round.reads.iter().chain(&round.writes).filter(|t| t.channel == Channel::Direct) {
            let home = if t.memory == Place::User { " home" } else { "" };
            kinds.push(format!("direct {way} {layout}{home}"));
            if t.extents.count.iter().zip(&t.extents.stride).any(|(_, s)| s % case.terms.block != 0)
            {
                kinds.push(format!("direct {way} {layout} anywhere in blocks"));
            }
            if t.extents.count.len() > 1 {
                kinds.push(format!("direct {way} {layout} families"));
            }
        }
        if round.chunk_reads.len() > 1 {
            kinds.push(format!("{way} {layout} chunks together"));
        }
        if !round.chunk_reads.is_empty() && !round.chunk_writes.is_empty() {
            kinds.push(format!("{layout} chunk changed"));
        }
    }
    kinds.sort();
    kinds.dedup();
    kinds
}

#[test]
#[ignore = "prints what the random cases cover"]
fn coverage() {
    let mut seen = std::collections::BTreeMap::new();
    for seed in 0..20_000 {
        let case = case(numbers(seed));
        let method = verify(&case);
        let request = Request {
            layout: &case.layout,
            table: case.table.as_ref(),
            section: &case.section,
            user_stride: &case.user_stride,
            direction: case.direction,
        };
        let plan = Plan::new(&request, &case.terms).ok();
        for kind in kinds(&case, method, plan.as_ref()) {
            *seen.entry(kind).or_insert(0) += 1;
        }
    }
    seen.iter().for_each(|(kind, n)| println!("{n:6} {kind}"));
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 15_000, failure_persistence: None, max_shrink_iters: 4000, ..ProptestConfig::default()
    })]

    #[test]
    fn plans_do_what_was_asked(numbers in prop::collection::vec(any::<u32>(), 160)) {
        let case = case(numbers);
        let outcome = std::panic::catch_unwind(|| verify(&case));
        prop_assert!(outcome.is_ok(), "{case:#?}");
        check_batches(&case);
    }

    #[test]
    fn rare_ways_do_what_was_asked(
        mut numbers in prop::collection::vec(any::<u32>(), 160),
        way in 0..7_usize,
        sizes in prop::collection::vec(any::<u32>(), 8),
    ) {
        numbers[0] = [1, 0, 1, 0, 0, 1, 1][way];
        let mut case = case(numbers);
        let mut dice = Dice { numbers: sizes, next: 0 };
        let encoded = matches!(&case.layout, Layout::Chunked(l) if l.encoded);
        let t = &mut case.terms;
        (t.budget, t.mapping, t.direct, t.exclusive) = (1 << 24, true, true, true);
        (t.share, t.window) = (dice.one_of(&[1, 50, 500]), dice.one_of(&[30, 300, 3000]));
        t.gap = dice.one_of(&[0, 20, 300]);
        t.cached_gap = t.gap;
        t.request = dice.one_of(&[16, 64, 256]);
        t.block = dice.one_of(&[16, 64]);
        let methods = [Method::Window, Method::List, Method::List, Method::Mapped];
        t.method = (!encoded).then_some(*methods.get(way).unwrap_or(&Method::List));
        if way >= 5 {
            (t.method, t.scarce, t.cached_permille) = (None, true, 0);
            (t.straight, t.share) = (dice.one_of(&[16, 64]), dice.one_of(&[60, 300, 3000]));
        }
        if way == 4 || way == 6 {
            at_home(&mut case, &mut dice);
        }
        let outcome = std::panic::catch_unwind(|| verify(&case));
        prop_assert!(outcome.is_ok(), "{case:#?}");
    }

    #[test]
    fn corrupted_rounds_do_no_harm(
        numbers in prop::collection::vec(any::<u32>(), 160),
        change in prop::collection::vec(any::<u32>(), 5),
    ) {
        let case = case(numbers);
        let outcome = std::panic::catch_unwind(|| {
            check_corrupted(&case, &mut Dice { numbers: change, next: 0 });
        });
        prop_assert!(outcome.is_ok(), "{case:?}");
    }
}
