//! Memory for planning a collective: O(ranks), whatever the number of elements.
//!
//! The allocator of this test program counts bytes separately for each thread, so counts are exact
//! and exclude other tests.
#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use outcore_plan::collective::{
    record, section_words, Agreed, ArrayDescriptor, Collective, Cut, Job, Records, Said, Share,
    Stage,
};
use outcore_plan::{Range, Section};

struct Counting;

thread_local! {
    static HELD: Cell<i64> = const { Cell::new(0) };
    static MOST: Cell<i64> = const { Cell::new(0) };
    static TAKEN: Cell<i64> = const { Cell::new(0) };
}

/// Adds `more` bytes to the counters.
fn count(more: i64) {
    // A thread that ends frees memory after its counters were dropped.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + more);
        MOST.with(|most| most.set(most.get().max(held.get())));
        TAKEN.with(|taken| taken.set(taken.get() + more.max(0)));
    });
}

// SAFETY: `System` does all the work; counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: guaranteed by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: guaranteed by the caller.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as i64 - layout.size() as i64);
        // SAFETY: guaranteed by the caller.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes that `work` allocates: maximum at a time, and total. Its result is dropped.
fn bytes<T>(work: impl FnOnce() -> T) -> (i64, i64) {
    let before = HELD.with(Cell::get);
    MOST.with(|most| most.set(before));
    TAKEN.with(|taken| taken.set(0));
    let made = work();
    let found = (MOST.with(Cell::get) - before, TAKEN.with(Cell::get));
    drop(made);
    assert_eq!(before, HELD.with(Cell::get), "nothing is kept");
    found
}

/// Section of a square that a rank requests.
///
/// Arguments: the rank, the number of ranks, and the side of the square.
type Of = fn(i64, i64, i64) -> Section;

fn part(number: i64, parts: i64, n: i64) -> Range {
    let (low, high) = (n * number / parts, n * (number + 1) / parts);
    Range::new(low, high - low, 1).unwrap()
}

fn whole(n: i64) -> Range {
    Range::new(0, n, 1).unwrap()
}

const SECTIONS: [(&str, Of); 7] = [
    ("rows", |r, p, n| Section::new(vec![part(r, p, n), whole(n)])),
    ("columns", |r, p, n| Section::new(vec![whole(n), part(r, p, n)])),
    ("blocks", |r, p, n| {
        let (i, j) = (r / 20, r % 20);
        Section::new(vec![part(i, p / 20, n), part(j, 20, n)])
    }),
    ("diagonal", |r, p, n| {
        let range = part(r, p, n);
        Section::new(vec![range, range])
    }),
    ("interleaved columns", |r, p, n| {
        let count = (n - r + p - 1) / p;
        Section::new(vec![whole(n), Range::new(r, count, p).unwrap()])
    }),
    ("common", |_, _, n| Section::new(vec![part(1, 4, n), part(2, 4, n)])),
    ("columns that neighbours share", |r, p, n| {
        let one = part(r, p, n);
        let count = (one.count + 1).min(n - one.start);
        Section::new(vec![whole(n), Range::new(one.start, count, 1).unwrap()])
    }),
];

/// The descriptor of a square with side `side`, as in a `.npy` file.
fn descriptor(side: i64) -> ArrayDescriptor {
    ArrayDescriptor {
        shape: vec![side, side],
        item: 8,
        order: vec![0, 1],
        grain: vec![1, 1],
        encoded: false,
        lead: Some(128),
    }
}

/// Memory from the records of ranks to a plan, including the queries of a rank in a round.
fn plan(of: Of, ranks: i64, side: i64, slot: i64, write: bool, cut: Cut) -> (i64, i64) {
    let descriptor = descriptor(side);
    let ranks_of = ranks as u32;
    let mut words = Vec::new();
    for rank in 0..ranks {
        let section = section_words(&of(rank, ranks, side));
        let item = Said { name: 7, file: 8, descriptor: descriptor.words(), section };
        words.extend(record(2, Stage::Ready, &[], &[item]).unwrap());
    }
    let width = words.len() / ranks as usize;
    bytes(|| {
        let records = Records::new(words.clone(), width).unwrap();
        let arrays = records.arrays(true).unwrap();
        let jobs = arrays.into_iter().map(|one| Job {
            descriptor: one.descriptor,
            accesses: one.accesses,
            shares: (0..ranks_of).map(|rank| Share { rank, part: 1 }).collect(),
        });
        let least = slot.min(256 << 10);
        let agreed = Agreed { ranks: ranks_of, slot, gap: 0, align: 4096, least, cut, write };
        let plan = Collective::new(jobs.collect(), &agreed).unwrap();
        let me = ranks_of / 3;
        let wanted = plan.tile(me, 0).map(|tile| plan.table(&tile).len());
        assert!(wanted.is_none_or(|n| n <= 3 * ranks_of as usize));
        let mine = |owner| plan.tile(owner, 0).map(|tile| plan.pieces(&tile, me).len());
        let all: usize = (0..ranks_of).filter_map(mine).sum();
        (records, plan, all)
    })
}

const CUTS: [Cut; 4] = [Cut::Requested, Cut::Bounding, Cut::Fixed, Cut::Cyclic];
const SLOT: i64 = 8 << 20;

#[test]
fn twice_as_many_ranks_take_twice_the_memory() {
    for (name, of) in SECTIONS {
        for (write, cut) in [(false, CUTS[0]), (false, CUTS[1]), (true, CUTS[0]), (false, CUTS[3])]
        {
            let few = plan(of, 10_000, 1 << 20, SLOT, write, cut);
            let many = plan(of, 20_000, 1 << 20, SLOT, write, cut);
            for (few, many) in [(few.0, many.0), (few.1, many.1)] {
                assert!(
                    10 * many <= 22 * few,
                    "{name}, {write}, {cut:?}: {few}, then {many} bytes"
                );
            }
            // The records of 512 bytes each are included.
            assert!(few.0 <= 10_000 * 2048, "{name}, {write}, {cut:?}: {} bytes", few.0);
        }
    }
}

#[test]
fn more_elements_take_no_more_memory() {
    for (name, of) in SECTIONS {
        for cut in CUTS {
            for write in [false, true] {
                let of_side = |side| plan(of, 1000, side, SLOT, write, cut);
                // With 2^20 elements some ranks own nothing; with cyclic tiles most own nothing.
                let least = if cut == Cut::Cyclic { 1 << 15 } else { 1 << 10 };
                let [few, many, more] = [least, 1 << 20, 1 << 28].map(of_side);
                let said = format!("{name}, {write}, {cut:?}: {few:?}, {many:?}, {more:?} bytes");
                assert!(100 * more.0 <= 102 * many.0, "{said}");
                assert!(100 * many.0 <= 115 * few.0, "{said}");
                assert!(2 * more.1.max(many.1) <= 3 * few.1, "{said}");
            }
        }
    }
}

/// Checks the memory of a rank during a collective against docs/explain/memory.md.
///
/// It holds the records of all ranks, their requests for each array, and the plan.
#[test]
fn tables_of_a_collective_are_as_large_as_the_documents_say() {
    let held = |ranks: i64, arrays: i64| {
        let mut words = Vec::new();
        for rank in 0..ranks {
            let section = section_words(&SECTIONS[1].1(rank, ranks, 4096));
            let item = |k: i64| Said {
                name: k,
                file: k,
                descriptor: descriptor(4096).words(),
                section: section.clone(),
            };
            let items: Vec<Said> = (0..arrays).map(item).collect();
            words.extend(record(2, Stage::Ready, &[], &items).unwrap());
        }
        let width = words.len() / ranks as usize;
        let before = HELD.with(Cell::get);
        let records = Records::new(words.clone(), width).unwrap();
        let wanted = records.arrays(false).unwrap();
        let jobs = wanted.iter().map(|one| Job {
            descriptor: one.descriptor.clone(),
            accesses: one.accesses.clone(),
            shares: (0..ranks as u32).map(|rank| Share { rank, part: 1 }).collect(),
        });
        let (cut, least) = (Cut::Requested, 256 << 10);
        let agreed = Agreed {
            ranks: ranks as u32,
            slot: SLOT,
            gap: 0,
            align: 4096,
            least,
            cut,
            write: false,
        };
        let plan = Collective::new(jobs.collect(), &agreed).unwrap();
        let held = HELD.with(Cell::get) - before;
        drop((records, wanted, plan));
        held
    };
    for (ranks, arrays) in [(8, 1), (16, 1), (1000, 1), (8, 200), (16, 200), (1000, 200)] {
        let bytes = held(ranks, arrays);
        println!(
            "{ranks} ranks, {arrays} arrays: {bytes} bytes, {} a section",
            bytes / ranks / arrays
        );
        assert!(
            bytes <= 1000 * ranks * arrays + 4096,
            "{ranks} ranks, {arrays} arrays: {bytes} bytes"
        );
    }
}
