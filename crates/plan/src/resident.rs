//! Choice of the layout of a disk resident array.
//!
//! Problem: when a program creates an array, it states which sections it will read and write, and
//! how often. Row access needs one order, column access the other, and access to blocks needs
//! chunks. Chunks that are too small need too many requests; chunks that are too large, or whose
//! edges differ from those of the sections, transfer data that was not requested.
//!
//! Approach: a layout is an order and the edges of its chunks; a layout without chunks has one
//! chunk, the array. The cost of a section is computed by arithmetic. Along an axis a section meets
//! chunks, some wholly and some partly, and a run of the file ends where an axis is met partly.
//! Requests and bytes of all sections of one shape, tiled over the array, are therefore products of
//! sums along axes. Their time is estimated with the measured rates of the disk for every layout of
//! a small set, and the fastest layout is chosen.
//!
//! Invariants: pure, so equal input gives an equal layout on all ranks. A section is read run by
//! run, or with whole rows (planes, chunks) around the requested elements, whichever costs less:
//! data sieving. A chunk is at most one efficient request, and at most a sixteenth of the memory
//! budget. Plain files are preferred if their cost is about the same.
//!
//! Nieplocha, Foster, *Disk Resident Arrays: An Array-Oriented I/O Library for Out-of-Core Computations*, section 4
//! (layout by the typical request; aligned requests; chunks as large as a request).

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use crate::error::PlanError;
use crate::terms::Rates;

/// A request is efficient if its transfer takes at least this many times its latency.
const SMALL_PART: i128 = 64;
/// Minimum and maximum size of an efficient request, whatever the measured rates are.
const LEAST_REQUEST: i128 = 256 << 10;
const MOST_REQUEST: i128 = 16 << 20;
/// Number of chunks in the memory budget that are read, written and changed concurrently.
const CHUNKS_HELD: i128 = 16;
/// Approximate number of combinations of edges that are compared.
const CANDIDATES: usize = 40_000;
/// Maximum number of sections considered along an axis; their places among chunks recur.
const PLACES: i64 = 512;
/// Divisors of an edge of the typical section that give edges of chunks.
const DIVISORS: [i64; 22] =
    [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 32, 40, 48, 64, 100, 128, 256, 512];
/// Weights of estimated times, in hundredths.
///
/// Every program maps a plain file in C order, and every program reads one in Fortran order.
const PLAIN: [i128; 2] = [90, 95];

/// Shape of sections that a program will read and write, and their relative frequency.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Typical {
    /// Length along each axis, at least 1 and at most that of the array.
    pub shape: Vec<i64>,
    /// Relative frequency, at least 1.
    pub times: i64,
}

/// An order of elements, and the shape of their chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Form {
    /// True if the first axis runs fastest (Fortran order), not the last.
    pub fortran: bool,
    /// Shape of a chunk; None: the elements are stored one after another.
    pub chunk: Option<Vec<i64>>,
}

/// Layouts that a format supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// Elements stored one after another, in C order.
    pub plain: bool,
    /// Elements stored one after another, in Fortran order.
    pub plain_fortran: bool,
    /// Chunks.
    pub chunks: bool,
    /// Chunks with elements in Fortran order.
    pub chunks_fortran: bool,
    /// Each chunk is a separate file, which is opened before it is read.
    pub files: bool,
}

/// Average cost of the sections of one shape, over all places on their grid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Taken {
    /// Requests, in thousandths.
    pub requests: i64,
    /// Transferred bytes: requested bytes and those around them.
    pub bytes: i64,
    /// Nanoseconds.
    pub ns: i64,
}

/// A layout with the costs of the typical sections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// The layout.
    pub form: Form,
    /// Costs of each of the typical sections.
    pub taken: Vec<Taken>,
    /// Nanoseconds for all typical sections, weighted by frequency.
    pub ns: i64,
}

/// The array, and the disk that will store it.
#[derive(Debug, Clone)]
pub struct Site<'a> {
    /// Length of each axis.
    pub shape: &'a [i64],
    /// Bytes of an element.
    pub item: i64,
    /// Layouts that its format supports.
    pub offer: Offer,
    /// Measured rates of the disk.
    pub rates: &'a Rates,
    /// The memory budget, bytes.
    pub budget: i64,
}

/// Totals over all places of sections of one length along an axis.
#[derive(Debug, Clone, Copy, Default)]
struct Met {
    /// Chunks that the sections have wholly, or in part.
    whole: i128,
    part: i128,
    /// Number of elements.
    elements: i128,
    /// Number of places.
    places: i128,
}

impl Met {
    /// Counts sections of length `t`, tiled along an axis of length `n`, with chunks of length `e`.
    fn new(n: i64, t: i64, e: i64) -> Met {
        let mut met = Met::default();
        for k in 0..((n - 1) / t + 1).min(PLACES) {
            let (low, high) = (k * t, (k * t).saturating_add(t).min(n));
            let (first, last) = (low / e, (high - 1) / e);
            // Only the first and the last chunk can be partial; those between them are whole.
            let begins = low % e == 0;
            let ends = high % e == 0;
            let met_all = last - first + 1;
            let parts = match (first == last, begins && ends, begins, ends) {
                (_, true, ..) => 0,
                (true, ..) | (_, _, true, _) | (_, _, _, true) => 1,
                _ => 2,
            };
            met.whole += i128::from(met_all - parts);
            met.part += i128::from(parts);
            met.elements += i128::from(high - low);
            met.places += 1;
        }
        met
    }

    fn chunks(&self) -> i128 {
        self.whole + self.part
    }
}

/// Cost of sections in a form.
///
/// `axes` are ordered from the slowest to the fastest, each with the edge of a chunk.
fn taken(axes: &[(Met, i64)], item: i64, files: bool, rates: &Rates) -> Taken {
    let product = |of: &mut dyn Iterator<Item = i128>| of.fold(1_i128, i128::saturating_mul);
    let places = product(&mut axes.iter().map(|(met, _)| met.places)).max(1);
    let chunks = product(&mut axes.iter().map(|(met, _)| met.chunks()));
    let opened = if files { chunks } else { 0 };
    let mut best: Option<(i128, i128, i128)> = None;
    // Along the axes from `level` on, whole chunks are read.
    for level in 0..=axes.len() {
        let (outer, inner) = axes.split_at(level);
        // Runs that continue past the end of an axis, and runs that ended within one.
        let mut joined = product(&mut inner.iter().map(|(met, _)| met.chunks()));
        let mut ended = 0_i128;
        let mut bytes = inner.iter().fold(i128::from(item), |bytes, (met, edge)| {
            bytes.saturating_mul(met.chunks()).saturating_mul(i128::from(*edge))
        });
        for (met, _) in outer.iter().rev() {
            ended =
                ended.saturating_mul(met.elements).saturating_add(joined.saturating_mul(met.part));
            joined = joined.saturating_mul(met.whole);
            bytes = bytes.saturating_mul(met.elements);
        }
        let requests = joined.saturating_add(ended);
        let latency = requests.saturating_add(opened).saturating_mul(i128::from(rates.latency_ns));
        let moved = bytes.saturating_mul(1_000_000_000) / i128::from(rates.device.max(1));
        let ns = latency.saturating_add(moved);
        if best.is_none_or(|(least, ..)| ns < least) {
            best = Some((ns, requests, bytes));
        }
    }
    let (ns, requests, bytes) = best.unwrap_or_default();
    let each = |n: i128| i64::try_from(n / places).unwrap_or(i64::MAX);
    Taken {
        requests: each(requests.saturating_add(opened).saturating_mul(1000)),
        bytes: each(bytes),
        ns: each(ns),
    }
}

/// Cost of one shape of sections in a form.
pub fn price(site: &Site<'_>, form: &Form, typical: &Typical) -> Taken {
    let whole: Vec<i64> = site.shape.iter().map(|n| (*n).max(1)).collect();
    let chunk = form.chunk.as_deref().unwrap_or(&whole);
    let mut axes: Vec<(Met, i64)> = (whole.iter().zip(&typical.shape).zip(chunk))
        .map(|((n, t), e)| (Met::new(*n, *t, (*e).max(1)), (*e).max(1)))
        .collect();
    if form.fortran {
        axes.reverse();
    }
    let files = site.offer.files && form.chunk.is_some();
    taken(&axes, site.item, files, site.rates)
}

/// Maximum size of a chunk, bytes: an efficient request, limited by the budget.
pub fn largest_chunk(rates: &Rates, budget: i64, item: i64) -> i64 {
    let bytes = i128::from(rates.latency_ns.max(0)) * i128::from(rates.device.max(1));
    let efficient =
        (SMALL_PART.saturating_mul(bytes) / 1_000_000_000).clamp(LEAST_REQUEST, MOST_REQUEST);
    let held = efficient.min(i128::from(budget.max(0)) / CHUNKS_HELD);
    i64::try_from(held).unwrap_or(i64::MAX).max(item.max(1))
}

/// Candidate edges of chunks along one axis: parts and multiples of the typical edge, and the axis.
fn edges(n: i64, wanted: &[i64], most: usize) -> Vec<i64> {
    let mut kept: Vec<i64> = wanted.to_vec();
    kept.sort_unstable();
    kept.dedup();
    let mut more = vec![n];
    for t in wanted {
        // Divisors of the typical edge are aligned with it.
        more.extend(DIVISORS.iter().filter(|k| t % *k == 0).map(|k| t / k));
        more.extend(DIVISORS.iter().map(|k| (t - 1) / k + 1));
        // So are its multiples.
        more.extend(DIVISORS.iter().filter_map(|k| t.checked_mul(*k)).filter(|e| *e < n));
    }
    more.sort_unstable();
    more.dedup();
    more.retain(|e| !kept.contains(e));
    let room = most.saturating_sub(kept.len());
    if room > 0 && !more.is_empty() {
        // An even selection that includes the largest edge.
        let number = more.len();
        let take = room.min(number);
        kept.extend((0..take).map(|k| more[number - 1 - k * number / take]));
    }
    kept.truncate(most.max(1));
    kept.sort_unstable();
    kept
}

/// All candidate edges, for each axis.
fn candidates(shape: &[i64], typical: &[Typical]) -> Vec<Vec<i64>> {
    let mut left = CANDIDATES;
    // An axis of length 1 has one edge; so do axes for which no candidates are left.
    let mut long = shape.iter().filter(|n| **n > 1).count();
    let mut all = Vec::with_capacity(shape.len());
    for (axis, n) in shape.iter().enumerate() {
        let wanted: Vec<i64> = typical.iter().map(|t| t.shape[axis]).collect();
        let most = if *n > 1 { root(left, long) } else { 1 };
        let found = edges((*n).max(1), &wanted, most);
        if *n > 1 {
            long -= 1;
        }
        left = (left / found.len().max(1)).max(1);
        all.push(found);
    }
    all
}

/// The largest integer whose `number`-th power is at most `n`.
fn root(n: usize, number: usize) -> usize {
    let fits = |k: &usize| k.checked_pow(number.max(1) as u32).is_some_and(|all| all <= n);
    (1..=n.min(512)).take_while(fits).last().unwrap_or(1)
}

/// All possible forms of an array, the best of each kind: plain, plain in Fortran order, chunks.
///
/// The first form is the choice; the others are its alternatives.
pub fn choose(site: &Site<'_>, typical: &[Typical]) -> Result<Vec<Chosen>, PlanError> {
    check(site, typical)?;
    let mut kinds: Vec<(i128, Chosen)> = Vec::new();
    let plain = |fortran| Form { fortran, chunk: None };
    for (fortran, offered) in [(false, site.offer.plain), (true, site.offer.plain_fortran)] {
        // With at most one axis longer than 1, both orders are the same.
        let same = fortran && site.offer.plain && site.shape.iter().filter(|n| **n > 1).count() < 2;
        if offered && !same {
            let chosen = chosen(site, typical, plain(fortran));
            kinds.push((i128::from(chosen.ns) * PLAIN[usize::from(fortran)], chosen));
        }
    }
    if site.offer.chunks {
        let chosen = best_chunks(site, typical);
        kinds.push((i128::from(chosen.ns) * 100, chosen));
    }
    kinds.sort_by_key(|(weighed, _)| *weighed);
    if kinds.is_empty() {
        let why = "its format supports neither contiguous elements nor chunks".into();
        return Err(PlanError::BadLayout(why));
    }
    Ok(kinds.into_iter().map(|(_, chosen)| chosen).collect())
}

fn check(site: &Site<'_>, typical: &[Typical]) -> Result<(), PlanError> {
    let fits = |t: &Typical| {
        t.shape.len() == site.shape.len()
            && t.times >= 1
            && t.shape.iter().zip(site.shape).all(|(t, n)| (1..=(*n).max(1)).contains(t))
    };
    match typical.iter().find(|t| !fits(t)) {
        None => Ok(()),
        Some(t) => Err(PlanError::BadSection {
            what: format!("of shape {:?}, {} times,", t.shape, t.times),
            why: "typical sections must have at least 1 index along each axis, at most as many as the \
                  array, and a frequency of at least 1",
        }),
    }
}

fn chosen(site: &Site<'_>, typical: &[Typical], form: Form) -> Chosen {
    let taken: Vec<Taken> = typical.iter().map(|t| price(site, &form, t)).collect();
    let each = taken.iter().zip(typical).map(|(took, t)| i128::from(took.ns) * i128::from(t.times));
    let ns = i64::try_from(each.fold(0_i128, i128::saturating_add)).unwrap_or(i64::MAX);
    Chosen { form, taken, ns }
}

/// The chunks with the least cost for the typical sections; among equal ones the smaller.
fn best_chunks(site: &Site<'_>, typical: &[Typical]) -> Chosen {
    let most = i128::from(largest_chunk(site.rates, site.budget, site.item));
    let all = candidates(site.shape, typical);
    // The counts of each axis for each edge and each typical section, computed once.
    let met: Vec<Vec<Vec<Met>>> = (all.iter().enumerate())
        .map(|(axis, edges)| {
            let of = |e: &i64| {
                let n = site.shape[axis].max(1);
                typical.iter().map(|t| Met::new(n, t.shape[axis], *e)).collect()
            };
            edges.iter().map(of).collect()
        })
        .collect();
    let mut best: Option<(i128, i128, bool, Vec<usize>)> = None;
    let mut at = vec![0_usize; all.len()];
    loop {
        let bytes = (at.iter().zip(&all))
            .fold(i128::from(site.item), |n, (k, edges)| n.saturating_mul(i128::from(edges[*k])));
        if bytes <= most {
            for fortran in
                [false, true].into_iter().take(1 + usize::from(site.offer.chunks_fortran))
            {
                let ns = (typical.iter().enumerate()).fold(0_i128, |sum, (number, t)| {
                    let mut axes: Vec<(Met, i64)> = (at.iter().enumerate())
                        .map(|(axis, k)| (met[axis][*k][number], all[axis][*k]))
                        .collect();
                    if fortran {
                        axes.reverse();
                    }
                    let took = taken(&axes, site.item, site.offer.files, site.rates);
                    sum.saturating_add(i128::from(took.ns).saturating_mul(i128::from(t.times)))
                });
                let better = best.as_ref().is_none_or(|b| (ns, bytes, fortran) < (b.0, b.1, b.2));
                if better {
                    best = Some((ns, bytes, fortran, at.clone()));
                }
            }
        }
        // The next combination.
        let Some(axis) = (0..at.len()).rev().find(|d| at[*d] + 1 < all[*d].len()) else { break };
        at[axis] += 1;
        at[axis + 1..].fill(0);
    }
    let form = match best {
        Some((_, _, fortran, at)) => {
            let chunk = at.iter().zip(&all).map(|(k, edges)| edges[*k]).collect();
            Form { fortran, chunk: Some(chunk) }
        }
        // No combination is small enough: the typical section, with its longest axis halved until
        // it fits.
        None => Form { fortran: false, chunk: Some(halved(site, typical, most)) },
    };
    chosen(site, typical, form)
}

fn halved(site: &Site<'_>, typical: &[Typical], most: i128) -> Vec<i64> {
    let mut chunk = typical.first().map_or_else(|| site.shape.to_vec(), |t| t.shape.clone());
    chunk.iter_mut().for_each(|e| *e = (*e).max(1));
    while chunk.iter().fold(i128::from(site.item), |n, e| n.saturating_mul(i128::from(*e))) > most {
        let Some(longest) = chunk.iter_mut().max().filter(|e| **e > 1) else { break };
        *longest = (*longest - 1) / 2 + 1;
    }
    chunk
}

#[cfg(test)]
#[path = "resident/tests.rs"]
mod tests;
