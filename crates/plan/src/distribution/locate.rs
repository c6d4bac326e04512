//! Which ranks have a section of the array, and where: what one-sided accesses ask.
//!
//! Problem. A rank gets or puts any section of an array that is divided over ranks, without their help: it has
//! to know whose memory each element lies in, and where there. Idea. As in [`exchange`](super::exchange): what a
//! coordinate has of an axis meets the range that is wanted, one axis at a time, and patches are the products.
//!
//! Invariants. Patches divide the section: each element is in one patch. Of a distribution with copies a patch
//! names all ranks that have it, the owner first, and lies at the same place on each. Equal input gives
//! equal patches in equal order on all ranks.
//!
//! Cost. Of axes in blocks the coordinates that meet the range, of others all coordinates.

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use super::axis::{Ghost, Strip};
use super::exchange::{each_combination, meet_strips, message, Met, Parts};
use super::owners::Distribution;
use crate::error::PlanError;
use crate::section::{Range, Section};

/// A part of a section that the same ranks have, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    /// Ranks that have it: the owner, then those with copies.
    pub ranks: Vec<i64>,
    /// Which members of the section these are, counted along each axis.
    pub members: Section,
    /// Where they are stored in the memory of each of the ranks, ghosts included.
    pub stored: Section,
}

impl Distribution {
    /// Divides a section of the array into what each rank owns of it, stored among so many ghosts.
    ///
    /// # Errors
    /// A section of another number of axes, or outside the array; ghosts that cannot be.
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
