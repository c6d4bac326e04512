//! `pread` and `pwrite` on a pool of threads: works everywhere, including where io_uring is
//! forbidden.
//!
//! Idea: one pool for each process, with at most 64 threads. A thread is started when a request
//! finds none idle, and ends after some idle seconds. A session passes at most `depth` requests to
//! the pool at a time and queues the others; a thread runs a request to its end. Only the thread
//! that finishes the last request that a waiter needs wakes it.
//!
//! Cost: one hand-over to a thread for each request, about 5 us; small compared with a disk, large
//! compared with the page cache, so cached data does not use this engine.

#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::progress::{Progress, Step};
use super::request::{Completion, Engine, Request, Session};
use super::sys;
use crate::error::StorageError;
use crate::process::PerProcess;

/// Most threads of a process, for all sessions.
const MOST_THREADS: usize = 64;
/// Idle time after which a thread ends.
const IDLE: Duration = Duration::from_secs(5);
const STACK: usize = 128 << 10;

/// The engine; all sessions of a process share one pool.
pub struct Threads;

impl Engine for Threads {
    fn name(&self) -> &'static str {
        "threads"
    }

    fn session(&self, depth: usize) -> Result<Box<dyn Session>, StorageError> {
        Ok(Box::new(ThreadsSession {
            pool: POOL.get(),
            pid: std::process::id(),
            shared: Arc::default(),
            depth: depth.clamp(1, MOST_THREADS),
            running: 0,
            waiting: VecDeque::new(),
        }))
    }
}

static POOL: PerProcess<Pool> = PerProcess::new(Pool::default);

#[derive(Default)]
struct Pool {
    queue: Mutex<Queue>,
    work: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

struct Job {
    progress: Progress,
    session: Arc<Shared>,
}

impl Job {
    fn run(mut self) {
        let completion = loop {
            // SAFETY: the caller of `submit` guarantees the memory until the completion.
            let result = unsafe { sys::transfer(&self.progress.rest()) };
            if let Step::Finished(completion) = self.progress.advance(result) {
                break completion;
            }
        };
        let mut state = lock(&self.session.state);
        state.done.push(completion);
        let enough = state.done.len() >= state.wanted;
        drop(state);
        if enough {
            self.session.enough.notify_one();
        }
    }
}

/// State shared by a session and the threads that work for it.
#[derive(Default)]
struct Shared {
    state: Mutex<Finished>,
    enough: Condvar,
}

#[derive(Default)]
struct Finished {
    done: Vec<Completion>,
    /// The session sleeps until `done` has this length.
    wanted: usize,
}

/// Locks a mutex. No code panics while it holds a lock; even then the data would be consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// Queues jobs for idle threads, new ones, or, if the system provides no threads, the caller
    /// itself.
    fn start(&'static self, jobs: &mut dyn Iterator<Item = Job>) {
        let mut queue = lock(&self.queue);
        queue.jobs.extend(jobs);
        let lacking = queue.jobs.len().saturating_sub(queue.idle);
        let fresh = lacking.min(MOST_THREADS.saturating_sub(queue.threads));
        queue.threads += fresh;
        let awake = queue.jobs.len().min(queue.idle);
        drop(queue);
        for _ in 0..awake {
            self.work.notify_one();
        }
        for missing in (1..=fresh).rev() {
            let thread = std::thread::Builder::new().name("outcore-io".to_owned());
            if thread.stack_size(STACK).spawn(|| self.work()).is_err() {
                let mut queue = lock(&self.queue);
                queue.threads -= missing;
                if queue.threads == 0 {
                    while let Some(job) = queue.jobs.pop_front() {
                        drop(queue);
                        job.run();
                        queue = lock(&self.queue);
                    }
                }
                return;
            }
        }
    }

    fn work(&self) {
        while let Some(job) = self.next() {
            job.run();
        }
    }

    /// Returns the next job; `None` when the thread was idle too long and ends.
    fn next(&self) -> Option<Job> {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                return Some(job);
            }
            queue.idle += 1;
            let (guard, timeout) =
                self.work.wait_timeout(queue, IDLE).unwrap_or_else(PoisonError::into_inner);
            queue = guard;
            queue.idle -= 1;
            if timeout.timed_out() && queue.jobs.is_empty() {
                queue.threads -= 1;
                return None;
            }
        }
    }
}

struct ThreadsSession {
    pool: &'static Pool,
    pid: u32,
    shared: Arc<Shared>,
    depth: usize,
    /// Requests in the pool.
    running: usize,
    waiting: VecDeque<Progress>,
}

impl Session for ThreadsSession {
    fn room(&self) -> usize {
        self.depth.saturating_sub(self.pending())
    }

    fn pending(&self) -> usize {
        self.running + self.waiting.len()
    }

    unsafe fn submit(&mut self, request: Request) {
        self.waiting.push_back(Progress::new(request));
    }

    fn flush(&mut self) -> Result<(), StorageError> {
        let count = self.waiting.len().min(self.depth - self.running);
        if count == 0 {
            return Ok(());
        }
        self.running += count;
        let shared = &self.shared;
        let mut jobs = self
            .waiting
            .drain(..count)
            .map(|progress| Job { progress, session: Arc::clone(shared) });
        self.pool.start(&mut jobs);
        Ok(())
    }

    fn wait(&mut self, at_least: usize, done: &mut Vec<Completion>) -> Result<(), StorageError> {
        let mut missing = at_least.min(self.pending());
        loop {
            self.flush()?;
            let mut state = lock(&self.shared.state);
            state.wanted = missing.min(self.running);
            while state.done.len() < state.wanted {
                state = self.shared.enough.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            let count = state.done.len();
            done.append(&mut state.done);
            drop(state);
            self.running -= count;
            missing = missing.saturating_sub(count);
            if missing == 0 {
                // The returned completions made room for more.
                return self.flush();
            }
        }
    }

    fn wait_for(
        &mut self,
        limit: Duration,
        done: &mut Vec<Completion>,
    ) -> Result<(), StorageError> {
        self.flush()?;
        let mut state = lock(&self.shared.state);
        state.wanted = self.running.min(1);
        if state.done.len() < state.wanted {
            let waited = self.shared.enough.wait_timeout(state, limit);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        self.running -= state.done.len();
        done.append(&mut state.done);
        drop(state);
        self.flush()
    }
}

impl Drop for ThreadsSession {
    fn drop(&mut self) {
        // In a forked child the threads do not exist, and neither do their transfers.
        if self.pid != crate::process::id() {
            return;
        }
        // Requests that were not started are dropped; only memory in use is waited for.
        self.waiting.clear();
        let mut state = lock(&self.shared.state);
        state.wanted = self.running;
        while state.done.len() < self.running {
            state = self.shared.enough.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
