//! The budget of open files.
//!
//! Problem. The system limits the number of open files of a process (`RLIMIT_NOFILE`, `ulimit -n`).
//! An access to chunks in separate files has hundreds open, several accesses have thousands, and
//! then the next file fails to open, of outcore or of the program around it.
//!
//! Idea. As with memory, there is a budget: the limit minus a part for the rest of the program. A
//! batch of chunks requests the number of files that it will have open before it begins ([`take`]),
//! and is made smaller if fewer are left. Files that arrays keep open for their next access
//! ([`keep`]) get at most half of the budget. They are closed when their place is needed
//! ([`release_idle`]), also when the system has none left for a file that is not counted.
//!
//! Invariants. Places are counted before a file is opened, and released after it is closed. A
//! forked child has its own count and releases nothing of its parent's.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, Weak};

use crate::process::{self, PerProcess};

static BUDGET: PerProcess<Budget> = PerProcess::new(Budget::default);

/// Smallest and largest part of the limit that is left to the rest of the program: a quarter,
/// within these bounds.
const REST: (u64, u64) = (16, 256);

#[derive(Debug, Default)]
struct Budget {
    held: AtomicU64,
    /// Files kept open between accesses, included in `held`.
    kept: AtomicU64,
    /// Files that are kept open, and may be closed if necessary.
    idle: Mutex<Vec<Weak<dyn Idle>>>,
}

/// A file that is kept open between accesses.
pub(crate) trait Idle: std::fmt::Debug + Send + Sync {
    /// Closes the file; returns whether it was open, or `None` if it is in use.
    fn close(&self) -> Option<bool>;
}

/// Places for open files, released on drop.
#[must_use]
#[derive(Debug)]
pub struct Places {
    number: u64,
    keeps: bool,
    pid: u32,
}

impl Drop for Places {
    fn drop(&mut self) {
        if self.pid == process::id() {
            let budget = BUDGET.get();
            budget.held.fetch_sub(self.number, Ordering::AcqRel);
            if self.keeps {
                budget.kept.fetch_sub(self.number, Ordering::AcqRel);
            }
        }
    }
}

/// Returns the number of files that the system allows this process now.
pub fn allowed() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is valid for writing.
    match unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } {
        #[allow(clippy::unnecessary_cast, reason = "the type differs between systems")]
        0 => limit.rlim_cur as u64,
        _ => 1024,
    }
}

/// Returns the number of files that may be open at the same time.
pub fn limit() -> u64 {
    let allowed = allowed();
    let rest = (allowed / 4).clamp(REST.0, REST.1);
    // One file must always be possible, whatever the limit is.
    allowed.saturating_sub(rest).max(allowed / 4).max(1)
}

/// Returns the number of free places.
pub fn available() -> u64 {
    limit().saturating_sub(BUDGET.get().held.load(Ordering::Acquire))
}

/// Returns the number of places in use.
pub fn held() -> u64 {
    BUDGET.get().held.load(Ordering::Acquire)
}

fn places(number: u64, keeps: bool) -> Places {
    Places { number, keeps, pid: process::id() }
}

fn count(counter: &AtomicU64, number: u64, most: u64) -> bool {
    let more = |now: u64| now.checked_add(number).filter(|sum| *sum <= most);
    counter.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
}

/// Takes places for `number` files temporarily, closing idle files if necessary; `None` if too few
/// are free.
pub fn take(number: u64) -> Option<Places> {
    let budget = BUDGET.get();
    let taken = || count(&budget.held, number, limit());
    (taken() || (release_idle() > 0 && taken())).then(|| places(number, false))
}

/// Takes as many places as are free, at most `most`; possibly none.
pub fn take_some(most: u64) -> Places {
    let mut number = most.min(available());
    while number > 0 {
        match count(&BUDGET.get().held, number, limit()) {
            true => break,
            false => number = most.min(available()).min(number - 1),
        }
    }
    places(number, false)
}

impl Places {
    /// Number of places.
    pub fn number(&self) -> u64 {
        self.number
    }
}

/// Counts a file that is opened in any case, even beyond the limit.
pub fn note() -> Places {
    BUDGET.get().held.fetch_add(1, Ordering::AcqRel);
    places(1, false)
}

/// Takes a place for a file that stays open between accesses; `None` if too many do.
pub(crate) fn keep() -> Option<Places> {
    let (budget, limit) = (BUDGET.get(), limit());
    if !count(&budget.kept, 1, limit / 2) {
        return None;
    }
    if count(&budget.held, 1, limit) {
        return Some(places(1, true));
    }
    budget.kept.fetch_sub(1, Ordering::AcqRel);
    None
}

/// Registers a file that is kept open, and may be closed while it is not in use.
pub(crate) fn may_close(slot: Weak<dyn Idle>) {
    let mut idle = BUDGET.get().idle.lock().unwrap_or_else(PoisonError::into_inner);
    if idle.len() == idle.capacity() {
        idle.retain(|slot| slot.strong_count() > 0);
    }
    idle.push(slot);
}

/// Closes files that are kept open and not in use; returns their number.
pub fn release_idle() -> usize {
    let slots = {
        let mut idle = BUDGET.get().idle.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *idle)
    };
    let mut closed = 0;
    for weak in slots {
        let Some(slot) = weak.upgrade() else { continue };
        match slot.close() {
            Some(true) => closed += 1,
            Some(false) => {}
            None => may_close(weak), // in use
        }
    }
    closed
}

/// Returns whether an error means that the system, or this process, has too many open files.
pub fn is_shortage(errno: i32) -> bool {
    matches!(errno, libc::EMFILE | libc::ENFILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted_given_back_and_refused() {
        // Other tests of this process take some places, too.
        let taken = take(3).unwrap();
        assert_eq!(3, taken.number());
        assert!(held() >= 3);
        assert!(take(limit() + 1).is_none());
        assert!(take_some(limit() + 1).number() <= limit());
        let before = held();
        drop(taken);
        assert!(held() < before);
    }

    #[test]
    fn a_part_of_the_limit_is_left_to_the_rest_of_the_program() {
        assert!(limit() < allowed());
        assert!(allowed() - limit() <= REST.1.max(allowed() * 3 / 4));
    }
}
