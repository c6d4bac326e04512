//! Parameters of disks: measured by the user, or learned from timed reads.
//!
//! Problem. Whether a gap is better read or skipped depends on the disk by a factor of hundreds,
//! and most disks have not been measured. Idea. Reads from the disk are timed: requests, bytes and
//! the time of a busy period, from the first read that begins on an idle disk to the last that
//! ends. Scattered requests show the cost of a request, long ones the rate. Two parameters are
//! fitted to the best of the last few periods of each kind, in logarithms, so that a factor has the
//! same weight in both directions.
//!
//! Periods are too long on a busy machine, where threads wait for the processor, and too short on a
//! throttled device, which serves from saved credit immediately after an idle time. Therefore there
//! are two questions. *Is the disk slow?* Only if all remembered periods of a kind, at least two
//! and not short ones, took longer than a disk at the threshold of slowness, which is far from the
//! assumed disk. *How slow?* A pause before a period counts as a part of it, up to the longest that
//! throttles save: that is too long for other disks, but the minimum over a few periods is right
//! for both, once one period has directly followed another.
//!
//! Ranks of one machine read the same disks, and each sees a part of the common traffic. In
//! collective calls they therefore exchange their observations ([`timed`]), and adopt those of
//! others ([`adopt`]): plans that all ranks make must be made with equal parameters.
//!
//! Invariants. Parameters never change results. A measured disk keeps its parameters: nothing is
//! learned there. Parameters change between accesses, never within the planning of one.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

/// Parameters of a disk for planning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Figures {
    /// Size of a gap that is as cheap to read as to skip, bytes.
    pub gap: i64,
    /// Nanoseconds for one more request when many are in flight.
    pub latency_ns: i64,
    /// Bytes per second of requests, without their latency.
    pub device: i64,
    /// Bytes per second that are never exceeded.
    pub stream: i64,
}

impl Figures {
    /// Derives the parameters of a disk with this cost of a request and this rate; the rest follows
    /// `told`.
    pub fn of(latency_ns: i64, device: i64, told: Figures) -> Figures {
        let gap = i128::from(latency_ns) * i128::from(device) / 1_000_000_000;
        let gap = i64::try_from(gap).unwrap_or(i64::MAX).clamp(1, 1 << 40);
        // If the rate of a stream was a little above the rate of requests, the ratio applies here,
        // too.
        let faster = told.stream as f64 / told.device.max(1) as f64;
        let stream = device.max((device as f64 * faster) as i64);
        Figures { gap, latency_ns, device, stream }
    }
}

/// Source of parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Assumed: the disk is unknown.
    Assumed,
    /// Measured by `outcore bench`.
    Measured,
    /// Learned from timed accesses, in this process or an earlier one.
    Learned,
}

impl Origin {
    /// Name of the source, for reports.
    pub fn name(self) -> &'static str {
        match self {
            Origin::Assumed => "assumed",
            Origin::Measured => "measured",
            Origin::Learned => "learned",
        }
    }
}

/// A busy period of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observation {
    /// Number of read requests.
    pub requests: i64,
    /// Total number of bytes.
    pub bytes: i64,
    /// Duration, nanoseconds.
    pub ns: i64,
    /// Idle time of the disk before the period, nanoseconds.
    pub idle: i64,
}

/// Mean request size in bytes: below the first limit requests are scattered, from the second on
/// long.
const SCATTERED: i64 = 64 << 10;
const LONG: i64 = 1 << 20;
/// A period with fewer requests and fewer bytes measures a round trip, not the disk; a smaller
/// number is enough immediately after another period.
const REQUESTS: i64 = 24;
const BYTES: i64 = 4 << 20;
const MORE_REQUESTS: i64 = 8;
const PAUSE: i64 = 10_000_000;
/// A shorter period was served from memory.
const SHORTEST: i64 = 100_000;
/// Remembered periods of each kind.
const KEPT: usize = 4;
/// Periods that must agree before a disk is called slow, and their total duration: on a busy
/// machine, a few threads one after another wait for the processor for tens of milliseconds.
const CONFIRMED: usize = 2;
const CERTAIN: i64 = 80_000_000;
/// A period of this length is enough by itself if it took `PLAIN` times longer than the threshold.
const LONG_ENOUGH: i64 = 400_000_000;
const PLAIN: i64 = 4;
/// A disk is slow if requests, or bytes, cost more than this multiple of the assumption. A smaller
/// factor may be due to the processor, and hardly changes the best way to read a section.
const SLOW_REQUESTS: i64 = 40;
const SLOW_BYTES: i64 = 8;
/// Credit that a throttle spends immediately after a pause: the savings of a tenth of a second.
const SAVED: i64 = 100_000_000;
/// Learned parameters replace those in use if they differ by more than this factor.
const NEAR: f64 = 1.25;
/// Allowance for the first request, threads and memory of a period: a disk is not slow because of
/// it.
const BEGINNING: i64 = 3_000_000;
/// Weight of the assumed parameters relative to an observation, and of the relation that a disk
/// with slow requests has a lower rate: from solid-state over network to spinning disks, requests
/// cost up to 800 times more, and bytes 20 times.
const PRIOR: f64 = 0.01;
const ALONG: f64 = 0.02;
const SLOPE: f64 = 0.45;
/// Age from which scattered requests no longer describe the disk.
const STALE: Duration = Duration::from_secs(60);
/// A longer period is split.
const LONGEST: Duration = Duration::from_millis(500);

#[derive(Debug, Default)]
struct Disk {
    told: Option<(Figures, Origin)>,
    learned: Option<Figures>,
    seen: [VecDeque<Observation>; 3],
    scattered: Option<Instant>,
    /// Time at which another rank last sent its parameters.
    told_by_rank: Option<Instant>,
    path: PathBuf,
    /// The current period: reads in flight, its beginning, and the reads that have ended.
    active: u32,
    began: Option<Instant>,
    idle: i64,
    requests: i64,
    bytes: i64,
    /// Time at which the last read ended.
    ended: Option<Instant>,
}

static DISKS: Mutex<BTreeMap<u64, Disk>> = Mutex::new(BTreeMap::new());
static LEARNING: AtomicBool = AtomicBool::new(true);
/// Accesses in progress that other processes make together with this one.
static SHARED: AtomicU32 = AtomicU32::new(0);

/// Locks the table of disks; `None` if the lock cannot be had.
///
/// In a forked child, a thread that exists only in the parent may hold the lock for ever. After a
/// tenth of a second, which is longer than any holder takes, plans use assumed parameters.
fn disks() -> Option<MutexGuard<'static, BTreeMap<u64, Disk>>> {
    for attempt in 0..200 {
        match DISKS.try_lock() {
            Ok(disks) => return Some(disks),
            Err(TryLockError::Poisoned(disks)) => return Some(disks.into_inner()),
            Err(TryLockError::WouldBlock) if attempt < 100 => std::thread::yield_now(),
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    None
}

/// Sets whether disks are learned from now on.
pub fn set_learning(learning: bool) {
    LEARNING.store(learning, Ordering::Relaxed);
}

/// Sets whether other ranks of this machine read at the same time: each then has only a part of the
/// disk, so the time of a read is not a parameter of the disk.
pub fn share(shared: bool) {
    match shared {
        true => SHARED.fetch_add(1, Ordering::Relaxed),
        false => SHARED.fetch_sub(1, Ordering::Relaxed),
    };
}

/// Replaces all known parameters, by device number (`st_dev`); true: learned by an earlier process.
pub fn set(told: BTreeMap<u64, (Figures, bool)>) {
    let Some(mut disks) = disks() else { return };
    disks.clear();
    for (device, (figures, learned)) in told {
        let origin = if learned { Origin::Learned } else { Origin::Measured };
        disks.insert(device, Disk { told: Some((figures, origin)), ..Disk::default() });
    }
}

/// Returns the parameters of a disk and their source; `None` if they can only be assumed.
pub fn figures(device: u64) -> Option<(Figures, Origin)> {
    disks()?.get(&device)?.now()
}

/// Returns the disks that this process learned: the path of a file there, and the parameters.
pub fn learned() -> Vec<(PathBuf, Figures)> {
    let Some(disks) = disks() else { return Vec::new() };
    // There is no path for a disk that is known only from other ranks.
    let read = disks.values().filter(|disk| !disk.path.as_os_str().is_empty());
    read.filter_map(|disk| Some((disk.path.clone(), disk.learned?))).collect()
}

/// Returns whether a plan of many scattered requests may rely on the parameters of a disk: they
/// were measured, or such requests were timed recently.
pub fn is_known(device: u64) -> bool {
    if !LEARNING.load(Ordering::Relaxed) {
        return true;
    }
    disks().is_none_or(|disks| {
        disks.get(&device).is_some_and(|disk| {
            disk.is_measured() || recent(disk.scattered) || recent(disk.told_by_rank)
        })
    })
}

/// Returns the parameters of a disk that this process itself has timed recently.
pub fn timed(device: u64, assumed: Figures) -> Option<Figures> {
    if !LEARNING.load(Ordering::Relaxed) {
        return None;
    }
    let disks = disks()?;
    let disk = disks.get(&device).filter(|disk| !disk.is_measured() && recent(disk.scattered))?;
    Some(disk.now().map_or(assumed, |(figures, _)| figures))
}

/// Adopts parameters that a rank of this machine has timed ([`timed`]).
pub fn adopt(device: u64, latency_ns: i64, rate: i64, assumed: Figures) {
    if !LEARNING.load(Ordering::Relaxed) {
        return;
    }
    let Some(mut disks) = disks() else { return };
    let disk = disks.entry(device).or_default();
    if !disk.is_measured() {
        disk.told_by_rank = Some(Instant::now());
        let found = Figures::of(latency_ns, rate, assumed);
        disk.use_from_now_on(found, assumed);
        // As if this rank had timed it: later long requests then show the rate, and not the cost of
        // a request.
        let (requests, bytes) = (REQUESTS, REQUESTS * 4096);
        let one = Observation { requests, bytes, ns: 0, idle: 0 };
        let one = Observation { ns: price(&one, found) as i64, ..one };
        if disk.seen[0].is_empty() && is_slow(&one, assumed) {
            disk.seen[0].push_front(one);
        }
    }
}

/// Returns whether a time is recent.
fn recent(then: Option<Instant>) -> bool {
    then.is_some_and(|then| then.elapsed() < STALE)
}

/// A read of a disk that is in progress.
#[derive(Debug)]
pub struct Watch {
    device: u64,
    assumed: Figures,
}

impl Watch {
    /// Begins a read of a file on `device`; `None` if nothing can be learned from it.
    pub fn begin(device: u64, path: &Path, assumed: Figures) -> Option<Watch> {
        if !LEARNING.load(Ordering::Relaxed) || SHARED.load(Ordering::Relaxed) > 0 {
            return None;
        }
        let mut disks = disks()?;
        let disk = disks.entry(device).or_default();
        if disk.is_measured() {
            return None;
        }
        if disk.path.as_os_str().is_empty() {
            disk.path = path.to_path_buf();
        }
        if disk.active == 0 {
            let now = Instant::now();
            disk.idle = disk.ended.map_or(i64::MAX, |then| nanoseconds(now - then));
            (disk.began, disk.requests, disk.bytes) = (Some(now), 0, 0);
        }
        disk.active += 1;
        Some(Watch { device, assumed })
    }

    /// Ends the read, with its number of requests and bytes.
    pub fn end(self, requests: i64, bytes: i64) {
        if let Some(disk) = disks().as_mut().and_then(|disks| disks.get_mut(&self.device)) {
            disk.requests = disk.requests.saturating_add(requests);
            disk.bytes = disk.bytes.saturating_add(bytes);
            disk.ended(self.assumed);
        }
        std::mem::forget(self);
    }
}

impl Drop for Watch {
    /// The read failed: its period is discarded.
    fn drop(&mut self) {
        if let Some(disk) = disks().as_mut().and_then(|disks| disks.get_mut(&self.device)) {
            disk.active = disk.active.saturating_sub(1);
            disk.began = None;
        }
    }
}

impl Disk {
    fn is_measured(&self) -> bool {
        matches!(self.told, Some((_, Origin::Measured)))
    }

    fn now(&self) -> Option<(Figures, Origin)> {
        self.learned.map(|figures| (figures, Origin::Learned)).or(self.told)
    }

    fn ended(&mut self, assumed: Figures) {
        self.active = self.active.saturating_sub(1);
        let now = Instant::now();
        self.ended = Some(now);
        let Some(began) = self.began else { return };
        let elapsed = now - began;
        if self.active > 0 && elapsed < LONGEST {
            return;
        }
        let (requests, bytes, idle) = (self.requests, self.bytes, self.idle);
        (self.began, self.requests, self.bytes, self.idle) = (Some(now), 0, 0, 0);
        self.saw(Observation { requests, bytes, ns: nanoseconds(elapsed), idle }, assumed);
    }

    fn saw(&mut self, one: Observation, assumed: Figures) {
        let least = if one.idle < PAUSE { MORE_REQUESTS } else { REQUESTS };
        if (one.requests < least && one.bytes < BYTES) || one.requests < 1 || one.ns < SHORTEST {
            return;
        }
        let usual = one.ns.min(price(&one, assumed) as i64);
        let one = Observation { ns: (one.ns - BEGINNING).max(usual), ..one };
        let mean = one.bytes / one.requests;
        let kind = usize::from(mean >= SCATTERED) + usize::from(mean >= LONG);
        if kind == 0 {
            self.scattered = Some(Instant::now());
        }
        let kept = &mut self.seen[kind];
        kept.truncate(KEPT - 1);
        kept.push_front(one);
        let used = self.now().map_or(assumed, |(figures, _)| figures);
        let confirmed = |kept: &VecDeque<Observation>| {
            let all = kept.iter().all(|one| is_slow(one, assumed));
            let together = kept.iter().fold(0_i64, |sum, one| sum.saturating_add(one.ns));
            let alone = kept.iter().any(|one| is_plainly_slow(one, assumed));
            all && (alone || kept.len() >= CONFIRMED && together >= CERTAIN)
        };
        if self.seen.iter().any(confirmed) {
            let best: Vec<_> = self.seen.iter().filter_map(|kept| best(kept, assumed)).collect();
            self.use_from_now_on(fitted(&best, assumed), assumed);
        } else if used != assumed && self.is_denied(kind, used, assumed) {
            self.learned = self.told.map(|_| assumed);
        }
    }

    /// Replaces the parameters in use unless the new ones are near: equal accesses have equal
    /// plans.
    fn use_from_now_on(&mut self, found: Figures, assumed: Figures) {
        let used = self.now().map_or(assumed, |(figures, _)| figures);
        if far(found, used) {
            // A disk that matches the assumption needs an entry only to override what was set.
            let nothing = self.told.is_none() && !far(found, assumed);
            self.learned = (!nothing).then_some(found);
        }
    }

    /// Returns whether the last period of a kind shows that the disk is not slow, contrary to
    /// `used`.
    ///
    /// Either all remembered periods were fast. Or this one was fast with scattered requests, and
    /// took less than half of the time that `used` predict, including all time for which a throttle
    /// could save. Long requests alone are not enough: a device with few requests per second may
    /// have saved bytes in the meantime.
    fn is_denied(&self, kind: usize, used: Figures, assumed: Figures) -> bool {
        let kept = &self.seen[kind];
        let fast = |one: &Observation| !is_slow(one, assumed);
        let half = |one: &Observation| 2.0 * (longest(one) as f64) < price(one, used);
        kind == 0 && kept.front().is_some_and(|one| fast(one) && half(one))
            || (kept.len() == KEPT && kept.iter().all(fast))
    }
}

fn nanoseconds(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

/// Returns whether a disk at the threshold of slowness would have been faster.
fn is_slow(one: &Observation, assumed: Figures) -> bool {
    one.ns as f64 > price(one, edge(assumed))
}

/// Returns whether the period was slow for so long, and by so much, that no stall of the processor
/// explains it.
fn is_plainly_slow(one: &Observation, assumed: Figures) -> bool {
    one.ns >= LONG_ENOUGH && one.ns as f64 > PLAIN as f64 * price(one, edge(assumed))
}

fn edge(assumed: Figures) -> Figures {
    let latency_ns = assumed.latency_ns.saturating_mul(SLOW_REQUESTS);
    Figures { latency_ns, device: assumed.device / SLOW_BYTES, ..assumed }
}

/// Returns the time of a period, assuming that the device first spent its savings.
fn longest(one: &Observation) -> i64 {
    one.ns.saturating_add(one.idle.min(SAVED))
}

/// Returns the period that took least for its traffic, including the time of saving.
///
/// Only periods that are slow without that time, or in which it is at most twice the measured time,
/// are considered.
fn best(seen: &VecDeque<Observation>, by: Figures) -> Option<Observation> {
    let tells = |one: &&Observation| is_slow(one, by) || one.idle.min(SAVED) / 2 <= one.ns;
    let told = seen.iter().filter(tells);
    let all = told.map(|one| Observation { ns: longest(one), ..*one });
    let slowness = |one: &Observation| one.ns as f64 / price(one, by).max(1.0);
    all.min_by(|a, b| slowness(a).total_cmp(&slowness(b)))
}

/// Returns the predicted nanoseconds of a period.
fn price(one: &Observation, by: Figures) -> f64 {
    let second = 1e9 / by.device.max(1) as f64;
    one.requests as f64 * by.latency_ns as f64 + one.bytes as f64 * second
}

fn far(a: Figures, b: Figures) -> bool {
    let apart = |a: i64, b: i64| {
        let ratio = a.max(1) as f64 / b.max(1) as f64;
        !(1.0 / NEAR..=NEAR).contains(&ratio)
    };
    apart(a.latency_ns, b.latency_ns) || apart(a.device, b.device)
}

/// Fits the cost of a request and the rate to observations, preferring those of a typical disk
/// where the observations leave a choice: Gauss-Newton steps in the logarithms of both.
///
/// The larger of both costs decides (a norm of order four): a throttle limits requests and bytes
/// independently, and long requests of a spinning disk follow each other without a seek. In a sum,
/// a cost of requests that is a little too high would hide the rate.
pub fn fitted(seen: &[Observation], told: Figures) -> Figures {
    let start = ((told.latency_ns.max(1) as f64).ln(), (1e9 / told.device.max(1) as f64).ln());
    // The number of scattered requests explains their time first: bytes cannot be that slow.
    let alone = |one: &Observation| one.ns.max(1) as f64 / one.requests.max(1) as f64;
    let scattered = seen.iter().find(|one| one.bytes / one.requests.max(1) < SCATTERED);
    let mut u = scattered.map_or(start.0, |one| alone(one).ln().max(start.0));
    // Longer requests that took less than half of that were served from savings.
    let saved = |one: &&Observation| {
        scattered.is_some_and(|first| {
            one.bytes / one.requests.max(1) >= SCATTERED && 2.0 * alone(one) < alone(first)
        })
    };
    let seen: Vec<_> = seen.iter().filter(|one| !saved(one)).collect();
    let mut v = start.1 + SLOPE * (u - start.0);
    for _ in 0..40 {
        let beside = (start.1 - v) - SLOPE * (start.0 - u);
        let (mut aa, mut ab, mut bb) = (PRIOR + ALONG * SLOPE * SLOPE, -ALONG * SLOPE, ALONG);
        let mut ga = PRIOR * (start.0 - u) - ALONG * SLOPE * beside;
        let mut gb = ALONG * beside;
        for one in &seen {
            let of_requests = one.requests as f64 * u.exp();
            let of_bytes = one.bytes as f64 * v.exp();
            let larger = of_requests.max(of_bytes).max(1.0);
            let (a, b) = ((of_requests / larger).powi(4), (of_bytes / larger).powi(4));
            let all = larger * (a + b).sqrt().sqrt();
            let (a, b) = (a / (a + b), b / (a + b));
            let residual = (one.ns as f64 / all).ln();
            aa += a * a;
            ab += a * b;
            bb += b * b;
            ga += a * residual;
            gb += b * residual;
        }
        let determinant = aa * bb - ab * ab;
        let step = |x: f64| (x / determinant).clamp(-2.0, 2.0);
        let (du, dv) = (step(bb * ga - ab * gb), step(aa * gb - ab * ga));
        (u, v) = (u + du, v + dv);
        if du.abs() + dv.abs() < 1e-6 {
            break;
        }
    }
    let whole = |x: f64| x.clamp(1.0, 1e15) as i64;
    let (latency_ns, device) = (whole(u.exp()), whole(1e9 / v.exp()));
    Figures::of(latency_ns, device, told)
}

#[cfg(test)]
mod tests;
