//! Locks in memory that processes share, which a process that was killed does not keep.
//!
//! Problem. Ranks of a node add to the same elements in shared memory. A mutex of the system library is
//! bound to a thread, and the lock of a rank that was killed would never be given back.
//!
//! Idea. A lock is one word: who holds it, by a number that the caller gives (a rank), and a bit that says that
//! somebody sleeps for it. Who waits sleeps on the word (a futex) for a while and is then told who holds it. If that one is
//! gone, which the caller knows and not this file, he seizes the lock: one compare-and-swap, so of several who
//! notice one gets it.
//!
//! Invariants. A word changes from free to a holder, and from holder to holder, by compare-and-swap alone. Only the
//! holder frees it; if it was seized meanwhile, his `give` does nothing. Whoever takes a lock sees what
//! the one before him wrote.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::futex;

/// Bytes from one lock to the next: a cache line, so that they do not disturb each other.
pub const STRIDE: usize = 64;
/// The bit that says that somebody sleeps for the lock.
const AWAITED: u32 = 1 << 31;

/// A row of locks.
#[derive(Debug)]
pub struct WordLocks {
    base: *mut u8,
    count: usize,
}

// SAFETY: the words are atomic, and nothing else is touched.
unsafe impl Send for WordLocks {}
// SAFETY: as above.
unsafe impl Sync for WordLocks {}

impl WordLocks {
    /// The locks that fit into memory which starts out as zeros (free); None if it is not aligned.
    ///
    /// # Safety
    /// `base` is valid for reads and writes of `len` bytes as long as this lives, and everybody who uses
    /// that memory meanwhile does so as `WordLocks`.
    pub unsafe fn attach(base: *mut u8, len: usize) -> Option<WordLocks> {
        (base as usize).is_multiple_of(STRIDE).then_some(WordLocks { base, count: len / STRIDE })
    }

    /// Number of locks.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The word of a lock; None beyond the last one.
    fn word(&self, at: usize) -> Option<&AtomicU32> {
        // SAFETY: below `count`, so within the memory of `attach`, at a multiple of its alignment.
        (at < self.count).then(|| unsafe { &*self.base.add(at * STRIDE).cast::<AtomicU32>() })
    }

    /// Who holds a lock; 0: nobody.
    pub fn holder(&self, at: usize) -> u32 {
        self.word(at).map_or(0, |word| word.load(Ordering::Acquire) & !AWAITED)
    }

    /// Takes a lock as `who` (from 1 on, below 2^31), waiting at most `patience`.
    ///
    /// # Errors
    /// Who holds it; `who` itself, too. There is no such lock: `u32::MAX`.
    pub fn take(&self, at: usize, who: u32, patience: Duration) -> Result<(), u32> {
        let Some(word) = self.word(at) else { return Err(u32::MAX) };
        let began = Instant::now();
        // Who has slept cannot know whether others still do: he says so, and wakes nobody in vain but once.
        let mut mine = who;
        loop {
            let now = match swap(word, 0, mine) {
                Ok(()) => return Ok(()),
                Err(now) => now,
            };
            let left = patience.saturating_sub(began.elapsed());
            if left.is_zero() {
                return Err(now & !AWAITED);
            }
            if now == 0 || (now & AWAITED == 0 && swap(word, now, now | AWAITED).is_err()) {
                continue;
            }
            mine = who | AWAITED;
            futex::wait(word, now | AWAITED, left, began.elapsed());
        }
    }

    /// Takes a lock from `holder`, who is gone; whether `who` has it now. False: somebody was faster.
    pub fn seize(&self, at: usize, holder: u32, who: u32) -> bool {
        let Some(word) = self.word(at) else { return false };
        // Others may sleep for it.
        [holder, holder | AWAITED].into_iter().any(|old| swap(word, old, who | AWAITED).is_ok())
    }

    /// Gives a lock back; whether `who` still had it.
    pub fn give(&self, at: usize, who: u32) -> bool {
        let Some(word) = self.word(at) else { return false };
        if swap(word, who, 0).is_ok() {
            return true;
        }
        let had = swap(word, who | AWAITED, 0).is_ok();
        if had {
            futex::wake_all(word);
        }
        had
    }
}

fn swap(word: &AtomicU32, from: u32, to: u32) -> Result<(), u32> {
    word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::UnsafeCell;

    #[repr(align(64))]
    struct Paper(UnsafeCell<[u8; 4 * STRIDE]>);

    // SAFETY: the tests use it through locks alone.
    unsafe impl Sync for Paper {}

    impl Paper {
        fn new() -> Paper {
            Paper(UnsafeCell::new([0; 4 * STRIDE]))
        }

        fn locks(&self) -> WordLocks {
            // SAFETY: the paper outlives its locks in a test, and nothing else uses it.
            unsafe { WordLocks::attach(self.0.get().cast(), 4 * STRIDE).unwrap() }
        }
    }

    const SOON: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn one_at_a_time_holds_a_lock() {
        struct Count(UnsafeCell<u64>);
        // SAFETY: changed by the holder of lock 2 alone, which is what is tested.
        unsafe impl Sync for Count {}
        let (paper, count) = (Paper::new(), Count(UnsafeCell::new(0)));
        let (paper, count) = (&paper, &count);
        std::thread::scope(|scope| {
            for who in 1..=4 {
                scope.spawn(move || {
                    let locks = paper.locks();
                    for _ in 0..5000 {
                        locks.take(2, who, LONG).unwrap();
                        // SAFETY: as above.
                        unsafe { *count.0.get() += 1 };
                        assert!(locks.give(2, who));
                    }
                });
            }
        });
        // SAFETY: all threads have ended.
        assert_eq!(20_000, unsafe { *count.0.get() });
        assert_eq!(0, paper.locks().holder(2));
    }

    #[test]
    fn who_waits_is_told_who_holds_it_and_wakes_when_it_is_free() {
        let paper = Paper::new();
        let locks = paper.locks();
        assert_eq!(Ok(()), locks.take(1, 7, Duration::ZERO));
        assert_eq!(Err(7), locks.take(1, 8, Duration::ZERO));
        assert_eq!(Err(7), locks.take(1, 7, SOON));
        assert_eq!(Ok(()), locks.take(0, 8, Duration::ZERO));
        assert!(!locks.give(1, 8));
        let waiting = || {
            let began = Instant::now();
            (paper.locks().take(1, 9, LONG), began.elapsed())
        };
        let (taken, waited) = std::thread::scope(|scope| {
            let waiter = scope.spawn(waiting);
            std::thread::sleep(SOON);
            assert!(locks.give(1, 7));
            waiter.join().unwrap()
        });
        assert_eq!(Ok(()), taken);
        assert!(waited < LONG / 2);
        assert_eq!((9, 8), (locks.holder(1), locks.holder(0)));
    }

    #[test]
    fn the_lock_of_one_who_is_gone_is_seized_once() {
        let paper = Paper::new();
        let locks = paper.locks();
        locks.take(3, 5, LONG).unwrap();
        assert_eq!(Err(5), locks.take(3, 6, SOON));
        let taken = std::thread::scope(|scope| {
            let paper = &paper;
            let seize = |who| scope.spawn(move || paper.locks().seize(3, 5, who));
            let tries: Vec<_> = (10..14).map(seize).collect();
            tries.into_iter().map(|one| one.join().unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(1, taken.iter().filter(|got| **got).count());
        // The one who was taken for dead gives back what is not his any more.
        assert!(!locks.give(3, 5));
        let who = locks.holder(3);
        assert!(locks.give(3, who) && !locks.give(3, who));
        assert!(!locks.seize(3, 5, 6));
    }

    #[test]
    fn there_are_as_many_as_fit() {
        let paper = Paper::new();
        let locks = paper.locks();
        assert_eq!(4, locks.count());
        assert_eq!(Err(u32::MAX), locks.take(4, 1, LONG));
        assert!(!locks.give(4, 1) && !locks.seize(4, 0, 1));
        // SAFETY: refused, so never used.
        assert!(unsafe { WordLocks::attach(8 as *mut u8, 64) }.is_none());
    }
}
