//! Where the time of an execution goes, in nanoseconds of threads.
//!
//! Problem. Whether an access waits for the disk, for codecs or for memory nobody can tell from outside, and a clock
//! that is read for each element would tell of itself.
//! Idea. A lane reads the clock once at the end of each step of a round: what passed since the last reading
//! was that step's. The steps of a round move slots of many kilobytes, or whole chunks.
//!
//! Invariants. Each lane adds to its own report; nothing is shared. A nanosecond of a thread counts for one
//! phase at most, so that the phases of one thread are never more than the time that passed.

use std::time::{Duration, Instant};

/// What a thread does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Io,
    Decode,
    Encode,
    Copy,
    Plan,
}

/// Nanoseconds of each phase, of all threads together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Times {
    /// Calls that read, write, open and flush files, and waiting for requests in flight.
    pub io: i64,
    /// Chunks through codecs, on their way from the file.
    pub decode: i64,
    /// The same on their way to it.
    pub encode: i64,
    /// Between buffers, mapped files and the caller's memory; faults of pages of mapped files are inside.
    pub copy: i64,
    /// Making plans and rounds.
    pub plan: i64,
}

impl Times {
    /// Adds those of another run.
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

/// So many fit for three centuries.
pub fn nanoseconds(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

/// A clock that was read when the last phase ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Watch(Instant);

impl Watch {
    pub(super) fn new() -> Watch {
        Watch(Instant::now())
    }

    /// A phase is over: what passed since the last one is its time.
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
