//! A plan as numbers, in the fields of `outcore.base.report.Report`.

use outcore_access::survey::Survey;
use outcore_access::{Access, Hints};
use outcore_plan::{Direction, Section};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::open::Open;

/// Returns the fields of a `Report`.
pub fn explain<'py>(
    py: Python<'py>,
    path: &str,
    open: &Open,
    access: &Access,
) -> PyResult<Bound<'py, PyDict>> {
    let survey = open.survey(py, access)?;
    let what = (access.direction, &*section_text(access.section));
    let told = fields(py, open, access.hints, what, survey)?;
    told.set_item("path", path)?;
    Ok(told)
}

/// Returns the fields for a survey.
pub fn fields<'py>(
    py: Python<'py>,
    open: &Open,
    hints: &Hints,
    (direction, section): (Direction, &str),
    survey: Survey,
) -> PyResult<Bound<'py, PyDict>> {
    let chosen = open.engine(hints);
    let cost = survey.cost;
    let fields = PyDict::new(py);
    fields.set_item("path", &open.described.path)?;
    fields.set_item("section", section)?;
    let direction = match direction {
        Direction::Read => "read",
        Direction::Write => "write",
    };
    fields.set_item("direction", direction)?;
    fields.set_item("method", survey.method)?;
    fields.set_item("why", survey.why)?;
    fields.set_item("engine", chosen.engine.name())?;
    fields.set_item("engine_why", chosen.fallback.clone().unwrap_or_default())?;
    for (name, value) in [
        ("reads", cost.reads),
        ("read_bytes", cost.read_bytes),
        ("writes", cost.writes),
        ("written_bytes", cost.written_bytes),
        ("mapped_bytes", cost.mapped_bytes),
        ("useful_bytes", cost.useful_bytes),
        ("decodes", cost.decodes),
        ("encodes", cost.encodes),
        ("rounds", cost.rounds),
        ("peak_bytes", cost.peak_bytes),
        ("cached_chunks", survey.kept),
    ] {
        fields.set_item(name, value)?;
    }
    let (figures, origin) = open.disk();
    fields.set_item("disk", origin.name())?;
    fields.set_item("disk_latency_ns", figures.latency_ns)?;
    fields.set_item("disk_rate", figures.device)?;
    fields.set_item("budget", hints.budget())?;
    fields.set_item(
        "page_cache_fraction",
        survey.cached.map(|permille| f64::from(permille) / 1000.0),
    )?;
    Ok(fields)
}

/// Returns the cost of an access as a few numbers: reads and their bytes, writes and their bytes, bytes
/// through mappings.
pub fn counts(py: Python<'_>, open: &Open, access: &Access) -> PyResult<[i64; 5]> {
    let cost = open.survey(py, access)?.cost;
    Ok([cost.reads, cost.read_bytes, cost.writes, cost.written_bytes, cost.mapped_bytes])
}

/// Returns what was actually done, as the countable fields of a `Report`.
pub fn stats<'py>(py: Python<'py>, open: &Open) -> PyResult<Bound<'py, PyDict>> {
    let done = open.done();
    let fields = PyDict::new(py);
    for (name, value) in [
        ("reads", done.reads),
        ("read_bytes", done.read_bytes),
        ("writes", done.writes),
        ("written_bytes", done.written_bytes),
        ("mapped_bytes", done.mapped_bytes),
        ("mapped_written_bytes", done.mapped_written_bytes),
        ("decodes", done.decodes),
        ("encodes", done.encodes),
        ("rounds", done.rounds),
        ("cached_chunks", done.kept),
    ] {
        fields.set_item(name, value)?;
    }
    Ok(fields)
}

/// Returns the time that it took all threads together, in seconds.
pub fn seconds<'py>(py: Python<'py>, open: &Open) -> PyResult<Bound<'py, PyDict>> {
    let times = open.done().times;
    let fields = PyDict::new(py);
    for (name, nanoseconds) in [
        ("thread_io_seconds", times.io),
        ("thread_decode_seconds", times.decode),
        ("thread_encode_seconds", times.encode),
        ("thread_copy_seconds", times.copy),
        ("thread_plan_seconds", times.plan),
    ] {
        fields.set_item(name, nanoseconds as f64 / 1e9)?;
    }
    Ok(fields)
}

/// Returns `[0:10, 3, ::2]`: the section as it is written in Python.
fn section_text(section: &Section) -> String {
    let items: Vec<String> = section
        .ranges()
        .iter()
        .map(|range| match (range.count, range.step) {
            (1, _) => range.start.to_string(),
            (_, 1) => format!("{}:{}", range.start, range.stop()),
            _ => format!("{}:{}:{}", range.start, range.stop(), range.step),
        })
        .collect();
    format!("[{}]", items.join(", "))
}
