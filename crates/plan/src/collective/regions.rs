//! Regions: the bounding sections of related accesses.
//!
//! Problem: the paper's bounding section contains all requests. If these are far apart (blocks
//! along a diagonal, a column at either end), no rank requests most of it.
//!
//! Approach: requests are cut into groups along one axis after another, as long as this pays off.
//! Two groups stay together if reading the elements between them is cheaper than a request (a gap
//! below `gap` bytes in each row), or if there are none. The region of each group is its bounding
//! section, on the coarsest lattice that contains all its members: if all ranks request every
//! seventh row, the rows between are not part of it. In encoded arrays, only one group touches each
//! block.
//!
//! Invariants: regions are disjoint, in the order of the file, and contain every requested element.
//! Equal input gives equal output on every rank.
//!
//! Cost: O(P log P) for each axis that is cut, O(P) memory; independent of the number of elements.

use alloc::vec;
use alloc::vec::Vec;

use super::access::{Access, ArrayDescriptor};
use crate::section::{Range, Section};

/// A bounding section and the accesses (by number) in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region {
    /// One range per axis of the array.
    pub section: Section,
    /// Numbers of the accesses, ascending.
    pub members: Vec<u32>,
}

/// First and one past the last index per axis, in file order.
type Bounds = Vec<(i64, i64)>;

/// Cuts the accesses to one array into regions.
pub fn regions(descriptor: &ArrayDescriptor, accesses: &[Access], gap: i64) -> Vec<Region> {
    let all: Vec<u32> =
        (0..accesses.len() as u32).filter(|k| !accesses[*k as usize].section.is_empty()).collect();
    let bounds: Vec<Bounds> = accesses.iter().map(|a| bounds_of(descriptor, &a.section)).collect();
    let mut found = Vec::new();
    let mut todo = if all.is_empty() { vec![] } else { vec![all] };
    while let Some(members) = todo.pop() {
        let cut = (0..descriptor.order.len())
            .map(|place| groups(descriptor, &bounds, &members, place, gap))
            .find(|groups| groups.len() > 1);
        match cut {
            Some(groups) => todo.extend(groups),
            None => found.push(bounding(descriptor, accesses, members)),
        }
    }
    let start = |r: &Region, axis: &usize| r.section.ranges()[*axis].start;
    found.sort_by(|a, b| {
        let key = |r| descriptor.order.iter().map(move |axis| start(r, axis));
        key(a).cmp(key(b))
    });
    found
}

/// The bounds of a section, extended to whole blocks if these have a single owner.
fn bounds_of(descriptor: &ArrayDescriptor, section: &Section) -> Bounds {
    let outward = |axis: &usize| {
        let r = &section.ranges()[*axis];
        if !descriptor.encoded {
            return (r.start, r.stop());
        }
        let grain = descriptor.grain[*axis];
        (r.start / grain * grain, r.stop().saturating_add(grain - 1) / grain * grain)
    };
    descriptor.order.iter().map(outward).collect()
}

fn around(a: &Bounds, b: &Bounds) -> Bounds {
    a.iter().zip(b).map(|(a, b)| (a.0.min(b.0), a.1.max(b.1))).collect()
}

fn bytes(descriptor: &ArrayDescriptor, bounds: &Bounds) -> i128 {
    let lengths = bounds.iter().map(|(low, high)| i128::from(high - low));
    // These are lengths of an array whose bytes fit 63 bits, extended by at most a block.
    lengths.fold(i128::from(descriptor.item), i128::saturating_mul)
}

/// Groups along one axis, with neighbours joined if this pays off.
fn groups(
    descriptor: &ArrayDescriptor,
    bounds: &[Bounds],
    members: &[u32],
    place: usize,
    gap: i64,
) -> Vec<Vec<u32>> {
    let of = |k: &u32| &bounds[*k as usize];
    let mut sorted = members.to_vec();
    sorted.sort_by_key(|k| (of(k)[place], *k));
    let mut groups: Vec<(Bounds, Vec<u32>)> = Vec::new();
    for k in sorted {
        match groups.last_mut() {
            Some((bounds, members)) if of(&k)[place].0 < bounds[place].1 => {
                *bounds = around(bounds, of(&k));
                members.push(k);
            }
            _ => groups.push((of(&k).clone(), vec![k])),
        }
    }
    let mut joined: Vec<(Bounds, Vec<u32>)> = Vec::new();
    for (bounds, mut members) in groups {
        if let Some((last, others)) = joined.last_mut() {
            let both = around(last, &bounds);
            let extra =
                bytes(descriptor, &both) - bytes(descriptor, last) - bytes(descriptor, &bounds);
            let pieces = both[..place].iter().fold(1_i128, |n, (a, b)| n * i128::from(b - a));
            if extra <= pieces.saturating_mul(i128::from(gap)) {
                *last = both;
                others.append(&mut members);
                continue;
            }
        }
        joined.push((bounds, members));
    }
    joined.into_iter().map(|(_, members)| members).collect()
}

/// The smallest section that contains all members, on the coarsest lattice that they share.
fn bounding(descriptor: &ArrayDescriptor, accesses: &[Access], mut members: Vec<u32>) -> Region {
    members.sort_unstable();
    let all = hull(members.iter().map(|k| &accesses[*k as usize].section));
    let dense = |r: &Range| Range { start: r.start, count: r.stop() - r.start, step: 1 };
    let section = match all {
        Some(all) if descriptor.encoded => Section::new(all.ranges().iter().map(dense).collect()),
        Some(all) => all,
        None => Section::new(vec![]),
    };
    Region { section, members }
}

pub(super) fn gcd(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a, b);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The smallest section, on the coarsest lattice, that contains all sections.
///
/// None if all are empty.
pub fn hull<'a>(sections: impl Iterator<Item = &'a Section>) -> Option<Section> {
    let mut hull: Option<Vec<Range>> = None;
    for section in sections.filter(|section| !section.is_empty()) {
        hull = Some(match hull {
            None => section.ranges().to_vec(),
            Some(hull) => {
                let both = hull.into_iter().zip(section.ranges());
                both.map(|(a, b)| around_ranges(a, *b)).collect()
            }
        });
    }
    hull.map(Section::new)
}

fn around_ranges(a: Range, b: Range) -> Range {
    let own = |r: Range| if r.count > 1 { r.step } else { 0 };
    let step = gcd(gcd(own(a), own(b)), (a.start - b.start).abs()).max(1);
    let start = a.start.min(b.start);
    let count = (a.stop().max(b.stop()) - 1 - start) / step + 1;
    Range { start, count, step: if count == 1 { 1 } else { step } }
}
