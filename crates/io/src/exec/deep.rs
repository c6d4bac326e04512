//! Many requests in flight, over several rounds, through an engine.
//!
//! The calling thread owns the session: it submits the reads of as many rounds as there are slots,
//! waits for completions, and passes a round whose reads are complete to a worker, which moves its
//! data while later rounds are being read. For writes the order is reversed: data is moved first,
//! then submitted. A slot is reused when its round is over. If a plan reads pages so that its
//! writes find them in the page cache, these writes are plain calls of the worker, because there is
//! nothing to wait for.
//!
//! Invariants: memory of a slot belongs to the kernel from the submission of a round's reads to
//! their last completion, then to one worker, then to the kernel again for its writes. On every
//! exit, including errors, the session is drained before the slots are freed (it is dropped first).

#![allow(unsafe_code)]

use std::os::fd::AsRawFd;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::Arc;
use std::time::Duration;

use outcore_plan::check::CheckedRound;
use outcore_plan::{Channel, IndexedMove, Method, Plan, Transfer};

use super::lane::{Lane, Piece};
use super::times::{Phase, Times, Watch};
use super::{Report, Shared, Slots};
use crate::backend::{Completion, Request, Session};
use crate::cpu::{with_workers, Workers};
use crate::error::StorageError;
use crate::files::{DirectFd, FileRef};

/// Most requests in flight.
const DEPTH: usize = 128;
/// Bytes in flight: this part of the access, within these bounds.
///
/// A disk serves queued requests in parallel: with all of a small access in flight, all of it ends
/// at the same time, and the copies begin when the disk is idle. It is enough that the disk is
/// never idle (measured: 4 MB in 2.6 ms instead of 3.7, 16 MB in 9.4 instead of 12.6; no case
/// became slower), and more is slower (4.3 GB by requests of 1 MiB: 4 to 16 in flight 1.83 to 1.95
/// s, 32 of them 2.16, 64 of them 2.27).
const PART: i64 = 8;
const LEAST: i64 = 1 << 20;
const MOST: i64 = 16 << 20;
/// Longest wait for the disk while workers move data.
const GLANCE: Duration = Duration::from_micros(100);
/// Smaller moves, in bytes, run on the calling thread: a hand-over takes longer.
const INLINE: i64 = 128 << 10;
/// The same limit when nothing remains to submit, so that the calling thread would only wait.
const INLINE_AT_END: i64 = 2 << 20;

/// A slot with its current round.
struct Stage<'a> {
    /// `None` while a worker has it.
    lane: Option<Lane<'a>>,
    round: Option<CheckedRound>,
    pieces: Vec<(Piece, usize)>,
    files: Vec<FileRef<'a>>,
    /// Descriptors for direct I/O that its transfers use.
    direct: Vec<Arc<DirectFd>>,
    outstanding: usize,
    writing: bool,
    /// Set if the writes of its round are calls of the worker.
    calls: bool,
}

impl Stage<'_> {
    /// Starts write-back of the written data, if a flush follows.
    fn send(&self, shared: &Shared) {
        // One range of one file for each transfer.
        for (number, file) in self.files.iter().enumerate() {
            let own = self.pieces.iter().filter(|(_, index)| *index == number);
            let reach = own.fold((i64::MAX, 0), |(first, end), (piece, _)| {
                (first.min(piece.offset), end.max(piece.needed))
            });
            if reach.0 < reach.1 {
                shared.send(file, reach.0, reach.1 - reach.0);
            }
        }
    }
}

/// Answer of a worker: number of the slot, its lane, its round, and the outcome of the moves.
type Moved<'a> = (usize, Lane<'a>, CheckedRound, Result<(), StorageError>);

pub(super) fn drive(shared: &Shared) -> Result<(), StorageError> {
    let job = shared.job;
    let rounds = job.plan.rounds();
    if rounds == 0 {
        return Ok(());
    }
    let most = usize::try_from(job.plan.lanes()).unwrap_or(1).max(1);
    let slots = Slots::new(job, most.min(usize::try_from(rounds).unwrap_or(usize::MAX)))?;
    with_workers(|workers| {
        let (send, receive) = channel();
        let stages = (0..slots.lanes).map(|number| Stage {
            lane: Some(Lane::new(shared, slots.room(number))),
            round: None,
            pieces: Vec::new(),
            files: Vec::new(),
            direct: Vec::new(),
            outstanding: 0,
            writing: false,
            calls: false,
        });
        let mut driver = Driver {
            session: job.engine.session(depth(job.plan))?,
            stages: stages.collect(),
            next: 0,
            rounds,
            moving: 0,
            waited: Times::default(),
            calls: job.plan.method() != Method::List,
            past: job.plan.past_cache().unwrap_or(0),
            shared,
            send,
            receive,
        };
        let result = driver.run(workers);
        driver.drain();
        shared.report(&Report { times: driver.waited, ..Report::default() });
        for lane in driver.stages.iter().filter_map(|stage| stage.lane.as_ref()) {
            shared.report(&lane.report);
        }
        result
    })
}

/// Returns the number of requests in flight, at least two.
fn depth(plan: &Plan) -> usize {
    let cost = plan.cost();
    let (writes, written) = match plan.method() {
        Method::List => (cost.writes, cost.written_bytes),
        _ => (0, 0),
    };
    let bytes = cost.read_bytes.saturating_add(written);
    let each = bytes / cost.reads.saturating_add(writes).max(1);
    // Data that the disk transfers directly into the caller's array is not copied, so nothing waits
    // for the first part of it.
    let slots = i64::try_from(plan.rounds()).unwrap_or(i64::MAX).saturating_mul(plan.lane_bytes());
    let part = if slots < bytes / 4 { 1 } else { PART };
    let flight = (bytes / part).clamp(LEAST, MOST);
    usize::try_from(flight / each.max(1)).unwrap_or(DEPTH).clamp(2, DEPTH)
}

struct Driver<'a> {
    // Dropped before `stages`, so that nothing is in flight when files are closed.
    session: Box<dyn Session>,
    stages: Vec<Stage<'a>>,
    next: u64,
    rounds: u64,
    moving: usize,
    /// Time of this thread waiting for requests in flight, which lanes do not see.
    waited: Times,
    /// Set if writes are calls of the worker.
    calls: bool,
    /// The first round that bypasses the page cache, if there are others before it.
    past: u64,
    shared: &'a Shared<'a>,
    send: Sender<Moved<'a>>,
    receive: Receiver<Moved<'a>>,
}

impl<'a> Driver<'a> {
    fn run<'scope>(&mut self, workers: &Workers<'_, 'scope>) -> Result<(), StorageError>
    where
        'a: 'scope,
    {
        let mut done = Vec::new();
        loop {
            if !self.shared.failed() {
                self.start_rounds(workers);
            }
            let mut watch = Watch::new();
            self.session.flush()?;
            while let Ok(moved) = self.receive.try_recv() {
                self.moved(moved);
            }
            if self.session.pending() > 0 {
                // A worker that is done frees a slot, and the disk serves many requests in
                // parallel: waiting only for the next completion would let the disk become idle.
                match self.moving {
                    0 => self.session.wait(1, &mut done)?,
                    _ => self.session.wait_for(GLANCE, &mut done)?,
                }
                watch.lap(&mut self.waited, Phase::Io);
                for completion in done.drain(..) {
                    self.completed(completion, workers);
                }
            } else if self.moving > 0 {
                if let Ok(moved) = self.receive.recv() {
                    self.moved(moved);
                }
            } else if self.next >= self.rounds || self.shared.failed() {
                return Ok(());
            }
            self.shared.poll();
        }
    }

    /// Starts a round in every free slot.
    fn start_rounds<'scope>(&mut self, workers: &Workers<'_, 'scope>)
    where
        'a: 'scope,
    {
        for number in 0..self.stages.len() {
            // A round without requests is over immediately: its slot takes the next one.
            while self.next < self.rounds && self.is_free(number) && !self.shared.failed() {
                // Dirty pages must not overlap with concurrent writes that bypass the page cache.
                if self.next == self.past && self.is_busy() {
                    return;
                }
                let k = self.next;
                self.next += 1;
                if let Err(error) = self.start(number, k, workers) {
                    self.shared.fail(error);
                }
            }
        }
    }

    fn is_busy(&self) -> bool {
        self.moving > 0 || (0..self.stages.len()).any(|number| !self.is_free(number))
    }

    fn is_free(&self, number: usize) -> bool {
        let stage = &self.stages[number];
        stage.lane.is_some() && stage.round.is_none() && stage.outstanding == 0
    }

    fn start<'scope>(
        &mut self,
        number: usize,
        k: u64,
        workers: &Workers<'_, 'scope>,
    ) -> Result<(), StorageError>
    where
        'a: 'scope,
    {
        let stage = &mut self.stages[number];
        let Some(lane) = stage.lane.as_mut() else { return Ok(()) };
        lane.begin();
        let round = lane.round(k)?;
        stage.writing = false;
        stage.calls = self.calls || k < self.past;
        let submitted = self.submit(number, &round.reads, false);
        let stage = &mut self.stages[number];
        if let Some(lane) = stage.lane.as_mut() {
            lane.lap(Phase::Io);
        }
        stage.round = Some(round);
        submitted?;
        self.advance(number, workers);
        Ok(())
    }

    /// Submits transfers of a stage.
    fn submit(
        &mut self,
        number: usize,
        transfers: &[Transfer],
        write: bool,
    ) -> Result<(), StorageError> {
        let stage = &mut self.stages[number];
        let Some(lane) = stage.lane.as_mut() else { return Ok(()) };
        stage.pieces.clear();
        stage.files.clear();
        stage.direct.clear();
        for transfer in transfers {
            let file = self.shared.job.files.open(transfer.file)?;
            let direct = if transfer.channel == Channel::Direct { file.direct() } else { None };
            let fd = direct.as_ref().map_or_else(|| file.fd(), |direct| direct.as_raw_fd());
            let index = stage.files.len();
            stage.files.push(file);
            stage.direct.extend(direct);
            let session = &mut self.session;
            let (pieces, outstanding) = (&mut stage.pieces, &mut stage.outstanding);
            let mut bytes = 0;
            let mut requests = 0;
            lane.pieces(transfer, write, &mut |piece| {
                let tag = ((number as u64) << 32) | pieces.len() as u64;
                let Piece { offset, len, memory, .. } = piece;
                pieces.push((piece, index));
                *outstanding += 1;
                requests += 1;
                bytes += len as i64;
                // SAFETY: the round was checked: the piece is in the slot or the caller's array,
                // which live until the session is drained; the file stays open in the stage.
                unsafe {
                    session.submit(Request {
                        tag,
                        fd,
                        offset,
                        len,
                        memory,
                        write,
                        dontcache: false,
                    });
                }
                Ok(())
            })?;
            if write {
                lane.report.writes += requests;
                lane.report.written_bytes += bytes;
            } else {
                lane.report.reads += requests;
                lane.report.read_bytes += bytes;
            }
        }
        Ok(())
    }

    fn completed<'scope>(&mut self, completion: Completion, workers: &Workers<'_, 'scope>)
    where
        'a: 'scope,
    {
        let number = (completion.tag >> 32) as usize;
        let Some(stage) = self.stages.get_mut(number) else { return };
        stage.outstanding -= 1;
        let Some((piece, index)) = stage.pieces.get((completion.tag & 0xffff_ffff) as usize) else {
            return;
        };
        let file = &stage.files[*index];
        match completion.result {
            Err(errno) => {
                let op = if stage.writing { "write" } else { "read" };
                self.shared.fail(file.failed(op, piece.offset, piece.len, errno));
            }
            Ok(got) if stage.writing && got < piece.len => {
                self.shared.fail(file.failed("write", piece.offset, piece.len, libc::EIO));
            }
            Ok(got) if !stage.writing && piece.offset + (got as i64) < piece.needed => {
                let len = (piece.needed - piece.offset) as usize;
                self.shared.fail(file.short(piece.offset, len));
            }
            Ok(_) => {}
        }
        self.advance(number, workers);
    }

    /// Moves a stage with nothing outstanding to its next step.
    fn advance<'scope>(&mut self, number: usize, workers: &Workers<'_, 'scope>)
    where
        'a: 'scope,
    {
        let stage = &mut self.stages[number];
        if stage.outstanding > 0 {
            return;
        }
        if stage.writing || self.shared.failed() {
            if stage.writing && self.shared.job.flushed {
                stage.send(self.shared);
            }
            stage.round = None;
            stage.files.clear();
            return;
        }
        let (Some(round), Some(mut lane)) = (stage.round.take(), stage.lane.take()) else { return };
        let calls = stage.calls;
        let chunks = round.chunk_reads.len() + round.chunk_writes.len();
        let bytes: i64 = round
            .moves
            .iter()
            .map(|m| m.count.iter().product::<i64>().saturating_mul(m.item))
            .sum();
        let listed = round.indexed.iter().map(IndexedMove::touched).fold(0, i64::saturating_add);
        let bytes = bytes.saturating_add(listed);
        let inline = if self.next < self.rounds { INLINE } else { INLINE_AT_END };
        if chunks == 0 && bytes < inline && !calls {
            lane.begin();
            let result = lane.between(&round);
            self.moving += 1;
            self.moved((number, lane, round, result));
            return;
        }
        self.moving += 1;
        let send = self.send.clone();
        workers.spawn(move || {
            // Without an answer the driver would wait for ever.
            let moves = std::panic::AssertUnwindSafe(|| {
                lane.begin();
                lane.between(&round)?;
                if calls {
                    lane.writes(&round)?;
                }
                Ok(())
            });
            let result = std::panic::catch_unwind(moves).unwrap_or_else(|_| {
                Err(StorageError::BadJob("a panic between the reads and writes of a round".into()))
            });
            // The receiver lives until all answers have been received.
            let _ = send.send((number, lane, round, result));
        });
    }

    /// Continues after a round's moves: submits its writes, or frees its slot.
    fn moved(&mut self, (number, lane, round, result): Moved<'a>) {
        self.moving -= 1;
        let stage = &mut self.stages[number];
        stage.lane = Some(lane);
        if let Err(error) = result {
            self.shared.fail(error);
        }
        if round.writes.is_empty() || stage.calls || self.shared.failed() {
            self.stages[number].files.clear();
            return;
        }
        self.stages[number].writing = true;
        if let Err(error) = self.submit(number, &round.writes, true) {
            self.shared.fail(error);
        }
        if self.stages[number].outstanding > 0 {
            self.stages[number].round = Some(round);
        }
    }

    /// Waits for everything in flight, ignoring errors.
    fn drain(&mut self) {
        let mut done = Vec::new();
        while self.session.pending() > 0 && self.session.wait(1, &mut done).is_ok() {
            done.clear();
        }
        while self.moving > 0 {
            match self.receive.recv() {
                Ok((number, lane, _, _)) => self.stages[number].lane = Some(lane),
                Err(_) => break,
            }
            self.moving -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use outcore_plan::{
        Direction, Home, Layout, Method, Part, Range, Request, Section, Strided, Terms,
    };

    use super::{depth, Plan};

    fn cold(rows: i64, row: i64, count: i64) -> Plan {
        planned(rows, row, count, None)
    }

    fn planned(rows: i64, row: i64, count: i64, home: Option<Home>) -> Plan {
        let shape = vec![rows, row];
        let len = rows * row;
        let parts = vec![Part { file: 0, offset: 0, len }];
        let layout = Layout::Strided(Strided { shape, item: 1, strides: vec![row, 1], parts });
        let range = |count| Range { start: 0, count, step: 1 };
        let section = Section::new(vec![range(rows), range(count)]);
        let mut terms = Terms::new(1 << 30);
        (terms.direct, terms.method, terms.home) = (true, Some(Method::List), home);
        let request = Request {
            layout: &layout,
            table: None,
            section: &section,
            user_stride: &[count, 1],
            direction: Direction::Read,
        };
        Plan::new(&request, &terms).unwrap()
    }

    #[test]
    fn large_requests_of_a_small_access_do_not_all_go_at_once() {
        let plan = cold(4096, 1024, 1024);
        assert!(plan.rounds() > 2);
        assert_eq!(2, depth(&plan));
        // Each round has a slot, so none waits until another one is empty.
        assert!(plan.lanes() as u64 >= plan.rounds());
    }

    #[test]
    fn what_ends_in_the_callers_memory_is_all_in_flight() {
        let home = Some(Home { at: 0, page: 4096 });
        // Eight mebibytes, in requests of at most one.
        assert!(depth(&planned(2048, 4096, 4096, home)) >= 8);
        assert_eq!(2, depth(&planned(2048, 4096, 4096, None)));
    }

    #[test]
    fn small_requests_fill_the_queue() {
        assert_eq!(super::DEPTH, depth(&cold(4096, 65536, 512)));
    }

    #[test]
    fn a_stream_keeps_the_disk_busy() {
        assert_eq!(16, depth(&cold(1024, 1 << 20, 1 << 20)));
    }
}
