//! Chunks of a round: read and decoded into the slot, or taken from the cache; encoded and passed
//! to the sink.

#![allow(unsafe_code)]

use std::path::PathBuf;
use std::sync::Arc;

use outcore_plan::check::CheckedRound;
use outcore_plan::{ChunkRead, ChunkWrite, Direction, Place, Round};

use super::Lane;
use crate::chunk_cache::{CacheUse, Chunk, Key, Seen};
use crate::codec::{Coder, Pipeline};
use crate::error::{CodecFailure, StorageError};
use crate::exec::times::Phase;
use crate::exec::Room;
use crate::files::FileRef;

impl<'a> Lane<'a> {
    /// Advises the kernel which stored chunks a round will read.
    pub(in crate::exec) fn advise(&self, round: &Round) {
        for chunk in &round.chunk_reads {
            if let Ok(file) = self.shared.job.files.open(chunk.stored.file) {
                file.will_need(chunk.stored.offset, chunk.stored.len);
            }
        }
    }

    /// Reads and decodes chunks into the slot, except cached ones.
    pub(super) fn chunk_reads(&mut self, round: &CheckedRound) -> Result<(), StorageError> {
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
            // SAFETY: the round was checked: the chunk is in the slot, which belongs to this lane
            // and is not written to in the meantime.
            let bytes = unsafe { self.piece_of_slot(chunk.at, chunk.len) };
            job.arena.keep_chunk(&file, (seen, key), bytes, job.chunk_cache);
            self.lap(Phase::Copy);
        }
        Ok(())
    }

    /// Returns the key of a chunk in the cache; `None` if this job does not use the cache for it.
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
        // A write reads the old elements of a chunk again, under its lock.
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

    /// Copies out of a cached chunk if one contains the source of a move, these bytes of the slot;
    /// returns whether it did.
    ///
    /// If the chunk was evicted since it was found, it is afterwards in the slot. `copy` may rely
    /// on this: the source is inside the chunk, relative to its first argument, and the destination
    /// is inside its place, which is other memory.
    pub(super) fn kept(
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
            // The key guarantees the length of the chunk.
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
            // SAFETY: the round was checked: the chunk is inside the slot.
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
        // SAFETY: the round was checked: all pieces are inside the slot, which belongs to this
        // lane, and no two of them overlap.
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

    /// Encodes chunks from the slot and passes them to the sink.
    pub(super) fn chunk_writes(&mut self, round: &CheckedRound) -> Result<(), StorageError> {
        round.chunk_writes.iter().try_for_each(|chunk| self.chunk_write(chunk))
    }

    fn chunk_write(&mut self, chunk: &ChunkWrite) -> Result<(), StorageError> {
        let job = self.shared.job;
        let sink = job.sink.ok_or_else(|| StorageError::BadJob("chunks without a sink".into()))?;
        // SAFETY: the round was checked: the chunk is inside the slot, which belongs to this lane.
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

    /// Returns the coder of this lane, with contexts in its memory.
    fn coder(&mut self, pipeline: &'a Pipeline) -> Result<&mut Coder<'a>, StorageError> {
        if self.coder.is_none() {
            let Room { contexts, context_bytes, .. } = self.room;
            // SAFETY: this memory belongs to this lane, which passes it to one coder and does not
            // outlive the slots.
            let memory = unsafe { std::slice::from_raw_parts_mut(contexts, context_bytes) };
            let job = self.shared.job;
            let (decodes, encodes) = job.plan.codes();
            let coder = Coder::new(pipeline, memory, decodes, encodes)?.counting(job.arena);
            self.coder = Some(coder);
        }
        self.coder.as_mut().ok_or_else(|| StorageError::BadJob("no coder".into()))
    }
}

/// Returns whether two pieces (first byte, bytes) have a byte in common.
fn meet(a: (i64, i64), b: (i64, i64)) -> bool {
    a.1 > 0 && b.1 > 0 && a.0 < b.0 + b.1 && b.0 < a.0 + a.1
}

fn damaged(codec: &'static str, why: String) -> StorageError {
    let chunk = Vec::new();
    StorageError::Codec(CodecFailure { codec, why, path: PathBuf::new(), offset: None, chunk })
}

/// Adds file, position and chunk to the error of a codec.
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
