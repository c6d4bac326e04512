//! `Hints` as the core reads them: once, when an array is opened.

use std::sync::atomic::AtomicU32;
use std::sync::Arc;

use outcore_io::Arena;
use outcore_plan::Method;
use pyo3::prelude::*;

/// The user's hints, checked by `hints.py`.
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

impl Hints {
    /// Reads the attributes of a `Hints`.
    pub fn read(hints: &Bound<'_, PyAny>) -> PyResult<Hints> {
        let text = |name: &str| hints.getattr(name)?.extract::<String>();
        Ok(Hints {
            engine: text("engine")?,
            method: match text("method")?.as_str() {
                "straight" => Some(Method::Straight),
                "window" => Some(Method::Window),
                "mapped" => Some(Method::Mapped),
                "list" => Some(Method::List),
                _ => None,
            },
            cache: match text("cache")?.as_str() {
                "keep" => Cache::Keep,
                "bypass" => Cache::Bypass,
                _ => Cache::Auto,
            },
            memory: hints.getattr("memory")?.extract()?,
            threads: hints.getattr("threads")?.extract()?,
            exclusive: hints.getattr("exclusive")?.extract()?,
            sync: hints.getattr("sync")?.extract()?,
            missing_is_error: text("missing")? == "error",
            concurrent_writers: Arc::default(),
        })
    }

    /// Bytes of buffer that one operation may hold now.
    pub fn budget(&self) -> u64 {
        let free = Arena::global().available();
        self.memory.map_or(free, |hint| hint.min(free))
    }
}
