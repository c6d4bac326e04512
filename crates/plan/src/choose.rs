//! Which method? Each that is possible gets a price in nanoseconds; the lowest wins.
//!
//! Prices come from counts (requests, bytes, pieces) and the measured [`Rates`](crate::Rates), in
//! integers: equal input, equal choice. They need not be exact, only in the right order, so they
//! are taken from the whole nest, as if it were one round.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::address::PAGE;
use crate::emit::Means;
use crate::nest::{ends_page, starts_page, Nest};
use crate::plan::{Direction, Method};
use crate::terms::{Faults, Rates, Terms};

/// Which pages a write into cold data has to find in the page cache, so that the kernel does not
/// read them itself: one at a time, while the writer waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// All that are touched.
    Pages,
    /// The first and the last of each run: what lies between is replaced as a whole.
    Edges,
}

/// A method with the price it was chosen for, and what the others would have cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Choice {
    pub method: Method,
    pub prices: [Option<(Method, i64)>; 4],
    pub forced: bool,
    /// Straight and mapped, half of the bytes each, so that two threads can write.
    pub halves: bool,
    /// A write past the page cache.
    pub past: bool,
    /// Mapped, but calls are cheaper if the pages are not in the mapping.
    pub doubtful: bool,
    /// What reads by calls cost so far beyond what they would have through a mapping that has all pages, with
    /// this one: nothing from the read on that enters the pages. None where nothing changes.
    pub rent: Option<i64>,
}

/// Data is taken as cached from this share of pages on, in thousandths: there is no disk to wait for.
pub const CACHED: i64 = 950;

/// Whether data counts as cached of which this share of pages is in the page cache, in thousandths.
pub fn is_cached(permille: i64) -> bool {
    permille >= CACHED
}

/// Accesses below this many bytes go through the page cache also when cold: what lies beside them
/// is likely to be asked for next.
pub(crate) const SMALL: i64 = 256 << 10;

const LINE: i64 = 64;
/// What one page fault enters into a mapping of cached pages (Linux: `fault_around_bytes`).
pub(crate) const AROUND: i64 = 64 << 10;
/// Pages of which the processor's caches hold what calls need, so long as no others are used.
const WARM: i64 = 1 << 10;
/// So much, in nanoseconds, page faults may cost more than calls before somebody looks which pages are in
/// the mapping: looking takes some 20 us.
const WORTH_ASKING: i64 = 1_000_000;
/// A page that is written through a mapping makes its whole folio dirty, a `pwrite` only the blocks
/// it changes. Folios are as large as the file was read ahead: a column of a 1 GiB array takes all
/// of it to the disk, or 64 MiB.
const FOLIO: i64 = 2 << 20;
/// A small write, and the first write to a mapped page, where folios are pages, nanoseconds.
const LONE_CALL: i64 = 1_000;
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

/// What a set of extents amounts to.
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

/// Nanoseconds for `bytes` at `rate` bytes per second.
pub(crate) fn time(bytes: i64, rate: i64) -> i64 {
    let ns = i128::from(bytes) * 1_000_000_000 / i128::from(rate.max(1));
    i64::try_from(ns).unwrap_or(i64::MAX)
}

pub(crate) fn times(n: i64, each: i64) -> i64 {
    n.saturating_mul(each)
}

/// The device model: latency and size of each request, never faster than a stream.
pub(crate) fn disk_time(requests: i64, bytes: i64, r: &Rates) -> i64 {
    let busy = times(requests, r.latency_ns).saturating_add(time(bytes, r.device));
    busy.max(time(bytes, r.stream))
}

fn disk(e: Extents, bytes: i64, terms: &Terms) -> i64 {
    disk_time(e.requests, bytes, &terms.rates)
}

/// What has to be read before a write by calls, or through a mapping, and the price of that. None
/// for a handful of pages, which the kernel may as well read itself.
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

/// The price of the strided copy between slot or mapping and the caller's array.
fn pieces(nest: &Nest, terms: &Terms) -> i64 {
    let run = nest.extent(nest.run_level());
    times(nest.bytes() / run, terms.rates.piece_ps) / 1000
}

/// Chooses for one nest.
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

/// What page faults add to a read through a mapping, with the calls that make it where it is a new one.
fn faults_ns(nest: &Nest, direction: Direction, faults: Faults, r: &Rates) -> i64 {
    if direction == Direction::Write {
        return 0;
    }
    let (large, small) = (neighbourhoods(nest, FOLIO), neighbourhoods(nest, AROUND));
    let each = times(large, faults.large).saturating_add(times(small, 1000 - faults.large)) / 1000;
    let calls = if faults.chunks > 0 { r.fresh_map_ns / faults.chunks } else { 0 };
    times(times(each, faults.absent) / 1000, r.fault_ns).saturating_add(calls)
}

/// Page faults of a nest in an empty mapping, if each enters what lies around in so many bytes.
fn neighbourhoods(nest: &Nest, around: i64) -> i64 {
    let level = nest.level(around);
    let number: i64 = nest.axes[..level].iter().map(|a| a.count).product();
    number.saturating_add(times(number, nest.extent(level) - 1) / around)
}

/// Looks at a cheap read once more, for its page faults.
///
/// Where they are not known: whether to ask would pay. Where they are: calls are cheaper than to enter the
/// pages, but who reads again and again would pay more for calls, each time, than the pages cost once. So
/// it is the problem of renting skis or buying them: what calls cost more than a mapping that has the pages
/// is added up, and at the read where the sum comes nearest to the price of the pages these are entered.
/// Then no order of reads costs more than about twice the least possible.
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

/// Prices when the pages are in the page cache.
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
    // Calls in pages of their own.
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

/// Prices of a write into the page cache together with the flush that follows. Calls are sent on
/// their way to the disk while others are made, or wait until the flush makes gaps between them dirty
/// ([`gaps`](crate::gaps)); of mapped pages the disk gets whole folios.
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

/// What a flush takes that writes gaps along, where there are such and files may be mapped.
fn filled(nest: &Nest, pages: i64, terms: &Terms) -> i64 {
    let gap = largest_gap(PAGE, &terms.rates);
    if !terms.mapping || gap == 0 || nest.level(gap) == nest.level(PAGE) {
        return i64::MAX;
    }
    let e = extents(nest, gap, terms);
    let touches = times((e.bytes - pages).max(0) / PAGE, LONE_DIRTY);
    disk(e, e.bytes, terms).saturating_add(touches)
}

/// Bytes of the largest gap between written pages of `page` bytes that is worth writing along; 0 if none
/// is. It has to save twice of what it costs: figures are rough, and nobody asked for it.
pub(crate) fn largest_gap(page: i64, r: &Rates) -> i64 {
    let each = disk_time(0, page, r).saturating_add(LONE_DIRTY);
    times(r.latency_ns / 2 / each.max(1), page)
}

/// Whether two threads should write side by side. Calls exclude each other in the kernel, so only
/// one of them may make calls (4 GB/s); the other one writes through the mapping, which alone is as
/// fast where folios are large and half as fast where they are pages (268 MB: calls 70 and 80 ms,
/// mapped 67 and 150, mapped by two threads 37 and 113, half by half 40 and 57). Runs below 32 KiB
/// are for the mapping. If a flush follows, the disk decides.
fn halves(nest: &Nest, direction: Direction, choice: &Choice, terms: &Terms) -> bool {
    direction == Direction::Write
        && !terms.flushed
        && matches!(choice.method, Method::Straight | Method::Mapped)
        && terms.mapping
        && terms.threads > 1
        && nest.bytes() >= times(terms.share, 16)
        && nest.extent(nest.run_level()) >= terms.straight / 2
}

/// Prices when the pages come from the disk.
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
    // A large read that meets pages which were read ahead makes the kernel read ahead of it as well, far
    // beyond its end (here 8 MiB): what a few cached pages save is lost, and others may be reading there.
    let straight = if direct { pages } else { missing(pages) }
        .saturating_add(times(runs.requests, r.call_ns))
        .saturating_add(time(bytes, if run >= SMALL { r.pread_large } else { r.pread }));
    let copy = time(bytes, r.copy).saturating_add(pieces(nest, terms));
    match means.direction {
        Direction::Read => {
            let e = extents(nest, terms.gap, terms);
            let blocks = e.bytes.saturating_add(times(e.number, terms.block));
            let list = if direct {
                // Copies hide behind the disk, except for the last.
                disk(e, blocks, terms).max(copy)
            } else {
                missing(disk(e, blocks, terms))
                    .saturating_add(time(e.bytes, r.pread))
                    .saturating_add(copy)
            };
            // Many straight transfers of short runs are never worth it.
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
            // Pages that come one by one are folios of their own.
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
            // Parts of a page make the kernel read it first, one at a time.
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

/// Whether a write passes the page cache, because that would not hold it: large ones of long runs into
/// files that nobody else writes. A direct write has to take its range out of the cache, and where
/// somebody else dirties a folio that reaches into that range, the kernel cannot, and reports EIO at the
/// next `fsync`.
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

/// Whether a list passes the page cache. Writes do so in their own way (`writes_past`). Short reads go
/// through it, and bring what lies beside them, unless it would be gone before anybody asks for it.
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
    /// One sentence: why this method. Prices are for one chunk if `of_chunk`.
    pub fn why(&self, cached_permille: i64, of_chunk: bool) -> String {
        let name = self.method.name();
        if self.past {
            return format!(
                "{name}, past the page cache, because that would not hold what is written until its \
                 neighbours come"
            );
        }
        if self.forced {
            return format!("{name}, because a hint asks for it");
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
        // A quarter for each thread: half of the bytes by calls, half through the mapping.
        let mapped = self.prices[2].map_or(price, |(_, price)| price);
        let price = if self.halves { price.saturating_add(mapped) / 4 } else { price };
        let semicolon = if others.is_empty() { "" } else { "; " };
        let bought = match (self.rent, self.method) {
            (Some(_), Method::Mapped) => {
                "; earlier reads by calls have cost what it takes to enter the pages into the mapping"
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
