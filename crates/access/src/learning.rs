//! Reads from which the speed of a disk is learned, and trials: small first parts of reads from an unknown
//! disk.
//!
//! Problem. A scattered read from an unknown disk is planned for a fast one; on a slow disk that takes ten
//! times as long as data sieving. Idea. A small part of the read comes first, as a trial; the rest is planned
//! with the time that the trial took. If the trial took long, a second one follows: a disk counts as slow
//! only after both, and the second one determines how slow, because it begins after a throttled device has
//! used up the capacity that it saved while idle.
//!
//! A write has no part that shows its cost, because it ends in the page cache. So a few of its elements are
//! read first. A collective does the same on one rank, because all ranks plan with what is known in advance.

use std::time::{Duration, Instant};

use outcore_io::disks::{self, Watch};
use outcore_io::Pipeline;
use outcore_plan::trial::{self, TRIALS};
use outcore_plan::{Direction, Method, Section, Strided};

use crate::error::Fault;
use crate::step::{Access, Step};
use crate::terms::{self, Found};

/// A trial that takes longer is followed by a second one.
const UNUSUAL: Duration = Duration::from_millis(10);
/// Share in the page cache, in thousandths, up to which a read counts as a read from the disk: one sample of
/// four may be at the page of a header.
const COLD: u32 = 300;

/// Times a step that reads from the disk, if something can be learned from it.
pub fn watch(pipeline: &Pipeline, found: &Found, access: &Access, step: &Step) -> Option<Watch> {
    let cold = step.cached.is_some_and(|cached| cached <= COLD);
    let moves = step.plan.method() != Method::Mapped && pipeline.is_empty();
    if access.direction == Direction::Write || !cold || !moves || step.files.is_empty() {
        return None;
    }
    let path = step.files.path(0).ok()?;
    Watch::begin(found.device(path)?, path, terms::assumed())
}

/// Reads in parts, a trial first, and passes each part to `read`. `reads` is the number of requests in a plan
/// of the whole; `surprising` returns after a trial whether the disk differs from the assumptions.
pub fn in_parts(
    layout: &Strided,
    access: &Access,
    mut reads: i64,
    surprising: &dyn Fn() -> bool,
    read: &mut dyn FnMut(&Access) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut left = vec![access.section.clone()];
    let mut trials = TRIALS.iter();
    let mut trial = trials.next();
    while let Some(mut section) = left.pop() {
        if let Some(requests) = trial {
            let mut parts = trial::cut(layout, &section, reads, *requests)?;
            section = parts.remove(0);
            left.extend(parts.into_iter().rev());
            reads = (reads - requests).max(1);
        }
        let part = Access {
            data: access.data.shifted(offset(access, &section)),
            section: &section,
            ..*access
        };
        let began = Instant::now();
        read(&part)?;
        let again = trial.is_some() && (surprising() || began.elapsed() > UNUSUAL);
        trial = if again { trials.next() } else { None };
    }
    Ok(())
}

/// Reads a few elements of a section that takes `reads` requests, as trials; the elements are discarded.
pub fn try_disk(
    layout: &Strided,
    section: &Section,
    mut reads: i64,
    surprising: &dyn Fn() -> bool,
    read: &mut dyn FnMut(&Section) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut left = section.clone();
    for requests in TRIALS {
        let (few, rest) = trial::samples(layout, &left, reads, requests)?;
        let began = Instant::now();
        read(&few)?;
        match rest {
            Some(rest) if surprising() || began.elapsed() > UNUSUAL => left = rest,
            _ => break,
        }
        reads = (reads - requests).max(1);
    }
    Ok(())
}

/// Returns the number of requests of a step that reads, if they are scattered over an unknown disk; otherwise
/// zero. From [`trial::WORTH`] on, the step should begin with a trial.
pub fn untried(layout: &Strided, found: &Found, access: &Access, step: &Step) -> i64 {
    if access.hints.method.is_some() {
        return 0;
    }
    let cold = step.cached.is_some_and(|cached| cached <= COLD);
    let moves = step.plan.method() != Method::Mapped;
    if access.direction == Direction::Write || !cold || !moves {
        return 0;
    }
    let cost = step.plan.cost();
    let unknown = || {
        let device = step.files.path(0).ok().and_then(|path| found.device(path));
        device.is_some_and(|device| !disks::is_known(device))
    };
    match trial::is_scattered(layout, step.section, cost.read_bytes) && unknown() {
        true => cost.reads,
        false => 0,
    }
}

/// Returns the bytes from the caller's element for the first index of the access to the one for a part.
fn offset(access: &Access, part: &Section) -> i64 {
    let both = part.ranges().iter().zip(access.section.ranges()).zip(access.strides);
    let bytes = both.map(|((part, all), stride)| (part.start - all.start) / all.step * stride);
    bytes.sum()
}

#[cfg(test)]
mod tests;
