//! The default solver: minimal largest load first, then little traffic.
//!
//! The paper assigns n/p files to each rank whatever their sizes, and states that this "might
//! decrease the performance if the variance between the data sizes is large". This solver balances
//! bytes instead:
//!
//! 1. Files larger than a fair share (all bytes / readers) are cut later, if they may be cut; the
//!    others stay whole.
//! 2. Whole files are placed largest first on the least loaded rank, then moved and swapped while
//!    the largest load decreases. A search of a fixed number of steps follows, which is complete
//!    for few files. The resulting largest load is at most 4/3 of the minimum. This load plus 1/64
//!    of it is the *bound*.
//! 3. Within the bound, files are moved and swapped while traffic decreases, from two starts: the
//!    placement of step 2, and the matching of maximum weight if it keeps the bound. The result is
//!    therefore never worse than the matching in (largest load, traffic).
//! 4. Large files are split over the free capacity below the bound, first to ranks that request
//!    most of them. All ranks then read the same amount, except that parts below 1/16 of a fair
//!    share are avoided.
//!
//! Cost: O(m log m + m*p) for the start. Each pass of moves and swaps takes O(m*p + m*m), but tries
//! at most a fixed number of pairs. The matching is computed only if it is small enough.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::items::{Item, Items};
use super::matching;
use super::requests::Requests;
use super::share::{by_rank, Share};

/// Maximum number of nodes of the search for a more even placement.
///
/// This is enough to find the best placement of about 15 files, in at most a millisecond.
const MOST_STEPS: usize = 20_000;
/// Maximum number of files for the search; also its depth.
const MOST_SEARCHED: usize = 64;
/// Maximum number of passes over all moves and swaps.
const PASSES: usize = 32;
/// Maximum number of pairs of files tried for swaps: some tenths of a second.
const MOST_PAIRS: usize = 1 << 24;
/// Maximum number of steps (files * files * ranks) of a matching.
const MOST_MATCHING: usize = 1 << 28;

/// The shares of each file, and an explanation.
pub(super) fn solve(requests: &Requests) -> (Vec<Vec<Share>>, String) {
    let readers = requests.readers();
    let fair = requests.fair(readers.len());
    let cut = |file: usize| {
        let may = readers.iter().filter(|&&rank| requests.may(rank, file)).count();
        requests.size(file) > fair + fair / 16 && may > 1 && requests.cuttable(file)
    };
    let (large, small): (Vec<usize>, Vec<usize>) = (0..requests.files()).partition(|&f| cut(f));

    let mut why = format!("largest load first, then traffic; a fair share is {fair} bytes");
    let mut first = Placing::largest_first(requests, &readers, &small);
    first.level(fair);
    first.search(fair);
    let mut starts = vec![first];
    if small.len().saturating_mul(small.len()).saturating_mul(readers.len()) <= MOST_MATCHING {
        starts.extend(Placing::matched(requests, &readers, &small));
    } else {
        why.push_str("; only moves and swaps, because there are too many files for a matching");
    }
    let least = starts.iter().map(Placing::largest).min().unwrap_or(0);
    // Loads that differ by less than 1/64 take the disk equally long, so traffic takes precedence
    // over the difference. The bound is at most the load of the matching, so that the result is
    // never worse.
    let matched = starts.get(1).map_or(i64::MAX, Placing::largest).max(least);
    let bound = matched.min(least + least / 64).max(if large.is_empty() { 0 } else { fair });
    starts.retain(|start| start.largest() <= bound);
    for start in &mut starts {
        start.save_traffic(bound);
    }
    // The first of several equal candidates: max_by_key takes the last, so the order is reversed.
    let best = starts.into_iter().rev().max_by_key(Placing::kept);

    let mut shares = vec![vec![]; requests.files()];
    if let Some(best) = best {
        for (&file, &rank) in small.iter().zip(&best.place) {
            shares[file].push(Share { rank, bytes: requests.size(file) });
        }
        let mut load = best.load;
        pour(requests, &readers, large.clone(), bound, fair / 16, &mut load, &mut shares);
    }
    match large.len() {
        0 => {}
        1 => why.push_str("; 1 larger file is cut"),
        many => why.push_str(&format!("; {many} larger files are cut")),
    }
    (shares, why)
}

/// A placement of whole files on ranks.
struct Placing<'a> {
    requests: &'a Requests,
    readers: &'a [usize],
    files: &'a [usize],
    /// The rank of each file.
    place: Vec<usize>,
    load: Vec<i64>,
    /// Number of pairs of files that may still be tried.
    ///
    /// The limit is a count and not a time, so that all ranks stop at the same pair.
    pairs: usize,
}

impl<'a> Placing<'a> {
    /// Places the largest file first, on the least loaded rank.
    ///
    /// Among equally loaded ranks, the one that requests most of the file gets it.
    fn largest_first(requests: &'a Requests, readers: &'a [usize], files: &'a [usize]) -> Self {
        let mut order: Vec<usize> = (0..files.len()).collect();
        order.sort_by_key(|&at| (Reverse(requests.size(files[at])), at));
        let mut place = vec![0; files.len()];
        let mut load = vec![0; requests.ranks()];
        for at in order {
            let file = files[at];
            let may = readers.iter().copied().filter(|&rank| requests.may(rank, file));
            let key = |&rank: &usize| (load[rank], Reverse(requests.of(rank, file)), rank);
            let rank = may.min_by_key(key).unwrap_or(0);
            place[at] = rank;
            load[rank] += requests.size(file);
        }
        Placing { requests, readers, files, place, load, pairs: MOST_PAIRS }
    }

    /// The placement with equally many files per rank and least traffic.
    ///
    /// None if the eligible ranks do not allow it.
    fn matched(requests: &'a Requests, readers: &'a [usize], files: &'a [usize]) -> Option<Self> {
        let item = |&file: &usize| Item { file, bytes: requests.size(file) };
        let items = Items {
            requests,
            readers: readers.to_vec(),
            all: files.iter().map(item).collect(),
            floor: files.len() / readers.len(),
            extra: files.len() % readers.len(),
        };
        let place = matching::solve(&items).ok()?;
        let mut load = vec![0; requests.ranks()];
        for (&file, &rank) in files.iter().zip(&place) {
            load[rank] += requests.size(file);
        }
        Some(Placing { requests, readers, files, place, load, pairs: MOST_PAIRS })
    }

    fn largest(&self) -> i64 {
        self.load.iter().copied().max().unwrap_or(0)
    }

    fn size(&self, at: usize) -> i64 {
        self.requests.size(self.files[at])
    }

    fn may(&self, rank: usize, at: usize) -> bool {
        self.requests.may(rank, self.files[at])
    }

    /// Bytes of the file that stay at `rank` if that rank reads it.
    fn kept_at(&self, rank: usize, at: usize) -> i64 {
        self.requests.kept(rank, self.files[at], self.size(at))
    }

    fn kept(&self) -> i64 {
        self.place.iter().enumerate().map(|(at, &rank)| self.kept_at(rank, at)).sum()
    }

    fn put(&mut self, at: usize, rank: usize) {
        let size = self.size(at);
        self.load[self.place[at]] -= size;
        self.load[rank] += size;
        self.place[at] = rank;
    }

    /// Moves and swaps files of the most loaded rank until all loads are within `enough`.
    ///
    /// It stops earlier if no move lowers the larger load of the two ranks.
    fn level(&mut self, enough: i64) {
        // Every step lowers a largest load, so the loop terminates, but the number of steps has no
        // known bound.
        for _ in 0..self.files.len().saturating_mul(4) {
            let top = self.largest();
            let Some(from) = self.load.iter().position(|&load| load == top) else { return };
            let Some((at, rank, back)) = (top > enough).then(|| self.lower(from)).flatten() else {
                return;
            };
            self.put(at, rank);
            if let Some(other) = back {
                self.put(other, from);
            }
        }
    }

    /// Searches for a placement with a smaller largest load.
    ///
    /// The search is depth first, with the largest file first and the least loaded rank first. Its
    /// limit is a number of steps, so that all ranks stop at the same step.
    fn search(&mut self, enough: i64) {
        if self.files.len() > MOST_SEARCHED {
            return;
        }
        let mut order: Vec<usize> = (0..self.files.len()).collect();
        order.sort_by_key(|&at| (Reverse(self.size(at)), at));
        let start = Placing { place: vec![usize::MAX; order.len()], ..self.empty() };
        let mut search =
            Search { now: start, order, most: self.largest(), enough, steps: 0, best: None };
        search.visit(0);
        if let Some((place, load)) = search.best {
            (self.place, self.load) = (place, load);
        }
    }

    fn empty(&self) -> Placing<'a> {
        let load = vec![0; self.load.len()];
        Placing { place: vec![], load, ..*self }
    }

    /// The best way to reduce the load of `from`: a file, its new rank, a file in exchange.
    fn lower(&mut self, from: usize) -> Option<(usize, usize, Option<usize>)> {
        let mut best = (self.load[from], None);
        for at in 0..self.files.len() {
            if self.place[at] != from || self.size(at) == 0 {
                continue;
            }
            for &rank in self.readers.iter().filter(|&&rank| rank != from && self.may(rank, at)) {
                let after = (self.load[from] - self.size(at)).max(self.load[rank] + self.size(at));
                if after < best.0 {
                    best = (after, Some((at, rank, None)));
                }
            }
            if !self.afford_pairs() {
                continue;
            }
            for other in 0..self.files.len() {
                let (rank, less) = (self.place[other], self.size(at) - self.size(other));
                if rank == from || less <= 0 || !self.may(rank, at) || !self.may(from, other) {
                    continue;
                }
                let after = (self.load[from] - less).max(self.load[rank] + less);
                if after < best.0 {
                    best = (after, Some((at, rank, Some(other))));
                }
            }
        }
        best.1
    }

    /// Returns whether one file may still be tried with all others.
    fn afford_pairs(&mut self) -> bool {
        let enough = self.pairs >= self.files.len();
        self.pairs = self.pairs.saturating_sub(self.files.len());
        enough
    }

    /// Moves and swaps files while traffic decreases and no load exceeds `bound`.
    fn save_traffic(&mut self, bound: i64) {
        for _ in 0..PASSES {
            let mut better = false;
            for at in 0..self.files.len() {
                better |= self.move_for_traffic(at, bound);
                if self.afford_pairs() {
                    better |= self.swap_for_traffic(at, bound);
                }
            }
            if !better {
                return;
            }
        }
    }

    fn move_for_traffic(&mut self, at: usize, bound: i64) -> bool {
        let mut best = (self.kept_at(self.place[at], at), None);
        for &rank in self.readers {
            let fits = rank != self.place[at] && self.load[rank] + self.size(at) <= bound;
            if fits && self.may(rank, at) && self.kept_at(rank, at) > best.0 {
                best = (self.kept_at(rank, at), Some(rank));
            }
        }
        if let Some(rank) = best.1 {
            self.put(at, rank);
        }
        best.1.is_some()
    }

    fn swap_for_traffic(&mut self, at: usize, bound: i64) -> bool {
        let from = self.place[at];
        let mut best = (0, None);
        for other in 0..self.files.len() {
            let (rank, more) = (self.place[other], self.size(at) - self.size(other));
            let fits = self.load[rank] + more <= bound && self.load[from] - more <= bound;
            if rank == from || !fits || !self.may(rank, at) || !self.may(from, other) {
                continue;
            }
            let now = self.kept_at(from, at) + self.kept_at(rank, other);
            let gain = self.kept_at(rank, at) + self.kept_at(from, other) - now;
            if gain > best.0 {
                best = (gain, Some(other));
            }
        }
        if let Some(other) = best.1 {
            let rank = self.place[other];
            self.put(at, rank);
            self.put(other, from);
        }
        best.1.is_some()
    }
}

struct Search<'a> {
    now: Placing<'a>,
    order: Vec<usize>,
    /// The largest load that a solution must be below.
    most: i64,
    enough: i64,
    steps: usize,
    best: Option<(Vec<usize>, Vec<i64>)>,
}

impl Search<'_> {
    fn visit(&mut self, depth: usize) {
        let Some(&at) = self.order.get(depth) else {
            self.most = self.now.largest();
            self.best = Some((self.now.place.clone(), self.now.load.clone()));
            return;
        };
        let size = self.now.size(at);
        let may = self.now.readers.iter().copied().filter(|&rank| self.now.may(rank, at));
        let mut ranks: Vec<_> = may.map(|rank| (self.now.load[rank], rank)).collect();
        ranks.sort_unstable();
        // Ranks with equal load differ only if they may not read the same files.
        if !self.now.requests.restricted() {
            ranks.dedup_by_key(|(load, _)| *load);
        }
        for (load, rank) in ranks {
            self.steps += 1;
            if self.steps > MOST_STEPS || self.most <= self.enough || load + size >= self.most {
                return;
            }
            self.now.place[at] = rank;
            self.now.load[rank] = load + size;
            self.visit(depth + 1);
            self.now.load[rank] = load;
        }
    }
}

/// Splits large files over the free capacity below `bound`. Parts of less than `least` are avoided.
fn pour(
    requests: &Requests,
    readers: &[usize],
    mut large: Vec<usize>,
    bound: i64,
    least: i64,
    load: &mut [i64],
    shares: &mut [Vec<Share>],
) {
    large.sort_by_key(|&file| (Reverse(requests.size(file)), file));
    for file in large {
        let mut left = requests.size(file);
        while left > 0 {
            let may = |&&rank: &&usize| requests.may(rank, file);
            let open = readers.iter().filter(may).filter(|&&rank| load[rank] < bound);
            let best = open.max_by_key(|&&rank| {
                let free = bound - load[rank];
                let kept = requests.kept(rank, file, free.min(left));
                (free >= least.min(left), kept, free, Reverse(rank))
            });
            let (rank, part) = match best {
                // The remainder would be too small for a separate part.
                Some(&rank) if left - (bound - load[rank]) <= least => (rank, left),
                Some(&rank) => (rank, bound - load[rank]),
                // All ranks that may read the file are full. This occurs only with restricted
                // eligibility.
                None => {
                    let rank = readers.iter().filter(may).min_by_key(|&&r| (load[r], r));
                    (rank.copied().unwrap_or(0), left)
                }
            };
            load[rank] += part;
            left -= part;
            shares[file].push(Share { rank, bytes: part });
        }
        by_rank(&mut shares[file]);
    }
}
