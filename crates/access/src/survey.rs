//! Cost and memory of an access, without moving anything.
//!
//! Problem. `explain` describes an access to the user, and collectives compare the costs of several. Idea.
//! The steps of an access are computed as if it ran, and their costs are added up.

use outcore_io::disks::Figures;
use outcore_io::exec::{CacheUse, User};
use outcore_io::{chunk_cache, Arena};
use outcore_plan::{Cost, Direction, Layout, Priced, Rates, Section};

use crate::admission::Mode;
use crate::error::Fault;
use crate::hints::{Cache, Hints};
use crate::interrupt::Interrupts;
use crate::open::Open;
use crate::step::{Access, Step};

/// Data for `explain`.
pub struct Survey {
    /// Sum over all steps, without cached decoded chunks.
    pub cost: Cost,
    /// Approximate number of pages of mapped files.
    pub pages: i64,
    /// Number of cached decoded chunks.
    pub kept: i64,
    /// Method of the first step.
    pub method: String,
    /// Reason of the first step.
    pub why: String,
    /// Cached share of the first step, in thousandths.
    pub cached: Option<u32>,
}

impl Survey {
    pub(crate) fn of_nothing() -> Survey {
        Survey {
            cost: Cost::default(),
            pages: 0,
            kept: 0,
            method: "none".to_owned(),
            why: "the section is empty".to_owned(),
            cached: None,
        }
    }
}

impl Open {
    /// Returns the cost of running the access.
    pub fn survey(&self, access: &Access, interrupts: &dyn Interrupts) -> Result<Survey, Fault> {
        let mut survey: Option<Survey> = None;
        self.each(access, Mode::Look, interrupts, &mut |step| self.tell(&mut survey, &step))?;
        Ok(survey.unwrap_or_else(Survey::of_nothing))
    }

    /// Adds a step to the survey of an access.
    pub(crate) fn tell(&self, survey: &mut Option<Survey>, step: &Step) -> Result<(), Fault> {
        let mut cost = step.plan.cost();
        cost.peak_bytes = cost.peak_bytes.saturating_add(step.tables);
        let kept = self.spare(step, &mut cost)?;
        match survey {
            Some(survey) => {
                add(&mut survey.cost, &cost, step.times);
                survey.pages = survey.pages.saturating_add(step.plan.mapped_pages());
                survey.kept += kept;
            }
            // The first step is never merged with others.
            None => {
                *survey = Some(Survey {
                    cost,
                    pages: step.plan.mapped_pages(),
                    kept,
                    method: format!("{:?}", step.plan.method()).to_lowercase(),
                    why: match step.alone {
                        Some(_) => {
                            format!("{}; no other process has the file open", step.plan.why())
                        }
                        None => step.plan.why(),
                    },
                    cached: step.cached,
                });
            }
        }
        Ok(())
    }

    /// Returns the cost of an access in nanoseconds, in addition to the accesses of other ranks, and the
    /// share of it that is cached, in thousandths; with `cold`, as if nothing were cached.
    pub fn price(
        &self,
        access: &Access,
        cold: bool,
        interrupts: &dyn Interrupts,
    ) -> Result<(i64, i64), Fault> {
        let survey = self.survey(access, interrupts)?;
        let past = cold || access.hints.cache == Cache::Bypass;
        let cached = if past { 0 } else { survey.cached.map_or(0, i64::from) };
        let chunk = match &self.described.layout {
            Layout::Chunked(chunked) => {
                chunked.chunk.iter().fold(chunked.item, |bytes, n| bytes.saturating_mul(*n))
            }
            Layout::Strided(_) => 0,
        };
        let (direction, cost, pages) = (access.direction, &survey.cost, survey.pages);
        let Figures { latency_ns, device, stream, .. } = self.disk().0;
        let rates = Rates { latency_ns, device, stream, ..Rates::MEASURED };
        let priced = Priced { direction, cost, pages, chunk, cached };
        Ok((priced.nanoseconds(&rates), cached))
    }

    /// Returns the cost of a section, wherever in memory it is.
    pub fn price_of(
        &self,
        direction: Direction,
        section: &Section,
        (hints, cold): (&Hints, bool),
        interrupts: &dyn Interrupts,
    ) -> Result<(i64, i64), Fault> {
        let strides = self.described.packed(&section.shape());
        let (strides, data) = (&strides[..], User::none());
        self.price(&Access { direction, section, strides, data, hints }, cold, interrupts)
    }

    /// Subtracts the reads that cached chunks save from a cost; returns the number of these chunks.
    fn spare(&self, step: &Step, cost: &mut Cost) -> Result<i64, Fault> {
        if step.chunk_cache == CacheUse::Never {
            return Ok(0);
        }
        let (pipeline, arena) = (&self.described.pipeline, Arena::global());
        let spared = chunk_cache::spared(&step.plan, step.files, pipeline, &arena)?;
        cost.reads -= spared.reads;
        cost.read_bytes -= spared.read_bytes;
        cost.decodes -= spared.decodes;
        Ok(spared.kept)
    }
}

/// Adds the cost of `times` equal steps to the cost of an access.
fn add(sum: &mut Cost, part: &Cost, times: i64) {
    let add = |sum: &mut i64, part: i64| *sum = sum.saturating_add(part.saturating_mul(times));
    add(&mut sum.reads, part.reads);
    add(&mut sum.read_bytes, part.read_bytes);
    add(&mut sum.writes, part.writes);
    add(&mut sum.written_bytes, part.written_bytes);
    add(&mut sum.mapped_bytes, part.mapped_bytes);
    add(&mut sum.useful_bytes, part.useful_bytes);
    add(&mut sum.decodes, part.decodes);
    add(&mut sum.encodes, part.encodes);
    add(&mut sum.rounds, part.rounds);
    sum.peak_bytes = sum.peak_bytes.max(part.peak_bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_of_equal_steps_are_added_and_their_peaks_are_not() {
        let part = Cost { reads: 3, read_bytes: i64::MAX, peak_bytes: 50, ..Cost::default() };
        let mut sum = Cost { reads: 1, peak_bytes: 40, ..Cost::default() };
        add(&mut sum, &part, 4);
        assert_eq!((13, i64::MAX, 50), (sum.reads, sum.read_bytes, sum.peak_bytes));
    }
}
