//! Time of an execution by phase, in nanoseconds of threads.
//!
//! Problem. From outside it is not visible whether an access waits for the disk, for codecs or for
//! memory, and reading a clock for each element would take most of the time. Idea. A lane reads the
//! clock once at the end of each step of a round: the time since the last reading belongs to that
//! step. The steps of a round move slots of many kilobytes, or whole chunks.
//!
//! Invariants. Each lane adds to its own report; nothing is shared. A nanosecond of a thread counts
//! for at most one phase, so the phases of one thread never exceed the elapsed time.

use std::time::{Duration, Instant};

/// Phase of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Io,
    Decode,
    Encode,
    Copy,
    Plan,
}

/// Nanoseconds of each phase, summed over all threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Times {
    /// Calls that read, write, open and flush files, and waiting for requests in flight.
    pub io: i64,
    /// Decoding of chunks.
    pub decode: i64,
    /// Encoding of chunks.
    pub encode: i64,
    /// Copies between buffers, mapped files and the caller's memory, including page faults of
    /// mapped files.
    pub copy: i64,
    /// Making plans and rounds.
    pub plan: i64,
}

impl Times {
    /// Adds the times of another run.
    pub fn add(&mut self, other: &Times) {
        self.io += other.io;
        self.decode += other.decode;
        self.encode += other.encode;
        self.copy += other.copy;
        self.plan += other.plan;
    }

    pub(super) fn spent(&mut self, phase: Phase, time: Duration) {
        let sum = match phase {
            Phase::Io => &mut self.io,
            Phase::Decode => &mut self.decode,
            Phase::Encode => &mut self.encode,
            Phase::Copy => &mut self.copy,
            Phase::Plan => &mut self.plan,
        };
        *sum += nanoseconds(time);
    }
}

/// Converts a duration; an i64 is enough for three centuries.
pub fn nanoseconds(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

/// A clock with the time at which the last phase ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Watch(Instant);

impl Watch {
    pub(super) fn new() -> Watch {
        Watch(Instant::now())
    }

    /// Ends a phase: the time since the last one counts for it.
    pub(super) fn lap(&mut self, times: &mut Times, phase: Phase) {
        let now = Instant::now();
        times.spent(phase, now.duration_since(self.0));
        self.0 = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_phase_has_its_own_sum_and_no_time_counts_twice() {
        let (began, mut watch, mut times) = (Instant::now(), Watch::new(), Times::default());
        std::thread::sleep(Duration::from_millis(3));
        watch.lap(&mut times, Phase::Io);
        for phase in [Phase::Decode, Phase::Encode, Phase::Copy, Phase::Plan, Phase::Plan] {
            std::thread::sleep(Duration::from_millis(1));
            watch.lap(&mut times, phase);
        }
        let all = nanoseconds(began.elapsed());
        let Times { io, decode, encode, copy, plan } = times;
        assert!(io >= 3_000_000 && plan >= 2_000_000, "{times:?}");
        assert!(decode.min(encode).min(copy) >= 1_000_000, "{times:?}");
        assert!(io + decode + encode + copy + plan <= all, "{times:?} of {all}");
        let mut twice = times;
        twice.add(&times);
        let doubled = Times {
            io: 2 * io,
            decode: 2 * decode,
            encode: 2 * encode,
            copy: 2 * copy,
            plan: 2 * plan,
        };
        assert_eq!(doubled, twice);
    }
}
