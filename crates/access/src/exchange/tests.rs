use outcore_plan::collective::{Access, ArrayDescriptor};
use outcore_plan::Section;

use super::*;
use crate::testing::{collective, section};

const SHAPE: [i64; 2] = [24, 30];
const RANKS: u32 = 3;

/// Rank `rank` requests every `RANKS + 1`-th column, in rows from `rank` on.
fn wanted(rank: u32) -> Section {
    let rank = i64::from(rank);
    section(&[(rank, SHAPE[0] - rank, 1), (rank, (SHAPE[1] - rank + 3) / 4, 4)])
}

fn plan(write: bool) -> Collective {
    plan_of(write, 1)
}

/// Each rank requests its section `times` times.
fn plan_of(write: bool, times: u32) -> Collective {
    let descriptor = ArrayDescriptor {
        shape: SHAPE.to_vec(),
        item: 1,
        order: vec![1, 0],
        grain: vec![1, 1],
        encoded: false,
        lead: None,
    };
    let access = |n| Access { rank: n / times, item: n % times, section: wanted(n / times) };
    collective(descriptor, RANKS, (0..RANKS * times).map(access).collect(), 64, write)
}

/// Value of an element of the array.
fn element(row: i64, column: i64) -> u8 {
    (row * SHAPE[1] + column) as u8
}

/// Expected content of the array of a rank after a read.
fn expected(rank: u32) -> Vec<u8> {
    let section = wanted(rank);
    let (rows, columns) = (section.ranges()[0], section.ranges()[1]);
    let of_row =
        |i| (0..columns.count).map(move |j| (rows.start + i, columns.start + j * columns.step));
    (0..rows.count).flat_map(of_row).map(|(row, column)| element(row, column)).collect()
}

/// The slot of an owner in a round, with the elements that it reads.
fn slot_of(plan: &Collective, owner: u32, k: i64) -> Vec<u8> {
    let mut slot = vec![255; plan.slot_bytes() as usize];
    for n in plan.batch(owner, k) {
        let tile = plan.tile(owner, n).unwrap();
        let strides = slot::packed(&tile.section, &[1, 0], 1);
        let (rows, columns) = (tile.section.ranges()[0], tile.section.ranges()[1]);
        for i in 0..rows.count {
            for j in 0..columns.count {
                let at = plan.place(owner, n) + i * strides[0] + j * strides[1];
                let (row, column) = (rows.start + i * rows.step, columns.start + j * columns.step);
                slot[at as usize] = element(row, column);
            }
        }
    }
    slot
}

fn array<'a>(rank: u32, memory: &'a mut [u8]) -> UserArray<'a> {
    let shape = wanted(rank).shape();
    UserArray { data: User::of(memory, 0), strides: vec![shape[1], 1], shape, item: 1 }
}

fn exchange(plan: &Collective, k: i64, write: bool) -> Exchange<'_> {
    let direction = if write { Direction::Write } else { Direction::Read };
    Exchange { plan, k, direction, packet: None }
}

#[test]
fn ranks_get_what_they_want_from_slots_and_from_messages() {
    let plan = plan(false);
    for by_messages in [false, true] {
        for rank in 0..RANKS {
            let mut memory = vec![0; expected(rank).len()];
            let mut moved = 0;
            for k in 0..plan.rounds() {
                let round = exchange(&plan, k, false);
                for owner in plan.owners() {
                    let mut slot = slot_of(&plan, owner, k);
                    let place = User::of(&mut slot, 0);
                    let arrays = [array(rank, &mut memory)];
                    if by_messages {
                        let mut buffer = vec![0; 2 * plan.slot_bytes() as usize];
                        let packed = User::of(&mut buffer, 0);
                        // After the message of another rank.
                        let all = round.pack(owner, place, &[0, rank], packed).unwrap();
                        let first = round.pack(owner, place, &[0], packed).unwrap();
                        assert_eq!(all, round.pack(owner, place, &[0, rank], packed).unwrap());
                        let there = packed.shifted(first as i64);
                        let got = round.unpack(rank, &[owner], there, &arrays).unwrap();
                        assert_eq!(all - first, got);
                        moved += got;
                    } else {
                        moved += round.copy(rank, &[(owner, place)], &arrays).unwrap();
                    }
                }
            }
            assert_eq!(expected(rank), memory);
            assert_eq!(memory.len(), moved);
        }
    }
}

#[test]
fn what_ranks_give_lies_in_slots_as_it_would_be_read() {
    let plan = plan(true);
    for k in 0..plan.rounds() {
        let round = exchange(&plan, k, true);
        for owner in plan.owners() {
            let (full, mut near, mut far) = (
                slot_of(&plan, owner, k),
                vec![255; plan.slot_bytes() as usize],
                vec![255; plan.slot_bytes() as usize],
            );
            for rank in 0..RANKS {
                let mut memory = expected(rank);
                let arrays = [array(rank, &mut memory)];
                let given = round.copy(rank, &[(owner, User::of(&mut near, 0))], &arrays).unwrap();
                let mut buffer = vec![0; plan.slot_bytes() as usize];
                let packed = User::of(&mut buffer, 0);
                assert_eq!(given, round.unpack(rank, &[owner], packed, &arrays).unwrap());
                let place = User::of(&mut far, 0);
                assert_eq!(given, round.pack(owner, place, &[rank], packed).unwrap());
            }
            assert_eq!(near, far);
            // Only the received parts were written, and their values are correct.
            assert!(near.iter().zip(&full).all(|(one, all)| one == all || *one == 255));
            let given = (0..RANKS).map(|rank| plan.bytes_by_rank(owner, k, 3)[rank as usize]);
            assert!(near.iter().filter(|byte| **byte != 255).count() as i64 <= given.sum());
        }
    }
}

#[test]
fn packets_are_the_message_in_parts() {
    let plan = plan_of(false, 4);
    let mut slot = slot_of(&plan, 0, 0);
    let place = User::of(&mut slot, 0);
    let most = 30;
    let number = plan.packets(0, 0, 1, most).len();
    assert!(number > 1);
    let mut memory = vec![vec![0; expected(1).len()]; 4];
    let mut sum = 0;
    for packet in 0..number {
        let round = Exchange { packet: Some((packet, most)), ..exchange(&plan, 0, false) };
        let mut buffer = vec![0; 4 * plan.slot_bytes() as usize];
        let packed = User::of(&mut buffer, 0);
        let bytes = round.pack(0, place, &[1], packed).unwrap();
        assert_eq!(plan.packets(0, 0, 1, most)[packet], bytes as i64);
        let arrays: Vec<UserArray> = memory.iter_mut().map(|one| array(1, one)).collect();
        assert_eq!(bytes, round.unpack(1, &[0], packed, &arrays).unwrap());
        sum += bytes as i64;
    }
    assert_eq!(plan.bytes_by_rank(0, 0, 3)[1], sum);
    let mut got = 0;
    for one in &memory {
        let there = |(byte, right): &(&u8, u8)| **byte != 0 && **byte == *right;
        got += one.iter().zip(expected(1)).filter(there).count() as i64;
    }
    // Element 0 of the array is 0, its old value.
    assert!(got == sum || got == sum - 4, "{got} {sum}");
}

#[test]
fn nothing_outside_of_the_memory_is_touched() {
    let plan = plan(false);
    let round = exchange(&plan, 0, false);
    let mut slot = slot_of(&plan, 0, 0);
    let place = User::of(&mut slot, 0);
    let mut memory = vec![0; expected(0).len()];
    let arrays = [array(0, &mut memory)];
    let mut short = vec![0; 3];
    let short = User::of(&mut short, 0);
    assert!(round.copy(0, &[(0, short)], &arrays).is_err());
    assert!(round.pack(0, place, &[0], short).is_err());
    assert!(round.pack(0, short, &[0], place).is_err());
    assert!(round.unpack(0, &[0], short, &arrays).is_err());
    let cut = [UserArray { data: short, ..arrays[0].clone() }];
    assert!(round.copy(0, &[(0, place)], &cut).is_err());
    // An array of another shape or type does not match the access.
    let other = [UserArray { shape: vec![1, 1], ..arrays[0].clone() }];
    assert!(round.copy(0, &[(0, place)], &other).is_err());
    let other = [UserArray { item: 2, ..arrays[0].clone() }];
    assert!(round.copy(0, &[(0, place)], &other).is_err());
    assert!(round.copy(0, &[(0, place)], &[]).is_err());
}
