//! Conversion of `Hints` for the core: once, when an array is opened.

use std::sync::Arc;

use outcore_access::{Cache, Hints};
use outcore_plan::Method;
use pyo3::prelude::*;

/// Reads the attributes of a `Hints`, checked by `hints.py`.
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
        assumed: false,
        threads: hints.getattr("threads")?.extract()?,
        exclusive: hints.getattr("exclusive")?.extract()?,
        sync: hints.getattr("sync")?.extract()?,
        missing_is_error: text("missing")? == "error",
        concurrent_writers: Arc::default(),
    })
}
