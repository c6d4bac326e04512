//! Engines: many reads and writes in flight at once, behind one small trait.
//!
//! Problem: a disk reaches its rate only when many requests wait for it (at depth 64 it serves five
//! times as many 4 KiB requests a second as at depth 1), and the kernel offers several ways to keep
//! them waiting, of which not every one is allowed everywhere.
//!
//! Idea: a [`Session`] takes positioned [`Request`]s and hands back [`Completion`]s in the order in
//! which they end. No cursors, no files, no plans: a descriptor, an offset, memory. The executor is
//! written once against this trait.
//!
//! Invariants, kept by every engine and checked by the one list of tests in `conformance.rs`:
//! 1. a short transfer is continued inside the session until it is whole or the file ends, so a
//!    completed read is smaller than its request only at the end of the file;
//! 2. `EINTR` and `EAGAIN` never reach the caller;
//! 3. dropping a session waits for everything in flight, so that no memory is written after its
//!    owner is gone;
//! 4. an engine belongs to a process: a forked child that asks again gets new threads and rings.
//!
//! | engine | what it is |
//! |---|---|
//! | [`threads`] | `pread` and `pwrite` on up to 64 threads; everywhere |
//! | [`uring`] | io_uring, one ring a thread, depth 128; Linux, where it is permitted |
//! | [`memory`] | files held in RAM, finished at once and in a shuffled order; for tests |
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

/// Which engine the caller prefers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Choice {
    /// io_uring where it works, else threads.
    #[default]
    Auto,
    /// `pread` on threads.
    Threads,
    /// io_uring; threads, with a reason, where it does not work.
    Uring,
}

/// The engine that was chosen.
pub struct Chosen {
    /// The engine.
    pub engine: Arc<dyn Engine>,
    /// Why it is not io_uring; `None` where it is, or where threads were asked for. A text for
    /// `explain`.
    pub fallback: Option<String>,
}

/// Picks an engine: io_uring if the probe says that it works, else threads and the reason.
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
