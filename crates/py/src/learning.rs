//! Reads that tell what a disk is like, and the first part of those that had better know it.
//!
//! Problem. A scattered read of a disk that nobody knows is planned for a fast one: ten times as long as
//! data sieving takes on a slow one. Idea. A small part of it comes first, as a trial; what is left is
//! planned with what that told. If the disk was far from what was assumed there is a second trial, so
//! that one stall does not decide.

use outcore_io::disks::{self, Origin, Watch};
use outcore_plan::{trial, Direction, Layout, Method, Section};

use crate::access::{Access, Open, Place, Step};
use crate::errors::Fault;
use crate::hints::Hints;
use crate::interrupt::Interrupts;
use crate::terms;

/// Requests of a trial, and of a read that is worth one.
const TRIAL: i64 = 40;
const WORTH: i64 = 128;
/// Trials of a read: the second one if the first was a surprise.
const TRIALS: i64 = 2;
/// Up to this share in the page cache, in thousandths, a read goes to the disk: one look of four may be
/// at the page of a header.
const COLD: u32 = 300;

impl Open {
    /// Times a step that goes to the disk, if there is something to learn from it.
    pub(crate) fn watch(&self, access: &Access, step: &Step) -> Option<Watch> {
        let cold = step.cached.is_some_and(|cached| cached <= COLD);
        let moves = step.plan.method() != Method::Mapped && self.described.pipeline.is_empty();
        if access.direction == Direction::Write || !cold || !moves || step.files.is_empty() {
            return None;
        }
        let path = step.files.path(0).ok()?;
        Watch::begin(self.found.device(path)?, path, terms::assumed())
    }

    /// Runs a step, a small part of it first if it reads from a disk that is not known, and that matters.
    pub(crate) fn run_tried(
        &self,
        access: &Access,
        step: Step,
        interrupts: &Interrupts,
    ) -> Result<(), Fault> {
        if !self.wants_trial(access, &step) {
            return self.run_step(access, step, interrupts);
        }
        let (Layout::Strided(layout), Place::Files(files)) = (&self.described.layout, &self.place)
        else {
            return self.run_step(access, step, interrupts);
        };
        let mut left = vec![access.section.clone()];
        let (mut trials, mut reads) = (TRIALS, step.plan.cost().reads);
        drop(step);
        while let Some(mut section) = left.pop() {
            if trials > 0 {
                let mut parts = trial::cut(layout, &section, reads, TRIAL)?;
                section = parts.remove(0);
                left.extend(parts.into_iter().rev());
            }
            let part = Access {
                data: access.data.wrapping_offset(offset(access, &section)),
                section: &section,
                ..*access
            };
            self.dense(layout, files, &part, crate::admission::Mode::Run, &mut |step| {
                self.run_step(&part, step, interrupts)
            })?;
            trials = if self.is_surprising() { (trials - 1).max(0) } else { 0 };
            reads = (reads - TRIAL).max(1);
        }
        Ok(())
    }

    fn wants_trial(&self, access: &Access, step: &Step) -> bool {
        let Hints { method: None, .. } = access.hints else { return false };
        let Layout::Strided(layout) = &self.described.layout else { return false };
        let cold = step.cached.is_some_and(|cached| cached <= COLD);
        let moves = step.plan.method() != Method::Mapped;
        if access.direction == Direction::Write || !cold || !moves {
            return false;
        }
        let cost = step.plan.cost();
        cost.reads >= WORTH
            && trial::is_scattered(layout, step.section, cost.read_bytes)
            && step.files.path(0).is_ok_and(|path| {
                self.found.device(path).is_some_and(|device| !disks::is_known(device))
            })
    }

    /// Whether the disk is not what was assumed.
    fn is_surprising(&self) -> bool {
        self.disk().1 == Origin::Learned
    }
}

/// Bytes from the caller's element for the first index of the access to that of a part.
fn offset(access: &Access, part: &Section) -> isize {
    let both = part.ranges().iter().zip(access.section.ranges()).zip(access.strides);
    let bytes = both.map(|((part, all), stride)| (part.start - all.start) / all.step * stride);
    bytes.sum::<i64>() as isize
}
