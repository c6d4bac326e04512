//! `_core.simulate_alone`, `simulate_together`, `simulate_scattered`: the cost of an access on a modelled
//! machine.

use numpy::PyArray1;
use outcore_plan::simulate::{self as model, Domains, Machine, Manner, Outcome, Price};
use outcore_plan::simulate::{Scattered, Way};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::collective::{job, Collective, Words};
use crate::errors::Fault;

/// Attributes of `outcore.model.machines.machine.Machine`.
#[derive(FromPyObject)]
pub struct Parts {
    servers: u32,
    stripe: i64,
    block: i64,
    request_ns: i64,
    memory_rate: i64,
    block_ns: i64,
    seek_ns: i64,
    streams: u32,
    disk_rate: i64,
    write_rate: i64,
    write_seek_ns: i64,
    client_ns: i64,
    depth: u32,
    write_depth: u32,
    message_ns: i64,
    message_rate: i64,
    copy_rate: i64,
    per_node: u32,
    call_ns: i64,
}

impl Parts {
    fn machine(&self) -> Machine {
        Machine {
            servers: self.servers,
            stripe: self.stripe,
            block: self.block,
            request_ns: self.request_ns,
            memory_rate: self.memory_rate,
            block_ns: self.block_ns,
            seek_ns: self.seek_ns,
            streams: self.streams,
            disk_rate: self.disk_rate,
            write_rate: self.write_rate,
            write_seek_ns: self.write_seek_ns,
            client_ns: self.client_ns,
            depth: self.depth,
            write_depth: self.write_depth,
            message_ns: self.message_ns,
            message_rate: self.message_rate,
            copy_rate: self.copy_rate,
            per_node: self.per_node,
            call_ns: self.call_ns,
        }
    }
}

fn told<'py>(py: Python<'py>, outcome: &Outcome) -> PyResult<Bound<'py, PyDict>> {
    let told = PyDict::new(py);
    for (name, value) in [
        ("ns", outcome.ns),
        ("requests", outcome.requests),
        ("bytes", outcome.bytes),
        ("useful", outcome.useful),
        ("messages", outcome.messages),
        ("message_bytes", outcome.message_bytes),
        ("rounds", outcome.rounds),
        ("io_ns", outcome.io_ns),
        ("exchange_ns", outcome.exchange_ns),
        ("copy_ns", outcome.copy_ns),
        ("busiest_ns", outcome.busiest_ns),
        ("events", outcome.events),
    ] {
        told.set_item(name, value)?;
    }
    Ok(told)
}

/// Simulate every rank independently. `jobs` as for `Collective`; shares are ignored.
#[pyfunction]
#[pyo3(signature = (jobs, machine, *, ranks, gap, most, extent = false, leaves_out = true, write = false))]
#[allow(clippy::too_many_arguments, reason = "named in Python")]
pub fn simulate_alone<'py>(
    py: Python<'py>,
    jobs: Vec<Words>,
    machine: Parts,
    ranks: u32,
    gap: i64,
    most: i64,
    extent: bool,
    leaves_out: bool,
    write: bool,
) -> PyResult<Bound<'py, PyDict>> {
    let manner = Manner { gap, most, extent, sparse: 0, price: None, leaves_out, slots: 2 };
    let outcome = py.detach(|| {
        let jobs =
            jobs.iter().map(|(descriptor, accesses, shares)| job(descriptor, accesses, shares));
        model::alone(
            &jobs.collect::<Result<Vec<_>, _>>()?,
            ranks,
            &machine.machine(),
            &manner,
            write,
        )
    });
    told(py, &outcome.map_err(Fault::from)?)
}

/// Simulate the rounds of a plan.
#[pyfunction]
#[pyo3(signature = (plan, machine, *, ranks, gap, most, sparse = 0, price = None, slots = 2, write = false))]
#[allow(clippy::too_many_arguments, reason = "named in Python")]
pub fn simulate_together<'py>(
    py: Python<'py>,
    plan: &Collective,
    machine: Parts,
    ranks: u32,
    gap: i64,
    most: i64,
    sparse: i64,
    price: Option<(i64, i64, i64)>,
    slots: usize,
    write: bool,
) -> PyResult<Bound<'py, PyDict>> {
    let price = price.map(|(request_ns, device, stream)| Price { request_ns, device, stream });
    let manner = Manner { gap, most, extent: false, sparse, price, leaves_out: true, slots };
    let outcome =
        py.detach(|| model::together(&plan.plan, ranks, &machine.machine(), &manner, write));
    told(py, &outcome.map_err(Fault::from)?)
}

/// Attributes of `outcore.model.simulate.irregular.Scattered`.
#[derive(FromPyObject)]
pub struct Pattern {
    ranks: u32,
    blocks: i64,
    run: i64,
    itemsize: i64,
    spread: u32,
}

impl Pattern {
    fn scattered(&self) -> Scattered {
        Scattered {
            ranks: self.ranks,
            blocks: self.blocks,
            run: self.run,
            item: self.itemsize,
            spread: self.spread,
        }
    }
}

/// Simulate accesses to elements by modelled ranks: each rank independently or, with owners, through these in
/// steps.
#[pyfunction]
#[pyo3(signature = (pattern, machine, *, most, owners = None, chunk = 0, groups = 1, in_turn = false, ahead = false, write = false))]
#[allow(clippy::too_many_arguments, reason = "named in Python")]
pub fn simulate_scattered<'py>(
    py: Python<'py>,
    pattern: Pattern,
    machine: Parts,
    most: i64,
    owners: Option<u32>,
    chunk: i64,
    groups: u32,
    in_turn: bool,
    ahead: bool,
    write: bool,
) -> PyResult<Bound<'py, PyDict>> {
    let (of, machine) = (pattern.scattered(), machine.machine());
    let domains = if in_turn { Domains::InTurn } else { Domains::Asked };
    let outcome = py.detach(|| match owners {
        None => model::each_alone(&of, &machine, most, write),
        Some(owners) => {
            let way = Way { owners, chunk, groups, domains, ahead, most };
            model::in_steps(&of, &way, &machine, write)
        }
    });
    told(py, &outcome.map_err(Fault::from)?)
}

/// Return the first elements of the blocks of a rank, in the order of the file.
#[pyfunction]
pub fn scattered_blocks<'py>(
    py: Python<'py>,
    pattern: Pattern,
    rank: u32,
) -> PyResult<Bound<'py, PyArray1<i64>>> {
    let of = pattern.scattered();
    of.check().map_err(Fault::from)?;
    if rank >= of.ranks {
        let text = format!("rank {rank} is not one of {} ranks", of.ranks);
        return Err(Fault::from(outcore_plan::error::PlanError::BadLayout(text)).into());
    }
    let blocks = py.detach(|| (0..of.blocks).map(|k| of.element(rank, k)).collect());
    Ok(PyArray1::from_vec(py, blocks))
}
