//! Assignment of files to reading ranks, for one call that reads many files.
//!
//! Problem: `p` ranks request parts of `n` files. The reader of a file sends the requested parts to
//! the other ranks. `requests[i][j]` is the number of bytes of file *j* that rank *i* requests; the
//! result is the number of bytes of file *j* that rank *i* reads. Two quantities are minimized: the
//! largest load of a rank (all ranks wait for it), and the bytes sent.
//!
//! | solver       | model                                                 | result |
//! |--------------|-------------------------------------------------------|--------|
//! | [`greedy`]   | the paper's model: n/p whole files each               | good, fast |
//! | [`matching`] | the same model                                        | least traffic |
//! | [`exact`]    | the same model, or a limit on loads, or least cost    | proven, small cases |
//! | [`balanced`] | smallest largest load, then traffic; large files are cut | the default |
//!
//! The dual case has more ranks than files: each rank reads one share of one file, and file *j* has
//! `F_j` readers, in proportion to its bytes. Both cases are treated in the same way: *items*
//! (whole files, or equal shares of files) are assigned to ranks, a fixed number to each.
//!
//! The paper presents its matching as a heuristic for its 0-1 program. In fact the matrix of that
//! program is totally unimodular, so a matching of maximum weight *is* its optimum; `exact` finds
//! the same by other means, and is the reference of the tests. The paper's model ignores sizes:
//! "n/p files each" is not balanced if one file is ten times as large as another. `balanced` solves
//! this.
//!
//! Invariants: integers only; equal input gives equal output on every rank; ties go to the lower
//! rank, then the lower file. Exactly one rank reads each byte of a file.
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

/// Assigns files to ranks.
pub fn assign(requests: &Requests, solver: Solver, aim: &Aim) -> Result<Assignment, PlanError> {
    requests.check(aim)?;
    // Columns of one group become one column for the solvers.
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
