//! Overlap: elements in several accesses, and the access that determines their value in a write.
//!
//! Problem: if two ranks write the same element, the highest rank takes precedence. If the
//! element's owner enforced this, all data would go to it by messages, and no rank could write
//! independently.
//!
//! Approach: all ranks know all sections, so each skips the elements that a later access writes.
//! The remainder of a section is cut into disjoint sections, along the slowest axis first, so that
//! they stay long in the file; strides are cut on their own lattice. No element is then written
//! twice, and the order does not matter.
//!
//! Accesses in different residue classes of the steps share no element (cyclic distributions), so
//! each class is processed separately. It is swept along one axis, and the open accesses are found
//! by their position on another axis (grids of blocks). Different steps have few classes in common:
//! accesses with equal steps form a group, and each group is compared with itself and with every
//! other group.
//!
//! Invariants: the remainders of all accesses are disjoint and contain every element of any access,
//! in the last access that has it. Equal input gives equal output on every rank.
//!
//! Cost: O(P log P + pairs that are near each other), independent of the number of elements. If too
//! many pairs must be compared, or a section is cut into too many parts, the result states this;
//! the order of ranks then matters. Pairs are reported to share an element only if they do.

use alloc::collections::{BTreeMap, BTreeSet, BinaryHeap};
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::ops::ControlFlow;

use super::access::{Access, ArrayDescriptor};
use super::regions::{gcd, Region};
use crate::section::{Range, Section};

/// Maximum number of pairs that are compared.
const LOOKS: usize = 1 << 24;
/// Maximum number of pairs that share elements; each is cut out.
const PAIRS: usize = 1 << 20;
/// Maximum number of sections into which the remainder of a section may be cut.
const PIECES: usize = 16;
/// Maximum number of sections while later accesses are still to be cut out.
const MEANWHILE: usize = 4 * PIECES;
/// Maximum number of groups of equal steps; with more, all accesses form one group.
const GROUPS: usize = 24;

/// Remainders of accesses if, for each element, only the last access counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Left {
    /// All accesses as they are: no two of them share an element.
    All,
    /// Parts, and the access of each part, in the order of the accesses.
    Parts(Vec<(u32, Section)>),
    /// Not determined: some accesses share elements, in too many pairs or parts.
    Entangled,
    /// Not determined, nor whether any accesses share an element: there are too many pairs.
    Unknown,
}

/// Result of a search for elements in several accesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Overlap {
    /// No two accesses share an element.
    Never,
    /// There were too many pairs, and none of the compared ones shares an element.
    Unknown,
    /// Some accesses share an element.
    Somewhere,
}

/// Returns whether any element is in two of the accesses.
pub fn overlap(descriptor: &ArrayDescriptor, accesses: &[Access], region: &Region) -> Overlap {
    let members = full(accesses, &region.members);
    match each_pair(descriptor, accesses, &members, &mut |_, _| ControlFlow::Break(())) {
        Looked::AtAll => Overlap::Never,
        Looked::Enough => Overlap::Somewhere,
        Looked::TooMany => Overlap::Unknown,
    }
}

/// The remainders of the accesses of some regions if, for each element, the last access counts.
pub fn leave_out(descriptor: &ArrayDescriptor, accesses: &[Access], regions: &[Region]) -> Left {
    let mut pairs: Vec<(u32, u32)> = Vec::new();
    let mut gone: BTreeSet<u32> = BTreeSet::new();
    let mut too_many = false;
    for region in regions {
        let mut members = full(accesses, &region.members);
        // Among equal sections the last one counts: all ranks may write the same section.
        let section = |k: u32| &accesses[k as usize].section;
        members.sort_by(|a, b| (section(*a), a).cmp(&(section(*b), b)));
        let last = |n: usize| members.get(n + 1).is_none_or(|k| section(*k) != section(members[n]));
        let (kept, others): (Vec<usize>, _) = (0..members.len()).partition(|n| last(*n));
        gone.extend(others.into_iter().map(|n: usize| members[n]));
        let kept: Vec<u32> = kept.into_iter().map(|n| members[n]).collect();
        let looked = each_pair(descriptor, accesses, &kept, &mut |a, b| {
            pairs.push((a.min(b), a.max(b)));
            if pairs.len() > PAIRS {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        too_many |= looked == Looked::TooMany;
        if looked == Looked::Enough || too_many && !(pairs.is_empty() && gone.is_empty()) {
            return Left::Entangled;
        }
    }
    if too_many {
        return Left::Unknown;
    }
    if pairs.is_empty() && gone.is_empty() {
        return Left::All;
    }
    pairs.sort_unstable();
    let mut parts = Vec::with_capacity(accesses.len());
    let mut rest = &pairs[..];
    for (k, access) in (0..).zip(accesses) {
        let (mine, others) = rest.split_at(rest.partition_point(|(low, _)| *low == k));
        rest = others;
        if access.section.is_empty() || gone.contains(&k) {
            continue;
        }
        let later = mine.iter().map(|(_, other)| &accesses[*other as usize].section);
        match without_all(&access.section, later.collect(), &descriptor.order) {
            Some(left) => parts.extend(left.into_iter().map(|section| (k, section))),
            None => return Left::Entangled,
        }
    }
    Left::Parts(parts)
}

/// A section without others, as disjoint sections; None if there would be too many.
fn without_all(
    section: &Section,
    mut others: Vec<&Section>,
    order: &[usize],
) -> Option<Vec<Section>> {
    // The section with the largest intersection comes first, so that less must be cut.
    let shared = |other: &Section| {
        let both = section.intersect(other);
        both.map_or(0, |both| both.count().unwrap_or(i64::MAX))
    };
    others.sort_by_cached_key(|other| Reverse(shared(other)));
    let mut left = vec![section.clone()];
    for other in others {
        let mut next = Vec::with_capacity(left.len());
        for part in &left {
            without(part, other, order, &mut next)?;
            if next.len() > MEANWHILE {
                return None;
            }
        }
        left = next;
    }
    (left.len() <= PIECES).then_some(left)
}

/// Adds the remainder of a section without another one, cut along one axis after another.
fn without(
    section: &Section,
    other: &Section,
    order: &[usize],
    left: &mut Vec<Section>,
) -> Option<()> {
    let both = section.intersect(other)?;
    if both.is_empty() {
        left.push(section.clone());
        return Some(());
    }
    let mut ranges = section.ranges().to_vec();
    for axis in order {
        let shared = both.ranges()[*axis];
        for range in cut_out(ranges[*axis], shared)? {
            let mut part = ranges.clone();
            part[*axis] = range;
            left.push(Section::new(part));
        }
        ranges[*axis] = shared;
    }
    Some(())
}

/// A range without some of its indices, in the fewest ranges that the three ways below give.
fn cut_out(all: Range, out: Range) -> Option<Vec<Range>> {
    let first = (out.start - all.start) / all.step;
    let every = if out.count > 1 { out.step / all.step } else { 1 };
    let last = first + (out.count - 1) * every;
    let (before, after) = (first, all.count - 1 - last);
    let stride = |from: i64, count: i64| Range {
        start: all.index(from),
        count,
        step: if count > 1 { every * all.step } else { 1 },
    };
    let mut left = Vec::new();
    // The indices between two removed ones form a run. Alternatively, all indices at the same
    // distance after a removed one form a range, either between the removed ones or from end to
    // end.
    let ends = i64::from(before > 0) + i64::from(after > 0);
    let runs = if every > 1 { ends + out.count - 1 } else { ends };
    let between = ends + every - 1;
    let across = every - 1 + i64::from(before >= every) + i64::from(after >= every);
    if runs.min(between).min(across) > PIECES as i64 {
        return None;
    }
    if across < runs.min(between) {
        let class = first % every;
        for from in (0..every.min(all.count)).filter(|from| *from != class) {
            left.push(stride(from, (all.count - 1 - from) / every + 1));
        }
        left.extend((before >= every).then(|| stride(class, first / every)));
        left.extend((after >= every).then(|| stride(last + every, after / every)));
        return Some(left);
    }
    left.extend((before > 0).then(|| all.part(0, before)));
    if every > 1 && runs <= between {
        left.extend((0..out.count - 1).map(|n| all.part(first + n * every + 1, every - 1)));
    } else if every > 1 {
        left.extend((1..every).map(|n| stride(first + n, out.count - 1)));
    }
    left.extend((after > 0).then(|| all.part(last + 1, after)));
    Some(left)
}

fn full(accesses: &[Access], members: &[u32]) -> Vec<u32> {
    members.iter().copied().filter(|k| !accesses[*k as usize].section.is_empty()).collect()
}

/// Outcomes of a search for pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Looked {
    /// All pairs were compared.
    AtAll,
    /// The receiver stopped the search.
    Enough,
    /// There were too many pairs.
    TooMany,
}

type Found<'a> = &'a mut dyn FnMut(u32, u32) -> ControlFlow<()>;

/// Passes each pair of accesses that share an element to `found`.
fn each_pair(
    descriptor: &ArrayDescriptor,
    accesses: &[Access],
    members: &[u32],
    found: Found,
) -> Looked {
    let range = |k: u32, axis: usize| accesses[k as usize].section.ranges()[axis];
    let axes = descriptor.shape.len();
    // A single index is compatible with any step.
    let step = |k: u32, axis: usize| if range(k, axis).count > 1 { range(k, axis).step } else { 0 };
    let mut groups: BTreeMap<Vec<i64>, Vec<u32>> = BTreeMap::new();
    for k in members {
        let steps = (0..axes).map(|axis| step(*k, axis)).collect();
        groups.entry(steps).or_default().push(*k);
    }
    if groups.len() > GROUPS {
        let all = |axis| members.iter().fold(0, |all, k| gcd(all, step(*k, axis)));
        groups = BTreeMap::from([((0..axes).map(all).collect(), members.to_vec())]);
    }
    let groups: Vec<(Vec<i64>, Vec<u32>)> = groups.into_iter().collect();
    let mut left = LOOKS;
    for (n, (steps, group)) in groups.iter().enumerate() {
        for (others, against) in &groups[..=n] {
            let steps: Vec<i64> = steps.iter().zip(others).map(|(a, b)| gcd(*a, *b)).collect();
            let class = |k: u32| -> Vec<i64> {
                let start = |(axis, step): (usize, &i64)| match step {
                    0 => range(k, axis).start,
                    step => range(k, axis).start % step,
                };
                steps.iter().enumerate().map(start).collect()
            };
            // A group compared with itself has one side; two groups have two sides, and only pairs
            // across sides are compared.
            let both = !core::ptr::eq(group, against);
            let side = |list: &[u32], side: u8| -> Vec<(Vec<i64>, u32, u8)> {
                list.iter().map(|k| (class(*k), *k, side)).collect()
            };
            let mut sorted = side(group, 0);
            if both {
                sorted.extend(side(against, 1));
            }
            sorted.sort_unstable();
            for class in sorted.chunk_by(|a, b| a.0 == b.0) {
                let members: Vec<(u32, u8)> =
                    class.iter().map(|(_, k, side)| (*k, *side)).collect();
                if both && members.iter().all(|(_, side)| *side == members[0].1) {
                    continue;
                }
                let looked = sweep(axes, accesses, &members, both, &mut left, found);
                if looked != Looked::AtAll {
                    return looked;
                }
            }
        }
    }
    Looked::AtAll
}

/// Passes the pairs of one class to `found`; with `both` sides, only pairs across sides.
fn sweep(
    axes: usize,
    accesses: &[Access],
    sides: &[(u32, u8)],
    both: bool,
    left: &mut usize,
    found: Found,
) -> Looked {
    if sides.len() < 2 {
        return Looked::AtAll;
    }
    let members: Vec<u32> = sides.iter().map(|(k, _)| *k).collect();
    let range = |k: u32, axis: usize| accesses[k as usize].section.ranges()[axis];
    // Only pairs that overlap along an axis can share an element: sweep the axis with the fewest
    // pairs.
    let mut order: Vec<(usize, usize)> =
        (0..axes).map(|axis| (pairs(&members, |k| range(k, axis)), axis)).collect();
    order.sort_unstable();
    let (along, across) = match order[..] {
        [] => return every_pair(&members, left, found),
        [(_, along)] => (along, along),
        [(_, along), (_, across), ..] => (along, across),
    };
    let span = |k: u32| range(k, across).stop() - range(k, across).start;
    let widest = members.iter().map(|k| span(*k)).max().unwrap_or(0);
    let mut sorted = sides.to_vec();
    sorted.sort_by_key(|(k, _)| (range(*k, along).start, *k));
    let mut ends: BinaryHeap<Reverse<(i64, u32, u8)>> = BinaryHeap::new();
    let mut open = [BTreeSet::new(), BTreeSet::new()];
    for (k, side) in sorted {
        while let Some(Reverse((stop, other, side))) = ends.peek().copied() {
            if stop > range(k, along).start {
                break;
            }
            ends.pop();
            open[usize::from(side)].remove(&(range(other, across).start, other));
        }
        let (mine, here) = (&accesses[k as usize].section, range(k, across));
        let near = (here.start.saturating_sub(widest), 0)..(here.stop(), 0);
        let facing = if both { 1 - side } else { side };
        for (_, other) in open[usize::from(facing)].range(near) {
            if *left == 0 {
                return Looked::TooMany;
            }
            *left -= 1;
            if overlap_of(mine, &accesses[*other as usize].section) && found(k, *other).is_break() {
                return Looked::Enough;
            }
        }
        ends.push(Reverse((range(k, along).stop(), k, side)));
        open[usize::from(side)].insert((here.start, k));
    }
    Looked::AtAll
}

/// For arrays without axes: all accesses have the same element.
fn every_pair(members: &[u32], left: &mut usize, found: Found) -> Looked {
    for (n, a) in members.iter().enumerate() {
        for b in &members[..n] {
            if *left == 0 {
                return Looked::TooMany;
            }
            *left -= 1;
            if found(*a, *b).is_break() {
                return Looked::Enough;
            }
        }
    }
    Looked::AtAll
}

/// Returns whether two sections share an element. Neither is empty.
fn overlap_of(a: &Section, b: &Section) -> bool {
    let both = || a.ranges().iter().zip(b.ranges());
    both().all(|(a, b)| a.start < b.stop() && b.start < a.stop())
        && both().all(|(a, b)| {
            if a.step == b.step {
                (a.start - b.start) % a.step == 0
            } else {
                a.intersect(b).count > 0
            }
        })
}

/// Number of pairs that overlap along an axis.
fn pairs(members: &[u32], range: impl Fn(u32) -> Range) -> usize {
    let mut starts: Vec<i64> = members.iter().map(|k| range(*k).start).collect();
    let mut stops: Vec<i64> = members.iter().map(|k| range(*k).stop()).collect();
    starts.sort_unstable();
    stops.sort_unstable();
    let (mut pairs, mut ended) = (0_usize, 0);
    for (begun, start) in starts.iter().enumerate() {
        while ended < stops.len() && stops[ended] <= *start {
            ended += 1;
        }
        pairs = pairs.saturating_add(begun - ended.min(begun));
    }
    pairs
}
