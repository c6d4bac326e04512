//! An open array for Python: the core's array, called without the GIL and with checks for Ctrl-C, and the
//! type of its elements.

use std::ops::Deref;
use std::sync::atomic::AtomicU64;
use std::sync::Arc;

use outcore_access::indexed::IndexSchedule;
use outcore_access::nesting;
use outcore_access::survey::Survey;
use outcore_access::two_phase::Owned;
use outcore_access::{Access, Hints, InParts, IndexedAccess, Open as Core};
use outcore_io::exec::User;
use outcore_io::store::listing::Listed;
use outcore_plan::{Direction, Index, Section};
use pyo3::prelude::*;

use crate::errors::{detached, Fault};
use crate::interrupt::Signals;
use crate::layout::Described;

/// An array that is open in this process.
pub struct Open {
    core: Core,
    /// The array.
    pub described: Arc<Described>,
}

impl Deref for Open {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.core
    }
}

/// An owner's array as owned data, so that other threads can use it.
pub struct Held {
    pub open: Arc<Open>,
    pub hints: Hints,
    pub written: Arc<AtomicU64>,
    /// True if only the ranks of the collective write it.
    pub exclusive: bool,
    /// The write of which all writes through this are parts.
    pub whole: InParts,
}

impl Held {
    /// Returns it in the form that the core uses.
    pub fn owned(&self) -> Owned<'_> {
        let Held { open, hints, written, exclusive, whole } = self;
        Owned { open, hints, exclusive: *exclusive, written, whole }
    }
}

/// Return a number that changes with every write of this process.
#[pyfunction]
pub fn writes() -> u64 {
    outcore_access::open::writes()
}

impl Open {
    /// As [`Core::new`].
    pub fn new(described: Arc<Described>, writable: bool) -> Result<Open, Fault> {
        Ok(Open { core: Core::new(described.core.clone(), writable)?, described })
    }

    /// As [`Core::beside`].
    pub fn beside(&self, described: Arc<Described>, writable: bool) -> Result<Open, Fault> {
        Ok(Open { core: self.core.beside(described.core.clone(), writable)?, described })
    }

    /// As [`Core::view`].
    pub fn view(&self, described: Arc<Described>, writable: bool) -> Result<Open, Fault> {
        Ok(Open { core: self.core.view(described.core.clone(), writable)?, described })
    }

    /// Moves the section between the files and the caller's memory.
    pub fn run(&self, py: Python<'_>, access: &Access) -> Result<(), Fault> {
        self.outside(py, |signals| self.core.run(access, signals))
    }

    /// Moves elements that are chosen one by one.
    pub fn run_indexed(&self, py: Python<'_>, asked: &IndexedAccess) -> Result<(), Fault> {
        self.outside(py, |signals| self.core.run_indexed(asked, signals))
    }

    /// Prepares an index.
    pub fn schedule(
        &self,
        py: Python<'_>,
        index: &Index,
        hints: &Hints,
    ) -> Result<IndexSchedule, Fault> {
        self.outside(py, |_| self.core.schedule(index, hints))
    }

    /// Moves the elements of a schedule.
    pub fn run_schedule(
        &self,
        py: Python<'_>,
        schedule: &IndexSchedule,
        how: (Direction, User, &Hints),
    ) -> Result<(), Fault> {
        self.outside(py, |signals| self.core.run_schedule(schedule, how, signals))
    }

    /// Returns the cost of moving elements that are chosen one by one.
    pub fn survey_indexed(&self, py: Python<'_>, asked: &IndexedAccess) -> Result<Survey, Fault> {
        self.outside(py, |signals| self.core.survey_indexed(asked, signals))
    }

    /// Returns the cost of running the access.
    pub fn survey(&self, py: Python<'_>, access: &Access) -> Result<Survey, Fault> {
        self.outside(py, |signals| self.core.survey(access, signals))
    }

    /// Returns the cost in nanoseconds, and the share that is cached.
    pub fn price(&self, py: Python<'_>, access: &Access, cold: bool) -> Result<(i64, i64), Fault> {
        self.outside(py, |signals| self.core.price(access, cold, signals))
    }

    /// Returns an error for a section that no access accepts, before memory is allocated for it.
    pub fn admit(&self, section: &Section) -> Result<(), Fault> {
        Ok(self.core.admit(section)?)
    }

    /// Returns the stored units (`outcore_access::open::Open::stored`).
    pub fn stored(&self, py: Python<'_>) -> Result<Option<(Vec<i64>, Listed)>, Fault> {
        self.outside(py, |signals| self.core.stored(signals))
    }

    /// Asks the operating system to read ahead the data of the section.
    pub fn prefetch(&self, py: Python<'_>, access: &Access) -> Result<(), Fault> {
        self.outside(py, |signals| self.core.prefetch(access, signals))
    }

    /// Passes the written data to the disk, and waits for it if `durable`.
    pub fn flush(&self, py: Python<'_>, durable: bool) -> Result<(), Fault> {
        if !durable {
            return Ok(());
        }
        self.outside(py, |_| self.core.flush())
    }

    /// As [`Core::before_flush`].
    pub fn before_flush(&self, py: Python<'_>, send: bool) -> Result<Option<(u64, u64)>, Fault> {
        self.outside(py, |_| self.core.before_flush(send))
    }

    /// Returns whether a write would leave gaps that a flush then makes dirty.
    pub fn leaves_gaps(&self, py: Python<'_>, access: &Access) -> Result<bool, Fault> {
        self.outside(py, |signals| self.core.leaves_gaps(access, signals))
    }

    /// Runs `work` without the GIL, and adds the name of the array to its errors.
    pub fn outside<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Signals) -> Result<T, outcore_access::Fault> + Send,
    ) -> Result<T, Fault> {
        let signals = Signals::default();
        let result = detached(py, || Ok(work(&signals)));
        if let Some(raised) = signals.take() {
            return Err(raised.into());
        }
        match result {
            Ok(done) => Ok(done.map_err(|fault| nesting::hint(self.core.failure(fault)))?),
            Err(bug) => Err(bug.at(&self.described.path)),
        }
    }
}
