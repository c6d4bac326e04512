use outcore_io::exec::User;

use super::*;
use crate::hints::Hints;
use crate::open::Open;
use crate::testing::{access, budget, chunked, open, section, Button, Never, TestDir};

const SHAPE: [i64; 2] = [1000, 100];

/// An array with chunks of ten by ten elements, each in a separate file.
fn array(dir: &TestDir) -> Open {
    open(chunked(dir.path(), &SHAPE, &[10, 10], 9))
}

fn write(open: &Open, axes: &[(i64, i64, i64)], value: u8, hints: &Hints) -> Result<(), Fault> {
    let section = section(axes);
    let mut memory = vec![value; section.count().unwrap() as usize];
    let strides = [axes[1].1, 1];
    open.run(&access(Direction::Write, &section, (&strides, 1), &mut memory, hints), &Never)
}

fn read(open: &Open, axes: &[(i64, i64, i64)], hints: &Hints) -> Result<Vec<u8>, Fault> {
    let section = section(axes);
    let mut memory = vec![0; section.count().unwrap() as usize];
    let strides = [axes[1].1, 1];
    open.run(&access(Direction::Read, &section, (&strides, 1), &mut memory, hints), &Never)?;
    Ok(memory)
}

#[test]
fn what_is_written_in_parts_of_chunks_is_read_again_beside_the_fill_value() {
    let _one = budget(64 << 20);
    let dir = TestDir::new("chunks-parts");
    let (array, hints) = (array(&dir), Hints::default());
    write(&array, &[(5, 300, 3), (7, 40, 2)], 1, &hints).unwrap();
    let all = read(&array, &[(0, 1000, 1), (0, 100, 1)], &hints).unwrap();
    for (k, value) in all.iter().enumerate() {
        let (i, j) = (k as i64 / 100, k as i64 % 100);
        let (rows, columns) = ((5..905).contains(&i), (7..87).contains(&j));
        let written = rows && (i - 5) % 3 == 0 && columns && (j - 7) % 2 == 0;
        assert_eq!(if written { 1 } else { 9 }, *value, "{i} {j}");
    }
    assert_eq!(0, Arena::global().used());
}

#[test]
fn little_memory_makes_small_batches_and_none_is_refused_at_once() {
    let dir = TestDir::new("chunks-little");
    let (array, hints) = (array(&dir), Hints::default());
    let all = [(0, 1000, 1), (0, 100, 1)];
    let least = {
        let _one = budget(64 << 20);
        write(&array, &all, 1, &hints).unwrap();
        array.least(Direction::Read).max(array.least(Direction::Write)) as u64
    };
    let _one = budget(least);
    assert_eq!(Ok(vec![1; 100_000]), read(&array, &all, &hints));
    write(&array, &all, 2, &hints).unwrap();
    assert_eq!(Ok(vec![2; 100_000]), read(&array, &all, &hints));
    Arena::global().set_limit(4096);
    let refused = read(&array, &all, &hints).unwrap_err();
    assert!(refused.is_about_memory(), "{refused}");
    assert_eq!(0, Arena::global().used());
}

#[test]
fn a_chunk_that_was_never_written_is_an_error_if_it_is_to_be_one() {
    let _one = budget(64 << 20);
    let dir = TestDir::new("chunks-missing");
    let array = array(&dir);
    let strict = Hints { missing_is_error: true, ..Hints::default() };
    write(&array, &[(0, 10, 1), (0, 10, 1)], 1, &strict).unwrap();
    assert!(read(&array, &[(0, 10, 1), (0, 10, 1)], &strict).is_ok());
    let missing = read(&array, &[(0, 10, 1), (0, 11, 1)], &strict).unwrap_err();
    assert_eq!("missing-chunk", missing.reason().code());
    assert!(missing.to_string().contains("[0, 1]"), "{missing}");
    assert!(read(&array, &[(0, 10, 1), (0, 11, 1)], &Hints::default()).is_ok());
}

#[test]
fn an_interrupt_ends_an_access_between_batches() {
    let _one = budget(64 << 20);
    let dir = TestDir::new("chunks-interrupt");
    let (array, hints, button) = (array(&dir), Hints::default(), Button::default());
    let section = section(&[(0, 1000, 1), (0, 100, 1)]);
    let mut memory = vec![0; 100_000];
    let access = access(Direction::Read, &section, (&[100, 1], 1), &mut memory, &hints);
    array.run(&access, &button).unwrap();
    assert!(button.asked() > 1);
    button.press();
    assert!(array.run(&access, &button).unwrap_err().is_cancelled());
    assert!(array.look(&access, &button).unwrap_err().is_cancelled(), "also of who only looks");
}

#[test]
fn batches_that_are_alike_are_surveyed_as_many() {
    let _one = budget(64 << 20);
    let dir = TestDir::new("chunks-survey");
    let shape = [10_000, 10_000];
    let array = open(chunked(dir.path(), &shape, &[10, 10], 9));
    let section = section(&[(0, 10_000, 1), (0, 10_000, 1)]);
    let hints = Hints::default();
    let (direction, strides) = (Direction::Read, [10_000, 1]);
    let access = Access {
        direction,
        section: &section,
        strides: &strides,
        data: User::none(),
        hints: &hints,
    };
    let survey = array.survey(&access, &Never).unwrap();
    assert_eq!(100_000_000, survey.cost.useful_bytes);
    assert_eq!(0, survey.cost.reads, "nothing is stored");
}

#[test]
fn what_is_stored_is_listed() {
    let _one = budget(64 << 20);
    let dir = TestDir::new("chunks-listed");
    let (array, hints) = (array(&dir), Hints::default());
    write(&array, &[(15, 1, 1), (0, 100, 1)], 1, &hints).unwrap();
    let (unit, listed) = array.stored(&Never).unwrap().unwrap();
    assert_eq!((vec![10, 10], (10..20).collect::<Vec<i64>>()), (unit, listed.places));
}

#[test]
fn a_shard_is_a_grid_of_its_own() {
    let layout = chunked(TestDir::new("shard").path(), &SHAPE, &[10, 10], 0).layout;
    let outcore_plan::Layout::Chunked(layout) = layout else { unreachable!() };
    let shard =
        |per_shard: Vec<i64>| Shard { per_shard, index_at_start: false, index_crc32c: true };
    let grid = coarse(&layout, &shard(vec![20, 5])).unwrap();
    assert_eq!((vec![200, 50], vec![5, 2]), (grid.chunk.clone(), grid.grid()));
    let refused = coarse(&layout, &shard(vec![i64::MAX, 1])).unwrap_err();
    assert_eq!("internal-job", refused.code());
}
