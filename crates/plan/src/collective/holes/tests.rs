use core::convert::Infallible;

use proptest::prelude::*;

use super::*;
use crate::collective::{Access, Agreed, ArrayDescriptor, Cut, Job, Share};
use crate::section::Range;

fn row(start: i64, count: i64, step: i64) -> Section {
    Section::new(vec![Range { start, count, step }])
}

/// A tile of 99 elements; the ranks write four parts of ten.
fn held(useful: i64) -> Held {
    let tile = Tile { array: 0, region: 0, section: row(0, 99, 1) };
    let parts = (0..4).map(|k| row(k, 10, 9)).collect();
    Held { section: tile.section.clone(), tile, elements: 99, useful, parts, encoded: false }
}

/// The way to write if reading the whole costs 40, writing it 60, and each part `part`.
fn way(held: &Held, part: i64, in_order: bool, exclusive: bool) -> Way {
    let price = |direction, section: &Section| {
        Ok::<_, Infallible>(match (direction, section.count().unwrap()) {
            (Direction::Read, 99) => 40,
            (Direction::Write, 99) => 60,
            _ => part,
        })
    };
    held.way(in_order, exclusive, price).unwrap()
}

#[test]
fn only_who_may_rewrites_and_only_where_it_is_cheaper() {
    for exclusive in [false, true] {
        for (part, cheaper) in [(10, false), (25, false), (30, true)] {
            let rewritten = |yes| if yes { Way::Rewritten } else { Way::InParts };
            assert_eq!(rewritten(cheaper), way(&held(40), part, false, exclusive));
            assert_eq!(rewritten(cheaper), way(&held(25), part, false, exclusive));
            // The ranks write less than a quarter: the holes belong to other programs, too.
            assert_eq!(rewritten(cheaper && exclusive), way(&held(24), part, false, exclusive));
        }
        let many = Held { parts: vec![row(0, 10, 9); 68], ..held(40) };
        assert_eq!(Way::Rewritten, way(&many, 0, false, exclusive));
    }
}

#[test]
fn what_is_given_whole_is_written_whole() {
    assert_eq!(Way::Whole, way(&held(99), 1000, false, false));
    // As many elements as the tile has, but possibly some of them twice.
    assert_eq!(Way::Rewritten, way(&held(99), 1000, true, false));
    let mut all = held(139);
    all.parts.push(row(0, 99, 1));
    assert_eq!(Way::Whole, way(&all, 1000, true, false));
    // Blocks are written as a whole, whatever the cost and the share of written elements.
    let encoded = Held { encoded: true, ..held(1) };
    assert_eq!(Way::Rewritten, way(&encoded, 0, false, false));
}

#[test]
fn parts_are_read_apart_where_that_is_cheaper_and_each_once() {
    let price = |part| {
        move |section: &Section| {
            Ok::<_, Infallible>(if section.count() == Ok(99) { 100 } else { part })
        }
    };
    let mut wanted = held(40);
    wanted.parts.push(row(0, 10, 9));
    let apart: Vec<Section> = wanted.reads(price(24)).unwrap().into_iter().cloned().collect();
    assert_eq!((0..4).map(|k| row(k, 10, 9)).collect::<Vec<_>>(), apart);
    let whole = vec![row(0, 99, 1)];
    let reads = |held: &Held, part| -> Vec<Section> {
        held.reads(price(part)).unwrap().into_iter().cloned().collect()
    };
    assert_eq!(whole, reads(&wanted, 25));
    assert_eq!(whole, reads(&Held { useful: 99, ..wanted.clone() }, 0));
    assert_eq!(whole, reads(&Held { encoded: true, ..wanted.clone() }, 0));
    assert_eq!(whole, reads(&Held { parts: vec![row(0, 10, 9); 68], ..wanted }, 0));
}

#[test]
fn what_cannot_be_priced_says_so() {
    assert_eq!(Err("gone"), held(40).way(false, false, |_, _| Err("gone")));
    assert_eq!(Err("gone"), held(40).reads(|_| Err("gone")).map(|_| ()));
}

/// `ranks` ranks write every `step`-th column of rows, from `owners` owners.
fn plan(ranks: u32, step: i64) -> Collective {
    let shape = [64, 96];
    let descriptor = ArrayDescriptor {
        shape: shape.to_vec(),
        item: 4,
        order: vec![0, 1],
        grain: vec![1, 1],
        encoded: false,
        lead: None,
    };
    let columns = |rank: u32| {
        let count = (shape[1] - i64::from(rank) + step - 1) / step;
        let columns = Range { start: rank.into(), count, step };
        Section::new(vec![Range { start: 0, count: shape[0], step: 1 }, columns])
    };
    let accesses = (0..ranks).map(|rank| Access { rank, item: 0, section: columns(rank) });
    let shares = (0..ranks).map(|rank| Share { rank, part: 1 }).collect();
    let job = Job { descriptor, accesses: accesses.collect(), shares };
    let agreed = Agreed {
        ranks,
        slot: 4096,
        gap: 1 << 20,
        align: 1,
        least: 1,
        cut: Cut::Requested,
        write: true,
    };
    Collective::new(vec![job], &agreed).unwrap()
}

#[test]
fn an_owner_pays_for_holes_too() {
    let cost = |step, exclusive| {
        let plan = plan(2, step);
        plan.owner_price(
            0,
            true,
            |_| exclusive,
            |_, direction, section| {
                let elements = section.count().unwrap();
                Ok::<_, ()>(Some(if direction == Direction::Read {
                    elements
                } else {
                    10 * elements
                }))
            },
        )
    };
    let (elements, written) =
        (|step: i64| 32 * (96 - step + 2), |step: i64| 32 * 10 * (96 - step + 2));
    // The written elements are adjacent: no holes.
    assert_eq!(written(2), cost(2, false));
    // The ranks write half: the rest is read first.
    assert_eq!(written(4) + elements(4), cost(4, false));
    // The ranks write an eighth: part by part, or, if no other process writes, as before.
    assert_eq!(written(16) + elements(16), cost(16, true));
    let (given, parts) = (32 * 12, 3 * 10 * 32 * 12);
    assert!(given * SPARSE < elements(16));
    assert_eq!(written(16).max(parts).max(written(16) + elements(16)), cost(16, false));
}

#[test]
fn what_has_no_price_counts_as_impossible_and_what_is_not_open_as_nothing() {
    let plan = plan(2, 2);
    assert_eq!(IMPOSSIBLE, plan.owner_price(0, true, |_| false, |_, _, _| Err(())));
    assert_eq!(0, plan.owner_price(0, true, |_| false, |_, _, _| Ok::<_, ()>(None)));
}

proptest! {
    /// Checks reads and written parts element by element.
    ///
    /// Reads must contain the requested elements, and written parts must be the given ones.
    #[test]
    fn reads_hold_all_parts(ranks in 1..5_u32, step in 1..9_i64, apart in any::<bool>()) {
        let step = step.max(ranks.into());
        let plan = plan(ranks, step);
        for owner in plan.owners() {
            for n in 0..plan.tiles(owner) {
                let Some(held) = plan.held_tile(owner, n) else { continue };
                let price = |section: &Section| {
                    Ok::<_, Infallible>(i64::from((*section == held.section) == apart))
                };
                let reads = held.reads(price).unwrap();
                for row in 0..64 {
                    for column in 0..96 {
                        let at = Section::new(vec![
                            Range { start: row, count: 1, step: 1 },
                            Range { start: column, count: 1, step: 1 },
                        ]);
                        let has = |section: &Section| section.intersect(&at).is_some();
                        let wanted = held.parts.iter().any(has);
                        prop_assert!(!wanted || reads.iter().any(|section| has(section)));
                        prop_assert!(!wanted || has(&held.section));
                    }
                }
            }
        }
    }
}
