use super::super::records::{record, Said, Stage};
use super::super::{section_words, Agreed, ArrayDescriptor, Collective, Cut, Job, Share, Wanted};
use super::*;
use crate::assign::Solver;
use crate::collective::{Access, Settings};
use crate::section::{Range, Section};

const RANKS: u32 = 4;
const MIB: i64 = 1 << 20;
const MS: i64 = 1_000_000;

fn columns(shape: [i64; 2], rank: u32) -> Section {
    let columns =
        Range { start: rank.into(), count: shape[1] / i64::from(RANKS), step: RANKS.into() };
    Section::new(vec![Range { start: 0, count: shape[0], step: 1 }, columns])
}

/// 64 MiB by columns: several rounds of four owners.
fn plan(write: bool) -> Collective {
    let shape = [4096, 4096];
    let descriptor = ArrayDescriptor {
        shape: shape.to_vec(),
        item: 4,
        order: vec![0, 1],
        grain: vec![1, 1],
        encoded: false,
        lead: None,
    };
    let accesses =
        (0..RANKS).map(|rank| Access { rank, item: 0, section: columns(shape, rank) }).collect();
    let shares = (0..RANKS).map(|rank| Share { rank, part: 1 }).collect();
    let agreed = Agreed {
        ranks: RANKS,
        slot: 6 * MIB,
        gap: 24 << 10,
        align: 4096,
        least: 256 << 10,
        cut: Cut::Requested,
        write,
    };
    let plan = Collective::new(vec![Job { descriptor, accesses, shares }], &agreed).unwrap();
    assert!(plan.rounds() > 1 && plan.owners().count() == 4);
    plan
}

fn price(plan: &Collective, prices: &Prices, write: bool) -> i64 {
    prices.two_phase(&plan.exchanged(&prices.nodes), write)
}

fn cheapest(plan: &Collective, prices: &Prices, write: bool) -> Choice {
    prices.cheapest(&plan.exchanged(&prices.nodes), write, None, None)
}

fn prices(parts: i64) -> Prices {
    let costs = ExchangeCosts { barrier_ns: 1_000, ..ExchangeCosts::shared(1000) };
    Prices { own: vec![(1_000_000 * MS, 0); 4], parts, costs, nodes: vec![0; 4], arrays: 1 }
}

fn cached(mut prices: Prices) -> Prices {
    prices.own.iter_mut().for_each(|one| one.1 = 1000);
    prices
}

fn shared(mut prices: Prices, oversubscription: i64) -> Prices {
    prices.costs.oversubscription = oversubscription;
    prices
}

#[test]
fn the_disk_works_while_other_rounds_are_copied() {
    let plan = plan(false);
    let moved = time(plan.exchanged(&[]).touched, ExchangeCosts::shared(1000).copy);
    for oversubscription in [1000, 2000, 4000] {
        let beside = moved * oversubscription / (1000 * 4);
        let little = 600_000 * oversubscription / 1000;
        for parts in [10 * moved, moved, moved / 10] {
            let both = price(&plan, &shared(prices(parts), oversubscription), false);
            let alone = parts.min(beside) / plan.rounds(); // the first read, or the last copy
            let least = parts.max(beside) + alone;
            assert!((least..=least + little).contains(&both), "{both} {least} {little}");
            // Copies out of the page cache use the same processors as the exchange.
            assert!(price(&plan, &cached(prices(parts)), false) >= parts + moved);
            assert!(price(&plan, &prices(parts), true) >= parts + moved);
        }
    }
}

#[test]
fn ranks_copy_side_by_side() {
    // 16 ranks on 2 processors took 437 ms independently and 289 ms with two-phase, although its
    // copies took longer in total.
    let plan = plan(false);
    for (oversubscription, method) in [(2000, Method::TwoPhase), (4000, Method::Direct)] {
        let mut found = shared(prices(180 * MS), oversubscription);
        found.own = vec![(90 * MS, 0); 4];
        found.costs.copy = plan.exchanged(&[]).touched * 1000 / 480;
        assert_eq!(method, cheapest(&plan, &found, false).method);
    }
}

#[test]
fn each_array_costs_a_processor_that_ranks_share() {
    let plan = plan(false);
    let of = |arrays, sharing| {
        let prices = Prices { arrays, ..cached(shared(prices(MS), sharing)) };
        price(&plan, &prices, false)
    };
    assert_eq!(100 * ARRAY_NS, of(101, 1000) - of(1, 1000));
    assert_eq!(302 * ARRAY_NS + 2 * ROUNDS_NS, of(101, 3000) - of(1, 1000));
}

#[test]
fn what_the_disk_hardly_notices_is_not_exchanged() {
    // Two megabytes, of which two-phase reads half as much: two-phase took 4.9 ms, direct 3.0 ms.
    let plan = plan(false);
    let mut found = prices(300_000);
    found.own = vec![(150_000, 0); 4];
    found.costs.copy = 1_000_000_000_000;
    assert_eq!(Method::Direct, cheapest(&plan, &found, false).method);
    found.parts = 10_000;
    assert_eq!(Method::TwoPhase, cheapest(&plan, &found, false).method);
}

#[test]
fn small_sections_are_not_planned() {
    // This holds whatever two-phase would save; here it saves almost the whole time.
    let plan = plan(false);
    for (own, arrays, sharing, method) in [
        (3 * MS, 100, 1000, Method::Direct),
        (5 * MS, 100, 1000, Method::TwoPhase),
        (5 * MS, 100, 2000, Method::Direct),
        (MS, 1, 1000, Method::TwoPhase),
        (MS / 10, 1, 1000, Method::Direct),
        (MS / 5, 1, 1000, Method::TwoPhase),
        (MS / 5, 1, 2000, Method::Direct),
        (0, 1, 1000, Method::Direct),
    ] {
        let mut found = Prices { arrays, ..shared(prices(0), sharing) };
        found.own = vec![(own, 0); 4];
        found.costs.copy = 1_000_000_000_000;
        let chosen = cheapest(&plan, &found, false);
        assert_eq!(method, chosen.method, "{own} {arrays} {sharing}");
        assert_eq!(method == Method::Direct, chosen.why == Why::TooSmall);
        assert_ne!(Why::TooSmall, cheapest(&plan, &found, true).why);
    }
}

#[test]
fn messages_between_nodes_cost_more_than_copies() {
    let plan = plan(false);
    let given = plan.exchanged(&[]).given;
    assert_eq!(0, plan.exchanged(&[7; 4]).far);
    assert_eq!(given / 2, plan.exchanged(&[0, 0, 1, 1]).far);
    assert_eq!(given * 3 / 4, plan.exchanged(&[0, 1, 2, 3]).far);
    let apart = Prices { nodes: vec![0, 1, 2, 3], ..prices(MS) };
    let both = (price(&plan, &apart, true), price(&plan, &prices(MS), true));
    let (copy, messages) = (apart.costs.copy, apart.costs.messages);
    let far = given * 3 / 4;
    let touched = plan.exchanged(&[]).touched;
    let more = time(far, messages) + time(touched / 4, copy) - time(touched, copy);
    assert_eq!(more, both.0 - both.1);
}

#[test]
fn copies_move_cache_lines() {
    let of = |shape: [i64; 2], item: i64, section: Section| {
        let descriptor = ArrayDescriptor {
            shape: shape.to_vec(),
            item,
            order: vec![0, 1],
            grain: vec![1, 1],
            encoded: false,
            lead: None,
        };
        let whole = Section::new(shape.map(|count| Range { start: 0, count, step: 1 }).to_vec());
        let accesses = [section, whole]
            .into_iter()
            .enumerate()
            .map(|(k, section)| Access { rank: k as u32, item: 0, section })
            .collect();
        let job = Job { descriptor, accesses, shares: vec![Share { rank: 0, part: 1 }] };
        let agreed = Agreed {
            ranks: 2,
            slot: MIB,
            gap: 0,
            align: 1,
            least: 1,
            cut: Cut::Requested,
            write: false,
        };
        let all: i64 = shape.iter().product::<i64>() * item;
        Collective::new(vec![job], &agreed).unwrap().exchanged(&[]).touched - all
    };
    let section = |rows: i64, columns: i64, step: i64| {
        let range = |count, step| Range { start: 0, count, step };
        Section::new(vec![range(rows, 1), range(columns, step)])
    };
    assert_eq!(5 * 100 * 4, of([10, 100], 4, section(5, 100, 1)), "in a row");
    assert_eq!(5 * 50 * 8, of([10, 100], 4, section(5, 50, 2)), "every second");
    assert_eq!(5 * 5 * 64, of([10, 100], 4, section(5, 5, 20)), "a line each");
    assert_eq!(5 * 64, of([10, 100], 4, section(5, 1, 1)), "at least a line a row");
    assert_eq!(5 * 5 * 100, of([10, 100], 100, section(5, 5, 20)), "elements of several lines");
}

#[test]
fn what_counts_before_any_price() {
    let plan = plan(true);
    let dear = prices(i64::MAX / 4);
    let lone = Prices { own: vec![(MS, 0)], nodes: vec![0], ..dear.clone() };
    let choose = |prices: &Prices, write, lacking, order| {
        let choice = prices.cheapest(&plan.exchanged(&prices.nodes), write, lacking, order);
        (choice.method, choice.why)
    };
    let (direct, both) = (Method::Direct, Method::TwoPhase);
    assert_eq!((direct, Why::OneRank), choose(&lone, true, None, Some(false)));
    let lacks = Why::NoMemory(10, 5);
    assert_eq!((direct, lacks), choose(&dear, true, Some(lacks), None));
    for undecided in [false, true] {
        let why = Why::InOrder { undecided, instead_of: None };
        assert_eq!((both, why), choose(&dear, true, None, Some(undecided)));
    }
    assert_eq!((direct, Why::Cached), choose(&cached(prices(0)), false, None, None));
    let (method, why) = choose(&cached(prices(0)), true, None, None);
    assert!(method == both && matches!(why, Why::Cheaper(..)), "what is written is not read");
}

/// Records of two ranks that request the columns of an array.
fn records(settings: &Settings) -> (Records, Vec<Wanted>) {
    let descriptor = ArrayDescriptor {
        shape: vec![64, 8],
        item: 4,
        order: vec![0, 1],
        grain: vec![1, 1],
        encoded: false,
        lead: None,
    };
    let row = |rank| {
        let said = Said {
            name: 5,
            file: 8,
            descriptor: descriptor.words(),
            section: section_words(&columns([64, 8], rank)),
        };
        record(3, Stage::Ready, &settings.words(), &[said]).unwrap()
    };
    let rows = [row(0), row(1)];
    let records = Records::new(rows.concat(), rows[0].len()).unwrap();
    let wanted = records.arrays(true).unwrap();
    (records, wanted)
}

fn settings(method: Method) -> Settings {
    Settings {
        method,
        offered: 1 << 20,
        io_ranks: 2,
        cut: Cut::Requested,
        refuses_overlap: false,
        durable: false,
        stripe: 64,
        cached: 0,
        groups: 1,
        gap: 100,
        solver: Solver::Balanced,
        disk: 0,
        timed: None,
        untried: 0,
    }
}

#[test]
fn a_caller_and_a_hint_decide_before_prices_do() {
    let asked = |method| Decision::Chosen(Choice { method, why: Why::Asked });
    for method in [Method::Direct, Method::Sieve, Method::TwoPhase] {
        assert_eq!(asked(method), records(&settings(method)).0.decide(100, None));
    }
    let auto = settings(Method::Auto);
    assert_eq!(Decision::ByPrice, records(&auto).0.decide(100, None));
    assert_eq!(Decision::ByPrice, records(&auto).0.decide(100, Some(false)));
    let few = Settings { io_ranks: 1, ..auto };
    let chosen = Choice { method: Method::TwoPhase, why: Why::FewTouchFiles(1) };
    assert_eq!(Decision::Chosen(chosen), records(&few).0.decide(100, None));
    let direct = Settings { io_ranks: 1, ..settings(Method::Direct) };
    assert_eq!(
        asked(Method::Direct),
        records(&direct).0.decide(100, None),
        "a caller before a hint"
    );
    let instead_of = Some(Method::Sieve);
    let why = Why::InOrder { undecided: true, instead_of };
    let chosen = Choice { method: Method::TwoPhase, why };
    assert_eq!(Decision::Chosen(chosen), records(&settings(Method::Sieve)).0.decide(9, Some(true)));
}

#[test]
fn memory_that_is_short_is_an_error_only_where_there_is_no_other_way() {
    let slot = 2 << 20;
    let decide = |settings: Settings, order| records(&settings).0.decide(slot, order);
    let none = |undecided| Decision::NoMemory(Some(in_order(undecided, None)));
    assert_eq!(Decision::ByPrice, decide(settings(Method::Auto), None));
    assert_eq!(Decision::NoMemory(None), decide(settings(Method::TwoPhase), None));
    assert_eq!(none(true), decide(settings(Method::Direct), Some(true)));
    assert_eq!(none(false), decide(settings(Method::Auto), Some(false)));
    let few = Settings { io_ranks: 1, ..settings(Method::Auto) };
    assert_eq!(Decision::NoMemory(None), decide(few, None));
    let (records, _) = records(&settings(Method::Auto));
    assert_eq!(Some(Why::NoMemory(slot, 1 << 20)), records.lacking(slot));
    assert_eq!(None, records.lacking(1 << 20));
}

#[test]
fn reads_that_need_no_plan() {
    let unplanned = |settings: Settings, encoded| records(&settings).0.unplanned(encoded);
    let chosen = |method, why| Some(Choice { method, why });
    let auto = Settings { cached: 950, ..settings(Method::Auto) };
    assert_eq!(chosen(Method::Direct, Why::Cached), unplanned(auto, false));
    assert_eq!(None, unplanned(auto, true), "chunks are decoded once, if they are");
    assert_eq!(None, unplanned(Settings { cached: 949, ..auto }, false));
    assert_eq!(None, unplanned(Settings { io_ranks: 1, ..auto }, false));
    assert_eq!(None, unplanned(Settings { method: Method::TwoPhase, ..auto }, false));
    let sieve = Settings { io_ranks: 1, ..settings(Method::Sieve) };
    assert_eq!(chosen(Method::Sieve, Why::Asked), unplanned(sieve, true));
}

#[test]
fn a_plan_of_records_has_the_largest_slots_that_all_can_have() {
    let (plan_of, bytes) = (
        |offered, block: i64| {
            let (records, mut wanted) = records(&Settings { offered, ..settings(Method::Auto) });
            if block > 1 {
                wanted[0].descriptor.encoded = true;
                wanted[0].descriptor.grain = vec![block, 8];
            }
            Collective::of_records(&records, &wanted, (512, 64), false).unwrap()
        },
        64 * 8 * 4,
    );
    assert!(
        plan_of(1 << 20, 1).slot_bytes() <= 512 && plan_of(1 << 20, 1).rounds() == bytes / 2 / 512
    );
    assert!(plan_of(256, 1).slot_bytes() <= 256, "of the rank that has least memory");
    let blocks = plan_of(1 << 20, 32);
    // Six of the requested columns are adjacent.
    assert_eq!(32 * 6 * 4, blocks.slot_bytes(), "a block is not cut");
    // The memory is too short; the plan reports the size that is needed.
    assert_eq!(32 * 6 * 4, plan_of(128, 32).slot_bytes());
}
