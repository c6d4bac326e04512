//! Rounds in parallel: each thread takes the next round and runs all of it.
//!
//! This is right for data in the page cache, mappings and chunks. Small plans run on the calling
//! thread, without a hand-over. For chunks, the kernel is advised of reads some rounds in advance,
//! so that a cold disk sees many requests although each thread waits for one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use outcore_plan::{Direction, Method};

use super::lane::Lane;
use super::times::Phase;
use super::{Shared, Slots};
use crate::cpu;
use crate::error::StorageError;

/// Rounds of chunks for which the kernel is advised in advance.
const AHEAD: u64 = 32;

/// Accesses of at least this many bytes are shared with other threads from the beginning.
const LARGE: i64 = 16 << 20;
/// The same for accesses with codecs, by the size of their slots: a thread codes this much in about
/// a millisecond.
const LARGE_CODED: i64 = 1 << 20;
/// Smaller ones are shared only if, after the first round, at least this much time remains: helpers
/// must be woken, and on a busy machine waited for.
const LONG: Duration = Duration::from_millis(1);

pub(super) fn drive(shared: &Shared) -> Result<(), StorageError> {
    let job = shared.job;
    let rounds = job.plan.rounds();
    if rounds == 0 {
        return Ok(());
    }
    let most = usize::try_from(job.plan.lanes()).unwrap_or(1).max(1);
    let worth = match (job.plan.method(), job.direction) {
        // Only writes, which run one after another.
        (Method::Straight, Direction::Write) if job.plan.cost().mapped_bytes == 0 => 1,
        _ => usize::try_from(rounds).unwrap_or(usize::MAX),
    };
    let slots = Slots::new(job, job.threads.clamp(1, most).min(worth))?;
    let work = Work { shared, slots: &slots, next: AtomicU64::new(0), told: AtomicU64::new(0) };
    let at_once = match job.plan.method() {
        Method::Chunks => {
            job.plan.slot_bytes().saturating_mul(i64::try_from(rounds).unwrap_or(i64::MAX))
                >= LARGE_CODED
        }
        _ => rounds >= 8 && job.plan.useful_bytes() >= LARGE,
    };
    if slots.lanes > 1 && !at_once {
        let start = Instant::now();
        work.lane(0, 1);
        let left = start.elapsed().saturating_mul(u32::try_from(rounds - 1).unwrap_or(u32::MAX));
        if left < LONG {
            work.lane(0, rounds);
            return Ok(());
        }
    }
    cpu::side_by_side(slots.lanes, &|number| work.lane(number, rounds));
    Ok(())
}

/// Rounds of a job, for lanes to take.
struct Work<'a> {
    shared: &'a Shared<'a>,
    slots: &'a Slots,
    next: AtomicU64,
    told: AtomicU64,
}

impl Work<'_> {
    /// Takes rounds and runs them, up to round `end`.
    fn lane(&self, number: usize, end: u64) {
        let shared = self.shared;
        let rounds = shared.job.plan.rounds();
        let mut lane = Lane::new(shared, self.slots.room(number));
        if number == 0 {
            lane = lane.leading();
        }
        while !shared.failed() {
            let Ok(k) = self
                .next
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |k| (k < end).then_some(k + 1))
            else {
                break;
            };
            if !shared.job.cached {
                lane.begin();
                tell_ahead(&mut lane, &self.told, rounds.min(k + 1 + AHEAD));
            }
            if let Err(error) = one_round(&mut lane, k) {
                shared.fail(error);
            }
            if number == 0 && rounds > 1 {
                shared.poll();
            }
        }
        shared.report(&lane.report);
    }
}

fn one_round(lane: &mut Lane, k: u64) -> Result<(), StorageError> {
    lane.begin();
    let round = lane.round(k)?;
    lane.reads(&round)?;
    lane.between(&round)?;
    lane.writes(&round)
}

/// Advises the kernel of the chunks of rounds below `end`, once for each round.
fn tell_ahead(lane: &mut Lane, told: &AtomicU64, end: u64) {
    let plan = lane.shared.job.plan;
    if plan.method() != Method::Chunks {
        return;
    }
    let first = told.fetch_max(end, Ordering::Relaxed);
    for k in first..end {
        if let Ok(round) = plan.round(k) {
            lane.advise(&round);
        }
    }
    if first < end {
        lane.lap(Phase::Io);
    }
}
