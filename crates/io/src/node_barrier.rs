//! A barrier in shared memory for the ranks of one node, with a mailbox for each rank.
//!
//! Problem. A barrier of an MPI library spins. With more ranks than cores, spinning ranks occupy
//! the cores that the other ranks need, and one barrier costs milliseconds.
//!
//! Idea. All ranks of a node map a small piece of memory. Each rank writes its message into its own
//! cell, and arrives; the last rank to arrive increments the generation and wakes the ranks that
//! sleep on it (a futex). Then all ranks read all cells. Each rank has two cells, for even and odd
//! steps: when a rank writes the cell of step `k + 2`, all ranks have arrived at `k + 1`, and so
//! have read step `k`. One barrier for each step is enough.
//!
//! Stopping. A rank that has waited too long writes a text and sets a bit of the generation word,
//! by the same compare-and-swap that the last rank to arrive uses. So a step is either complete for
//! all or stopped for all, and a stopped node barrier stays stopped.
//!
//! Invariants. The generation cannot change before this rank has arrived, so the value that it read
//! before is the one to wait for. Ranks make the same steps in the same order; the head of each
//! cell identifies the call, so all ranks see a difference. No length that another rank wrote is
//! trusted.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::{cpu, futex};

const MAGIC: u64 = 0x6f75_7463_6f72_6531;
const LINE: usize = 64;
/// Bit of the generation word for a node barrier that is stopped for ever.
const STOPPED: u32 = 1 << 31;

// Words that ranks wait for or count in have separate cache lines.
const AT_MAGIC: usize = 0;
const AT_RANKS: usize = 8;
const AT_CELL: usize = 16;
const AT_RESULT: usize = 24;
const AT_GENERATION: usize = LINE;
const AT_ARRIVED: usize = 2 * LINE;
const AT_SLEEPERS: usize = 3 * LINE;
const AT_CLAIM: usize = 4 * LINE;
const AT_TEXT_LEN: usize = 4 * LINE + 8;
const AT_NOTE: usize = 5 * LINE;
const AT_TEXT: usize = AT_NOTE + NOTE_WORDS * 8;
const AT_RANK_AREAS: usize = AT_TEXT + TEXT;

// Offsets within the area of one rank.
const OF_SEEN: usize = 0;
const OF_CALL: usize = 8;
const OF_PID: usize = 16;
const OF_LEFT: usize = 20;
const OF_CELLS: usize = LINE;

/// Words in the note of the first rank for the others.
pub const NOTE_WORDS: usize = 16;
/// Bytes in the text of a stopped node barrier.
pub const TEXT: usize = 2048;
/// Bytes at the head of a cell: the call, the bytes in this step, the total bytes.
pub const HEAD: usize = 16;

/// Longest time to spin, and only if every rank has a core.
const SPIN: Duration = Duration::from_micros(5);
/// Longest wait for a word that another process is writing; the write takes microseconds.
const PATIENCE: Duration = Duration::from_secs(1);

/// Sizes of a node barrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Ranks that synchronise here.
    pub ranks: usize,
    /// Largest message of a rank in one step, bytes.
    pub cell: usize,
    /// Largest result that the first rank can publish, bytes.
    pub result: usize,
}

impl Shape {
    fn area(&self) -> Option<usize> {
        let cell = self.cell.checked_add(HEAD)?.checked_next_multiple_of(LINE)?;
        cell.checked_mul(2)?.checked_add(OF_CELLS)
    }

    fn result_at(&self) -> Option<usize> {
        self.area()?.checked_mul(self.ranks)?.checked_add(AT_RANK_AREAS)
    }

    /// Returns the memory that a node barrier of these sizes needs, bytes.
    pub fn bytes(&self) -> Option<usize> {
        self.result_at()?.checked_add(8)?.checked_add(self.result)
    }
}

/// Outcome of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// All ranks have arrived.
    Done,
    /// Some ranks have not arrived yet.
    NotYet,
    /// The node barrier was stopped before all ranks had arrived.
    Stopped,
}

/// A step that this rank has arrived at.
#[derive(Debug, Clone, Copy)]
pub struct Ticket {
    generation: u32,
    step: u64,
}

/// Error of a stopped node barrier; [`NodeBarrier::text`] returns the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped;

/// State of a rank, as the others see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// Steps it has arrived at.
    pub steps: u64,
    /// The call of the last of them.
    pub call: u32,
    /// Process id; 0 before it has attached.
    pub pid: u32,
    /// Set if the rank has left for good.
    pub left: bool,
}

/// One rank's handle of a node barrier.
pub struct NodeBarrier {
    base: *mut u8,
    shape: Shape,
    area: usize,
    result_at: usize,
    rank: usize,
    spins: bool,
    /// Steps that this rank has arrived at.
    steps: AtomicU64,
}

// SAFETY: the memory is shared between ranks in any case: words are atomic, and accesses to cells
// follow the order of steps described at the head of this file.
unsafe impl Send for NodeBarrier {}
// SAFETY: as above.
unsafe impl Sync for NodeBarrier {}

impl NodeBarrier {
    /// Attaches rank `rank` to memory that starts as zeros; `None` if the memory holds no node
    /// barrier of this shape.
    ///
    /// `first`: this rank made the memory, and no other rank has attached yet.
    ///
    /// # Safety
    /// `base` is valid for reads and writes of `len` bytes and aligned to 8 bytes as long as the
    /// handle lives, and all concurrent users access the memory as a `NodeBarrier`, each with its
    /// own rank.
    pub unsafe fn attach(
        base: *mut u8,
        len: usize,
        rank: usize,
        shape: Shape,
        first: bool,
    ) -> Option<NodeBarrier> {
        let (area, result_at) = (shape.area()?, shape.result_at()?);
        if shape.bytes()? > len || rank >= shape.ranks || !(base as usize).is_multiple_of(8) {
            return None;
        }
        let spins = shape.ranks < cpu::cores();
        let steps = AtomicU64::new(0);
        let node_barrier = NodeBarrier { base, shape, area, result_at, rank, spins, steps };
        let words = [
            (AT_RANKS, shape.ranks as u64),
            (AT_CELL, shape.cell as u64),
            (AT_RESULT, shape.result as u64),
            (AT_MAGIC, MAGIC),
        ];
        for (at, value) in words {
            if first {
                node_barrier.long(at).store(value, Ordering::SeqCst);
            } else if node_barrier.long(at).load(Ordering::SeqCst) != value {
                return None;
            }
        }
        node_barrier
            .word(node_barrier.of(rank) + OF_PID)
            .store(std::process::id(), Ordering::SeqCst);
        Some(node_barrier)
    }

    fn of(&self, rank: usize) -> usize {
        AT_RANK_AREAS + rank * self.area
    }

    fn cell(&self, rank: usize, step: u64) -> usize {
        self.of(rank) + OF_CELLS + (step as usize & 1) * (self.area - OF_CELLS) / 2
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        debug_assert!(at.is_multiple_of(4));
        // SAFETY: every offset in use is below `shape.bytes()`, which fits the memory, and a
        // multiple of 4; the base is aligned to 8 (`attach`). Words are only used as atomics.
        unsafe { &*self.base.add(at).cast::<AtomicU32>() }
    }

    fn long(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at.is_multiple_of(8));
        // SAFETY: as in `word`, with multiples of 8.
        unsafe { &*self.base.add(at).cast::<AtomicU64>() }
    }

    fn put(&self, at: usize, bytes: &[u8]) {
        // SAFETY: callers stay inside a cell, the text or the result area, all inside the memory;
        // by the order of steps no other rank reads or writes there now. A slice of ours cannot
        // overlap the node barrier, because there are no slices of it.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.add(at), bytes.len()) }
    }

    fn get(&self, at: usize, bytes: &mut [u8]) {
        // SAFETY: as in `put`; the writer arrived before this rank's wait ended.
        unsafe { std::ptr::copy_nonoverlapping(self.base.add(at), bytes.as_mut_ptr(), bytes.len()) }
    }

    /// Writes `bytes` for the next step and arrives at it; `total` is the size of the whole
    /// message.
    ///
    /// `bytes` is truncated to the size of a cell.
    pub fn arrive(&self, call: u32, total: u64, bytes: &[u8]) -> Result<Ticket, Stopped> {
        let generation = self.word(AT_GENERATION).load(Ordering::Acquire);
        if generation & STOPPED != 0 {
            return Err(Stopped);
        }
        let step = self.steps.fetch_add(1, Ordering::Relaxed);
        let bytes = &bytes[..bytes.len().min(self.shape.cell)];
        let mut head = [0; HEAD];
        head[..4].copy_from_slice(&call.to_le_bytes());
        head[4..8].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
        head[8..].copy_from_slice(&total.to_le_bytes());
        let cell = self.cell(self.rank, step);
        self.put(cell, &head);
        self.put(cell + HEAD, bytes);
        let mine = self.of(self.rank);
        self.word(mine + OF_CALL).store(call, Ordering::Relaxed);
        self.long(mine + OF_SEEN).store(step + 1, Ordering::Release);
        let before = self.word(AT_ARRIVED).fetch_add(1, Ordering::AcqRel);
        if before + 1 == self.shape.ranks as u32 {
            // No rank arrives again before the generation changes.
            self.word(AT_ARRIVED).store(0, Ordering::Relaxed);
            if self.turn(generation, (generation + 1) & !STOPPED) {
                self.wake();
            }
        }
        Ok(Ticket { generation, step })
    }

    /// Replaces the generation, unless another rank did so first.
    fn turn(&self, from: u32, to: u32) -> bool {
        let word = self.word(AT_GENERATION);
        word.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    fn wake(&self) {
        // Sequentially consistent, like the count of sleepers in `wait`: either this rank sees the
        // sleeper, or the kernel shows the sleeper the new generation.
        if self.word(AT_SLEEPERS).load(Ordering::SeqCst) > 0 {
            futex::wake_all(self.word(AT_GENERATION));
        }
    }

    fn state(&self, ticket: &Ticket) -> Wait {
        let now = self.word(AT_GENERATION).load(Ordering::Acquire);
        if now & !STOPPED != ticket.generation {
            Wait::Done
        } else if now & STOPPED != 0 {
            Wait::Stopped
        } else {
            Wait::NotYet
        }
    }

    /// Waits until all ranks have arrived at the step, for at most `patience`.
    pub fn wait(&self, ticket: &Ticket, patience: Duration) -> Wait {
        let state = self.state(ticket);
        if state != Wait::NotYet || patience.is_zero() {
            return state;
        }
        let began = Instant::now();
        while self.spins && began.elapsed() < SPIN.min(patience) {
            std::hint::spin_loop();
            let state = self.state(ticket);
            if state != Wait::NotYet {
                return state;
            }
        }
        loop {
            let left = patience.saturating_sub(began.elapsed());
            if left.is_zero() {
                return Wait::NotYet;
            }
            self.word(AT_SLEEPERS).fetch_add(1, Ordering::SeqCst);
            futex::wait(self.word(AT_GENERATION), ticket.generation, left, began.elapsed());
            self.word(AT_SLEEPERS).fetch_sub(1, Ordering::SeqCst);
            let state = self.state(ticket);
            if state != Wait::NotYet {
                return state;
            }
        }
    }

    /// Copies the heads of all cells of a complete step, one after the other.
    pub fn heads(&self, ticket: &Ticket, out: &mut [u8]) {
        for (rank, head) in out.chunks_exact_mut(HEAD).take(self.shape.ranks).enumerate() {
            self.get(self.cell(rank, ticket.step), head);
        }
    }

    /// Returns the bytes of each rank's message in a complete step, if all made the same call.
    pub fn same(&self, ticket: &Ticket) -> Option<usize> {
        let (mut mine, mut other) = ([0; HEAD], [0; HEAD]);
        self.get(self.cell(self.rank, ticket.step), &mut mine);
        for rank in 0..self.shape.ranks {
            self.get(self.cell(rank, ticket.step), &mut other);
            if mine != other {
                return None;
            }
        }
        let len = u32::from_le_bytes([mine[4], mine[5], mine[6], mine[7]]) as usize;
        Some(len.min(self.shape.cell))
    }

    /// Copies the messages of a complete step, `len` bytes for each rank.
    pub fn rows(&self, ticket: &Ticket, len: usize, out: &mut [u8]) {
        if len == 0 || len > self.shape.cell {
            return;
        }
        for (rank, row) in out.chunks_exact_mut(len).take(self.shape.ranks).enumerate() {
            self.get(self.cell(rank, ticket.step) + HEAD, row);
        }
    }

    /// Publishes `bytes` for all ranks before arriving at a step after which they read them;
    /// returns false if they do not fit.
    ///
    /// Only one rank may do so, and between the last read and this step all ranks must have arrived
    /// at another step.
    pub fn publish(&self, bytes: &[u8]) -> bool {
        if bytes.len() > self.shape.result {
            return false;
        }
        self.put(self.result_at, &(bytes.len() as u64).to_le_bytes());
        self.put(self.result_at + 8, bytes);
        true
    }

    /// Returns the number of published bytes.
    pub fn published(&self) -> usize {
        let mut len = [0; 8];
        self.get(self.result_at, &mut len);
        usize::try_from(u64::from_le_bytes(len)).map_or(0, |len| len.min(self.shape.result))
    }

    /// Copies published bytes; `out` is at most that long.
    pub fn read_published(&self, out: &mut [u8]) {
        let len = out.len().min(self.shape.result);
        self.get(self.result_at + 8, &mut out[..len]);
    }

    /// Stops the node barrier for ever with a text, truncated to [`TEXT`] bytes; returns whether it
    /// is stopped now.
    ///
    /// With a ticket, it is stopped only if that step is not complete.
    pub fn stop(&self, text: &[u8], only: Option<&Ticket>) -> bool {
        let claim = self.word(AT_CLAIM);
        let began = Instant::now();
        while claim.compare_exchange(0, 1, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            // Another process is writing the text; it may have died while writing.
            if self.is_stopped() || began.elapsed() > PATIENCE {
                break;
            }
            std::thread::yield_now();
        }
        if self.is_stopped() {
            return true;
        }
        let text = &text[..text.len().min(TEXT)];
        self.put(AT_TEXT, text);
        self.word(AT_TEXT_LEN).store(text.len() as u32, Ordering::Release);
        loop {
            let now = self.word(AT_GENERATION).load(Ordering::SeqCst);
            if now & STOPPED != 0 {
                return true;
            }
            if only.is_some_and(|ticket| ticket.generation != now) {
                claim.store(0, Ordering::SeqCst);
                return false;
            }
            if self.turn(now, now | STOPPED) {
                self.wake();
                return true;
            }
        }
    }

    /// Returns whether the node barrier is stopped.
    pub fn is_stopped(&self) -> bool {
        self.word(AT_GENERATION).load(Ordering::Acquire) & STOPPED != 0
    }

    /// Returns the text of the process that stopped it.
    pub fn text(&self) -> Vec<u8> {
        let len = self.word(AT_TEXT_LEN).load(Ordering::Acquire) as usize;
        let mut text = vec![0; len.min(TEXT)];
        self.get(AT_TEXT, &mut text);
        text
    }

    /// Returns the state of a rank.
    pub fn seen(&self, rank: usize) -> Seen {
        let at = self.of(rank.min(self.shape.ranks - 1));
        Seen {
            steps: self.long(at + OF_SEEN).load(Ordering::Acquire),
            call: self.word(at + OF_CALL).load(Ordering::Relaxed),
            pid: self.word(at + OF_PID).load(Ordering::Relaxed),
            left: self.word(at + OF_LEFT).load(Ordering::Acquire) != 0,
        }
    }

    /// Steps that this rank has arrived at.
    pub fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    /// Marks this rank as gone for good.
    pub fn leave(&self) {
        self.word(self.of(self.rank) + OF_LEFT).store(1, Ordering::Release);
    }

    /// Writes a note for the ranks that wait for this one.
    pub fn set_note(&self, words: &[u64; NOTE_WORDS]) {
        for (k, word) in words.iter().enumerate() {
            self.long(AT_NOTE + 8 * k).store(*word, Ordering::Relaxed);
        }
    }

    /// Returns the note.
    pub fn note(&self) -> [u64; NOTE_WORDS] {
        std::array::from_fn(|k| self.long(AT_NOTE + 8 * k).load(Ordering::Relaxed))
    }

    /// Returns the sizes of this node barrier.
    pub fn shape(&self) -> Shape {
        self.shape
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    /// Zeroed memory for a node barrier, aligned to 8 bytes.
    struct Paper(Vec<u64>);

    impl Paper {
        fn new(shape: Shape) -> Paper {
            Paper(vec![0; shape.bytes().unwrap().div_ceil(8)])
        }

        fn node_barrier(&self, rank: usize, shape: Shape) -> NodeBarrier {
            let (base, len) = (self.0.as_ptr().cast_mut().cast(), self.0.len() * 8);
            // SAFETY: the vector outlives the barriers of a test, and no other code uses it.
            unsafe { NodeBarrier::attach(base, len, rank, shape, rank == 0).unwrap() }
        }
    }

    fn on_all<T: Send>(ranks: usize, work: impl Fn(NodeBarrier) -> T + Sync) -> Vec<T> {
        let shape = Shape { ranks, cell: 40, result: 64 };
        let paper = Paper::new(shape);
        let barriers: Vec<NodeBarrier> =
            (0..ranks).map(|rank| paper.node_barrier(rank, shape)).collect();
        let work = &work;
        std::thread::scope(|scope| {
            let made: Vec<_> = barriers
                .into_iter()
                .map(|node_barrier| {
                    std::thread::Builder::new().spawn_scoped(scope, move || work(node_barrier))
                })
                .collect();
            made.into_iter().map(|thread| thread.unwrap().join().unwrap()).collect()
        })
    }

    #[test]
    fn every_rank_reads_what_all_said_in_this_step() {
        for ranks in [1, 2, 3, 8] {
            on_all(ranks, |node_barrier| {
                for step in 0..500_u64 {
                    let said = (step * 1000 + node_barrier.rank as u64).to_le_bytes();
                    let ticket = node_barrier.arrive(7, 8, &said).unwrap();
                    assert_eq!(Wait::Done, node_barrier.wait(&ticket, LONG));
                    assert_eq!(Some(8), node_barrier.same(&ticket));
                    let mut rows = vec![0; 8 * ranks];
                    node_barrier.rows(&ticket, 8, &mut rows);
                    for (rank, row) in rows.chunks(8).enumerate() {
                        let read = u64::from_le_bytes(row.try_into().unwrap());
                        assert_eq!(step * 1000 + rank as u64, read);
                    }
                }
            });
        }
    }

    #[test]
    fn what_the_first_publishes_reaches_all() {
        on_all(4, |node_barrier| {
            for step in 0..200_u8 {
                let ticket = node_barrier.arrive(1, 0, &[]).unwrap();
                node_barrier.wait(&ticket, LONG);
                if node_barrier.rank == 0 {
                    assert!(node_barrier.publish(&vec![step; 1 + usize::from(step % 60)]));
                }
                let ticket = node_barrier.arrive(2, 0, &[]).unwrap();
                node_barrier.wait(&ticket, LONG);
                let mut read = vec![0; node_barrier.published()];
                node_barrier.read_published(&mut read);
                assert_eq!(vec![step; 1 + usize::from(step % 60)], read);
            }
        });
    }

    #[test]
    fn different_calls_are_seen_by_all() {
        let seen = on_all(3, |node_barrier| {
            let ticket =
                node_barrier.arrive(if node_barrier.rank == 1 { 5 } else { 4 }, 0, &[]).unwrap();
            node_barrier.wait(&ticket, LONG);
            let mut heads = vec![0; 3 * HEAD];
            node_barrier.heads(&ticket, &mut heads);
            (node_barrier.same(&ticket), heads.chunks(HEAD).map(|h| h[0]).collect::<Vec<_>>())
        });
        assert_eq!(vec![(None, vec![4, 5, 4]); 3], seen);
    }

    #[test]
    fn a_stopped_barrier_lets_everybody_go_and_keeps_its_text() {
        let ends = on_all(3, |node_barrier| {
            if node_barrier.rank == 2 {
                // This rank comes late: the others have stopped waiting.
                while !node_barrier.is_stopped() {
                    std::thread::yield_now();
                }
                return (node_barrier.arrive(1, 0, &[]).err(), node_barrier.text());
            }
            let ticket = node_barrier.arrive(1, 0, &[]).unwrap();
            if node_barrier.rank == 0 {
                assert_eq!(Wait::NotYet, node_barrier.wait(&ticket, Duration::from_millis(5)));
                assert!(node_barrier.stop(b"rank 2 is late", Some(&ticket)));
            }
            assert_eq!(Wait::Stopped, node_barrier.wait(&ticket, LONG));
            (Some(Stopped), node_barrier.text())
        });
        assert_eq!(vec![(Some(Stopped), b"rank 2 is late".to_vec()); 3], ends);
    }

    #[test]
    fn a_step_that_is_complete_is_not_stopped() {
        let shape = Shape { ranks: 2, cell: 8, result: 0 };
        let paper = Paper::new(shape);
        let (a, b) = (paper.node_barrier(0, shape), paper.node_barrier(1, shape));
        let first = a.arrive(1, 0, &[]).unwrap();
        assert_eq!((1, 0), (a.seen(0).steps, a.seen(1).steps));
        b.arrive(1, 0, &[]).unwrap();
        assert!(!a.stop(b"too late", Some(&first)));
        assert_eq!(Wait::Done, a.wait(&first, Duration::ZERO));
        assert!(a.arrive(1, 0, &[]).is_ok());
        // A stop without a ticket always succeeds.
        assert!(b.stop(b"over", None));
        assert_eq!(Wait::Done, a.wait(&first, Duration::ZERO));
        assert_eq!(Some(Stopped), b.arrive(1, 0, &[]).err());
    }

    #[test]
    fn memory_that_is_no_barrier_of_this_shape_is_refused() {
        let shape = Shape { ranks: 2, cell: 8, result: 0 };
        let paper = Paper::new(shape);
        let base: *mut u8 = paper.0.as_ptr().cast_mut().cast();
        let len = shape.bytes().unwrap();
        // SAFETY: the vector is longer than `len`, and no other code uses it.
        let attach = |len, rank, shape, first| unsafe {
            NodeBarrier::attach(base, len, rank, shape, first).is_some()
        };
        assert!(!attach(len, 1, shape, false)); // not initialised yet
        assert!(!attach(len - 1, 0, shape, true));
        assert!(!attach(len, 2, shape, true));
        assert!(attach(len, 0, shape, true));
        assert!(attach(len, 1, shape, false));
        assert!(!attach(len, 1, Shape { cell: 7, ..shape }, false));
        assert_eq!(None, Shape { ranks: usize::MAX, cell: 8, result: 0 }.bytes());
    }
}
