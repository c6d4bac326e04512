//! Runs a plan.
//!
//! Problem: the same plan serves cached and cold data, one file and thousands, plain and encoded
//! elements, and each needs another order of work to be fast. In addition, an error or Ctrl-C may
//! come at any time, when requests are in flight into memory that is about to be freed.
//!
//! Idea: two drivers over the same steps. [`side`] runs rounds one after another on each of a few
//! threads, for cases where the processor is the limit (cached data, mappings, codecs). [`deep`]
//! keeps many requests of several rounds in flight through an engine and moves the data of one
//! round while the next ones are being read, for cases where the disk is the limit. The method of
//! the plan decides.
//!
//! Invariants: every round passes [`outcore_plan::check`] before a byte is touched, against the
//! current lengths of the files; the first error is returned, and nothing is in flight any more
//! when [`run`] returns; the [`Report`] counts the work that was done.

mod deep;
mod lane;
pub(crate) mod report;
mod side;
mod times;
mod writeback;

use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};

use outcore_plan::{Direction, Method, Plan};

pub use self::report::Report;
pub use self::times::{nanoseconds, Times};
use self::writeback::Writeback;
use crate::backend::Engine;
pub use crate::chunk_cache::CacheUse;
use crate::codec::Pipeline;
use crate::descriptors;
use crate::error::StorageError;
use crate::files::{FileTable, OpenFile};
use crate::page::PAGE;
use crate::pool::{Arena, Buffer, Reservation};

/// The caller's array: addresses are relative to its element `[0, ..., 0]`.
#[derive(Debug, Clone, Copy)]
pub struct User<'a> {
    /// Element `[0, ..., 0]`.
    origin: *mut u8,
    /// Lowest byte; 0 or less.
    low: i64,
    /// End of the highest byte.
    high: i64,
    memory: PhantomData<&'a [u8]>,
}

// SAFETY: plain addresses; the contract of `User::new` states their valid uses.
#[allow(unsafe_code)]
unsafe impl Send for User<'_> {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for User<'_> {}

impl<'a> User<'a> {
    /// Makes a user array of the bytes `low..high` around `origin`.
    ///
    /// # Safety
    /// For the lifetime `'a` the bytes are valid memory: while a plan reads into them, for reading
    /// and writing, without access by other code; while a plan writes them to files, for reading,
    /// without changes by other code. Two plans that read into the same bytes must not run
    /// concurrently.
    #[allow(unsafe_code)]
    pub unsafe fn new(origin: *mut u8, low: i64, high: i64) -> User<'a> {
        User { origin, low, high, memory: PhantomData }
    }

    /// Makes a user array of all of `memory`, with byte `origin` as the first element.
    pub fn of(memory: &'a mut [u8], origin: usize) -> User<'a> {
        let (low, high) = (-(origin as i64), memory.len() as i64 - origin as i64);
        User { origin: memory.as_mut_ptr().wrapping_add(origin), low, high, memory: PhantomData }
    }

    /// Makes an array without memory, for plans that are never run.
    pub const fn none() -> User<'static> {
        User { origin: std::ptr::null_mut(), low: 0, high: 0, memory: PhantomData }
    }

    /// Returns whether the array has no memory.
    pub fn is_none(&self) -> bool {
        self.origin.is_null()
    }

    /// Pointer to the first element.
    pub(crate) fn origin(&self) -> *mut u8 {
        self.origin
    }

    /// Address of the first element.
    pub fn address(&self) -> i64 {
        self.origin as i64
    }

    /// Lowest byte and end of the highest, relative to the first element.
    pub fn bounds(&self) -> (i64, i64) {
        (self.low, self.high)
    }

    /// Returns the same bytes with the first element moved by `by` bytes.
    #[must_use]
    pub fn shifted(self, by: i64) -> User<'a> {
        if self.is_none() {
            return self;
        }
        let origin = self.origin.wrapping_offset(by as isize);
        User { origin, low: self.low - by, high: self.high - by, ..self }
    }

    /// Restricts the array to the bytes `low..high` around the first element.
    ///
    /// # Errors
    /// `BadJob` if some of them are outside the array.
    pub fn within(self, low: i64, high: i64) -> Result<User<'a>, StorageError> {
        if low < self.low || high > self.high {
            let (all, some) = (self.low..self.high, low..high);
            let text = format!("bytes {some:?} of the caller's array, which has {all:?}");
            return Err(StorageError::BadJob(text));
        }
        Ok(User { low, high, ..self })
    }
}

/// Function that takes an encoded chunk: grid coordinates, filter mask, bytes; called from several
/// threads.
pub type Sink<'a> = dyn Fn(&[i64], u32, &[u8]) -> Result<(), StorageError> + Sync + 'a;

/// Inputs of [`run`].
pub struct Job<'a> {
    /// Plan to run.
    pub plan: &'a Plan,
    /// Direction; determines which memory is written.
    pub direction: Direction,
    /// Files, by their number in the plan.
    pub files: &'a FileTable,
    /// The caller's array.
    pub user: User<'a>,
    /// One element of the fill value; may be empty if the plan does not use it.
    pub fill: &'a [u8],
    /// Encoding of chunks; `None` or empty if they are stored unchanged.
    pub pipeline: Option<&'a Pipeline>,
    /// Destination of encoded chunks; required for a plan that writes chunks.
    pub sink: Option<&'a Sink<'a>>,
    /// Engine for data that is not cached.
    pub engine: &'a dyn Engine,
    /// Budget for slots and contexts, and the cache of decoded chunks.
    pub arena: &'a Arena,
    /// Use of that cache by a read.
    pub chunk_cache: CacheUse,
    /// Number of threads, including the calling one.
    pub threads: usize,
    /// Set if the data is known to be in the page cache, so that read-ahead is not needed.
    pub cached: bool,
    /// Set if a flush will follow a write, so that write-back should start immediately.
    pub flushed: bool,
    /// Called from time to time on the calling thread; `true` ends the job with
    /// [`StorageError::Cancelled`].
    pub interrupted: &'a dyn Fn() -> bool,
}

/// Runs the plan to its end, or to the first error; blocks.
///
/// On error, an unspecified part of the caller's array (reading) or of the section in the files
/// (writing) contains new data; other bytes are not changed.
///
/// # Errors
/// `Budget` if the arena cannot hold a single slot, `ShortRead` and `Shrunk` for files that are
/// shorter than the plan requires, `Codec` for damaged chunks, `Cancelled`, and `Io` if a system
/// call fails.
pub fn run(job: &Job) -> Result<Report, StorageError> {
    // The sink takes encoded chunks; their old files are only read.
    let in_place = job.direction == Direction::Write && job.sink.is_none();
    if in_place && !job.files.writable() && !job.files.is_empty() {
        let path = job.files.path(0)?.to_path_buf();
        return Err(StorageError::ReadOnly { path });
    }
    if (job.interrupted)() {
        return Err(StorageError::Cancelled);
    }
    let deep = match job.plan.method() {
        _ if job.plan.fetches() => true,
        Method::Window => job.plan.writes_back() && !job.cached,
        Method::List => true,
        Method::Straight | Method::Mapped | Method::Chunks => false,
    };
    match deep.then(|| drive(job, deep::drive)) {
        // All files of a round in flight are open; a thread that runs a round alone needs one at a
        // time.
        Some(Err(StorageError::Io(failure))) if descriptors::is_shortage(failure.errno) => {
            drive(job, side::drive)
        }
        Some(done) => done,
        None => drive(job, side::drive),
    }
}

fn drive(
    job: &Job,
    driver: impl Fn(&Shared) -> Result<(), StorageError>,
) -> Result<Report, StorageError> {
    let shared = Shared::new(job);
    driver(&shared)?;
    let outcome = shared.outcome.into_inner().unwrap_or_else(PoisonError::into_inner);
    outcome.error.map_or(Ok(outcome.report), Err)
}

/// State shared by all threads of a job.
struct Shared<'a> {
    job: &'a Job<'a>,
    failed: AtomicBool,
    outcome: Mutex<Outcome>,
    /// Held by the lane that makes buffered writes.
    writing: Mutex<()>,
    /// Starts write-back of written data.
    writeback: Mutex<Writeback>,
    /// Lengths of the files, as far as they are known.
    lengths: Vec<AtomicI64>,
    /// Held while a length is queried.
    asking: Mutex<()>,
}

/// Marks an unknown length.
const UNKNOWN: i64 = -1;

#[derive(Default)]
struct Outcome {
    error: Option<StorageError>,
    report: Report,
}

// SAFETY: the only part that is not Sync is `interrupted`, which is called only on the thread of
// `run` (`Shared::poll`, by the drivers' first lanes).
#[allow(unsafe_code)]
unsafe impl Sync for Shared<'_> {}

impl<'a> Shared<'a> {
    fn new(job: &'a Job<'a>) -> Shared<'a> {
        let (failed, outcome) = (AtomicBool::new(false), Mutex::default());
        let (writing, writeback) = (Mutex::default(), Mutex::default());
        let lengths = (0..job.files.len()).map(|_| AtomicI64::new(UNKNOWN)).collect();
        let asking = Mutex::default();
        Shared { job, failed, outcome, writing, writeback, lengths, asking }
    }

    /// Records the first error and stops all lanes.
    fn fail(&self, error: StorageError) {
        self.failed.store(true, Ordering::Release);
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        outcome.error.get_or_insert(error);
    }

    fn failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Returns the length of a file; queries and checks the file once for all lanes.
    fn length(&self, file: u32) -> Result<i64, StorageError> {
        let unknown = || StorageError::BadJob(format!("no file {file}"));
        let known = self.lengths.get(file as usize).ok_or_else(unknown)?;
        let found = known.load(Ordering::Acquire);
        if found != UNKNOWN {
            return Ok(found);
        }
        let _one = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        if known.load(Ordering::Acquire) == UNKNOWN {
            let in_place = self.job.direction == Direction::Write && self.job.sink.is_none();
            known.store(self.job.files.begin(file, in_place)?, Ordering::Release);
        }
        Ok(known.load(Ordering::Acquire))
    }

    /// Checks for an interrupt; only on the thread that called `run`.
    fn poll(&self) {
        if !self.failed() && (self.job.interrupted)() {
            self.fail(StorageError::Cancelled);
        }
    }

    /// Starts write-back of written bytes.
    fn send(&self, file: &OpenFile, offset: i64, len: i64) {
        let mut writeback = self.writeback.lock().unwrap_or_else(PoisonError::into_inner);
        writeback.soon(file, offset, len);
    }

    fn report(&self, part: &Report) {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner).report.add(part);
    }
}

/// One slot and memory for contexts of codecs for each lane, in one piece; memory that libraries
/// allocate is counted in addition.
struct Slots {
    _buffer: Option<Buffer>,
    _libraries: Option<Reservation>,
    first: *mut u8,
    distance: usize,
    /// Distance from a slot to the contexts of its lane, and their bytes.
    contexts: (usize, usize),
    lanes: usize,
}

/// The memory of one lane.
#[derive(Clone, Copy)]
struct Room {
    slot: *mut u8,
    contexts: *mut u8,
    context_bytes: usize,
}

/// Alignment of the memory of a lane: a line of the processor's cache.
const LINE: usize = 64;

// SAFETY: plain addresses into the buffer that is owned here; each lane uses its own slot.
#[allow(unsafe_code)]
unsafe impl Sync for Slots {}

impl Slots {
    /// Allocates slots for at most `lanes` lanes; fewer if the budget does not have room for all
    /// now.
    fn new(job: &Job, lanes: usize) -> Result<Slots, StorageError> {
        let bytes = usize::try_from(job.plan.slot_bytes()).unwrap_or(usize::MAX);
        if bytes == 0 {
            let first = std::ptr::NonNull::<u8>::dangling().as_ptr();
            let (_buffer, _libraries, contexts) = (None, None, (0, 0));
            return Ok(Slots { _buffer, _libraries, first, distance: 0, contexts, lanes });
        }
        // Whole chunks are only copied and coded, so alignment to disk blocks does not matter.
        let block = match job.plan.method() {
            Method::Chunks => LINE,
            _ => usize::try_from(job.plan.block()).unwrap_or(PAGE).max(LINE),
        };
        let slack = if block > PAGE { block } else { 0 };
        let slot = bytes.checked_next_multiple_of(block).unwrap_or(usize::MAX);
        let (decodes, encodes) = job.plan.codes();
        let needs = job.pipeline.map(|pipeline| pipeline.needs(decodes, encodes));
        let needs = needs.unwrap_or_default();
        let distance = slot.saturating_add(needs.own);
        let mut lanes = lanes.max(1);
        loop {
            let all = distance.saturating_mul(lanes).saturating_add(slack);
            let theirs = needs.library.saturating_mul(lanes) as u64;
            let counted = match theirs {
                0 => Ok(None),
                theirs => job.arena.reserve("the codecs' libraries", theirs).map(Some),
            };
            let taken = counted.and_then(|counted| {
                Ok((counted, job.arena.buffer("the buffers of an access", all)?))
            });
            match taken {
                Ok((_libraries, buffer)) => {
                    let start = buffer.as_ptr();
                    let first = start.wrapping_add(start.align_offset(block));
                    let (_buffer, contexts) = (Some(buffer), (slot, needs.own));
                    return Ok(Slots { _buffer, _libraries, first, distance, contexts, lanes });
                }
                Err(StorageError::Budget(_)) if lanes > 1 => lanes /= 2,
                Err(error) => return Err(error),
            }
        }
    }

    fn room(&self, lane: usize) -> Room {
        let slot = self.first.wrapping_add(self.distance * (lane % self.lanes));
        let (at, context_bytes) = self.contexts;
        Room { slot, contexts: slot.wrapping_add(at), context_bytes }
    }
}

#[cfg(test)]
mod chunk_tests;
#[cfg(test)]
mod past_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod timing;
