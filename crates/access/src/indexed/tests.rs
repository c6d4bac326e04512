use std::path::PathBuf;

use outcore_plan::Lists;

use super::*;
use crate::testing::{budget, chunked, dense, open, section, Button, Never, TestDir};

const SHAPE: [i64; 2] = [500, 400];

fn array(dir: &TestDir) -> (Open, PathBuf) {
    let content: Vec<u8> = (0..200_000_u32).map(|k| (k % 251) as u8).collect();
    let path = dir.file("a", &content);
    (open(dense(&path, &SHAPE, 1)), path)
}

/// Returns numbers of elements in no order, some several times.
fn list(number: usize) -> Vec<i64> {
    (0..number as i64).map(|k| k * k * 7919 % 200_000).collect()
}

/// Accesses elements by their numbers.
fn run(
    open: &Open,
    direction: Direction,
    list: &[i64],
    memory: &mut [u8],
    hints: &Hints,
) -> Result<(), Fault> {
    assert_eq!(list.len(), memory.len());
    let rest = section(&[(0, 1, 1), (0, 1, 1)]);
    let (axes, lists, strides) = ([0, 1], Lists::Flat(list), [0, 0]);
    let index = Index { axes: &axes, lists, rest: &rest, point: 1, strides: &strides };
    let asked = IndexedAccess { direction, index, data: User::of(memory, 0), hints };
    open.run_indexed(&asked, &Never)
}

#[test]
fn elements_are_read_whatever_the_hints_and_the_budget() {
    let list = list(20_000);
    let expected: Vec<u8> = list.iter().map(|k| (k % 251) as u8).collect();
    for bytes in [64 << 20, 1 << 20, 256 << 10] {
        let _one = budget(bytes);
        Arena::global().reset_peak();
        let dir = TestDir::new("indexed-read");
        let (array, _) = array(&dir);
        let methods = [
            None,
            Some(Method::Window),
            Some(Method::Mapped),
            Some(Method::List),
            Some(Method::Straight),
        ];
        for method in methods {
            for cache in [Cache::Auto, Cache::Keep, Cache::Bypass] {
                for threads in [1, 2] {
                    let hints = Hints { method, cache, threads: Some(threads), ..Hints::default() };
                    let mut memory = vec![0; list.len()];
                    run(&array, Direction::Read, &list, &mut memory, &hints).unwrap();
                    assert!(expected == memory, "{method:?} {cache:?} {bytes}");
                }
            }
        }
        assert!(Arena::global().peak() <= bytes, "{} of {bytes}", Arena::global().peak());
    }
}

#[test]
fn the_last_of_several_values_wins_in_any_number_of_slabs_and_threads() {
    // Each element occurs some ten times, far apart in the list and near each other.
    let list: Vec<i64> = (0..30_000_i64).map(|k| k * k * 31 % 2999 * 60).collect();
    let values: Vec<u8> = (0..30_000_u32).map(|k| (k % 253) as u8).collect();
    for bytes in [64 << 20, 256 << 10] {
        let _one = budget(bytes);
        for threads in [1, 2] {
            let dir = TestDir::new("indexed-last");
            let (array, path) = array(&dir);
            let mut expected = std::fs::read(&path).unwrap();
            for (k, value) in list.iter().zip(&values) {
                expected[*k as usize] = *value;
            }
            let hints = Hints { threads: Some(threads), ..Hints::default() };
            run(&array, Direction::Write, &list, &mut values.clone(), &hints).unwrap();
            assert!(expected == std::fs::read(&path).unwrap(), "{bytes} {threads}");
        }
    }
}

#[test]
fn nothing_is_written_if_one_index_is_outside() {
    let _one = budget(256 << 10);
    let dir = TestDir::new("indexed-outside");
    let (array, path) = array(&dir);
    let before = std::fs::read(&path).unwrap();
    // In the last of several slabs.
    let mut list = list(20_000);
    list[19_999] = 200_000;
    let mut memory = vec![1; 20_000];
    let failed = run(&array, Direction::Write, &list, &mut memory, &Hints::default());
    let text = failed.unwrap_err().to_string();
    assert!(text.contains("index 200000 at position 19999"), "{text}");
    assert!(before == std::fs::read(&path).unwrap());
}

#[test]
fn only_chunks_that_hold_an_element_are_made() {
    let _one = budget(64 << 20);
    let dir = TestDir::new("indexed-chunks");
    let array = open(chunked(dir.path(), &[60, 60], &[10, 10], 7));
    let list = [0, 59 * 60 + 59, 25 * 60 + 5];
    let mut memory = [1, 2, 3];
    run(&array, Direction::Write, &list, &mut memory, &Hints::default()).unwrap();
    let mut found = Vec::new();
    for row in 0..6 {
        for column in 0..6 {
            if dir.path().join(format!("c/{row}/{column}")).exists() {
                found.push((row, column));
            }
        }
    }
    assert_eq!(vec![(0, 0), (2, 0), (5, 5)], found);
    let mut memory = [0; 4];
    let list = [-1, 0, 25 * 60 + 5, 30];
    run(&array, Direction::Read, &list, &mut memory, &Hints::default()).unwrap();
    assert_eq!([2, 1, 3, 7], memory);
}

#[test]
fn a_schedule_moves_what_its_index_means_and_serves_its_layout_only() {
    let _one = budget(64 << 20);
    let dir = TestDir::new("indexed-schedule");
    let (array, path) = array(&dir);
    let list = list(5000);
    let rest = section(&[(0, 1, 1), (0, 1, 1)]);
    let (axes, lists, strides) = ([0, 1], Lists::Flat(&list), [0, 0]);
    let index = Index { axes: &axes, lists, rest: &rest, point: 1, strides: &strides };
    let hints = Hints::default();
    let schedule = array.schedule(&index, &hints).unwrap();
    assert!(Arena::global().used() as usize >= schedule.bytes());
    let expected: Vec<u8> = list.iter().map(|k| (k % 251) as u8).collect();
    for _ in 0..2 {
        let mut memory = vec![0; 5000];
        let how = (Direction::Read, User::of(&mut memory, 0), &hints);
        array.run_schedule(&schedule, how, &Never).unwrap();
        assert!(expected == memory);
    }
    let other = open(dense(&path, &[400, 500], 1));
    assert!(schedule.serves(&array) && !schedule.serves(&other));
    let mut memory = vec![0; 5000];
    let how = (Direction::Read, User::of(&mut memory, 0), &hints);
    assert!(other.run_schedule(&schedule, how, &Never).is_err());
    drop(schedule);
    assert_eq!(0, Arena::global().used());
}

/// Returns elements of a float64 array: 40 runs of 500, in no order, two of them the same.
fn clustered() -> Vec<i64> {
    (0..40).flat_map(|k| (k * 7919 % 19 * 1000)..(k * 7919 % 19 * 1000 + 500)).collect()
}

#[test]
fn a_schedule_of_neighbours_holds_runs_and_a_list_of_them_may_be_larger_than_memory() {
    // The indices need twice the memory that exists.
    let list: Vec<i64> = clustered().into_iter().cycle().take(60_000).collect();
    let bytes = 256 << 10;
    let _one = budget(bytes);
    assert!(8 * list.len() as u64 > bytes);
    let dir = TestDir::new("indexed-runs");
    let (array, path) = array(&dir);
    let rest = section(&[(0, 1, 1), (0, 1, 1)]);
    let (axes, lists, strides) = ([0, 1], Lists::Flat(&list), [0, 0]);
    let index = Index { axes: &axes, lists, rest: &rest, point: 1, strides: &strides };
    let hints = Hints { threads: Some(1), ..Hints::default() };
    Arena::global().reset_peak();
    let schedule = array.schedule(&index, &hints).unwrap();
    let held = schedule.bytes() as u64;
    assert_eq!(held, Arena::global().used());
    assert!(held < list.len() as u64 / 4, "{held}");
    let expected: Vec<u8> = list.iter().map(|k| (k % 251) as u8).collect();
    let mut memory = vec![0; list.len()];
    let how = (Direction::Read, User::of(&mut memory, 0), &hints);
    array.run_schedule(&schedule, how, &Never).unwrap();
    assert!(expected == memory);
    // The last value for an element is in the last run that contains it.
    let values: Vec<u8> = (0..list.len()).map(|k| (k / 500 % 253) as u8).collect();
    let mut after = std::fs::read(&path).unwrap();
    list.iter().zip(&values).for_each(|(k, value)| after[*k as usize] = *value);
    let mut given = values.clone();
    let how = (Direction::Write, User::of(&mut given, 0), &hints);
    array.run_schedule(&schedule, how, &Never).unwrap();
    assert!(after == std::fs::read(&path).unwrap());
    assert!(Arena::global().peak() <= bytes, "{}", Arena::global().peak());
    drop(schedule);
    assert_eq!(0, Arena::global().used());
}

#[test]
fn blocks_that_are_large_are_sections() {
    let _one = budget(64 << 20);
    let dir = TestDir::new("indexed-large");
    let row = 300 << 10;
    let content: Vec<u8> = (0..4 * row as u32).map(|k| (k / 1000 % 250) as u8).collect();
    let path = dir.file("a", &content);
    let array = open(dense(&path, &[4, row], 1));
    let list: [i64; 3] = [3, -4, 3];
    let lists: [&[i64]; 1] = [&list];
    let rest = section(&[(0, 1, 1), (0, row, 1)]);
    let (axes, lists, strides) = ([0], Lists::Points(&lists), [0, 1]);
    let index = Index { axes: &axes, lists, rest: &rest, point: row, strides: &strides };
    let hints = Hints::default();
    let mut memory = vec![0; 3 * row as usize];
    let (direction, data) = (Direction::Read, User::of(&mut memory, 0));
    array.run_indexed(&IndexedAccess { direction, index, data, hints: &hints }, &Never).unwrap();
    let of = |k: usize| &content[k * row as usize..(k + 1) * row as usize];
    assert!([of(3), of(0), of(3)].concat() == memory);
}

#[test]
fn ctrl_c_ends_a_long_list() {
    let _one = budget(256 << 10);
    let dir = TestDir::new("indexed-ctrl-c");
    let (array, _) = array(&dir);
    let (list, mut memory) = (list(50_000), vec![0; 50_000]);
    let rest = section(&[(0, 1, 1), (0, 1, 1)]);
    let (axes, lists, strides) = ([0, 1], Lists::Flat(&list), [0, 0]);
    let index = Index { axes: &axes, lists, rest: &rest, point: 1, strides: &strides };
    let (direction, hints) = (Direction::Read, Hints::default());
    let data = User::of(&mut memory, 0);
    let button = Button::default();
    button.press();
    let asked = IndexedAccess { direction, index, data, hints: &hints };
    assert!(array.run_indexed(&asked, &button).unwrap_err().is_cancelled());
    assert_eq!(0, Arena::global().used());
}
