//! Exchange plans: the messages between ranks when an array changes its distribution.
//!
//! Problem: in a redistribution, an update of ghosts or a gather, every rank has some parts of an
//! array and needs others. All ranks must agree on the messages without communication.
//!
//! Approach: rank `p` sends to rank `q` the intersection of the elements that `p` has and `q`
//! needs, and regular sections intersect in regular sections. Both sets are products over the axes,
//! so each axis is intersected separately, once for each coordinate, and peers are products of
//! intersecting coordinates. Both ends enumerate the same sections in the same order; only the
//! elements are sent.
//!
//! Invariants: every needed element is received exactly once. If there are several copies, the
//! receiver's number determines the sender: the receiver itself, if it has a copy. Equal input
//! gives the same plan on all ranks.
//!
//! Cost: proportional to the coordinates of all axes and the number of peers, not to the square of
//! the number of ranks.

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use super::axis::Ghost;
use super::axis::{Axis, Strip, MOST_PIECES};
use super::owners::{ghost, Distribution};
use super::traffic::{Message, Operation, Traffic};
use crate::error::PlanError;
use crate::section::{Range, Section};

/// The elements that all ranks have, or need.
#[derive(Debug, Clone)]
pub struct Parts<'a> {
    distribution: &'a Distribution,
    ghosts: Vec<Ghost>,
    all: bool,
    only: Option<i64>,
}

impl<'a> Parts<'a> {
    /// The elements that ranks own, stored among ghosts; with `all`, the ghosts are included.
    pub fn new(
        distribution: &'a Distribution,
        ghosts: &[Ghost],
        all: bool,
    ) -> Result<Parts<'a>, PlanError> {
        distribution.check_ghosts(ghosts)?;
        Ok(Parts { distribution, ghosts: ghosts.to_vec(), all, only: None })
    }

    /// The same, restricted to one rank.
    pub fn only(self, rank: i64) -> Parts<'a> {
        Parts { only: Some(rank), ..self }
    }

    fn axis(&self, d: usize) -> (&Axis, Ghost) {
        (&self.distribution.axes[d], ghost(&self.ghosts, d))
    }

    fn hull(&self, d: usize, c: i64) -> (i64, i64) {
        let (axis, ghost) = self.axis(d);
        axis.hull(c, ghost, self.all)
    }

    /// Ranges of axis `d` at coordinate `c`, of the indices in `window`.
    pub(super) fn strips(
        &self,
        d: usize,
        c: i64,
        window: (i64, i64),
    ) -> Result<Vec<Strip>, PlanError> {
        let (axis, ghost) = self.axis(d);
        axis.strips(c, ghost, self.all, window)
    }

    pub(super) fn has(&self, rank: i64) -> bool {
        (0..self.distribution.grid.size()).contains(&rank) && self.only.is_none_or(|r| r == rank)
    }

    /// The number of the copy that serves `rank`.
    fn copy_for(&self, rank: i64) -> Result<i64, PlanError> {
        let grid = &self.distribution.grid;
        if rank < grid.size() {
            return Ok(self.distribution.copy_of(&grid.coordinates(rank)?));
        }
        Ok(rank % self.distribution.copies())
    }

    /// The rank at these coordinates along the axes of the array, in copy number `copy`.
    pub(super) fn rank(&self, along: &[i64], copy: i64) -> Result<i64, PlanError> {
        let grid = &self.distribution.grid;
        let mut coordinates = vec![0; grid.ndim()];
        for (mapping, c) in self.distribution.mappings.iter().zip(along) {
            if let Some(axis) = mapping.axis {
                coordinates[axis] = *c;
            }
        }
        let mut rest = copy;
        for axis in self.distribution.replicated().into_iter().rev() {
            coordinates[axis] = rest % grid.shape()[axis];
            rest /= grid.shape()[axis];
        }
        grid.rank(&coordinates)
    }
}

/// Intersection of two strips: its places at the source and at the target.
pub(super) type Intersection = (Range, Range);

/// Per axis: coordinates of the other side that intersect this one, and the intersections.
pub(super) type Met = Vec<Vec<(i64, Vec<Intersection>)>>;

/// The plan of rank `me` for moving elements from the ranks that have them to those that need them.
pub fn exchange_plan(
    source: &Parts<'_>,
    target: &Parts<'_>,
    me: i64,
) -> Result<Traffic, PlanError> {
    if source.distribution.shape != target.distribution.shape {
        return Err(PlanError::BadDistribution(format!(
            "arrays of shapes {:?} and {:?} cannot exchange elements; give equal shapes",
            source.distribution.shape, target.distribution.shape
        )));
    }
    let mut sends = sends(source, target, me)?;
    let mut receives = receives(source, target, me)?;
    let mine = |found: &mut Vec<Message>| {
        let at = found.iter().position(|message| message.peer == me);
        at.map_or(vec![], |at| found.remove(at).sections)
    };
    let own = mine(&mut sends).into_iter().zip(mine(&mut receives)).collect();
    Ok(Traffic { operation: Operation::Copy, sends, receives, own })
}

/// The reverse of [`exchange_plan`]: combines ghosts with the elements of their owners.
///
/// The owner combines the values from ghosts (`kept`) with its own element in the order of ranks.
///
/// `owned` describes the same arrays without ghosts. With a limit, no rank receives more elements
/// in a round.
pub fn accumulate_plan(
    owned: &Parts<'_>,
    kept: &Parts<'_>,
    operation: Operation,
    me: i64,
    limit: Option<i64>,
) -> Result<Traffic, PlanError> {
    let update = exchange_plan(owned, kept, me)?;
    // An element that a rank owns is not a ghost, so it is not sent.
    let (sends_back, comes_back) = (update.receives, update.sends);
    let traffic = Traffic { operation, sends: sends_back, receives: comes_back, own: vec![] };
    match limit {
        None => Ok(traffic),
        Some(limit) => traffic.in_ordered_rounds(me, limit, |owner| {
            let mut found = sends(owned, kept, owner)?;
            found.retain(|message| message.peer != owner);
            Ok(found)
        }),
    }
}

fn sends(source: &Parts<'_>, target: &Parts<'_>, me: i64) -> Result<Vec<Message>, PlanError> {
    if !source.has(me) {
        return Ok(vec![]);
    }
    let mine = source.distribution.along(me)?;
    let copy = source.distribution.copy_of(&source.distribution.grid.coordinates(me)?);
    let axes = mine.iter().enumerate();
    let met: Met = axes
        .map(|(d, c)| intersections(target, d, |other| meet(d, (source, *c), (target, other))))
        .collect::<Result<_, PlanError>>()?;
    let mut found = Vec::new();
    each_combination(&met, |along, lists| {
        for twin in 0..target.distribution.copies() {
            let peer = target.rank(along, twin)?;
            if target.has(peer) && source.copy_for(peer)? == copy {
                found.push(message(peer, lists, |intersection| intersection.0)?);
            }
        }
        Ok(())
    })?;
    found.sort_unstable_by_key(|message| message.peer);
    Ok(found)
}

fn receives(source: &Parts<'_>, target: &Parts<'_>, me: i64) -> Result<Vec<Message>, PlanError> {
    if !target.has(me) {
        return Ok(vec![]);
    }
    let mine = target.distribution.along(me)?;
    let copy = source.copy_for(me)?;
    let axes = mine.iter().enumerate();
    let met: Met = axes
        .map(|(d, c)| intersections(source, d, |other| meet(d, (source, other), (target, *c))))
        .collect::<Result<_, PlanError>>()?;
    let mut found = Vec::new();
    each_combination(&met, |along, lists| {
        let peer = source.rank(along, copy)?;
        if source.has(peer) {
            found.push(message(peer, lists, |intersection| intersection.1)?);
        }
        Ok(())
    })?;
    found.sort_unstable_by_key(|message| message.peer);
    Ok(found)
}

/// Coordinates along axis `d` of `others` that intersect this rank, with the intersections.
fn intersections(
    others: &Parts<'_>,
    d: usize,
    meet: impl Fn(i64) -> Result<Vec<Intersection>, PlanError>,
) -> Result<Vec<(i64, Vec<Intersection>)>, PlanError> {
    let mut found = Vec::new();
    for c in 0..others.distribution.axes[d].over() {
        let list = meet(c)?;
        if !list.is_empty() {
            found.push((c, list));
        }
    }
    Ok(found)
}

/// Intersections of one coordinate of the source and one of the target along axis `d`.
///
/// Both ends of a message call this function with the same arguments, so they get the same list.
fn meet(
    d: usize,
    (source, from): (&Parts<'_>, i64),
    (target, to): (&Parts<'_>, i64),
) -> Result<Vec<Intersection>, PlanError> {
    let (a, b) = (source.hull(d, from), target.hull(d, to));
    let window = (a.0.max(b.0), a.1.min(b.1));
    if window.0 >= window.1 {
        return Ok(vec![]);
    }
    // The restriction to the window limits the number of ranges: a block may intersect only one
    // block of many turns, and the others would have to be cut into pieces.
    Ok(meet_strips(&source.strips(d, from, window)?, &target.strips(d, to, window)?))
}

/// Intersections of two lists of strips, in the order of the first, then of the second.
///
/// Both lists are disjoint and sorted.
pub(super) fn meet_strips(a: &[Strip], b: &[Strip]) -> Vec<Intersection> {
    let (Some(from), Some(upto)) = (b.first(), b.iter().map(|s| s.global.stop()).max()) else {
        return vec![];
    };
    let mut found = Vec::new();
    let mut begin = 0;
    for one in a.iter().filter(|s| s.global.start < upto && s.global.stop() > from.global.start) {
        let passed = b[begin..].iter().take_while(|s| s.global.stop() <= one.global.start);
        begin += passed.count(); // later strips of `a` begin later
        for other in b[begin..].iter().take_while(|s| s.global.start < one.global.stop()) {
            let both = one.global.intersect(&other.global);
            if both.count > 0 {
                found.push((stored(one, &both), stored(other, &both)));
            }
        }
    }
    found
}

/// The places of a part of a strip.
fn stored(strip: &Strip, part: &Range) -> Range {
    let Strip { global, local } = strip;
    let start = local.start + (part.start - global.start) / global.step * local.step;
    let step = if part.count == 1 { 1 } else { part.step / global.step * local.step };
    Range { start, count: part.count, step }
}

/// Calls `call` with every combination of coordinates that intersect along all axes.
pub(super) fn each_combination(
    met: &Met,
    mut call: impl FnMut(&[i64], &[&Vec<Intersection>]) -> Result<(), PlanError>,
) -> Result<(), PlanError> {
    let lengths = met.iter().map(|axis| Range { start: 0, count: axis.len() as i64, step: 1 });
    for number in Section::new(lengths.collect()).indices() {
        let chosen = met.iter().zip(&number).map(|(axis, k)| &axis[*k as usize]);
        let (along, lists): (Vec<i64>, Vec<_>) = chosen.map(|(c, list)| (*c, list)).unzip();
        call(&along, &lists)?;
    }
    Ok(())
}

/// The message with the sections that lists of intersections form, at one of the two ends.
pub(super) fn message(
    peer: i64,
    lists: &[&Vec<Intersection>],
    end: impl Fn(&Intersection) -> Range,
) -> Result<Message, PlanError> {
    let count = lists.iter().try_fold(1_i64, |n, list| n.checked_mul(list.len() as i64));
    if count.is_none_or(|n| n > MOST_PIECES) {
        return Err(PlanError::BadDistribution(format!(
            "a message would have more than {MOST_PIECES} regular sections; use longer CYCLIC blocks"
        )));
    }
    let lengths = lists.iter().map(|list| Range { start: 0, count: list.len() as i64, step: 1 });
    let numbers = Section::new(lengths.collect());
    let section = |number: Vec<i64>| {
        Section::new(lists.iter().zip(&number).map(|(list, k)| end(&list[*k as usize])).collect())
    };
    let sections: Vec<Section> = numbers.indices().map(section).collect();
    Ok(Message::new(peer, sections))
}
