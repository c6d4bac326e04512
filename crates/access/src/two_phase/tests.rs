use outcore_plan::collective::{section_words, Access as Wanted, ArrayDescriptor};
use outcore_plan::Layout;

use super::*;
use crate::described::Described;
use crate::testing::{budget, chunked, collective, dense, open, section, Button, Never, TestDir};

const SHAPE: [i64; 2] = [48, 40];
const RANKS: u32 = 3;

/// Section of rank `rank`: every `step`-th column.
fn columns(rank: u32, step: i64) -> Section {
    let count = (SHAPE[1] - i64::from(rank) + step - 1) / step;
    section(&[(0, SHAPE[0], 1), (rank.into(), count, step)])
}

fn plan(layout: &Layout, step: i64, write: bool) -> Collective {
    let access = |rank| Wanted { rank, item: 0, section: columns(rank, step) };
    let accesses = (0..RANKS).map(access).collect();
    collective(ArrayDescriptor::of(layout, None), RANKS, accesses, 256, write)
}

/// Returns an array that others write, too, in the form that an owner uses.
fn owned<'a>(
    open: &'a Open,
    hints: &'a Hints,
    written: &'a AtomicU64,
    whole: &'a InParts,
) -> Owned<'a> {
    Owned { open, hints, exclusive: false, written, whole }
}

fn content() -> Vec<u8> {
    (0..SHAPE[0] * SHAPE[1]).map(|k| (k % 251) as u8).collect()
}

/// Makes a file of rows, and the same data in chunks; returns functions that describe each.
fn files(dir: &TestDir, name: &str) -> Vec<Box<dyn Fn() -> Described>> {
    let file = dir.file(&format!("{name}.raw"), &content());
    let folder = dir.path().join(name);
    std::fs::create_dir_all(&folder).unwrap();
    let rows = move || dense(&file, &SHAPE, 1);
    let chunks = move || chunked(&folder, &SHAPE, &[7, 11], 0);
    let (whole, mut bytes) = (section(&[(0, SHAPE[0], 1), (0, SHAPE[1], 1)]), content());
    let data = User::of(&mut bytes, 0);
    let (direction, hints) = (Direction::Write, &Hints::default());
    let access = Access { direction, section: &whole, strides: &[SHAPE[1], 1], data, hints };
    open(chunks()).run(&access, &Never).unwrap();
    vec![Box::new(rows), Box::new(chunks)]
}

fn all_of(array: &Open) -> Vec<u8> {
    let whole = section(&[(0, SHAPE[0], 1), (0, SHAPE[1], 1)]);
    let mut bytes = vec![0; content().len()];
    let data = User::of(&mut bytes, 0);
    let (direction, hints) = (Direction::Read, &Hints::default());
    let access = Access { direction, section: &whole, strides: &[SHAPE[1], 1], data, hints };
    array.run(&access, &Never).unwrap();
    bytes
}

/// Returns the places, in the slot and in the array, of each element that ranks request from an owner's tiles
/// of a round.
fn elements(plan: &Collective, owner: u32, k: i64) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for n in plan.batch(owner, k) {
        let tile = plan.tile(owner, n).unwrap();
        let strides = slot::packed(&tile.section, &[0, 1], 1);
        for piece in plan.table(&tile) {
            let words = section_words(&piece.section);
            for i in 0..words[1] {
                for j in 0..words[4] {
                    let (row, column) = (words[0] + i * words[2], words[3] + j * words[5]);
                    let ranges = tile.section.ranges();
                    let at = (row - ranges[0].start) / ranges[0].step * strides[0]
                        + (column - ranges[1].start) / ranges[1].step * strides[1];
                    found.push((
                        (plan.place(owner, n) + at) as usize,
                        (row * SHAPE[1] + column) as usize,
                    ));
                }
            }
        }
    }
    found
}

#[test]
fn owners_read_what_ranks_want_where_they_look_for_it() {
    let _one = budget(64 << 20);
    let dir = TestDir::new("owners-read");
    for described in files(&dir, "read") {
        for step in [3, 8] {
            let plan = plan(&described().layout, step, false);
            let array = open(described());
            for rank in plan.owners() {
                let (hints, written) = (Hints::default(), AtomicU64::new(0));
                let whole = InParts::default();
                let owned = [Some(owned(&array, &hints, &written, &whole))];
                let owner = Owner { plan: &plan, rank, arrays: &owned, rewrites: None };
                for k in 0..plan.rounds() {
                    let mut memory = vec![255; plan.slot_bytes() as usize];
                    owner.read(k, User::of(&mut memory, 0), &Never).unwrap();
                    for (at, place) in elements(&plan, rank, k) {
                        assert_eq!(content()[place], memory[at]);
                    }
                }
            }
        }
    }
}

/// Writes twice the old values for all ranks, round by round.
fn write(
    described: &dyn Fn() -> Described,
    step: i64,
    rewrites: Option<bool>,
    hints: &Hints,
) -> (Vec<u8>, u64) {
    let plan = plan(&described().layout, step, true);
    let (array, written) = (open(described()), AtomicU64::new(0));
    let whole = InParts::default();
    for k in 0..plan.rounds() {
        for rank in plan.owners() {
            let owned = [Some(owned(&array, hints, &written, &whole))];
            let owner = Owner { plan: &plan, rank, arrays: &owned, rewrites };
            let mut memory = vec![255; plan.slot_bytes() as usize];
            let batch = owner.batch(k, &Never).unwrap();
            owner.read_holes(&batch, User::of(&mut memory, 0), &Never).unwrap();
            for (at, place) in elements(&plan, rank, k) {
                memory[at] = content()[place].wrapping_mul(2);
            }
            owner.write(&batch, User::of(&mut memory, 0), &Never).unwrap();
        }
    }
    (all_of(&array), written.into_inner())
}

#[test]
fn what_nobody_gives_stays_as_it_was() {
    let _one = budget(64 << 20);
    let dir = TestDir::new("owners-write");
    for (turn, rewrites) in [None, Some(true), Some(false)].into_iter().enumerate() {
        for step in [3, 8] {
            for described in files(&dir, &format!("write-{turn}-{step}")) {
                // Encoded blocks are rewritten in any case; these blocks are not encoded.
                let (found, written) = write(&described, step, rewrites, &Hints::default());
                let expected = |(k, byte): (usize, &u8)| match (k as i64 % SHAPE[1]) % step {
                    rank if rank < RANKS.into() => byte.wrapping_mul(2),
                    _ => *byte,
                };
                let expected: Vec<u8> = content().iter().enumerate().map(expected).collect();
                assert_eq!(expected, found);
                assert!(written > 0);
            }
        }
    }
}

#[test]
fn rounds_of_one_write_are_one_to_who_expects_a_flush() {
    let _one = budget(64 << 20);
    let dir = TestDir::new("owners-flushed");
    let described = files(&dir, "flushed")[0]();
    let plan = plan(&described.layout, 3, true);
    assert!(plan.rounds() > 1);
    let (array, hints, written) = (open(described), Hints::default(), AtomicU64::new(0));
    for expected in [false, true] {
        let whole = InParts::default();
        for k in 0..plan.rounds() {
            let owned = [Some(owned(&array, &hints, &written, &whole))];
            let owner = Owner { plan: &plan, rank: 0, arrays: &owned, rewrites: Some(false) };
            let mut memory = vec![0; plan.slot_bytes() as usize];
            let batch = owner.batch(k, &Never).unwrap();
            owner.write(&batch, User::of(&mut memory, 0), &Never).unwrap();
            assert!(!array.is_flush_expected(), "that of this write is still to come");
        }
        assert_eq!(expected, whole.is_flushed());
        array.flush().unwrap();
        assert!(array.is_flush_expected());
    }
}

#[test]
fn holes_are_read_only_where_a_tile_is_rewritten() {
    let _one = budget(64 << 20);
    let dir = TestDir::new("owners-holes");
    let described = files(&dir, "holes")[0]();
    let plan = plan(&described.layout, 8, true);
    let (array, hints, written) = (open(described), Hints::default(), AtomicU64::new(0));
    let whole = InParts::default();
    let owned = [Some(owned(&array, &hints, &written, &whole))];
    for (rewrites, read) in [(Some(true), true), (Some(false), false)] {
        let owner = Owner { plan: &plan, rank: 0, arrays: &owned, rewrites };
        let batch = owner.batch(0, &Never).unwrap();
        let mut memory = vec![255; plan.slot_bytes() as usize];
        owner.read_holes(&batch, User::of(&mut memory, 0), &Never).unwrap();
        assert_eq!(read, memory.iter().any(|byte| *byte != 255));
    }
}

#[test]
fn a_part_has_its_bytes_of_the_slot_and_no_others() {
    let _one = budget(64 << 20);
    let dir = TestDir::new("owners-parts");
    let described = files(&dir, "parts")[0]();
    let plan = plan(&described.layout, 3, false);
    let (array, hints, written) = (open(described), Hints::default(), AtomicU64::new(0));
    let whole = InParts::default();
    let owned = [Some(owned(&array, &hints, &written, &whole))];
    let mut memory = vec![0; plan.slot_bytes() as usize];
    let slot = User::of(&mut memory, 0);
    for rank in plan.owners() {
        let owner = Owner { plan: &plan, rank, arrays: &owned, rewrites: None };
        for (place, held) in (0..plan.rounds()).flat_map(|k| owner.tiles(k)) {
            for section in &held.parts {
                let array = owned[0].as_ref().unwrap();
                let part = owner.part(array, (&place, &held), section, slot).unwrap();
                let (low, high) = reach(section, &part.strides, 1);
                assert!(part.data.within(low, high).is_ok());
                assert!(part.data.within(low - 1, high).is_err());
                assert!(part.data.within(low, high + 1).is_err());
                // A smaller slot cannot hold the part.
                let at = part.data.address() - slot.address();
                let (first, end) = (at + low, at + high);
                let less = [slot.within(first + 1, end), slot.within(first, end - 1)];
                for slot in less.into_iter().flatten() {
                    assert!(owner.part(array, (&place, &held), section, slot).is_err());
                }
            }
        }
    }
}

#[test]
fn failures_name_the_array_and_nothing_leaves_the_slot() {
    let _one = budget(64 << 20);
    let dir = TestDir::new("owners-fail");
    let described = files(&dir, "fail")[0]();
    let plan = plan(&described.layout, 3, true);
    let cold = Hints { cache: Cache::Bypass, ..Hints::default() };
    let (array, written) = (open(described), AtomicU64::new(0));
    let whole = InParts::default();
    let owned = [Some(owned(&array, &cold, &written, &whole))];
    let owner = Owner { plan: &plan, rank: 0, arrays: &owned, rewrites: Some(true) };
    let batch = owner.batch(0, &Never).unwrap();
    // The slot is too short.
    let mut short = vec![0; 8];
    for failed in [
        owner.read(0, User::of(&mut short, 0), &Never),
        owner.read_holes(&batch, User::of(&mut short, 0), &Never),
        owner.write(&batch, User::of(&mut short, 0), &Never),
    ] {
        let told = failed.map_or_else(|fault| fault.to_string(), |()| String::new());
        assert!(told.is_empty() || told.contains("caller's array"), "{told}");
    }
    assert!(owner.read(0, User::of(&mut short, 0), &Never).is_err());
    assert!(owner.write(&batch, User::of(&mut short, 0), &Never).is_err());
    // The file was truncated.
    dir.file("fail.raw", b"short");
    let mut memory = vec![0; plan.slot_bytes() as usize];
    let failed = owner.read(0, User::of(&mut memory, 0), &Never).unwrap_err();
    assert!(failed.path().unwrap().ends_with("fail.raw"), "{failed}");
    // The rank has not opened the array.
    let nobody = Owner { arrays: &[None], ..owner };
    assert!(nobody.read(0, User::of(&mut memory, 0), &Never).is_err());
    assert_eq!(0, nobody.price(true, false, &Never));
}

#[test]
fn prices_are_of_all_accesses_and_the_least_share() {
    let _one = budget(64 << 20);
    let dir = TestDir::new("owners-price");
    let described = files(&dir, "price")[0]();
    let array = open(described);
    let (warm, cold) = (Hints::default(), Hints { cache: Cache::Bypass, ..Hints::default() });
    let (written, whole) = (AtomicU64::new(0), InParts::default());
    let owned = |hints| owned(&array, hints, &written, &whole);
    let price = |all: &[(Owned, Section)]| own_price(all, false, false, &Never);
    let one = price(&[(owned(&cold), columns(0, 3))]);
    assert!(one.0 > 0 && one.1 == 0);
    let both = price(&[(owned(&cold), columns(0, 3)), (owned(&warm), columns(1, 3))]);
    assert!(both.0 >= one.0 && both.1 == 0);
    assert_eq!((0, 1000), price(&[(owned(&cold), section(&[(0, 0, 1), (0, 40, 1)]))]));
    assert_eq!((0, 1000), price(&[]));
}

#[test]
fn who_is_interrupted_stops() {
    let _one = budget(64 << 20);
    let dir = TestDir::new("owners-stop");
    let described = files(&dir, "stop")[0]();
    let plan = plan(&described.layout, 3, false);
    let cold = Hints { cache: Cache::Bypass, ..Hints::default() };
    let (array, written) = (open(described), AtomicU64::new(0));
    let whole = InParts::default();
    let owned = [Some(owned(&array, &cold, &written, &whole))];
    let owner = Owner { plan: &plan, rank: 0, arrays: &owned, rewrites: None };
    let button = Button::default();
    button.press();
    let mut memory = vec![0; plan.slot_bytes() as usize];
    assert!(owner.read(0, User::of(&mut memory, 0), &button).is_err());
}
