//! The worker threads of this process.
//!
//! Problem: two cores copy twice as fast as one, but starting threads costs more than a small read,
//! and threads do not survive a fork.
//!
//! Idea: one pool for each process, made at first use and again after a fork, for work that is
//! handed over ([`with_workers`]). [`side_by_side`] runs the same work on the calling thread and on
//! helpers that arrive in time (`worker_pool.rs`). The work takes its pieces from a shared counter,
//! so it ends even if no helper arrives.

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

/// Returns the number of cores that this process may use; cached, because the query takes a dozen
/// system calls.
pub fn cores() -> usize {
    // Not a `OnceLock`: if a fork happens while it is being filled, the child waits for ever.
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

/// Runs `work` on the calling thread, as lane 0, and on helper threads, as lanes `1..lanes`.
///
/// Returns when all lanes that began have returned. A helper may start late or never, so lanes must
/// take work from a shared counter, not by lane number.
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
    /// Runs `work` on a worker; immediately on this thread if there is no worker.
    pub fn spawn(&self, work: impl FnOnce() + Send + 'scope) {
        match self.scope {
            Some(scope) => scope.spawn(move |_| work()),
            None => work(),
        }
    }
}

/// Runs `lead` on the calling thread with workers available; returns when all work is done.
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
            // No lane leaves before all have started, or the time limit has passed.
            side_by_side(3, &|_| {
                ran.fetch_add(1, Ordering::Relaxed);
                for _ in 0..10_000 {
                    if ran.load(Ordering::Relaxed) == 3 {
                        break;
                    }
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
            });
            // SAFETY: ends the child immediately.
            unsafe { libc::_exit(i32::from(ran.into_inner() != 3)) };
        }
        let mut status = -1;
        // SAFETY: waits for the child made above.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(0, status);
    }
}
