//! `outcore.model.assign`: from a matrix of requests to an assignment.

use numpy::{PyReadonlyArray2, PyUntypedArrayMethods};
use outcore_plan::assign::{assign as solve, Aim, Objective, Requests, Solver};
use pyo3::prelude::*;

use crate::errors::{detached, Class, Fault};

/// Shares of each file as (rank, bytes); load and comm of each rank; traffic, cost, method, why.
pub(crate) type Answer =
    (Vec<Vec<(usize, i64)>>, Vec<i64>, Vec<i64>, i64, i64, &'static str, String);

/// Assign files to ranks; `outcore.model.assign` explains the arguments.
#[pyfunction]
#[pyo3(signature = (requests, method, alpha, beta, objective, max_load, sizes, groups, eligible, whole))]
#[allow(clippy::too_many_arguments)]
pub fn assign(
    py: Python<'_>,
    requests: PyReadonlyArray2<'_, i64>,
    method: &str,
    alpha: i64,
    beta: i64,
    objective: &str,
    max_load: Option<i64>,
    sizes: Option<Vec<i64>>,
    groups: Option<Vec<i64>>,
    eligible: Option<PyReadonlyArray2<'_, bool>>,
    whole: Option<Vec<bool>>,
) -> Result<Answer, Fault> {
    let solver = match method {
        "auto" | "balanced" => Solver::Balanced,
        "greedy" => Solver::Greedy,
        "matching" => Solver::Matching,
        "exact" => Solver::Exact,
        other => {
            return Err(bad(format!(
                "method={other:?} is unknown; use \"auto\", \"balanced\", \"greedy\", \"matching\" \
                 or \"exact\""
            )))
        }
    };
    let objective = match (objective, max_load) {
        ("traffic", None) => Objective::Traffic,
        ("traffic", Some(most)) => Objective::TrafficUnder(most),
        ("cost", None) => Objective::Cost,
        ("cost", Some(_)) => {
            return Err(bad("max_load= needs objective=\"traffic\"; omit max_load=".into()))
        }
        (other, _) => {
            return Err(bad(format!("objective={other:?} is unknown; use \"traffic\" or \"cost\"")))
        }
    };
    if objective != Objective::Traffic && solver != Solver::Exact {
        return Err(bad(format!(
            "method {method:?} has a fixed objective; use method=\"exact\" with objective and \
             max_load"
        )));
    }
    let (ranks, files) = (requests.shape()[0], requests.shape()[1]);
    // Row by row, whatever the order in memory.
    let bytes: Vec<i64> = requests.as_array().iter().copied().collect();
    let eligible: Option<Vec<bool>> = match eligible {
        Some(array) if array.shape() == [ranks, files] => {
            Some(array.as_array().iter().copied().collect())
        }
        Some(array) => {
            return Err(bad(format!(
            "eligible has shape {:?}, but the requests have shape ({ranks}, {files}); pass equal \
             shapes",
            array.shape()
        )))
        }
        None => None,
    };
    let solved = detached(py, || {
        let mut all = Requests::new(ranks, files, bytes)?;
        if let Some(sizes) = sizes {
            all = all.with_sizes(sizes)?;
        }
        if let Some(groups) = groups {
            all = all.with_groups(groups)?;
        }
        if let Some(eligible) = eligible {
            all = all.with_eligible(eligible)?;
        }
        if let Some(whole) = whole {
            all = all.with_whole(whole)?;
        }
        Ok(solve(&all, solver, &Aim { alpha, beta, objective })?)
    })?;
    Ok(answer(solved))
}

/// Converts an assignment to its form in Python.
pub(crate) fn answer(given: outcore_plan::assign::Assignment) -> Answer {
    let pairs = |shares: Vec<outcore_plan::assign::Share>| {
        shares.into_iter().map(|share| (share.rank, share.bytes)).collect()
    };
    let shares = given.shares.into_iter().map(pairs).collect();
    (shares, given.load, given.comm, given.traffic, given.cost, given.solver.name(), given.why)
}

fn bad(text: String) -> Fault {
    Fault::new(Class::Usage, "bad-requests", text)
}
