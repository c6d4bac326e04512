//! Ranks exchange what they know about disks, so that all of them plan with equal parameters.
//!
//! Problem. Each rank times its own requests, and sees only a part of the load that all ranks put on a disk.
//! Ranks that learned separately found gaps that differed by a factor of a thousand, and owners planned with
//! these. And if a collective begins on an unknown disk, all ranks plan for a fast one at the same time.
//!
//! Idea. A rank states in its record what it knows ([`known`]). If no rank of a node knows a disk although
//! they make many scattered requests to it, one of them tries the disk before anything is planned
//! ([`try_disk`]). The values that count follow from the records of all ranks (`plan::collective::settings`),
//! and each rank adopts them ([`adopt`]).
//!
//! Invariants. These parameters never change results. Measured parameters are never replaced.

use outcore_io::disks;
use outcore_plan::collective::TimedDisk;
use outcore_plan::Section;

use crate::admission;
use crate::error::Fault;
use crate::hints::Hints;
use crate::interrupt::Interrupts;
use crate::open::Open;
use crate::terms;

/// Knowledge of a rank about the disk of its accesses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Known {
    /// Number of the disk; 0 if there is none.
    pub disk: i64,
    /// Cost of a request in nanoseconds, and bytes per second, if requests were timed recently.
    pub timed: Option<(i64, i64)>,
    /// Number of requests that should come after a trial of the disk.
    pub untried: i64,
}

/// Returns what is known of the disk of these accesses; if there are several disks, of the one with most
/// untried requests.
pub fn known(accesses: &[(&Open, &Section, &Hints)]) -> Known {
    let each = accesses.iter().map(|&(open, section, hints)| {
        let number = open.disk_number();
        let timed = number.and_then(|number| disks::timed(number, terms::assumed()));
        let timed = timed.map(|figures| (figures.latency_ns, figures.device));
        let untried = open.untried(section, hints);
        Known { disk: number.map_or(0, u64::cast_signed), timed, untried }
    });
    let more = |a: Known, b: Known| if a.disk == 0 || b.untried > a.untried { b } else { a };
    each.fold(Known::default(), more)
}

/// Tries the disk of the access with most untried requests. If the trial fails, the access itself will report
/// why.
///
/// # Errors
/// Only an interrupt.
pub fn try_disk(
    accesses: &[(&Open, &Section, &Hints)],
    interrupts: &dyn Interrupts,
) -> Result<(), Fault> {
    let each = accesses.iter().map(|access| (access.0.untried(access.1, access.2), access));
    let Some((reads, (open, section, hints))) = each.max_by_key(|(reads, _)| *reads) else {
        return Ok(());
    };
    if reads == 0 {
        return Ok(());
    }
    admission::in_turn(interrupts, || {
        open.try_disk(section, reads, hints, interrupts);
        Ok(())
    })
}

/// Adopts the times that ranks of this node measured.
pub fn adopt(timed: &[TimedDisk]) {
    for one in timed {
        disks::adopt(one.disk.cast_unsigned(), one.latency_ns, one.rate, terms::assumed());
    }
}
