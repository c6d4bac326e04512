//! Locks in memory shared by processes; a killed process does not keep its lock.
//!
//! Problem. Ranks of a node add to the same elements in shared memory. A mutex of the system
//! library is bound to a thread, and the lock of a killed rank would never be released.
//!
//! Idea. A lock is one word: the number of its holder, chosen by the caller (a rank), and a bit
//! that is set while processes sleep for it. A waiting process sleeps on the word (a futex) for
//! some time, and then gets the number of the holder. If the caller determines that this process is
//! gone, it seizes the lock with one compare-and-swap, so only one of several callers succeeds.
//!
//! Invariants. A word changes from free to a holder, and from holder to holder, by compare-and-swap
//! alone. Only the holder frees it; if the lock was seized in the meantime, the `give` of the old
//! holder does nothing. A process that takes a lock sees the writes of the previous holder.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::futex;

/// Bytes from one lock to the next: a cache line, so that locks do not slow each other down.
pub const STRIDE: usize = 64;
/// Bit that is set while a process sleeps for the lock.
const AWAITED: u32 = 1 << 31;

/// A row of locks.
#[derive(Debug)]
pub struct WordLocks {
    base: *mut u8,
    count: usize,
}

// SAFETY: the words are atomic, and no other memory is touched.
unsafe impl Send for WordLocks {}
// SAFETY: as above.
unsafe impl Sync for WordLocks {}

impl WordLocks {
    /// Attaches to the locks that fit into memory that starts as zeros (free); `None` if it is not
    /// aligned.
    ///
    /// # Safety
    /// `base` is valid for reads and writes of `len` bytes as long as this lives, and all
    /// concurrent users access that memory as `WordLocks`.
    pub unsafe fn attach(base: *mut u8, len: usize) -> Option<WordLocks> {
        (base as usize).is_multiple_of(STRIDE).then_some(WordLocks { base, count: len / STRIDE })
    }

    /// Number of locks.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the word of a lock; `None` beyond the last one.
    fn word(&self, at: usize) -> Option<&AtomicU32> {
        // SAFETY: below `count`, so within the memory of `attach`, at a multiple of its alignment.
        (at < self.count).then(|| unsafe { &*self.base.add(at * STRIDE).cast::<AtomicU32>() })
    }

    /// Returns the holder of a lock; 0 if it is free.
    pub fn holder(&self, at: usize) -> u32 {
        self.word(at).map_or(0, |word| word.load(Ordering::Acquire) & !AWAITED)
    }

    /// Takes a lock as `who` (from 1 on, below 2^31), waiting for at most `patience`.
    ///
    /// # Errors
    /// The holder of the lock, even if it is `who` itself; `u32::MAX` if there is no such lock.
    pub fn take(&self, at: usize, who: u32, patience: Duration) -> Result<(), u32> {
        let Some(word) = self.word(at) else { return Err(u32::MAX) };
        let began = Instant::now();
        // A process that has slept cannot know whether others still sleep, so it keeps the bit set;
        // at most one wake-up is unnecessary.
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

    /// Takes a lock from `holder`, which is gone; returns false if another process was faster.
    pub fn seize(&self, at: usize, holder: u32, who: u32) -> bool {
        let Some(word) = self.word(at) else { return false };
        // Others may sleep for it.
        [holder, holder | AWAITED].into_iter().any(|old| swap(word, old, who | AWAITED).is_ok())
    }

    /// Releases a lock; returns whether `who` still had it.
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

    // SAFETY: the tests access it only through locks.
    unsafe impl Sync for Paper {}

    impl Paper {
        fn new() -> Paper {
            Paper(UnsafeCell::new([0; 4 * STRIDE]))
        }

        fn locks(&self) -> WordLocks {
            // SAFETY: the memory outlives its locks in a test, and no other code uses it.
            unsafe { WordLocks::attach(self.0.get().cast(), 4 * STRIDE).unwrap() }
        }
    }

    const SOON: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn one_at_a_time_holds_a_lock() {
        struct Count(UnsafeCell<u64>);
        // SAFETY: only the holder of lock 2 changes it, and the test checks that.
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
        // The previous holder releases a lock that it no longer has.
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
        // SAFETY: the call fails, so the address is never used.
        assert!(unsafe { WordLocks::attach(8 as *mut u8, 64) }.is_none());
    }
}
