//! The worker threads of this process.
//!
//! Problem: two cores copy twice as fast as one, but starting threads costs more than a small read,
//! and threads do not survive a fork.
//!
//! Idea: one pool a process, made at first use and again after a fork, for work that is handed over
//! ([`with_workers`]). [`side_by_side`] runs the same work on the calling thread and on whoever comes
//! in time (`worker_pool.rs`); the work itself takes its pieces from a shared counter, so that it ends even
//! if nobody ever comes.

use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::process::PerProcess;
use crate::worker_pool;

static POOL: PerProcess<Option<ThreadPool>> = PerProcess::new(|| {
    ThreadPoolBuilder::new()
        .num_threads(cores())
        .thread_name(|k| format!("outcore-cpu-{k}"))
        .build()
        .ok()
});

/// Cores that this process may use. Asked once: the answer takes a dozen system calls.
pub fn cores() -> usize {
    // No `OnceLock`: a fork while it is being filled would leave it so in the child, who waits.
    static CORES: AtomicUsize = AtomicUsize::new(0);
    match CORES.load(Ordering::Relaxed) {
        0 => {
            let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
            CORES.store(cores, Ordering::Relaxed);
            cores
        }
        known => known,
    }
}

/// Runs `work` on the calling thread, as lane 0, and on helping threads, as lanes `1..lanes`. Returns
/// when all that began have returned. A helper may start late or not at all: lanes share work by
/// taking it, not by number.
pub fn side_by_side(lanes: usize, work: &(dyn Fn(usize) + Sync)) {
    if lanes > 1 {
        worker_pool::with_workers(lanes, (cores() - 1).max(lanes - 1), work);
    } else {
        work(0);
    }
}

/// Workers that a job may hand work to.
pub struct Workers<'a, 'scope> {
    scope: Option<&'a rayon::Scope<'scope>>,
}

impl<'scope> Workers<'_, 'scope> {
    /// Runs `work` on a worker, soon; here and now if there is none.
    pub fn spawn(&self, work: impl FnOnce() + Send + 'scope) {
        match self.scope {
            Some(scope) => scope.spawn(move |_| work()),
            None => work(),
        }
    }
}

/// Runs `lead` on the calling thread, with workers at its disposal; returns when all work is done.
pub fn with_workers<'scope, R>(lead: impl FnOnce(&Workers<'_, 'scope>) -> R) -> R {
    match POOL.get() {
        Some(pool) => pool.in_place_scope(|scope| lead(&Workers { scope: Some(scope) })),
        None => lead(&Workers { scope: None }),
    }
}

#[cfg(test)]
#[allow(unsafe_code)]
mod tests {
    use super::*;

    #[test]
    fn all_pieces_are_done_once_whoever_does_them() {
        let (next, sum) = (AtomicUsize::new(0), AtomicUsize::new(0));
        side_by_side(4, &|_| loop {
            let piece = next.fetch_add(1, Ordering::Relaxed);
            if piece >= 1000 {
                break;
            }
            sum.fetch_add(piece, Ordering::Relaxed);
        });
        assert_eq!(499_500, sum.into_inner());
    }

    #[test]
    fn a_forked_child_has_workers() {
        side_by_side(2, &|_| {});
        // SAFETY: the child runs one piece of work and leaves.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let ran = AtomicUsize::new(0);
            // Nobody leaves before all are there, or it took too long.
            side_by_side(3, &|_| {
                ran.fetch_add(1, Ordering::Relaxed);
                for _ in 0..10_000 {
                    if ran.load(Ordering::Relaxed) == 3 {
                        break;
                    }
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
            });
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(ran.into_inner() != 3)) };
        }
        let mut status = -1;
        // SAFETY: waits for the child made above.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(0, status);
    }
}
