//! Items of the paper's model, and the number of items of each rank.
//!
//! Items are whole files, or equal shares of files if there are more ranks than files.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::requests::Requests;
use super::share::{by_rank, Share};
use crate::error::PlanError;

/// A file, or an equal share of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Item {
    pub file: usize,
    pub bytes: i64,
}

/// Items and the ranks that receive them: `floor` items each, and `extra` ranks one more.
pub(super) struct Items<'a> {
    pub requests: &'a Requests,
    pub readers: Vec<usize>,
    /// Items, with those of one file next to each other.
    pub all: Vec<Item>,
    pub floor: usize,
    pub extra: usize,
}

impl<'a> Items<'a> {
    pub fn new(requests: &'a Requests) -> Result<Items<'a>, PlanError> {
        let readers = requests.readers();
        if readers.is_empty() {
            return Err(PlanError::Unassignable("no rank is eligible; make one eligible".into()));
        }
        let files = requests.files();
        let mut all = Vec::new();
        if readers.len() <= files {
            all.extend((0..files).map(|file| Item { file, bytes: requests.size(file) }));
        } else {
            for (file, count) in readers_of_files(requests, readers.len()).into_iter().enumerate() {
                let (each, more) = match i64::try_from(count) {
                    Ok(count) if count > 0 => {
                        (requests.size(file) / count, requests.size(file) % count)
                    }
                    _ => continue,
                };
                let bytes = |at: usize| each + i64::from(i64::try_from(at).is_ok_and(|a| a < more));
                all.extend((0..count).map(|at| Item { file, bytes: bytes(at) }));
            }
        }
        let (floor, extra) = (all.len() / readers.len(), all.len() % readers.len());
        Ok(Items { requests, readers, all, floor, extra })
    }

    /// Returns whether there are more ranks than files.
    pub fn dual(&self) -> bool {
        self.readers.len() > self.requests.files()
    }

    /// The model as text.
    pub fn model(&self) -> String {
        match (self.dual(), self.extra) {
            (true, _) => "one share of one file for each rank, readers by bytes".to_owned(),
            (false, 0) => format!("{} whole files for each rank", self.floor),
            (false, _) => format!("{} or {} whole files for each rank", self.floor, self.floor + 1),
        }
    }

    /// Bytes that stay at `rank` if it reads the item; None if it may not.
    pub fn kept(&self, rank: usize, item: usize) -> Option<i64> {
        let Item { file, bytes } = self.all[item];
        self.requests.may(rank, file).then(|| self.requests.kept(rank, file, bytes))
    }

    /// The solution as shares.
    ///
    /// With more ranks than files, a file without requests goes to a rank with little load.
    pub fn shares(&self, places: &[usize]) -> Vec<Vec<Share>> {
        let mut shares = vec![vec![]; self.requests.files()];
        let mut load = vec![0; self.requests.ranks()];
        for (item, &rank) in self.all.iter().zip(places) {
            shares[item.file].push(Share { rank, bytes: item.bytes });
            load[rank] += item.bytes;
        }
        for (file, shares) in shares.iter_mut().enumerate() {
            by_rank(shares);
            let may = self.readers.iter().filter(|&&rank| self.requests.may(rank, file));
            if let (true, Some(&rank)) = (shares.is_empty(), may.min_by_key(|&&r| (load[r], r))) {
                shares.push(Share { rank, bytes: 0 });
            }
        }
        shares
    }
}

/// Capacity of ranks while items are assigned one by one.
#[derive(Debug, Clone)]
pub(super) struct Room {
    pub count: Vec<usize>,
    floor: usize,
    extra: usize,
}

impl Room {
    pub fn new(items: &Items<'_>) -> Room {
        let count = vec![0; items.requests.ranks()];
        Room { count, floor: items.floor, extra: items.extra }
    }

    pub fn has(&self, rank: usize) -> bool {
        self.count[rank] < self.floor || (self.count[rank] == self.floor && self.extra > 0)
    }

    pub fn take(&mut self, rank: usize) {
        if self.count[rank] >= self.floor {
            self.extra = self.extra.saturating_sub(1);
        }
        self.count[rank] += 1;
    }

    pub fn give_back(&mut self, rank: usize) {
        self.count[rank] -= 1;
        if self.count[rank] >= self.floor {
            self.extra += 1;
        }
    }
}

/// The number of readers of each file, the paper's `F_j`.
///
/// Readers are proportional to bytes, with at least one for each file that has bytes, and exactly
/// one for each file that must not be cut. All readers are used if possible. There are more readers
/// than files.
pub(super) fn readers_of_files(requests: &Requests, readers: usize) -> Vec<usize> {
    let sizes: Vec<i128> = (0..requests.files()).map(|file| requests.size(file).into()).collect();
    let total: i128 = sizes.iter().sum();
    let mut counts = vec![0usize; sizes.len()];
    if total == 0 {
        return counts;
    }
    let whole = i128::try_from(readers).unwrap_or(i128::MAX);
    // Exact number of readers of a file, in units of 1 / `total`, so that nothing is rounded twice.
    let exact: Vec<i128> = sizes.iter().map(|size| size.saturating_mul(whole)).collect();
    for (count, exact) in counts.iter_mut().zip(&exact) {
        *count = usize::try_from(exact / total).unwrap_or(0).max(usize::from(*exact > 0));
    }
    let cuttable = |file: usize| requests.cuttable(file);
    for (file, count) in counts.iter_mut().enumerate().filter(|(file, _)| !cuttable(*file)) {
        *count = usize::from(exact[file] > 0);
    }
    // Largest remainder. If the minimum of one reader per file uses too many readers, the files
    // most above their share give some back.
    let short = |file: usize, counts: &[usize]| {
        exact[file] - total * i128::try_from(counts[file]).unwrap_or(i128::MAX / 2)
    };
    let given: usize = counts.iter().sum();
    let mut balance = whole - i128::try_from(given).unwrap_or(whole);
    while balance != 0 {
        let some = (0..counts.len()).filter(|&file| exact[file] > 0);
        if balance > 0 {
            let some = some.filter(|&file| cuttable(file));
            let next = some.max_by_key(|&f| (short(f, &counts), core::cmp::Reverse(f)));
            let Some(next) = next else { break };
            counts[next] += 1;
            balance -= 1;
        } else {
            let many = some.filter(|&file| counts[file] > 1);
            let Some(next) = many.min_by_key(|&f| (short(f, &counts), f)) else { break };
            counts[next] -= 1;
            balance += 1;
        }
    }
    counts
}
