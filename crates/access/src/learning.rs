//! Reads that tell what a disk is like, and the first part of those that had better know it.
//!
//! Problem. A scattered read of a disk that nobody knows is planned for a fast one: ten times as long as
//! data sieving takes on a slow one. Idea. A small part of it comes first, as a trial; what is left is
//! planned with what that told. If the trial took long there is a second one: only both
//! together may call a disk slow, and the second tells how slow, because what a throttled device saved
//! up while it was idle is used up by then.
//!
//! A write has no part that tells what it costs: it ends in the page cache. So a few of its elements are read
//! first. A collective begins so too, on one rank, because all plan with what is known before.

use std::time::{Duration, Instant};

use outcore_io::disks::{self, Watch};
use outcore_io::Pipeline;
use outcore_plan::trial::{self, TRIALS};
use outcore_plan::{Direction, Method, Section, Strided};

use crate::error::Fault;
use crate::step::{Access, Step};
use crate::terms::{self, Found};

/// A trial that takes longer is followed by another one.
const UNUSUAL: Duration = Duration::from_millis(10);
/// Up to this share in the page cache, in thousandths, a read goes to the disk: one look of four may be
/// at the page of a header.
const COLD: u32 = 300;

/// Times a step that goes to the disk, if there is something to learn from it.
pub fn watch(pipeline: &Pipeline, found: &Found, access: &Access, step: &Step) -> Option<Watch> {
    let cold = step.cached.is_some_and(|cached| cached <= COLD);
    let moves = step.plan.method() != Method::Mapped && pipeline.is_empty();
    if access.direction == Direction::Write || !cold || !moves || step.files.is_empty() {
        return None;
    }
    let path = step.files.path(0).ok()?;
    Watch::begin(found.device(path)?, path, terms::assumed())
}

/// Reads in parts, a trial first, and hands each part to `read`; `reads` is what a plan of all of it has,
/// `surprising` tells after a trial whether the disk is not what was assumed.
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

/// Reads a few elements of a section, that takes so many `reads`, by trials; what they contain is of no interest.
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

/// Requests of a step that reads, if they are scattered over a disk that nobody knows; else 0. From [`trial::WORTH`]
/// on it had better begin with a trial.
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

/// Bytes from the caller's element for the first index of the access to that of a part.
fn offset(access: &Access, part: &Section) -> i64 {
    let both = part.ranges().iter().zip(access.section.ranges()).zip(access.strides);
    let bytes = both.map(|((part, all), stride)| (part.start - all.start) / all.step * stride);
    bytes.sum()
}

#[cfg(test)]
mod tests;
