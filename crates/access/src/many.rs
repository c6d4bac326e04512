//! Sections of many arrays in one call.
//!
//! Problem. If nothing is cached, two hundred reads one after another wait two hundred times for the disk,
//! which could serve a dozen of them concurrently. And if several ranks read parts of the same files in the
//! same order, all of them wait for the same file.
//!
//! Idea. Small sections that are not cached are read by a few threads, which take one section after another,
//! and each rank begins at another part of the list. Large sections keep the disk busy alone and are read one
//! after another.
//!
//! Invariants. Reads into the same memory never run concurrently: a section later in the list is read later.
//! The first failure ends the call.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use outcore_io::cpu;
use outcore_plan::{collective, is_cached, trial, Direction, Section};

use crate::error::Fault;
use crate::hints::Hints;
use crate::interrupt::Interrupts;
use crate::open::Open;
use crate::step::{reach, Access};
use crate::terms;

/// Reads all sections if each is in the page cache; returns whether it did. If not, some may have been read.
///
/// # Errors
/// The first error, with the name of its array.
pub fn read_if_cached(
    jobs: &[(&Open, Access)],
    interrupts: &dyn Interrupts,
) -> Result<bool, Fault> {
    for (open, access) in jobs {
        let there = open.run_if_cached(access, interrupts);
        if !there.map_err(|fault| open.failure(fault))? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns whether a rank can read all sections in less time than a collective plan for them takes. `ranks`
/// ranks read concurrently; `oversubscription` thousandths of them share a processor.
pub fn reads_sooner(
    sections: &[(&Open, &Section, &Hints)],
    (ranks, oversubscription): (i64, i64),
    interrupts: &dyn Interrupts,
) -> bool {
    let sooner = |cost, arrays| collective::reads_sooner(cost, ranks, arrays, oversubscription);
    // Summed over all arrays: there may be fewer whose reads cost anything.
    let most =
        sections.iter().map(|(open, ..)| open.described.path.as_str()).collect::<BTreeSet<_>>();
    let (mut cost, mut dear) = (0_i64, BTreeSet::new());
    for (open, section, hints) in sections {
        // The cost of reads from an unknown disk is unknown, and all ranks can learn its speed.
        if open.untried(section, hints) >= trial::TRIALS[0] {
            return false;
        }
        let priced = open.price_of(Direction::Read, section, (hints, false), interrupts);
        // The read itself will report the error.
        let Ok((this, _)) = priced else { return false };
        cost = cost.saturating_add(this);
        if this > 0 {
            dear.insert(open.described.path.as_str());
        }
        // Large sections end this loop early.
        if !sooner(cost, most.len() as i64) {
            return false;
        }
    }
    sooner(cost, dear.len() as i64)
}

/// Reads all sections. Small ones that are not cached are read `lanes` at a time, beginning at the part of
/// the list that `turn` (number and count of parts) specifies.
///
/// # Errors
/// The first error, with the name of its array.
pub fn read(
    jobs: &[(&Open, Access)],
    lanes: usize,
    turn: (usize, usize),
    interrupts: &dyn Interrupts,
) -> Result<(), Fault> {
    let one = |(open, access): &(&Open, Access)| {
        open.run(access, interrupts).map_err(|f| open.failure(f))
    };
    let is_small = |(open, access): &&(&Open, Access)| {
        let bytes = access.section.count().unwrap_or(i64::MAX);
        open.is_plain() && bytes.saturating_mul(open.described.item()) < terms::SMALL
    };
    if lanes < 2 || !jobs.iter().any(|job| is_small(&job) && is_cold(job)) || share_memory(jobs) {
        return jobs.iter().try_for_each(one);
    }
    let (small, large): (Vec<_>, Vec<_>) = jobs.iter().partition(is_small);
    let first = small.len() * turn.0 / turn.1.max(1);
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let failure = Mutex::new(None);
    cpu::side_by_side(lanes.min(small.len()), &|_| {
        while !failed.load(Ordering::Relaxed) {
            let k = next.fetch_add(1, Ordering::Relaxed);
            if k >= small.len() {
                return;
            }
            if let Err(fault) = one(small[(first + k) % small.len()]) {
                failed.store(true, Ordering::Relaxed);
                failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(fault);
            }
        }
    });
    match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(fault) => Err(fault),
        None => large.into_iter().try_for_each(one),
    }
}

fn is_cold((open, access): &(&Open, Access)) -> bool {
    !is_cached(open.cached(access.section, access.hints).into())
}

/// Returns whether any two accesses use memory that overlaps, or may overlap.
fn share_memory(jobs: &[(&Open, Access)]) -> bool {
    let place = |(open, access): &(&Open, Access)| {
        let (low, high) = reach(access.section, access.strides, open.described.item());
        let data = access.data.address();
        (data + low, data + high)
    };
    let mut places: Vec<(i64, i64)> = jobs.iter().map(place).collect();
    places.sort_unstable();
    places.windows(2).any(|pair| pair[1].0 < pair[0].1)
}

#[cfg(test)]
mod tests;
