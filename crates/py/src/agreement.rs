//! `_core.Records`: what ranks agree on, each from the records of all.

#![allow(unsafe_code)]

use std::sync::{Arc, OnceLock};

use numpy::{PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use outcore_access::disk_agreement;
use outcore_plan::collective::{self as plan, Decision, Method, Mismatch, Owners, Wanted};
use pyo3::prelude::*;

use crate::assign::{answer, Answer};
use crate::buffers;
use crate::collective::Collective;
use crate::errors::{Class, Fault};
use crate::records::{chosen, reason, Decided, Reason, Records};

#[pymethods]
impl Records {
    /// From an array of int64, a row for each rank.
    #[new]
    fn new(rows: &Bound<'_, PyUntypedArray>) -> PyResult<Records> {
        let word = rows.dtype().itemsize() == 8 && rows.dtype().kind() == b'i';
        if rows.ndim() != 2 || !word || !rows.is_c_contiguous() {
            let text = "records are a dense array of int64, a row for each rank".to_owned();
            return Err(Fault::new(Class::Internal, "bad-record", text).into());
        }
        // SAFETY: the array is dense and of this type and length; NumPy aligns its own, and others are
        // read unaligned below.
        let words: Vec<i64> = unsafe {
            let data = buffers::memory(rows).data.cast::<i64>().cast_const();
            (0..rows.len()).map(|k| data.add(k).read_unaligned()).collect()
        };
        let records = plan::Records::new(words, rows.shape()[1]).map_err(Fault::from)?;
        Ok(Records { records: Arc::new(records), arrays: OnceLock::new() })
    }

    /// Whether any rank failed, whether all made the same call, and the words of the longest record.
    #[getter]
    fn verdict(&self) -> (bool, bool, i64) {
        (self.records.any_failed(), self.records.same_call(), self.records.longest())
    }

    /// Version and call of each rank.
    fn calls(&self) -> Vec<(i64, i64)> {
        self.records.calls().collect()
    }

    /// One of the settings, of all ranks.
    fn setting(&self, number: usize) -> Vec<i64> {
        self.records.setting(number).collect()
    }

    /// The method that each rank asks for.
    #[getter]
    fn methods(&self) -> Vec<&'static str> {
        self.records.methods().map(Method::name).collect()
    }

    /// Plans from now on with what ranks of this one's node found out about its disks. Tells the ranks that have to
    /// try a disk (`try_disk`) before all plan, because none on their node knows it.
    fn agree_on_disks(&self, nodes: Vec<i64>, rank: usize) -> Vec<u32> {
        if let Some(node) = nodes.get(rank) {
            disk_agreement::adopt(&self.records.timed_disks(&nodes, *node));
        }
        self.records.triers(&nodes)
    }

    /// Bytes that a slot of any rank may have.
    #[getter]
    fn offered(&self) -> i64 {
        self.records.offered()
    }

    /// In how many groups so many owners take turns.
    fn groups(&self, owners: i64) -> i64 {
        self.records.groups(owners)
    }

    /// Whether any rank refuses that ranks write the same elements.
    #[getter]
    fn refuses_overlap(&self) -> bool {
        self.records.refuses_overlap()
    }

    /// Whether any rank wants what is written to be on the disk.
    #[getter]
    fn durable(&self) -> bool {
        self.records.durable()
    }

    /// Whether all ranks made the same call, and have what they want by the same method. With `one`, each
    /// must have brought one section of the same array.
    fn settled(&self, one: bool) -> bool {
        self.records.all_done(one)
    }

    /// How ranks read if nothing has to be planned for that; None if it has.
    fn unplanned(&self) -> Option<Decided> {
        self.records.unplanned(self.encoded()).map(chosen)
    }

    /// What a hint leaves of `"auto"`; None if there is something to choose.
    fn few_touch_files(&self) -> Option<Decided> {
        self.records.few_touch_files().map(chosen)
    }

    /// Why there is no memory for two phases with slots of so many bytes; None if there is.
    fn lacking(&self, slot: i64) -> Option<Reason> {
        self.records.lacking(slot).map(reason)
    }

    /// What all ranks do with a plan: whether there is a way; and the choice, or why that way must be
    /// two-phase. None: what is cheapest.
    #[pyo3(signature = (plan, *, write))]
    fn decide(
        &self,
        py: Python<'_>,
        plan: &Bound<'_, Collective>,
        write: bool,
    ) -> (bool, Option<Decided>) {
        let plan = &plan.get().plan;
        match py.detach(|| self.records.decide(plan.slot_bytes(), plan.order(write))) {
            Decision::Chosen(choice) => (true, Some(chosen(choice))),
            Decision::ByPrice => (true, None),
            Decision::NoMemory(why) => (false, why.map(|why| ("two-phase", reason(why)))),
        }
    }

    /// The plan; slots of `slot` bytes at most but for blocks, no tile smaller than `least`.
    fn planned(&self, py: Python<'_>, slot: i64, least: i64, write: bool) -> PyResult<Collective> {
        let plan = py.detach(|| {
            plan::Collective::of_records(&self.records, self.wanted(), (slot, least), write)
        });
        Ok(Collective { plan: Arc::new(plan.map_err(Fault::from)?) })
    }

    /// Which arrays were given to which ranks, as `assign` tells it; None if nothing was assigned.
    fn assigned(&self, py: Python<'_>, write: bool) -> PyResult<Option<Answer>> {
        let given = py.detach(|| {
            let owners = Owners::new(&self.records, self.wanted(), write);
            owners.assigned(&self.records, self.wanted(), self.records.solver())
        });
        Ok(given.map_err(Fault::from)?.map(answer))
    }

    /// Of how many arrays a rank wants anything, at most.
    fn most_arrays(&self, py: Python<'_>) -> i64 {
        py.detach(|| plan::most_arrays(self.wanted(), self.records.ranks()))
    }

    /// Whether any rank has still to say its items.
    #[getter]
    fn unsaid(&self) -> bool {
        self.records.any_unsaid()
    }

    /// Reads all items. None if they fit together; otherwise what is odd (`"descriptor"`, `"array"`,
    /// `"method"`), and on which ranks. With `one`, all ranks must have brought one section of the same array.
    fn compare(&self, py: Python<'_>, one: bool) -> PyResult<Option<(&'static str, Vec<u32>)>> {
        match py.detach(|| self.records.arrays(one)) {
            Ok(arrays) => {
                let _ = self.arrays.set(arrays);
                let other = self.records.methods().position(|one| one != self.records.asked());
                Ok(other.map(|rank| ("method", vec![rank as u32])))
            }
            Err(Mismatch::ArrayDescriptor(rank)) => Ok(Some(("descriptor", vec![rank]))),
            Err(Mismatch::Array(ranks)) => Ok(Some(("array", ranks))),
            Err(Mismatch::Words(error)) => Err(Fault::from(error).into()),
        }
    }

    /// Names of the arrays, in the order in which they were brought.
    #[getter]
    fn names(&self) -> Vec<i64> {
        self.wanted().iter().map(|wanted| wanted.name).collect()
    }

    /// The same ranks and settings, as if they had brought this array alone.
    fn alone(&self, array: usize) -> Records {
        let wanted: Vec<Wanted> = self.wanted().get(array).into_iter().cloned().collect();
        Records { records: Arc::clone(&self.records), arrays: OnceLock::from(wanted) }
    }

    /// Ranks that have an array.
    fn have(&self, array: usize) -> Vec<u32> {
        self.wanted().get(array).map_or_else(Vec::new, |wanted| wanted.have.clone())
    }

    /// Bytes that each rank wants of each array: of all ranks of the first array, then of the next.
    fn requests<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyUntypedArray>> {
        let ranks = self.records.ranks();
        let each = self.wanted().iter().flat_map(|wanted| wanted.requests(ranks));
        buffers::array_of(py, &each.collect::<Vec<i64>>())
    }
}
