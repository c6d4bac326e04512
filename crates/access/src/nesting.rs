//! Calls that are made inside a call of the same thread.
//!
//! Problem. A running access looks for signals and calls the library of the format. Both run code of the
//! caller: handlers of signals, finalizers, hooks. Such code may use outcore, on the thread of the access.
//! What the access holds (a turn at the memory, locks on files, windows that are written back) it gives
//! back only after that code has ended, so an inner call that waited for any of it would wait for ever.
//!
//! Idea. Each thread knows what it is in the midst of. An inner call is a part of the turn that the outer
//! one has, and never waits for a lock: it runs, or is refused at once.
//!
//! Invariants. Only the outermost call of a thread waits while others may depend on what its thread
//! holds. A forked child is in the midst of nothing.

use std::cell::{Cell, RefCell};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use outcore_io::lock::FileLock;
use outcore_io::process;

use crate::error::{Fault, Reason};

/// What a thread has to do with turns at the memory (`admission.rs`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seat {
    /// Nothing.
    None,
    /// It waits until it is alone, and holds nothing meanwhile.
    Waits,
    /// It has a turn.
    Has,
    /// It works inside of the turn that an outer call has.
    Shares,
}

thread_local! {
    /// The process, and how many calls of this thread are under way in it.
    static DEPTH: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
    static SEAT: Cell<(u32, Seat)> = const { Cell::new((0, Seat::None)) };
    /// Files (process, device and inode) that this thread changes.
    static CHANGED: RefCell<Vec<(u32, (u64, u64))>> = const { RefCell::new(Vec::new()) };
    /// Files (device, inode) whose chunks this thread looks up or reads.
    static READ: RefCell<Vec<(u64, u64)>> = const { RefCell::new(Vec::new()) };
}

fn depth() -> u32 {
    let (pid, depth) = DEPTH.get();
    if pid == process::id() {
        depth
    } else {
        0
    }
}

/// What this thread has to do with turns.
pub fn seat() -> Seat {
    let (pid, seat) = SEAT.get();
    if pid == process::id() {
        seat
    } else {
        Seat::None
    }
}

/// A call that is under way on this thread; ends on drop.
#[must_use]
pub struct Inside(());

impl Inside {
    /// Begins one.
    pub fn enter() -> Inside {
        begin();
        Inside(())
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        end();
    }
}

/// A call begins on this thread, which holds locks; [`end`] follows.
pub fn begin() {
    DEPTH.set((process::id(), depth() + 1));
}

/// The call that began last has ended.
pub fn end() {
    DEPTH.set((process::id(), depth().saturating_sub(1)));
}

/// Another seat of this thread, until it is dropped.
#[must_use]
pub struct Seated(Seat);

impl Seated {
    /// Takes a seat.
    pub fn on(seat: Seat) -> Seated {
        let before = self::seat();
        SEAT.set((process::id(), seat));
        Seated(before)
    }
}

impl Drop for Seated {
    fn drop(&mut self) {
        SEAT.set((process::id(), self.0));
    }
}

/// Whether the call that asks was made inside another one of this thread.
pub fn is_nested() -> bool {
    depth() > 1
}

/// Code above this crate that runs in the midst of an access, on any of its threads; ends on drop.
#[must_use]
pub struct Callback(
    #[allow(dead_code, reason = "kept for its drop")] Inside,
    #[allow(dead_code, reason = "kept for its drop")] Option<Seated>,
);

impl Callback {
    /// Begins.
    pub fn begin() -> Callback {
        // A thread that helps has no call of its own, and works in the turn of the one it helps.
        let seat = (depth() == 0).then(|| Seated::on(Seat::Has));
        Callback(Inside::enter(), seat)
    }
}

/// A nested call cannot have what it needs.
pub fn refused(path: &str, what: &str) -> Fault {
    let reason = Reason::Nested { path: path.to_owned(), what: what.to_owned() };
    Fault::from(reason).at(path)
}

/// What a refusal of memory means for a nested call, which has ended.
pub fn hint(fault: Fault) -> Fault {
    match fault.is_about_memory() && is_inside() {
        true => fault.hint(
            "This call was made inside another one of the same thread (by a signal handler, a \
             finalizer or another callback), which holds memory until it ends: make it when that one \
             has returned.",
        ),
        false => fault,
    }
}

/// Notes that this thread holds the lock for reading on a file, until it is dropped.
#[must_use]
pub struct Reading(Option<(u64, u64)>);

impl Reading {
    /// Of the file that is locked.
    pub fn of(lock: Option<&FileLock>) -> Reading {
        let file = lock.and_then(FileLock::inode);
        READ.with_borrow_mut(|read| read.extend(file));
        Reading(file)
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        READ.with_borrow_mut(|read| {
            if let Some(at) = read.iter().rposition(|file| Some(*file) == self.0) {
                read.remove(at);
            }
        });
    }
}

/// This thread begins to change a file (device, inode): a call that comes in between, from a handler of a
/// signal, must not wait for its locks.
pub fn begin_change(file: (u64, u64)) {
    CHANGED.with_borrow_mut(|changed| changed.push((process::id(), file)));
}

/// The change has ended.
pub fn end_change(file: (u64, u64)) {
    let file = (process::id(), file);
    CHANGED.with_borrow_mut(|changed| {
        if let Some(at) = changed.iter().rposition(|one| *one == file) {
            changed.remove(at);
        }
    });
}

/// Whether this thread is in the midst of changing a file.
pub fn changes_here(path: &Path) -> bool {
    let changed = CHANGED.with_borrow(|changed| changed.clone());
    let found = if changed.is_empty() { None } else { std::fs::metadata(path).ok() };
    found.is_some_and(|found| changed.contains(&(process::id(), (found.dev(), found.ino()))))
}

/// Whether this thread is in the midst of reading chunks of a file, which keeps it from being changed.
pub fn reads_here(device: u64, inode: u64) -> bool {
    depth() > 0 && READ.with_borrow(|read| read.contains(&(device, inode)))
}

/// Whether this thread is in the midst of a call.
pub fn is_inside() -> bool {
    depth() > 0
}

#[cfg(test)]
mod tests;
