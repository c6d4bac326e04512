//! The reads and writes of a round as calls of this thread.
//!
//! A transfer is a family of contiguous pieces. A long round looks now and then whether it should stop.

#![allow(unsafe_code)]

use std::sync::PoisonError;

use outcore_plan::check::CheckedRound;
use outcore_plan::{Channel, Transfer};

use super::{Lane, Piece};
use crate::error::StorageError;
use crate::exec::times::Phase;

/// Where a flush follows: requests, and bytes, after which what was written is sent to the disk.
const SENT_REQUESTS: i64 = 128;
const SENT_BYTES: i64 = 1 << 20;
/// Requests, and bytes, after which a round looks whether it should stop.
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
                return Ok(()); // No whole block in it, or nothing beside them.
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

    /// Reads into the slot or the caller's array, one request after the other.
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
                // A rounded piece may pass the end of the file: only what is needed must be there.
                let len = (piece.needed - piece.offset) as usize;
                // SAFETY: the round was checked: the piece lies in its place.
                unsafe { file.read_at(piece.offset, piece.memory, len) }
            })?;
            self.report.reads += reads;
            self.report.read_bytes += bytes;
        }
        self.lap(Phase::Io);
        Ok(())
    }

    /// Writes from the slot or the caller's array, one request after the other.
    ///
    /// Buffered writes to one file exclude each other in the kernel, where waiting threads spin:
    /// two of them reach 1.5 GB/s where one alone reaches 4.2. So lanes take turns; they pack, or
    /// write through the mapping, side by side. Where a flush follows, what is written is sent on its
    /// way to the disk meanwhile (`writeback.rs`).
    pub(in crate::exec) fn writes(&mut self, round: &CheckedRound) -> Result<(), StorageError> {
        if round.writes.is_empty() {
            return Ok(());
        }
        let shared = self.shared;
        let _turn = shared.writing.lock().unwrap_or_else(PoisonError::into_inner);
        self.begin(); // Waiting for other threads is no I/O of this one.
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
                // SAFETY: the round was checked: the piece lies in its place.
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

    /// In a round of many requests: whether to stop before its end. `done` counts since the last
    /// look (requests, bytes).
    fn go_on(&self, done: &mut (u32, usize), len: usize) -> Result<(), StorageError> {
        *done = (done.0 + 1, done.1.saturating_add(len));
        if done.0 < LOOK_REQUESTS && done.1 < LOOK_BYTES {
            return Ok(());
        }
        *done = (0, 0);
        if self.leads {
            self.shared.poll();
        }
        // If it was another error, that one was first and is the one that is kept.
        if self.shared.failed() {
            return Err(StorageError::Cancelled);
        }
        Ok(())
    }
}

/// Visits a family: offsets in the file and addresses in memory.
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
