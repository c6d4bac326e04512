//! Duration of planning, printed without a limit: `cargo test --release -- --ignored --nocapture`.
#![allow(clippy::unwrap_used, clippy::disallowed_types, clippy::disallowed_methods)]

use std::time::Instant;

use outcore_plan::assign::{assign, Aim, Objective, Requests, Solver};
use outcore_plan::*;

fn nanoseconds(name: &str, layout: &Layout, section: &Section, user: &[i64], terms: &Terms) {
    let request =
        Request { layout, table: None, section, user_stride: user, direction: Direction::Read };
    let bounds = Bounds {
        slot_bytes: terms.budget,
        files: vec![i64::MAX],
        user: (0, i64::MAX),
        fill: 0,
        block: 4096,
        home: None,
    };
    let mut best = [u128::MAX; 3];
    let mut rounds = 0;
    for _ in 0..2000 {
        let t0 = Instant::now();
        let plan = Plan::new(&request, terms).unwrap();
        let t1 = Instant::now();
        let round = check(plan.round(0).unwrap(), &bounds).unwrap();
        let t2 = Instant::now();
        rounds = plan.rounds();
        drop((round, plan));
        let t3 = Instant::now();
        for (best, time) in best.iter_mut().zip([t1 - t0, t2 - t1, t3 - t2]) {
            *best = (*best).min(time.as_nanos());
        }
    }
    let plan = Plan::new(&request, terms).unwrap();
    let t0 = Instant::now();
    let cost = plan.cost();
    let cost_ns = t0.elapsed().as_nanos();
    println!(
        "{name:30} {:8} plan {} round+check {} drop {} cost {cost_ns} ns, {rounds} rounds, {cost}",
        plan.method().name(),
        best[0],
        best[1],
        best[2],
    );
}

#[test]
#[ignore = "prints times"]
fn planning_is_fast() {
    let range = |a, n, s| Range::new(a, n, s).unwrap();
    let dense =
        |shape: &[i64]| Layout::Strided(Strided::dense(shape, 8, Order::C, 0, 128).unwrap());
    let mut warm = Terms::new(256 << 20);
    (warm.cached_permille, warm.mapping, warm.direct) = (1000, true, true);
    let cold = Terms { cached_permille: 0, ..warm.clone() };
    let line = dense(&[1 << 20]);
    for (name, terms) in [("warm", &warm), ("cold", &cold)] {
        let s = Section::new(vec![range(5, 1000, 1)]);
        nanoseconds(&format!("{name} 1000 contiguous"), &line, &s, &[8], terms);
        let s = Section::new(vec![range(5, 1000, 3)]);
        nanoseconds(&format!("{name} 1000 strided"), &line, &s, &[8], terms);
        let square = dense(&[16384, 16384]);
        let s = Section::new(vec![range(0, 2341, 7), range(0, 3277, 5)]);
        nanoseconds(&format!("{name} [::7, ::5]"), &square, &s, &[3277 * 8, 8], terms);
        let s = Section::new(vec![range(0, 16384, 1), range(77, 1, 1)]);
        nanoseconds(&format!("{name} one column"), &square, &s, &[8, 8], terms);
        let s = Section::whole(&[16384, 16384]).unwrap();
        nanoseconds(&format!("{name} whole"), &square, &s, &[16384 * 8, 8], terms);
        nanoseconds(&format!("{name} whole transposed"), &square, &s, &[8, 16384 * 8], terms);
        let huge = dense(&[1_000_000, 1_000_000, 1000]);
        let s = Section::new(vec![range(3, 99_999, 7), range(0, 900_000, 1), range(4, 300, 3)]);
        nanoseconds(&format!("{name} huge"), &huge, &s, &[900_000 * 2400, 2400, 8], terms);
    }
}

/// Costs for `assign` if their values do not matter.
const AIM: Aim = Aim { alpha: 1, beta: 1, objective: Objective::Traffic };

/// A matrix in which every rank requests a different amount of every file.
fn requests(ranks: usize, files: usize) -> Requests {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        i64::try_from(state >> 40).unwrap()
    };
    let bytes = (0..ranks * files).map(|_| next()).collect();
    Requests::new(ranks, files, bytes).unwrap()
}

#[test]
#[ignore = "prints times"]
fn assigning_is_fast() {
    let cases =
        [(8, 64), (64, 512), (512, 64), (64, 2048), (256, 4096), (1024, 1024), (16, 20_000)];
    for (ranks, files) in cases {
        let requests = requests(ranks, files);
        for solver in [Solver::Greedy, Solver::Matching, Solver::Balanced] {
            if solver == Solver::Matching && files > 10_000 {
                continue;
            }
            let t0 = Instant::now();
            let answer = assign(&requests, solver, &AIM).unwrap();
            let took = t0.elapsed();
            let most = answer.load.iter().max().unwrap();
            let traffic = answer.traffic;
            println!("{ranks:5} x {files:5} {solver:?}: {took:?}, load {most}, traffic {traffic}");
        }
    }
}

/// Measures the work of one rank for planning a collective.
///
/// This is the plan, its own tiles, the requests for them, and its requests for all other tiles in
/// one round.
#[test]
#[ignore = "prints times"]
fn collectives_of_many_ranks_are_planned_fast() {
    use outcore_plan::collective::{Access, Agreed, ArrayDescriptor, Collective, Cut, Job, Share};
    use outcore_plan::{Range, Section};

    let n = 1_i64 << 20;
    for ranks in [1_000_u32, 10_000, 100_000] {
        let part = |rank: u32, parts: i64| {
            let (low, high) = (n * i64::from(rank) / parts, n * (i64::from(rank) + 1) / parts);
            Range::new(low, high - low, 1).unwrap()
        };
        let whole = Range::new(0, n, 1).unwrap();
        let side = f64::from(ranks).sqrt() as u32;
        type Of<'a> = Box<dyn Fn(u32) -> Section + 'a>;
        let sections: [(&str, Of); 4] = [
            ("columns", Box::new(|r| Section::new(vec![whole, part(r, i64::from(ranks))]))),
            ("rows", Box::new(|r| Section::new(vec![part(r, i64::from(ranks)), whole]))),
            (
                "blocks",
                Box::new(|r| {
                    let (i, j) = (r / side % side, r % side);
                    Section::new(vec![part(i, i64::from(side)), part(j, i64::from(side))])
                }),
            ),
            (
                "diagonal",
                Box::new(|r| {
                    let range = part(r, i64::from(ranks));
                    Section::new(vec![range, range])
                }),
            ),
        ];
        for (name, section) in &sections {
            let accesses: Vec<Access> =
                (0..ranks).map(|rank| Access { rank, item: 0, section: section(rank) }).collect();
            let descriptor = ArrayDescriptor {
                shape: vec![n, n],
                item: 8,
                order: vec![0, 1],
                grain: vec![1, 1],
                encoded: false,
                lead: Some(128),
            };
            let shares = (0..ranks).map(|rank| Share { rank, part: 1 }).collect();
            let job = Job { descriptor, accesses, shares };
            for cut in [Cut::Requested, Cut::Bounding, Cut::Fixed, Cut::Cyclic] {
                let agreed = Agreed {
                    ranks,
                    slot: 8 << 20,
                    gap: 24 << 10,
                    align: 4096,
                    least: 256 << 10,
                    cut,
                    write: false,
                };
                let jobs = vec![job.clone()];
                let start = std::time::Instant::now();
                let plan = Collective::new(jobs, &agreed).unwrap();
                let planned = start.elapsed();
                let me = ranks / 3;
                let start = std::time::Instant::now();
                let wanted = plan.tile(me, 0).map_or(0, |tile| plan.table(&tile).len());
                let mine = (0..ranks)
                    .filter_map(|owner| plan.tile(owner, 0))
                    .filter(|tile| !plan.pieces(tile, me).is_empty())
                    .count();
                println!(
                    "{ranks:>7} ranks, {name:<9} {:<9} plan {planned:>9.1?}, a round {:>9.1?}; {} rounds, \
                     {wanted} want of mine, I want of {mine}",
                    format!("{cut:?}"),
                    start.elapsed(),
                    plan.rounds(),
                );
            }
        }
    }
}

/// Measures the additional work of every rank if ranks write the same elements.
#[test]
#[ignore = "prints times"]
fn overlapping_writes_of_many_ranks_are_cut_fast() {
    use outcore_plan::collective::{leave_out, regions, Access, ArrayDescriptor, Left};
    use outcore_plan::{Range, Section};

    let n = 1_i64 << 20;
    type Of = fn(i64, i64) -> Vec<(i64, i64, i64)>;
    let cases: [(&str, Of); 5] = [
        ("blocks with a margin", |r, p| {
            let side = (p as f64).sqrt() as i64;
            let (i, j) = (r / side % side, r % side);
            vec![(i * 64, i * 64 + 72, 1), (j * 64, j * 64 + 72, 1)]
        }),
        ("3-d blocks with a margin", |r, p| {
            let side = (p as f64).cbrt() as i64;
            let place = |k: i64| (k * 64, k * 64 + 66, 1);
            vec![place(r / side / side % side), place(r / side % side), place(r % side)]
        }),
        ("3-d blocks apart", |r, p| {
            let side = (p as f64).cbrt() as i64 + 1;
            let place = |k: i64| (k * 64, k * 64 + 64, 1);
            vec![place(r / side / side % side), place(r / side % side), place(r % side)]
        }),
        ("columns that neighbours share", |r, _| vec![(0, 1 << 20, 1), (8 * r, 8 * r + 9, 1)]),
        ("all the same", |_, _| vec![(0, 1 << 20, 7), (3, 1 << 20, 5)]),
    ];
    for ranks in [1_000_i64, 10_000, 100_000] {
        for (name, section) in cases {
            let axes = section(0, ranks).len();
            let access = |rank: i64| Access {
                rank: rank as u32,
                item: 0,
                section: Section::new(
                    section(rank, ranks)
                        .into_iter()
                        .map(|(low, high, s)| Range::new(low, (high - low + s - 1) / s, s).unwrap())
                        .collect(),
                ),
            };
            let accesses: Vec<Access> = (0..ranks).map(access).collect();
            let descriptor = ArrayDescriptor {
                shape: vec![n; axes],
                item: 1,
                order: (0..axes).collect(),
                grain: vec![1; axes],
                encoded: false,
                lead: Some(128),
            };
            let found = regions(&descriptor, &accesses, 1 << 40);
            let start = Instant::now();
            let left = leave_out(&descriptor, &accesses, &found);
            let took = start.elapsed();
            let said = match left {
                Left::All => "nothing shared".to_owned(),
                Left::Parts(parts) => format!("{} parts", parts.len()),
                Left::Entangled | Left::Unknown => "in the order of ranks".to_owned(),
            };
            println!("{ranks:>7} ranks, {name:<30} {took:>9.1?}: {said}");
        }
    }
}
