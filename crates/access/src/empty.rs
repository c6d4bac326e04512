//! Batches of chunks of which nothing is stored: one plan represents many of them if the access is only
//! examined.
//!
//! Problem. A section of an array may touch 10^9 chunks of which three are stored. Computing the cost of
//! reading it should not require a plan for each batch.
//! Idea. The stored chunks were listed. Batches without stored chunks that have the same shape, at the same
//! place in their chunks, have the same plan: one batch of each kind is planned, and counts for all.

use std::collections::BTreeMap;

use outcore_io::store::listing::Listed;
use outcore_plan::{Chunked, GridBox, Slab};

/// Number of kinds of batches that are remembered.
const KINDS: usize = 1 << 12;

/// Batches of which nothing is stored, for an access that is only examined. Batches of one shape, at one
/// place in their chunks, have the same plan, and are planned once.
pub struct Empty<'a> {
    grouping: &'a Chunked,
    /// The box that the access touches, and the stored chunks in it.
    shape: GridBox,
    listed: Listed,
    /// The first batch of an access is planned separately: its method and its reason are reported.
    first: bool,
    alike: BTreeMap<Vec<[i64; 4]>, (Slab, i64)>,
}

impl<'a> Empty<'a> {
    /// Creates the record for the box that an access touches, and the stored chunks in it.
    pub fn new(grouping: &'a Chunked, shape: GridBox, listed: Listed) -> Empty<'a> {
        Empty { grouping, shape, listed, first: true, alike: BTreeMap::new() }
    }

    /// Counts a batch as another one of its kind, if nothing in it is stored; returns whether it did.
    pub fn takes(&mut self, batch: &Slab) -> bool {
        let first = std::mem::replace(&mut self.first, false);
        let Ok(GridBox { lo, count }) = self.grouping.touched(&batch.section) else { return false };
        let place = |far: bool| {
            let along = lo.iter().zip(&count).zip(self.shape.lo.iter().zip(&self.shape.count));
            along.fold(0, |at, ((lo, n), (low, length))| {
                at * length + lo - low + if far { n - 1 } else { 0 }
            })
        };
        // Batches are runs of the box in C order: full along the last axes, one chunk thick along the first.
        if first || self.listed.meets(place(false), place(true)) {
            return false;
        }
        let ranges = batch.section.ranges().iter();
        let axes = ranges.zip(lo.iter().zip(&count)).zip(self.grouping.chunk.iter());
        let kind = axes.zip(&self.grouping.shape).map(|(((range, (lo, n)), chunk), length)| {
            let low = lo * chunk;
            [range.start - low, range.count, *n, (length - low).min(n * chunk)]
        });
        let kind: Vec<_> = kind.collect();
        if let Some((_, times)) = self.alike.get_mut(&kind) {
            *times += 1;
            return true;
        }
        let room = self.alike.len() < KINDS;
        if room {
            self.alike.insert(kind, (batch.clone(), 1));
        }
        room
    }

    /// Returns one batch of each kind, and the number of batches of that kind.
    pub fn into_batches(self) -> impl Iterator<Item = (Slab, i64)> {
        self.alike.into_values()
    }
}

#[cfg(test)]
mod tests {
    use outcore_plan::Order;

    use super::*;
    use crate::testing::section;

    fn layout(shape: &[i64], chunk: &[i64]) -> Chunked {
        let strides = Order::C.strides(chunk, 1).unwrap();
        Chunked::new(shape.to_vec(), 1, chunk.to_vec(), strides, false, 0).unwrap()
    }

    /// Returns the number of batches that are planned one by one, and the counts of those that represent
    /// others.
    fn told(layout: &Chunked, stored: &[i64]) -> (usize, Vec<i64>) {
        let section = section(&[(0, 95, 1), (0, 100, 1)]);
        let shape = layout.touched(&section).unwrap();
        let listed = Listed::from_places(stored.iter().copied()).unwrap();
        let mut empty = Empty::new(layout, shape, listed);
        let mut planned = 0;
        for batch in layout.batches(&section, 10).unwrap() {
            planned += usize::from(!empty.takes(&batch));
        }
        (planned, empty.into_batches().map(|(_, times)| times).collect())
    }

    #[test]
    fn batches_of_one_shape_are_planned_once() {
        // Ten rows of ten chunks, one row per batch; half of the last row of chunks is in the section.
        let layout = layout(&[100, 100], &[10, 10]);
        let (planned, mut times) = told(&layout, &[]);
        times.sort_unstable();
        assert_eq!((1, vec![1, 8]), (planned, times), "the first is planned by itself");
    }

    #[test]
    fn a_batch_with_a_stored_chunk_is_planned_by_itself() {
        let layout = layout(&[100, 100], &[10, 10]);
        let (planned, times) = told(&layout, &[45]);
        assert_eq!((2, 8), (planned, times.iter().sum::<i64>()));
        let (planned, times) = told(&layout, &[30, 39, 99]);
        assert_eq!((3, 7), (planned, times.iter().sum::<i64>()));
    }
}
