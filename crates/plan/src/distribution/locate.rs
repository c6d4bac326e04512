//! Locations of a section: the ranks that have its parts, and the places there.
//!
//! One-sided accesses use them.
//!
//! Problem: a rank gets or puts any section of a distributed array, without the help of other
//! ranks. It must compute the owner of each element and the place in the owner's memory. Approach:
//! as in [`exchange`](super::exchange), the strips of each coordinate are intersected with the
//! requested range, one axis at a time, and patches are the products.
//!
//! Invariants: patches divide the section, so each element is in one patch. If there are copies, a
//! patch lists all ranks that have it, the owner first, and has the same place on each. Equal input
//! gives equal patches in equal order on all ranks.
//!
//! Cost: for axes in blocks, the coordinates that intersect the range; for other axes, all
//! coordinates.

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use super::axis::{Ghost, Strip};
use super::exchange::{each_combination, meet_strips, message, Met, Parts};
use super::owners::Distribution;
use crate::error::PlanError;
use crate::section::{Range, Section};

/// A part of a section that the same ranks have, and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    /// Ranks that have the part: the owner, then those with copies.
    pub ranks: Vec<i64>,
    /// Numbers of the part's members in the section, along each axis.
    pub members: Section,
    /// Places in the memory of each of the ranks, including ghosts.
    pub stored: Section,
}

impl Distribution {
    /// Divides a section of the array into the parts of each owner, stored among the given ghosts.
    ///
    /// # Errors
    /// Fails for a section with another number of axes or outside the array, and for invalid
    /// ghosts.
    pub fn locate(&self, section: &Section, ghosts: &[Ghost]) -> Result<Vec<Located>, PlanError> {
        let parts = Parts::new(self, ghosts, false)?;
        if section.ndim() != self.shape().len() {
            return Err(PlanError::BadSection {
                what: format!("of {} axes", section.ndim()),
                why: "the array has another number of axes",
            });
        }
        let mut met: Met = Vec::with_capacity(section.ndim());
        for (d, (range, len)) in section.ranges().iter().zip(self.shape()).enumerate() {
            if range.stop() > *len {
                let section = format!("{section}");
                return Err(PlanError::OutOfBounds { section, axis: d, len: *len });
            }
            let members = Range { start: 0, count: range.count, step: 1 };
            let wanted = [Strip { global: *range, local: members }];
            let mut found = Vec::new();
            for c in self.axes[d].candidates(range) {
                let list = meet_strips(&parts.strips(d, c, (range.start, range.stop()))?, &wanted);
                if !list.is_empty() {
                    found.push((c, list));
                }
            }
            met.push(found);
        }
        let copies = self.copies();
        let mut patches = Vec::new();
        each_combination(&met, |along, lists| {
            let mut ranks = vec![parts.rank(along, 0)?];
            for copy in 1..copies {
                ranks.push(parts.rank(along, copy)?);
            }
            let stored = message(ranks[0], lists, |met| met.0)?.sections;
            let members = message(ranks[0], lists, |met| met.1)?.sections;
            for (stored, members) in stored.into_iter().zip(members) {
                patches.push(Located { ranks: ranks.clone(), members, stored });
            }
            Ok(())
        })?;
        Ok(patches)
    }
}
