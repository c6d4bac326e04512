//! Reads and writes of a round as calls of this thread.
//!
//! A transfer is a family of contiguous pieces. A long round checks from time to time whether it
//! should stop.

#![allow(unsafe_code)]

use std::sync::PoisonError;

use outcore_plan::check::CheckedRound;
use outcore_plan::{Channel, Transfer};

use super::{Lane, Piece};
use crate::error::StorageError;
use crate::exec::times::Phase;

/// Requests, and bytes, after which write-back is started, if a flush follows.
const SENT_REQUESTS: i64 = 128;
const SENT_BYTES: i64 = 1 << 20;
/// Requests, and bytes, after which a round checks whether it should stop.
const LOOK_REQUESTS: u32 = 1024;
const LOOK_BYTES: usize = 32 << 20;

impl Lane<'_> {
    /// Calls `each` for every contiguous piece of a transfer.
    pub(in crate::exec) fn pieces(
        &self,
        transfer: &Transfer,
        write: bool,
        each: &mut dyn FnMut(Piece) -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        let e = &transfer.extents;
        let base = self.base(transfer.memory);
        let block = self.bounds.block;
        let mut one = |offset: i64, at: i64| {
            let (first, end) = match transfer.channel {
                channel if write => channel.written(offset, offset + e.len, block),
                Channel::Direct => (offset & -block, (offset + e.len + block - 1) & -block),
                _ => (offset, offset + e.len),
            };
            if first == end {
                return Ok(()); // no whole block inside, or only whole blocks
            }
            each(Piece {
                offset: first,
                len: (end - first) as usize,
                memory: base.wrapping_offset((at - (offset - first)) as isize),
                needed: if write { end } else { offset + e.len },
            })
        };
        family(&e.count, &e.stride, &transfer.at_stride, (e.offset, transfer.at), &mut one)
    }

    /// Reads into the slot or the caller's array, one request after another.
    pub(in crate::exec) fn reads(&mut self, round: &CheckedRound) -> Result<(), StorageError> {
        if round.reads.is_empty() {
            return Ok(());
        }
        let mut looked = (0, 0);
        for transfer in &round.reads {
            let file = self.shared.job.files.open(transfer.file)?;
            let (mut reads, mut bytes) = (0, 0);
            self.pieces(transfer, false, &mut |piece| {
                self.go_on(&mut looked, piece.len)?;
                reads += 1;
                bytes += piece.len as i64;
                // A rounded piece may pass the end of the file: only the needed bytes must exist.
                let len = (piece.needed - piece.offset) as usize;
                // SAFETY: the round was checked: the piece is inside its place.
                unsafe { file.read_at(piece.offset, piece.memory, len) }
            })?;
            self.report.reads += reads;
            self.report.read_bytes += bytes;
        }
        self.lap(Phase::Io);
        Ok(())
    }

    /// Writes from the slot or the caller's array, one request after another.
    ///
    /// Buffered writes to one file exclude each other in the kernel, where waiting threads spin:
    /// two of them reach 1.5 GB/s where a single one reaches 4.2. So lanes write one after another;
    /// they pack, or write through the mapping, in parallel. If a flush follows, write-back of the
    /// written data is started early (`writeback.rs`).
    pub(in crate::exec) fn writes(&mut self, round: &CheckedRound) -> Result<(), StorageError> {
        if round.writes.is_empty() {
            return Ok(());
        }
        let shared = self.shared;
        let _turn = shared.writing.lock().unwrap_or_else(PoisonError::into_inner);
        self.begin(); // waiting for other threads does not count as I/O
        let mut looked = (0, 0);
        for transfer in &round.writes {
            let file = self.shared.job.files.open(transfer.file)?;
            let (mut writes, mut bytes) = (0, 0);
            let (mut first, mut end) = (i64::MAX, 0);
            let mut sent = (0, 0);
            self.pieces(transfer, true, &mut |piece| {
                self.go_on(&mut looked, piece.len)?;
                first = first.min(piece.offset);
                end = end.max(piece.needed);
                writes += 1;
                bytes += piece.len as i64;
                // SAFETY: the round was checked: the piece is inside its place.
                unsafe { file.write_at(piece.offset, piece.memory, piece.len) }?;
                let late = writes - sent.0 >= SENT_REQUESTS || bytes - sent.1 >= SENT_BYTES;
                if shared.job.flushed && late {
                    shared.send(&file, first, end - first);
                    (first, end, sent) = (i64::MAX, 0, (writes, bytes));
                }
                Ok(())
            })?;
            self.report.writes += writes;
            self.report.written_bytes += bytes;
            if first < end && shared.job.flushed {
                shared.send(&file, first, end - first);
            }
        }
        self.lap(Phase::Io);
        Ok(())
    }

    /// Checks from time to time, in a round of many requests, whether to stop; `done` counts
    /// requests and bytes since the last check.
    fn go_on(&self, done: &mut (u32, usize), len: usize) -> Result<(), StorageError> {
        *done = (done.0 + 1, done.1.saturating_add(len));
        if done.0 < LOOK_REQUESTS && done.1 < LOOK_BYTES {
            return Ok(());
        }
        *done = (0, 0);
        if self.leads {
            self.shared.poll();
        }
        // If another error was the reason, that one came first and is reported.
        if self.shared.failed() {
            return Err(StorageError::Cancelled);
        }
        Ok(())
    }
}

/// Calls `each` with offset and address of each piece of a family.
fn family(
    count: &[i64],
    stride: &[i64],
    at_stride: &[i64],
    (offset, at): (i64, i64),
    each: &mut dyn FnMut(i64, i64) -> Result<(), StorageError>,
) -> Result<(), StorageError> {
    match (count, stride, at_stride) {
        ([n, count @ ..], [s, stride @ ..], [a, at_stride @ ..]) => (0..*n)
            .try_for_each(|i| family(count, stride, at_stride, (offset + i * s, at + i * a), each)),
        _ => each(offset, at),
    }
}
