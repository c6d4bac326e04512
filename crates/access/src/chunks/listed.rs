//! Access to elements of a chunked array that are chosen one by one: batches of the chunks that hold some of
//! them.
//!
//! Points come ordered by chunks; the chunks of a shard come together. Consecutive chunks form a batch as
//! long as the box around them has few other chunks, because a whole box is looked up.

use std::ops::Range;
use std::sync::Arc;

use outcore_io::store::{Cells, LARGEST_BOX};
use outcore_io::Arena;
use outcore_plan::{Direction, Points};

use super::{Batch, Chunks, Each};
use crate::admission::Mode;
use crate::error::Fault;
use crate::hints::Cache;
use crate::loops::{self, Promise};
use crate::part::{Context, PartPoints};
use crate::step::{Access, Step};
use crate::terms;

/// Up to this many chunks without chosen elements may be looked up for each chunk with some.
const BESIDE: i64 = 64;

impl Chunks {
    /// Calls `work` for each batch of an access to ordered points. The section of the access is the section
    /// of the block of each point.
    pub fn each_listed(
        &self,
        context: &Context,
        access: &Access,
        (points, reach): (&Arc<Points>, (i64, i64)),
        mode: Mode,
        work: &mut dyn FnMut(Step) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let mut each = self.limits(context, access, mode)?;
        let layout = context.layout;
        let met = layout.met(access.section)?.saturating_mul(points.windows().len() as i64);
        if access.direction == Direction::Read
            && layout.encoded
            && access.hints.cache != Cache::Bypass
        {
            each.chunk_cache = Arena::global().cache_use(layout.chunk_bytes().saturating_mul(met));
        }
        let all = 0..points.windows().len();
        let _promise = match (mode, access.direction) {
            (Mode::Run, Direction::Write) => self.assure_listed(&each, (points, reach))?,
            _ => None,
        };
        self.walk(&each, (points, reach), all, each.at_once, work)
    }

    /// Performs windows in batches of at most `most` chunks, or shards.
    fn walk(
        &self,
        each: &Each,
        (points, reach): (&Arc<Points>, (i64, i64)),
        windows: Range<usize>,
        most: i64,
        work: &mut dyn FnMut(Step) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let mut first = windows.start;
        while first < windows.end {
            let (end, cells, met) = self.batch_from(each, points, first..windows.end, most)?;
            let listed = Some(PartPoints { points, windows: first..end, reach });
            let section = each.access.section;
            let batch = Batch { section, shift: 0, cells, met, times: 1, listed };
            match self.cells(each, &batch, work) {
                // Other accesses may now hold memory that was free when the batches were cut.
                Err(refused) if refused.is_about_room() && met > 1 && most > 1 => {
                    self.walk(each, (points, reach), first..end, 1, work)?;
                }
                done => done?,
            }
            first = end;
        }
        Ok(())
    }

    /// Returns the batch that begins with a given window: one past its last window, the box of its chunks,
    /// and the number of chunks or shards that hold points.
    fn batch_from(
        &self,
        each: &Each,
        points: &Points,
        windows: Range<usize>,
        most: i64,
    ) -> Result<(usize, Cells, i64), Fault> {
        let layout = each.context.layout;
        let grid = points.grid();
        let block = layout.touched(each.access.section)?;
        let (mut lo, mut high) = (block.lo.clone(), block.lo.clone());
        high.iter_mut().zip(&block.count).for_each(|(high, count)| *high += count);
        let across = each.grouping.met(each.access.section)?;
        let beside = each.access.section.ndim() as i64; // A minimum, for boxes of a few chunks.
        let rest: i64 = (0..block.count.len())
            .filter(|d| !grid.axes().contains(d))
            .map(|d| block.count[d])
            .fold(1, i64::saturating_mul);
        let (mut cells, mut groups) = (0_i64, 0_i64);
        let (mut cell, mut group) = (-1, -1);
        let mut end = windows.start;
        for number in windows.clone() {
            let window = points.cell(&points.windows()[number]);
            if window != cell {
                let shard = grid.shard(window);
                let along = grid.coordinates(window);
                let (mut low, mut top) = (lo.clone(), high.clone());
                for (axis, at) in grid.axes().iter().zip(along) {
                    let begins = cells == 0;
                    low[*axis] = if begins { at } else { low[*axis].min(at) };
                    top[*axis] = if begins { at + 1 } else { top[*axis].max(at + 1) };
                }
                let more = groups + i64::from(shard != group);
                let all = low.iter().zip(&top).fold(1_i64, |n, (l, h)| n.saturating_mul(h - l));
                let held = (cells + 1).saturating_mul(rest);
                let room = held.saturating_mul(BESIDE).saturating_add(beside);
                let full = more.saturating_mul(across) > most || all > room.min(LARGEST_BOX);
                if cells > 0 && full {
                    break;
                }
                (lo, high, cells, groups) = (low, top, cells + 1, more);
                (cell, group) = (window, shard);
            }
            end = number + 1;
        }
        let count: Vec<i64> = lo.iter().zip(&high).map(|(lo, high)| high - lo).collect();
        Ok((end, Cells::new(&lo, &count, &self.grid)?, groups.saturating_mul(across)))
    }

    /// As `assure`: makes sure, before the first byte is written, that no part of a write is refused memory
    /// for good.
    fn assure_listed(
        &self,
        each: &Each,
        points: (&Arc<Points>, (i64, i64)),
    ) -> Result<Option<Promise>, Fault> {
        let Each { context, access, .. } = *each;
        let least = self.least(context.layout, context.described, Direction::Write);
        let promise = loops::promise(least);
        if terms::budget(access.hints) >= least {
            return Ok(Some(promise));
        }
        drop(promise);
        self.each_listed(context, access, points, Mode::Look, &mut |_| Ok(()))?;
        Ok(None)
    }
}
