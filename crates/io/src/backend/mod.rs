//! Engines: many reads and writes in flight concurrently, through one small trait.
//!
//! Problem: a disk reaches its rate only when many requests are queued (at depth 64 it serves five
//! times as many 4 KiB requests per second as at depth 1). The kernel offers several ways to queue
//! them, not all of which are allowed everywhere.
//!
//! Idea: a [`Session`] takes positioned [`Request`]s and returns [`Completion`]s in the order in
//! which they end. It has no file positions, files or plans, only a descriptor, an offset and
//! memory. The executor is written once, for this trait.
//!
//! Invariants of every engine, checked by the list of tests in `conformance.rs`:
//! 1. a short transfer is continued inside the session until it is complete or the file ends, so a
//!    completed read is smaller than its request only at the end of the file;
//! 2. `EINTR` and `EAGAIN` never reach the caller;
//! 3. dropping a session waits for everything in flight, so that no memory is written after its
//!    owner is gone;
//! 4. an engine belongs to a process: a forked child that requests a session gets new threads and
//!    rings.
//!
//! | engine | implementation |
//! |---|---|
//! | [`threads`] | `pread` and `pwrite` on up to 64 threads; everywhere |
//! | [`uring`] | io_uring, one ring for each thread, depth 128; Linux, where it is permitted |
//! | [`memory`] | files in memory, finished immediately, in a shuffled order; for tests |
//! | [`faulty`] | wraps another engine, fails on purpose, keeps a log of writes; feature `testing` |

use std::sync::Arc;

pub use request::{Completion, Engine, Request, Session};

mod call;
#[cfg(test)]
mod conformance;
#[cfg(feature = "testing")]
pub mod faulty;
mod hook;
pub mod memory;
mod progress;
#[cfg(feature = "testing")]
pub mod replay;
mod request;
pub mod sys;
pub mod threads;
#[cfg(target_os = "linux")]
pub mod uring;

/// Preferred engine of the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Choice {
    /// io_uring if it works, otherwise threads.
    #[default]
    Auto,
    /// `pread` on threads.
    Threads,
    /// io_uring if it works, otherwise threads, with a reason.
    Uring,
}

/// A chosen engine.
pub struct Chosen {
    /// The engine.
    pub engine: Arc<dyn Engine>,
    /// Reason, for `explain`, why it is not io_uring; `None` if it is, or if threads were
    /// requested.
    pub fallback: Option<String>,
}

/// Chooses an engine: io_uring if the probe succeeds, otherwise threads, with the reason.
///
/// With feature `testing`, and while a fault plan is armed, the engine is wrapped in
/// [`faulty`]'s.
pub fn choose(choice: Choice) -> Chosen {
    let (engine, fallback): (Arc<dyn Engine>, _) = match choice {
        Choice::Threads => (Arc::new(threads::Threads), None),
        Choice::Auto | Choice::Uring => match uring_if_permitted() {
            Ok(engine) => (engine, None),
            Err(why) => (Arc::new(threads::Threads), Some(why)),
        },
    };
    #[cfg(feature = "testing")]
    let engine = faulty::wrap_if_armed(engine);
    Chosen { engine, fallback }
}

#[cfg(target_os = "linux")]
fn uring_if_permitted() -> Result<Arc<dyn Engine>, String> {
    uring::permitted()?;
    Ok(Arc::new(uring::Uring))
}

#[cfg(not(target_os = "linux"))]
fn uring_if_permitted() -> Result<Arc<dyn Engine>, String> {
    Err("io_uring exists on Linux only".to_owned())
}
