//! Flushes: written data is put on the disk, and gaps between written pages are filled where that costs less.

use std::sync::atomic::Ordering;
use std::time::Instant;

use outcore_io::exec::{self, Report, Times};
use outcore_io::{gaps, Arena, FileTable};
use outcore_plan::Direction;

use super::{Open, Place};
use crate::admission::Mode;
use crate::error::Fault;
use crate::hints::Cache;
use crate::interrupt::Interrupts;
use crate::step::{Access, Step};

impl Open {
    /// Announces that from now on a flush follows each write, or many of them.
    pub fn expect_flush(&self) {
        self.habit.tell();
    }

    /// Returns whether a flush is expected to follow the next write.
    pub fn is_flush_expected(&self) -> bool {
        self.habit.flushed()
    }

    /// Passes the written data to the disk, and waits for it.
    pub fn flush(&self) -> Result<(), Fault> {
        self.habit.flush();
        let began = Instant::now();
        let flushed = self.put_on_disk();
        let times = Times { io: exec::nanoseconds(began.elapsed()), ..Times::default() };
        self.count(&Report { flushes: 1, times, ..Report::default() });
        flushed
    }

    fn put_on_disk(&self) -> Result<(), Fault> {
        match &self.place {
            Place::Files(files) => {
                let filled = self.fill_gaps(files, false);
                files.sync()?;
                filled
            }
            Place::Chunks(chunks) => Ok(chunks.flush()?),
        }
    }

    /// Performs the part of a flush before the wait for the disk: makes gaps between written pages dirty
    /// where that makes fewer and larger requests (`gaps`), and with `send` starts writing all data to the
    /// disk. Returns the file (device and inode) if a flush of it by any process of this machine covers ours.
    pub fn before_flush(&self, send: bool) -> Result<Option<(u64, u64)>, Fault> {
        match &self.place {
            Place::Files(files) => {
                self.fill_gaps(files, send)?;
                Ok(files.shared_flush())
            }
            Place::Chunks(_) => Ok(None),
        }
    }

    /// Records that another process has flushed the file that `before_flush` returned.
    pub fn flushed_by_another(&self) {
        self.habit.flush();
    }

    fn fill_gaps(&self, files: &FileTable, send: bool) -> Result<(), Fault> {
        let prices = self.found.prices(files);
        let pages = self.written.fill(files, &prices, &Arena::global(), send)?;
        self.filled.fetch_add(pages, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the number of pages of gaps that flushes made dirty since the array was opened.
    pub fn filled(&self) -> u64 {
        self.filled.load(Ordering::Relaxed)
    }

    /// Records the ranges that a write in place is about to write. Returns whether they should wait for the
    /// flush, which will make their gaps dirty.
    pub(super) fn remember(&self, access: &Access, step: &Step) -> bool {
        let through_cache = access.hints.cache != Cache::Bypass;
        if access.direction == Direction::Read || step.sink.is_some() || !through_cache {
            return false;
        }
        let written = step.plan.written();
        let waits = gaps::waits(&written, &self.found.prices(step.files));
        self.written.add(written);
        waits
    }

    /// Returns whether a write would leave gaps that a flush then makes dirty.
    pub fn leaves_gaps(&self, access: &Access, interrupts: &dyn Interrupts) -> Result<bool, Fault> {
        let mut found = false;
        self.each(access, Mode::Look, interrupts, &mut |step| {
            found |= gaps::waits(&step.plan.written(), &self.found.prices(step.files));
            Ok(())
        })?;
        Ok(found)
    }
}
