//! Figures of disks: told by who measured them, else learned while they are read.
//!
//! Problem. Whether a gap is read or skipped depends on the disk by a factor of hundreds, and most
//! disks nobody has measured. Idea. Reads that go to the disk are timed: requests, bytes and the
//! time of a busy period, from the first read that begins on an idle disk to the last that ends.
//! Scattered requests tell what a request costs, long ones the rate. Two figures are fitted to the
//! best of the last few of each kind, in logarithms, so that a factor counts alike in both
//! directions. They replace those that plans use when they are far from them.
//!
//! Invariants. Figures never change results. Who measured a disk is believed: nothing is learned
//! there. Figures change between accesses, never within the planning of one.
//!
//! The best of a few is taken because a disk may be slow for many reasons, but fast for one only.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

/// What plans need to know of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Figures {
    /// Bytes of a gap that is as cheap to read as to skip.
    pub gap: i64,
    /// Nanoseconds for one more request at depth.
    pub latency_ns: i64,
    /// Bytes per second beyond that.
    pub device: i64,
    /// Bytes per second that are never exceeded.
    pub stream: i64,
}

/// Where figures come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Nobody knows this disk.
    Assumed,
    /// `outcore bench` measured it.
    Measured,
    /// Accesses were timed, in this process or an earlier one.
    Learned,
}

impl Origin {
    /// In a word, for reports.
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
    /// Read requests.
    pub requests: i64,
    /// Bytes of them all.
    pub bytes: i64,
    /// How long it took.
    pub ns: i64,
}

/// Requests are scattered below this mean size, and long from the second one on.
const SCATTERED: i64 = 64 << 10;
const LONG: i64 = 1 << 20;
/// A period with fewer requests and fewer bytes tells of one round trip, not of the disk.
const REQUESTS: i64 = 24;
const BYTES: i64 = 4 << 20;
/// A shorter one was answered from memory.
const SHORTEST: i64 = 100_000;
/// Periods of each kind that are remembered.
const KEPT: usize = 4;
/// How far figures are from those in use before they replace them.
const FAR: f64 = 4.0;
/// What the first request, threads and memory of a period take besides: nobody is slow for that.
const BEGINNING: i64 = 3_000_000;
/// What the assumed figures weigh beside an observation.
const PRIOR: f64 = 0.01;
/// Scattered requests older than this tell nothing of today.
const STALE: Duration = Duration::from_secs(60);
/// A period that goes on for longer is cut.
const LONGEST: Duration = Duration::from_millis(500);

#[derive(Debug, Default)]
struct Disk {
    told: Option<(Figures, Origin)>,
    learned: Option<Figures>,
    seen: [VecDeque<Observation>; 3],
    scattered: Option<Instant>,
    path: PathBuf,
    /// The period under way: reads in flight, when it began, what has ended of it.
    active: u32,
    began: Option<Instant>,
    requests: i64,
    bytes: i64,
}

static DISKS: Mutex<BTreeMap<u64, Disk>> = Mutex::new(BTreeMap::new());
static LEARNING: AtomicBool = AtomicBool::new(true);

/// In a forked child the lock may be held for ever, by a thread that the fork left behind: after
/// a tenth of a second, which no holder takes, plans are priced by guess.
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

/// Whether disks are learned from now on.
pub fn set_learning(learning: bool) {
    LEARNING.store(learning, Ordering::Relaxed);
}

/// Replaces all that is known by these figures, by device number (`st_dev`); true: learned by an
/// earlier process.
pub fn set(told: BTreeMap<u64, (Figures, bool)>) {
    let Some(mut disks) = disks() else { return };
    disks.clear();
    for (device, (figures, learned)) in told {
        let origin = if learned { Origin::Learned } else { Origin::Measured };
        disks.insert(device, Disk { told: Some((figures, origin)), ..Disk::default() });
    }
}

/// The figures of a disk, and where they come from; none if they can only be assumed.
pub fn figures(device: u64) -> Option<(Figures, Origin)> {
    disks()?.get(&device)?.now()
}

/// Disks whose figures were learned by this process: a file there, and the figures.
pub fn learned() -> Vec<(PathBuf, Figures)> {
    let Some(disks) = disks() else { return Vec::new() };
    disks.values().filter_map(|disk| Some((disk.path.clone(), disk.learned?))).collect()
}

/// Whether a plan of many scattered requests may rely on the figures of a disk: they were measured,
/// or such requests were timed a short while ago.
pub fn is_known(device: u64) -> bool {
    if !LEARNING.load(Ordering::Relaxed) {
        return true;
    }
    disks().is_none_or(|disks| {
        disks.get(&device).is_some_and(|disk| {
            disk.is_measured() || disk.scattered.is_some_and(|then| then.elapsed() < STALE)
        })
    })
}

/// A read of a disk that is under way.
#[derive(Debug)]
pub struct Watch {
    device: u64,
    assumed: Figures,
}

impl Watch {
    /// A read begins, of a file on `device`; none if nothing is to be learned there.
    pub fn begin(device: u64, path: &Path, assumed: Figures) -> Option<Watch> {
        if !LEARNING.load(Ordering::Relaxed) {
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
            (disk.began, disk.requests, disk.bytes) = (Some(Instant::now()), 0, 0);
        }
        disk.active += 1;
        Some(Watch { device, assumed })
    }

    /// It has ended, and asked for so much.
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
    /// It failed: the period tells nothing.
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
        let Some(began) = self.began else { return };
        let elapsed = began.elapsed();
        if self.active > 0 && elapsed < LONGEST {
            return;
        }
        let ns = i64::try_from(elapsed.as_nanos()).unwrap_or(i64::MAX);
        let (requests, bytes) = (self.requests, self.bytes);
        (self.began, self.requests, self.bytes) = (Some(Instant::now()), 0, 0);
        self.saw(Observation { requests, bytes, ns }, assumed);
    }

    fn saw(&mut self, one: Observation, assumed: Figures) {
        if (one.requests < REQUESTS && one.bytes < BYTES) || one.requests < 1 || one.ns < SHORTEST {
            return;
        }
        let told = self.told.map_or(assumed, |(figures, _)| figures);
        let usual = one.ns.min(price(&one, told) as i64);
        let one = Observation { ns: (one.ns - BEGINNING).max(usual), ..one };
        let mean = one.bytes / one.requests;
        let kind = usize::from(mean >= SCATTERED) + usize::from(mean >= LONG);
        if kind == 0 {
            self.scattered = Some(Instant::now());
        }
        let kept = &mut self.seen[kind];
        kept.truncate(KEPT - 1);
        kept.push_front(one);
        let best: Vec<Observation> = self.seen.iter().filter_map(|kind| best(kind, told)).collect();
        let found = fitted(&best, told);
        // Figures that are near do not replace each other: equal accesses have equal plans.
        let used = self.learned.unwrap_or(told);
        if far(found, used) || !far(found, told) {
            self.learned = far(found, told).then_some(found);
        }
    }
}

/// The one that took least, for what it moved.
fn best(seen: &VecDeque<Observation>, by: Figures) -> Option<Observation> {
    let slowness = |one: &Observation| one.ns as f64 / price(one, by).max(1.0);
    seen.iter().copied().min_by(|a, b| slowness(a).total_cmp(&slowness(b)))
}

/// Nanoseconds that the figures say.
fn price(one: &Observation, by: Figures) -> f64 {
    let second = 1e9 / by.device.max(1) as f64;
    one.requests as f64 * by.latency_ns as f64 + one.bytes as f64 * second
}

fn far(a: Figures, b: Figures) -> bool {
    let apart = |a: i64, b: i64| {
        let ratio = a.max(1) as f64 / b.max(1) as f64;
        !(1.0 / FAR..=FAR).contains(&ratio)
    };
    apart(a.latency_ns, b.latency_ns) || apart(a.device, b.device)
}

/// Cost of a request and rate that explain what was seen, near those that were told where that
/// leaves a choice: Gauss-Newton steps in the logarithms of both.
pub fn fitted(seen: &[Observation], told: Figures) -> Figures {
    let start = ((told.latency_ns.max(1) as f64).ln(), (1e9 / told.device.max(1) as f64).ln());
    let (mut u, mut v) = start;
    for _ in 0..40 {
        let (mut aa, mut ab, mut bb) = (PRIOR, 0.0, PRIOR);
        let (mut ga, mut gb) = (PRIOR * (start.0 - u), PRIOR * (start.1 - v));
        for one in seen {
            let of_requests = one.requests as f64 * u.exp();
            let of_bytes = one.bytes as f64 * v.exp();
            let all = (of_requests + of_bytes).max(1.0);
            let (a, b) = (of_requests / all, of_bytes / all);
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
    let gap = i128::from(latency_ns) * i128::from(device) / 1_000_000_000;
    let gap = i64::try_from(gap).unwrap_or(i64::MAX).clamp(1, 1 << 40);
    // A stream that was told to be a little faster than requests is so of this disk, too.
    let stream =
        device.max((device as f64 * told.stream as f64 / told.device.max(1) as f64) as i64);
    Figures { gap, latency_ns, device, stream }
}

#[cfg(test)]
mod tests;
