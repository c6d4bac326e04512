//! `Hints` as accesses use them.

use std::sync::atomic::AtomicU32;
use std::sync::Arc;

use outcore_io::Arena;
use outcore_plan::Method;

/// The user's hints, which their constructor has validated.
#[derive(Debug, Clone)]
pub struct Hints {
    /// `auto`, `threads`, `uring`.
    pub engine: String,
    /// A forced method.
    pub method: Option<Method>,
    /// Use of the page cache.
    pub cache: Cache,
    /// Limit of bytes of buffer for one operation.
    pub memory: Option<u64>,
    /// True if these bytes count regardless of free memory: for plans that are not run.
    pub assumed: bool,
    /// Number of threads that copy and decode.
    pub threads: Option<usize>,
    /// True if no other process writes the file.
    pub exclusive: bool,
    /// True if every write is made durable before it returns.
    pub sync: bool,
    /// True if a chunk that was never written is an error.
    pub missing_is_error: bool,
    /// Not a hint, but known later: the number of collectives in progress in which other ranks of this node
    /// write the file.
    pub concurrent_writers: Arc<AtomicU32>,
}

/// Use of the page cache by large transfers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cache {
    /// The access decides.
    Auto,
    /// They go through it.
    Keep,
    /// They bypass it.
    Bypass,
}

impl Default for Hints {
    fn default() -> Hints {
        Hints {
            engine: "auto".to_owned(),
            method: None,
            cache: Cache::Auto,
            memory: None,
            assumed: false,
            threads: None,
            exclusive: false,
            sync: false,
            missing_is_error: false,
            concurrent_writers: Arc::default(),
        }
    }
}

impl Hints {
    /// Returns the bytes of buffer that one operation may hold now.
    pub fn budget(&self) -> u64 {
        let free = Arena::global().available();
        match self.memory {
            Some(hint) if self.assumed => hint,
            Some(hint) => hint.min(free),
            None => free,
        }
    }

    /// Returns the hints for a plan that is not run: as if `memory` bytes were free.
    pub fn assuming(&self, memory: u64) -> Hints {
        Hints { memory: Some(memory), assumed: true, ..self.clone() }
    }
}
