//! Comparison of distributions with an enumeration of elements by the definitions of HPF.

use proptest::prelude::*;

use super::pattern::affine;
use super::*;
use crate::error::PlanError;
use crate::section::{Range, Section};

/// Coordinate that owns a cell, by the definition of HPF.
fn owner_of_cell(pattern: &Pattern, cell: i64, cells: i64, over: i64) -> i64 {
    match pattern {
        Pattern::Whole => 0,
        Pattern::Block(size) => cell / size.unwrap_or(((cells + over - 1) / over).max(1)),
        Pattern::Cyclic(size) => (cell / size) % over,
        Pattern::General(lengths) => {
            let mut rest = cell;
            let mut c = 0;
            while rest >= lengths[c] {
                rest -= lengths[c];
                c += 1;
            }
            c as i64
        }
    }
}

#[derive(Debug, Clone)]
struct Case {
    shape: Vec<i64>,
    grid: Vec<i64>,
    mappings: Vec<Mapping>,
    /// Cells per axis.
    cells: Vec<i64>,
}

impl Case {
    fn make(&self) -> Distribution {
        let grid = Grid::new(self.grid.clone()).unwrap();
        Distribution::new(self.shape.clone(), grid, self.mappings.clone()).unwrap()
    }

    /// Indices along each axis that a rank has, in ascending order.
    fn has(&self, rank: i64) -> Vec<Vec<i64>> {
        let mut at = vec![0; self.grid.len()];
        let mut rest = rank;
        for d in (0..self.grid.len()).rev() {
            at[d] = rest % self.grid[d];
            rest /= self.grid[d];
        }
        let axis = |d: usize| {
            let Mapping { pattern, axis, align } = &self.mappings[d];
            let Some(along) = axis else { return (0..self.shape[d]).collect() };
            let over = self.grid[*along];
            let cell = |i: i64| align.stride * i + align.offset;
            let mine =
                |i: &i64| owner_of_cell(pattern, cell(*i), self.cells[d], over) == at[*along];
            (0..self.shape[d]).filter(mine).collect()
        };
        (0..self.shape.len()).map(axis).collect()
    }

    fn size(&self) -> i64 {
        self.grid.iter().product()
    }
}

fn product(axes: &[Vec<i64>]) -> Vec<Vec<i64>> {
    let mut all = vec![vec![]];
    for axis in axes {
        let longer = |head: &Vec<i64>| {
            let head = head.clone();
            axis.iter().map(move |i| [head.clone(), vec![*i]].concat())
        };
        all = all.iter().flat_map(longer).collect();
    }
    all
}

fn mapping(len: i64, over: i64) -> impl Strategy<Value = (Pattern, Align, i64)> {
    let stride = prop_oneof![
        4 => Just(1),
        2 => (-7..8_i64).prop_filter("zero", |s| *s != 0),
        1 => prop_oneof![Just(-1000), Just(37), Just(64)],
    ];
    (stride, 0..9_i64, 0..9_i64, 0..5_u8, 1..9_i64, prop::collection::vec(0..9_i64, over as usize))
        .prop_map(move |(stride, before, behind, kind, size, mut lengths)| {
            let span = stride.abs() * (len - 1).max(0);
            let offset = if stride > 0 { before } else { before + span };
            let used = if len == 0 { 0 } else { before + span + 1 };
            let (extent, cells) =
                if behind == 0 { (None, used) } else { (Some(used + behind), used + behind) };
            let least = ((cells + over - 1) / over).max(1);
            let pattern = match kind {
                0 => Pattern::Block(None),
                1 => Pattern::Block(Some(least + size - 1)),
                2 => Pattern::Cyclic(1),
                3 => Pattern::Cyclic(size),
                _ => {
                    let missing = (cells - lengths.iter().sum::<i64>()).max(0);
                    let at = (size - 1) % over;
                    lengths[at as usize] += missing;
                    Pattern::General(lengths)
                }
            };
            (pattern, Align { stride, offset, extent }, cells)
        })
}

/// Any distribution of an array of this shape onto `size` ranks.
fn onto(shape: Vec<i64>, size: i64) -> impl Strategy<Value = Case> {
    let ndim = shape.len();
    let grids: Vec<Vec<i64>> = product(&vec![(1..=size).collect(); 2])
        .into_iter()
        .chain((1..=size).map(|n| vec![n]))
        .chain([vec![1, 1, size], vec![size, 1, 1]])
        .filter(|g| g.iter().product::<i64>() == size)
        .collect();
    (prop::sample::select(grids), any::<u64>()).prop_flat_map(move |(grid, seed)| {
        // The grid axis for each array axis: none, or one that is not used yet.
        let mut free: Vec<usize> = (0..grid.len()).collect();
        let mut seed = seed;
        let mut axes = vec![];
        for _ in 0..ndim {
            let choice = (seed % 4) as usize;
            seed /= 4;
            let taken = (choice > 0 && !free.is_empty()).then(|| free[choice % free.len()]);
            free.retain(|axis| Some(*axis) != taken);
            axes.push(taken);
        }
        let each: Vec<_> = axes
            .iter()
            .zip(&shape)
            .map(|(axis, len)| mapping(*len, axis.map_or(1, |a| grid[a])))
            .collect();
        let shape = shape.clone();
        (each, Just(axes), Just(grid)).prop_map(move |(each, axes, grid)| {
            let cells = each.iter().map(|(_, _, cells)| *cells).collect();
            let mappings = each.into_iter().zip(axes).map(|((pattern, align, _), axis)| {
                let pattern = if axis.is_none() { Pattern::Whole } else { pattern };
                Mapping { pattern, axis, align }
            });
            Case { shape: shape.clone(), grid, mappings: mappings.collect(), cells }
        })
    })
}

fn shape() -> impl Strategy<Value = Vec<i64>> {
    let len = prop_oneof![8 => 0..20_i64, 1 => 30..60_i64];
    prop::collection::vec(len, 0..4)
        .prop_filter("few elements", |shape| shape.iter().product::<i64>() <= 800)
}

fn case() -> impl Strategy<Value = Case> {
    (shape(), prop::sample::select(vec![1, 2, 3, 4, 6, 7, 12])).prop_flat_map(|(s, n)| onto(s, n))
}

/// Elements of pieces, with their places in memory.
fn enumerated(pieces: &[Piece]) -> Vec<(Vec<i64>, Vec<i64>)> {
    let both = |piece: &Piece| {
        let global: Vec<_> = piece.global.indices().collect();
        let local: Vec<_> = piece.local.indices().collect();
        assert_eq!(global.len(), local.len());
        global.into_iter().zip(local).collect::<Vec<_>>()
    };
    pieces.iter().flat_map(both).collect()
}

/// An array in memory, as indices of the elements that it holds; `None` for unset places.
type Memory = Vec<Option<Vec<i64>>>;

fn place(shape: &[i64], at: &[i64]) -> usize {
    shape.iter().zip(at).fold(0, |n, (len, i)| n * *len as usize + *i as usize)
}

fn filled(distribution: &Distribution, rank: i64, ghosts: &[Ghost], all: bool) -> Memory {
    let shape = distribution.local_shape(rank, ghosts).unwrap();
    let mut memory = vec![None; shape.iter().product::<i64>() as usize];
    for (global, local) in enumerated(&distribution.pieces(rank, ghosts, all).unwrap()) {
        let at = place(&shape, &local);
        assert_eq!(None, memory[at].replace(global));
    }
    memory
}

/// Runs an exchange between all ranks in memory; every place may be set only once.
fn run(source: (&Distribution, &[Ghost]), target: (&Parts, &Distribution, &[Ghost]), limit: i64) {
    let (parts, size) = (target.0, source.0.grid().size());
    let from = Parts::new(source.0, source.1, false).unwrap();
    let plans: Vec<Traffic> = (0..size)
        .map(|me| exchange_plan(&from, parts, me).unwrap().in_rounds(limit).unwrap())
        .collect();
    let have: Vec<Memory> = (0..size).map(|r| filled(source.0, r, source.1, false)).collect();
    for (me, plan) in plans.iter().enumerate() {
        let shape = target.1.local_shape(me as i64, target.2).unwrap();
        let mut memory: Memory = vec![None; shape.iter().product::<i64>() as usize];
        let mut put = |from: usize, there: &Section, here: &Section| {
            let shape_there = source.0.local_shape(from as i64, source.1).unwrap();
            assert_eq!(there.shape(), here.shape());
            for (a, b) in there.indices().zip(here.indices()) {
                let value = have[from][place(&shape_there, &a)].clone();
                assert!(value.is_some());
                assert_eq!(None, core::mem::replace(&mut memory[place(&shape, &b)], value));
            }
        };
        plan.own.iter().for_each(|(there, here)| put(me, there, here));
        for message in &plan.receives {
            let sent = &plans[message.peer as usize].sends;
            let sent = sent.iter().find(|c| c.peer == me as i64).unwrap();
            assert_eq!((sent.sections.len(), &sent.ends), (message.sections.len(), &message.ends));
            let pairs = sent.sections.iter().zip(&message.sections);
            pairs.for_each(|(there, here)| put(message.peer as usize, there, here));
            let rounds: Vec<_> = (0..message.ends.len()).map(|k| message.round(k)).collect();
            assert_eq!(rounds.concat(), message.sections);
            for round in rounds {
                let count: i64 = round.iter().map(|s| s.count().unwrap()).sum();
                assert!((1..=limit).contains(&count));
            }
            assert!(message.round(message.ends.len()).is_empty());
        }
        counts_are_those_of_messages(plan, limit);
        let wanted = if parts.has(me as i64) {
            filled(target.1, me as i64, target.2, true)
        } else {
            vec![None; memory.len()]
        };
        assert_eq!(wanted, memory);
    }
    let sent: usize = plans.iter().map(|plan| plan.sends.len()).sum();
    let received: usize = plans.iter().map(|plan| plan.receives.len()).sum();
    assert_eq!(sent, received);
}

/// Compares the counts of a plan with those from every message of every round.
fn counts_are_those_of_messages(plan: &Traffic, limit: i64) {
    let count = |sections: &[Section]| sections.iter().map(|s| s.count().unwrap()).sum::<i64>();
    let (mut messages, mut sent, mut received, mut peak) = (0, 0_i64, 0_i64, 0_i64);
    for k in 0..plan.rounds() {
        let of = |list: &[Message]| list.iter().map(|m| count(m.round(k))).collect::<Vec<_>>();
        let (out, back) = (of(&plan.sends), of(&plan.receives));
        messages += out.iter().filter(|n| **n > 0).count();
        sent += out.iter().sum::<i64>();
        received += back.iter().sum::<i64>();
        peak = peak.max(out.iter().chain(&back).sum());
    }
    assert_eq!(messages, plan.messages());
    assert_eq!((sent, received), plan.elements().unwrap());
    assert_eq!(peak, plan.peak().unwrap());
    assert!(peak <= plan.bound(limit).unwrap());
    for room in [0, 1, 7, sent + received] {
        let limit = plan.limit(room).unwrap();
        let held = plan.bound(limit).unwrap();
        assert!(limit >= 1 && (held <= room || limit == 1));
    }
    assert_eq!(i64::MAX, plan.limit(sent + received).unwrap());
}

/// Combines the ghosts of all ranks in memory.
///
/// It records the contributors of each element in order.
fn accumulate(made: &Distribution, ghosts: &[Ghost], limit: Option<i64>) {
    let size = made.grid().size();
    let owned = Parts::new(made, ghosts, false).unwrap();
    let kept = Parts::new(made, ghosts, true).unwrap();
    let plan = |me| accumulate_plan(&owned, &kept, Operation::Add, me, limit).unwrap();
    let plans: Vec<Traffic> = (0..size).map(plan).collect();
    let have: Vec<Memory> = (0..size).map(|r| filled(made, r, ghosts, true)).collect();
    let mine: Vec<Memory> = (0..size).map(|r| filled(made, r, ghosts, false)).collect();
    let shapes: Vec<_> = (0..size).map(|r| made.local_shape(r, ghosts).unwrap()).collect();
    let copies: Vec<i64> =
        (0..size).map(|r| made.copy_of(&made.grid().coordinates(r).unwrap())).collect();
    for (me, plan) in plans.iter().enumerate() {
        assert!(plan.own.is_empty());
        counts_are_those_of_messages(plan, limit.unwrap_or(i64::MAX));
        let mut given = vec![vec![]; mine[me].len()];
        for k in 0..plan.rounds() {
            let mut filled = 0;
            for message in &plan.receives {
                let from = message.peer as usize;
                let sent = plans[from].sends.iter().find(|one| one.peer == me as i64).unwrap();
                assert_eq!(sent.ends, message.ends);
                assert_eq!(sent.round(k).len(), message.round(k).len());
                for (there, here) in sent.round(k).iter().zip(message.round(k)) {
                    assert_eq!(there.shape(), here.shape());
                    filled += here.count().unwrap();
                    for (a, b) in there.indices().zip(here.indices()) {
                        let (a, b) = (place(&shapes[from], &a), place(&shapes[me], &b));
                        assert!(have[from][a].is_some() && mine[from][a].is_none());
                        assert_eq!(have[from][a], mine[me][b]);
                        given[b].push(from);
                    }
                }
            }
            assert!(filled <= limit.unwrap_or(i64::MAX));
        }
        for (element, from) in mine[me].iter().zip(&given) {
            let ghost_of = |r: &usize| {
                let (all, own) = (&have[*r], &mine[*r]);
                let at = all.iter().position(|one| one.is_some() && one == element);
                copies[*r] == copies[me] && at.is_some_and(|at| own[at].is_none())
            };
            let expected: Vec<usize> = (0..size as usize).filter(ghost_of).collect();
            assert_eq!(&expected, from); // each contributor once, in the order of ranks
        }
    }
    let sent: usize = plans.iter().map(|plan| plan.sends.len()).sum();
    let received: usize = plans.iter().map(|plan| plan.receives.len()).sum();
    assert_eq!(sent, received);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_element_is_where_hpf_says(case in case()) {
        let made = case.make();
        let mut owned = 0;
        for rank in 0..case.size() {
            let has = case.has(rank);
            let shape: Vec<i64> = has.iter().map(|axis| axis.len() as i64).collect();
            prop_assert_eq!(&shape, &made.local_shape(rank, &[]).unwrap());
            // Pieces divide the elements of the rank, and store them in ascending order.
            let expected: Memory = product(&has).into_iter().map(Some).collect();
            prop_assert_eq!(&expected, &filled(&made, rank, &[], false));
            for (index, at) in product(&has).iter().zip(Section::whole(&shape).unwrap().indices()) {
                prop_assert_eq!(&at, &made.local_index(index).unwrap());
                prop_assert_eq!(index, &made.global_index(rank, &at).unwrap());
                let owner = made.owner(index).unwrap();
                let mine = made.is_owner(rank).unwrap();
                prop_assert!(owner == rank || (!mine && owner < rank));
                owned += i64::from(owner == rank);
            }
        }
        prop_assert_eq!(case.shape.iter().product::<i64>(), owned);
    }

    #[test]
    fn ranges_are_few_and_canonical(case in case()) {
        let made = case.make();
        for rank in 0..case.size() {
            let pieces = made.pieces(rank, &[], false).unwrap();
            for (d, has) in case.has(rank).iter().enumerate() {
                let mut ranges: Vec<Range> = pieces.iter().map(|p| p.global.ranges()[d]).collect();
                ranges.sort();
                ranges.dedup();
                for r in &ranges {
                    prop_assert_eq!(*r, Range::new(r.start, r.count, r.step).unwrap());
                }
                prop_assert!(ranges.len() <= has.len());
                if case.mappings[d].align.stride.abs() == 1 {
                    let runs = has.windows(2).filter(|w| w[1] > w[0] + 1).count() + 1;
                    prop_assert!(ranges.len() <= runs);
                }
                if let Pattern::Cyclic(size) = case.mappings[d].pattern {
                    prop_assert!(ranges.len() as i64 <= size);
                }
            }
        }
    }

    #[test]
    fn ghosts_are_the_neighbours(case in case(), widths in prop::collection::vec((0..5_i64, 0..5_i64), 3)) {
        let made = case.make();
        let ghosts: Vec<Ghost> = (0..case.shape.len())
            .map(|d| if made.axes[d].is_in_one_piece() { widths[d] } else { (0, 0) })
            .map(|(low, high)| Ghost { low, high })
            .collect();
        for rank in 0..case.size() {
            let has = case.has(rank);
            let wide: Vec<Vec<i64>> = has
                .iter()
                .zip(&ghosts)
                .enumerate()
                .map(|(d, (axis, g))| {
                    let near = |i: &i64| axis.iter().any(|o| o - g.low <= *i && *i <= o + g.high);
                    (0..case.shape[d]).filter(near).collect()
                })
                .collect();
            let expected: Memory = product(&wide).into_iter().map(Some).collect();
            prop_assert_eq!(&expected, &filled(&made, rank, &ghosts, true));
            // The owned elements have their own places among them.
            let owned = filled(&made, rank, &ghosts, false);
            for (all, own) in expected.iter().zip(&owned) {
                prop_assert!(own.is_none() || own == all);
            }
            let count: usize = has.iter().map(Vec::len).product();
            prop_assert_eq!(count, owned.iter().flatten().count());
        }
        let kept = Parts::new(&made, &ghosts, true).unwrap();
        run((&made, &ghosts), (&kept, &made, &ghosts), 5);
        for limit in [None, Some(1), Some(7), Some(i64::MAX)] {
            accumulate(&made, &ghosts, limit);
        }
    }

    #[test]
    fn a_section_is_divided_among_those_who_own_it(
        case in case(),
        cuts in prop::collection::vec((0..40_i64, 0..40_i64, 1..5_i64), 3),
        widths in prop::collection::vec((0..3_i64, 0..3_i64), 3),
    ) {
        let made = case.make();
        let axes = case.shape.iter().zip(&cuts);
        let range = |(len, (start, stop, step)): (&i64, &(i64, i64, i64))| {
            let (start, stop) = (start % (len + 1), stop % (len + 1));
            Range::new(start, ((stop - start).max(0) + step - 1) / step, *step).unwrap()
        };
        let section = Section::new(axes.map(range).collect());
        let all: Vec<Ghost> = widths.iter().map(|(low, high)| Ghost { low: *low, high: *high }).collect();
        let asked = &all[..case.shape.len()];
        let ghosts = if made.check_ghosts(asked).is_ok() { asked } else { &[] };
        let mut seen = Vec::new();
        for patch in made.locate(&section, ghosts).unwrap() {
            prop_assert_eq!(made.copies() as usize, patch.ranks.len());
            for (member, stored) in patch.members.indices().zip(patch.stored.indices()) {
                let place = |(k, r): (&i64, &Range)| r.start + k * r.step;
                let index: Vec<i64> = member.iter().zip(section.ranges()).map(place).collect();
                prop_assert_eq!(made.owner(&index).unwrap(), patch.ranks[0]);
                for rank in &patch.ranks {
                    let pieces = made.pieces(*rank, ghosts, false).unwrap();
                    prop_assert!(enumerated(&pieces).contains(&(index.clone(), stored.clone())));
                }
                seen.push(member);
            }
        }
        seen.sort_unstable();
        let counts = section.ranges().iter().map(|r| (0..r.count).collect()).collect::<Vec<_>>();
        prop_assert_eq!(product(&counts), seen);
    }

    #[test]
    fn an_exchange_brings_everything_once(
        (a, b) in (shape(), prop::sample::select(vec![1, 2, 4, 6, 12]))
            .prop_flat_map(|(s, n)| (onto(s.clone(), n), onto(s, n))),
        limit in prop_oneof![Just(i64::MAX), 1..40_i64],
        only in 0..12_i64,
    ) {
        let (source, target) = (a.make(), b.make());
        let parts = Parts::new(&target, &[], true).unwrap();
        run((&source, &[]), (&parts, &target, &[]), limit);
        run((&source, &[]), (&parts.only(only), &target, &[]), limit);
    }
}

fn simple(shape: &[i64], grid: &[i64], patterns: &[Pattern]) -> Result<Distribution, PlanError> {
    let mut next = 0..;
    let mappings = patterns.iter().map(|pattern| {
        let axis = if *pattern == Pattern::Whole { None } else { next.next() };
        Mapping { pattern: pattern.clone(), axis, align: Align::default() }
    });
    Distribution::new(shape.to_vec(), Grid::new(grid.to_vec())?, mappings.collect())
}

#[test]
fn a_distribution_reads_as_in_hpf() {
    let made =
        simple(&[8, 9, 4], &[2, 3], &[Pattern::Block(None), Pattern::Cyclic(2), Pattern::Whole]);
    assert_eq!("(BLOCK, CYCLIC(2), *) onto 2 x 3", made.unwrap().to_string());
    let align = Align { stride: -2, offset: 20, extent: Some(30) };
    let mapping = Mapping { pattern: Pattern::Block(None), axis: Some(1), align };
    let made = Distribution::new(vec![8], Grid::new(vec![2, 3]).unwrap(), vec![mapping]).unwrap();
    let text = "(BLOCK of t(20 - 2*i) in 0:30) onto 2 x 3, replicated along its axis 0";
    assert_eq!(text, made.to_string());
    assert_eq!("2*i - 3", affine(2, -3));
    assert_eq!("-i - 1", affine(-1, -1));
    assert_eq!("5 - i", affine(-1, 5));
}

#[test]
fn what_is_written_differently_and_means_the_same_words_is_equal() {
    let block = |size| simple(&[10], &[3], &[Pattern::Block(size)]).unwrap();
    assert_eq!(block(None), block(Some(4)));
    assert_ne!(block(None), block(Some(5)));
    let whole = |offset| {
        let align = Align { stride: 3, offset, extent: None };
        let mapping = Mapping { pattern: Pattern::Whole, axis: None, align };
        Distribution::new(vec![10], Grid::new(vec![3]).unwrap(), vec![mapping]).unwrap()
    };
    assert_eq!(whole(0), whole(5));
}

#[test]
fn impossible_distributions_are_refused() {
    let code = |shape: &[i64], grid: &[i64], patterns: &[Pattern]| {
        simple(shape, grid, patterns).unwrap_err().code()
    };
    assert_eq!("bad-distribution", code(&[10], &[3], &[Pattern::Block(Some(3))]));
    assert_eq!("bad-distribution", code(&[10], &[3], &[Pattern::Cyclic(0)]));
    assert_eq!("bad-distribution", code(&[10], &[3], &[Pattern::General(vec![5, 5])]));
    assert_eq!("bad-distribution", code(&[10], &[3], &[Pattern::General(vec![5, -1, 6])]));
    assert_eq!("bad-distribution", code(&[10], &[3], &[Pattern::General(vec![5, 0, 4])]));
    assert_eq!("too-large", code(&[10], &[2], &[Pattern::General(vec![i64::MAX; 2])]));
    assert_eq!("bad-distribution", code(&[10], &[3], &[]));
    assert_eq!("bad-distribution", code(&[-1], &[3], &[Pattern::Block(None)]));
    assert_eq!("bad-distribution", code(&[9, 9], &[3], &vec![Pattern::Block(None); 2]));
    let made = simple(&[10, 4], &[3], &[Pattern::Cyclic(2), Pattern::Whole]).unwrap();
    let ghosts = [Ghost { low: 1, high: 0 }, Ghost::default()];
    assert_eq!("bad-distribution", made.local_shape(0, &ghosts).unwrap_err().code());
    assert_eq!("bad-grid", made.local_shape(3, &[]).unwrap_err().code());
    assert_eq!("index-out-of-bounds", made.owner(&[10, 0]).unwrap_err().code());
    assert_eq!("index-out-of-bounds", made.owner(&[-1, 0]).unwrap_err().code());
    assert_eq!("bad-section", made.owner(&[1]).unwrap_err().code());
    assert_eq!("index-out-of-bounds", made.global_index(0, &[4, 0]).unwrap_err().code());
    let other = simple(&[10], &[3], &[Pattern::Block(None)]).unwrap();
    let (a, b) = (Parts::new(&made, &[], true).unwrap(), Parts::new(&other, &[], true).unwrap());
    assert_eq!("bad-distribution", exchange_plan(&a, &b, 0).unwrap_err().code());
}

#[test]
fn messages_have_few_sections_on_many_ranks() {
    let block = simple(&[1_000_000_000], &[102_400], &[Pattern::Block(None)]).unwrap();
    let cyclic = simple(&[1_000_000_000], &[102_400], &[Pattern::Cyclic(64)]).unwrap();
    let from = Parts::new(&block, &[], false).unwrap();
    let to = Parts::new(&cyclic, &[], true).unwrap();
    let plan = exchange_plan(&from, &to, 77_000).unwrap();
    // 9766 elements are 152 blocks of 64 and two ends; each peer gets one of them in one piece.
    assert_eq!((154, 154), (plan.sends.len(), plan.sends.iter().map(|c| c.sections.len()).sum()));
    let (from, to) =
        (Parts::new(&cyclic, &[], false).unwrap(), Parts::new(&block, &[], true).unwrap());
    let back = exchange_plan(&from, &to, 77_000).unwrap();
    assert!(back.receives.iter().all(|c| c.sections.len() == 1));
}

#[test]
fn who_has_a_copy_takes_his_own() {
    let grid = || Grid::new(vec![3, 2]).unwrap();
    let all = |axes: [Option<usize>; 1]| {
        let pattern = if axes[0].is_some() { Pattern::Block(None) } else { Pattern::Whole };
        let mapping = Mapping { pattern, axis: axes[0], align: Align::default() };
        Distribution::new(vec![12], grid(), vec![mapping]).unwrap()
    };
    let (copies, columns) = (all([None]), all([Some(1)]));
    let from = Parts::new(&copies, &[], false).unwrap();
    let to = Parts::new(&columns, &[], true).unwrap();
    for me in 0..6 {
        let plan = exchange_plan(&from, &to, me).unwrap();
        assert_eq!((0, 0, 1), (plan.sends.len(), plan.receives.len(), plan.own.len()));
        // Backwards: half of the elements are local, the other half comes from the neighbouring
        // rank, not all from rank 0.
        let (from, to) =
            (Parts::new(&columns, &[], false).unwrap(), Parts::new(&copies, &[], true).unwrap());
        let back = exchange_plan(&from, &to, me).unwrap();
        assert_eq!(vec![me ^ 1], back.receives.iter().map(|c| c.peer).collect::<Vec<_>>());
    }
}

#[test]
fn traffic_is_told_without_a_run() {
    let rows = simple(&[6, 4], &[3], &[Pattern::Block(None), Pattern::Whole]).unwrap();
    let ghosts = [Ghost { low: 1, high: 1 }, Ghost::default()];
    let owned = Parts::new(&rows, &ghosts, false).unwrap();
    let kept = Parts::new(&rows, &ghosts, true).unwrap();
    let update = exchange_plan(&owned, &kept, 1).unwrap();
    let told = "copy, 8 here; rounds: 1, elements in buffers: 16\n\
                to 0: 4: [1, 0:4]\nto 2: 4: [2, 0:4]\nfrom 0: 4: [0, 0:4]\nfrom 2: 4: [3, 0:4]";
    assert_eq!(told, update.to_string());
    let reverse = accumulate_plan(&owned, &kept, Operation::Add, 1, Some(2)).unwrap();
    let told = "add, 0 here; rounds: 4, elements in buffers: 6\n\
                to 0: 4 in rounds 0 to 1: [0, 0:2], [0, 2:4]\n\
                to 2: 4 in rounds 0 to 1: [3, 0:2], [3, 2:4]\n\
                from 0: 4 in rounds 0 to 1: [1, 0:2], [1, 2:4]\n\
                from 2: 4 in rounds 2 to 3: [2, 0:2], [2, 2:4]";
    assert_eq!(told, reverse.to_string());
}

#[test]
fn a_section_that_is_not_of_the_array_is_nowhere() {
    let made = simple(&[6], &[2], &[Pattern::Block(None)]).unwrap();
    let range = |start, count| Range::new(start, count, 1).unwrap();
    let outside = made.locate(&Section::new(vec![range(4, 3)]), &[]);
    assert!(matches!(outside, Err(PlanError::OutOfBounds { axis: 0, len: 6, .. })));
    let flat = made.locate(&Section::new(vec![range(0, 1), range(0, 1)]), &[]);
    assert!(matches!(flat, Err(PlanError::BadSection { .. })));
    assert_eq!(Ok(vec![]), made.locate(&Section::new(vec![range(0, 0)]), &[]));
}
