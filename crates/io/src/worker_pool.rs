//! A pool of worker threads; calls do not wait for workers that arrive late.
//!
//! Problem. A copy of a megabyte takes a hundred microseconds; waking a thread takes ten when the
//! machine is idle and milliseconds when it is not. A fork-join that waits for every requested
//! thread makes such a copy slower with two threads than with one.
//!
//! Idea. The caller requests workers, starts to work itself, and closes the call when no work is
//! left to take: it waits for workers that have begun; workers that arrive later find the call
//! closed and return. This is correct for work that is *taken* (from a shared counter), not divided
//! in advance.
//!
//! Invariants. A worker calls `work` only while it is counted as inside an open call, and the
//! caller leaves only when the call is closed and no worker is inside; so the data that `work`
//! borrows outlives its use. A panic in a worker is raised again on the caller's thread.

#![allow(unsafe_code)]

use std::any::Any;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::process::PerProcess;

/// Work for several workers; the argument is the number of the lane.
type Work<'a> = dyn Fn(usize) + Sync + 'a;

static POOL: PerProcess<WorkerPool> = PerProcess::new(WorkerPool::default);

#[derive(Default)]
struct WorkerPool {
    queue: Mutex<Queue>,
    wanted: Condvar,
}

#[derive(Default)]
struct Queue {
    calls: VecDeque<(Arc<Call>, usize)>,
    threads: usize,
    idle: usize,
}

struct Call {
    work: *const Work<'static>,
    state: Mutex<State>,
    left: Condvar,
}

// SAFETY: `work` points to something `Sync`, and is dereferenced only while its worker is counted
// in `inside`, during which the caller keeps it alive.
unsafe impl Send for Call {}
// SAFETY: as above.
unsafe impl Sync for Call {}

struct State {
    open: bool,
    inside: usize,
    panic: Option<Box<dyn Any + Send>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `work(0)` here and, if workers are free in time, `work(1)`, ... `work(lanes - 1)`
/// concurrently.
pub(crate) fn with_workers(lanes: usize, most_threads: usize, work: &Work<'_>) {
    // SAFETY: only the lifetime changes; `Closing` below keeps this function from ending, in any
    // way, before the last use of the pointer.
    let work_pointer =
        unsafe { std::mem::transmute::<*const Work<'_>, *const Work<'static>>(work) };
    let call = Arc::new(Call {
        work: work_pointer,
        state: Mutex::new(State { open: true, inside: 0, panic: None }),
        left: Condvar::new(),
    });
    let pool = POOL.get();
    pool.ask(&call, lanes, most_threads);
    let closing = Closing(pool, &call);
    work(0);
    drop(closing);
    let panic = lock(&call.state).panic.take();
    if let Some(panic) = panic {
        std::panic::resume_unwind(panic);
    }
}

/// Guard that closes a call when dropped, removes it from the queue, and waits for the workers
/// inside.
struct Closing<'a>(&'static WorkerPool, &'a Arc<Call>);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        let Closing(pool, call) = self;
        // If all workers were busy for long, closed calls would accumulate.
        lock(&pool.queue).calls.retain(|(queued, _)| !Arc::ptr_eq(queued, call));
        let mut state = lock(&call.state);
        state.open = false;
        while state.inside > 0 {
            state = call.left.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl WorkerPool {
    /// Queues a call for `lanes - 1` workers; starts threads if there are too few.
    fn ask(&'static self, call: &Arc<Call>, lanes: usize, most_threads: usize) {
        let mut queue = lock(&self.queue);
        for lane in 1..lanes {
            queue.calls.push_back((call.clone(), lane));
        }
        while queue.idle < queue.calls.len() && queue.threads < most_threads {
            let name = format!("outcore-cpu-{}", queue.threads);
            let started = std::thread::Builder::new().name(name).spawn(|| self.serve());
            if started.is_err() {
                break; // fewer workers: the caller does the work
            }
            queue.threads += 1;
            queue.idle += 1;
        }
        drop(queue);
        if lanes == 2 {
            self.wanted.notify_one();
        } else {
            self.wanted.notify_all();
        }
    }

    fn serve(&self) {
        let mut queue = lock(&self.queue);
        loop {
            match queue.calls.pop_front() {
                Some((call, lane)) => {
                    queue.idle -= 1;
                    drop(queue);
                    call.help(lane);
                    drop(call);
                    queue = lock(&self.queue);
                    queue.idle += 1;
                }
                None => queue = self.wanted.wait(queue).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

impl Call {
    /// Takes part, unless the call is closed already.
    fn help(&self, lane: usize) {
        {
            let mut state = lock(&self.state);
            if !state.open {
                return;
            }
            state.inside += 1;
        }
        let worked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            // SAFETY: this worker is counted inside, so the caller waits and keeps the work alive.
            let work = unsafe { &*self.work };
            work(lane);
        }));
        let mut state = lock(&self.state);
        state.inside -= 1;
        if let Err(panic) = worked {
            state.panic.get_or_insert(panic);
        }
        if state.inside == 0 {
            self.left.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn work_that_is_taken_is_done_once_and_only_while_the_call_is_open() {
        for _ in 0..2000 {
            let (next, sum, inside) =
                (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
            with_workers(4, 3, &|_| {
                inside.fetch_add(1, Ordering::SeqCst);
                loop {
                    let piece = next.fetch_add(1, Ordering::Relaxed);
                    if piece >= 100 {
                        break;
                    }
                    sum.fetch_add(piece, Ordering::Relaxed);
                }
                inside.fetch_sub(1, Ordering::SeqCst);
            });
            assert_eq!(0, inside.load(Ordering::SeqCst));
            assert_eq!(4950, sum.load(Ordering::Relaxed));
        }
    }

    #[test]
    fn hands_that_are_busy_elsewhere_are_not_waited_for() {
        std::thread::scope(|scope| {
            // All workers sleep in another call.
            scope.spawn(|| {
                with_workers(4, 3, &|lane| {
                    let long = if lane > 0 { 2000 } else { 150 };
                    std::thread::sleep(Duration::from_millis(long));
                });
            });
            std::thread::sleep(Duration::from_millis(200));
            let start = Instant::now();
            with_workers(2, 3, &|_| {});
            assert!(start.elapsed() < Duration::from_secs(1));
        });
    }

    #[test]
    fn calls_that_nobody_came_to_do_not_pile_up() {
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                with_workers(4, 3, &|_| {
                    while !done.load(Ordering::SeqCst) {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                });
            });
            std::thread::sleep(Duration::from_millis(100));
            for _ in 0..1000 {
                with_workers(2, 3, &|_| {});
            }
            // Other tests may have calls in the queue.
            let queued = lock(&POOL.get().queue).calls.len();
            done.store(true, Ordering::SeqCst);
            assert!(queued < 100, "{queued}");
        });
    }

    #[test]
    fn a_panic_in_a_hand_reaches_the_caller() {
        let met = std::panic::catch_unwind(|| {
            let seen = AtomicUsize::new(0);
            with_workers(2, 3, &|lane| {
                if lane > 0 {
                    seen.store(1, Ordering::SeqCst);
                    panic!("in a worker");
                }
                let start = Instant::now();
                while seen.load(Ordering::SeqCst) == 0 && start.elapsed().as_secs() < 5 {
                    std::thread::yield_now();
                }
            });
        });
        assert!(met.is_err());
    }
}
