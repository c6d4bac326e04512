//! Rounds of points in a strided array.
//!
//! Reads through a mapping are cut anywhere, in the caller's order. All other accesses are cut
//! between windows, so a window belongs to one round. Writes of different rounds are therefore
//! disjoint, and those of one round come in the caller's order.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use super::list::{Points, Window};
use super::place::Padded;
use super::reach::{Reach, Spot, Way};
use crate::emit::Means;
use crate::error::PlanError;
use crate::layout::Part;
use crate::nest::Nest;
use crate::plan::{Channel, Cost, Direction, Method, Round};
use crate::terms::Terms;

/// Number of points of a round that only copies; its lists fit the second-level cache.
const COPIED: usize = 1 << 15;
/// Number of points of a round that reads them one by one from the disk.
const REQUESTED: usize = 1 << 10;
/// Number of points of a round that reads their pages.
const SIEVED: usize = 1 << 17;
/// Rounds in flight if pages come from the disk.
///
/// The disk serves them concurrently, so several end at the same time, and it needs other rounds
/// while their points are copied.
const STREAMS: i64 = 8;

/// Points of one access, cut into rounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PointWork {
    points: Arc<Points>,
    /// The loops of the block of each point.
    cell: Nest,
    parts: Vec<Part>,
    padded: Padded,
    reach: Reach,
    /// First run (or window) of each round, and one past the last one.
    ///
    /// Runs are used for rounds that only copy, otherwise windows.
    rounds: Vec<usize>,
    by_windows: bool,
    pub slot: i64,
    pub lanes: i64,
    cost: Cost,
}

impl PointWork {
    /// Plans all points.
    pub fn new(
        points: &Arc<Points>,
        cell: Nest,
        parts: &[Part],
        means: Means,
        terms: &Terms,
    ) -> Result<(PointWork, Method), PlanError> {
        let (reach, method) = Reach::choose(points, &cell, means, terms)?;
        let mut work = PointWork {
            points: Arc::clone(points),
            cell,
            parts: parts.to_vec(),
            padded: Padded::new(parts, points.bits),
            reach,
            rounds: vec![0],
            by_windows: reach.way != Way::Mapped || means.direction == Direction::Write,
            slot: 0,
            lanes: terms.lanes,
            cost: Cost::default(),
        };
        match work.by_windows {
            true => match work.cut(means, terms) {
                // Pages that are not read in advance are read by the kernel.
                Err(PlanError::BudgetTooSmall { .. }) if work.reach.fetches => {
                    work.reach.fetches = false;
                    work.cut(means, terms)?;
                }
                done => done?,
            },
            false => {
                let each = work.copied(terms);
                let mut points_there = 0;
                for k in 0..points.runs() {
                    if points_there >= each {
                        work.rounds.push(k);
                        points_there = 0;
                    }
                    points_there += points.count(k) as usize;
                }
                work.rounds.push(points.runs());
                work.cost.mapped_bytes = means.total;
            }
        }
        Ok((work, method))
    }

    /// Number of rounds.
    pub fn rounds(&self) -> u64 {
        self.rounds.len() as u64 - 1
    }

    /// Returns whether pages are read before points in them are written.
    pub fn fetches(&self) -> bool {
        self.reach.fetches
    }

    fn copied(&self, terms: &Terms) -> usize {
        let each = (8 * terms.share / self.cell.bytes().max(1)).max(1) as usize;
        if self.points.counts.is_empty() {
            return each.min(COPIED);
        }
        // Lists of runs are short, so rounds are small enough that each thread gets some.
        let turns = 4 * usize::try_from(terms.lanes).unwrap_or(1).max(1);
        each.min((self.points.len() / turns).max(COPIED / 4))
    }

    /// Assigns windows to rounds.
    fn cut(&mut self, means: Means, terms: &Terms) -> Result<(), PlanError> {
        let points = Arc::clone(&self.points);
        if points.windows().is_empty() {
            return Err(PlanError::BadLayout("points that are not ordered".into()));
        }
        if self.reach.way == Way::Gather(Channel::Direct) {
            self.lanes = self.lanes.max(STREAMS);
        }
        let most = (terms.budget / self.lanes).clamp(1, 8 * terms.share * terms.lanes / self.lanes);
        let enough = match self.reach.way {
            Way::Straight => REQUESTED,
            Way::Gather(_) => SIEVED,
            Way::Mapped => self.copied(terms),
        };
        let (mut slot, mut largest, mut points_there) = (0_i64, 0_i64, 0);
        let (mut rounds, mut cost) = (vec![0], Cost::default());
        for (number, window) in points.windows().iter().enumerate() {
            let spot = self.spot(window.first)?;
            let used = self.reach.cost(&spot, window.first..window.end, means, &mut cost);
            let begins = rounds.last().is_some_and(|last| *last == number);
            let full = slot.saturating_add(used) > most || points_there + window.points > enough;
            if full && !begins {
                rounds.push(number);
                (slot, points_there) = (0, 0);
            }
            slot = slot.saturating_add(used);
            points_there += window.points;
            if slot > terms.budget {
                return Err(self.refused(terms.budget));
            }
            largest = largest.max(slot);
        }
        rounds.push(points.windows().len());
        (self.rounds, self.cost, self.slot) = (rounds, cost, largest);
        self.lanes = self.lanes.min(terms.budget / self.slot.max(1)).max(1);
        Ok(())
    }

    /// The error if the largest window needs more than the budget.
    fn refused(&self, budget: i64) -> PlanError {
        let one = |window: &Window| {
            let spot = self.spot(window.first).ok()?;
            Some(self.reach.used(&spot, window.first..window.end, 0))
        };
        let needed = self.points.windows().iter().filter_map(one).max().unwrap_or(budget);
        let what = "a window of the file with elements of a list";
        PlanError::BudgetTooSmall { what, needed, budget }
    }

    /// The spot of the part that contains point `k`.
    fn spot(&self, k: usize) -> Result<Spot<'_>, PlanError> {
        let (number, start) = self.padded.part(self.points.file[k]);
        let Some(part) = self.parts.get(number) else {
            return Err(PlanError::BadLayout("points outside all parts".into()));
        };
        Ok(Spot {
            points: &self.points,
            cell: &self.cell,
            file: part.file,
            base: part.offset - start,
            inside: false,
            end: part.offset + part.len,
        })
    }

    /// Round `k`.
    pub fn round(&self, k: u64, means: Means) -> Result<Round, PlanError> {
        let mut round = Round::default();
        let range = self.rounds[k as usize]..self.rounds[k as usize + 1];
        if self.by_windows {
            for window in &self.points.windows()[range] {
                let spot = self.spot(window.first)?;
                let (points, at) = (window.first..window.end, round.slot_bytes);
                round.slot_bytes = self.reach.emit(&spot, points, means, at, &mut round);
            }
            return Ok(round);
        }
        let mut first = range.start;
        while first < range.end {
            let spot = self.spot(first)?;
            let end = match self.parts.len() {
                1 => range.end,
                _ => {
                    let part = |k: usize| self.padded.part(self.points.file[k]).0;
                    let number = part(first);
                    (first..range.end).find(|k| part(*k) != number).unwrap_or(range.end)
                }
            };
            round.indexed.push(spot.mapped(first..end, means.direction));
            first = end;
        }
        Ok(round)
    }

    /// Adds the cost of all rounds.
    pub fn cost(&self, cost: &mut Cost) {
        let own = &self.cost;
        for (sum, part) in [
            (&mut cost.reads, own.reads),
            (&mut cost.read_bytes, own.read_bytes),
            (&mut cost.writes, own.writes),
            (&mut cost.written_bytes, own.written_bytes),
            (&mut cost.mapped_bytes, own.mapped_bytes),
        ] {
            *sum = sum.saturating_add(part);
        }
    }

    /// Approximate number of pages of mapped files that the work touches.
    pub fn mapped_pages(&self) -> i64 {
        let run = (self.points.len() / self.points.runs().max(1)) as i64;
        let each = 1 + (run.saturating_mul(self.cell.extent(0)) - 1) / crate::address::PAGE;
        match self.reach.way {
            Way::Mapped => (self.points.runs() as i64).saturating_mul(each),
            _ => 0,
        }
    }
}
