//! Branch and bound for the 0-1 program of the paper's section 4.3.
//!
//! This solver is for tests, small cases, and two objectives that no matching solves: a limit on
//! the bytes of a rank, and the largest `alpha * load + beta * comm`. Both are NP-hard (section
//! 4.1.2). The solver therefore rejects large cases, and aborts after a fixed number of steps. The
//! limit is a count and not a time, so that all ranks abort at the same step.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::items::{Items, Room};
use super::share::{Aim, Objective};
use crate::error::PlanError;

/// Maximum number of items and of ranks.
const MOST_ITEMS: usize = 32;
const MOST_RANKS: usize = 32;
/// Maximum number of ranks tried for items: about a second.
const MOST_STEPS: u64 = 20_000_000;

/// The rank of each item, and a description of the proof.
pub(super) fn solve(items: &Items<'_>, aim: &Aim) -> Result<(Vec<usize>, String), PlanError> {
    let (count, ranks) = (items.all.len(), items.readers.len());
    if count > MOST_ITEMS || ranks > MOST_RANKS {
        return Err(PlanError::TooManyToTry(format!(
            "{count} files or shares and {ranks} ranks are more than {MOST_ITEMS} and {MOST_RANKS}"
        )));
    }
    let mut search = Search::new(items, aim);
    search.visit(0);
    if search.steps >= MOST_STEPS {
        return Err(PlanError::TooManyToTry(format!(
            "{count} files or shares and {ranks} ranks take more than {MOST_STEPS} steps"
        )));
    }
    let Some(found) = search.best.take() else {
        return Err(PlanError::Unassignable(match aim.objective {
            Objective::TrafficUnder(most) => format!(
                "whole files cannot be assigned with at most {most} bytes for each rank; raise \
                 max_load, or use method \"balanced\", which cuts large files"
            ),
            _ => "the eligible ranks cannot divide the files; use method \"balanced\"".to_owned(),
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
    /// Items by bytes, largest first, because these affect the result most.
    order: Vec<usize>,
    /// Cost of an item at depth *k* for reader *r*: `price[k][r]`.
    ///
    /// None if the reader may not read the item.
    price: Vec<Vec<Option<i64>>>,
    /// Lower bounds of the cost of the items from depth *k* on: in total, and for reader *r*.
    rest: Vec<i64>,
    rest_of: Vec<Vec<i64>>,
    /// For each reader, an earlier reader with the same requests.
    twin: Vec<Option<usize>>,
    /// True if the largest sum of a reader is minimized, false for the sum of all.
    largest: bool,
    most_load: i64,
    counted: Option<Room>,
    sum: Vec<i64>,
    /// The largest sum of ranks that read no file.
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

    /// Lower bound of all solutions below this node.
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
        // The most promising reader first, so that a good solution is found early.
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

    /// Returns whether the reader has capacity and the item makes no mirror of another solution.
    fn open(&self, depth: usize, reader: usize, bytes: i64) -> bool {
        let rank = self.items.readers[reader];
        if self.counted.as_ref().is_some_and(|room| !room.has(rank)) {
            return false;
        }
        if bytes > self.most_load - self.load[reader] {
            return false;
        }
        // Among two equal ranks without items, only the lower one is tried.
        if self.count[reader] == 0 && self.twin[reader].is_some_and(|twin| self.count[twin] == 0) {
            return false;
        }
        // Among two equal shares of one file, the first goes to the lower rank.
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
