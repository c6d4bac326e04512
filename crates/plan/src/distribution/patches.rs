//! Patches: the part of a section of a distributed array that a rank has.
//!
//! Problem: a section is moved between a distributed array and something of the same shape: a
//! section on disk, another patch. Each rank must compute the members of the section that it has,
//! and their places. Approach: along an axis a rank has strips. Each strip intersects the section
//! in a range (Chinese remainder theorem), which is a range of member numbers of the section and a
//! range of places in memory. The products of these ranges are the patches.
//!
//! Invariants: patches of a rank are disjoint. With `all` false, the patches of all owners divide
//! the section. Members of a patch are in ascending order on both sides.

use alloc::vec::Vec;

use super::axis::{Ghost, Strip};
use super::owners::{ghost, products, Distribution};
use crate::error::PlanError;
use crate::section::{Range, Section};

/// Members of a section that a rank has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patch {
    /// Their numbers within the section, along each axis.
    pub members: Section,
    /// Their places in the rank's memory, in the same order.
    pub local: Section,
}

impl Distribution {
    /// The part of a section that a rank has; with `all`, its ghosts are included.
    pub fn patches(
        &self,
        rank: i64,
        ghosts: &[Ghost],
        all: bool,
        section: &Section,
    ) -> Result<Vec<Patch>, PlanError> {
        self.check_ghosts(ghosts)?;
        section.within(self.shape())?;
        if section.is_empty() {
            return Ok(Vec::new());
        }
        let mut strips = Vec::with_capacity(section.ndim());
        for (d, (c, wanted)) in self.along(rank)?.into_iter().zip(section.ranges()).enumerate() {
            let window = (wanted.start, wanted.stop());
            let found = self.axes[d].strips(c, ghost(ghosts, d), all, window)?;
            let both = found.iter().filter_map(|strip| meet(strip, wanted));
            strips.push(both.collect::<Vec<_>>());
        }
        let pieces = products(&strips)?;
        Ok(pieces.into_iter().map(|p| Patch { members: p.global, local: p.local }).collect())
    }
}

/// Numbers of the members of `wanted` in a strip, and their places.
fn meet(strip: &Strip, wanted: &Range) -> Option<Strip> {
    let both = strip.global.intersect(wanted);
    if both.count == 0 {
        return None;
    }
    let within = |of: &Range| {
        let first = (both.start - of.start) / of.step;
        let step = if both.count == 1 { 1 } else { both.step / of.step };
        Range { start: first, count: both.count, step }
    };
    let (members, numbers) = (within(wanted), within(&strip.global));
    let start = strip.local.index(numbers.start);
    let step = if both.count == 1 { 1 } else { numbers.step * strip.local.step };
    Some(Strip { global: members, local: Range { start, count: both.count, step } })
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use proptest::prelude::*;

    use super::super::{Align, Grid, Mapping, Pattern};
    use super::*;

    fn pattern() -> impl Strategy<Value = Pattern> {
        prop_oneof![
            Just(Pattern::Block(None)),
            Just(Pattern::Cyclic(1)),
            (2..5_i64).prop_map(Pattern::Cyclic),
        ]
    }

    fn range(len: i64) -> impl Strategy<Value = Range> {
        (0..len, 0..len, 1..5_i64).prop_map(move |(start, count, step)| {
            Range::new(start, count.min((len - 1 - start) / step + 1), step).unwrap()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn patches_are_the_members_that_a_rank_has(
            first in pattern(), second in pattern(), a in range(23), b in range(11),
            low in 0..3_i64, high in 0..3_i64, all: bool,
        ) {
            let grid = Grid::new(vec![2, 3]).unwrap();
            let mapping = |pattern, axis| Mapping { pattern, axis: Some(axis), align: Align::default() };
            let blocks = [&first, &second].iter().all(|p| matches!(p, Pattern::Block(_)));
            let ghosts = if blocks { vec![Ghost { low, high }; 2] } else { vec![] };
            let made = Distribution::new(
                vec![23, 11], grid, vec![mapping(first, 0), mapping(second, 1)],
            ).unwrap();
            let section = Section::new(vec![a, b]);
            let mut owned = 0;
            for rank in 0..6 {
                // The oracle enumerates every element of the rank.
                let mut places = BTreeMap::new();
                for piece in made.pieces(rank, &ghosts, all).unwrap() {
                    places.extend(piece.global.indices().zip(piece.local.indices()));
                }
                let mut expected = BTreeMap::new();
                let whole = Section::new(vec![
                    Range { start: 0, count: a.count, step: 1 }, Range { start: 0, count: b.count, step: 1 },
                ]);
                for member in whole.indices() {
                    let index = vec![a.index(member[0]), b.index(member[1])];
                    if let Some(place) = places.get(&index) {
                        expected.insert(member, place.clone());
                    }
                }
                let mut found = BTreeMap::new();
                for patch in made.patches(rank, &ghosts, all, &section).unwrap() {
                    for (member, place) in patch.members.indices().zip(patch.local.indices()) {
                        prop_assert!(found.insert(member, place).is_none());
                    }
                    for r in patch.members.ranges().iter().chain(patch.local.ranges()) {
                        prop_assert_eq!(*r, Range::new(r.start, r.count, r.step).unwrap());
                    }
                }
                prop_assert_eq!(&expected, &found);
                owned += found.len() as i64;
            }
            if !all {
                prop_assert_eq!(section.count().unwrap(), owned);
            }
        }
    }

    #[test]
    fn a_section_outside_is_refused() {
        let whole = vec![Mapping { pattern: Pattern::Whole, axis: None, align: Align::default() }];
        let made = Distribution::new(vec![5], Grid::new(vec![1]).unwrap(), whole).unwrap();
        let beyond = Section::new(vec![Range::new(3, 3, 1).unwrap()]);
        assert!(matches!(made.patches(0, &[], false, &beyond), Err(PlanError::OutOfBounds { .. })));
    }
}
