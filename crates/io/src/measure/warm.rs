//! Rates of cached data, and of reads and writes through the page cache.

#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, RawFd};
use std::time::Instant;

use super::target::{self, next, per_second, Effort, Target, MIB};
use crate::backend::sys;
use crate::error::StorageError;
use crate::probe;

/// Rates of data in the page cache, with one and with two threads, in bytes per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Warm {
    /// `pread` of 256 KiB into a buffer that stays in the processor's cache.
    pub pread: [u64; 2],
    /// `pread` of 1 MiB into memory that does not stay in that cache.
    pub pread_large: [u64; 2],
    /// Copy out of a mapping whose pages were touched before, 256 KiB at a time into a small
    /// buffer.
    pub mapped: [u64; 2],
    /// Copy between large buffers.
    pub copy: [u64; 2],
    /// One `pread` of 8 bytes, nanoseconds.
    pub call_ns: u64,
    /// First touch of a mapped page of cached data, nanoseconds.
    pub touch_ns: u64,
}

const SMALL: usize = 256 << 10;
/// Bytes of the file that are kept warm for these measurements.
const REGION: u64 = 64 * MIB;

/// Reads the whole file from cold through the page cache; returns bytes per second.
pub(super) fn cold_read(
    file: &Target,
    threads: u64,
    effort: &Effort<'_>,
) -> Result<u64, StorageError> {
    effort.check()?;
    let fd = file.cached.as_raw_fd();
    // If the system cannot evict, the result shows the page cache, which is harmless.
    let _ = probe::evict(fd, 0, 0);
    let share = file.bytes / threads;
    let ns = timed(threads, |number| {
        let mut into = vec![1u8; MIB as usize];
        let mut at = number * share;
        while at < (number + 1) * share {
            read(file, fd, &mut into, at)?;
            at += MIB;
            effort.check()?;
        }
        Ok(())
    })?;
    Ok(per_second(share * threads, ns))
}

/// Writes through the page cache; returns bytes per second without and with the final sync.
pub(super) fn write(file: &Target, from: &[u8]) -> Result<(u64, u64), StorageError> {
    let bytes = file.bytes.min(4 * from.len() as u64);
    let fd = file.cached.as_raw_fd();
    target::sync(file)?;
    let started = Instant::now();
    for at in (0..bytes).step_by(from.len().min(MIB as usize)) {
        let part = &from[(at as usize) % from.len()..][..MIB as usize];
        sys::write_at(fd, part, at as i64).map_err(|errno| {
            StorageError::io_at("write", &file.folder, at as i64, MIB as i64, errno)
        })?;
    }
    let written = started.elapsed().as_nanos() as u64;
    target::sync(file)?;
    let synced = started.elapsed().as_nanos() as u64;
    Ok((per_second(bytes, written), per_second(bytes, synced)))
}

/// Measures all rates of cached data.
pub(super) fn measure(
    file: &Target,
    memory: &mut [u8],
    effort: &Effort<'_>,
) -> Result<Warm, StorageError> {
    let fd = file.cached.as_raw_fd();
    let region = file.bytes.min(REGION);
    // Touch everything once before any clock starts.
    for at in (0..region).step_by(MIB as usize) {
        read(file, fd, &mut memory[..MIB as usize], at)?;
    }
    let mut warm = Warm { call_ns: one_call(file, fd, region)?, ..Warm::default() };
    let mapping =
        Region::map(fd, region as usize).ok_or_else(|| StorageError::last("map", &file.folder))?;
    warm.touch_ns = mapping.touch();
    for threads in [1, 2] {
        effort.check()?;
        let slot = threads as usize - 1;
        let share = region / threads / MIB * MIB;
        let passes = 4;
        let total = share * threads * passes;

        let ns = timed(threads, |number| {
            let mut small = vec![1u8; SMALL];
            each(passes, number * share, share, SMALL as u64, |at| read(file, fd, &mut small, at))
        })?;
        warm.pread[slot] = per_second(total, ns);

        let ns = timed(threads, |number| {
            let mut small = vec![1u8; SMALL];
            each(passes, number * share, share, SMALL as u64, |at| {
                small.copy_from_slice(&mapping.bytes()[at as usize..][..SMALL]);
                std::hint::black_box(&small);
                Ok(())
            })
        })?;
        warm.mapped[slot] = per_second(total, ns);

        // Each thread has its own half of the memory: reads into it, then copies inside it.
        let part = memory.len() / threads as usize / (2 * MIB as usize) * 2 * MIB as usize;
        let parts: Vec<_> = memory.chunks_mut(part).map(std::sync::Mutex::new).collect();
        let total = (part as u64) * threads * passes;
        let ns = timed(threads, |number| {
            let mut own = lock(&parts[number as usize]);
            let own = &mut **own;
            each(passes, 0, part as u64, MIB, |at| {
                let from = (number * share + at) % (region - MIB + 1) / MIB * MIB;
                read(file, fd, &mut own[at as usize..][..MIB as usize], from)
            })
        })?;
        warm.pread_large[slot] = per_second(total, ns);

        let ns = timed(threads, |number| {
            let mut own = lock(&parts[number as usize]);
            let (left, right) = own.split_at_mut(part / 2);
            for _ in 0..passes {
                left.copy_from_slice(right);
                std::hint::black_box(&left);
            }
            Ok(())
        })?;
        warm.copy[slot] = per_second(total / 2, ns);
    }
    Ok(warm)
}

fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Calls `body` with every `step`-th position of a range, `passes` times.
fn each(
    passes: u64,
    start: u64,
    len: u64,
    step: u64,
    mut body: impl FnMut(u64) -> Result<(), StorageError>,
) -> Result<(), StorageError> {
    (0..passes).flat_map(|_| (start..start + len).step_by(step as usize)).try_for_each(&mut body)
}

/// Runs `work` on `threads` threads concurrently; returns nanoseconds from the first start to the
/// last end.
fn timed(
    threads: u64,
    work: impl Fn(u64) -> Result<(), StorageError> + Sync,
) -> Result<u64, StorageError> {
    let started = Instant::now();
    std::thread::scope(|scope| {
        let (mut others, mut own) = (Vec::new(), Ok(()));
        for number in 1..threads {
            let work = &work;
            let thread = std::thread::Builder::new().name("outcore-measure".into());
            match thread.spawn_scoped(scope, move || work(number)) {
                Ok(other) => others.push(other),
                Err(_) => own = own.and_then(|()| work(number)), // no thread could be started
            }
        }
        own = own.and_then(|()| work(0));
        others.into_iter().fold(own, |result, other| {
            let other = other.join().unwrap_or_else(|_| {
                Err(StorageError::BadJob("a measuring thread panicked".to_owned()))
            });
            result.and(other)
        })
    })?;
    Ok(started.elapsed().as_nanos() as u64)
}

fn read(file: &Target, fd: RawFd, into: &mut [u8], at: u64) -> Result<(), StorageError> {
    let len = into.len();
    match sys::read_at(fd, into, at as i64) {
        Ok(count) if count == len => Ok(()),
        short => {
            let errno = short.err().unwrap_or(libc::EIO);
            Err(StorageError::io_at("read", &file.folder, at as i64, len as i64, errno))
        }
    }
}

/// Measures a small read at a random cached position; returns nanoseconds.
fn one_call(file: &Target, fd: RawFd, region: u64) -> Result<u64, StorageError> {
    const CALLS: u64 = 20_000;
    let (mut word, mut state) = ([0u8; 8], 99);
    let started = Instant::now();
    for _ in 0..CALLS {
        state = next(state);
        read(file, fd, &mut word, state % (region / 8) * 8)?;
    }
    Ok((started.elapsed().as_nanos() as u64 / CALLS).max(1))
}

/// A mapping of the start of the file. The length of the file is fixed and no other process has it
/// open, so it cannot shrink under the mapping.
struct Region {
    start: *mut u8,
    len: usize,
}

// SAFETY: the mapping is only read while it is shared.
unsafe impl Sync for Region {}

impl Region {
    fn map(fd: RawFd, len: usize) -> Option<Region> {
        // SAFETY: a fresh mapping at an address chosen by the system.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ, libc::MAP_SHARED, fd, 0)
        };
        (start != libc::MAP_FAILED).then_some(Region { start: start.cast(), len })
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: mapped until drop; the bytes are not written while this module measures.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }

    /// Touches every page for the first time; returns nanoseconds for each.
    fn touch(&self) -> u64 {
        let page = probe::page_size() as usize;
        let started = Instant::now();
        let sum = self.bytes().iter().step_by(page).fold(0u8, |sum, byte| sum.wrapping_add(*byte));
        std::hint::black_box(sum);
        (started.elapsed().as_nanos() as u64 / (self.len / page).max(1) as u64).max(1)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, and no borrow of it exists.
        unsafe { libc::munmap(self.start.cast(), self.len) };
    }
}
