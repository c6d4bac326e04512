use std::sync::mpsc;
use std::sync::Arc;

use super::*;
use crate::nesting::Inside;
use crate::testing::{Button, Never};

#[test]
fn who_is_alone_is_beside_nobody() {
    let windows = Arc::new(Windows::default());
    let shared = windows.turn(false, "a", &Never).unwrap();
    drop(windows.turn(false, "a", &Never).unwrap());
    let (told, heard) = mpsc::channel();
    let other = windows.clone();
    let thread = std::thread::spawn(move || {
        let _alone = other.turn(true, "a", &Never).unwrap();
        told.send(()).unwrap();
    });
    assert!(heard.recv_timeout(Duration::from_millis(50)).is_err(), "a window beside a write");
    drop(shared);
    heard.recv().unwrap();
    thread.join().unwrap();
    assert!(windows.holders().is_empty());
    let alone = windows.turn(true, "a", &Never).unwrap();
    assert!(windows.attempt(false).is_none(), "a write beside a window");
    drop(alone);
}

#[test]
fn waiting_ends_with_an_interrupt() {
    let windows = Windows::default();
    let _alone = windows.turn(true, "a", &Never).unwrap();
    let button = Button::default();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| windows.turn(false, "a", &button).map(drop));
        while button.asked() == 0 {
            thread::sleep(GLANCE);
        }
        button.press();
        assert!(waits.join().unwrap().unwrap_err().is_cancelled());
    });
}

#[test]
fn a_write_inside_another_one_is_refused_instead_of_waiting() {
    let windows = Windows::default();
    let _outer = Inside::enter();
    let _alone = windows.turn(true, "a", &Never).unwrap();
    let _inner = Inside::enter();
    let refused = windows.turn(false, "a", &Never).map(drop).unwrap_err();
    assert_eq!("nested-call", refused.reason().code());
}
