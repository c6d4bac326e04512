use std::sync::mpsc;

use super::*;
use crate::nesting::Inside;
use crate::testing::{budget, Button, Never};

const PAGES: u64 = 1 << 20;

/// Blocks with a given number of bytes, and the bytes that reading them needs.
struct Of {
    wanted: u64,
    least: u64,
}

impl Blocks for Of {
    fn least(&self) -> Result<u64, Fault> {
        Ok(self.least)
    }

    fn least_besides_tables(&self) -> u64 {
        self.least
    }

    fn choose(&self, _room: u64) -> Result<u64, Fault> {
        Ok(self.wanted)
    }
}

fn begin(wanted: u64, least: u64, interrupts: &dyn Interrupts) -> Result<Loop, Fault> {
    begin_with(wanted, least, &Hints::default(), interrupts)
}

fn begin_with(
    wanted: u64,
    least: u64,
    hints: &Hints,
    interrupts: &dyn Interrupts,
) -> Result<Loop, Fault> {
    let blocks = Of { wanted: wanted * PAGES, least: least * PAGES };
    Start { blocks: &blocks, path: "a", hints }.begin(interrupts)
}

fn why(fault: &Fault) -> &'static str {
    match fault.reason() {
        Reason::BlockTooLarge { why, .. } => why,
        other => panic!("{other}"),
    }
}

#[test]
fn what_is_held_between_accesses_leaves_what_was_promised_free() {
    let _one = budget(10 * PAGES);
    let others = std::thread::spawn(|| promise(4 * PAGES as i64)).join().unwrap();
    assert!(reserve("a test", 7 * PAGES).is_err());
    drop(reserve("a test", 6 * PAGES).unwrap());
    drop(others);
    let mine = promise(4 * PAGES as i64);
    drop(reserve("a test", 10 * PAGES).unwrap()); // this thread now uses its promise
    drop(mine);
}

#[test]
fn a_loop_leaves_free_what_reading_its_blocks_takes() {
    let _one = budget(10 * PAGES);
    let one = begin(6, 3, &Never).unwrap();
    assert_eq!(3 * PAGES, one.least());
    assert_eq!(6 * PAGES, Arena::global().used());
    assert!(reserve("a test", 2 * PAGES).is_err());
    drop(reserve("a test", PAGES).unwrap());
    one.release();
    one.release();
    assert_eq!(0, Arena::global().used());
    drop(reserve("a test", 10 * PAGES).unwrap());
}

#[test]
fn blocks_that_never_fit_are_refused_at_once() {
    let _one = budget(10 * PAGES);
    let refused = begin(8, 3, &Never).map(drop).unwrap_err();
    assert_eq!("the memory budget is smaller", why(&refused));
    assert!(refused.to_string().contains(&format!("{} bytes", 11 * PAGES)), "{refused}");
    let hints = Hints { memory: Some(5 * PAGES), ..Hints::default() };
    let refused = begin_with(4, 3, &hints, &Never).map(drop).unwrap_err();
    assert_eq!("Hints(memory=...) allows less", why(&refused));
    drop(begin_with(2, 3, &hints, &Never).unwrap());
}

#[test]
fn a_loop_of_another_thread_is_waited_for() {
    let _one = budget(10 * PAGES);
    let (begun, has_begun) = mpsc::channel();
    let (end, is_to_end) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let one = begin(6, 2, &Never).unwrap();
            begun.send(()).unwrap();
            is_to_end.recv().unwrap();
            drop(one);
        });
        has_begun.recv().unwrap();
        let second = scope.spawn(|| begin(6, 2, &Never).map(drop));
        while LOOPS.get().lock().queue.is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(2 * GLANCE);
        assert!(!second.is_finished(), "both together are more than the budget");
        end.send(()).unwrap();
        second.join().unwrap().unwrap();
    });
    assert!(LOOPS.get().lock().queue.is_empty() && LOOPS.get().lock().running.is_empty());
}

#[test]
fn loops_that_stand_still_are_not_waited_for_for_ever() {
    let _one = budget(10 * PAGES);
    wait_for_loops(Duration::from_millis(100));
    let other = std::thread::spawn(|| begin(6, 2, &Never).unwrap()).join().unwrap();
    let refused = begin(6, 2, &Never).map(drop).unwrap_err();
    wait_for_loops(Duration::from_secs(60));
    assert!(why(&refused).contains("make no progress"), "{refused}");
    drop(other);
}

#[test]
fn who_might_wait_for_himself_does_not() {
    let _one = budget(10 * PAGES);
    let mine = begin(6, 2, &Never).unwrap();
    let refused = begin(6, 2, &Never).map(drop).unwrap_err();
    assert!(why(&refused).contains("open loops of this thread"), "{refused}");
    // The thread that works with the blocks has the loop.
    std::thread::scope(|scope| scope.spawn(|| mine.step()).join().unwrap());
    let (_outer, _inner) = (Inside::enter(), Inside::enter());
    let refused = begin(6, 2, &Never).map(drop).unwrap_err();
    assert!(why(&refused).contains("in progress on this thread"), "{refused}");
}

#[test]
fn waiting_ends_with_an_interrupt_and_gives_the_place_up() {
    let _one = budget(10 * PAGES);
    let other = std::thread::spawn(|| begin(6, 2, &Never).unwrap()).join().unwrap();
    let button = Button::default();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| begin(6, 2, &button).map(drop));
        while button.asked() == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        button.press();
        assert!(waits.join().unwrap().unwrap_err().is_cancelled());
    });
    assert!(LOOPS.get().lock().queue.is_empty());
    drop(other);
}
