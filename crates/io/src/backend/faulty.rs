//! An engine, and a process-wide plan, that fail on purpose and record writes.
//!
//! Problem: a disk is rarely full, failing, slow or without power, but the code that handles these
//! cases must be tested every day.
//!
//! Idea: [`Rule`]s select calls by kind, number, offset or path and give them a [`Fault`]. The same
//! [`Faults`] serve the wrapped engine ([`Faulty`]) and, while armed, the plain calls of
//! [`sys`](super::sys). Every write, sync and change of a name that succeeded goes into a log of
//! [`Op`]s, in order. From the log, [`replay`](super::replay) computes possible states of the disk
//! after a crash at any point.
//!
//! Only with feature `testing`; while nothing is armed, it costs one relaxed load for each call.

#![allow(unsafe_code)]

use std::ops::Range;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::call::regular_len;
use super::hook::{Hook, Kind};
use super::request::{Completion, Engine, Request, Session};
use crate::error::StorageError;

/// Effect on a selected call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Fails with this error number.
    Errno(i32),
    /// Transfers at most this many bytes; the rest needs another call.
    Short(usize),
    /// Behaves as if the file ended after this many bytes.
    End(usize),
    /// Takes longer.
    Delay(Duration),
}

/// Selection among the matching calls, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    Only(u64),
    From(u64),
    Every(u64),
}

/// A fault and the calls that it applies to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    fault: Fault,
    when: When,
    kind: Option<Kind>,
    bytes: Option<Range<i64>>,
    path: Option<String>,
}

impl Rule {
    fn new(when: When, fault: Fault) -> Rule {
        Rule { fault, when, kind: None, bytes: None, path: None }
    }

    /// Selects the matching call with this number, counted from 1.
    pub fn only(number: u64, fault: Fault) -> Rule {
        Rule::new(When::Only(number), fault)
    }

    /// Selects the matching call with this number and all later ones, for example a disk that stays
    /// full.
    pub fn from(number: u64, fault: Fault) -> Rule {
        Rule::new(When::From(number), fault)
    }

    /// Selects every `period`-th matching call.
    pub fn every(period: u64, fault: Fault) -> Rule {
        Rule::new(When::Every(period.max(1)), fault)
    }

    /// Matches only calls of this kind.
    #[must_use]
    pub fn on(self, kind: Kind) -> Rule {
        Rule { kind: Some(kind), ..self }
    }

    /// Matches only transfers that touch these bytes of the file.
    #[must_use]
    pub fn at(self, bytes: Range<i64>) -> Rule {
        Rule { bytes: Some(bytes), ..self }
    }

    /// Matches only files whose path contains this text.
    #[must_use]
    pub fn path(self, part: &str) -> Rule {
        Rule { path: Some(part.to_owned()), ..self }
    }

    fn matches(&self, call: &Call<'_>) -> bool {
        let kind = self.kind.is_none_or(|kind| kind == call.kind);
        let bytes = self.bytes.as_ref().is_none_or(|bytes| {
            call.offset < bytes.end && call.offset.saturating_add(call.len as i64) > bytes.start
        });
        kind && bytes
            && self.path.as_ref().is_none_or(|part| {
                call.path().is_some_and(|path| path.to_string_lossy().contains(part))
            })
    }
}

/// A call before its execution.
struct Call<'a> {
    kind: Kind,
    fd: Option<RawFd>,
    named: Option<&'a Path>,
    offset: i64,
    len: usize,
}

impl Call<'_> {
    fn path(&self) -> Option<PathBuf> {
        self.named.map(Path::to_path_buf).or_else(|| self.fd.and_then(path_of))
    }
}

/// An operation that changed the disk, or made changes durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Bytes were written.
    Write {
        /// Inode number of the file.
        inode: u64,
        /// First byte.
        offset: i64,
        /// Written bytes.
        bytes: Vec<u8>,
    },
    /// The length was set.
    Resize {
        /// Inode number of the file.
        inode: u64,
        /// New length.
        len: i64,
    },
    /// All earlier writes to the file are durable.
    Sync {
        /// Inode number of the file.
        inode: u64,
    },
    /// All earlier changes of names in the folder are durable.
    SyncFolder {
        /// Path of the folder.
        path: PathBuf,
    },
    /// An empty file was created.
    Create {
        /// Its path.
        path: PathBuf,
        /// Its inode number.
        inode: u64,
    },
    /// A file was renamed, perhaps over another file.
    Rename {
        /// Old path.
        from: PathBuf,
        /// New path.
        to: PathBuf,
    },
    /// Two files or folders exchanged names.
    Exchange {
        /// Path of the first.
        from: PathBuf,
        /// Path of the second.
        to: PathBuf,
    },
    /// A name was removed.
    Unlink {
        /// Its path.
        path: PathBuf,
    },
}

/// Rules, the number of matches of each, and the log.
pub struct Faults {
    state: Mutex<State>,
}

struct State {
    rules: Vec<(Rule, u64)>,
    log: Vec<Op>,
}

impl Faults {
    /// Makes a plan with these rules and an empty log.
    pub fn new(rules: impl IntoIterator<Item = Rule>) -> Arc<Faults> {
        let rules = rules.into_iter().map(|rule| (rule, 0)).collect();
        Arc::new(Faults { state: Mutex::new(State { rules, log: Vec::new() }) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the operations so far, oldest first.
    pub fn log(&self) -> Vec<Op> {
        self.state().log.clone()
    }

    fn record(&self, op: Op) {
        self.state().log.push(op);
    }

    /// Decides the effect on a call, and its delay.
    fn decide(&self, call: &Call<'_>) -> (Hook, Duration) {
        let (mut hook, mut delay) = (Hook::Go, Duration::ZERO);
        for (rule, seen) in &mut self.state().rules {
            if !rule.matches(call) {
                continue;
            }
            *seen += 1;
            let hit = match rule.when {
                When::Only(number) => *seen == number,
                When::From(number) => *seen >= number,
                When::Every(period) => (*seen).is_multiple_of(period),
            };
            match rule.fault {
                _ if !hit => {}
                Fault::Delay(time) => delay += time,
                _ if hook != Hook::Go => {}
                Fault::Errno(errno) => hook = Hook::Fail(errno),
                Fault::Short(most) => hook = Hook::Short(most),
                Fault::End(most) => hook = Hook::End(most),
            }
        }
        (hook, delay)
    }

    fn wrote(&self, fd: RawFd, offset: i64, bytes: &[u8]) {
        if let Some(inode) = inode_of(fd) {
            self.record(Op::Write { inode, offset, bytes: bytes.to_vec() });
        }
    }
}

static ARMED: AtomicBool = AtomicBool::new(false);
static PLAN: Mutex<Option<Arc<Faults>>> = Mutex::new(None);

/// Arms a plan until the guard is dropped: the plain calls of this process, and engines chosen by
/// it, obey `faults`.
///
/// Only one plan is armed: arming again replaces it.
pub fn arm(faults: Arc<Faults>) -> Armed {
    *PLAN.lock().unwrap_or_else(PoisonError::into_inner) = Some(faults);
    ARMED.store(true, Ordering::SeqCst);
    Armed(())
}

/// Guard that keeps a plan armed.
#[must_use]
pub struct Armed(());

impl Drop for Armed {
    fn drop(&mut self) {
        ARMED.store(false, Ordering::SeqCst);
        *PLAN.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

fn plan() -> Option<Arc<Faults>> {
    if !ARMED.load(Ordering::Relaxed) {
        return None;
    }
    PLAN.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

pub(super) fn armed() -> bool {
    ARMED.load(Ordering::Relaxed)
}

pub(super) fn wrap_if_armed(engine: Arc<dyn Engine>) -> Arc<dyn Engine> {
    match plan() {
        Some(faults) => Arc::new(Faulty::new(engine, faults)),
        None => engine,
    }
}

fn hook(call: &Call<'_>) -> Hook {
    let Some(faults) = plan() else { return Hook::Go };
    let (hook, delay) = faults.decide(call);
    if !delay.is_zero() {
        std::thread::sleep(delay);
    }
    hook
}

pub(super) fn hook_fd(kind: Kind, fd: RawFd, offset: i64, len: usize) -> Hook {
    hook(&Call { kind, fd: Some(fd), named: None, offset, len })
}

pub(super) fn hook_path(kind: Kind, path: &Path) -> Hook {
    hook(&Call { kind, fd: None, named: Some(path), offset: 0, len: 0 })
}

pub(super) fn wrote(fd: RawFd, offset: i64, bytes: &[u8]) {
    if let Some(faults) = plan() {
        faults.wrote(fd, offset, bytes);
    }
}

pub(super) fn resized(fd: RawFd, len: i64) {
    let Some(faults) = plan() else { return };
    if let Some(inode) = inode_of(fd) {
        faults.record(Op::Resize { inode, len });
    }
}

pub(super) fn synced(fd: RawFd) {
    let Some(faults) = plan() else { return };
    match (regular_len(fd), path_of(fd), inode_of(fd)) {
        (None, Some(path), _) => faults.record(Op::SyncFolder { path }),
        (Some(_), _, Some(inode)) => faults.record(Op::Sync { inode }),
        _ => {}
    }
}

pub(super) fn opened(fd: RawFd, path: &Path, flags: i32, is_new: bool) {
    let Some(faults) = plan() else { return };
    let Some(inode) = inode_of(fd) else { return };
    if is_new {
        faults.record(Op::Create { path: whole(path), inode });
    } else if flags & libc::O_TRUNC != 0 {
        faults.record(Op::Resize { inode, len: 0 });
    }
}

pub(super) fn renamed(from: &Path, to: &Path) {
    if let Some(faults) = plan() {
        faults.record(Op::Rename { from: whole(from), to: whole(to) });
    }
}

pub(super) fn exchanged(from: &Path, to: &Path) {
    if let Some(faults) = plan() {
        faults.record(Op::Exchange { from: whole(from), to: whole(to) });
    }
}

pub(super) fn unlinked(path: &Path) {
    if let Some(faults) = plan() {
        faults.record(Op::Unlink { path: whole(path) });
    }
}

/// Returns the absolute path, resolved through the folder, because the name itself may no longer
/// exist.
fn whole(path: &Path) -> PathBuf {
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let folder = std::fs::canonicalize(folder.unwrap_or(Path::new("."))).unwrap_or_default();
    folder.join(path.file_name().unwrap_or_default())
}

fn path_of(fd: RawFd) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()
}

fn inode_of(fd: RawFd) -> Option<u64> {
    // SAFETY: all zeroes is a valid `stat`.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` is valid for writing.
    (unsafe { libc::fstat(fd, &mut stat) } == 0).then_some(stat.st_ino as u64)
}

/// Wraps an engine.
pub struct Faulty {
    inner: Arc<dyn Engine>,
    faults: Arc<Faults>,
}

impl Faulty {
    /// Wraps `inner` with faults.
    pub fn new(inner: Arc<dyn Engine>, faults: Arc<Faults>) -> Faulty {
        Faulty { inner, faults }
    }
}

impl Engine for Faulty {
    fn name(&self) -> &'static str {
        "faulty"
    }

    fn session(&self, depth: usize) -> Result<Box<dyn Session>, StorageError> {
        Ok(Box::new(FaultySession {
            inner: self.inner.session(depth)?,
            faults: Arc::clone(&self.faults),
            entries: Vec::new(),
            held: Vec::new(),
        }))
    }
}

struct FaultySession {
    inner: Box<dyn Session>,
    faults: Arc<Faults>,
    /// Every request of this session; the inner tag is the index.
    entries: Vec<Entry>,
    /// Completions that are not due yet.
    held: Vec<(Instant, Completion)>,
}

#[derive(Clone, Copy)]
struct Entry {
    request: Request,
    /// Bytes done by a first, shortened part.
    before: usize,
    /// Length of the part in flight.
    part: usize,
    due: Instant,
    continues: bool,
}

impl FaultySession {
    fn start(&mut self, entry: Entry) {
        let tag = self.entries.len() as u64;
        let inner = Request {
            tag,
            offset: entry.request.offset.saturating_add(entry.before as i64),
            memory: entry.request.memory.wrapping_add(entry.before),
            len: entry.part,
            ..entry.request
        };
        self.entries.push(entry);
        // SAFETY: a part of a request for which the submitter made the promise.
        unsafe { self.inner.submit(inner) };
    }

    /// Converts completions of the inner session into those of the caller, as far as they are due.
    fn take(&mut self, finished: &[Completion], done: &mut Vec<Completion>) {
        for completion in finished {
            let entry = self.entries[completion.tag as usize];
            let Request { tag, fd, offset, len, memory, write, .. } = entry.request;
            if let (true, Ok(count)) = (write, completion.result) {
                // SAFETY: the submitter guarantees the memory until its completion.
                let bytes =
                    unsafe { std::slice::from_raw_parts(memory.wrapping_add(entry.before), count) };
                self.faults.wrote(fd, offset.saturating_add(entry.before as i64), bytes);
            }
            let whole = completion.result == Ok(entry.part);
            if entry.continues && whole && entry.before + entry.part < len {
                let before = entry.before + entry.part;
                self.start(Entry { before, part: len - before, continues: false, ..entry });
            } else {
                let result = completion.result.map(|count| count + entry.before);
                self.held.push((entry.due, Completion { tag, result }));
            }
        }
        let now = Instant::now();
        self.held.retain(|(due, completion)| {
            if *due <= now {
                done.push(*completion);
            }
            *due > now
        });
    }
}

impl Session for FaultySession {
    fn room(&self) -> usize {
        self.inner.room().saturating_sub(self.held.len())
    }

    fn pending(&self) -> usize {
        self.inner.pending() + self.held.len()
    }

    unsafe fn submit(&mut self, request: Request) {
        let Request { tag, fd, offset, len, write, .. } = request;
        let kind = if write { Kind::Write } else { Kind::Read };
        let call = Call { kind, fd: Some(fd), named: None, offset, len };
        let (hook, delay) = self.faults.decide(&call);
        let due = Instant::now() + delay;
        let entry = Entry { request, before: 0, part: len, due, continues: false };
        match hook {
            Hook::Go => self.start(entry),
            Hook::Short(most) => {
                self.start(Entry { part: len.min(most.max(1)), continues: true, ..entry });
            }
            Hook::End(most) => self.start(Entry { part: len.min(most), ..entry }),
            Hook::Fail(errno) => self.held.push((due, Completion { tag, result: Err(errno) })),
        }
    }

    fn flush(&mut self) -> Result<(), StorageError> {
        self.inner.flush()
    }

    fn wait(&mut self, at_least: usize, done: &mut Vec<Completion>) -> Result<(), StorageError> {
        let goal = done.len() + at_least.min(self.pending());
        let mut finished = Vec::new();
        loop {
            finished.clear();
            // If a delayed completion is held, the inner session is only polled.
            let want = usize::from(done.len() < goal && self.held.is_empty());
            self.inner.wait(want, &mut finished)?;
            self.take(&finished, done);
            if done.len() >= goal {
                return Ok(());
            }
            if let Some(next) = self.held.iter().map(|(due, _)| *due).min() {
                if finished.is_empty() {
                    let left = next.saturating_duration_since(Instant::now());
                    std::thread::sleep(left.min(Duration::from_millis(1)));
                }
            }
        }
    }
}
