//! The matrix of requests, its checks, and the costs of a solution.
//!
//! The matrix has the bytes of each file that each rank requests.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::share::{Aim, Assignment, Share, Solver};
use crate::error::PlanError;

/// Sums of bytes stay below this limit, so that adding a few of them cannot overflow.
const MOST: i128 = (i64::MAX / 16) as i128;

/// Number of bytes of each file that each rank requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requests {
    ranks: usize,
    files: usize,
    /// Row by row: `bytes[rank * files + file]`.
    bytes: Vec<i64>,
    /// Requested bytes of each file, counted once for each rank that requests them.
    wanted: Vec<i64>,
    /// Bytes of each file that must be read.
    sizes: Vec<i64>,
    /// Eligibility of ranks to read files; all are eligible if empty.
    eligible: Vec<bool>,
    /// Columns with the same number are parts of one file; empty without groups.
    groups: Vec<i64>,
    /// True for columns that are never cut; empty if all may be cut.
    whole: Vec<bool>,
}

impl Requests {
    /// Creates a matrix of `ranks` rows, stored one after another.
    pub fn new(ranks: usize, files: usize, bytes: Vec<i64>) -> Result<Requests, PlanError> {
        if ranks == 0 || ranks.checked_mul(files) != Some(bytes.len()) {
            return Err(bad(format!(
                "{} numbers do not form a {ranks} x {files} matrix",
                bytes.len()
            )));
        }
        let mut wanted = vec![0i128; files];
        for (at, &one) in bytes.iter().enumerate() {
            if one < 0 {
                let (rank, file) = (at / files, at % files);
                return Err(bad(format!("rank {rank} requests {one} bytes of file {file}")));
            }
            wanted[at % files] += i128::from(one);
        }
        let wanted = checked(&wanted)?;
        let sizes = wanted.clone();
        let (eligible, groups, whole) = (vec![], vec![], vec![]);
        Ok(Requests { ranks, files, bytes, wanted, sizes, eligible, groups, whole })
    }

    /// Sets the bytes that must be read of each file, if they differ from the sum of the requests.
    ///
    /// They are less if several ranks request the same bytes, and more if gaps are read, too.
    pub fn with_sizes(mut self, sizes: Vec<i64>) -> Result<Requests, PlanError> {
        if sizes.len() != self.files {
            return Err(bad(format!("there are {} sizes for {} files", sizes.len(), self.files)));
        }
        for (file, &size) in sizes.iter().enumerate() {
            let most = (0..self.ranks).map(|rank| self.of(rank, file)).max().unwrap_or(0);
            if size < most {
                return Err(bad(format!(
                    "file {file} has {size} bytes to be read, but one rank requests {most} bytes"
                )));
            }
        }
        self.sizes = checked(&sizes.iter().map(|&size| i128::from(size)).collect::<Vec<_>>())?;
        Ok(self)
    }

    /// Sets the ranks that may read each file: `ranks x files`, row by row.
    pub fn with_eligible(mut self, eligible: Vec<bool>) -> Result<Requests, PlanError> {
        if eligible.len() != self.bytes.len() {
            return Err(bad(format!(
                "eligible has {} entries for {} ranks and {} files",
                eligible.len(),
                self.ranks,
                self.files
            )));
        }
        self.eligible = eligible;
        match (0..self.files).find(|&file| !(0..self.ranks).any(|rank| self.may(rank, file))) {
            Some(file) => Err(PlanError::Unassignable(format!(
                "no rank is eligible to read file {file}; make one of them eligible"
            ))),
            None => Ok(self),
        }
    }

    /// Sets a group number for each column; columns of the same group prefer the same owner.
    pub fn with_groups(mut self, groups: Vec<i64>) -> Result<Requests, PlanError> {
        if groups.len() != self.files {
            return Err(bad(format!("there are {} groups for {} files", groups.len(), self.files)));
        }
        self.groups = groups;
        Ok(self)
    }

    /// Sets the columns that a single rank must read or write.
    ///
    /// These columns are never cut. The columns of one group stay together, whatever the load of
    /// their rank, if the same ranks may have them.
    pub fn with_whole(mut self, whole: Vec<bool>) -> Result<Requests, PlanError> {
        if whole.len() != self.files {
            return Err(bad(format!("whole has {} entries for {} files", whole.len(), self.files)));
        }
        self.whole = whole;
        Ok(self)
    }

    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// Number of files.
    pub fn files(&self) -> usize {
        self.files
    }

    /// Number of bytes of a file that a rank requests.
    pub fn of(&self, rank: usize, file: usize) -> i64 {
        self.bytes[rank * self.files + file]
    }

    /// Bytes of a file to be read.
    pub fn size(&self, file: usize) -> i64 {
        self.sizes[file]
    }

    /// Returns whether a rank may read a file.
    pub fn may(&self, rank: usize, file: usize) -> bool {
        self.eligible.is_empty() || self.eligible[rank * self.files + file]
    }

    /// Returns whether a file may be cut.
    pub(super) fn cuttable(&self, file: usize) -> bool {
        !self.whole.get(file).copied().unwrap_or(false)
    }

    /// Returns whether some rank may not read some file.
    pub(super) fn restricted(&self) -> bool {
        self.eligible.contains(&false)
    }

    /// The ranks that may read at least one file.
    pub fn readers(&self) -> Vec<usize> {
        let may = |&rank: &usize| self.files == 0 || (0..self.files).any(|f| self.may(rank, f));
        (0..self.ranks).filter(may).collect()
    }

    /// Bytes of each reader if all read equally much.
    pub(super) fn fair(&self, readers: usize) -> i64 {
        let readers = i64::try_from(readers.max(1)).unwrap_or(i64::MAX);
        let total: i64 = self.sizes.iter().sum();
        total / readers + i64::from(total % readers != 0)
    }

    /// Bytes that the reader of `share` bytes of a file needs itself.
    ///
    /// The position of the share in the file is not known here. The best position is assumed, as in
    /// the paper's `|r - a|`.
    pub(super) fn kept(&self, rank: usize, file: usize, share: i64) -> i64 {
        self.of(rank, file).min(share)
    }

    /// Bytes that the reader of `share` bytes of a file sends to other ranks.
    pub(super) fn sent(&self, rank: usize, file: usize, share: i64) -> i64 {
        if share == 0 || self.sizes[file] == 0 {
            return 0;
        }
        // On average, wanted / size ranks request each byte of this file.
        let times = i128::from(share) * i128::from(self.wanted[file]);
        let asked = i64::try_from(times / i128::from(self.sizes[file])).unwrap_or(i64::MAX);
        (asked - self.kept(rank, file, share)).max(0)
    }

    pub(super) fn check(&self, aim: &Aim) -> Result<(), PlanError> {
        if aim.alpha < 0 || aim.beta < 0 {
            return Err(bad(format!(
                "alpha {} and beta {} must be integers of at least 0",
                aim.alpha, aim.beta
            )));
        }
        let bytes = self.wanted.iter().chain(&self.sizes).map(|&b| i128::from(b)).sum::<i128>();
        let price = i128::from(aim.alpha) + i128::from(aim.beta);
        match bytes.checked_mul(price.max(1)) {
            Some(most) if most <= MOST * 4 => Ok(()),
            _ => Err(PlanError::TooLarge("the cost of an assignment")),
        }
    }

    /// Loads, traffic and cost of a solution.
    pub(super) fn price(
        &self,
        shares: Vec<Vec<Share>>,
        solver: Solver,
        aim: &Aim,
        why: String,
    ) -> Result<Assignment, PlanError> {
        let (mut load, mut comm) = (vec![0i64; self.ranks], vec![0i64; self.ranks]);
        let mut traffic = 0;
        for (rank, comm) in comm.iter_mut().enumerate() {
            *comm = (0..self.files).map(|file| self.of(rank, file)).sum();
            traffic += *comm;
        }
        for (file, of_file) in shares.iter().enumerate() {
            let read: i64 = of_file.iter().map(|share| share.bytes).sum();
            if of_file.is_empty() || read != self.sizes[file] {
                let detail = format!("{read} of {} bytes of file {file}", self.sizes[file]);
                return Err(PlanError::Broken { rule: 4, detail });
            }
            for &Share { rank, bytes } in of_file {
                let kept = self.kept(rank, file, bytes);
                load[rank] += bytes;
                comm[rank] += self.sent(rank, file, bytes) - kept;
                traffic -= kept;
            }
        }
        let cost = load.iter().zip(&comm).map(|(l, c)| aim.alpha * l + aim.beta * c).max();
        let cost = cost.unwrap_or(0);
        Ok(Assignment { shares, load, comm, traffic, cost, solver, why })
    }

    /// The requests for the solvers: columns of one group become one column, up to a fair share.
    ///
    /// The tolerance is that of `balanced`. Larger columns would put a whole file on one rank while
    /// others are idle. Columns that must have a single rank are joined without limit.
    pub(super) fn joined(&self) -> Result<Joined, PlanError> {
        let mut runs: Vec<Vec<usize>> = vec![];
        let fair = self.fair(self.readers().len());
        let mut last = alloc::collections::BTreeMap::new();
        for file in 0..self.files {
            let alone = !self.cuttable(file);
            let group = self.groups.get(file).map(|group| (*group, alone));
            let run = group.and_then(|group| last.get(&group)).copied();
            let run = run.filter(|&run: &usize| {
                let bytes: i64 = runs[run].iter().map(|&f| self.sizes[f]).sum();
                (alone || bytes + self.sizes[file] <= fair + fair / 16)
                    && self.same_readers(runs[run][0], file)
            });
            let run = run.unwrap_or_else(|| {
                runs.push(vec![]);
                runs.len() - 1
            });
            runs[run].push(file);
            if let Some(group) = group {
                last.insert(group, run);
            }
        }
        if runs.len() == self.files {
            let requests = Requests { groups: vec![], ..self.clone() };
            return Ok(Joined { requests, runs });
        }
        let mut bytes = Vec::with_capacity(self.ranks * runs.len());
        let mut eligible = Vec::new();
        for rank in 0..self.ranks {
            for run in &runs {
                bytes.push(run.iter().map(|&file| self.of(rank, file)).sum());
                if !self.eligible.is_empty() {
                    eligible.push(self.may(rank, run[0]));
                }
            }
        }
        let mut requests = Requests::new(self.ranks, runs.len(), bytes)?;
        requests.sizes = runs.iter().map(|r| r.iter().map(|&f| self.sizes[f]).sum()).collect();
        requests.eligible = eligible;
        if !self.whole.is_empty() {
            requests.whole = runs.iter().map(|run| self.whole[run[0]]).collect();
        }
        Ok(Joined { requests, runs })
    }

    fn same_readers(&self, a: usize, b: usize) -> bool {
        (0..self.ranks).all(|rank| self.may(rank, a) == self.may(rank, b))
    }
}

/// Requests with joined columns, and the original columns of each.
pub(super) struct Joined {
    pub requests: Requests,
    runs: Vec<Vec<usize>>,
}

impl Joined {
    /// Converts shares of joined columns into shares of the original columns, in order.
    pub fn spread(&self, shares: Vec<Vec<Share>>, requests: &Requests) -> Vec<Vec<Share>> {
        let mut all = vec![vec![]; requests.files];
        for (run, shares) in self.runs.iter().zip(shares) {
            let mut left = shares.into_iter().peekable();
            for &file in run {
                let mut need = requests.sizes[file];
                while let Some(share) = left.peek_mut() {
                    let bytes = need.min(share.bytes);
                    if bytes > 0 || all[file].is_empty() {
                        all[file].push(Share { rank: share.rank, bytes });
                    }
                    share.bytes -= bytes;
                    need -= bytes;
                    if share.bytes > 0 || need == 0 {
                        break;
                    }
                    left.next();
                }
                // A share that began at the end of the previous share may be empty here.
                all[file].retain(|s: &Share| s.bytes > 0 || requests.sizes[file] == 0);
            }
        }
        all
    }
}

fn bad(what: String) -> PlanError {
    PlanError::BadRequests(what)
}

fn checked(sums: &[i128]) -> Result<Vec<i64>, PlanError> {
    let total: i128 = sums.iter().sum();
    if total > MOST {
        return Err(PlanError::TooLarge("the bytes of all requests"));
    }
    sums.iter()
        .map(|&sum| i64::try_from(sum).map_err(|_| PlanError::TooLarge("the bytes of a file")))
        .collect()
}
