//! The steps of a round, on one thread with one slot.
//!
//! Idea: a [`Lane`] owns a slot and does what a checked round says, step by step. Both drivers are
//! made of its methods; only who calls them, and when, differs.

#![allow(unsafe_code)]

use std::path::PathBuf;
use std::sync::{Arc, PoisonError};

use outcore_plan::check::{check, Bounds, CheckedRound};
use outcore_plan::{
    Channel, ChunkRead, ChunkWrite, Direction, IndexedMove, Move, Place, Round, Transfer,
};

use super::times::{Phase, Watch};
use super::{Report, Room, Shared, UNKNOWN};
use crate::backend::sys;
use crate::chunk_cache::{CacheUse, Chunk, Key, Seen};
use crate::codec::{Coder, Pipeline};
use crate::copy::{Loops, Side};
use crate::copy_indexed::Blocks;
use crate::error::{CodecFailure, ShortRead, StorageError};
use crate::files::FileRef;
use crate::mapping::Mapping;
use crate::pinned::Pinned;

/// A slot and what its thread needs to run rounds in it.
pub(super) struct Lane<'a> {
    pub(super) shared: &'a Shared<'a>,
    bounds: Bounds,
    slot: *mut u8,
    room: Room,
    /// Made when the first chunk is coded.
    coder: Option<Coder<'a>>,
    /// Of files whose chunks may be kept: as they were before this lane read from them.
    seen: Vec<Option<Seen>>,
    /// Chunks of this round that are kept, by their number in it.
    found: Vec<(usize, Arc<Chunk>)>,
    /// Whether it runs on the thread that called `run`, which is the one to ask for Ctrl-C.
    leads: bool,
    /// Pages of a mapping that blocks were copied from or to.
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

// SAFETY: the slot is used by this lane alone, wherever it runs.
unsafe impl Send for Lane<'_> {}

/// Where a flush follows: requests, and bytes, after which what was written is sent to the disk.
const SENT_REQUESTS: i64 = 128;
const SENT_BYTES: i64 = 1 << 20;
/// Requests, and bytes, after which a round looks whether it should stop.
const LOOK_REQUESTS: u32 = 1024;
const LOOK_BYTES: usize = 32 << 20;

/// One contiguous piece of a transfer: where in the file, where in memory, and what of it counts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece {
    pub(super) offset: i64,
    pub(super) len: usize,
    pub(super) memory: *mut u8,
    /// A read that ends before this byte of the file is too short.
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

    /// This lane runs on the thread that called `run`.
    pub(super) fn leading(self) -> Lane<'a> {
        Lane { leads: true, ..self }
    }

    /// What passes from now on is of the next phase that ends.
    pub(super) fn begin(&mut self) {
        self.watch = Watch::new();
    }

    /// A phase ends here.
    pub(super) fn lap(&mut self, phase: Phase) {
        self.watch.lap(&mut self.report.times, phase);
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

    /// Round `k`, checked against the files as they are.
    pub(super) fn round(&mut self, k: u64) -> Result<CheckedRound, StorageError> {
        let job = self.shared.job;
        let round = job.plan.round(k)?;
        // Files that hold chunks, or parts, are opened for this; one that is open is quickly asked.
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

    /// Finds the lengths of the files that the round names, once per file.
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

    /// If round `k` is refused because a file is shorter than its layout says: that error.
    #[cold]
    fn too_short(&self, k: u64) -> Option<StorageError> {
        let mut round = self.shared.job.plan.round(k).ok()?;
        // The same round with endless files: if that is fine, a length is what is wrong.
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

    /// Start of a place in memory.
    fn base(&self, place: Place) -> *mut u8 {
        match place {
            Place::User => self.shared.job.user.origin,
            Place::Slot | Place::File(_) => self.slot,
            Place::Fill => self.shared.job.fill.as_ptr().cast_mut(),
        }
    }

    /// Calls `each` for every contiguous piece of a transfer.
    pub(super) fn pieces(
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
    pub(super) fn reads(&mut self, round: &CheckedRound) -> Result<(), StorageError> {
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
    pub(super) fn writes(&mut self, round: &CheckedRound) -> Result<(), StorageError> {
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

    /// Everything between the reads and the writes of a round.
    pub(super) fn between(&mut self, round: &CheckedRound) -> Result<(), StorageError> {
        self.chunk_reads(round)?;
        if !round.moves.is_empty() || !round.indexed.is_empty() {
            self.moves(round)?;
            self.lap(Phase::Copy);
        }
        self.chunk_writes(round)
    }

    /// The moves, in their order.
    fn moves(&mut self, round: &CheckedRound) -> Result<(), StorageError> {
        round.moves.iter().try_for_each(|one| self.one_move(one, round))?;
        round.indexed.iter().try_for_each(|one| self.indexed(one, round))
    }

    /// Copies blocks whose addresses are listed.
    fn indexed(&mut self, one: &IndexedMove, round: &CheckedRound) -> Result<(), StorageError> {
        let blocks = Blocks::new(one)?;
        if one.src == Place::Slot && !self.found.is_empty() {
            let copy = |base, dst| {
                // SAFETY: the round was checked, as `kept` says.
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
                // SAFETY: the round was checked: both spans lie in their places, which differ.
                unsafe { blocks.run(self.base(src), self.base(dst)) };
                Ok(())
            }
        }
    }

    /// Copies blocks out of or into a mapped file. What they span stays resident meanwhile, and in this
    /// lane until blocks elsewhere come: to count the pages of all of a file takes as long as some blocks.
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
        // What they span is perhaps less than these bounds; a round that passes the end was refused.
        let (first, end) = (first.max(0), end.min(mapping.len() as i64));
        if self.bounds.files[number as usize] > mapping.len() as i64 {
            return Err(file.short(first, (end - first) as usize));
        }
        self.keep_resident(&mapping, first, end);
        let (base, other) = match side {
            Side::Source => (mapping.as_ptr(), self.base(one.dst)),
            Side::Destination => (mapping.as_ptr(), self.base(one.src)),
        };
        // SAFETY: the round was checked and the mapping is long enough; the mapping and the other place do
        // not overlap.
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
        // Rounds are about alike.
        let rounds = self.shared.job.plan.rounds();
        let loops = loops.of(rounds.saturating_mul(loops.bytes() as u64));
        if one.src == Place::Slot && !self.found.is_empty() {
            let (first, end) = loops.span(Side::Source);
            let copy = |base, dst| {
                // SAFETY: the round was checked, as `kept` says.
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
                // SAFETY: the round was checked: both spans lie in their places, which differ.
                unsafe { loops.run(self.base(src), self.base(dst)) };
                Ok(())
            }
        }
    }

    /// A copy out of or into a mapped file, in pieces that leave few pages resident at once.
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

    /// Keeps bytes of a mapping resident. Lists in no order span about the same bytes in each round: these come
    /// together, so that few rounds count pages.
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

    /// Tells the kernel which stored chunks a round will read.
    pub(super) fn advise(&self, round: &Round) {
        for chunk in &round.chunk_reads {
            if let Ok(file) = self.shared.job.files.open(chunk.stored.file) {
                file.will_need(chunk.stored.offset, chunk.stored.len);
            }
        }
    }

    /// Reads and decodes chunks into the slot, but for those that are kept.
    fn chunk_reads(&mut self, round: &CheckedRound) -> Result<(), StorageError> {
        let job = self.shared.job;
        self.found.clear();
        for (number, chunk) in round.chunk_reads.iter().enumerate() {
            let file = job.files.open(chunk.stored.file)?;
            let Some((seen, key)) = self.key(chunk, &file)? else {
                self.chunk_read(chunk, &file)?;
                continue;
            };
            if let Some(kept) = job.arena.chunks().find(&key) {
                self.found.push((number, kept));
                continue;
            }
            self.chunk_read(chunk, &file)?;
            // SAFETY: the round was checked: the chunk lies in the slot, which belongs to this lane
            // and is not written to meanwhile.
            let bytes = unsafe { self.piece_of_slot(chunk.at, chunk.len) };
            job.arena.keep_chunk(&file, (seen, key), bytes, job.chunk_cache);
            self.lap(Phase::Copy);
        }
        Ok(())
    }

    /// Under which name a chunk is kept; `None` if this job has nothing to do with that.
    fn key(
        &mut self,
        chunk: &ChunkRead,
        file: &FileRef,
    ) -> Result<Option<(Seen, Key)>, StorageError> {
        let job = self.shared.job;
        let of_use = match job.chunk_cache {
            CacheUse::Never => false,
            CacheUse::Find => !job.arena.chunks().is_empty(),
            CacheUse::Again | CacheUse::Keep => true,
        };
        // What a write puts beside new elements is read anew, under its lock.
        let of_use = of_use && chunk.partly && job.direction == Direction::Read;
        let (Some(pipeline), Some(open)) = (job.pipeline, file.kept()) else { return Ok(None) };
        let Some(slot) = self.seen.get_mut(chunk.stored.file as usize) else { return Ok(None) };
        if !of_use || pipeline.is_empty() {
            return Ok(None);
        }
        let seen = match *slot {
            Some(seen) => seen,
            None => *slot.insert(Seen::now(open, job.arena)?),
        };
        let key = Key::new(seen, &chunk.stored, chunk.len as usize, pipeline);
        Ok(Some((seen, key)))
    }

    /// If the source of a move, these bytes of the slot, is a chunk that is kept: copies out of it, and says so.
    /// If it gave way since it was found, it is in the slot afterwards. `copy` may rely on this: the source lies in
    /// the chunk, relative to its first argument, and the destination lies in its place, which is not this memory.
    fn kept(
        &mut self,
        (first, end): (i64, i64),
        dst: Place,
        round: &CheckedRound,
        copy: &dyn Fn(*const u8, *mut u8),
    ) -> Result<bool, StorageError> {
        let inside = |(number, _): &(usize, Arc<Chunk>)| {
            let chunk = &round.chunk_reads[*number];
            first >= chunk.at && end <= chunk.at + chunk.len
        };
        let Some(place) = self.found.iter().position(inside) else { return Ok(false) };
        let (number, kept) = self.found.swap_remove(place);
        let (chunk, dst) = (&round.chunk_reads[number], self.base(dst));
        let copied = kept.with(|bytes| {
            // The chunk has its length by its key.
            copy(bytes.as_ptr().wrapping_offset(-(chunk.at as isize)), dst);
        });
        if copied.is_some() {
            self.report.kept += 1;
            return Ok(true);
        }
        let file = self.shared.job.files.open(chunk.stored.file)?;
        self.chunk_read(chunk, &file)?;
        Ok(false)
    }

    fn chunk_read(&mut self, chunk: &ChunkRead, file: &FileRef) -> Result<(), StorageError> {
        let stored = &chunk.stored;
        self.report.reads += 1;
        self.report.read_bytes += stored.len;
        let named =
            |error| name_chunk(error, file.path().to_path_buf(), Some(stored.offset), &chunk.chunk);
        let Some(pipeline) = self.shared.job.pipeline.filter(|p| !p.is_empty()) else {
            if stored.len != chunk.len {
                let why = format!("{} bytes are stored instead of {}", stored.len, chunk.len);
                return Err(named(damaged("none", why)));
            }
            let memory = self.slot.wrapping_offset(chunk.at as isize);
            // SAFETY: the round was checked: the chunk lies in the slot.
            unsafe { file.read_at(stored.offset, memory, chunk.len as usize) }?;
            self.lap(Phase::Io);
            return Ok(());
        };
        let (from, to, aside) = (chunk.staged_at, chunk.at, chunk.scratch_at);
        if meet((from, stored.len), (to, chunk.len))
            || meet((aside, chunk.scratch), (to, chunk.len))
            || meet((aside, chunk.scratch), (from, stored.len))
        {
            return Err(StorageError::BadJob("a chunk decoded over its own bytes".into()));
        }
        // SAFETY: the round was checked: all pieces lie in the slot, which belongs to this lane,
        // and no two of them overlap.
        let (staged, out, scratch) = unsafe {
            (
                self.piece_of_slot(from, stored.len),
                self.piece_of_slot(to, chunk.len),
                self.piece_of_slot(aside, chunk.scratch),
            )
        };
        // SAFETY: `staged` has `stored.len` bytes.
        unsafe { file.read_at(stored.offset, staged.as_mut_ptr(), staged.len()) }?;
        self.lap(Phase::Io);
        let decoded = self.coder(pipeline)?.decode(staged, stored.mask, out, scratch);
        self.lap(Phase::Decode);
        self.report.decodes += 1;
        decoded.map_err(named)
    }

    /// Encodes chunks from the slot and hands them to the sink.
    fn chunk_writes(&mut self, round: &CheckedRound) -> Result<(), StorageError> {
        round.chunk_writes.iter().try_for_each(|chunk| self.chunk_write(chunk))
    }

    fn chunk_write(&mut self, chunk: &ChunkWrite) -> Result<(), StorageError> {
        let job = self.shared.job;
        let sink = job.sink.ok_or_else(|| StorageError::BadJob("chunks without a sink".into()))?;
        // SAFETY: the round was checked: the chunk lies in the slot, which belongs to this lane.
        let bytes: &[u8] = unsafe { self.piece_of_slot(chunk.at, chunk.len) };
        self.report.writes += 1;
        let Some(pipeline) = job.pipeline.filter(|p| !p.is_empty()) else {
            self.report.written_bytes += chunk.len;
            sink(&chunk.chunk, 0, bytes)?;
            self.lap(Phase::Io);
            return Ok(());
        };
        if meet((chunk.staged_at, chunk.scratch), (chunk.at, chunk.len)) {
            return Err(StorageError::BadJob("a chunk encoded over itself".into()));
        }
        // SAFETY: as above; the two pieces do not overlap.
        let scratch = unsafe { self.piece_of_slot(chunk.staged_at, chunk.scratch) };
        let (mask, stored) = {
            let encoded = self.coder(pipeline)?.encode(bytes, scratch);
            let encoded =
                encoded.map_err(|error| name_chunk(error, PathBuf::new(), None, &chunk.chunk))?;
            (encoded.mask, encoded.bytes)
        };
        self.lap(Phase::Encode);
        sink(&chunk.chunk, mask, stored)?;
        self.lap(Phase::Io);
        self.report.encodes += 1;
        self.report.written_bytes += stored.len() as i64;
        Ok(())
    }

    /// A piece of the slot.
    ///
    /// # Safety
    /// The piece lies in the slot, and no other reference to any of it is used while this one is.
    unsafe fn piece_of_slot<'s>(&self, at: i64, len: i64) -> &'s mut [u8] {
        // SAFETY: the caller's promise; the slot belongs to this lane.
        unsafe { std::slice::from_raw_parts_mut(self.slot.offset(at as isize), len as usize) }
    }

    /// The codecs at work, with contexts in the memory of this lane.
    fn coder(&mut self, pipeline: &'a Pipeline) -> Result<&mut Coder<'a>, StorageError> {
        if self.coder.is_none() {
            let Room { contexts, context_bytes, .. } = self.room;
            // SAFETY: this memory belongs to this lane, which hands it to one coder and lives no
            // longer than the slots.
            let memory = unsafe { std::slice::from_raw_parts_mut(contexts, context_bytes) };
            let job = self.shared.job;
            let (decodes, encodes) = job.plan.codes();
            let coder = Coder::new(pipeline, memory, decodes, encodes)?.counting(job.arena);
            self.coder = Some(coder);
        }
        self.coder.as_mut().ok_or_else(|| StorageError::BadJob("no coder".into()))
    }
}

/// Whether two pieces (first byte, bytes) have a byte in common.
fn meet(a: (i64, i64), b: (i64, i64)) -> bool {
    a.1 > 0 && b.1 > 0 && a.0 < b.0 + b.1 && b.0 < a.0 + a.1
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

fn damaged(codec: &'static str, why: String) -> StorageError {
    let chunk = Vec::new();
    StorageError::Codec(CodecFailure { codec, why, path: PathBuf::new(), offset: None, chunk })
}

/// Adds to a codec's error which chunk of which file it was.
fn name_chunk(
    error: StorageError,
    path: PathBuf,
    offset: Option<i64>,
    chunk: &[i64],
) -> StorageError {
    match error {
        StorageError::Codec(failure) => {
            StorageError::Codec(CodecFailure { path, offset, chunk: chunk.to_vec(), ..failure })
        }
        other => other,
    }
}
