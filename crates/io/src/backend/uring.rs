//! io_uring: one call submits a batch of requests to the kernel, and one call waits for many.
//!
//! Idea: a session owns a ring while it lives and then returns it to its thread, because making one
//! costs about 50 us, which matters for a small access. Rings are made for one submitting thread
//! with deferred completion work (Linux 6.1), which saves an interrupt for each request, or in a
//! simpler form on older kernels. If a ring cannot be made at run time (limits), the session uses
//! threads: same results, other speed.
//!
//! Invariants:
//! - a ring that is returned to its thread is empty: no entry unsent, none in flight, none unread;
//! - at most [`DEPTH`] requests are in flight, and the completion queue is twice as long: it cannot
//!   overflow;
//! - rings are marked with the process id: a forked child closes inherited ones unused.

#![allow(unsafe_code)]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::time::Duration;

use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{opcode, squeue, types, EnterFlags, IoUring};

use super::progress::{Progress, Step};
use super::request::{Completion, Engine, Request, Session};
use super::sys;
use super::threads::Threads;
use crate::error::StorageError;
use crate::process::PerProcess;

/// Most requests of one session in flight.
pub const DEPTH: usize = 128;
/// Rings that a thread keeps for its next sessions.
const KEPT: usize = 2;

/// The engine; call [`permitted`] first.
pub struct Uring;

impl Engine for Uring {
    fn name(&self) -> &'static str {
        "uring"
    }

    fn session(&self, depth: usize) -> Result<Box<dyn Session>, StorageError> {
        match take_ring() {
            Ok(ring) => Ok(Box::new(UringSession {
                ring: Some(ring),
                pid: std::process::id(),
                depth: depth.clamp(1, DEPTH),
                slots: Vec::new(),
                free: Vec::new(),
                waiting: VecDeque::new(),
                refused: Vec::new(),
                running: 0,
            })),
            // A lack of descriptors or memory for rings must not make a read fail.
            Err(_) => Threads.session(depth),
        }
    }
}

thread_local! {
    /// Process id and the empty rings of this thread.
    static RINGS: RefCell<(u32, Vec<IoUring>)> = const { RefCell::new((0, Vec::new())) };
}

fn take_ring() -> std::io::Result<IoUring> {
    let pid = std::process::id();
    // While the thread ends, the cell no longer exists; then a new ring is made.
    let kept = RINGS.try_with(|cell| {
        let (owner, rings) = &mut *cell.borrow_mut();
        if *owner != pid {
            rings.clear();
            *owner = pid;
        }
        rings.pop()
    });
    match kept {
        Ok(Some(ring)) => Ok(ring),
        _ => make_ring(),
    }
}

fn give_ring_back(ring: IoUring) {
    // A ring is closed if it cannot be kept.
    let _ = RINGS.try_with(|cell| {
        let (owner, rings) = &mut *cell.borrow_mut();
        if *owner == std::process::id() && rings.len() < KEPT {
            rings.push(ring);
        }
    });
}

/// Makes a ring in the best form that this kernel supports.
pub(crate) fn make_ring() -> std::io::Result<IoUring> {
    let entries = DEPTH as u32;
    let cq = 2 * entries;
    let deferred = IoUring::builder()
        .setup_cqsize(cq)
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .build(entries);
    match deferred {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            IoUring::builder().setup_cqsize(cq).build(entries)
        }
        other => other,
    }
}

/// Checks that io_uring works in this process.
///
/// # Errors
/// The reason, as text for `explain`.
pub fn permitted() -> Result<(), String> {
    static ANSWER: PerProcess<Result<(), String>> = PerProcess::new(ask_uring);
    ANSWER.get().clone()
}

fn ask_uring() -> Result<(), String> {
    use io_uring::Probe;
    let ring = make_ring().map_err(|error| why_no_ring(&error))?;
    let mut probe = Probe::new();
    ring.submitter()
        .register_probe(&mut probe)
        .map_err(|error| format!("the abilities of io_uring cannot be queried: {error}"))?;
    if probe.is_supported(opcode::Read::CODE) && probe.is_supported(opcode::Write::CODE) {
        Ok(())
    } else {
        Err("io_uring of this kernel cannot read and write plain buffers (Linux 5.6)".to_owned())
    }
}

fn why_no_ring(error: &std::io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOSYS) => "the kernel has no io_uring, or the container hides it".to_owned(),
        Some(libc::EPERM | libc::EACCES) => {
            let switch = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
            match switch.as_deref().map(str::trim) {
                Ok(level @ ("1" | "2")) => {
                    format!("io_uring is switched off (sysctl kernel.io_uring_disabled = {level})")
                }
                _ => "io_uring is not permitted here (seccomp profile of the container)".to_owned(),
            }
        }
        Some(libc::ENOMEM) => "no locked memory left for an io_uring (raise ulimit -l)".to_owned(),
        Some(libc::EMFILE | libc::ENFILE) => {
            "no descriptor left for an io_uring (raise ulimit -n)".to_owned()
        }
        _ => format!("io_uring cannot be set up: {error}"),
    }
}

struct UringSession {
    /// `None` only while dropping.
    ring: Option<IoUring>,
    pid: u32,
    depth: usize,
    /// Requests in the ring; `user_data` is the index.
    slots: Vec<Progress>,
    free: Vec<u32>,
    waiting: VecDeque<Progress>,
    /// Rejected requests, which the kernel would misinterpret.
    refused: Vec<Completion>,
    /// Entries in the submission queue or in the kernel.
    running: usize,
}

impl UringSession {
    /// Moves waiting requests into the submission queue.
    fn fill(&mut self) {
        let Some(ring) = &mut self.ring else { return };
        let mut queue = ring.submission();
        while self.running < self.depth && !queue.is_full() {
            let Some(progress) = self.waiting.pop_front() else { return };
            let rest = progress.rest();
            let slot = match self.free.pop() {
                Some(slot) => {
                    self.slots[slot as usize] = progress;
                    slot
                }
                None => {
                    self.slots.push(progress);
                    self.slots.len() as u32 - 1
                }
            };
            // SAFETY: by the contract of `submit`, memory and descriptor stay valid until the
            // completion, for which this session waits even when it is dropped.
            let pushed = unsafe { queue.push(&entry(&rest).user_data(u64::from(slot))) };
            debug_assert!(pushed.is_ok(), "the queue was not full");
            self.running += 1;
        }
    }

    /// Processes all entries of the completion queue.
    fn harvest(&mut self, done: &mut Vec<Completion>) {
        done.append(&mut self.refused);
        let Some(ring) = &mut self.ring else { return };
        for event in ring.completion() {
            let slot = event.user_data() as usize;
            let result = match event.result() {
                // No code cancels requests: the kernel could not start a thread for the request
                // (RLIMIT_NPROC), so this thread makes the call.
                result if result == -libc::ECANCELED => {
                    // SAFETY: by the contract of `submit`, memory and descriptor stay valid until
                    // the completion, which has not been returned yet.
                    unsafe { sys::run(self.slots[slot].rest()) }
                }
                result if result < 0 => Err(-result),
                result => Ok(result as usize),
            };
            self.running -= 1;
            self.free.push(slot as u32);
            match self.slots[slot].advance(result) {
                Step::Finished(completion) => done.push(completion),
                // Before the others: the caller has been waiting for it longest.
                Step::Again => self.waiting.push_front(self.slots[slot]),
            }
        }
    }

    /// Enters the kernel once: submits the queue, and waits for `want` completions, but not longer
    /// than `limit`.
    fn enter(&mut self, want: usize, limit: Option<Duration>) -> Result<(), StorageError> {
        let Some(ring) = &mut self.ring else { return Ok(()) };
        let mut pause = Duration::from_micros(50);
        // Since Linux 5.11.
        let limit = limit.filter(|_| ring.params().is_feature_ext_arg()).map(Timespec::from);
        loop {
            let entered = match &limit {
                None => ring.submit_and_wait(want),
                Some(limit) => {
                    let limited = SubmitArgs::new().timespec(limit);
                    ring.submitter().submit_with_args(want, &limited)
                }
            };
            let error = match entered {
                Ok(_) => return Ok(()),
                Err(error) => error,
            };
            match error.raw_os_error() {
                Some(libc::ETIME) => return Ok(()),
                // With entries in the completion queue the caller can proceed.
                Some(libc::EINTR) if want == 0 || !ring.completion().is_empty() => return Ok(()),
                Some(libc::EINTR) => {}
                // The kernel lacks memory for requests: those in flight will free some.
                Some(libc::EAGAIN | libc::EBUSY) if pause < Duration::from_secs(2) => {
                    if !ring.completion().is_empty() {
                        return Ok(());
                    }
                    std::thread::sleep(pause);
                    pause *= 2;
                }
                errno => {
                    let errno = errno.unwrap_or(libc::EIO);
                    return Err(StorageError::io("io_uring_enter", "".as_ref(), errno));
                }
            }
        }
    }

    fn unsent(&mut self) -> usize {
        self.ring.as_mut().map_or(0, |ring| ring.submission().len())
    }
}

fn entry(rest: &Request) -> squeue::Entry {
    let (fd, len) = (types::Fd(rest.fd), rest.len as u32);
    let flags = if rest.dontcache { libc::RWF_DONTCACHE } else { 0 };
    if rest.write {
        let write = opcode::Write::new(fd, rest.memory, len);
        write.offset(rest.offset as u64).rw_flags(flags).build()
    } else {
        let read = opcode::Read::new(fd, rest.memory, len);
        read.offset(rest.offset as u64).rw_flags(flags).build()
    }
}

impl Session for UringSession {
    fn room(&self) -> usize {
        self.depth.saturating_sub(self.pending())
    }

    fn pending(&self) -> usize {
        self.running + self.waiting.len() + self.refused.len()
    }

    unsafe fn submit(&mut self, request: Request) {
        // Offset -1 would mean the current file position.
        if request.offset < 0 {
            self.refused.push(Completion { tag: request.tag, result: Err(libc::EINVAL) });
        } else {
            self.waiting.push_back(Progress::new(request));
        }
    }

    fn flush(&mut self) -> Result<(), StorageError> {
        self.fill();
        if self.unsent() > 0 {
            self.enter(0, None)
        } else {
            Ok(())
        }
    }

    fn wait(&mut self, at_least: usize, done: &mut Vec<Completion>) -> Result<(), StorageError> {
        let goal = done.len() + at_least.min(self.pending());
        self.fill();
        if done.len() == goal {
            self.enter(0, None)?;
            self.harvest(done);
        }
        while done.len() < goal {
            // While more are queued, return early to keep the disk busy.
            let most = if self.waiting.is_empty() { self.running } else { self.running / 4 };
            let want = (goal - done.len()).min(most).max(1);
            self.enter(if self.refused.is_empty() { want } else { 0 }, None)?;
            self.harvest(done);
            self.fill();
        }
        // The returned completions made room for more.
        self.flush()
    }

    fn wait_for(
        &mut self,
        limit: Duration,
        done: &mut Vec<Completion>,
    ) -> Result<(), StorageError> {
        self.fill();
        let want = usize::from(self.refused.is_empty() && self.running > 0);
        self.enter(want, Some(limit))?;
        self.harvest(done);
        self.flush()
    }
}

impl Drop for UringSession {
    fn drop(&mut self) {
        if self.pid != crate::process::id() {
            return; // a forked child: the requests belong to its parent
        }
        self.waiting.clear();
        let mut ignored = Vec::new();
        // Submitted requests must end before the memory is released; the others never start.
        let unsent = self.unsent();
        let mut failures = 0;
        while self.running > unsent && failures < PATIENCE {
            let Some(ring) = &mut self.ring else { return };
            let flags = EnterFlags::GETEVENTS.bits();
            // SAFETY: sends nothing, waits for one completion, passes no further argument.
            let entered = unsafe { ring.submitter().enter::<libc::sigset_t>(0, 1, flags, None) };
            self.harvest(&mut ignored);
            // Short transfers are not continued.
            self.waiting.clear();
            // A signal, or a temporary lack of memory in the kernel, does not end the wait.
            let passing = [Some(libc::EINTR), Some(libc::EAGAIN), Some(libc::EBUSY)];
            if entered.is_err_and(|error| !passing.contains(&error.raw_os_error())) {
                failures += 1;
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        // A ring with unsent entries is closed, which forgets them.
        if let Some(ring) = self.ring.take().filter(|_| self.running == 0) {
            give_ring_back(ring);
        }
    }
}

/// Failed calls, a millisecond apart, after which a drop no longer waits: other code has closed the
/// descriptor of the ring, and the kernel has ended the requests.
const PATIENCE: u32 = if cfg!(test) { 20 } else { 5000 };

#[cfg(test)]
mod tests {
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    extern "C" fn nothing(_: libc::c_int) {}

    #[test]
    fn signals_do_not_end_the_wait_of_a_drop() {
        if permitted().is_err() {
            eprintln!("skipped: no io_uring here");
            return;
        }
        let mut ends = [0; 2];
        // SAFETY: two ints are written; they are owned from here on. The handler does nothing.
        let (from, to) = unsafe {
            assert_eq!(0, libc::pipe(ends.as_mut_ptr()));
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = nothing as *const () as usize;
            libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut());
            (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
        };
        let mut memory = [0u8; 8];
        let mut session = Uring.session(2).unwrap();
        let (fd, len, memory) = (from.as_raw_fd(), memory.len(), memory.as_mut_ptr());
        let read = Request { tag: 1, fd, offset: 0, len, memory, write: false, dontcache: false };
        // SAFETY: the memory outlives the session.
        unsafe { session.submit(read) };
        session.flush().unwrap();
        let written = AtomicBool::new(false);
        // SAFETY: returns the id of this thread.
        let here = unsafe { libc::pthread_self() };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..200 {
                    // SAFETY: that thread waits for this one.
                    unsafe { libc::pthread_kill(here, libc::SIGUSR1) };
                    std::thread::sleep(Duration::from_millis(1));
                }
                written.store(true, Ordering::SeqCst);
                // SAFETY: eight bytes of a static.
                assert_eq!(8, unsafe {
                    libc::write(to.as_raw_fd(), b"12345678".as_ptr().cast(), 8)
                });
            });
            drop(session);
            // Before that, the kernel could still have written to the memory.
            assert!(written.load(Ordering::SeqCst));
        });
    }

    #[test]
    fn a_limited_wait_comes_back_without_anything() {
        if permitted().is_err() {
            eprintln!("skipped: no io_uring here");
            return;
        }
        let mut ends = [0; 2];
        // SAFETY: two ints are written; they are owned from here on.
        let (from, to) = unsafe {
            assert_eq!(0, libc::pipe(ends.as_mut_ptr()));
            (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
        };
        let mut memory = [0u8; 8];
        let mut session = Uring.session(2).unwrap();
        let (fd, len, memory) = (from.as_raw_fd(), memory.len(), memory.as_mut_ptr());
        let read = Request { tag: 1, fd, offset: 0, len, memory, write: false, dontcache: false };
        // SAFETY: the memory outlives the session.
        unsafe { session.submit(read) };
        let mut done = Vec::new();
        session.wait_for(Duration::from_millis(1), &mut done).unwrap();
        assert_eq!((0, 1), (done.len(), session.pending()), "nobody has written yet");
        // SAFETY: eight bytes of a static.
        assert_eq!(8, unsafe { libc::write(to.as_raw_fd(), b"12345678".as_ptr().cast(), 8) });
        session.wait_for(Duration::from_secs(60), &mut done).unwrap();
        assert_eq!(vec![Completion { tag: 1, result: Ok(8) }], done);
    }

    /// Forbids one system call for this process, as containers do; for forked children.
    fn forbid(call: libc::c_long) -> bool {
        let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
        let refuse = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
        let mut filter = [
            step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0), // the call's number
            step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, call as u32),
            step(libc::BPF_RET | libc::BPF_K, 0, 0, refuse),
            step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
        ];
        let program = libc::sock_fprog { len: 4, filter: filter.as_mut_ptr() };
        // SAFETY: the program lives until the calls return.
        unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) == 0
        }
    }

    #[test]
    fn where_io_uring_is_forbidden_the_reason_is_given_and_threads_read() {
        use crate::backend::memory;
        let file = memory::file(b"some bytes").unwrap();
        // SAFETY: the child leaves without unwinding.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let mut into = [0u8; 10];
            let (fd, memory, len) = (file.as_raw_fd(), into.as_mut_ptr(), into.len());
            let request =
                Request { tag: 1, fd, offset: 0, len, memory, write: false, dontcache: false };
            let mut done = Vec::new();
            let mut read = || {
                let mut session = Uring.session(4).ok()?;
                // SAFETY: `into` outlives the session.
                unsafe { session.submit(request) };
                session.wait(1, &mut done).ok()
            };
            let status = if !forbid(libc::SYS_io_uring_setup) {
                2
            } else if !ask_uring().is_err_and(|why| why.contains("not permitted")) {
                3
            } else if read().is_none() || done[0].result != Ok(10) || &into != b"some bytes" {
                4
            } else {
                0
            };
            // SAFETY: ends the child here.
            unsafe { libc::_exit(status) };
        }
        let mut status = 0;
        // SAFETY: our own child.
        assert_eq!(child, unsafe { libc::waitpid(child, &mut status, 0) });
        let code = libc::WEXITSTATUS(status);
        if code == 2 {
            eprintln!("this sandbox forbids system call filters: not tested");
        }
        assert!(libc::WIFEXITED(status) && (code == 0 || code == 2), "child ended with {code}");
        if let Err(why) = permitted() {
            assert!(why.contains("io_uring"), "{why}");
        }
    }
}
