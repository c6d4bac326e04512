use alloc::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::collective::{Access, Agreed, ArrayDescriptor, Cut, Job, Share};
use crate::section::{Range, Section};

const SHAPE: [i64; 2] = [24, 60];

/// A plan of ranks that request the given rows and columns: start, count, step of each.
fn plan(wanted: &[Vec<(i64, i64, i64, i64)>], write: bool, slot: i64) -> Collective {
    let descriptor = ArrayDescriptor {
        shape: SHAPE.to_vec(),
        item: 4,
        order: vec![0, 1],
        grain: vec![1, 1],
        encoded: false,
        lead: None,
    };
    let mut accesses = Vec::new();
    for (rank, items) in wanted.iter().enumerate() {
        for (item, (row, rows, column, step)) in items.iter().enumerate() {
            let columns = (SHAPE[1] - column + step - 1) / step;
            let section = Section::new(vec![
                Range { start: *row, count: (*rows).min(SHAPE[0] - row), step: 1 },
                Range { start: *column, count: columns, step: *step },
            ]);
            accesses.push(Access { rank: rank as u32, item: item as u32, section });
        }
    }
    let shares = (0..wanted.len() as u32).map(|rank| Share { rank, part: 1 }).collect();
    let agreed = Agreed {
        ranks: wanted.len() as u32,
        slot,
        gap: 64,
        align: 1,
        least: 1,
        cut: Cut::Requested,
        write,
    };
    Collective::new(vec![Job { descriptor, accesses, shares }], &agreed).unwrap()
}

/// The messages of every rank in a round if all data goes by messages.
fn all(plan: &Collective, ranks: usize, k: i64, write: bool) -> Vec<Messages> {
    let everybody: Vec<u32> = (0..ranks as u32).collect();
    let owners: Vec<u32> =
        plan.owners().filter(|owner| !plan.batch(*owner, k).is_empty()).collect();
    let of = |me: u32| {
        let owns = owners.contains(&me);
        Messages::new(
            plan,
            k,
            &Peers { ranks, me, owns, partners: &everybody, owners: &owners },
            write,
        )
    };
    everybody.iter().map(|me| of(*me)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Checks that all data is sent once, in parts that fit and that both ends know.
    ///
    /// If the order matters, lower ranks must come first.
    #[test]
    fn every_byte_is_sent_once_and_awaited(
        wanted in prop::collection::vec(
            prop::collection::vec((0..20_i64, 1..24_i64, 0..4_i64, 1..5_i64), 0..4),
            1..6,
        ),
        write in any::<bool>(),
        slot in 80..400_i64,
    ) {
        let ranks = wanted.len();
        prop_assume!(wanted.iter().any(|items| !items.is_empty()));
        let plan = plan(&wanted, write, slot);
        for k in 0..plan.rounds() {
            let messages = all(&plan, ranks, k, write);
            let need = messages.iter().map(Messages::need).max().unwrap();
            let mut moved: BTreeMap<(usize, usize), i64> = BTreeMap::new();
            let mut first_part: BTreeMap<(usize, usize), usize> = BTreeMap::new();
            for number in 0.. {
                let parts: Vec<_> = messages.iter().map(|one| one.part(need, number)).collect();
                if parts[0].is_none() {
                    prop_assert!(parts.iter().all(Option::is_none));
                    break;
                }
                for (me, part) in parts.iter().enumerate() {
                    let part = part.as_ref().unwrap();
                    let bytes: i64 = part.sent.iter().chain(&part.received).sum();
                    prop_assert!(bytes <= messages[me].largest(need));
                    for (other, bytes) in part.sent.iter().enumerate() {
                        let there = parts[other].as_ref().unwrap();
                        prop_assert_eq!(*bytes, there.received[me]);
                        prop_assert_eq!(part.packet, there.packet);
                        *moved.entry((me, other)).or_default() += bytes;
                        if *bytes > 0 {
                            first_part.entry((me, other)).or_insert(number);
                        }
                    }
                }
            }
            for one in &messages {
                // A packet is at most a slot; one is sent and one is received.
                prop_assert!(one.largest(need) <= 2 * plan.slot_bytes());
            }
            for owner in plan.owners() {
                let counts = plan.bytes_by_rank(owner, k, ranks);
                for (rank, bytes) in counts.iter().enumerate() {
                    let pair = if write { (rank, owner as usize) } else { (owner as usize, rank) };
                    prop_assert_eq!(*bytes, moved.get(&pair).copied().unwrap_or(0));
                }
                if write && plan.in_order() {
                    let came: Vec<usize> =
                        (0..ranks).filter_map(|r| first_part.get(&(r, owner as usize)).copied()).collect();
                    prop_assert!(came.windows(2).all(|two| two[0] <= two[1]));
                }
            }
        }
    }
}

#[test]
fn a_message_larger_than_a_slot_goes_in_packets() {
    // One rank requests the whole array five times.
    let plan = plan(&[vec![(0, 24, 0, 1); 5], vec![(0, 24, 0, 1)]], false, 600);
    let messages = all(&plan, 2, 0, false);
    let need = messages.iter().map(Messages::need).max().unwrap();
    let part = messages[0].part(need, 0).unwrap();
    assert_eq!(Some(0), part.packet);
    assert!(part.sent.iter().all(|bytes| *bytes <= plan.slot_bytes()));
    let packets = plan.packets(0, 0, 0, plan.slot_bytes());
    assert!(packets.len() > 1 && packets.iter().sum::<i64>() == plan.bytes_by_rank(0, 0, 2)[0]);
}

#[test]
fn planning_the_messages_of_many_ranks_takes_a_line_for_each() {
    let wanted: Vec<_> = (0..1000).map(|rank| vec![(rank % 24, 1, 0, 1)]).collect();
    let plan = plan(&wanted, false, 400);
    let one = Messages::new(
        &plan,
        0,
        &Peers { ranks: 1000, me: 0, owns: true, partners: &[1, 2], owners: &[1] },
        false,
    );
    assert_eq!(1000, one.part(one.need(), 0).unwrap().sent.len());
}

#[test]
fn where_the_order_counts_lower_ranks_come_first() {
    // The remainder of all columns without these has too many parts to be cut.
    let apart: Vec<_> = (0..20).map(|k| (0, 24, 3 * k, 60)).collect();
    let mut wanted = vec![vec![(0, 24, 0, 1)]];
    wanted.extend((1..5).map(|_| apart.clone()));
    let plan = plan(&wanted, true, 400);
    assert!(plan.in_order());
    for k in 0..plan.rounds() {
        let messages = all(&plan, 5, k, true);
        // As narrow as possible: each pair has a separate part.
        let need = messages[0].halvings;
        for owner in plan.owners().filter(|owner| !plan.batch(*owner, k).is_empty()) {
            let mut came = Vec::new();
            for number in 0.. {
                let Some(part) = messages[owner as usize].part(need, number) else { break };
                came.extend((0..5).filter(|rank| part.received[*rank] > 0));
            }
            assert_eq!(vec![0, 1, 2, 3, 4], came, "owner {owner}");
        }
    }
}
