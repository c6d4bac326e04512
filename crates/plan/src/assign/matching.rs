//! The paper's second heuristic: a matching of maximum weight between items and ranks.
//!
//! The paper replicates each rank n/p times and matches one to one. Replicas of a rank are equal,
//! so here a rank is one column that takes several items: shortest augmenting paths (Jonker and
//! Volgenant) with columns of a capacity, and p columns instead of n. This finds the same optimum.
//!
//! Each rank must get `floor` items, and `extra` ranks one more. A rank therefore has a second
//! column of capacity one. For each second column that stays unused there is an item without bytes,
//! which can only be placed in a second column. All columns are full at the end, so `floor` is a
//! lower bound, too.
//!
//! Invariants: `v` is 0 for columns with capacity left and at most 0 for the others; for every item
//! *i* and column *c*, cost(i, c) - u(i) - v(c) is at least 0, and 0 if *i* is in *c*.
//!
//! Cost: O(m * (p*p + m*p)) in the worst case for m items; usually much less, as most paths are
//! short.

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use super::items::Items;
use crate::error::PlanError;

/// Distance above any path length; sums of bytes are checked to be far smaller.
const FAR: i64 = i64::MAX / 4;

/// The rank of each item.
pub(super) fn solve(items: &Items<'_>) -> Result<Vec<usize>, PlanError> {
    let mut state = State::new(items);
    for row in 0..state.rows {
        if !state.place(row) {
            return Err(PlanError::Unassignable(format!(
                "the eligible ranks cannot divide the files with {}; use method \"balanced\"",
                items.model()
            )));
        }
    }
    let ranks = state.at[..items.all.len()].iter().map(|&column| {
        // Columns 0..q are the regular places of the ranks, q..2q their extra places.
        items.readers[column % items.readers.len()]
    });
    Ok(ranks.collect())
}

struct State {
    /// Number of items, including those without bytes.
    rows: usize,
    real: usize,
    readers: usize,
    /// Bytes saved if the reader reads the item, as a negative cost; FAR if it may not.
    cost: Vec<i64>,
    capacity: Vec<usize>,
    members: Vec<Vec<usize>>,
    at: Vec<usize>,
    u: Vec<i64>,
    v: Vec<i64>,
}

impl State {
    fn new(items: &Items<'_>) -> State {
        let (real, readers) = (items.all.len(), items.readers.len());
        let mut cost = Vec::with_capacity(real * readers);
        for item in 0..real {
            let of = |&rank: &usize| items.kept(rank, item).map_or(FAR, |kept| -kept);
            cost.extend(items.readers.iter().map(of));
        }
        let mut capacity = vec![items.floor; readers];
        let mut rows = real;
        if items.extra > 0 {
            capacity.extend(core::iter::repeat_n(1, readers));
            rows += readers - items.extra;
        }
        State {
            rows,
            real,
            readers,
            cost,
            members: vec![vec![]; capacity.len()],
            v: vec![0; capacity.len()],
            at: vec![usize::MAX; rows],
            u: vec![0; rows],
            capacity,
        }
    }

    fn cost(&self, row: usize, column: usize) -> i64 {
        if row < self.real {
            return self.cost[row * self.readers + column % self.readers];
        }
        // Items without bytes are only for extra places.
        if column < self.readers {
            FAR
        } else {
            0
        }
    }

    /// Updates shorter paths through `row`, which is at distance `base`.
    fn scan(&self, row: usize, base: i64, search: &mut Search) {
        for column in 0..self.capacity.len() {
            let cost = self.cost(row, column);
            if search.done[column] || self.capacity[column] == 0 || cost == FAR {
                continue;
            }
            let far = base + cost - self.u[row] - self.v[column];
            if far < search.far[column] {
                search.far[column] = far;
                search.from[column] = row;
            }
        }
    }

    /// Places `row` by moving others along the shortest path; returns false if there is no path.
    fn place(&mut self, row: usize) -> bool {
        let columns = self.capacity.len();
        let mut search = Search {
            far: vec![FAR; columns],
            from: vec![usize::MAX; columns],
            done: vec![false; columns],
        };
        self.scan(row, 0, &mut search);
        let sink = loop {
            // Nearest first. A column with capacity ends the search, so it precedes full columns at
            // the same distance.
            let open = (0..columns).filter(|&c| !search.done[c] && search.far[c] < FAR);
            let full = |c: usize| self.members[c].len() >= self.capacity[c];
            let Some(next) = open.min_by_key(|&c| (search.far[c], full(c), c)) else {
                return false;
            };
            if !full(next) {
                break next;
            }
            search.done[next] = true;
            for &member in &self.members[next] {
                self.scan(member, search.far[next], &mut search);
            }
        };
        let length = search.far[sink];
        self.u[row] += length;
        for column in (0..columns).filter(|&c| search.done[c]) {
            let less = length - search.far[column];
            self.v[column] -= less;
            for at in 0..self.members[column].len() {
                let member = self.members[column][at];
                self.u[member] += less;
            }
        }
        self.shift(row, sink, &search.from);
        true
    }

    /// Moves every row on the path to its next column.
    fn shift(&mut self, start: usize, sink: usize, from: &[usize]) {
        let mut column = sink;
        loop {
            let row = from[column];
            let before = core::mem::replace(&mut self.at[row], column);
            self.members[column].push(row);
            if row == start {
                return;
            }
            self.members[before].retain(|&member| member != row);
            column = before;
        }
    }
}

/// State of one search for a shortest path.
struct Search {
    far: Vec<i64>,
    from: Vec<usize>,
    done: Vec<bool>,
}
