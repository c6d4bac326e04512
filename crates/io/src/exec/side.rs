//! Rounds side by side: each thread takes the next round and does all of it.
//!
//! Right for data in the page cache, mappings and chunks. A plan of one round runs on the calling
//! thread, without a hand-over. For chunks, the kernel is told some rounds ahead what will be read,
//! so that a cold disk sees many requests although each thread waits for one.

use std::sync::atomic::{AtomicU64, Ordering};

use outcore_plan::{Direction, Method};

use super::lane::Lane;
use super::{Shared, Slots};
use crate::cpu;
use crate::error::StorageError;

/// Rounds of chunks that the kernel is told ahead.
const AHEAD: u64 = 32;

/// Plain rounds per thread at least: they are short (a megabyte or so), and waking a thread is not.
const FEW: u64 = 2;

pub(super) fn drive(shared: &Shared) -> Result<(), StorageError> {
    let job = shared.job;
    let rounds = job.plan.rounds();
    let most = usize::try_from(job.plan.lanes()).unwrap_or(1).max(1);
    if rounds == 0 {
        return Ok(());
    }
    let worth = match (job.plan.method(), job.direction) {
        (Method::Chunks, _) => rounds,
        // Nothing but writes, which take turns.
        (Method::Straight, Direction::Write) => 1,
        _ => rounds / FEW,
    };
    let worth = usize::try_from(worth).unwrap_or(usize::MAX).max(1);
    let lanes = job.threads.clamp(1, most).min(worth);
    let slots = Slots::new(job, lanes)?;
    let next = AtomicU64::new(0);
    let told = AtomicU64::new(0);
    cpu::side_by_side(slots.lanes, &|number| {
        let mut lane = Lane::new(shared, slots.slot(number));
        if number == 0 {
            lane = lane.leading();
        }
        while !shared.failed() {
            let k = next.fetch_add(1, Ordering::Relaxed);
            if k >= rounds {
                break;
            }
            if !shared.job.cached {
                tell_ahead(&lane, &told, rounds.min(k + 1 + AHEAD));
            }
            if let Err(error) = one_round(&mut lane, k) {
                shared.fail(error);
            }
            if number == 0 && rounds > 1 {
                shared.poll();
            }
        }
        shared.report(&lane.report);
    });
    Ok(())
}

fn one_round(lane: &mut Lane, k: u64) -> Result<(), StorageError> {
    let round = lane.round(k)?;
    lane.reads(&round)?;
    lane.between(&round)?;
    lane.writes(&round)
}

/// Tells the kernel about the chunks of rounds below `end` that it was not told about yet.
fn tell_ahead(lane: &Lane, told: &AtomicU64, end: u64) {
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
}
