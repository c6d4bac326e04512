//! What an assignment is: shares of files, its aim, its costs.

use alloc::string::String;
use alloc::vec::Vec;

/// How an assignment is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Solver {
    /// The largest load first, then traffic; files above a fair share are cut.
    Balanced,
    /// The paper's greedy heuristic.
    Greedy,
    /// A matching of largest weight.
    Matching,
    /// Branch and bound.
    Exact,
}

impl Solver {
    /// The name in calls and reports.
    pub fn name(self) -> &'static str {
        match self {
            Solver::Balanced => "balanced",
            Solver::Greedy => "greedy",
            Solver::Matching => "matching",
            Solver::Exact => "exact",
        }
    }
}

/// What `exact` makes smallest. The other solvers have their own aim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Objective {
    /// Bytes that travel, with equally many files for each rank: the paper's program.
    Traffic,
    /// Bytes that travel, with no rank reading more bytes than this.
    TrafficUnder(i64),
    /// The largest `alpha * load + beta * comm` of a rank.
    Cost,
}

/// Prices of reading and sending, and the aim of `exact`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aim {
    /// Price of a byte read.
    pub alpha: i64,
    /// Price of a byte sent or received.
    pub beta: i64,
    /// What `exact` makes smallest.
    pub objective: Objective,
}

/// A part of a file that one rank reads. Shares of a file follow each other in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// Who reads it.
    pub rank: usize,
    /// How much of the file's bytes it is.
    pub bytes: i64,
}

/// Shares in the order of ranks, one for each rank.
pub(super) fn by_rank(shares: &mut Vec<Share>) {
    shares.sort_by_key(|share| share.rank);
    shares.dedup_by(|next, one| {
        let same = next.rank == one.rank;
        one.bytes += if same { next.bytes } else { 0 };
        same
    });
}

/// Who reads what, and what it costs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// For each file its shares, by rank; their bytes add up to the bytes of the file.
    pub shares: Vec<Vec<Share>>,
    /// For each rank the bytes it reads.
    pub load: Vec<i64>,
    /// For each rank the bytes it sends and receives.
    pub comm: Vec<i64>,
    /// Bytes wanted by ranks that do not read them themselves.
    pub traffic: i64,
    /// The largest `alpha * load + beta * comm` of a rank.
    pub cost: i64,
    /// The solver that found it.
    pub solver: Solver,
    /// Why it looks as it does.
    pub why: String,
}
