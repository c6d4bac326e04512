//! Estimated time of an access in nanoseconds, to compare the methods of a collective access.
//!
//! Problem: ranks compare the times of their own accesses with those of file domains, and each rank
//! knows only its part. Approach: an estimated time is an integer computed from the counts of a
//! plan, the share of cached pages, and [`Rates`]. Ranks add these times up, so that all compare
//! the same sums.
//!
//! Only the order of these times is significant. Plans choose their method by other estimates
//! (`choose`), which consider every run; both use the parameters in [`Rates`].

use crate::choose::{disk_time, time};
use crate::plan::{Cost, Direction};
use crate::terms::Rates;

/// The counts of one access.
#[derive(Debug, Clone, Copy)]
pub struct Priced<'a> {
    /// Direction of the access.
    pub direction: Direction,
    /// Counts from the plans of the access.
    pub cost: &'a Cost,
    /// Pages that are written through a mapping.
    pub pages: i64,
    /// Bytes of a decoded chunk.
    pub chunk: i64,
    /// Share of the access's pages that is in the page cache, in thousandths.
    pub cached: i64,
}

impl Priced<'_> {
    /// Nanoseconds, while other ranks run their accesses concurrently.
    pub fn nanoseconds(&self, rates: &Rates) -> i64 {
        let &Cost { reads, read_bytes, writes, written_bytes, mapped_bytes, .. } = self.cost;
        let (requests, moved) = (sum(reads, writes), sum(read_bytes, written_bytes));
        let coded = sum(self.cost.decodes, self.cost.encodes);
        let warm = match self.direction {
            Direction::Write => {
                let calls = requests.saturating_mul(rates.write_call_ns);
                let dirtied = self.pages.saturating_mul(rates.ranks_dirty_ns);
                let copied = sum(time(moved, rates.write), time(mapped_bytes, rates.pread));
                sum(sum(calls, dirtied), copied)
            }
            Direction::Read => {
                let calls = requests.saturating_mul(rates.call_ns);
                sum(calls, time(sum(moved, mapped_bytes), rates.pread))
            }
        };
        let cold = if self.direction == Direction::Write && reads > 0 && coded == 0 {
            // The data read is changed in the page cache. The disk then gets the same with all
            // methods: pages, from all ranks together.
            sum(disk_time(reads, read_bytes, rates), warm)
        } else {
            disk_time(requests, moved, rates)
        };
        let cached = i128::from(self.cached.clamp(0, 1000));
        let both = i128::from(cold) * (1000 - cached) + i128::from(warm) * cached;
        // A part of a chunk cannot be decoded alone.
        let codecs = time(coded.saturating_mul(self.chunk), rates.codec);
        sum(i64::try_from(both / 1000).unwrap_or(i64::MAX), codecs)
    }
}

fn sum(a: i64, b: i64) -> i64 {
    a.saturating_add(b)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RATES: Rates = Rates::MEASURED;

    fn price(cost: Cost, direction: Direction, cached: i64, pages: i64, chunk: i64) -> i64 {
        Priced { direction, cost: &cost, pages, chunk, cached }.nanoseconds(&RATES)
    }

    #[test]
    fn cold_reads_are_the_disks_and_cached_ones_the_processors() {
        let cost = Cost { reads: 10, read_bytes: 9_000_000, ..Cost::default() };
        let cold = 10 * RATES.latency_ns + time(9_000_000, RATES.device);
        assert_eq!(cold, price(cost, Direction::Read, 0, 0, 0));
        let warm = 10 * 300 + 1_000_000;
        assert_eq!(warm, price(cost, Direction::Read, 1000, 0, 0));
        assert_eq!((cold + warm) / 2, price(cost, Direction::Read, 500, 0, 0));
        // Plans count a cold mapped page as a read.
        let mapped = Cost { mapped_bytes: 9_000_000, ..Cost::default() };
        assert_eq!(1_000_000, price(mapped, Direction::Read, 1000, 0, 0));
    }

    #[test]
    fn a_write_pays_for_calls_copies_and_pages_that_become_dirty() {
        let cost = Cost { writes: 3, written_bytes: 4_000_000, ..Cost::default() };
        assert_eq!(3 * 6_000 + 1_000_000, price(cost, Direction::Write, 1000, 0, 0));
        let mapped = Cost { mapped_bytes: 9_000_000, ..Cost::default() };
        let dirty = 7 * RATES.ranks_dirty_ns;
        assert_eq!(dirty + 1_000_000, price(mapped, Direction::Write, 1000, 7, 0));
    }

    #[test]
    fn what_is_read_first_is_not_also_written_by_requests() {
        let cost = Cost {
            reads: 2,
            read_bytes: 8192,
            writes: 100,
            written_bytes: 4_000_000,
            ..Cost::default()
        };
        let warm = 102 * 6_000 + time(8192 + 4_000_000, RATES.write);
        let cold = disk_time(2, 8192, &RATES) + warm;
        assert_eq!(cold, price(cost, Direction::Write, 0, 0, 0));
        // For encoded chunks, it is written by requests.
        let coded = Cost { decodes: 1, encodes: 1, ..cost };
        let requests = disk_time(102, 8192 + 4_000_000, &RATES);
        assert_eq!(requests + time(2 << 20, RATES.codec), {
            price(coded, Direction::Write, 0, 0, 1 << 20)
        });
    }

    proptest! {
        #[test]
        fn more_is_never_cheaper_and_nothing_overflows(
            counts in proptest::array::uniform8(0..i64::MAX),
            which in 0..8_usize,
            more in 0..i64::MAX,
            cached in 0..=1000_i64,
            write: bool,
        ) {
            let of = |c: [i64; 8]| {
                let cost = Cost {
                    reads: c[0], read_bytes: c[1], writes: c[2], written_bytes: c[3],
                    mapped_bytes: c[4], decodes: c[5], encodes: c[6], ..Cost::default()
                };
                let direction = if write { Direction::Write } else { Direction::Read };
                price(cost, direction, cached, c[7], 4096)
            };
            let mut larger = counts;
            larger[which] = larger[which].saturating_add(more);
            // The first read of a write, and the first chunk, change the formula of the estimate.
            let same = |c: [i64; 8]| (c[0] > 0, c[5] > 0 || c[6] > 0);
            prop_assume!(same(counts) == same(larger));
            prop_assert!(of(counts) >= 0 && of(larger) >= of(counts));
        }
    }
}
