//! Assignments: shares of files, objectives, costs.

use alloc::string::String;
use alloc::vec::Vec;

/// Solvers of the assignment problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Solver {
    /// Smallest largest load first, then traffic; files above a fair share are cut.
    Balanced,
    /// The paper's greedy heuristic.
    Greedy,
    /// A matching of maximum weight.
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

/// Objective that `exact` minimizes. The other solvers have fixed objectives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Objective {
    /// Bytes sent, with equally many files for each rank: the paper's program.
    Traffic,
    /// Bytes sent, with a limit on the bytes that each rank reads.
    TrafficUnder(i64),
    /// The largest `alpha * load + beta * comm` of a rank.
    Cost,
}

/// Costs of reading and sending, and the objective of `exact`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aim {
    /// Cost of a byte read.
    pub alpha: i64,
    /// Cost of a byte sent or received.
    pub beta: i64,
    /// Objective that `exact` minimizes.
    pub objective: Objective,
}

/// A part of a file that one rank reads. Shares of a file follow one another in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// The rank that reads the share.
    pub rank: usize,
    /// Number of bytes of the file in the share.
    pub bytes: i64,
}

/// Merges and sorts shares, so that each rank has one, in the order of ranks.
pub(super) fn by_rank(shares: &mut Vec<Share>) {
    shares.sort_by_key(|share| share.rank);
    shares.dedup_by(|next, one| {
        let same = next.rank == one.rank;
        one.bytes += if same { next.bytes } else { 0 };
        same
    });
}

/// An assignment of files to ranks, and its costs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// Shares of each file, by rank; their bytes add up to the bytes of the file.
    pub shares: Vec<Vec<Share>>,
    /// Bytes that each rank reads.
    pub load: Vec<i64>,
    /// Bytes that each rank sends and receives.
    pub comm: Vec<i64>,
    /// Requested bytes that another rank reads.
    pub traffic: i64,
    /// The largest `alpha * load + beta * comm` of a rank.
    pub cost: i64,
    /// The solver that found the assignment.
    pub solver: Solver,
    /// Explanation of the assignment.
    pub why: String,
}
