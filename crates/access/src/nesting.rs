//! Calls that are made inside a call of the same thread.
//!
//! Problem. A running access checks for signals and calls the library of the format. Both run code of the
//! caller: signal handlers, finalizers, hooks. Such code may use outcore, on the thread of the access. The
//! access holds resources (a turn at the memory, locks on files, windows that are written back) and releases
//! them only after that code has ended. So an inner call that waited for any of them would wait forever.
//!
//! Idea. Each thread knows which calls are in progress on it. An inner call is a part of the outer call's
//! turn, and never waits for a lock: it runs, or is refused immediately.
//!
//! Invariants. Only the outermost call of a thread waits for others, because others may depend on what its
//! thread holds. In a forked child no call is in progress.

use std::cell::{Cell, RefCell};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use outcore_io::lock::FileLock;
use outcore_io::process;

use crate::error::{Fault, Reason};

/// Relation of a thread to turns at the memory (`admission.rs`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seat {
    /// The thread has no turn.
    None,
    /// The thread waits until it runs alone, and holds nothing during that.
    Waits,
    /// The thread has a turn.
    Has,
    /// The thread works inside the turn of an outer call.
    Shares,
}

thread_local! {
    /// Process, and number of calls of this thread in progress there.
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

/// Returns this thread's relation to turns.
pub fn seat() -> Seat {
    let (pid, seat) = SEAT.get();
    if pid == process::id() {
        seat
    } else {
        Seat::None
    }
}

/// A call in progress on this thread; ends on drop.
#[must_use]
pub struct Inside(());

impl Inside {
    /// Begins a call.
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

/// Begins a call on this thread, which holds locks; [`end`] follows.
pub fn begin() {
    DEPTH.set((process::id(), depth() + 1));
}

/// Ends the call that began last.
pub fn end() {
    DEPTH.set((process::id(), depth().saturating_sub(1)));
}

/// Another seat of this thread, until this is dropped.
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

/// Returns whether the current call was made inside another call of this thread.
pub fn is_nested() -> bool {
    depth() > 1
}

/// Code above this crate that runs during an access, on any of its threads; ends on drop.
#[must_use]
pub struct Callback(
    #[allow(dead_code, reason = "kept for its drop")] Inside,
    #[allow(dead_code, reason = "kept for its drop")] Option<Seated>,
);

impl Callback {
    /// Begins such code.
    pub fn begin() -> Callback {
        // A helper thread has no separate call: it works in the turn of the call that it helps.
        let seat = (depth() == 0).then(|| Seated::on(Seat::Has));
        Callback(Inside::enter(), seat)
    }
}

/// Returns the error of a nested call that cannot have a resource.
pub fn refused(path: &str, what: &str) -> Fault {
    let reason = Reason::Nested { path: path.to_owned(), what: what.to_owned() };
    Fault::from(reason).at(path)
}

/// Explains a refusal of memory to a nested call, which has ended.
pub fn hint(fault: Fault) -> Fault {
    match fault.is_about_memory() && is_inside() {
        true => fault.hint(
            "This call was made inside another call of the same thread (by a signal handler, a \
             finalizer or another callback), which holds memory until it ends; make the call after \
             the outer one has returned.",
        ),
        false => fault,
    }
}

/// Records that this thread holds the lock of a file for reading, until this is dropped.
#[must_use]
pub struct Reading(Option<(u64, u64)>);

impl Reading {
    /// Records the file of the lock.
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

/// Begins a change of a file (device, inode) by this thread: a nested call, from a signal handler, must not
/// wait for its locks.
pub fn begin_change(file: (u64, u64)) {
    CHANGED.with_borrow_mut(|changed| changed.push((process::id(), file)));
}

/// Ends the change.
pub fn end_change(file: (u64, u64)) {
    let file = (process::id(), file);
    CHANGED.with_borrow_mut(|changed| {
        if let Some(at) = changed.iter().rposition(|one| *one == file) {
            changed.remove(at);
        }
    });
}

/// Returns whether this thread is changing a file.
pub fn changes_here(path: &Path) -> bool {
    let changed = CHANGED.with_borrow(|changed| changed.clone());
    let found = if changed.is_empty() { None } else { std::fs::metadata(path).ok() };
    found.is_some_and(|found| changed.contains(&(process::id(), (found.dev(), found.ino()))))
}

/// Returns whether this thread is reading chunks of a file, which must not be changed during that.
pub fn reads_here(device: u64, inode: u64) -> bool {
    depth() > 0 && READ.with_borrow(|read| read.contains(&(device, inode)))
}

/// Returns whether a call is in progress on this thread.
pub fn is_inside() -> bool {
    depth() > 0
}

#[cfg(test)]
mod tests;
