use std::path::PathBuf;

use outcore_io::exec::User;
use outcore_io::StorageError;
use outcore_plan::{Faults, Method};

use super::*;
use crate::testing::{access, budget, dense, open, section, Button, Never, TestDir};

const SHAPE: [i64; 2] = [500, 400];

fn array(dir: &TestDir) -> (Open, PathBuf) {
    let content: Vec<u8> = (0..200_000_u32).map(|k| (k % 251) as u8).collect();
    let path = dir.file("a", &content);
    (open(dense(&path, &SHAPE, 1)), path)
}

/// A section of 200 by 100 elements.
fn some() -> Section {
    section(&[(50, 200, 2), (3, 100, 3)])
}

const STRIDES: [i64; 2] = [100, 1];

fn read(open: &Open, hints: &Hints) -> Result<Vec<u8>, Fault> {
    let (section, mut memory) = (some(), vec![0; 20_000]);
    let access = access(Direction::Read, &section, (&STRIDES, 1), &mut memory, hints);
    open.run(&access, &Never)?;
    Ok(memory)
}

fn write(open: &Open, value: u8, hints: &Hints) -> Result<(), Fault> {
    let (section, mut memory) = (some(), vec![value; 20_000]);
    let access = access(Direction::Write, &section, (&STRIDES, 1), &mut memory, hints);
    open.run(&access, &Never)
}

#[test]
fn a_section_is_read_whatever_the_hints() {
    let _one = budget(64 << 20);
    let dir = TestDir::new("open-read");
    let (array, _) = array(&dir);
    let at = |index: Vec<i64>| ((index[0] * 400 + index[1]) % 251) as u8;
    let expected: Vec<u8> = some().indices().map(at).collect();
    for method in [None, Some(Method::Window), Some(Method::Mapped), Some(Method::List)] {
        for cache in [Cache::Auto, Cache::Keep, Cache::Bypass] {
            let hints = Hints { method, cache, ..Hints::default() };
            assert_eq!(Ok(&expected), read(&array, &hints).as_ref(), "{method:?} {cache:?}");
        }
    }
    assert_eq!(0, Arena::global().used());
    assert!(array.done().read_bytes > 0 && array.done().writes == 0);
}

#[test]
fn a_write_changes_its_section_and_nothing_else() {
    let _one = budget(64 << 20);
    let dir = TestDir::new("open-write");
    let (array, path) = array(&dir);
    let mut expected = std::fs::read(&path).unwrap();
    for index in some().indices() {
        expected[(index[0] * 400 + index[1]) as usize] = 255;
    }
    write(&array, 255, &Hints::default()).unwrap();
    assert!(expected == std::fs::read(&path).unwrap());
}

#[test]
fn a_write_is_counted_when_it_begins_and_when_it_ends() {
    let _one = budget(64 << 20);
    let dir = TestDir::new("open-writes");
    let (array, _) = array(&dir);
    let before = writes();
    read(&array, &Hints::default()).unwrap();
    assert_eq!(before, writes());
    write(&array, 1, &Hints::default()).unwrap();
    assert_eq!(before + 2, writes());
    let in_parts = array.write_in_parts(|| {
        assert_eq!(before + 3, writes());
        Err(StorageError::Cancelled.into())
    });
    assert!(in_parts.is_err());
    assert_eq!(before + 4, writes());
}

#[test]
fn who_reads_what_is_cached_reads_nothing_else() {
    let _one = budget(64 << 20);
    let dir = TestDir::new("open-cached");
    let (array, _) = array(&dir);
    let (section, hints) = (some(), Hints::default());
    let mut memory = vec![0; 20_000];
    let access = access(Direction::Read, &section, (&STRIDES, 1), &mut memory, &hints);
    assert_eq!(0, array.done().rounds);
    assert_eq!(Ok(true), array.run_if_cached(&access, &Never));
    assert!(array.done().rounds > 0);
    let past = Hints { cache: Cache::Bypass, ..Hints::default() };
    let past = Access { hints: &past, ..access };
    assert_eq!(Ok(false), array.run_if_cached(&past, &Never));
}

#[test]
fn an_access_that_was_told_to_stop_moves_nothing() {
    let _one = budget(64 << 20);
    let dir = TestDir::new("open-stopped");
    let (array, path) = array(&dir);
    let before = std::fs::read(&path).unwrap();
    let button = Button::default();
    button.press();
    let (section, hints, mut memory) = (some(), Hints::default(), vec![7; 20_000]);
    let access = access(Direction::Write, &section, (&STRIDES, 1), &mut memory, &hints);
    assert!(array.run(&access, &button).unwrap_err().is_cancelled());
    assert!(before == std::fs::read(&path).unwrap());
}

#[test]
fn memory_that_is_not_the_callers_is_not_touched() {
    let _one = budget(64 << 20);
    let dir = TestDir::new("open-memory");
    let (array, _) = array(&dir);
    let (section, hints, mut memory) = (some(), Hints::default(), vec![7; 19_999]);
    let (direction, data) = (Direction::Read, User::of(&mut memory, 0));
    let access = Access { direction, section: &section, strides: &STRIDES, data, hints: &hints };
    assert_eq!("internal-job", array.run(&access, &Never).unwrap_err().reason().code());
    assert!(memory.iter().all(|byte| *byte == 7));
}

#[test]
fn an_array_that_is_open_for_reading_is_not_written() {
    let _one = budget(64 << 20);
    let dir = TestDir::new("open-read-only");
    let (_, path) = array(&dir);
    let array = Open::new(Arc::new(dense(&path, &SHAPE, 1)), false).unwrap();
    let refused = write(&array, 1, &Hints::default()).unwrap_err();
    assert_eq!("read-only", refused.reason().code());
}

#[test]
fn what_it_takes_is_told_without_doing_it() {
    let _one = budget(64 << 20);
    let dir = TestDir::new("open-survey");
    let (array, _) = array(&dir);
    let (section, hints) = (some(), Hints { method: Some(Method::Window), ..Hints::default() });
    let (direction, data) = (Direction::Read, User::none());
    let access = Access { direction, section: &section, strides: &STRIDES, data, hints: &hints };
    let survey = array.survey(&access, &Never).unwrap();
    assert_eq!(("window", 20_000), (&survey.method[..], survey.cost.useful_bytes));
    assert_eq!(0, array.done().rounds);
    read(&array, &hints).unwrap();
    let done = array.done();
    assert_eq!((survey.cost.reads, survey.cost.read_bytes), (done.reads, done.read_bytes));
    let nothing = Section::whole(&[0, 400]).unwrap();
    let nothing = Access { section: &nothing, ..access };
    assert_eq!(0, array.survey(&nothing, &Never).unwrap().cost.useful_bytes);
}

#[test]
fn flushes_are_counted_and_remembered() {
    let _one = budget(64 << 20);
    let dir = TestDir::new("open-flush");
    let (array, _) = array(&dir);
    let (section, hints, mut memory) = (some(), Hints::default(), vec![7; 20_000]);
    write(&array, 1, &hints).unwrap();
    let access = access(Direction::Write, &section, (&STRIDES, 1), &mut memory, &hints);
    assert!(!array.flushed(&access));
    array.flush().unwrap();
    assert!(array.flushed(&access), "one write, one flush");
    assert_eq!(1, array.done().flushes);
    write(&array, 2, &hints).unwrap();
    array.before_flush(false).unwrap();
    array.flushed_by_another();
    assert!(array.flushed(&access));
    assert_eq!(1, array.done().flushes, "it was another's");
    let durable = Hints { sync: true, ..Hints::default() };
    let (fresh, _) = self::array(&dir);
    assert!(!fresh.flushed(&access) && fresh.flushed(&Access { hints: &durable, ..access }));
    assert!(!fresh.flushed(&Access { direction: Direction::Read, hints: &durable, ..access }));
}

#[test]
fn what_is_opened_beside_counts_with_it_and_a_view_for_itself() {
    let _one = budget(64 << 20);
    let dir = TestDir::new("open-beside");
    let (array, path) = array(&dir);
    let described = || Arc::new(dense(&path, &SHAPE, 1));
    let (beside, view) =
        (array.beside(described(), true).unwrap(), array.view(described(), true).unwrap());
    read(&beside, &Hints::default()).unwrap();
    assert_eq!(array.done().rounds, beside.done().rounds);
    assert_eq!(0, view.done().rounds);
    // All three wait for each other where necessary.
    let _turn = array.windows.turn(true, "a", &Never).unwrap();
    let button = Button::default();
    button.press();
    for other in [&beside, &view] {
        let stopped = other.windows.turn(false, "a", &button).map(drop);
        assert!(stopped.unwrap_err().is_cancelled());
    }
}

#[test]
fn windows_are_written_back_by_one_at_a_time() {
    let _one = budget(64 << 20);
    let dir = TestDir::new("open-windows");
    let (array, path) = array(&dir);
    let exclusive = Hints { method: Some(Method::Window), exclusive: true, ..Hints::default() };
    // Two threads write every second element each: the elements in between belong to the other thread.
    std::thread::scope(|scope| {
        for half in 0..2_u8 {
            let (array, exclusive) = (&array, &exclusive);
            scope.spawn(move || {
                let section = section(&[(0, 500, 1), (i64::from(half), 200, 2)]);
                for round in 0..20 {
                    let mut memory = vec![2 * round + half; 100_000];
                    let access =
                        access(Direction::Write, &section, (&[200, 1], 1), &mut memory, exclusive);
                    array.run(&access, &Never).unwrap();
                }
            });
        }
    });
    let file = std::fs::read(&path).unwrap();
    assert!(file.iter().enumerate().all(|(k, byte)| *byte == 38 + (k % 2) as u8));
}

#[test]
fn what_is_read_ahead_moves_nothing() {
    let _one = budget(64 << 20);
    let dir = TestDir::new("open-ahead");
    let (array, _) = array(&dir);
    let (section, hints) = (some(), Hints::default());
    let (direction, data) = (Direction::Read, User::none());
    let access = Access { direction, section: &section, strides: &STRIDES, data, hints: &hints };
    array.prefetch(&access, &Never).unwrap();
    assert_eq!(0, array.done().rounds);
    let button = Button::default();
    button.press();
    assert!(array.prefetch(&access, &button).is_ok(), "it only looks");
}

#[test]
fn a_loop_over_a_plain_array_needs_a_page() {
    let _one = budget(64 << 20);
    let dir = TestDir::new("open-least");
    let (array, _) = array(&dir);
    assert_eq!(PAGE as i64, array.least(Direction::Read));
    assert_eq!(PAGE as i64, array.least_to_read().unwrap());
    assert_eq!(2 * PAGE as i64, array.least_to_cast(1000).unwrap(), "and a page for the cast");
}

/// An array of `rows` rows of 64 KiB, of which one column is in the page cache, each page separately.
fn tall(dir: &TestDir, rows: i64) -> (PathBuf, Section) {
    use std::os::unix::fs::FileExt;
    let path = dir.path().join("tall");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len((rows as u64) << 16).unwrap();
    for row in 0..rows as u64 {
        file.write_all_at(&row.to_ne_bytes(), (row << 16) + 8 * 500).unwrap();
    }
    (path, section(&[(0, rows, 1), (500, 1, 1)]))
}

/// Returns the methods by which consecutive reads moved bytes; `survey` reported each in advance.
fn methods(array: &Open, column: &Section, hints: &Hints, reads: usize) -> Vec<String> {
    let rows = column.shape()[0];
    let expected: Vec<u8> = (0..rows as u64).flat_map(u64::to_ne_bytes).collect();
    let one = |_| {
        let mut memory = vec![0; expected.len()];
        let access = access(Direction::Read, column, (&[8, 8], 8), &mut memory, hints);
        let told = array.survey(&access, &Never).unwrap();
        assert_eq!(Some(1000), told.cached);
        assert_eq!(
            told.method,
            array.survey(&access, &Never).unwrap().method,
            "asking costs nothing"
        );
        let before = array.done();
        array.run(&access, &Never).unwrap();
        assert_eq!(expected, memory);
        let done = array.done();
        let moved = (done.reads - before.reads, done.mapped_bytes - before.mapped_bytes);
        let mapped = if told.method == "mapped" { (0, 8 * rows) } else { (rows, 0) };
        assert_eq!(mapped, moved);
        told.method
    };
    (0..reads).map(one).collect()
}

#[test]
fn who_reads_once_takes_no_page_faults_and_who_reads_often_takes_them_once() {
    let _one = budget(256 << 20);
    let dir = TestDir::new("open-entered");
    let (path, column) = tall(&dir, 1024);
    if std::fs::File::open("/proc/self/pagemap").is_err() {
        eprintln!("SKIPPED: this system does not tell which pages are entered");
        return;
    }
    let described = dense(&path, &[1024, 8192], 8);
    let (Layout::Strided(layout), files) = (&described.layout, described.table(false)) else {
        unreachable!()
    };
    for _ in 0..2 {
        let none = Faults { absent: 1000, large: 0, chunks: 0, rent: 0 };
        let found = terms::faults(layout, &column, &files);
        assert_eq!(Some(none), found, "what was tried is not what is looked at");
    }
    let (hints, array) = (Hints::default(), || open(dense(&path, &[1024, 8192], 8)));
    let first = methods(&array(), &column, &hints, 10);
    let calls = first.iter().take_while(|method| *method == "straight").count();
    assert!((2..8).contains(&calls), "{first:?}");
    assert!(first[calls..].iter().all(|method| method == "mapped"), "{first:?}");
    assert_eq!(first, methods(&array(), &column, &hints, 10), "equal reads, equal choices");
    // Pages that another process mapped are available to others.
    let mapped = Hints { method: Some(Method::Mapped), ..Hints::default() };
    let array = array();
    methods(&array, &column, &mapped, 1);
    assert_eq!(vec!["mapped"], methods(&array, &column, &hints, 1));
}

#[test]
fn small_reads_do_not_ask_which_pages_are_entered() {
    let _one = budget(256 << 20);
    let dir = TestDir::new("open-few");
    let (path, column) = tall(&dir, 500);
    let array = open(dense(&path, &[500, 8192], 8));
    assert_eq!(vec!["mapped"], methods(&array, &column, &Hints::default(), 1));
}
