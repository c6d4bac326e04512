use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;

use super::*;
use crate::testing::{budget, Button, Never};

fn refused() -> Result<(), Fault> {
    Err(Reason::Busy.into())
}

fn counts() -> (u64, u64) {
    let counts = ADMISSION.get().lock();
    (counts.running, counts.alone)
}

#[test]
fn who_was_alone_is_refused_for_good() {
    let _one = budget(1 << 30);
    let mut tries = 0;
    let result = in_turn(&Never, || {
        tries += 1;
        assert!(is_alone());
        refused()
    });
    assert!(result.unwrap_err().is_about_memory());
    assert_eq!((1, (0, 0)), (tries, counts()));
}

#[test]
fn who_was_refused_beside_others_tries_again_alone() {
    let _one = budget(1 << 30);
    let (begun, has_begun) = mpsc::channel();
    let (end, is_to_end) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            in_turn(&Never, || {
                begun.send(()).unwrap();
                is_to_end.recv().unwrap();
                Ok(())
            })
            .unwrap();
        });
        has_begun.recv().unwrap();
        let mut tries = 0;
        let result = in_turn(&Never, || {
            tries += 1;
            if tries == 1 {
                assert!(!is_alone());
                end.send(()).unwrap();
                return refused();
            }
            assert!(is_alone() && counts() == (1, 1));
            Ok(())
        });
        result.unwrap();
        assert_eq!(2, tries);
    });
    assert_eq!((0, 0), counts());
}

#[test]
fn a_failure_that_is_not_about_room_is_not_tried_again() {
    let _one = budget(1 << 30);
    let (begun, has_begun) = mpsc::channel();
    let (end, is_to_end) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let turn = in_turn(&Never, || {
                begun.send(()).unwrap();
                is_to_end.recv().unwrap();
                Ok(())
            });
            turn.unwrap();
        });
        has_begun.recv().unwrap();
        let mut tries = 0;
        let failed = in_turn(&Never, || {
            tries += 1;
            Err(outcore_io::StorageError::BadJob("a test".to_owned()).into())
        });
        end.send(()).unwrap();
        assert_eq!(("internal-job", 1), (failed.unwrap_err().reason().code(), tries));
    });
}

#[test]
fn nobody_begins_while_somebody_waits_to_be_alone() {
    let _one = budget(1 << 30);
    let order = Mutex::new(Vec::new());
    let note = |what| order.lock().unwrap().push(what);
    let until = |test: &dyn Fn() -> bool| {
        while !test() {
            thread::sleep(Duration::from_millis(1));
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let first = in_turn(&Never, || {
                until(&|| counts().1 == 1); // the second one was refused memory
                scope.spawn(|| {
                    let third = in_turn(&Never, || {
                        note("third");
                        Ok(())
                    });
                    third.unwrap();
                });
                until(&|| ADMISSION.get().lock().asleep == 2);
                Ok(())
            });
            first.unwrap();
        });
        until(&|| counts().0 == 1);
        let tries = AtomicU32::new(0);
        let second = in_turn(&Never, || {
            if tries.fetch_add(1, Ordering::SeqCst) == 0 {
                return refused();
            }
            note("second");
            Ok(())
        });
        second.unwrap();
    });
    assert_eq!(vec!["second", "third"], *order.lock().unwrap());
}

#[test]
fn waiting_ends_with_an_interrupt() {
    let _one = budget(1 << 30);
    let button = Button::default();
    std::thread::scope(|scope| {
        let outer = in_turn(&Never, || {
            let waits = scope.spawn(|| {
                in_turn(&button, || {
                    button.press();
                    refused()
                })
            });
            let cancelled = waits.join().unwrap().unwrap_err();
            assert!(cancelled.is_cancelled());
            Ok(())
        });
        outer.unwrap();
    });
    assert_eq!((0, 0), counts());
}

#[test]
fn a_step_inside_a_turn_is_a_part_of_it() {
    let _one = budget(1 << 30);
    let outer = in_turn(&Never, || {
        let mut tries = 0;
        let inner = in_turn(&Never, || {
            tries += 1;
            assert_eq!((Seat::Shares, (1, 0)), (nesting::seat(), counts()));
            refused()
        });
        assert_eq!(1, tries);
        assert_eq!(Seat::Has, nesting::seat());
        inner
    });
    assert!(outer.is_err());
    assert_eq!(Seat::None, nesting::seat());
}

#[test]
fn modes_wait_or_do_not() {
    let _one = budget(1 << 30);
    let seen = |mode: Mode| {
        let mut seen = Seat::None;
        let done = mode.step(&Never, || {
            seen = nesting::seat();
            Ok(())
        });
        done.unwrap();
        seen
    };
    assert_eq!(Seat::Has, seen(Mode::Run));
    assert_eq!(Seat::None, seen(Mode::Look));
    assert_eq!(Seat::None, seen(Mode::Nested));
}

#[test]
fn a_fraction_of_the_budget_is_refused_only_beside_others() {
    let _one = budget(1 << 20);
    let _held = Arena::global().reserve("a test", (1 << 20) - 4096).unwrap();
    let hints = Hints::default();
    let small = Hints { memory: Some(4096), ..Hints::default() };
    refuse_crumbs(&hints).unwrap();
    let turn = in_turn(&Never, || {
        std::thread::scope(|scope| {
            let beside = scope.spawn(|| {
                in_turn(&Never, || {
                    refuse_crumbs(&small)?;
                    assert_eq!(Reason::Busy, *refuse_crumbs(&hints).unwrap_err().reason());
                    Ok(())
                })
            });
            beside.join().unwrap()
        })
    });
    turn.unwrap();
}

#[test]
fn a_turn_whose_handler_runs_for_long_is_not_waited_for() {
    let _one = budget(1 << 30);
    assert!(!Handling::begin().0, "this thread has no turn");
    let turn = in_turn(&Never, || {
        let _handling = Handling::begin();
        let me = thread::current().id();
        assert!(!is_stuck(me));
        std::thread::scope(|scope| {
            let beside = scope.spawn(|| {
                let mut tries = 0;
                in_turn(&Never, || {
                    tries += 1;
                    if tries == 1 {
                        return refused();
                    }
                    Ok(())
                })
            });
            beside.join().unwrap()
        })?;
        assert!(is_stuck(me));
        Ok(())
    });
    turn.unwrap();
    assert!(ADMISSION.get().handling().is_empty());
}
