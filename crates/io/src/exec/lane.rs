//! A thread with a slot, which checks rounds before it runs them.
//!
//! Idea: a [`Lane`] owns a slot and runs the steps of a checked round. Both drivers use its
//! methods, from different threads and at different times. Each kind of step has a separate file.

use std::sync::Arc;

use outcore_plan::check::{check, Bounds, CheckedRound};
use outcore_plan::{Place, Round};

use super::times::{Phase, Watch};
use super::{Report, Room, Shared, UNKNOWN};
use crate::chunk_cache::{Chunk, Seen};
use crate::codec::Coder;
use crate::copy::Side;
use crate::copy_indexed::Blocks;
use crate::error::{ShortRead, StorageError};
use crate::mapping::Mapping;
use crate::pinned::Pinned;

mod chunks;
mod moves;
mod transfers;

/// A slot, and all that its thread needs to run rounds in it.
pub(super) struct Lane<'a> {
    pub(super) shared: &'a Shared<'a>,
    bounds: Bounds,
    slot: *mut u8,
    room: Room,
    /// Made when the first chunk is coded.
    coder: Option<Coder<'a>>,
    /// State of files with cacheable chunks, before this lane read from them.
    seen: Vec<Option<Seen>>,
    /// Cached chunks of this round, by their number in it.
    found: Vec<(usize, Arc<Chunk>)>,
    /// Set if it runs on the thread that called `run`, which checks for Ctrl-C.
    leads: bool,
    /// Pages of a mapping from or to which blocks were copied.
    resident: Option<Resident<'a>>,
    watch: Watch,
    pub(super) report: Report,
}

/// Bytes `first..end` of a mapping, which stay resident.
struct Resident<'a> {
    _pinned: Pinned<'a>,
    mapping: Arc<Mapping>,
    first: i64,
    end: i64,
}

// SAFETY: only this lane uses the slot, on whatever thread it runs.
#[allow(unsafe_code)]
unsafe impl Send for Lane<'_> {}

/// One contiguous piece of a transfer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece {
    pub(super) offset: i64,
    pub(super) len: usize,
    pub(super) memory: *mut u8,
    /// A read must reach this byte of the file.
    pub(super) needed: i64,
}

impl<'a> Lane<'a> {
    pub(super) fn new(shared: &'a Shared<'a>, room: Room) -> Lane<'a> {
        let job = shared.job;
        let bounds = Bounds {
            slot_bytes: job.plan.slot_bytes(),
            files: vec![UNKNOWN; job.files.len()],
            user: (job.user.low, job.user.high),
            fill: job.fill.len() as i64,
            block: job.plan.block(),
            home: Some(job.user.origin as i64 & (job.plan.block() - 1)),
        };
        let (slot, report) = (room.slot, Report::default());
        let (coder, seen, found) = (None, vec![None; job.files.len()], Vec::new());
        let (leads, resident, watch) = (false, None, Watch::new());
        Lane { shared, bounds, slot, room, coder, seen, found, leads, resident, watch, report }
    }

    /// Marks this lane as running on the thread that called `run`.
    pub(super) fn leading(self) -> Lane<'a> {
        Lane { leads: true, ..self }
    }

    /// Restarts the clock for the next phase.
    pub(super) fn begin(&mut self) {
        self.watch = Watch::new();
    }

    /// Ends a phase.
    pub(super) fn lap(&mut self, phase: Phase) {
        self.watch.lap(&mut self.report.times, phase);
    }

    /// Returns round `k`, checked against the current lengths of the files.
    pub(super) fn round(&mut self, k: u64) -> Result<CheckedRound, StorageError> {
        let job = self.shared.job;
        let round = job.plan.round(k)?;
        // Files that hold chunks or parts are opened here, which takes time; the length of an open
        // file is found quickly.
        if job.pipeline.is_some_and(|pipeline| !pipeline.is_empty()) || job.files.len() > 1 {
            self.lap(Phase::Plan);
            self.ask_lengths(&round)?;
            self.lap(Phase::Io);
        } else {
            self.ask_lengths(&round)?;
        }
        match check(round, &self.bounds) {
            Ok(checked) => {
                self.report.rounds += 1;
                self.lap(Phase::Plan);
                Ok(checked)
            }
            Err(error) => Err(self.too_short(k).unwrap_or(StorageError::Plan(error))),
        }
    }

    /// Finds the lengths of the files in the round, once for each file.
    fn ask_lengths(&mut self, round: &Round) -> Result<(), StorageError> {
        let transfers = round.reads.iter().chain(&round.writes).map(|t| t.file);
        let chunks = round.chunk_reads.iter().map(|c| c.stored.file);
        let plain = round.moves.iter().flat_map(|m| [m.src, m.dst]);
        let indexed = round.indexed.iter().flat_map(|m| [m.src, m.dst]);
        let mapped = plain.chain(indexed).filter_map(|p| match p {
            Place::File(file) => Some(file),
            _ => None,
        });
        for file in transfers.chain(chunks).chain(mapped) {
            if self.bounds.files.get(file as usize) == Some(&UNKNOWN) {
                self.bounds.files[file as usize] = self.shared.length(file)?;
            }
        }
        Ok(())
    }

    /// Returns the error for a file that is shorter than its layout requires, if that is why the
    /// check of round `k` failed.
    #[cold]
    fn too_short(&self, k: u64) -> Option<StorageError> {
        let mut round = self.shared.job.plan.round(k).ok()?;
        // Check the same round with endless files: if it passes, the length of a file is the
        // reason.
        let endless =
            Bounds { files: vec![i64::MAX; self.bounds.files.len()], ..self.bounds.clone() };
        round = check(round, &endless).ok()?.round().clone();
        let reach = |at: i64, count: &[i64], stride: &[i64], len: i64| {
            let upwards = |(n, s): (&i64, &i64)| ((n - 1) * s).max(0);
            at + count.iter().zip(stride).map(upwards).sum::<i64>() + len
        };
        let transfers = round.reads.iter().chain(&round.writes).map(|t| {
            let e = &t.extents;
            (t.file, e.offset, reach(e.offset, &e.count, &e.stride, e.len))
        });
        let chunks = round
            .chunk_reads
            .iter()
            .map(|c| (c.stored.file, c.stored.offset, c.stored.offset + c.stored.len));
        let mapped = round.moves.iter().flat_map(|m| {
            [(m.src, m.src_at, &m.src_stride), (m.dst, m.dst_at, &m.dst_stride)]
                .into_iter()
                .filter_map(|(place, at, stride)| match place {
                    Place::File(file) => Some((file, at, reach(at, &m.count, stride, m.item))),
                    _ => None,
                })
        });
        let indexed = round.indexed.iter().filter_map(|m| {
            let (low, high) = match (m.src, m.dst) {
                (Place::File(_), _) => Blocks::new(m).ok()?.span(Side::Source),
                _ => Blocks::new(m).ok()?.span(Side::Destination),
            };
            match (m.src, m.dst) {
                (Place::File(file), _) | (_, Place::File(file)) => Some((file, low, high)),
                _ => None,
            }
        });
        let (file, offset, end) = transfers
            .chain(chunks)
            .chain(mapped)
            .chain(indexed)
            .find(|(file, _, end)| *end > self.bounds.files[*file as usize])?;
        let path = self.shared.job.files.path(file).ok()?.to_path_buf();
        let file_len = self.bounds.files[file as usize];
        Some(StorageError::ShortRead(ShortRead { path, offset, len: end - offset, file_len }))
    }

    /// Returns the start of a place in memory.
    fn base(&self, place: Place) -> *mut u8 {
        match place {
            Place::User => self.shared.job.user.origin,
            Place::Slot | Place::File(_) => self.slot,
            Place::Fill => self.shared.job.fill.as_ptr().cast_mut(),
        }
    }

    /// Returns a piece of the slot.
    ///
    /// # Safety
    /// The piece is inside the slot, and no other reference to any part of it is used while this
    /// one is.
    #[allow(unsafe_code)]
    unsafe fn piece_of_slot<'s>(&self, at: i64, len: i64) -> &'s mut [u8] {
        // SAFETY: the caller's promise; the slot belongs to this lane.
        unsafe { std::slice::from_raw_parts_mut(self.slot.offset(at as isize), len as usize) }
    }
}
