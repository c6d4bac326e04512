//! Which rank reads which file, when one call reads many files.
//!
//! Problem. `p` ranks want parts of `n` files. Who reads a file sends to the others what they want
//! of it. `requests[i][j]` says how many bytes rank *i* wants of file *j*; the answer says how many
//! bytes of file *j* rank *i* reads. Two things are to be small: the largest load of a rank (all
//! wait for it), and the bytes that travel.
//!
//! | solver       | model                                                 | answer |
//! |--------------|-------------------------------------------------------|--------|
//! | [`greedy`]   | the paper's: n/p whole files each                     | good, fast |
//! | [`matching`] | the same                                              | least traffic |
//! | [`exact`]    | the same, or a bound on loads, or least cost          | proven, small cases |
//! | [`balanced`] | least largest load, then traffic; large files are cut | the default |
//!
//! More ranks than files is the dual: each rank reads one share of one file, and file *j* has `F_j`
//! readers, in proportion to its bytes. Both cases are one here: *items* (whole files, or equal
//! shares of files) are given to ranks, so many each.
//!
//! The paper offers its matching as a heuristic for its 0-1 program. In fact the matrix of that
//! program is totally unimodular, so a matching of largest weight *is* its optimum; `exact` finds the
//! same by other means, and is what the tests believe. Where the paper's model falls short is sizes:
//! "n/p files each" is no balance if one file is ten times another. `balanced` is the answer to that.
//!
//! Invariants. Integers only; equal input gives equal output on every rank; ties go to the lower
//! rank, then the lower file. Every byte of a file is read by exactly one rank.
//!
//! Reference: Memik, Kandemir, Choudhary, "Exploiting Inter-File Access Patterns Using
//! Multi-Collective I/O", FAST 2002, sections 4 and 5, appendix A.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

mod balanced;
mod exact;
mod greedy;
mod items;
mod matching;
mod requests;
#[cfg(test)]
mod tests;

pub use requests::Requests;

use crate::error::PlanError;
use items::Items;

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
fn by_rank(shares: &mut Vec<Share>) {
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

/// Gives files to ranks.
pub fn assign(requests: &Requests, solver: Solver, aim: &Aim) -> Result<Assignment, PlanError> {
    requests.check(aim)?;
    // Columns that belong together become one for the solvers.
    let joined = requests.joined()?;
    let (shares, why) = match solver {
        Solver::Balanced => balanced::solve(&joined.requests),
        Solver::Greedy => {
            let items = Items::new(&joined.requests)?;
            (
                items.shares(&greedy::solve(&items)),
                format!("largest requests first, {}", items.model()),
            )
        }
        Solver::Matching => {
            let items = Items::new(&joined.requests)?;
            let places = matching::solve(&items)?;
            (items.shares(&places), format!("least traffic, {}", items.model()))
        }
        Solver::Exact => {
            let items = Items::new(&joined.requests)?;
            let (places, why) = exact::solve(&items, aim)?;
            (items.shares(&places), why)
        }
    };
    requests.price(joined.spread(shares, requests), solver, aim, why)
}
