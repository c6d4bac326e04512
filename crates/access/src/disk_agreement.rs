//! What ranks tell each other of disks, so that all of them plan with equal figures.
//!
//! Problem. Each rank times its own requests, and sees a part of what all of them do to a disk: ranks that learned by
//! themselves found gaps that differed by a factor of a thousand, and owners planned by that. And a collective that
//! begins on a disk that nobody knows is planned for a fast one by all ranks at once.
//!
//! Idea. A rank says in its record what it knows ([`known`]). If no rank of a node knows a disk though they want many
//! scattered requests of it, one of them tries it before anything is planned ([`try_disk`]). What counts follows from
//! the records of all ranks (`plan::collective::settings`), and each takes it over ([`adopt`]).
//!
//! Invariants. Figures never change results. Measured ones are never replaced.

use outcore_io::disks;
use outcore_plan::collective::TimedDisk;
use outcore_plan::Section;

use crate::admission;
use crate::error::Fault;
use crate::hints::Hints;
use crate::interrupt::Interrupts;
use crate::open::Open;
use crate::terms;

/// What a rank knows of the disk of its accesses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Known {
    /// The number of the disk; 0: there is none.
    pub disk: i64,
    /// What a request costs in nanoseconds, and bytes a second, if requests were timed lately.
    pub timed: Option<(i64, i64)>,
    /// Requests of an access that had better come after a trial of the disk.
    pub untried: i64,
}

/// What is known of the disk of these accesses; of several disks, of the one with most untried requests.
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

/// Tries the disk of the access with most untried requests. What is in the way of that, the access will tell.
///
/// # Errors
/// An interrupt.
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

/// Takes over what ranks of this node timed.
pub fn adopt(timed: &[TimedDisk]) {
    for one in timed {
        disks::adopt(one.disk.cast_unsigned(), one.latency_ns, one.rate, terms::assumed());
    }
}
