//! Ways to access the bytes of points in one file, window by window.
//!
//! | way      | file side                                   | memory side           | for                       |
//! |----------|---------------------------------------------|-----------------------|---------------------------|
//! | mapped   | a mapping                                   | a move by lists       | cached data, most writes  |
//! | gather   | pages of a window that contain points       | a move out of a slot  | cold data; sieving        |
//! | straight | a request, or family of requests, per point | the caller's array    | long blocks; no mapping   |
//!
//! The same extents are used to emit steps and to count them, so `Cost` is exact.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use super::extents::{Extents, Sieve};
use super::last::{requested, Stretch};
use super::list::{Addresses, Counts, Points};
use crate::address::{round_up, PAGE};
use crate::choose::{is_cached, time, times, AROUND, SMALL};
use crate::emit::{add, cut_direct_reads, cut_requests, requests, Means};
use crate::error::PlanError;
use crate::nest::Nest;
use crate::plan::{Channel, Cost, Direction, Family, IndexedMove, Method, Place, Round, Transfer};
use crate::terms::Terms;

/// Ways to access the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Mapped,
    Gather(Channel),
    Straight,
}

/// A way with its parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reach {
    pub way: Way,
    /// Smaller gaps between pages are read, too.
    gap: i64,
    /// Extents begin at multiples of this.
    pub unit: i64,
    /// True if pages are read before points in them are written.
    pub fetches: bool,
}

/// Location of points.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spot<'a> {
    pub points: &'a Arc<Points>,
    /// The loops of the block of each point, from address 0 of the points on.
    pub cell: &'a Nest,
    pub file: u32,
    /// File address of address 0 of the points.
    pub base: i64,
    /// True if addresses are relative to a chunk.
    pub inside: bool,
    /// End of the array, or of the chunk, in the file.
    pub end: i64,
}

impl Reach {
    /// Chooses the way for points whose blocks have the form of `cell`.
    pub fn choose(
        points: &Points,
        cell: &Nest,
        means: Means,
        terms: &Terms,
    ) -> Result<(Reach, Method), PlanError> {
        let mean = (points.len() / points.runs().max(1)) as i64;
        let mean = mean.saturating_mul(cell.extent(0));
        let read = means.direction == Direction::Read;
        let cached = is_cached(terms.cached_permille);
        let direct = terms.direct && means.total >= SMALL;
        let channel = if direct { Channel::Direct } else { Channel::Cached };
        let (way, method) = match terms.method {
            Some(Method::Mapped) if !terms.mapping => {
                let why = "files may not be mapped";
                return Err(PlanError::Impossible { method: "mapped", why });
            }
            Some(Method::Mapped) => (Way::Mapped, Method::Mapped),
            Some(Method::Straight) => (Way::Straight, Method::Straight),
            Some(Method::Window) if read => (Way::Gather(Channel::Cached), Method::Window),
            Some(Method::List) if read => (Way::Gather(channel), Method::List),
            None if terms.mapping && (cached || !read) => (Way::Mapped, Method::Mapped),
            // Long blocks are transferred directly, without a copy and in many concurrent requests.
            None if read && cell.run_level() == 0 && mean >= terms.straight => {
                (Way::Straight, Method::List)
            }
            None if read => (Way::Gather(channel), Method::List),
            // Windows are not read, changed and written back, so only the requested bytes are
            // written.
            _ => (Way::Straight, Method::Straight),
        };
        let gap = if method == Method::Window { terms.cached_gap } else { terms.gap };
        let fetches = !read && way == Way::Mapped && terms.stored && !cached;
        Ok((Reach { way, gap, unit: terms.block.max(PAGE), fetches }, method))
    }

    /// The way with calls for cached data, and its method.
    pub fn by_calls(&self, terms: &Terms) -> (Reach, Method) {
        let way = Way::Gather(Channel::Cached);
        (Reach { way, gap: terms.cached_gap, fetches: false, ..*self }, Method::Window)
    }

    /// Estimated nanoseconds of a read of a window's cached points, by a new mapping or by calls.
    ///
    /// The estimate counts exactly the pages that contain points.
    pub fn price(&self, spot: &Spot, range: Range<usize>, terms: &Terms) -> i64 {
        let r = &terms.rates;
        let Some(faults) = terms.faults else { return 0 };
        let gap = if self.way == Way::Mapped { 1 } else { self.gap };
        let extents = Reach { gap, ..*self }.extents(spot, range.clone(), 0).list;
        let bytes = extents.iter().fold(0, |all: i64, e| all.saturating_add(e.high - e.low));
        if let Way::Gather(_) = self.way {
            let each = r.call_ns.saturating_add(r.lone_ns);
            let calls = (extents.len() as i64).saturating_mul(each);
            // Each point is located among the extents.
            let found = (range.len() as i64).saturating_mul(4 * r.piece_ps) / 1000;
            return calls.saturating_add(time(bytes, r.pread)).saturating_add(found);
        }
        let (mut around, mut last) = (0_i64, -1);
        for extent in &extents {
            let (first, end) = (extent.low / AROUND, (extent.high - 1) / AROUND);
            around += end - first + i64::from(first != last);
            last = end;
        }
        let calls = r.fresh_map_ns / faults.chunks.max(1);
        let entered = around.saturating_mul(r.fault_ns) / 1000 * faults.absent;
        calls.saturating_add(entered).saturating_add(times(bytes / PAGE, r.touch_ns))
    }

    /// Returns whether data of the file goes through a slot.
    pub fn sieves(&self) -> bool {
        self.fetches || matches!(self.way, Way::Gather(_))
    }

    fn channel(&self) -> Channel {
        match self.way {
            Way::Gather(channel) => channel,
            _ => Channel::Cached,
        }
    }

    fn extents(&self, spot: &Spot, range: Range<usize>, at: i64) -> Extents {
        let sieve = Sieve {
            base: spot.base + spot.cell.base,
            block: spot.cell.extent(0),
            unit: self.unit,
            gap: self.gap,
            end: spot.end,
        };
        Extents::of(spot.points, range, spot.inside, &sieve, at)
    }

    /// End of the slot space of a window's points, which begins at `at`; whole blocks.
    pub fn used(&self, spot: &Spot, range: Range<usize>, at: i64) -> i64 {
        match self.sieves() {
            true => round_up(self.extents(spot, range, at).end, self.unit),
            false => at,
        }
    }

    /// Counts a window's points; returns the bytes of slot that they use, in whole blocks.
    pub fn cost(&self, spot: &Spot, range: Range<usize>, means: Means, cost: &mut Cost) -> i64 {
        let number = spot.points.points_of(range.clone()) as i64;
        let mut used = 0;
        if self.sieves() {
            let extents = self.extents(spot, range.clone(), 0);
            used = round_up(extents.end, self.unit);
            for extent in extents.list {
                let len = match self.channel() {
                    Channel::Direct => round_up(extent.high - extent.low, means.block),
                    _ => extent.high - extent.low,
                };
                cost.reads = add(cost.reads, 1, requests(len, means.request));
                cost.read_bytes = add(cost.read_bytes, 1, len);
            }
        }
        let cell = spot.cell;
        match self.way {
            Way::Mapped => cost.mapped_bytes = add(cost.mapped_bytes, number, cell.bytes()),
            Way::Gather(_) => {}
            Way::Straight => {
                let level = cell.run_level();
                let kept = spot.stretches(range.clone(), means.direction);
                // Blocks of a run form one interval of bytes.
                let each = |one: &Stretch| requests(one.points * cell.extent(level), means.request);
                let calls = kept.iter().map(each).fold(0, i64::saturating_add);
                let calls = calls.saturating_mul(cell.steps(level));
                let number = kept.iter().map(|one| one.points).sum();
                let (n, bytes) = match means.direction {
                    Direction::Read => (&mut cost.reads, &mut cost.read_bytes),
                    Direction::Write => (&mut cost.writes, &mut cost.written_bytes),
                };
                (*n, *bytes) = (add(*n, 1, calls), add(*bytes, number, cell.bytes()));
            }
        }
        used
    }

    /// Adds the steps of a window's points to a round.
    ///
    /// Returns the end of the slot space that they use from `at` on.
    pub fn emit(
        &self,
        spot: &Spot,
        range: Range<usize>,
        means: Means,
        at: i64,
        round: &mut Round,
    ) -> i64 {
        let mut end = at;
        if self.sieves() {
            let extents = self.extents(spot, range.clone(), at);
            self.reads(spot, &extents, means, round);
            end = round_up(extents.end, self.unit);
            if let Way::Gather(_) = self.way {
                let start = spot.base + spot.cell.base;
                let (at, places) = match extents.list.as_slice() {
                    // All bytes have the same relative places in the slot as in the file.
                    [one] if !spot.inside => {
                        (one.at - one.low + start, spot.points.there(range.clone()))
                    }
                    _ => {
                        let place = |k| extents.place(start + spot.address(k));
                        (0, Addresses::List(range.clone().map(place).collect()))
                    }
                };
                let block = Nest { base: 0, ..spot.cell.clone() };
                let user = spot.points.user(range.clone());
                let there = (Place::Slot, at, places);
                let counts = spot.points.counts(range.clone());
                round.indexed.push(indexed(
                    &block,
                    there,
                    user,
                    counts,
                    range.len(),
                    means.direction,
                ));
            }
        }
        match self.way {
            Way::Gather(_) => {}
            Way::Mapped => round.indexed.push(spot.mapped(range, means.direction)),
            Way::Straight => self.straight(spot, range, means, round),
        }
        end
    }

    fn reads(&self, spot: &Spot, extents: &Extents, means: Means, round: &mut Round) {
        for extent in &extents.list {
            let whole = Transfer {
                file: spot.file,
                extents: Family {
                    offset: extent.low,
                    len: extent.high - extent.low,
                    count: Vec::new(),
                    stride: Vec::new(),
                },
                memory: Place::Slot,
                at: extent.at,
                at_stride: Vec::new(),
                channel: self.channel(),
            };
            match self.channel() {
                Channel::Direct => cut_direct_reads(whole, means, &mut round.reads),
                _ => cut_requests(whole, means.request, &mut round.reads),
            }
        }
    }

    /// Adds a request, or a family of requests, for each run, or for its remainder.
    fn straight(&self, spot: &Spot, range: Range<usize>, means: Means, round: &mut Round) {
        let cell = spot.cell;
        let level = cell.run_level();
        let axes = &cell.axes[..level];
        let list = match means.direction {
            Direction::Read => &mut round.reads,
            Direction::Write => &mut round.writes,
        };
        for one in spot.stretches(range, means.direction) {
            let whole = Transfer {
                file: spot.file,
                extents: Family {
                    offset: spot.base + cell.base + one.at,
                    len: one.points * cell.extent(level),
                    count: axes.iter().map(|axis| axis.count).collect(),
                    stride: axes.iter().map(|axis| axis.file).collect(),
                },
                memory: Place::User,
                at: cell.user + one.user,
                at_stride: axes.iter().map(|axis| axis.user).collect(),
                channel: Channel::Cached,
            };
            cut_requests(whole, means.request, list);
        }
    }
}

impl Spot<'_> {
    /// The runs of points as stretches for requests.
    fn stretches(&self, range: Range<usize>, direction: Direction) -> Vec<Stretch> {
        let points = self.points;
        let one = |k: usize| Stretch {
            at: self.address(k),
            user: points.user.of(k),
            points: points.count(k),
        };
        // Blocks of points that are not runs are identical or disjoint.
        let step = if points.counts.is_empty() { 1 } else { points.step };
        requested(range.map(one).collect(), step, direction)
    }

    fn address(&self, k: usize) -> i64 {
        match self.inside {
            true => self.points.inside(k),
            false => self.points.file[k],
        }
    }

    /// The move between points in the mapped file and the caller's array.
    pub fn mapped(&self, range: Range<usize>, direction: Direction) -> IndexedMove {
        let addresses = match self.inside {
            true => Addresses::List(range.clone().map(|k| self.points.inside(k)).collect()),
            false => self.points.there(range.clone()),
        };
        let there = (Place::File(self.file), self.base, addresses);
        let user = self.points.user(range.clone());
        indexed(self.cell, there, user, self.points.counts(range.clone()), range.len(), direction)
    }
}

/// The move of blocks between points at a place and the caller's array.
pub(crate) fn indexed(
    cell: &Nest,
    (place, at, addresses): (Place, i64, Addresses),
    user: Addresses,
    counts: Counts,
    points: usize,
    direction: Direction,
) -> IndexedMove {
    // A block that is contiguous on both sides is treated as one long element.
    let level = cell.run_level();
    let axes = &cell.axes[..level];
    let other: Vec<i64> = axes.iter().map(|axis| axis.file).collect();
    let own: Vec<i64> = axes.iter().map(|axis| axis.user).collect();
    let count = axes.iter().map(|axis| axis.count).collect();
    let item = cell.extent(level);
    let there = (place, at + cell.base, addresses, other);
    let here = (Place::User, cell.user, user, own);
    let (src, dst) = match direction {
        Direction::Read => (there, here),
        Direction::Write => (here, there),
    };
    IndexedMove {
        points,
        counts,
        src: src.0,
        src_at: src.1,
        src_points: src.2,
        src_stride: src.3,
        dst: dst.0,
        dst_at: dst.1,
        dst_points: dst.2,
        dst_stride: dst.3,
        count,
        item,
    }
}
