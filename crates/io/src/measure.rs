//! Measurement of the disk below a folder: latency and bandwidth by request size and depth.
//!
//! Problem: planners weigh requests against bytes, and the weights differ a hundredfold between
//! disks. Idea: a file of known content in the folder, many short measurements through the same
//! engines, descriptors and buffers that real work uses, and a line fitted through them: a request
//! at depth costs `latency_ns + bytes / device`.
//!
//! Sources of bias, and the remedies:
//! - memory that was free for some time must be fetched from the host first: buffers are touched
//!   before the clock starts, and come from the arena (huge pages), as in real work;
//! - freshly allocated blocks are written twice (data, then the mark that they hold data): the
//!   first pass over the file is measured separately, [`Disk::fresh_write`];
//! - a file system or host caches: random reads are spread over the whole file.
//!
//! Cost: about 10 s, the disk space of the file (1 GiB), 64 MiB of the arena. The file has no name
//! while it is used, so nothing remains, whatever happens.

use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::backend::{self, Engine, Request};
use crate::error::StorageError;
use crate::pool::{Arena, Buffer};
use crate::probe;

mod target;
mod warm;

pub use target::Effort;
use target::{next, per_second, sync, Target, MIB};
pub use warm::Warm;

/// One measurement: equal requests at random positions, a constant number of them in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Bytes of a request.
    pub request: u64,
    /// Requests in flight.
    pub depth: u32,
    /// Set for writes.
    pub write: bool,
    /// Requests completed.
    pub requests: u64,
    /// Time for all of them, nanoseconds.
    pub elapsed_ns: u64,
}

impl Sample {
    /// Time divided by requests: at depth, much less than the latency of one request.
    pub fn ns_per_request(&self) -> u64 {
        self.elapsed_ns / self.requests.max(1)
    }

    /// Bytes per second.
    pub fn rate(&self) -> u64 {
        per_second(self.request.saturating_mul(self.requests), self.elapsed_ns)
    }
}

/// Measured parameters of one disk, and of this machine's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// Measured folder.
    pub folder: PathBuf,
    /// `"uring"` or `"threads"`.
    pub engine: &'static str,
    /// Reason why it is not io_uring.
    pub fallback: Option<String>,
    /// Set if the samples bypassed the page cache. Otherwise the file system does not allow that,
    /// and the samples include the page cache.
    pub direct: bool,
    /// Bytes of the file used for the measurement.
    pub file_bytes: u64,
    /// All measurements, by kind, size and depth.
    pub samples: Vec<Sample>,
    /// First write to reserved space, 1 MiB requests, bytes per second.
    pub fresh_write: u64,
    /// Reading through the page cache from cold, 1 and 2 threads, bytes per second.
    pub buffered_read: [u64; 2],
    /// Writing through the page cache, bytes per second.
    pub buffered_write: u64,
    /// Writing through the page cache, including the final `fsync`, bytes per second.
    pub buffered_write_sync: u64,
    /// Rates of cached data.
    pub warm: Warm,
    /// Cost of one more request at full depth, nanoseconds (fitted).
    pub latency_ns: u64,
    /// Bytes per second of a request beyond that (fitted).
    pub device: u64,
    /// Highest measured read rate, bytes per second.
    pub stream: u64,
    /// Highest measured write rate, bytes per second.
    pub write_stream: u64,
    /// Gaps of fewer bytes are cheaper to read than to skip.
    pub gap: u64,
}

/// Memory for requests in flight.
const MEMORY: usize = 64 << 20;
/// Measures the disk below `folder`.
///
/// # Errors
/// `Io` if the folder cannot be written, or the disk is too full or fails; `Budget` if the arena
/// has less than 16 MiB left; `Cancelled` if the caller cancelled.
pub fn disk(folder: &Path, arena: &Arena, effort: Effort<'_>) -> Result<Disk, StorageError> {
    let chosen = backend::choose(effort.engine);
    let file = Target::create(folder, effort.file_bytes)?;
    // In whole MiB, because the measurements divide it into these.
    let memory = (arena.available() as usize / 2).clamp(16 << 20, MEMORY) & !(MIB as usize - 1);
    let mut buffer = arena.buffer("a measurement", memory)?;
    fill(buffer.as_mut_slice());
    let bench = Bench { engine: &*chosen.engine, file: &file, buffer: &buffer, effort };

    let fresh_write = bench.first_pass()?.rate();
    sync(&file)?;
    let mut samples = Vec::new();
    for (request, depth, write) in plan() {
        samples.push(bench.random(request, depth, write)?);
    }
    sync(&file)?;
    let buffered_read = [warm::cold_read(&file, 1, &effort)?, warm::cold_read(&file, 2, &effort)?];
    let (buffered_write, buffered_write_sync) = warm::write(&file, buffer.as_mut_slice())?;
    let warm = warm::measure(&file, buffer.as_mut_slice(), &effort)?;

    let (latency_ns, device) = fit(&samples);
    let best =
        |write| samples.iter().filter(|s| s.write == write).map(Sample::rate).max().unwrap_or(0);
    Ok(Disk {
        folder: folder.to_path_buf(),
        engine: chosen.engine.name(),
        fallback: chosen.fallback,
        direct: file.direct.is_some(),
        file_bytes: file.bytes,
        fresh_write,
        buffered_read,
        buffered_write,
        buffered_write_sync,
        warm,
        latency_ns,
        device,
        stream: best(false),
        write_stream: best(true).max(fresh_write),
        gap: (u128::from(latency_ns) * u128::from(device) / 1_000_000_000) as u64,
        samples,
    })
}

/// Returns request size, depth and direction of each measurement.
fn plan() -> impl Iterator<Item = (u64, usize, bool)> {
    let latency = [1, 16, 64, 128].map(|depth| (4096, depth, false));
    let sizes = [16 << 10, 64 << 10, 256 << 10, MIB, 4 * MIB];
    let reads = sizes.into_iter().flat_map(|size| [(size, 16, false), (size, 64, false)]);
    let lone = [(64 << 10, 1, false), (MIB, 1, false)];
    let writes = [(4096, 1, true), (4096, 64, true), (64 << 10, 64, true)];
    let large = [(MIB, 1, true), (MIB, 16, true), (4 * MIB, 16, true)];
    latency.into_iter().chain(reads).chain(lone).chain(writes).chain(large)
}

/// Fits a line through the reads at depth 64 (or as many as memory holds), weighted by 1 / time^2,
/// so that every size counts by its relative error.
fn fit(samples: &[Sample]) -> (u64, u64) {
    let deep = samples.iter().filter(|s| !s.write && s.request <= MIB && s.depth >= 32);
    let (mut w, mut wx, mut wy, mut wxx, mut wxy) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for sample in deep {
        let (x, y) = (sample.request as f64, sample.ns_per_request().max(1) as f64);
        let weight = 1.0 / (y * y);
        w += weight;
        wx += weight * x;
        wy += weight * y;
        wxx += weight * x * x;
        wxy += weight * x * y;
    }
    let spread = w * wxx - wx * wx;
    if spread <= 0.0 {
        return (0, 0);
    }
    let slope = ((w * wxy - wx * wy) / spread).max(1e-3);
    let latency = ((wy - slope * wx) / w).max(0.0);
    (latency as u64, (1e9 / slope) as u64)
}

/// Fills memory with incompressible content.
fn fill(bytes: &mut [u8]) {
    let mut state = 1u64;
    for word in bytes.chunks_mut(8) {
        state = next(state);
        word.copy_from_slice(&state.to_le_bytes()[..word.len()]);
    }
}

struct Bench<'a> {
    engine: &'a dyn Engine,
    file: &'a Target,
    buffer: &'a Buffer,
    effort: Effort<'a>,
}

impl Bench<'_> {
    /// Writes every byte of the file once, in order.
    fn first_pass(&self) -> Result<Sample, StorageError> {
        let mut place = 0;
        self.run(MIB, 16, true, || {
            let here = place;
            place += MIB;
            (here < self.file.bytes).then_some(here)
        })
    }

    /// Accesses random positions for one time slice.
    fn random(&self, request: u64, depth: usize, write: bool) -> Result<Sample, StorageError> {
        if self.file.direct.is_none() && !write {
            // Through the page cache, only a read of cold data measures the disk.
            let _ = probe::evict(self.file.cached.as_raw_fd(), 0, 0);
        }
        let (mut state, places) = (0x5eed ^ request, self.file.bytes / request);
        let end = Instant::now() + self.effort.slice;
        self.run(request, depth, write, || {
            state = next(state);
            (Instant::now() < end).then_some(state % places * request)
        })
    }

    /// Keeps `depth` requests in flight until `place` returns `None`.
    #[allow(unsafe_code)]
    fn run(
        &self,
        request: u64,
        depth: usize,
        write: bool,
        mut place: impl FnMut() -> Option<u64>,
    ) -> Result<Sample, StorageError> {
        self.effort.check()?;
        let len = request as usize;
        let depth = depth.min(self.buffer.len() / len).max(1);
        let mut session = self.engine.session(depth)?;
        let mut idle: Vec<u64> = (0..depth as u64).collect();
        let mut done = Vec::new();
        let mut requests = 0;
        let started = Instant::now();
        loop {
            while let Some(slot) = idle.pop() {
                let Some(offset) = place() else { break };
                let memory = self.buffer.as_ptr().wrapping_add(slot as usize * len);
                let (fd, offset) = (self.file.fd(), offset as i64);
                // SAFETY: each slot is a separate part of the buffer, in flight once at a time; the
                // session ends before the buffer.
                unsafe {
                    session.submit(Request {
                        tag: slot,
                        fd,
                        offset,
                        len,
                        memory,
                        write,
                        dontcache: false,
                    });
                }
            }
            if session.pending() == 0 {
                break;
            }
            session.wait(1, &mut done)?;
            for completion in done.drain(..) {
                let op = if write { "write" } else { "read" };
                let count = completion.result.map_err(|errno| {
                    StorageError::io_at(op, &self.file.folder, 0, request as i64, errno)
                })?;
                if count != len {
                    return Err(StorageError::BadJob(format!("{op} of {len} moved {count}")));
                }
                requests += 1;
                idle.push(completion.tag);
            }
            self.effort.check()?;
        }
        let elapsed_ns = started.elapsed().as_nanos() as u64;
        Ok(Sample { request, depth: depth as u32, write, requests, elapsed_ns })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_fit_finds_the_line_that_made_the_samples() {
        let sample = |request: u64| {
            // 9.5 us + size / 2.5 GB/s, 1000 requests.
            let elapsed_ns = 9_500_000 + request * 400;
            Sample { request, depth: 64, write: false, requests: 1000, elapsed_ns }
        };
        let samples = [4096, 16384, 65536, 1 << 18, 1 << 20].map(sample);
        let (latency, device) = fit(&samples);
        assert!((9_450..=9_550).contains(&latency), "{latency}");
        assert!((2_490_000_000..=2_510_000_000).contains(&device), "{device}");
        assert_eq!((0, 0), fit(&samples[..1]));
    }

    #[test]
    fn any_budget_will_do() {
        let folder = std::env::temp_dir().join(format!("outcore-budget-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let slice = Duration::from_millis(1);
        let effort = Effort { file_bytes: 80 << 20, slice, ..Effort::default() };
        // Half of this budget is not a whole number of MiB.
        let result = disk(&folder, &Arena::new(41_000_000), effort).unwrap();
        assert!(result.buffered_write > 0);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_small_measurement_is_complete_and_leaves_nothing_behind() {
        let folder = std::env::temp_dir().join(format!("outcore-measure-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let arena = Arena::new(256 << 20);
        let slice = Duration::from_millis(4);
        let effort = Effort { file_bytes: 32 << 20, slice, ..Effort::default() };
        let result = disk(&folder, &arena, effort).unwrap();
        assert_eq!(32 << 20, result.file_bytes);
        assert_eq!(plan().count(), result.samples.len());
        assert!(result.samples.iter().all(|s| s.requests > 0 && s.elapsed_ns > 0));
        assert!(result.stream > 0 && result.device > 0 && result.fresh_write > 0);
        assert!(result.buffered_read.iter().all(|rate| *rate > 0));
        assert!(result.warm.call_ns > 0 && result.warm.copy[0] > 0);
        assert_eq!(0, std::fs::read_dir(&folder).unwrap().count());
        assert_eq!(0, arena.used());

        let cancelled = AtomicBool::new(true);
        let effort = Effort { cancelled: Some(&cancelled), ..effort };
        assert_eq!(Err(StorageError::Cancelled), disk(&folder, &arena, effort));
        std::fs::remove_dir_all(&folder).unwrap();
        let gone = disk(&folder, &arena, Effort::default()).unwrap_err();
        assert_eq!("not-found", gone.code());
    }
}
