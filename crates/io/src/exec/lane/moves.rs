//! Steps of a round between its reads and its writes. This file has the moves: copies between the
//! slot, the memory of the caller, mapped files and the fill value.

#![allow(unsafe_code)]

use std::sync::Arc;

use outcore_plan::check::CheckedRound;
use outcore_plan::{IndexedMove, Move, Place};

use super::{Lane, Resident};
use crate::backend::sys;
use crate::copy::{Loops, Side};
use crate::copy_indexed::Blocks;
use crate::error::StorageError;
use crate::exec::times::Phase;
use crate::mapping::Mapping;

impl Lane<'_> {
    /// Runs all steps between the reads and the writes of a round.
    pub(in crate::exec) fn between(&mut self, round: &CheckedRound) -> Result<(), StorageError> {
        self.chunk_reads(round)?;
        if !round.moves.is_empty() || !round.indexed.is_empty() {
            self.moves(round)?;
            self.lap(Phase::Copy);
        }
        self.chunk_writes(round)
    }

    /// Runs the moves in their order.
    fn moves(&mut self, round: &CheckedRound) -> Result<(), StorageError> {
        round.moves.iter().try_for_each(|one| self.one_move(one, round))?;
        round.indexed.iter().try_for_each(|one| self.indexed(one, round))
    }

    /// Copies blocks whose addresses are listed.
    fn indexed(&mut self, one: &IndexedMove, round: &CheckedRound) -> Result<(), StorageError> {
        let blocks = Blocks::new(one)?;
        if one.src == Place::Slot && !self.found.is_empty() {
            let copy = |base, dst| {
                // SAFETY: the round was checked; see `kept`.
                unsafe { blocks.run(base, dst) };
            };
            if self.kept(blocks.span(Side::Source), one.dst, round, &copy)? {
                return Ok(());
            }
        }
        match (one.src, one.dst) {
            (Place::File(file), _) => self.mapped_blocks(&blocks, one, file, Side::Source),
            (_, Place::File(file)) => self.mapped_blocks(&blocks, one, file, Side::Destination),
            (src, dst) => {
                // SAFETY: the round was checked: both spans are inside their places, which differ.
                unsafe { blocks.run(self.base(src), self.base(dst)) };
                Ok(())
            }
        }
    }

    /// Copies blocks out of or into a mapped file.
    ///
    /// The pages that they span stay resident in the meantime, and in this lane until it copies
    /// blocks elsewhere: counting the pages of a whole file takes as long as some blocks.
    fn mapped_blocks(
        &mut self,
        blocks: &Blocks,
        one: &IndexedMove,
        number: u32,
        side: Side,
    ) -> Result<(), StorageError> {
        let (files, arena) = (self.shared.job.files, self.shared.job.arena);
        let file = files.open(number)?;
        let mapping = file.mapping(self.bounds.files[number as usize], arena)?;
        let (first, end) = blocks.span(side);
        // The blocks may span less than these bounds; a round past the end has failed the check.
        let (first, end) = (first.max(0), end.min(mapping.len() as i64));
        if self.bounds.files[number as usize] > mapping.len() as i64 {
            return Err(file.short(first, (end - first) as usize));
        }
        self.keep_resident(&mapping, first, end);
        let (base, other) = match side {
            Side::Source => (mapping.as_ptr(), self.base(one.dst)),
            Side::Destination => (mapping.as_ptr(), self.base(one.src)),
        };
        // SAFETY: the round was checked and the mapping is long enough; the mapping and the other
        // place do not overlap.
        unsafe {
            match side {
                Side::Source => blocks.run(base, other),
                Side::Destination => blocks.run(other, base),
            }
        }
        let bytes = one.bytes();
        self.report.mapped_bytes += bytes;
        if side == Side::Destination {
            self.report.mapped_written_bytes += bytes;
            let len = (end - first) as usize;
            // SAFETY: a part of the mapping, which lives; fault plans of tests read it.
            let written = unsafe { std::slice::from_raw_parts(base.offset(first as isize), len) };
            sys::note_mapped_write(file.fd(), first, written);
            if self.shared.job.flushed {
                self.shared.send(&file, first, end - first);
            }
        }
        mapping.check(&*file)
    }

    fn one_move(&mut self, one: &Move, round: &CheckedRound) -> Result<(), StorageError> {
        let loops = Loops::new(
            (one.src_at, &one.src_stride),
            (one.dst_at, &one.dst_stride),
            &one.count,
            one.item,
        )?;
        // Rounds have about the same size.
        let rounds = self.shared.job.plan.rounds();
        let loops = loops.of(rounds.saturating_mul(loops.bytes() as u64));
        if one.src == Place::Slot && !self.found.is_empty() {
            let (first, end) = loops.span(Side::Source);
            let copy = |base, dst| {
                // SAFETY: the round was checked; see `kept`.
                unsafe { loops.run(base, dst) };
            };
            if self.kept((first as i64, end as i64), one.dst, round, &copy)? {
                return Ok(());
            }
        }
        match (one.src, one.dst) {
            (Place::File(file), _) => self.mapped(&loops, file, Side::Source, one.dst),
            (_, Place::File(file)) => self.mapped(&loops, file, Side::Destination, one.src),
            (src, dst) => {
                // SAFETY: the round was checked: both spans are inside their places, which differ.
                unsafe { loops.run(self.base(src), self.base(dst)) };
                Ok(())
            }
        }
    }

    /// Copies out of or into a mapped file, in pieces that keep few pages resident at a time.
    fn mapped(
        &mut self,
        loops: &Loops,
        number: u32,
        side: Side,
        other: Place,
    ) -> Result<(), StorageError> {
        let (files, arena) = (self.shared.job.files, self.shared.job.arena);
        let file = files.open(number)?;
        let needed = self.bounds.files[number as usize];
        let mapping = file.mapping(needed, arena)?;
        let span = loops.span(side);
        if span.1 as i64 > mapping.len() as i64 {
            return Err(file.short(span.0 as i64, (span.1 - span.0) as usize));
        }
        let most = (arena.limit() / 8).clamp(2 << 20, 32 << 20) as isize;
        let small = |piece: &Loops| {
            let (first, end) = piece.span(side);
            end - first <= most
        };
        let (base, other) = (mapping.as_ptr(), self.base(other));
        loops.pieces(side, &small, &mut |piece| {
            let (first, end) = piece.span(side);
            let pinned = mapping.pin(first as usize, end as usize);
            // SAFETY: the round was checked and the mapping is long enough; the mapping and the
            // other place do not overlap.
            unsafe {
                match side {
                    Side::Source => piece.run(base, other),
                    Side::Destination => piece.run(other, base),
                }
            }
            drop(pinned);
            if side == Side::Destination {
                // SAFETY: a part of the mapping, which lives; fault plans of tests read it.
                let bytes = unsafe {
                    std::slice::from_raw_parts(base.offset(first), (end - first) as usize)
                };
                sys::note_mapped_write(file.fd(), first as i64, bytes);
                if self.shared.job.flushed {
                    self.shared.send(&file, first as i64, (end - first) as i64);
                }
            }
            mapping.check(&*file)
        })?;
        self.report.mapped_bytes += loops.bytes() as i64;
        if side == Side::Destination {
            self.report.mapped_written_bytes += loops.bytes() as i64;
        }
        Ok(())
    }

    /// Keeps bytes of a mapping resident.
    ///
    /// Unordered lists span about the same bytes in each round: their ranges are merged, so that
    /// only few rounds count pages.
    fn keep_resident(&mut self, mapping: &Arc<Mapping>, first: i64, end: i64) {
        let kept = self.resident.take().filter(|kept| Arc::ptr_eq(&kept.mapping, mapping));
        let (mut low, mut high) = (first, end);
        if let Some(kept) = kept {
            if kept.first <= first && end <= kept.end {
                self.resident = Some(kept);
                return;
            }
            let both = (first.min(kept.first), end.max(kept.end));
            if (both.1 - both.0) / 3 * 2 < (end - first).max(kept.end - kept.first) {
                (low, high) = both;
            }
        }
        let start = mapping.as_ptr() as usize;
        let _pinned = self.shared.job.arena.pin(start + low as usize, start + high as usize);
        let mapping = Arc::clone(mapping);
        self.resident = Some(Resident { _pinned, mapping, first: low, end: high });
    }
}
