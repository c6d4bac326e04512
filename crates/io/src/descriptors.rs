//! The budget of open files.
//!
//! Problem. The system lets a process have so many files open at once (`RLIMIT_NOFILE`, `ulimit -n`). An
//! access to chunks in files of their own has hundreds open, several accesses have thousands, and then
//! the next file fails to open: theirs, or one of the program around us.
//!
//! Idea. As with memory: a budget, the limit less a part for the rest of the program. A batch of chunks
//! says before it begins how many files it will have open ([`take`]), and is made smaller where so many
//! are not left. Files that arrays keep open for their next access ([`keep`]) get half of it at most, and
//! are closed when somebody else needs the place ([`release_idle`]), also when the system has none left
//! for a file that is counted nowhere.
//!
//! Invariants. Places are counted before a file is opened, and given back after it is closed. A forked
//! child counts for itself and gives back nothing of its parent's.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, Weak};

use crate::process::{self, PerProcess};

static BUDGET: PerProcess<Budget> = PerProcess::new(Budget::default);

/// Of the limit, what is left to the rest of the program: a quarter, between these.
const REST: (u64, u64) = (16, 256);

#[derive(Debug, Default)]
struct Budget {
    held: AtomicU64,
    /// Of these, what is kept between accesses.
    kept: AtomicU64,
    /// Files that may be kept open, to be closed if need be.
    idle: Mutex<Vec<Weak<dyn Idle>>>,
}

/// A file that is kept open between accesses.
pub(crate) trait Idle: std::fmt::Debug + Send + Sync {
    /// Closes it; whether there was anything to close. `None` if somebody uses it.
    fn close(&self) -> Option<bool>;
}

/// Places for open files, given back on drop.
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

/// What the system allows this process now.
pub fn allowed() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is valid for writing.
    match unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } {
        #[allow(clippy::unnecessary_cast, reason = "the type differs between systems")]
        0 => limit.rlim_cur as u64,
        _ => 1024,
    }
}

/// Files that may be open at once.
pub fn limit() -> u64 {
    let allowed = allowed();
    let rest = (allowed / 4).clamp(REST.0, REST.1);
    // One file must always be possible, whatever the limit is.
    allowed.saturating_sub(rest).max(allowed / 4).max(1)
}

/// Places that are left.
pub fn available() -> u64 {
    limit().saturating_sub(BUDGET.get().held.load(Ordering::Acquire))
}

/// Places that are taken.
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

/// Places for `number` files, for a while; files that are kept open give way. `None` if others have too
/// many.
pub fn take(number: u64) -> Option<Places> {
    let budget = BUDGET.get();
    let taken = || count(&budget.held, number, limit());
    (taken() || (release_idle() > 0 && taken())).then(|| places(number, false))
}

/// As many places as are left, `most` at most; none may be.
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
    /// How many they are.
    pub fn number(&self) -> u64 {
        self.number
    }
}

/// A place for a file that is open in any case: others then have one less.
pub fn note() -> Places {
    BUDGET.get().held.fetch_add(1, Ordering::AcqRel);
    places(1, false)
}

/// A place for a file that stays open between accesses; `None` if too many do.
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

/// Says that a file is kept open, and may be closed when nobody uses it.
pub(crate) fn may_close(slot: Weak<dyn Idle>) {
    let mut idle = BUDGET.get().idle.lock().unwrap_or_else(PoisonError::into_inner);
    if idle.len() == idle.capacity() {
        idle.retain(|slot| slot.strong_count() > 0);
    }
    idle.push(slot);
}

/// Closes files that are kept open and that nobody uses at this moment; returns how many.
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
            None => may_close(weak), // In use.
        }
    }
    closed
}

/// Whether the system, or this process, has no place left for another open file.
pub fn is_shortage(errno: i32) -> bool {
    matches!(errno, libc::EMFILE | libc::ENFILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted_given_back_and_refused() {
        // Other tests of this process take some, too.
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
