//! `outcore bench`: measuring a disk, and the parameters of measured disks that accesses use.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use outcore_io::disks::{self, Figures};
use outcore_io::measure::{self, Disk, Effort, Sample};
use outcore_io::Arena;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::errors::{detached, Fault};

/// Gap, latency, rate and stream of a disk.
type Words = (i64, i64, i64, i64);

/// Pass the parameters of disks to the planner, by device number (`st_dev`): measured ones, and those that an
/// earlier process learned.
#[pyfunction]
#[pyo3(signature = (measured, learned = BTreeMap::new()))]
pub fn set_disks(measured: BTreeMap<u64, Words>, learned: BTreeMap<u64, Words>) {
    let figures = |(gap, latency_ns, device, stream)| Figures { gap, latency_ns, device, stream };
    let learned = learned.into_iter().map(|(device, words)| (device, (figures(words), true)));
    let measured = measured.into_iter().map(|(device, words)| (device, (figures(words), false)));
    disks::set(learned.chain(measured).collect());
}

/// Set whether disks that were not measured are learned while they are read.
#[pyfunction]
pub fn set_learning(learning: bool) {
    disks::set_learning(learning);
}

/// Set whether other ranks read as well from now on, so that nothing is learned; each call is ended by one of
/// the other kind.
#[pyfunction]
pub fn share_disks(shared: bool) {
    disks::share(shared);
}

/// Return what this process has learned of disks: a file there, gap, latency, rate and stream.
#[pyfunction]
pub fn learned_disks() -> Vec<(PathBuf, i64, i64, i64, i64)> {
    let words = |(path, f): (PathBuf, Figures)| (path, f.gap, f.latency_ns, f.device, f.stream);
    disks::learned().into_iter().map(words).collect()
}

/// Measure the disk below `folder` with a file of `file_bytes`, `slice_ms` for each parameter.
#[pyfunction]
pub fn measure_disk<'py>(
    py: Python<'py>,
    folder: PathBuf,
    file_bytes: u64,
    slice_ms: u64,
) -> PyResult<Bound<'py, PyDict>> {
    let cancelled = AtomicBool::new(false);
    let effort = Effort {
        file_bytes,
        slice: Duration::from_millis(slice_ms),
        cancelled: Some(&cancelled),
        ..Effort::default()
    };
    let disk = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("outcore-measure".into());
        let measure = || measure::disk(&folder, &Arena::global(), effort);
        let Ok(work) = thread.spawn_scoped(scope, measure) else {
            // No thread is available: this thread measures, and Ctrl-C is handled afterwards.
            return detached(py, || measure().map_err(Fault::from)).map_err(PyErr::from);
        };
        // Ctrl-C arrives in this thread: check for it while the other thread measures.
        while !work.is_finished() {
            detached(py, || {
                std::thread::sleep(Duration::from_millis(20));
                Ok(())
            })?;
            if let Err(signal) = py.check_signals() {
                cancelled.store(true, Ordering::Relaxed);
                let _ = detached(py, || Ok(work.join().is_ok()));
                return Err(signal);
            }
        }
        detached(py, || match work.join() {
            Ok(result) => result.map_err(Fault::from),
            Err(panic) => std::panic::resume_unwind(panic),
        })
        .map_err(PyErr::from)
    })?;
    describe(py, &disk)
}

fn describe<'py>(py: Python<'py>, disk: &Disk) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    all.set_item("folder", disk.folder.display().to_string())?;
    all.set_item("engine", disk.engine)?;
    all.set_item("fallback", &disk.fallback)?;
    all.set_item("direct", disk.direct)?;
    all.set_item("file_bytes", disk.file_bytes)?;
    let samples = disk.samples.iter().map(|s| sample(py, s)).collect::<PyResult<Vec<_>>>()?;
    all.set_item("samples", PyList::new(py, samples)?)?;
    all.set_item("fresh_write", disk.fresh_write)?;
    all.set_item("buffered_read", disk.buffered_read)?;
    all.set_item("buffered_write", disk.buffered_write)?;
    all.set_item("buffered_write_sync", disk.buffered_write_sync)?;
    let warm = PyDict::new(py);
    warm.set_item("pread", disk.warm.pread)?;
    warm.set_item("pread_large", disk.warm.pread_large)?;
    warm.set_item("mapped", disk.warm.mapped)?;
    warm.set_item("copy", disk.warm.copy)?;
    warm.set_item("call_ns", disk.warm.call_ns)?;
    warm.set_item("touch_ns", disk.warm.touch_ns)?;
    all.set_item("warm", warm)?;
    all.set_item("latency_ns", disk.latency_ns)?;
    all.set_item("device", disk.device)?;
    all.set_item("stream", disk.stream)?;
    all.set_item("write_stream", disk.write_stream)?;
    all.set_item("gap", disk.gap)?;
    Ok(all)
}

fn sample<'py>(py: Python<'py>, sample: &Sample) -> PyResult<Bound<'py, PyDict>> {
    let one = PyDict::new(py);
    one.set_item("request", sample.request)?;
    one.set_item("depth", sample.depth)?;
    one.set_item("write", sample.write)?;
    one.set_item("requests", sample.requests)?;
    one.set_item("elapsed_ns", sample.elapsed_ns)?;
    Ok(one)
}
