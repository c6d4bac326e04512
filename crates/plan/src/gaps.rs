//! Gaps between written pages that cost the disk less than separate requests.
//!
//! Problem: sparse writes leave single dirty pages, and a flush sends them to the disk one by one.
//! If a request is expensive (a shared file system, a slow disk), one request that also writes the
//! pages between them is much cheaper.
//!
//! Approach: written extents are stored as [`Family`] values, that is, as loops and not as lists.
//! At a flush, the pages of all families are walked in file order, with one heap entry per family.
//! Pages whose gap is cheaper than a request become a [`Cluster`]: a possible single request, with
//! the gaps inside it. This module only decides which gaps pay off; the executor makes them dirty.
//!
//! Invariants: clusters come in file order and never overlap; the gaps of a cluster are whole
//! pages, ascending, between its pages, and contain no written page; a cluster has at most [`MOST`]
//! gaps, so the memory of the walk is proportional to the number of families, not of runs. Integers
//! only.

use alloc::collections::BinaryHeap;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::choose;
use crate::plan::Family;
use crate::terms::{Rates, Terms};

/// Maximum number of gaps of a cluster; further gaps belong to the next cluster.
pub const MOST: usize = 4096;

/// Costs of gaps and of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prices {
    page: i64,
    request: i64,
    rates: Rates,
}

/// Written pages that could be one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// First byte of the first page.
    pub start: i64,
    /// One past the last byte of the last page.
    pub end: i64,
    /// The gaps between the written pages: first byte and one past the last.
    pub gaps: Vec<(i64, i64)>,
}

impl Cluster {
    /// Bytes of the gaps.
    pub fn missing(&self) -> i64 {
        self.gaps.iter().map(|(first, end)| end - first).sum()
    }

    /// Bytes of the written pages.
    pub fn written(&self) -> i64 {
        self.end - self.start - self.missing()
    }
}

impl Prices {
    /// Costs for a machine with pages of `page` bytes.
    pub fn new(page: i64, terms: &Terms) -> Prices {
        let terms = terms.sane();
        Prices { page: page.max(1), request: terms.request, rates: terms.rates }
    }

    /// Bytes of the largest gap that is worth writing; 0 if none is.
    pub fn largest_gap(&self) -> i64 {
        choose::largest_gap(self.page, &self.rates)
    }

    /// Returns whether writing a cluster as a whole pays off.
    ///
    /// A page that is made dirty makes its whole `unit` of the file dirty (a large folio).
    pub fn pays(&self, cluster: &Cluster, unit: i64) -> bool {
        let number = cluster.gaps.len() as i64 + 1;
        if number < 2 {
            return false;
        }
        let unit = unit.max(self.page);
        let whole =
            cluster.end.saturating_add(unit - 1) / unit * unit - cluster.start / unit * unit;
        let requests = (whole - 1) / self.request + 1;
        let touches = (cluster.missing() / self.page).saturating_mul(choose::LONE_DIRTY);
        let before = choose::disk_time(number, cluster.written(), &self.rates);
        let after = choose::disk_time(requests, whole, &self.rates).saturating_add(touches);
        after.saturating_add(after / 4) < before
    }
}

/// The clusters of written extents, in file order.
///
/// Families whose loops do not nest are skipped: their extents would not come in order.
#[derive(Debug)]
pub struct Clusters<'a> {
    walks: Vec<Walk<'a>>,
    /// The next pages of each walk.
    next: BinaryHeap<Reverse<(i64, i64, usize)>>,
    page: i64,
    gap: i64,
}

/// The extents of a family, one after another.
#[derive(Debug)]
struct Walk<'a> {
    family: &'a Family,
    at: Vec<i64>,
    offset: i64,
    done: bool,
}

impl<'a> Clusters<'a> {
    /// Clusters of families of extents of one file.
    pub fn new(families: &'a [Family], prices: &Prices) -> Clusters<'a> {
        let mut clusters = Clusters {
            walks: families.iter().filter(|family| ascends(family)).map(Walk::new).collect(),
            next: BinaryHeap::with_capacity(families.len()),
            page: prices.page,
            gap: prices.largest_gap(),
        };
        for number in 0..clusters.walks.len() {
            clusters.advance(number);
        }
        clusters
    }

    fn advance(&mut self, number: usize) {
        let Some(offset) = self.walks[number].next() else { return };
        let len = self.walks[number].family.len;
        let first = offset / self.page * self.page;
        let end = (offset + len).saturating_add(self.page - 1) / self.page * self.page;
        self.next.push(Reverse((first, end, number)));
    }
}

impl Iterator for Clusters<'_> {
    type Item = Cluster;

    fn next(&mut self) -> Option<Cluster> {
        let mut found: Option<Cluster> = None;
        while let Some(Reverse((first, end, number))) = self.next.peek().copied() {
            match &mut found {
                None => found = Some(Cluster { start: first, end, gaps: Vec::new() }),
                Some(cluster) if first <= cluster.end => cluster.end = cluster.end.max(end),
                Some(cluster) => {
                    if first - cluster.end > self.gap || cluster.gaps.len() == MOST {
                        break;
                    }
                    cluster.gaps.push((cluster.end, first));
                    cluster.end = end;
                }
            }
            self.next.pop();
            self.advance(number);
        }
        found
    }
}

/// Returns whether a family has extents and they come in ascending order.
fn ascends(family: &Family) -> bool {
    let mut reach = family.len;
    let nests = family.count.iter().zip(&family.stride).rev().all(|(count, stride)| {
        let order = *count == 1 || *stride >= reach;
        reach = reach.saturating_add((count - 1).saturating_mul(*stride));
        *count > 0 && order
    });
    nests && family.len > 0 && family.offset >= 0 && family.offset.checked_add(reach).is_some()
}

impl<'a> Walk<'a> {
    fn new(family: &'a Family) -> Walk<'a> {
        Walk { family, at: vec![0; family.count.len()], offset: family.offset, done: false }
    }

    fn next(&mut self) -> Option<i64> {
        if self.done {
            return None;
        }
        let now = self.offset;
        self.done = true;
        for d in (0..self.at.len()).rev() {
            let stride = self.family.stride[d];
            if self.at[d] + 1 < self.family.count[d] {
                self.at[d] += 1;
                self.offset += stride;
                self.done = false;
                break;
            }
            self.offset -= self.at[d] * stride;
            self.at[d] = 0;
        }
        Some(now)
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use super::*;
    use proptest::prelude::*;

    const PAGE: i64 = 4096;

    fn prices(latency_ns: i64) -> Prices {
        let mut terms = Terms::new(1 << 30);
        terms.rates.latency_ns = latency_ns;
        terms.rates.device = 220_000_000;
        terms.rates.stream = 120_000_000;
        Prices::new(PAGE, &terms)
    }

    fn family(offset: i64, len: i64, loops: &[(i64, i64)]) -> Family {
        let (count, stride) = loops.iter().copied().unzip();
        Family { offset, len, count, stride }
    }

    #[test]
    fn rows_are_one_cluster_where_requests_take_long_and_not_on_a_fast_disk() {
        // Every second row of 16 KiB; each row writes a part of one page.
        let rows = [family(128, 1000, &[(125, 32 << 10)])];
        let slow = prices(5_000_000);
        let found: Vec<_> = Clusters::new(&rows, &slow).collect();
        assert_eq!(1, found.len());
        assert_eq!((0, 124 * 32768 + PAGE), (found[0].start, found[0].end));
        assert_eq!(124, found[0].gaps.len());
        assert_eq!((124 * 7 * PAGE, 125 * PAGE), (found[0].missing(), found[0].written()));
        assert!(slow.pays(&found[0], PAGE) && slow.pays(&found[0], 2 << 20));
        let fast = Prices::new(PAGE, &Terms::new(1 << 30));
        assert_eq!(PAGE, fast.largest_gap());
        assert_eq!(125, Clusters::new(&rows, &fast).filter(|c| c.gaps.is_empty()).count());
        // Two pages in a folio of 2 MiB do not justify writing all of it. Eight pages justify
        // writing 32 KiB.
        let few = [family(0, 10, &[(2, 8192)])];
        let few: Vec<_> = Clusters::new(&few, &slow).collect();
        assert!(slow.pays(&few[0], PAGE) && !slow.pays(&few[0], 2 << 20));
    }

    #[test]
    fn families_without_order_are_left_out_and_clusters_are_bounded() {
        let slow = prices(5_000_000);
        let wild = [family(0, 10, &[(3, 100), (5, 200)]), family(-1, 10, &[]), family(0, 0, &[])];
        assert_eq!(0, Clusters::new(&wild, &slow).count());
        assert_eq!(0, Clusters::new(&[family(i64::MAX - 5, 10, &[])], &slow).count());
        let long = [family(0, 10, &[(3 * MOST as i64, 8192)])];
        let found: Vec<_> = Clusters::new(&long, &slow).collect();
        assert!(found.iter().all(|cluster| cluster.gaps.len() <= MOST));
        assert_eq!(3, found.len());
        assert!(found.windows(2).all(|pair| pair[0].end < pair[1].start));
    }

    fn any_family() -> impl Strategy<Value = Family> {
        (0..200_000_i64, 1..9000_i64, 1..5_i64, 0..9000_i64, 1..5_i64, 0..40_000_i64).prop_map(
            |(offset, len, inner, hole, outer, wide)| {
                let stride = len + hole;
                let reach = (inner - 1) * stride + len;
                family(offset, len, &[(outer, reach + wide), (inner, stride)])
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

        /// Compares clusters and gaps with an enumeration of all pages.
        #[test]
        fn clusters_are_those_of_an_enumeration(
            families in prop::collection::vec(any_family(), 0..5), latency in 1_000..2_000_000_i64,
        ) {
            let prices = prices(latency);
            let mut written = BTreeSet::new();
            for f in &families {
                for i in 0..f.count[0] {
                    for j in 0..f.count[1] {
                        let first = f.offset + i * f.stride[0] + j * f.stride[1];
                        written.extend(first / PAGE..=(first + f.len - 1) / PAGE);
                    }
                }
            }
            let mut expected: Vec<Cluster> = vec![];
            for page in written {
                let (start, end) = (page * PAGE, (page + 1) * PAGE);
                match expected.last_mut() {
                    Some(last) if start - last.end <= prices.largest_gap() => {
                        if start > last.end {
                            last.gaps.push((last.end, start));
                        }
                        last.end = end;
                    }
                    _ => expected.push(Cluster { start, end, gaps: vec![] }),
                }
            }
            prop_assert_eq!(expected, Clusters::new(&families, &prices).collect::<Vec<_>>());
        }
    }
}
