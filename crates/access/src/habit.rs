//! Use of an array: flushed after each write, or after many; read repeatedly.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::OnceLock;

use outcore_plan::Plan;

/// Usage pattern of an array: whether writes are flushed one by one; then the next write probably will be,
/// too. Also the cost of reads by system calls that a mapping would have saved (`Faults::rent`).
///
/// Purpose: the fastest way to write into the page cache (a mapping) makes the flush of sparse data slow, and
/// the other way round.
#[derive(Default)]
pub struct Habit {
    /// Number of writes since the last flush.
    unflushed: AtomicU64,
    /// True if the last flush that had anything to write came after one write.
    each: AtomicBool,
    /// Set by `tell`: the caller announced that it flushes after each write.
    told: AtomicBool,
    rent: AtomicI64,
}

/// A write of many parts, each of which moves a section (an owner's tiles in the rounds of a collective). It
/// counts as one write: the expectation of a flush is determined when the first part begins.
#[derive(Debug, Default)]
pub struct InParts(OnceLock<bool>);

impl InParts {
    /// Returns whether a flush was expected to follow when the first part began.
    pub fn is_flushed(&self) -> bool {
        self.0.get().is_some_and(|flushed| *flushed)
    }
}

impl Habit {
    /// Returns whether a flush will follow the write to which the beginning part belongs, and whether this is
    /// the first part, with which the write is counted.
    pub fn part(&self, of: &InParts) -> (bool, bool) {
        let mut first = false;
        let flushed = of.0.get_or_init(|| {
            first = true;
            self.flushed()
        });
        (*flushed, first)
    }

    /// Returns whether a flush will follow the next write.
    pub fn flushed(&self) -> bool {
        let each = self.each.load(Ordering::Relaxed) && self.unflushed.load(Ordering::Relaxed) == 0;
        each || self.told.load(Ordering::Relaxed)
    }

    /// Announces that each write will be flushed.
    pub fn tell(&self) {
        self.told.store(true, Ordering::Relaxed);
    }

    /// Returns the cost of reads by system calls so far that a mapping would have saved, in nanoseconds.
    pub fn rent(&self) -> i64 {
        self.rent.load(Ordering::Relaxed)
    }

    /// Records a read by this plan.
    pub fn read(&self, plan: &Plan) {
        if let Some(rent) = plan.rent() {
            self.rent.store(rent, Ordering::Relaxed);
        }
    }

    /// Records a write.
    pub fn write(&self) {
        self.unflushed.fetch_add(1, Ordering::Relaxed);
    }

    /// Records a flush.
    pub fn flush(&self) {
        match self.unflushed.swap(0, Ordering::Relaxed) {
            0 => {}
            writes => self.each.store(writes == 1, Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_after_one_write_is_expected_after_the_next() {
        let habit = Habit::default();
        assert!(!habit.flushed(), "nothing was flushed yet");
        habit.write();
        habit.flush();
        assert!(habit.flushed());
        habit.write();
        assert!(!habit.flushed(), "the flush of that write is still to come");
        habit.flush();
        assert!(habit.flushed());
    }

    #[test]
    fn a_write_of_many_parts_counts_once() {
        let habit = Habit::default();
        for (expected, _) in [(false, 0), (true, 1)] {
            let of = InParts::default();
            for k in 0..3 {
                let (flushed, first) = habit.part(&of);
                assert_eq!((expected, k == 0), (flushed, first));
                if first {
                    habit.write();
                }
            }
            habit.flush();
        }
    }

    #[test]
    fn a_flush_after_many_writes_is_not_expected_after_one() {
        let habit = Habit::default();
        habit.write();
        habit.flush();
        habit.write();
        habit.write();
        habit.flush();
        assert!(!habit.flushed());
    }

    #[test]
    fn a_flush_of_nothing_tells_nothing() {
        let habit = Habit::default();
        habit.flush();
        assert!(!habit.flushed());
        habit.write();
        habit.flush();
        habit.flush();
        assert!(habit.flushed());
    }

    #[test]
    fn who_says_so_is_believed() {
        let habit = Habit::default();
        habit.tell();
        habit.write();
        habit.write();
        habit.flush();
        assert!(habit.flushed());
    }
}
