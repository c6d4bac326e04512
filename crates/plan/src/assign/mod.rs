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

mod balanced;
mod exact;
mod greedy;
mod items;
mod matching;
mod requests;
mod share;
#[cfg(test)]
mod tests;

pub use requests::Requests;
pub use share::{Aim, Assignment, Objective, Share, Solver};

use crate::error::PlanError;
use items::Items;

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
