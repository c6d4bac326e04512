//! Traffic between ranks: what one rank sends, receives and copies, in rounds.

use outcore_plan::distribution::{accumulate_plan as accumulate, exchange_plan as exchange};
use outcore_plan::distribution::{Message, Operation, Parts, Traffic as Plan};
use pyo3::prelude::*;

use crate::distribution::{ghosts, sections, Distribution, Sections};
use crate::errors::{detached, Class, Fault};

/// Data that one rank sends, receives and copies, and how received data is combined.
#[pyclass(module = "outcore._core", frozen)]
pub struct Traffic {
    plan: Plan,
    ndim: usize,
}

#[pymethods]
impl Traffic {
    /// Operation on received data: "copy", "add", "minimum", "maximum" or "last".
    #[getter]
    fn operation(&self) -> &'static str {
        self.plan.operation.name()
    }

    /// Number of rounds that this rank takes part in, at least 1.
    #[getter]
    fn rounds(&self) -> usize {
        self.plan.rounds()
    }

    /// Number of messages that this rank sends, in all rounds.
    #[getter]
    fn messages(&self) -> usize {
        self.plan.messages()
    }

    /// Number of elements that this rank sends and that it receives, in all rounds.
    #[getter]
    fn elements(&self) -> PyResult<(i64, i64)> {
        Ok(self.plan.elements().map_err(Fault::from)?)
    }

    /// Largest number of elements of messages that it has in buffers at the same time.
    #[getter]
    fn peak(&self) -> PyResult<i64> {
        Ok(self.plan.peak().map_err(Fault::from)?)
    }

    /// Return an upper bound of `peak` for a limit.
    fn bound(&self, limit: i64) -> PyResult<i64> {
        Ok(self.plan.bound(limit).map_err(Fault::from)?)
    }

    /// Return a limit for which buffers of `room` elements are enough, or 1.
    fn limit(&self, room: i64) -> PyResult<i64> {
        Ok(self.plan.limit(room).map_err(Fault::from)?)
    }

    /// Return what is sent in a round: peers, and sections of the source, in the order in which they are
    /// sent.
    fn sends<'py>(&self, py: Python<'py>, round: usize) -> PyResult<Vec<(i64, Sections<'py>)>> {
        self.of_round(py, &self.plan.sends, round)
    }

    /// Return what is received in a round: peers, and sections of the target, in the order of unpacking.
    fn receives<'py>(&self, py: Python<'py>, round: usize) -> PyResult<Vec<(i64, Sections<'py>)>> {
        self.of_round(py, &self.plan.receives, round)
    }

    /// Sections of the source, and of the target, that this rank copies itself.
    #[getter]
    fn own<'py>(&self, py: Python<'py>) -> PyResult<(Sections<'py>, Sections<'py>)> {
        let own = &self.plan.own;
        let from = sections(py, own.iter().map(|(from, _)| from), self.ndim)?;
        Ok((from, sections(py, own.iter().map(|(_, to)| to), self.ndim)?))
    }

    fn __str__(&self) -> String {
        self.plan.to_string()
    }
}

impl Traffic {
    fn of_round<'py>(
        &self,
        py: Python<'py>,
        messages: &[Message],
        round: usize,
    ) -> PyResult<Vec<(i64, Sections<'py>)>> {
        let some = messages.iter().filter(|message| !message.round(round).is_empty());
        let one = |message: &Message| {
            let found = sections(py, message.round(round).iter(), self.ndim)?;
            Ok::<_, PyErr>((message.peer, found))
        };
        some.map(one).collect()
    }
}

/// Return the part of rank `me` in moving the elements that ranks own by `source` to the places that `target`
/// requires, ghosts included; only to rank `only`, if given. No message of a round has more than `limit`
/// elements.
#[pyfunction]
#[pyo3(signature = (source, source_ghosts, target, target_ghosts, me, only = None, limit = None))]
#[allow(clippy::too_many_arguments)] // one call, flat
pub fn exchange_plan(
    py: Python<'_>,
    source: &Distribution,
    source_ghosts: Vec<(i64, i64)>,
    target: &Distribution,
    target_ghosts: Vec<(i64, i64)>,
    me: i64,
    only: Option<i64>,
    limit: Option<i64>,
) -> PyResult<Traffic> {
    let plan = detached(py, || {
        let from = Parts::new(&source.made, &ghosts(&source_ghosts), false)?;
        let to = Parts::new(&target.made, &ghosts(&target_ghosts), true)?;
        let to = match only {
            Some(rank) => to.only(rank),
            None => to,
        };
        let found = exchange(&from, &to, me)?;
        Ok(match limit {
            Some(limit) => found.in_rounds(limit)?,
            None => found,
        })
    })?;
    Ok(Traffic { plan, ndim: source.made.shape().len() })
}

/// Return the part of rank `me` in combining ghosts with the elements of their owners; no rank receives more
/// than `limit` elements in a round.
#[pyfunction]
#[pyo3(signature = (distribution, widths, operation, me, limit = None))]
pub fn accumulate_plan(
    py: Python<'_>,
    distribution: &Distribution,
    widths: Vec<(i64, i64)>,
    operation: &str,
    me: i64,
    limit: Option<i64>,
) -> PyResult<Traffic> {
    let named = Operation::ALL.into_iter().find(|one| one.combines() && one.name() == operation);
    let Some(operation) = named else {
        let text = format!(
            "the operation {operation:?} is unknown; give 'add', 'minimum', 'maximum' or 'last'"
        );
        return Err(Fault::new(Class::Usage, "bad-option", text).into());
    };
    let plan = detached(py, || {
        let all = ghosts(&widths);
        let owned = Parts::new(&distribution.made, &all, false)?;
        let kept = Parts::new(&distribution.made, &all, true)?;
        Ok(accumulate(&owned, &kept, operation, me, limit)?)
    })?;
    Ok(Traffic { plan, ndim: distribution.made.shape().len() })
}
