//! The 0-1 program of the paper's section 4.3, by branch and bound.
//!
//! For tests, for small cases, and for the two aims that no matching has: a bound on the bytes of a
//! rank, and the largest `alpha * load + beta * comm`. Both are NP-hard (section 4.1.2), so this
//! refuses what is large, and gives up after a fixed number of steps: counted, not timed, so that all
//! ranks give up together.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::items::{Items, Room};
use super::share::{Aim, Objective};
use crate::error::PlanError;

/// The most items and ranks that are tried.
const MOST_ITEMS: usize = 32;
const MOST_RANKS: usize = 32;
/// The most ranks that are tried for items: a second or so.
const MOST_STEPS: u64 = 20_000_000;

/// The rank of each item, and what was proven.
pub(super) fn solve(items: &Items<'_>, aim: &Aim) -> Result<(Vec<usize>, String), PlanError> {
    let (count, ranks) = (items.all.len(), items.readers.len());
    if count > MOST_ITEMS || ranks > MOST_RANKS {
        return Err(PlanError::TooManyToTry(format!(
            "{count} files or shares and {ranks} ranks; it goes up to {MOST_ITEMS} and {MOST_RANKS}"
        )));
    }
    let mut search = Search::new(items, aim);
    search.visit(0);
    if search.steps >= MOST_STEPS {
        return Err(PlanError::TooManyToTry(format!(
            "{count} files or shares and {ranks} ranks were not done after {MOST_STEPS} steps"
        )));
    }
    let Some(found) = search.best.take() else {
        return Err(PlanError::Unassignable(match aim.objective {
            Objective::TrafficUnder(most) => format!(
                "no way to give whole files to ranks has at most {most} bytes for each; raise \
                 max_load, or use method \"balanced\", which cuts large files"
            ),
            _ => "the ranks that may read the files cannot share them; use method \"balanced\""
                .to_owned(),
        }));
    };
    let mut places = vec![0; count];
    for (&item, &reader) in search.order.iter().zip(&found) {
        places[item] = items.readers[reader];
    }
    let proven = match aim.objective {
        Objective::Traffic => format!("least traffic, {}", items.model()),
        Objective::TrafficUnder(most) => {
            format!("least traffic, at most {most} bytes for each rank")
        }
        Objective::Cost => "least cost of the costliest rank".to_owned(),
    };
    Ok((places, format!("{proven}, proven in {} steps", search.steps)))
}

struct Search<'a> {
    items: &'a Items<'a>,
    /// Items by bytes, largest first: they decide most.
    order: Vec<usize>,
    /// What an item at depth *k* adds for reader *r*: `price[k][r]`, nothing if it may not.
    price: Vec<Vec<Option<i64>>>,
    /// The least that the items from depth *k* on can add: in all, and to reader *r*.
    rest: Vec<i64>,
    rest_of: Vec<Vec<i64>>,
    /// Of each reader the one before it whose requests are the same.
    twin: Vec<Option<usize>>,
    /// Whether the largest sum of a reader counts, or the sum of all.
    largest: bool,
    most_load: i64,
    counted: Option<Room>,
    sum: Vec<i64>,
    /// The largest sum of ranks that read nothing.
    idle: i64,
    load: Vec<i64>,
    count: Vec<usize>,
    path: Vec<usize>,
    found: i64,
    best: Option<Vec<usize>>,
    steps: u64,
}

impl<'a> Search<'a> {
    fn new(items: &'a Items<'a>, aim: &Aim) -> Search<'a> {
        let (requests, readers) = (items.requests, &items.readers);
        let mut order: Vec<usize> = (0..items.all.len()).collect();
        order.sort_by_key(|&item| (Reverse(items.all[item].bytes), item));
        let largest = aim.objective == Objective::Cost;
        let price_of = |rank: usize, item: usize| {
            let kept = items.kept(rank, item)?;
            let it = items.all[item];
            let comm = requests.sent(rank, it.file, it.bytes) - kept;
            Some(if largest { aim.alpha * it.bytes + aim.beta * comm } else { -kept })
        };
        let price: Vec<Vec<_>> = order
            .iter()
            .map(|&item| readers.iter().map(|&rank| price_of(rank, item)).collect())
            .collect();
        let depth = order.len();
        let (mut rest, mut rest_of) = (vec![0; depth + 1], vec![vec![0; readers.len()]; depth + 1]);
        for k in (0..depth).rev() {
            rest[k] = rest[k + 1] + price[k].iter().flatten().min().copied().unwrap_or(0);
            for reader in 0..readers.len() {
                rest_of[k][reader] = rest_of[k + 1][reader] + price[k][reader].unwrap_or(0).min(0);
            }
        }
        let same = |a: usize, b: usize| {
            let mut files = 0..requests.files();
            files.all(|f| {
                requests.of(a, f) == requests.of(b, f) && requests.may(a, f) == requests.may(b, f)
            })
        };
        let twin = |at: usize| (0..at).rev().find(|&b| same(readers[at], readers[b]));
        let wants =
            |rank: usize| -> i64 { (0..requests.files()).map(|f| requests.of(rank, f)).sum() };
        let base = |rank: usize| if largest { aim.beta * wants(rank) } else { 0 };
        let others = (0..requests.ranks()).filter(|rank| !readers.contains(rank));
        let counted = aim.objective == Objective::Traffic || items.dual();
        Search {
            items,
            price,
            rest,
            rest_of,
            twin: (0..readers.len()).map(twin).collect(),
            largest,
            most_load: match aim.objective {
                Objective::TrafficUnder(most) => most,
                _ => i64::MAX,
            },
            counted: counted.then(|| Room::new(items)),
            sum: readers.iter().map(|&rank| base(rank)).collect(),
            idle: others.map(base).max().unwrap_or(i64::MIN),
            load: vec![0; readers.len()],
            count: vec![0; readers.len()],
            path: Vec::with_capacity(depth),
            found: i64::MAX,
            best: None,
            steps: 0,
            order,
        }
    }

    /// No answer below this node is smaller than this.
    fn bound(&self) -> i64 {
        let depth = self.path.len();
        let all = self.sum.iter().sum::<i64>() + self.rest[depth];
        if !self.largest {
            return all;
        }
        let count = i64::try_from(self.sum.len()).unwrap_or(i64::MAX);
        let each = self.sum.iter().zip(&self.rest_of[depth]).map(|(sum, rest)| sum + rest);
        each.max().unwrap_or(0).max(all.div_euclid(count)).max(self.idle)
    }

    fn visit(&mut self, depth: usize) {
        if self.steps >= MOST_STEPS || (self.best.is_some() && self.bound() >= self.found) {
            return;
        }
        if depth == self.order.len() {
            self.found = self.bound();
            self.best = Some(self.path.clone());
            return;
        }
        let item = self.items.all[self.order[depth]];
        let mut readers: Vec<(i64, usize)> = self.price[depth]
            .iter()
            .enumerate()
            .filter_map(|(reader, price)| price.map(|price| (price, reader)))
            .collect();
        // What looks best first, so that a good answer is found early.
        if self.largest {
            readers.sort_by_key(|&(price, reader)| (self.sum[reader] + price, reader));
        } else {
            readers.sort_unstable();
        }
        for (price, reader) in readers {
            self.steps += 1;
            if !self.open(depth, reader, item.bytes) {
                continue;
            }
            self.step(reader, price, item.bytes, true);
            self.path.push(reader);
            self.visit(depth + 1);
            self.path.pop();
            self.step(reader, price, item.bytes, false);
        }
    }

    /// Whether the reader has room, and giving it the item is not the mirror of something else.
    fn open(&self, depth: usize, reader: usize, bytes: i64) -> bool {
        let rank = self.items.readers[reader];
        if self.counted.as_ref().is_some_and(|room| !room.has(rank)) {
            return false;
        }
        if bytes > self.most_load - self.load[reader] {
            return false;
        }
        // Of two equal ranks that have nothing yet, the lower one.
        if self.count[reader] == 0 && self.twin[reader].is_some_and(|twin| self.count[twin] == 0) {
            return false;
        }
        // Of two equal shares of one file, the first at the lower rank.
        let alike = depth > 0
            && self.items.all[self.order[depth]] == self.items.all[self.order[depth - 1]]
            && self.path.last().is_some_and(|&before| before > reader);
        !alike
    }

    fn step(&mut self, reader: usize, price: i64, bytes: i64, forward: bool) {
        let rank = self.items.readers[reader];
        if forward {
            self.sum[reader] += price;
            self.load[reader] += bytes;
            self.count[reader] += 1;
        } else {
            self.sum[reader] -= price;
            self.load[reader] -= bytes;
            self.count[reader] -= 1;
        }
        if let Some(room) = &mut self.counted {
            if forward {
                room.take(rank);
            } else {
                room.give_back(rank);
            }
        }
    }
}
