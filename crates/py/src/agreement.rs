//! `_core.Records`: agreements of the ranks, which each rank computes from the records of all.

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
    /// Create from an array of int64 with a row for each rank.
    #[new]
    fn new(rows: &Bound<'_, PyUntypedArray>) -> PyResult<Records> {
        let word = rows.dtype().itemsize() == 8 && rows.dtype().kind() == b'i';
        if rows.ndim() != 2 || !word || !rows.is_c_contiguous() {
            let text = "records must be a dense array of int64 with a row for each rank".to_owned();
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

    /// Three values: whether any rank failed, whether all made the same call, and the number of words of the
    /// longest record.
    #[getter]
    fn verdict(&self) -> (bool, bool, i64) {
        (self.records.any_failed(), self.records.same_call(), self.records.longest())
    }

    /// Return version and call of each rank.
    fn calls(&self) -> Vec<(i64, i64)> {
        self.records.calls().collect()
    }

    /// Return one of the settings, for all ranks.
    fn setting(&self, number: usize) -> Vec<i64> {
        self.records.setting(number).collect()
    }

    /// The method that each rank requests.
    #[getter]
    fn methods(&self) -> Vec<&'static str> {
        self.records.methods().map(Method::name).collect()
    }

    /// Plan from now on with what the ranks of this rank's node found out about its disks. Return the ranks
    /// that must try a disk (`try_disk`) before all plan, because no rank on their node knows it.
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

    /// Return the number of groups in which `owners` owners take turns.
    fn groups(&self, owners: i64) -> i64 {
        self.records.groups(owners)
    }

    /// True if any rank forbids that ranks write the same elements.
    #[getter]
    fn refuses_overlap(&self) -> bool {
        self.records.refuses_overlap()
    }

    /// True if any rank requires that written data is on the disk at the end.
    #[getter]
    fn durable(&self) -> bool {
        self.records.durable()
    }

    /// Return whether all ranks made the same call, and have completed it by the same method. With `one`,
    /// each must have brought one section of the same array.
    fn settled(&self, one: bool) -> bool {
        self.records.all_done(one)
    }

    /// Return the method of reading if no plan is needed for that; None otherwise.
    fn unplanned(&self) -> Option<Decided> {
        self.records.unplanned(self.encoded()).map(chosen)
    }

    /// Return the method that a hint leaves for `"auto"`; None if there is a choice.
    fn few_touch_files(&self) -> Option<Decided> {
        self.records.few_touch_files().map(chosen)
    }

    /// Return why memory is too short for two phases with slots of `slot` bytes; None if it is not.
    fn lacking(&self, slot: i64) -> Option<Reason> {
        self.records.lacking(slot).map(reason)
    }

    /// Return what all ranks do with a plan: whether the memory of the ranks is enough for a method, and the
    /// choice (None: the cheapest method). If the memory is not enough, the choice gives the reason for
    /// two-phase, if the order of the ranks requires it.
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

    /// Return the plan; slots of at most `slot` bytes except for blocks, no tile smaller than `least`.
    fn planned(&self, py: Python<'_>, slot: i64, least: i64, write: bool) -> PyResult<Collective> {
        let plan = py.detach(|| {
            plan::Collective::of_records(&self.records, self.wanted(), (slot, least), write)
        });
        Ok(Collective { plan: Arc::new(plan.map_err(Fault::from)?) })
    }

    /// Return which arrays were assigned to which ranks, in the form of `assign`; None if nothing was
    /// assigned.
    fn assigned(&self, py: Python<'_>, write: bool) -> PyResult<Option<Answer>> {
        let given = py.detach(|| {
            let owners = Owners::new(&self.records, self.wanted(), write);
            owners.assigned(&self.records, self.wanted(), self.records.solver())
        });
        Ok(given.map_err(Fault::from)?.map(answer))
    }

    /// Return the largest number of arrays that a rank requests anything of.
    fn most_arrays(&self, py: Python<'_>) -> i64 {
        py.detach(|| plan::most_arrays(self.wanted(), self.records.ranks()))
    }

    /// True if any rank has not sent its items yet.
    #[getter]
    fn unsaid(&self) -> bool {
        self.records.any_unsaid()
    }

    /// Read all items. Return None if they fit together; otherwise the mismatch (`"descriptor"`, `"array"`,
    /// `"method"`), and its ranks. With `one`, all ranks must have brought one section of the same array.
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

    /// Return the same ranks and settings, as if they had brought only this array.
    fn alone(&self, array: usize) -> Records {
        let wanted: Vec<Wanted> = self.wanted().get(array).into_iter().cloned().collect();
        Records { records: Arc::clone(&self.records), arrays: OnceLock::from(wanted) }
    }

    /// Return the ranks that have an array.
    fn have(&self, array: usize) -> Vec<u32> {
        self.wanted().get(array).map_or_else(Vec::new, |wanted| wanted.have.clone())
    }

    /// Return the bytes that each rank requests of each array: all ranks for the first array, then for the
    /// next.
    fn requests<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyUntypedArray>> {
        let ranks = self.records.ranks();
        let each = self.wanted().iter().flat_map(|wanted| wanted.requests(ranks));
        buffers::array_of(py, &each.collect::<Vec<i64>>())
    }
}
