//! Choice of the method: the possible method with the lowest estimated time in nanoseconds.
//!
//! Times are computed from counts (requests, bytes, pieces) and the measured
//! [`Rates`](crate::Rates), in integers, so equal input gives an equal choice. Only the order of
//! the times must be right, not their values. They are therefore computed for the whole nest, as if
//! it were one round.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::address::PAGE;
use crate::emit::Means;
use crate::nest::{ends_page, starts_page, Nest};
use crate::plan::{Direction, Method};
use crate::terms::{Faults, Rates, Terms};

/// The pages that must be in the page cache before a write into cold data.
///
/// Otherwise the kernel reads them itself, one at a time, while the writer waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// All touched pages.
    Pages,
    /// The first and the last page of each run; the pages between them are replaced as a whole.
    Edges,
}

/// A method with the estimated time it was chosen for, and the times of the other methods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Choice {
    pub method: Method,
    pub prices: [Option<(Method, i64)>; 4],
    pub forced: bool,
    /// Straight and mapped, half of the bytes each, so that two threads can write concurrently.
    pub halves: bool,
    /// A write that bypasses the page cache.
    pub past: bool,
    /// Mapped, although calls are cheaper if the pages are not in the mapping.
    pub doubtful: bool,
    /// Extra cost of reads by calls up to and including this read, nanoseconds.
    ///
    /// Extra means: compared with reads through a mapping that has all pages. 0 if this read enters
    /// the pages into the mapping. None if this read changes nothing.
    pub rent: Option<i64>,
}

/// Share of cached pages, in thousandths, from which data counts as cached.
///
/// No disk time is then added.
pub const CACHED: i64 = 950;

/// Returns whether data counts as cached if this share of its pages (in thousandths) is.
pub fn is_cached(permille: i64) -> bool {
    permille >= CACHED
}

/// Accesses below this many bytes use the page cache even if the data is cold.
///
/// The program is likely to request the neighbouring bytes next.
pub(crate) const SMALL: i64 = 256 << 10;

const LINE: i64 = 64;
/// Bytes that one page fault enters into a mapping of cached pages (Linux: `fault_around_bytes`).
pub(crate) const AROUND: i64 = 64 << 10;
/// Number of pages whose descriptors and data stay in the processor's caches between calls.
const WARM: i64 = 1 << 10;
/// Excess of page faults over calls that justifies a query of the mapping, nanoseconds.
///
/// The query takes about 20 us.
const WORTH_ASKING: i64 = 1_000_000;
/// Bytes of a large folio.
///
/// A write to a page through a mapping makes its whole folio dirty; a `pwrite` dirties only the
/// blocks it changes. Folios grow with the read-ahead of the file: a write of a column of a 1 GiB
/// array sends all of the array to the disk, or 64 MiB.
const FOLIO: i64 = 2 << 20;
/// Time of a small write if folios are single pages, nanoseconds.
const LONE_CALL: i64 = 1_000;
/// Time of the first write to a mapped page if folios are single pages, nanoseconds.
pub(crate) const LONE_DIRTY: i64 = 1_500;

impl Choice {
    /// A choice without alternatives.
    pub fn only(method: Method, forced: bool) -> Choice {
        let (halves, past, doubtful, rent) = (false, false, false, None);
        Choice { method, prices: [None; 4], forced, halves, past, doubtful, rent }
    }

    fn cheapest(prices: [Option<(Method, i64)>; 4]) -> Choice {
        let best = prices.iter().flatten().min_by_key(|(_, price)| *price);
        let method = best.map_or(Method::List, |(method, _)| *method);
        Choice { prices, ..Choice::only(method, false) }
    }
}

/// Totals of a set of extents.
#[derive(Clone, Copy)]
struct Extents {
    number: i64,
    bytes: i64,
    requests: i64,
}

fn extents(nest: &Nest, gap: i64, terms: &Terms) -> Extents {
    let level = nest.level(gap);
    let number: i64 = nest.axes[..level].iter().map(|a| a.count).product();
    let len = nest.extent(level);
    let each = (len - 1) / terms.request + 1;
    Extents { number, bytes: number.saturating_mul(len), requests: number.saturating_mul(each) }
}

/// Bytes moved when memory comes in units of `unit`.
fn touched(nest: &Nest, unit: i64) -> i64 {
    let level = nest.level(unit);
    let number: i64 = nest.axes[..level].iter().map(|a| a.count).product();
    number.saturating_mul(nest.extent(level).saturating_add(unit / 2))
}

/// Pages that a nest touches if it begins anywhere in one.
pub(crate) fn pages(nest: &Nest) -> i64 {
    let level = nest.level(PAGE);
    let number: i64 = nest.axes[..level].iter().map(|a| a.count).product();
    let beyond = times(number, nest.extent(level) - 1) / PAGE;
    number.saturating_add(beyond)
}

/// Nanoseconds to move `bytes` at `rate` bytes per second.
pub(crate) fn time(bytes: i64, rate: i64) -> i64 {
    let ns = i128::from(bytes) * 1_000_000_000 / i128::from(rate.max(1));
    i64::try_from(ns).unwrap_or(i64::MAX)
}

pub(crate) fn times(n: i64, each: i64) -> i64 {
    n.saturating_mul(each)
}

/// Device model: latency and size of each request, never faster than a stream.
pub(crate) fn disk_time(requests: i64, bytes: i64, r: &Rates) -> i64 {
    let busy = times(requests, r.latency_ns).saturating_add(time(bytes, r.device));
    busy.max(time(bytes, r.stream))
}

fn disk(e: Extents, bytes: i64, terms: &Terms) -> i64 {
    disk_time(e.requests, bytes, &terms.rates)
}

/// Pages to read before a write by calls or through a mapping, and the estimated time.
///
/// None for a few pages: the kernel may as well read these itself.
pub(crate) fn need(
    nest: &Nest,
    direction: Direction,
    mapped: bool,
    terms: &Terms,
) -> Option<(Need, i64)> {
    if direction == Direction::Read || !terms.stored || is_cached(terms.cached_permille) {
        return None;
    }
    let price = |e: Extents| {
        let bytes = e.bytes.saturating_add(times(e.number, PAGE));
        times(disk(e, bytes, terms), 1000 - terms.cached_permille) / 1000
    };
    let all = extents(nest, terms.gap, terms);
    let level = nest.level(1);
    let sides = i64::from(!starts_page(nest, level, 0)) + i64::from(!ends_page(nest, level));
    let number = times(nest.steps(level), sides);
    let edges = Extents { number, bytes: number, requests: number };
    let (need, e) = if mapped || nest.run_level() != level || price(all) <= price(edges) {
        (Need::Pages, all)
    } else {
        (Need::Edges, edges)
    };
    let few = e.requests < 4 && e.bytes < terms.straight;
    (!few && e.requests > 0).then(|| (need, price(e)))
}

/// Estimated time of the strided copy between the slot or mapping and the caller's array.
fn pieces(nest: &Nest, terms: &Terms) -> i64 {
    let run = nest.extent(nest.run_level());
    times(nest.bytes() / run, terms.rates.piece_ps) / 1000
}

/// Chooses a method for one nest.
pub(crate) fn choose(nest: &Nest, means: Means, terms: &Terms) -> Choice {
    if is_cached(terms.cached_permille) {
        let choice = Choice::cheapest(cached(nest, means.direction, terms));
        if means.direction == Direction::Read {
            return weigh_faults(choice, nest, terms);
        }
        Choice { halves: halves(nest, means.direction, &choice, terms), ..choice }
    } else {
        Choice::cheapest(cold(nest, means, terms))
    }
}

/// Time that page faults add to a read through a mapping.
///
/// It includes the calls that create the mapping if the mapping is made for this access.
fn faults_ns(nest: &Nest, direction: Direction, faults: Faults, r: &Rates) -> i64 {
    if direction == Direction::Write {
        return 0;
    }
    let (large, small) = (neighbourhoods(nest, FOLIO), neighbourhoods(nest, AROUND));
    let each = times(large, faults.large).saturating_add(times(small, 1000 - faults.large)) / 1000;
    let calls = if faults.chunks > 0 { r.fresh_map_ns / faults.chunks } else { 0 };
    times(times(each, faults.absent) / 1000, r.fault_ns).saturating_add(calls)
}

/// Page faults of a nest in an empty mapping, if each fault enters `around` bytes.
fn neighbourhoods(nest: &Nest, around: i64) -> i64 {
    let level = nest.level(around);
    let number: i64 = nest.axes[..level].iter().map(|a| a.count).product();
    number.saturating_add(times(number, nest.extent(level) - 1) / around)
}

/// Reconsiders the choice for a cached read with regard to page faults.
///
/// If the page faults are unknown, it determines whether a query of them pays off. If they are
/// known, calls may be cheaper than entering the pages, but a program that reads repeatedly would
/// pay more for calls, each time, than the pages cost once. This is the ski rental problem (rent or
/// buy): the extra cost of calls compared with a mapping that has the pages is summed up, and the
/// pages are entered at the read at which the sum is closest to their cost. No sequence of reads
/// then costs more than about twice the optimum.
fn weigh_faults(choice: Choice, nest: &Nest, terms: &Terms) -> Choice {
    let [straight, window, Some((_, mapped)), _] = choice.prices else { return choice };
    let calls = [straight, window].into_iter().flatten().map(|(_, price)| price);
    let calls = calls.min().unwrap_or(i64::MAX);
    let Some(faults) = terms.faults else {
        let none = Faults { absent: 1000, large: 0, chunks: 0, rent: 0 };
        let most = faults_ns(nest, Direction::Read, none, &terms.rates);
        let doubtful = mapped.saturating_add(most).saturating_sub(calls) >= WORTH_ASKING;
        return Choice { doubtful: choice.method == Method::Mapped && doubtful, ..choice };
    };
    let pages = faults_ns(nest, Direction::Read, faults, &terms.rates);
    let rent = calls.saturating_sub(mapped.saturating_sub(pages));
    if choice.method == Method::Mapped || faults.chunks > 0 || rent <= 0 {
        return choice;
    }
    if faults.rent > 0 && times(faults.rent, 2).saturating_add(times(rent, 3)) >= times(pages, 2) {
        return Choice { method: Method::Mapped, rent: Some(0), ..choice };
    }
    Choice { rent: Some(faults.rent.saturating_add(rent)), ..choice }
}

/// Estimated times if the pages are in the page cache.
fn cached(nest: &Nest, direction: Direction, terms: &Terms) -> [Option<(Method, i64)>; 4] {
    let r = terms.rates;
    let (call, touch, map) = match direction {
        Direction::Read => (r.call_ns, r.touch_ns, r.map_ns),
        Direction::Write => (r.write_call_ns, r.dirty_ns, r.map_write_ns),
    };
    let bytes = nest.bytes();
    let run = nest.extent(nest.run_level());
    let runs = bytes / run;
    let calls = times(runs, (run - 1) / terms.request + 1);
    let rate = match direction {
        Direction::Read if run >= SMALL => r.pread_large,
        Direction::Read => r.pread,
        Direction::Write => r.write,
    };
    // Calls that each access a different page.
    let lone = |number: i64, level| match level == nest.level(PAGE) {
        true if direction == Direction::Read => times((number - WARM).max(0), r.lone_ns),
        _ => 0,
    };
    let straight = times(calls, call)
        .saturating_add(time(bytes, rate))
        .saturating_add(lone(runs, nest.run_level()));
    let patches = direction == Direction::Read || terms.exclusive;
    let e = extents(nest, if patches { terms.cached_gap } else { 1 }, terms);
    let patch = direction == Direction::Write && e.bytes > bytes;
    let passes = if direction == Direction::Read { r.pread } else { r.write };
    let window = times(e.number.max(e.bytes / terms.window), call)
        .saturating_add(lone(e.number, nest.level(terms.cached_gap)))
        .saturating_add(time(e.bytes, passes))
        .saturating_add(if patch { time(e.bytes, r.pread) } else { 0 })
        .saturating_add(time(bytes, r.copy))
        .saturating_add(pieces(nest, terms));
    let mapped = terms.mapping.then(|| {
        map.saturating_add(time(touched(nest, LINE), r.mapped))
            .saturating_add(times(touched(nest, PAGE) / PAGE, touch))
            .saturating_add(terms.faults.map_or(0, |faults| faults_ns(nest, direction, faults, &r)))
            .saturating_add(pieces(nest, terms))
    });
    if direction == Direction::Write && terms.flushed {
        return flushed(nest, terms, (calls, straight), window, mapped);
    }
    [
        Some((Method::Straight, straight)),
        Some((Method::Window, window)),
        mapped.map(|price| (Method::Mapped, price)),
        None,
    ]
}

/// Estimated times of a write into the page cache together with the flush that follows.
///
/// Written pages go to the disk while other calls are made, or wait until the flush makes the gaps
/// between them dirty ([`gaps`](crate::gaps)). Of mapped pages, whole folios go to the disk.
fn flushed(
    nest: &Nest,
    terms: &Terms,
    (calls, straight): (i64, i64),
    window: i64,
    mapped: Option<i64>,
) -> [Option<(Method, i64)>; 4] {
    let pages = touched(nest, PAGE);
    let exact = |number| disk(Extents { number, bytes: pages, requests: number }, pages, terms);
    let filled = filled(nest, pages, terms);
    let both = |own: i64, number| own.max(exact(number)).min(own.saturating_add(filled));
    let e = extents(nest, if terms.exclusive { terms.cached_gap } else { 1 }, terms);
    let folios = touched(nest, FOLIO).max(nest.bytes());
    [
        Some((Method::Straight, both(straight, calls))),
        Some((Method::Window, both(window, e.requests))),
        mapped
            .map(|price| (Method::Mapped, price.saturating_add(time(folios, terms.rates.stream)))),
        None,
    ]
}

/// Time of a flush that also writes the gaps, if there are such gaps and files may be mapped.
fn filled(nest: &Nest, pages: i64, terms: &Terms) -> i64 {
    let gap = largest_gap(PAGE, &terms.rates);
    if !terms.mapping || gap == 0 || nest.level(gap) == nest.level(PAGE) {
        return i64::MAX;
    }
    let e = extents(nest, gap, terms);
    let touches = times((e.bytes - pages).max(0) / PAGE, LONE_DIRTY);
    disk(e, e.bytes, terms).saturating_add(touches)
}

/// Bytes of the largest gap that is worth writing; 0 if none is.
///
/// The gap is between written pages of `page` bytes.
///
/// Writing the gap must save twice its cost: the rates are estimates, and the user did not request
/// this write.
pub(crate) fn largest_gap(page: i64, r: &Rates) -> i64 {
    let each = disk_time(0, page, r).saturating_add(LONE_DIRTY);
    times(r.latency_ns / 2 / each.max(1), page)
}

/// Returns whether two threads should write concurrently.
///
/// Calls exclude each other in the kernel, so only one thread may make calls (4 GB/s). The other
/// thread writes through the mapping, which alone is as fast if folios are large and half as fast
/// if they are pages (268 MB: calls 70 and 80 ms, mapped 67 and 150, mapped by two threads 37 and
/// 113, half and half 40 and 57). Runs below 32 KiB are written through the mapping only. If a
/// flush follows, the disk determines the time.
fn halves(nest: &Nest, direction: Direction, choice: &Choice, terms: &Terms) -> bool {
    direction == Direction::Write
        && !terms.flushed
        && matches!(choice.method, Method::Straight | Method::Mapped)
        && terms.mapping
        && terms.threads > 1
        && nest.bytes() >= times(terms.share, 16)
        && nest.extent(nest.run_level()) >= terms.straight / 2
}

/// Estimated times if the pages come from the disk.
fn cold(nest: &Nest, means: Means, terms: &Terms) -> [Option<(Method, i64)>; 4] {
    let r = terms.rates;
    let bytes = nest.bytes();
    let missing = |price: i64| times(price, 1000 - terms.cached_permille) / 1000;
    let run = nest.extent(nest.run_level());
    let runs = Extents {
        number: bytes / run,
        bytes,
        requests: times(bytes / run, (run - 1) / terms.request + 1),
    };
    let direct = goes_direct(nest, means, terms);
    let pages = disk(runs, touched(nest, 1).saturating_add(times(runs.number, PAGE)), terms);
    // If a large read reaches pages that were read ahead earlier, the kernel continues its
    // read-ahead, far beyond the end of the read (here 8 MiB). This costs more than a few cached
    // pages save, and other processes may be reading there.
    let straight = if direct { pages } else { missing(pages) }
        .saturating_add(times(runs.requests, r.call_ns))
        .saturating_add(time(bytes, if run >= SMALL { r.pread_large } else { r.pread }));
    let copy = time(bytes, r.copy).saturating_add(pieces(nest, terms));
    match means.direction {
        Direction::Read => {
            let e = extents(nest, terms.gap, terms);
            let blocks = e.bytes.saturating_add(times(e.number, terms.block));
            let list = if direct {
                // Copies overlap with disk requests, except for the last copy.
                disk(e, blocks, terms).max(copy)
            } else {
                missing(disk(e, blocks, terms))
                    .saturating_add(time(e.bytes, r.pread))
                    .saturating_add(copy)
            };
            // Many straight transfers of short runs are never worthwhile.
            let few = run >= terms.straight || runs.number <= terms.lanes;
            let straight = few.then_some((Method::Straight, straight));
            [straight, None, None, Some((Method::List, list))]
        }
        Direction::Write if terms.stored => {
            let e = extents(nest, terms.gap, terms);
            let patch = (terms.exclusive && e.bytes > bytes).then(|| {
                missing(disk(e, e.bytes, terms))
                    .saturating_add(times(e.requests, 2 * r.call_ns))
                    .saturating_add(2 * (time(e.bytes, r.pread) / 2).min(i64::MAX / 4))
                    .saturating_add(copy)
            });
            // Pages that are read one by one are separate folios.
            let lone = e.number > 1 && e.bytes / e.number < terms.straight;
            let rates = match lone {
                true => Rates { write_call_ns: LONE_CALL, dirty_ns: LONE_DIRTY, ..r },
                false => r,
            };
            let shared = Terms { exclusive: false, rates, ..terms.clone() };
            let mut prices = cached(nest, Direction::Write, &shared);
            for (method, price) in prices.iter_mut().flatten() {
                let mapped = *method == Method::Mapped;
                let fetch = need(nest, Direction::Write, mapped, terms);
                *price = price.saturating_add(fetch.map_or(0, |(_, price)| price));
            }
            if let Some(patch) = patch {
                prices[1] = Some((Method::Window, patch));
            }
            prices
        }
        Direction::Write => {
            let exact = extents(nest, 1, terms);
            // For partly written pages, the kernel reads the page first, one at a time.
            let partial = |n: i64| times(n, 5 * r.latency_ns);
            let short = run < terms.straight;
            let list = times(exact.requests, r.call_ns)
                .saturating_add(time(bytes, r.pread))
                .saturating_add(copy)
                .saturating_add(if short { missing(partial(exact.number)) } else { 0 });
            let straight = (!short).then(|| {
                times(runs.requests, r.call_ns).saturating_add(time(bytes, r.pread_large))
            });
            let pages = touched(nest, PAGE) / PAGE;
            let mapped = (terms.mapping && short)
                .then(|| missing(partial(pages)).saturating_add(copy).saturating_add(r.map_ns));
            let e = extents(nest, terms.gap, terms);
            let patch = (terms.exclusive && e.bytes > bytes).then(|| {
                missing(disk(e, e.bytes, terms))
                    .saturating_add(times(e.requests, 2 * r.call_ns))
                    .saturating_add(2 * (time(e.bytes, r.pread) / 2).min(i64::MAX / 4))
                    .saturating_add(copy)
            });
            [
                straight.map(|price| (Method::Straight, price)),
                patch.map(|price| (Method::Window, price)),
                mapped.map(|price| (Method::Mapped, price)),
                Some((Method::List, list)),
            ]
        }
    }
}

/// Returns whether a write bypasses the page cache because the cache has no space for the data.
///
/// This is done for large writes of long runs into files that no other process writes. A direct
/// write removes its range from the cache. If another process dirties a folio that reaches into
/// that range, the kernel cannot remove it and reports EIO at the next `fsync`.
pub(crate) fn writes_past(nest: &Nest, means: Means, terms: &Terms) -> bool {
    let run = nest.extent(nest.level(1));
    means.direction == Direction::Write
        && terms.scarce
        && terms.direct
        && terms.exclusive
        && terms.method.is_none()
        && terms.cached_permille < 500
        && run >= (terms.straight / 8).max(3 * means.block)
        && nest.bytes() >= times(terms.straight, 4)
}

/// Returns whether a read by list bypasses the page cache.
///
/// `writes_past` decides for writes. Short reads use the page cache, so that it also holds the
/// neighbouring bytes, unless these would be evicted before they are requested.
pub(crate) fn goes_direct(nest: &Nest, means: Means, terms: &Terms) -> bool {
    if !terms.direct || means.direction == Direction::Write {
        return false;
    }
    let share = means.total / nest.bytes();
    let e = extents(nest, terms.gap, terms);
    let blocks = e.bytes.saturating_add(times(e.number, terms.block));
    let long = e.bytes / e.number.max(1) >= (terms.straight / 8).max(3 * terms.block);
    terms.cached_permille < 500 && (times(blocks, share.max(1)) >= SMALL || terms.scarce && long)
}

impl Choice {
    /// One sentence with the reason for this method. Times are for one chunk if `of_chunk`.
    pub fn why(&self, cached_permille: i64, of_chunk: bool) -> String {
        let name = self.method.name();
        if self.past {
            return format!(
                "{name}, bypassing the page cache, which is too small to hold the data until its \
                 neighbours are written"
            );
        }
        if self.forced {
            return format!("{name}, as requested by a hint");
        }
        let each = if of_chunk { " a chunk" } else { "" };
        let others: Vec<String> = self
            .prices
            .iter()
            .flatten()
            .filter(|(method, _)| *method != self.method)
            .map(|(method, price)| format!("{} would take {}", method.name(), duration(*price)))
            .collect();
        let own = self.prices.iter().flatten().find(|(method, _)| *method == self.method);
        let price = own.map_or(0, |(_, price)| *price);
        // A quarter of the sum for each thread: half of the bytes by calls, half through the
        // mapping.
        let mapped = self.prices[2].map_or(price, |(_, price)| price);
        let price = if self.halves { price.saturating_add(mapped) / 4 } else { price };
        let semicolon = if others.is_empty() { "" } else { "; " };
        let bought = match (self.rent, self.method) {
            (Some(_), Method::Mapped) => {
                "; earlier reads by calls have cost as much as entering the pages into the mapping"
            }
            _ => "",
        };
        let halves = if self.halves { " (half of it mapped, by a second thread)" } else { "" };
        format!(
            "{name}{halves}, about {}{each} with {} % of the pages cached{semicolon}{}{bought}",
            duration(price),
            cached_permille / 10,
            others.join(", "),
        )
    }
}

fn duration(ns: i64) -> String {
    match ns {
        0..10_000 => format!("{}.{} us", ns / 1000, ns / 100 % 10),
        10_000..10_000_000 => format!("{} us", ns / 1000),
        _ => format!("{} ms", ns / 1_000_000),
    }
}
