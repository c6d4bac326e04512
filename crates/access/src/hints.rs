//! `Hints` as accesses read them.

use std::sync::atomic::AtomicU32;
use std::sync::Arc;

use outcore_io::Arena;
use outcore_plan::Method;

/// The user's hints, checked by who made them.
#[derive(Debug, Clone)]
pub struct Hints {
    /// `auto`, `threads`, `uring`.
    pub engine: String,
    /// A forced method.
    pub method: Option<Method>,
    /// Page cache or not.
    pub cache: Cache,
    /// Bytes of buffer for one operation.
    pub memory: Option<u64>,
    /// These bytes count whether they are free or not: for plans that are not carried out.
    pub assumed: bool,
    /// Threads that copy and decode.
    pub threads: Option<usize>,
    /// Nobody else writes the file.
    pub exclusive: bool,
    /// Every write is made durable before it returns.
    pub sync: bool,
    /// A chunk never written is an error.
    pub missing_is_error: bool,
    /// No hint, but known later: collectives under way in which other ranks of this node write the file.
    pub concurrent_writers: Arc<AtomicU32>,
}

/// Whether large transfers go through the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cache {
    /// By the access.
    Auto,
    /// Through it.
    Keep,
    /// Past it.
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
    /// Bytes of buffer that one operation may hold now.
    pub fn budget(&self) -> u64 {
        let free = Arena::global().available();
        match self.memory {
            Some(hint) if self.assumed => hint,
            Some(hint) => hint.min(free),
            None => free,
        }
    }

    /// The same for a plan that is not carried out: as if so many bytes were free.
    pub fn assuming(&self, memory: u64) -> Hints {
        Hints { memory: Some(memory), assumed: true, ..self.clone() }
    }
}
