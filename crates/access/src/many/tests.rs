use outcore_io::exec::User;
use outcore_plan::Direction;

use super::*;
use crate::hints::Hints;
use crate::testing::{budget, dense, open, section, Never, TestDir};

/// Reads the listed sections.
type Read<'a> = dyn Fn(&[(&Open, Access)]) -> Result<(), Fault> + 'a;

/// Reads a section of each file into one piece of memory, each `apart` bytes after the previous one.
fn read_all(arrays: &[Open], apart: usize, hints: &Hints, read: &Read) -> Result<Vec<u8>, Fault> {
    let (section, mut memory) = (section(&[(100, 500, 2)]), vec![0; 500 * arrays.len()]);
    let len = memory.len() as i64;
    let all = User::of(&mut memory, 0);
    let mut jobs: Vec<(&Open, Access)> = Vec::new();
    for (k, open) in arrays.iter().enumerate() {
        let at = (k * apart) as i64;
        assert!(at + 500 <= len);
        let (direction, data) = (Direction::Read, all.shifted(at));
        jobs.push((open, Access { direction, section: &section, strides: &[1], data, hints }));
    }
    read(&jobs)?;
    Ok(memory)
}

fn arrays(dir: &TestDir, number: usize) -> Vec<Open> {
    let array =
        |k: usize| open(dense(&dir.file(&format!("{k}"), &[k as u8 + 1; 2000]), &[2000], 1));
    (0..number).map(array).collect()
}

fn expected(number: usize) -> Vec<u8> {
    (0..number).flat_map(|k| vec![k as u8 + 1; 500]).collect()
}

#[test]
fn each_section_goes_to_its_place_whoever_reads_it() {
    let _one = budget(64 << 20);
    let dir = TestDir::new("many");
    let arrays = arrays(&dir, 9);
    // With the page cache bypassed nothing is cached: small sections are read by several threads.
    let cold = Hints { cache: crate::Cache::Bypass, ..Hints::default() };
    for (lanes, turn) in [(1, (0, 1)), (4, (0, 1)), (4, (2, 3)), (20, (8, 9))] {
        let read = |jobs: &[(&Open, Access)]| super::read(jobs, lanes, turn, &Never);
        assert_eq!(Ok(expected(9)), read_all(&arrays, 500, &cold, &read));
    }
}

#[test]
fn what_goes_into_the_same_memory_is_read_in_order() {
    let _one = budget(64 << 20);
    let dir = TestDir::new("many-same");
    let arrays = arrays(&dir, 9);
    let cold = Hints { cache: crate::Cache::Bypass, ..Hints::default() };
    let share = |apart| {
        let told = std::cell::Cell::new(false);
        let read = |jobs: &[(&Open, Access)]| {
            told.set(share_memory(jobs));
            super::read(jobs, 4, (1, 2), &Never)
        };
        let memory = read_all(&arrays, apart, &cold, &read).unwrap();
        (told.get(), memory)
    };
    assert!(!share(500).0);
    assert!(share(499).0);
    let (told, memory) = share(0);
    assert!(told && memory[..500] == [9; 500], "what is listed last is read last");
}

#[test]
fn the_first_failure_ends_the_call_and_names_its_array() {
    let _one = budget(64 << 20);
    let dir = TestDir::new("many-failed");
    let arrays = arrays(&dir, 5);
    dir.file("3", b"short");
    for lanes in [1, 4] {
        let cold = Hints { cache: crate::Cache::Bypass, ..Hints::default() };
        let read = |jobs: &[(&Open, Access)]| super::read(jobs, lanes, (0, 1), &Never);
        let failed = read_all(&arrays, 500, &cold, &read).unwrap_err();
        assert_eq!("file-truncated", failed.reason().code());
        assert!(failed.path().unwrap().ends_with("/3"), "{failed}");
    }
}

#[test]
fn nothing_is_read_if_it_is_not_cached() {
    let _one = budget(64 << 20);
    let dir = TestDir::new("many-cached");
    let arrays = arrays(&dir, 2);
    let told = std::cell::Cell::new(None);
    let read = |jobs: &[(&Open, Access)]| {
        told.set(Some(read_if_cached(jobs, &Never)?));
        Ok(())
    };
    // A section of a page counts as cached; with the page cache bypassed nothing does.
    assert_eq!(Ok(expected(2)), read_all(&arrays, 500, &Hints::default(), &read));
    assert_eq!(Some(true), told.get());
    let cold = Hints { cache: crate::Cache::Bypass, ..Hints::default() };
    assert_eq!(Ok(vec![0; 1000]), read_all(&arrays, 500, &cold, &read));
    assert_eq!(Some(false), told.get());
}

#[test]
fn what_is_dear_is_left_to_a_plan() {
    let _one = budget(64 << 20);
    let dir = TestDir::new("many-early");
    let arrays = arrays(&dir, 2);
    let cold = Hints { cache: crate::Cache::Bypass, ..Hints::default() };
    let section = section(&[(100, 500, 2)]);
    let sooner = |ranks, oversubscription| {
        let all: Vec<_> = arrays.iter().map(|open| (open, &section, &cold)).collect();
        reads_sooner(&all, (ranks, oversubscription), &Never)
    };
    // With one rank there is no plan with others; for each other rank the cost of a plan could be saved.
    assert!(sooner(1, 1000) && !sooner(1_000_000, 1000));
    // Planning takes long if ranks share a processor.
    assert!(sooner(1_000_000, i64::MAX / 2));
}
