//! Comparison of collective plans with an enumeration of elements.
//!
//! Ranks, arrays, accesses and slots are random.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};

use outcore_plan::collective::{
    leave_out, overlap, regions, Access, Agreed, ArrayDescriptor, Collective, Cut, Job, Left,
    Overlap, Region, Share, Wanted,
};
use outcore_plan::{Range, Section};
use proptest::prelude::*;

fn range(len: i64) -> impl Strategy<Value = Range> {
    (0..=len, 0..=len, 1..5_i64).prop_map(move |(a, b, step)| {
        let (low, high) = (a.min(b), a.max(b));
        Range::new(low, (high - low + step - 1) / step, step).unwrap()
    })
}

fn section(shape: Vec<i64>) -> impl Strategy<Value = Section> {
    shape.into_iter().map(range).collect::<Vec<_>>().prop_map(Section::new)
}

fn descriptor() -> impl Strategy<Value = ArrayDescriptor> {
    let lead = prop::option::of((0..4096_i64).prop_map(|lead| lead & -16));
    (prop::collection::vec(0..14_i64, 0..4), 1..9_i64, any::<bool>(), lead).prop_flat_map(
        |(shape, item, encoded, lead)| {
            let n = shape.len();
            let order = Just((0..n).collect::<Vec<_>>()).prop_shuffle();
            let most: i64 = if encoded { 5 } else { 3 };
            (order, prop::collection::vec(1..most, n)).prop_map(move |(order, grain)| {
                ArrayDescriptor {
                    shape: shape.clone(),
                    item,
                    order,
                    grain,
                    encoded,
                    lead: lead.filter(|_| !encoded),
                }
            })
        },
    )
}

fn job(ranks: u32) -> impl Strategy<Value = Job> {
    descriptor().prop_flat_map(move |descriptor| {
        let one = (0..ranks, section(descriptor.shape.clone()));
        let shares = prop::collection::vec((0..ranks, 0..4_i64), 1..=ranks as usize);
        (prop::collection::vec(one, 0..12), shares, Just(descriptor)).prop_map(
            |(list, shares, descriptor)| {
                let mut accesses: Vec<Access> = list
                    .into_iter()
                    .enumerate()
                    .map(|(k, (rank, section))| Access { rank, item: k as u32, section })
                    .collect();
                accesses.sort_by_key(|a| a.rank);
                let share = |(rank, part)| Share { rank, part };
                Job { descriptor, accesses, shares: shares.into_iter().map(share).collect() }
            },
        )
    })
}

fn cut() -> impl Strategy<Value = Cut> {
    prop_oneof![Just(Cut::Fixed), Just(Cut::Bounding), Just(Cut::Requested), Just(Cut::Cyclic)]
}

fn case() -> impl Strategy<Value = (Vec<Job>, Agreed)> {
    (1..7_u32).prop_flat_map(|ranks| {
        let jobs = prop::collection::vec(job(ranks), 1..3);
        // A block of an encoded array has at most 4 * 4 * 4 elements of 8 bytes.
        let slot = prop_oneof![512..2000_i64, 65_536..80_000_i64];
        let sizes = (slot, 0..300_i64, 0..64_i64, 1..300_i64, cut(), any::<bool>());
        (jobs, sizes).prop_map(move |(jobs, (slot, gap, align, least, cut, write))| {
            (jobs, Agreed { ranks, slot, gap, align, least, cut, write })
        })
    })
}

/// Number of elements of the array before the first one of a section, in the order of the file.
fn linear(descriptor: &ArrayDescriptor, section: &Section) -> i64 {
    let step = |at, axis: &usize| at * descriptor.shape[*axis] + section.ranges()[*axis].start;
    descriptor.order.iter().fold(0, step)
}

/// Coordinates of the block of an element.
fn block(descriptor: &ArrayDescriptor, index: &[i64]) -> Vec<i64> {
    index.iter().zip(&descriptor.grain).map(|(i, g)| i / g).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_element_asked_for_is_in_one_tile((jobs, agreed) in case()) {
        let plan = Collective::new(jobs.clone(), &agreed).unwrap();
        prop_assert!(plan.slot_bytes() <= agreed.slot);
        // Array and element, and the tile that contains it.
        let mut held: BTreeMap<(u32, Vec<i64>), (u32, i64)> = BTreeMap::new();
        let mut blocks: BTreeMap<(u32, Vec<i64>), (u32, i64)> = BTreeMap::new();
        let mut served: BTreeMap<(u32, u32), BTreeSet<Vec<i64>>> = BTreeMap::new();
        for owner in 0..agreed.ranks {
            prop_assert_eq!(None, plan.tile(owner, plan.tiles(owner)));
            // Batches are the tiles, one after another; tiles that share a slot do not overlap in
            // it.
            let (mut next, mut free) = (0, 0);
            for (round, batch) in (0..plan.rounds()).map(|k| (k, plan.batch(owner, k))) {
                prop_assert_eq!(next, batch.start);
                prop_assert!(!batch.is_empty() || next == plan.tiles(owner), "round {}", round);
                next = batch.end;
                for n in batch.clone() {
                    let tile = plan.tile(owner, n).unwrap();
                    let descriptor = &jobs[tile.array as usize].descriptor;
                    let item = descriptor.item;
                    let place = plan.place(owner, n);
                    let taken = if n == batch.start { 0 } else { free };
                    prop_assert!(place >= taken);
                    if let (Some(lead), true) = (descriptor.lead, agreed.slot >= 65_536) {
                        let begin = lead + linear(descriptor, &tile.section) * item;
                        prop_assert_eq!(begin % 4096, place % 4096);
                    }
                    free = place + tile.section.count().unwrap() * item;
                    prop_assert!(free <= plan.slot_bytes());
                }
            }
            prop_assert_eq!(next, plan.tiles(owner));
            for k in 0..plan.tiles(owner) {
                let tile = plan.tile(owner, k).unwrap();
                let descriptor = &jobs[tile.array as usize].descriptor;
                let count = tile.section.count().unwrap();
                prop_assert!(count > 0 && count * descriptor.item <= plan.slot_bytes());
                for index in tile.section.indices() {
                    if descriptor.encoded {
                        let of = blocks.entry((tile.array, block(descriptor, &index)));
                        prop_assert_eq!((owner, k), *of.or_insert((owner, k)));
                    }
                    prop_assert_eq!(None, held.insert((tile.array, index), (owner, k)));
                }
                let table = plan.table(&tile);
                let mut by_rank = Vec::new();
                for rank in 0..agreed.ranks {
                    by_rank.extend(plan.pieces(&tile, rank));
                }
                prop_assert_eq!(&by_rank, &table);
                for piece in table {
                    let got = served.entry((tile.array, piece.access)).or_default();
                    for index in piece.section.indices() {
                        prop_assert!(got.insert(index), "an element comes twice");
                    }
                }
            }
        }
        let last = plan.rounds() - 1;
        prop_assert!(last < 0 || (0..agreed.ranks).any(|owner| !plan.batch(owner, last).is_empty()));
        for (array, job) in jobs.iter().enumerate() {
            // Of two arrays, one may be cut and the other one written in order.
            let whole = regions(&job.descriptor, &job.accesses, agreed.gap);
            let left = leave_out(&job.descriptor, &job.accesses, &whole);
            let cut = agreed.write && matches!(left, Left::Parts(_));
            prop_assert!(!cut || plan.leaves_out());
            prop_assert!(!agreed.write || left != Left::Entangled || plan.in_order());
            for (k, access) in job.accesses.iter().enumerate() {
                let mut expected: BTreeSet<Vec<i64>> = access.section.indices().collect();
                if cut {
                    for later in &job.accesses[k + 1..] {
                        for index in later.section.indices() {
                            expected.remove(&index);
                        }
                    }
                }
                let got = served.remove(&(array as u32, k as u32)).unwrap_or_default();
                prop_assert_eq!(expected, got);
            }
        }
    }

    #[test]
    fn what_owners_need_holds_all_that_is_wanted((jobs, agreed) in case()) {
        let plan = Collective::new(jobs, &agreed).unwrap();
        let elements = |boxes: Vec<(u32, Section)>| -> BTreeSet<(u32, Vec<i64>)> {
            let each = |(array, section): (u32, Section)| section.indices().map(move |i| (array, i)).collect::<Vec<_>>();
            boxes.into_iter().flat_map(each).collect()
        };
        let needed_of = |rank| plan.needed(rank).into_iter().map(|(array, section, _)| (array, section));
        let needed = elements((0..agreed.ranks).flat_map(needed_of).collect());
        for owner in 0..agreed.ranks {
            prop_assert!(elements(needed_of(owner).collect()).is_subset(&elements(plan.parts(owner))));
            for tile in (0..plan.tiles(owner)).filter_map(|k| plan.tile(owner, k)) {
                for piece in plan.table(&tile) {
                    prop_assert!(piece.section.indices().all(|i| needed.contains(&(tile.array, i))));
                }
            }
        }
    }

    #[test]
    fn of_what_is_written_twice_the_last_one_counts(mut job in job(5), some in 2..12_usize) {
        job.accesses.truncate(some);
        let whole = regions(&job.descriptor, &job.accesses, 1 << 40);
        // The access that determines each element, and whether any element is written twice.
        let mut last: BTreeMap<Vec<i64>, u32> = BTreeMap::new();
        let mut twice = false;
        for (k, access) in job.accesses.iter().enumerate() {
            for index in access.section.indices() {
                twice |= last.insert(index, k as u32).is_some();
            }
        }
        match leave_out(&job.descriptor, &job.accesses, &whole) {
            Left::All => prop_assert!(!twice),
            Left::Entangled => prop_assert!(twice && job.accesses.len() > 1),
            Left::Unknown => prop_assert!(false, "so few pairs can be looked at"),
            Left::Parts(parts) => {
                prop_assert!(twice && parts.is_sorted_by_key(|(k, _)| *k));
                let mut got: BTreeMap<Vec<i64>, u32> = BTreeMap::new();
                for (k, part) in parts {
                    prop_assert!(!part.is_empty());
                    for range in part.ranges() {
                        prop_assert_eq!(Range::new(range.start, range.count, range.step), Ok(*range));
                    }
                    for index in part.indices() {
                        prop_assert_eq!(None, got.insert(index, k));
                    }
                }
                prop_assert_eq!(last, got);
            }
        }
    }

    #[test]
    fn regions_hold_their_members_and_are_apart(job in job(5), gap in 0..200_i64) {
        let found = regions(&job.descriptor, &job.accesses, gap);
        let mut seen = BTreeSet::new();
        for region in &found {
            for index in region.section.indices() {
                prop_assert!(seen.insert(index), "regions overlap");
            }
            for k in &region.members {
                let member = &job.accesses[*k as usize].section;
                prop_assert_eq!(Some(member.clone()), member.intersect(&region.section));
            }
            let mut elements = BTreeSet::new();
            let mut twice = false;
            for k in &region.members {
                for index in job.accesses[*k as usize].section.indices() {
                    twice |= !elements.insert(index);
                }
            }
            let expected = if twice { Overlap::Somewhere } else { Overlap::Never };
            prop_assert_eq!(expected, overlap(&job.descriptor, &job.accesses, region));
        }
        let members: Vec<u32> = found.iter().flat_map(|r| r.members.clone()).collect();
        let wanted = job.accesses.iter().filter(|a| !a.section.is_empty()).count();
        prop_assert_eq!(wanted, members.len());
    }

    #[test]
    fn bytes_that_several_want_count_once(job in job(5)) {
        let Job { descriptor, accesses, .. } = job;
        let elements: BTreeSet<Vec<i64>> =
            accesses.iter().flat_map(|access| access.section.indices()).collect();
        let item = descriptor.item;
        let wanted = Wanted { name: 0, file: 0, descriptor, accesses, have: vec![] };
        let counted = wanted.union();
        prop_assert!(counted >= elements.len() as i64 * item);
        // The count is exact if the accesses can be separated. Otherwise it is at most the number
        // of requested bytes.
        let asked: i64 = wanted.requests(5).iter().sum();
        prop_assert!(counted <= asked);
        let whole = regions(&wanted.descriptor, &wanted.accesses, 0);
        let said = leave_out(&wanted.descriptor, &wanted.accesses, &whole) != Left::Entangled;
        prop_assert!(!said || counted == elements.len() as i64 * item);
    }

    #[test]
    fn domains_begin_at_stripes(
        (more, columns, item) in (1..300_i64, 1..1000_i64, 1..9_i64),
        lead in prop_oneof![Just(128), 0..10_000_i64],
        align in prop_oneof![Just(512), Just(4096), Just(65_536), 1..100_000_i64],
        (ranks, cut) in (1..7_u32, cut().prop_filter("has domains", |cut| *cut != Cut::Cyclic)),
        (first, step) in (0..20_i64, 1..3_i64),
    ) {
        let rows = first + more;
        let descriptor = ArrayDescriptor { shape: vec![rows, columns], item, lead: Some(lead), ..square(1) };
        let wanted = vec![slices((first, rows, step), (0, columns, 1)); ranks as usize];
        let job = Job { descriptor: descriptor.clone(), accesses: of_ranks(wanted), shares: all(ranks) };
        let begins = |align: i64| -> Vec<Option<i64>> {
            let agreed = Agreed { align, ..agreed(ranks, cut) };
            let plan = Collective::new(vec![job.clone()], &agreed).unwrap();
            let begin = |tile: outcore_plan::collective::Tile| {
                linear(&descriptor, &tile.section) * item + lead
            };
            (0..ranks).map(|rank| plan.tile(rank, 0).map(begin)).collect()
        };
        let (plain, moved) = (begins(1), begins(align));
        let row = columns * item * step;
        // No owner loses all of its tiles, and the first one begins at the same place.
        for (before, now) in plain.iter().zip(&moved) {
            prop_assert_eq!(before.is_some(), now.is_some());
        }
        let some: Vec<(i64, i64)> = plain.into_iter().flatten().zip(moved.into_iter().flatten()).collect();
        prop_assert_eq!(some[0].0, some[0].1);
        let end = lead + rows * columns * item;
        let ends = some.iter().skip(1).map(|(before, _)| *before).chain([end]);
        let large = some.iter().zip(ends).all(|((begin, _), end)| end - begin >= 2 * (align + row));
        for (before, now) in &some[1..] {
            prop_assert!((now - before).abs() <= align + row);
            if large {
                prop_assert!(now.rem_euclid(align) < row, "{} {} {:?}", now, align, some);
            }
        }
    }

    #[test]
    fn words_come_back(job in job(3)) {
        use outcore_plan::collective::{section_from_words, section_words};
        prop_assert_eq!(Ok(job.descriptor.clone()), ArrayDescriptor::from_words(&job.descriptor.words()));
        for access in &job.accesses {
            let words = section_words(&access.section);
            let section = section_from_words(&words, &job.descriptor.shape);
            prop_assert_eq!(Ok(access.section.clone()), section);
        }
    }

    #[test]
    fn ranks_are_apart_if_nothing_of_another_lies_between((jobs, agreed) in case()) {
        let plan = Collective::new(jobs.clone(), &agreed).unwrap();
        for (array, job) in (0..).zip(&jobs) {
            let descriptor = &job.descriptor;
            let place = |index: Vec<i64>| {
                descriptor.order.iter().fold(0, |at, axis| at * descriptor.shape[*axis] + index[*axis])
            };
            let mut places: Vec<BTreeSet<i64>> = vec![BTreeSet::new(); agreed.ranks as usize];
            for access in plan.accesses(array) {
                places[access.rank as usize].extend(access.section.indices().map(place));
            }
            let between = |a: &BTreeSet<i64>, b: &BTreeSet<i64>| match (a.first(), a.last()) {
                (Some(first), Some(last)) => b.range(first..=last).next().is_some(),
                _ => false,
            };
            let meet = (0..places.len()).any(|a| {
                (0..places.len()).any(|b| a != b && between(&places[a], &places[b]))
            });
            let blocks = descriptor.encoded || descriptor.grain.iter().any(|n| *n > 1);
            prop_assert_eq!(!blocks && !meet, plan.apart(array));
        }
        prop_assert!(plan.apart(jobs.len() as u32), "there is no such array");
    }

    #[test]
    fn any_words_are_an_array_or_an_error(words in prop::collection::vec(any::<i64>(), 0..12)) {
        let _ = ArrayDescriptor::from_words(&words);
    }
}

fn square(n: i64) -> ArrayDescriptor {
    ArrayDescriptor {
        shape: vec![n, n],
        item: 4,
        order: vec![0, 1],
        grain: vec![1, 1],
        encoded: false,
        lead: None,
    }
}

fn of_ranks(sections: Vec<Section>) -> Vec<Access> {
    let access = |(k, section)| Access { rank: k as u32, item: 0, section };
    sections.into_iter().enumerate().map(access).collect()
}

fn slices(a: (i64, i64, i64), b: (i64, i64, i64)) -> Section {
    let range = |(low, high, step)| Range::new(low, (high - low + step - 1) / step, step).unwrap();
    Section::new(vec![range(a), range(b)])
}

fn all(ranks: u32) -> Vec<Share> {
    (0..ranks).map(|rank| Share { rank, part: 1 }).collect()
}

const KIB: i64 = 1 << 10;

fn agreed(ranks: u32, cut: Cut) -> Agreed {
    Agreed { ranks, slot: 4 << 20, gap: 24 * KIB, align: 4096, least: 64 * KIB, cut, write: false }
}

#[test]
fn blocks_along_a_diagonal_are_regions_of_their_own() {
    // The paper's Table 5 II: (1+250p : 250+250p : 2) on both axes.
    let diagonal =
        (0..16).map(|p| slices((250 * p, 250 * p + 250, 2), (250 * p, 250 * p + 250, 2)));
    let found = regions(&square(4096), &of_ranks(diagonal.collect()), 24 * KIB);
    assert_eq!(16, found.len());
    assert!(found.iter().all(|r| r.section.shape() == [125, 125]), "{found:?}");
}

#[test]
fn neighbours_share_a_region_and_so_do_interleaved_columns() {
    let rows = (0..8).map(|p| slices((512 * p, 512 * p + 512, 1), (0, 4096, 1)));
    assert_eq!(1, regions(&square(4096), &of_ranks(rows.collect()), 24 * KIB).len());
    let columns = (0..8).map(|p| slices((0, 4096, 1), (p, 4096, 8)));
    let found = regions(&square(4096), &of_ranks(columns.collect()), 24 * KIB);
    assert_eq!(vec![vec![4096, 4096]], found.iter().map(|r| r.section.shape()).collect::<Vec<_>>());
    // All ranks request the same lattice: elements between its points are in no tile.
    let common = (0..8).map(|_| slices((3, 4096, 7), (1, 4096, 5)));
    let found = regions(&square(4096), &of_ranks(common.collect()), 24 * KIB);
    assert_eq!(vec![slices((3, 4096, 7), (1, 4096, 5))], [found[0].section.clone()]);
}

#[test]
fn along_a_staircase_owners_need_a_small_part_of_what_they_own() {
    // The paper's Table 3 V with 16 ranks: blocks that overlap along the diagonal are one region.
    let step = |p: i64| slices((200 * p, 200 * p + 512, 1), (200 * p + 199, 200 * p + 400, 1));
    let accesses = of_ranks((0..16).map(step).collect());
    let job = Job { descriptor: square(4096), accesses, shares: all(16) };
    let plan = Collective::new(vec![job], &agreed(16, Cut::Requested)).unwrap();
    let elements = |boxes: &dyn Fn(u32) -> Vec<(u32, Section)>| -> i64 {
        (0..16).flat_map(boxes).map(|(_, section)| section.count().unwrap()).sum()
    };
    assert_eq!(3512 * 3201, elements(&|rank| plan.parts(rank)));
    let needed = |rank| plan.needed(rank).into_iter().map(|(array, section, _)| (array, section));
    assert!(elements(&|rank| needed(rank).collect()) < 3512 * 3201 / 3);
}

#[test]
fn domains_follow_the_bytes_that_are_asked_for() {
    // Rank 0 requests all columns of the first eighth, the others a few columns of the rest.
    let mut sections = vec![slices((0, 512, 1), (0, 4096, 1))];
    sections.extend((1..4).map(|p| slices((512, 4096, 1), (40 * p, 40 * p + 40, 1))));
    let job = Job { descriptor: square(4096), accesses: of_ranks(sections), shares: all(4) };
    let bytes = |cut| {
        // With free requests.
        let free = Agreed { gap: 0, ..agreed(4, cut) };
        let plan = Collective::new(vec![job.clone()], &free).unwrap();
        let wanted = |tile| -> i64 {
            plan.table(&tile).iter().map(|p| p.section.count().unwrap() * 4).sum()
        };
        let of = |owner| (0..plan.tiles(owner)).map(|k| wanted(plan.tile(owner, k).unwrap())).sum();
        (0..4).map(of).collect::<Vec<i64>>()
    };
    let total: i64 = 512 * 4096 * 4 + 3 * 3584 * 40 * 4;
    let requested = bytes(Cut::Requested);
    assert_eq!(total, requested.iter().sum::<i64>());
    assert!(requested.iter().all(|b| (b - total / 4).abs() < total / 20), "{requested:?}");
    let fixed = bytes(Cut::Fixed);
    assert!(fixed[0] > 2 * total / 3, "the static partition does not: {fixed:?}");
}

/// Number of rows in the tiles of each owner.
fn rows(plan: &Collective, ranks: u32) -> Vec<i64> {
    let tile = |owner, n| plan.tile(owner, n).unwrap().section.shape()[0];
    (0..ranks).map(|owner| (0..plan.tiles(owner)).map(|n| tile(owner, n)).sum()).collect()
}

#[test]
fn a_request_counts_as_the_bytes_that_it_is_as_dear_as() {
    // A staircase of blocks, each 128 bytes wide: rows at its ends have few requested elements, but
    // each row costs a request, or the bytes in between are read, too.
    let step = |p: i64| slices((24 * p, 24 * p + 1024, 1), (32 * p, 32 * p + 32, 1));
    let job = Job {
        descriptor: square(4096),
        accesses: of_ranks((0..8).map(step).collect()),
        shares: all(8),
    };
    let ends = |gap| {
        let agreed = Agreed { gap, align: 1, ..agreed(8, Cut::Requested) };
        let rows = rows(&Collective::new(vec![job.clone()], &agreed).unwrap(), 8);
        let cost = |row: i64| {
            let wanted = (0..8).filter(|p| (24 * p..24 * p + 1024).contains(&row)).count() as i64;
            128 * wanted + gap.min(16 * KIB - 128 * wanted)
        };
        let mut begin = 0;
        let costs: Vec<i64> = rows
            .iter()
            .map(|n| {
                begin += n;
                (begin - n..begin).map(cost).sum()
            })
            .collect();
        let even = (0..1192).map(cost).sum::<i64>() / 8;
        assert!(costs.iter().all(|cost| (cost - even).abs() < even / 50), "{gap}: {costs:?}");
        rows[0]
    };
    // Measured by bytes alone, the first owner would have 212 rows, of 1192.
    assert_eq!(vec![184, 161, 149], [780, 4096, 1 << 30].map(ends));
}

#[test]
fn what_several_ranks_want_counts_once() {
    // Two ranks request the rows of the first half (one of them without a column), one rank those
    // of the second half.
    let sections = vec![
        slices((0, 512, 1), (0, 4096, 1)),
        slices((0, 512, 1), (1, 4096, 1)),
        slices((512, 1024, 1), (0, 4096, 1)),
    ];
    let job = Job { descriptor: square(4096), accesses: of_ranks(sections), shares: all(2) };
    let free = Agreed { gap: 0, ranks: 3, ..agreed(3, Cut::Requested) };
    assert_eq!(vec![512, 512, 0], rows(&Collective::new(vec![job], &free).unwrap(), 3));
}

#[test]
fn stripes_are_counted_from_the_beginning_of_the_file() {
    // Rows of 8 KiB of a .npy file, which begin at byte 128; a third is 10.67 MiB.
    let (lead, mib) = (128, 1 << 20);
    let descriptor = ArrayDescriptor { shape: vec![4096, 2048], lead: Some(lead), ..square(1) };
    let accesses = of_ranks(vec![slices((0, 4096, 1), (0, 2048, 1)); 3]);
    let job = Job { descriptor: descriptor.clone(), accesses, shares: all(3) };
    let begins = |align| {
        let plan =
            Collective::new(vec![job.clone()], &Agreed { align, ..agreed(3, Cut::Requested) });
        let plan = plan.unwrap();
        let begin = |rank| lead + linear(&descriptor, &plan.tile(rank, 0).unwrap().section) * 4;
        [begin(1), begin(2)]
    };
    assert_ne!(begins(1), begins(mib));
    // The first rows after 11 MiB and 21 MiB.
    assert_eq!([11 * mib + lead, 21 * mib + lead], begins(mib));
    // Fewer stripes than owners do not divide anything.
    assert_eq!(begins(1), begins(64 * mib));
}

#[test]
fn a_block_that_is_larger_than_the_slot_is_refused_with_the_size_that_would_do() {
    let mut descriptor = square(4096);
    (descriptor.grain, descriptor.encoded) = (vec![1024, 1024], true);
    let accesses = of_ranks(vec![slices((0, 4096, 1), (0, 4096, 1))]);
    let job = Job { descriptor, accesses, shares: all(1) };
    let small = Agreed { slot: 1 << 20, ..agreed(1, Cut::Requested) };
    let error = Collective::new(vec![job.clone()], &small).unwrap_err();
    let outcore_plan::PlanError::BudgetTooSmall { needed, .. } = error else { panic!("{error}") };
    assert!(Collective::new(vec![job], &Agreed { slot: needed, ..small }).is_ok());
}

#[test]
fn a_slot_may_be_smaller_than_the_least_tile() {
    let all_of_it = of_ranks(vec![slices((0, 512, 1), (0, 512, 1)); 2]);
    let job = Job { descriptor: square(512), accesses: all_of_it, shares: all(2) };
    let short = Agreed { slot: 4 * KIB, ..agreed(2, Cut::Requested) };
    assert!(short.slot < short.least);
    let plan = Collective::new(vec![job], &short).unwrap();
    assert!(plan.slot_bytes() <= short.slot && plan.rounds() > 1);
}

#[test]
fn huge_arrays_do_not_wrap() {
    let n = 1_i64 << 30;
    let descriptor = ArrayDescriptor {
        shape: vec![n, n],
        item: 4,
        order: vec![0, 1],
        grain: vec![1, 1],
        encoded: false,
        lead: None,
    };
    let rows = (0..5).map(|p| slices((p, n, 5), (0, n, 1))).collect();
    let job = Job { descriptor, accesses: of_ranks(rows), shares: all(5) };
    for cut in [Cut::Fixed, Cut::Bounding, Cut::Requested] {
        let plan = Collective::new(vec![job.clone()], &agreed(5, cut)).unwrap();
        assert!(plan.rounds() >= n / 5 * (n / (1 << 20)) && plan.overlap() == Overlap::Never);
        assert!(plan.tile(4, plan.tiles(4) - 1).is_some());
    }
}

/// Checks that disjoint sections of many ranks are recognized, and that a single overlap is found.
#[test]
fn sections_of_many_ranks_are_told_apart() {
    let (side, n) = (316_i64, 316_i64 * 8);
    let descriptor = ArrayDescriptor {
        shape: vec![n, n],
        item: 4,
        order: vec![0, 1],
        grain: vec![1, 1],
        encoded: false,
        lead: None,
    };
    let range = |start, count, step| Range::new(start, count, step).unwrap();
    let access = |rank: i64, rows, columns| Access {
        rank: rank as u32,
        item: 0,
        section: Section::new(vec![rows, columns]),
    };
    let grid: Vec<Access> = (0..side * side)
        .map(|k| access(k, range(k / side * 8, 8, 1), range(k % side * 8, 8, 1)))
        .collect();
    let cyclic: Vec<Access> = (0..2000)
        .map(|k| access(k, range(0, n, 1), range(k, (n - k - 1) / 2000 + 1, 2000)))
        .collect();
    for apart in [grid, cyclic] {
        let whole = Region {
            section: Section::new(vec![range(0, n, 1), range(0, n, 1)]),
            members: (0..apart.len() as u32).collect(),
        };
        assert_eq!(Overlap::Never, overlap(&descriptor, &apart, &whole));
        let mut overlapping = apart;
        let last = overlapping.len() - 1;
        overlapping[last] = access(last as i64, range(n / 2, 2, 1), range(n / 3, 1, 1));
        assert_eq!(Overlap::Somewhere, overlap(&descriptor, &overlapping, &whole));
    }
}

/// Checks sections in which one has a different step, so that all pairs need not be compared.
#[test]
fn sections_of_many_steps_are_told_apart() {
    let n = 12_000_i64;
    let ranks = 6_000;
    let mut sections: Vec<Section> =
        (0..ranks).map(|k| slices((0, n / 2, 1), (k, n, ranks))).collect();
    sections.push(slices((n / 2, n, 1), (0, n, 1)));
    sections.push(slices((0, n / 2, 1), (0, 1, 1)));
    let mut accesses = of_ranks(sections);
    let descriptor = square(n);
    let overlap_of = |accesses: &[Access]| {
        let found = regions(&descriptor, accesses, 1 << 40);
        found.iter().map(|region| overlap(&descriptor, accesses, region)).max().unwrap()
    };
    assert_eq!(Overlap::Somewhere, overlap_of(&accesses));
    accesses.pop();
    assert_eq!(Overlap::Never, overlap_of(&accesses));
    let whole = regions(&descriptor, &accesses, 1 << 40);
    assert_eq!(Left::All, leave_out(&descriptor, &accesses, &whole));
    // With different steps and too many pairs, the result is "unknown" unless it is certain.
    let odd = |k: i64| slices((2 * k, 2 * k + 2, 1), (0, n, k % 40 + 1));
    let apart: Vec<Section> = (0..100).map(odd).collect();
    assert_eq!(Overlap::Never, overlap_of(&of_ranks(apart)));
    let mut many: Vec<Section> =
        (0..ranks).map(|k| slices((0, n / 2, k % 40 + 1), (k, n, ranks))).collect();
    many.push(slices((n / 2, n, 1), (0, n, 1)));
    let many = of_ranks(many);
    assert_eq!(Overlap::Unknown, overlap_of(&many));
    let job = Job { descriptor: square(n), accesses: many, shares: all(1) };
    let agreed = Agreed { write: true, ..agreed(ranks as u32 + 1, Cut::Requested) };
    let plan = Collective::new(vec![job], &agreed).unwrap();
    assert_eq!(
        (Overlap::Unknown, true, false),
        (plan.overlap(), plan.in_order(), plan.leaves_out())
    );
}

/// The remainders of sections if the last one counts, as text; None if they are not determined.
fn left(n: i64, sections: Vec<Section>) -> Option<Vec<String>> {
    let (descriptor, accesses) = (square(n), of_ranks(sections));
    let found = regions(&descriptor, &accesses, 1 << 40);
    match leave_out(&descriptor, &accesses, &found) {
        Left::All => Some(accesses.iter().map(|a| a.section.to_string()).collect()),
        Left::Parts(parts) => Some(parts.iter().map(|(k, part)| format!("{k}{part}")).collect()),
        Left::Entangled | Left::Unknown => None,
    }
}

#[test]
fn lower_ranks_leave_out_what_higher_ones_give() {
    // The paper's T4.III, scaled by two: neighbours share two columns.
    let columns = (0..3).map(|p| slices((1022, 2048, 1), (398 + 400 * p, 800 + 400 * p, 1)));
    let expected = ["0[1022:2048, 398:798]", "1[1022:2048, 798:1198]", "2[1022:2048, 1198:1600]"];
    assert_eq!(Some(expected.map(String::from).to_vec()), left(8192, columns.collect()));
    // Blocks with a margin: two sections at most, whatever the order in which neighbours are cut
    // out.
    let margin = |i: i64| (16 * i, 16 * i + 20, 1);
    let grid = (0..16).map(|p| slices(margin(p / 4), margin(p % 4)));
    let blocks = left(100, grid.collect()).unwrap();
    assert_eq!("0[0:16, 0:16]", blocks[0]);
    assert_eq!("15[48:68, 48:68]", blocks[blocks.len() - 1]);
    assert!(blocks.len() <= 2 * 16, "{blocks:?}");
    // Equal sections, and one that others cover.
    let same = vec![slices((0, 9, 2), (0, 9, 1)); 3];
    assert_eq!(Some(vec!["2[0:9:2, 0:9]".to_owned()]), left(9, same));
    let hidden = vec![
        slices((2, 8, 1), (2, 8, 1)),
        slices((0, 5, 1), (0, 9, 1)),
        slices((5, 9, 1), (0, 9, 1)),
    ];
    assert_eq!(Some(vec!["1[0:5, 0:9]".to_owned(), "2[5:9, 0:9]".to_owned()]), left(9, hidden));
}

#[test]
fn strides_are_cut_on_their_own_lattice() {
    let rows = |a: (i64, i64, i64), b: (i64, i64, i64)| {
        left(100, vec![slices(a, (0, 9, 1)), slices(b, (0, 9, 1))]).map(|mut left| {
            assert_eq!(Some(format!("1{}", slices(b, (0, 9, 1)))), left.pop());
            left
        })
    };
    let texts = |list: &[&str]| Some(list.iter().map(|s| format!("0[{s}, 0:9]")).collect());
    assert_eq!(texts(&["0:99:2"]), rows((0, 100, 1), (1, 100, 2)));
    assert_eq!(texts(&["0:97:6", "4:95:6"]), rows((0, 100, 2), (2, 100, 3)));
    // A few rows of many are cut out one by one: the rows between them form a run.
    assert_eq!(texts(&["0:10", "11:30", "31:50", "51:100"]), rows((0, 100, 1), (10, 51, 20)));
    assert_eq!(texts(&["0:40", "41:44:2", "45:100"]), rows((0, 100, 1), (40, 45, 2)));
    // Every 50th row of many is cut out: about 49 sections, too many.
    let many = |n: i64| left(n, vec![slices((0, n, 1), (0, 9, 1)), slices((0, n, 50), (0, 9, 1))]);
    assert!(many(500).is_some() && many(5000).is_none());
}

/// Checks that the order of ranks matters only if the remainders cannot be determined.
#[test]
fn the_order_of_ranks_counts_only_where_it_must() {
    let plan = |second: Section, write| {
        let sections = vec![slices((0, 4096, 1), (0, 4096, 1)), second];
        let job = Job { descriptor: square(4096), accesses: of_ranks(sections), shares: all(2) };
        Collective::new(vec![job], &Agreed { write, ..agreed(2, Cut::Requested) }).unwrap()
    };
    let said = |plan: &Collective| {
        (plan.overlap() == Overlap::Somewhere, plan.leaves_out(), plan.in_order())
    };
    let corner = || slices((0, 9, 1), (0, 9, 1));
    assert_eq!((true, false, false), said(&plan(corner(), false)));
    let written = plan(corner(), true);
    assert_eq!((true, true, false), said(&written));
    assert_eq!(3, written.given(0).len() + written.given(1).len());
    assert_eq!(4096 * 4096 * 4 + 81 * 4, written.wanted_bytes());
    assert_eq!((true, false, true), said(&plan(slices((3, 4096, 50), (0, 4096, 1)), true)));
}
