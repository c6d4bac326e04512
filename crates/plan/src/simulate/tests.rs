//! Small machines computed by hand, and invariants of all machines.

use alloc::collections::BTreeSet;

use proptest::prelude::*;

use super::exchange::Exchanges;
use super::{alone, together, Machine, Manner, Price, EVENTS};
use crate::collective::{Access, Agreed, ArrayDescriptor, Collective, Cut, Job, Share};
use crate::section::{Range, Section};

/// One server with round costs.
///
/// A request costs 1000 ns and 1 ns per byte, a block from the disk 10 000 ns more, a seek 100 000
/// ns.
fn machine() -> Machine {
    Machine {
        servers: 1,
        stripe: 64,
        block: 64,
        request_ns: 1_000,
        memory_rate: 1_000_000_000,
        block_ns: 10_000,
        seek_ns: 100_000,
        streams: 1,
        disk_rate: 1_000_000_000,
        write_rate: 500_000_000,
        write_seek_ns: 0,
        client_ns: 7,
        depth: 1,
        write_depth: 1,
        message_ns: 50,
        message_rate: 1_000_000_000,
        copy_rate: 1_000_000_000,
        per_node: 1,
        call_ns: 0,
    }
}

const RUNS: Manner = Manner {
    gap: 0,
    most: 1 << 20,
    extent: false,
    sparse: 0,
    price: None,
    leaves_out: true,
    slots: 2,
};

/// The descriptor of an array of bytes in C order.
fn descriptor(shape: &[i64]) -> ArrayDescriptor {
    let order = (0..shape.len()).collect();
    ArrayDescriptor {
        shape: shape.to_vec(),
        item: 1,
        order,
        grain: vec![1; shape.len()],
        encoded: false,
        lead: None,
    }
}

fn section(ranges: &[(i64, i64, i64)]) -> Section {
    Section::new(ranges.iter().map(|(a, n, s)| Range::new(*a, *n, *s).unwrap()).collect())
}

/// The sections of one array that each rank requests.
fn job(shape: &[i64], sections: &[Section]) -> Job {
    let access = |(rank, section): (usize, &Section)| Access {
        rank: rank as u32,
        item: 0,
        section: section.clone(),
    };
    Job {
        descriptor: descriptor(shape),
        accesses: sections.iter().enumerate().map(access).collect(),
        shares: (0..sections.len() as u32).map(|rank| Share { rank, part: 1 }).collect(),
    }
}

fn agreed(ranks: usize, slot: i64) -> Agreed {
    Agreed {
        ranks: ranks as u32,
        slot,
        gap: 1 << 40,
        align: 1,
        least: 1,
        cut: Cut::Bounding,
        write: false,
    }
}

#[test]
fn two_ranks_queue_at_one_disk() {
    // Each rank requests 64 bytes of a different block: the second waits until the first is served,
    // and its block continues the stream.
    let halves = [section(&[(0, 64, 1)]), section(&[(64, 64, 1)])];
    let first = 7 + 1_000 + 10_000 + 100_000 + 64;
    let second = first + 1_000 + 10_000 + 64;
    let outcome = alone(&[job(&[128], &halves)], 2, &machine(), &RUNS, false).unwrap();
    assert_eq!(second, outcome.ns);
    assert_eq!(second - 7, outcome.busiest_ns);
    assert_eq!((2, 128, 128, 2), (outcome.requests, outcome.bytes, outcome.useful, outcome.events));
    // With one server each, they do not wait for each other.
    let two = Machine { servers: 2, ..machine() };
    assert_eq!(first, alone(&[job(&[128], &halves)], 2, &two, &RUNS, false).unwrap().ns);
    // Writes do not read blocks.
    let write = alone(&[job(&[128], &halves)], 2, &machine(), &RUNS, true).unwrap();
    assert_eq!(7 + 2 * (1_000 + 128), write.ns);
}

#[test]
fn a_block_comes_from_the_disk_once() {
    // Each of two ranks makes four requests of a byte in one block: only one reads the disk.
    let some = section(&[(0, 4, 2)]);
    let outcome = alone(&[job(&[64], &[some.clone(), some])], 2, &machine(), &RUNS, false).unwrap();
    assert_eq!((8, 8), (outcome.requests, outcome.bytes));
    assert_eq!(8 * (1_000 + 1) + 110_000, outcome.busiest_ns);
}

#[test]
fn streams_are_followed_without_seeking() {
    // Ranks alternate between the two ends of a file: with a memory for two streams there are two
    // seeks in total.
    let ends = [section(&[(0, 256, 1)]), section(&[(512, 256, 1)])];
    let blocks = Manner { most: 64, ..RUNS };
    let ns = |streams| {
        let m = Machine { streams, ..machine() };
        alone(&[job(&[768], &ends)], 2, &m, &blocks, false).unwrap().busiest_ns
    };
    let each = 8 * (1_000 + 10_000 + 64);
    assert_eq!((each + 8 * 100_000, each + 2 * 100_000), (ns(1), ns(2)));
}

#[test]
fn a_rank_with_depth_does_not_wait_for_each_request() {
    let all = [section(&[(0, 4, 64)])];
    let many = Machine { servers: 4, depth: 4, ..machine() };
    let one = 1_000 + 10_000 + 100_000 + 1;
    assert_eq!(4 * 7 + one, alone(&[job(&[256], &all)], 1, &many, &RUNS, false).unwrap().ns);
    let serial = Machine { depth: 1, ..many };
    assert_eq!(4 * (7 + one), alone(&[job(&[256], &all)], 1, &serial, &RUNS, false).unwrap().ns);
}

#[test]
fn a_sieve_reads_from_the_first_to_the_last_byte() {
    let some = [section(&[(1, 5, 1), (2, 4, 3)])];
    let extent = Manner { extent: true, ..RUNS };
    let read = alone(&[job(&[8, 16], &some)], 1, &machine(), &extent, false).unwrap();
    assert_eq!((1, 4 * 16 + 10, 20), (read.requests, read.bytes, read.useful));
    // A write reads the extent first.
    let write = alone(&[job(&[8, 16], &some)], 1, &machine(), &extent, true).unwrap();
    assert_eq!((2, 2 * (4 * 16 + 10)), (write.requests, write.bytes));
}

#[test]
fn two_phases_by_hand() {
    // Two ranks each request every other byte of 128: each reads 64 consecutive bytes, and sends 32
    // of them.
    let turns = [section(&[(0, 64, 2)]), section(&[(1, 64, 2)])];
    let plan = Collective::new(vec![job(&[128], &turns)], &agreed(2, 64)).unwrap();
    let outcome = together(&plan, 2, &machine(), &RUNS, false).unwrap();
    let synchronisation = 50;
    // 11 words from each rank.
    let gathered = synchronisation + 2 * 11 * 8;
    let reading = 7 + (1_000 + 10_000 + 100_000 + 64) + (1_000 + 10_000 + 64);
    // Each rank sends one message and receives one, and copies 32 own bytes, 32 out and 32 in.
    let exchange = 2 * 50 + 96 + 32;
    assert_eq!((1, 2, 64), (plan.rounds(), outcome.messages, outcome.message_bytes));
    assert_eq!((2, 128, 128), (outcome.requests, outcome.bytes, outcome.useful));
    assert_eq!((reading, exchange), (outcome.io_ns, outcome.exchange_ns));
    assert_eq!(gathered + reading + synchronisation + exchange + synchronisation, outcome.ns);
    // On one node no messages are sent, and each rank copies its elements.
    let node = Machine { per_node: 2, ..machine() };
    let near = together(&plan, 2, &node, &RUNS, false).unwrap();
    assert_eq!((0, 64), (near.messages, near.exchange_ns));
}

#[test]
fn holes_are_read_before_they_are_written() {
    let some = [section(&[(0, 16, 4)]), section(&[(1, 16, 4)])];
    let dense = Manner { gap: 100, ..RUNS };
    let plan = Collective::new(vec![job(&[64], &some)], &agreed(2, 64)).unwrap();
    let outcome = together(&plan, 2, &machine(), &dense, true).unwrap();
    // The ranks write within 0..62: each owner has 30 bytes from its first to its last, read and
    // written.
    assert_eq!((32, 2 * 60), (outcome.useful, outcome.bytes));
    // If the ranks write everything, nothing is read.
    let turns = [section(&[(0, 32, 2)]), section(&[(1, 32, 2)])];
    let plan = Collective::new(vec![job(&[64], &turns)], &agreed(2, 64)).unwrap();
    assert_eq!(64, together(&plan, 2, &machine(), &dense, true).unwrap().bytes);
    // A sparse tile is written piece by piece.
    let little = [section(&[(0, 2, 20)]), section(&[(1, 2, 40)])];
    let pieces = Manner { sparse: 4, ..dense };
    let plan = Collective::new(vec![job(&[64], &little)], &agreed(2, 64)).unwrap();
    let bytes = |manner| together(&plan, 2, &machine(), manner, true).unwrap().bytes;
    // Bytes 0 and 20 with those between them, byte 1, and byte 41, which is all of the other tile.
    assert_eq!((21 + 1 + 1, 2 * 21 + 1), (bytes(&pieces), bytes(&dense)));
}

#[test]
fn holes_are_read_as_soon_as_their_slot_is_free() {
    // Six tiles with a hole each, on four servers round-robin. Reading or writing one takes 64 us,
    // an exchange 100 us.
    let ends = [section(&[(0, 6, 1), (0, 16, 1)]), section(&[(0, 6, 1), (48, 16, 1)])];
    let mut all = job(&[6, 64], &ends);
    all.shares = vec![Share { rank: 0, part: 1 }];
    let m = Machine {
        servers: 4,
        request_ns: 0,
        block_ns: 0,
        seek_ns: 0,
        client_ns: 0,
        message_ns: 0,
        memory_rate: 1_000_000,
        disk_rate: 1_000_000,
        write_rate: 1_000_000,
        copy_rate: 320_000,
        message_rate: 1 << 40,
        per_node: 2,
        ..machine()
    };
    let plan = Collective::new(vec![all], &agreed(2, 64)).unwrap();
    assert_eq!(6, plan.rounds());
    let run = |slots| together(&plan, 2, &m, &Manner { slots, ..RUNS }, true).unwrap();
    // With three slots the exchanges follow each other: before the first, a tile is read; after the
    // last, one is written. With two slots the third tile waits until the first is written and its
    // own holes are read, and so on.
    let (two, three) = (run(2), run(3));
    assert_eq!((784_000, 728_000), (two.ns, three.ns));
    assert_eq!((64_000 + 64_000, 600_000), (three.io_ns, three.exchange_ns));
    assert_eq!((12, 12 * 64), (three.requests, three.bytes));
    assert_eq!((12, 12 * 64), (two.requests, two.bytes));
}

#[test]
fn tiles_are_written_in_pieces_where_that_costs_less() {
    let dense = Manner { sparse: 4, ..RUNS };
    let price = Some(Price { request_ns: 100, device: 1_000_000_000, stream: 1_000_000_000 });
    let bytes = |parts: &[Section], manner| {
        let ranks = parts.len();
        let mut all = job(&[64], parts);
        all.shares = vec![Share { rank: 0, part: 1 }];
        let plan = Collective::new(vec![all], &agreed(ranks, 64)).unwrap();
        together(&plan, ranks as u32, &machine(), &manner, true).unwrap().bytes
    };
    // Two requests and 32 bytes, or two requests and 128 bytes; then four requests and 64 bytes.
    let two = [section(&[(0, 16, 1)]), section(&[(48, 16, 1)])];
    let four = [0, 16, 32, 48].map(|a| section(&[(a, if a == 48 { 16 } else { 14 }, 1)]));
    assert_eq!((32, 128), (bytes(&two, Manner { price, ..dense }), bytes(&two, dense)));
    assert_eq!((128, 128), (bytes(&four, Manner { price, ..dense }), bytes(&four, dense)));
}

#[test]
fn what_is_read_is_there_before_it_is_written() {
    // A window of two requests, with a deep queue.
    let deep = Machine { depth: 8, write_depth: 8, servers: 2, ..machine() };
    let some = [section(&[(0, 64, 2)])];
    let extent = Manner { extent: true, most: 64, ..RUNS };
    let both = alone(&[job(&[128], &some)], 1, &deep, &extent, true).unwrap();
    // Both servers read, then both write; the second request is issued a little later.
    let (read, write) = (1_000 + 10_000 + 100_000, 1_000);
    assert_eq!(2 * 7 + read + 63 + 2 * 7 + write + 2 * 63, both.ns);
}

#[test]
fn ranks_on_their_own_read_what_they_want_and_write_what_counts() {
    let halves = [section(&[(0, 48, 1)]), section(&[(16, 48, 1)])];
    let all = job(&[64], &halves);
    let run = |write| alone(core::slice::from_ref(&all), 2, &machine(), &RUNS, write).unwrap();
    assert_eq!((2, 96, 96), (run(false).requests, run(false).bytes, run(false).useful));
    // The lower rank skips the elements that the higher one writes.
    assert_eq!((2, 64, 96), (run(true).requests, run(true).bytes, run(true).useful));
    // In the papers it does not.
    let whole = Manner { leaves_out: false, ..RUNS };
    assert_eq!(96, alone(core::slice::from_ref(&all), 2, &machine(), &whole, true).unwrap().bytes);
}

#[test]
fn rounds_overlap_reading_and_exchange() {
    // One rank with four tiles on a machine where reading and copying take equally long: five steps.
    let all = [section(&[(0, 4, 1), (0, 64, 1)])];
    let even = Machine {
        request_ns: 0,
        client_ns: 0,
        block_ns: 0,
        seek_ns: 0,
        message_ns: 0,
        stripe: 256,
        block: 256,
        memory_rate: 1_000_000,
        disk_rate: 1_000_000,
        copy_rate: 1_000_000,
        message_rate: 1 << 40,
        ..machine()
    };
    let plan = Collective::new(vec![job(&[4, 64], &all)], &agreed(1, 64)).unwrap();
    assert_eq!(4, plan.rounds());
    let outcome = together(&plan, 1, &even, &RUNS, false).unwrap();
    assert_eq!(5 * 64_000, outcome.ns);
}

#[test]
fn groups_stand_for_all_requests() {
    // With more requests than events, totals do not change, and neither does the time of a busy
    // server.
    let rows = 4 * EVENTS;
    let every = [section(&[(0, rows, 1), (0, 1, 1)])];
    let shape = [rows, 128];
    let outcome = alone(&[job(&shape, &every)], 1, &machine(), &RUNS, false).unwrap();
    assert_eq!((rows, rows), (outcome.requests, outcome.bytes));
    assert!(outcome.events <= EVENTS, "{outcome:?}");
    // Each request is in a different block, and continues no stream.
    let each = 1_000 + 10_000 + 100_000 + 1;
    assert_eq!(rows * each, outcome.busiest_ns);
    assert_eq!(rows * (each + 7), outcome.ns);
    // With 7 servers, each gets nearly a seventh.
    let many = Machine { servers: 7, ..machine() };
    let spread = alone(&[job(&shape, &every)], 1, &many, &RUNS, false).unwrap();
    let fair = rows * each / 7;
    assert!((fair..fair + fair / 50).contains(&spread.busiest_ns), "{spread:?} {fair}");
}

#[test]
fn a_hundred_thousand_ranks_are_a_bounded_number_of_events() {
    let ranks = 100_000_i64;
    let columns: Vec<Section> =
        (0..ranks).map(|rank| section(&[(0, 256, 1), (8 * rank, 8, 1)])).collect();
    let all = job(&[256, 8 * ranks], &columns);
    let m = Machine { servers: 64, stripe: 1 << 20, block: 1 << 16, per_node: 100, ..machine() };
    let direct = alone(core::slice::from_ref(&all), ranks as u32, &m, &RUNS, false).unwrap();
    assert_eq!(256 * ranks, direct.requests);
    assert!(direct.events <= EVENTS + ranks, "{direct:?}");
    let agreed = Agreed { ranks: ranks as u32, ..agreed(1, 8 << 20) };
    let plan = Collective::new(vec![all], &agreed).unwrap();
    let both = together(&plan, ranks as u32, &m, &RUNS, false).unwrap();
    assert_eq!((256 * 8 * ranks, 256 * 8 * ranks), (both.useful, both.bytes));
    assert!(both.events < 10 * ranks, "{both:?}");
}

#[test]
fn machines_that_are_none_are_refused() {
    let all = [section(&[(0, 4, 1)])];
    for wrong in [
        Machine { servers: 0, ..machine() },
        Machine { block: 63, ..machine() },
        Machine { disk_rate: 0, ..machine() },
        Machine { seek_ns: -1, ..machine() },
        Machine { streams: 0, ..machine() },
    ] {
        let found = alone(&[job(&[4], &all)], 1, &wrong, &RUNS, false);
        assert_eq!("bad-machine", found.unwrap_err().code());
    }
    let far = Job { descriptor: descriptor(&[1 << 50]), ..job(&[4], &all) };
    assert_eq!("too-large", alone(&[far], 1, &machine(), &RUNS, false).unwrap_err().code());
}

#[test]
fn a_clock_that_is_too_small_stands_still() {
    let slow = Machine {
        request_ns: (1 << 40) - 1,
        block_ns: (1 << 40) - 1,
        disk_rate: 1,
        memory_rate: 1,
        client_ns: (1 << 40) - 1,
        message_ns: (1 << 40) - 1,
        message_rate: 1,
        copy_rate: 1,
        ..machine()
    };
    let halves =
        [section(&[(0, 1 << 23, 1), (0, 64, 1)]), section(&[(0, 1 << 23, 1), (64, 64, 1)])];
    let all = job(&[1 << 23, 128], &halves);
    assert_eq!(i64::MAX, alone(core::slice::from_ref(&all), 2, &slow, &RUNS, false).unwrap().ns);
    let plan = Collective::new(vec![all], &agreed(2, 1 << 23)).unwrap();
    for write in [false, true] {
        let outcome = together(&plan, 2, &slow, &RUNS, write).unwrap();
        assert!(outcome.ns > 1 << 60, "{outcome:?}");
    }
}

fn range(len: i64) -> impl Strategy<Value = Range> {
    (0..len, 1..=len, 1..3_i64)
        .prop_map(move |(a, n, s)| Range::new(a, n.min((len - a + s - 1) / s), s).unwrap())
}

fn blocks(rows: i64, columns: i64) -> impl Strategy<Value = Vec<Section>> {
    let one = (range(rows), range(columns)).prop_map(|(a, b)| Section::new(vec![a, b]));
    prop::collection::vec(one, 1..9)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Checks bytes, times and messages on any machine.
    ///
    /// The bytes moved must be those of the plans, no access may be faster than a server allows,
    /// and every byte requested by another rank must be sent once.
    #[test]
    fn bytes_are_kept(
        sections in blocks(9, 40), servers in 1..5_u32, slot in 16..400_i64, depth in 1..4_u32,
        per_node in 1..4_u32, write in any::<bool>(),
    ) {
        let ranks = sections.len();
        let all = job(&[9, 40], &sections);
        let m = Machine { servers, depth, write_depth: depth, per_node, ..machine() };
        let wanted: i64 = sections.iter().map(|s| s.count().unwrap()).sum();
        let direct = alone(core::slice::from_ref(&all), ranks as u32, &m, &RUNS, write).unwrap();
        let given: BTreeSet<_> = sections.iter().flat_map(Section::indices).collect();
        // Unless accesses are too entangled to be separated, each element is written once.
        let whole = Agreed { write: true, ..agreed(ranks, 1 << 20) };
        let apart = !Collective::new(vec![all.clone()], &whole).unwrap().in_order();
        let moved = if write && apart { given.len() as i64 } else { wanted };
        prop_assert_eq!((moved, wanted), (direct.bytes, direct.useful));
        prop_assert!(direct.ns >= direct.busiest_ns);
        let plan = Collective::new(vec![all], &agreed(ranks, slot)).unwrap();
        let both = together(&plan, ranks as u32, &m, &RUNS, write).unwrap();
        prop_assert_eq!((wanted, plan.rounds()), (both.useful, both.rounds));
        prop_assert!(both.ns >= both.busiest_ns && both.ns >= both.exchange_ns);
        let mut sent = 0;
        for owner in plan.owners() {
            for k in 0..plan.tiles(owner) {
                let tile = plan.tile(owner, k).unwrap();
                for piece in plan.table(&tile) {
                    let rank = plan.job(0).unwrap().accesses[piece.access as usize].rank;
                    if rank / per_node != owner / per_node {
                        sent += piece.section.count().unwrap();
                    }
                }
            }
        }
        prop_assert_eq!(sent, both.message_bytes);
    }

    /// Checks that sums and tables agree, for rows, columns and grids.
    #[test]
    fn sums_are_those_of_tables(
        rows in prop::collection::vec((0..30_i64, 1..20_i64), 1..9), turned in any::<bool>(),
        slot in 8..200_i64, write in any::<bool>(),
    ) {
        let (shape, sections): (_, Vec<Section>) = if turned {
            let own = |(a, n): &(i64, i64)| section(&[(0, 8, 1), (*a, (*n).min(30 - a), 1)]);
            ([8, 30], rows.iter().map(own).collect())
        } else {
            let own = |(a, n): &(i64, i64)| section(&[(*a, (*n).min(30 - a), 1), (0, 8, 1)]);
            ([30, 8], rows.iter().map(own).collect())
        };
        agree(&shape, &sections, slot, write)?;
    }

    #[test]
    fn sums_are_those_of_tables_of_grids(
        down in 1..5_i64, across in 1..5_i64, high in 1..5_i64, wide in 1..9_i64,
        slot in 4..200_i64, write in any::<bool>(),
    ) {
        let block = |k: i64| {
            let (i, j) = (k / across, k % across);
            section(&[(high * i, high, 1), (wide * j, wide, 1)])
        };
        let sections: Vec<Section> = (0..down * across).map(block).collect();
        agree(&[high * down, wide * across], &sections, slot, write)?;
    }
}

/// Compares the loads of each round computed from sums and from tables.
fn agree(shape: &[i64], sections: &[Section], slot: i64, write: bool) -> Result<(), TestCaseError> {
    let ranks = sections.len();
    let plan = Collective::new(vec![job(shape, sections)], &agreed(ranks, slot)).unwrap();
    let exact = Exchanges::new(&plan, ranks as u32);
    let summed = Exchanges::always_summed(&plan, ranks as u32);
    for k in 0..plan.rounds() {
        let (tables, a) = exact.round(k, write, &machine(), &RUNS);
        let (sums, b) = summed.round(k, write, &machine(), &RUNS);
        let owners = |list: &[super::exchange::Needed]| -> Vec<u32> {
            list.iter().map(|n| n.owner).collect()
        };
        prop_assert_eq!(owners(&tables), owners(&sums));
        // Sums include the bytes that a rank has in its own tile; tables do not, so add them.
        let (mut packets, mut bytes) = (0, 0);
        for owner in plan.owners() {
            let tiles = plan.batch(owner, k).filter_map(|n| plan.tile(owner, n));
            for piece in tiles.flat_map(|tile| plan.table(&tile)) {
                packets += 1;
                bytes += piece.section.count().unwrap();
            }
        }
        prop_assert!(a.messages <= packets);
        // Rounded for each owner.
        prop_assert!((bytes - b.bytes).abs() <= ranks as i64, "{} {}", bytes, b.bytes);
        prop_assert_eq!(packets, b.messages);
    }
    Ok(())
}
