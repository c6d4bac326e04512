//! Choice between independent accesses and owners, for accesses of ranks by lists.
//!
//! | method       | description                                                                       |
//! |--------------|-----------------------------------------------------------------------------------|
//! | `direct`     | each rank moves its own elements independently                                    |
//! | `collective` | owners move the elements of their file domains, round by round; the ranks exchange |
//! | `pipelined`  | as `collective`, but the next round is read (the last one written) during the exchange |
//!
//! Problem: the fastest method depends on the positions of the elements. In a permuted list each
//! element costs its rank a miss of the processor's caches, which owners avoid: they work window by
//! window. In a sorted list there are no misses, and the work of owners is only additional. Pages
//! on the disk and encoded chunks are requested by several ranks, and owners read, or decode, each
//! once. But each owner must receive the list of requested elements, which takes longer than
//! reading them once.
//!
//! Approach: elapsed time in nanoseconds is estimated from the processor time of the busiest rank
//! (ranks share processors), and the time of the disk, which all ranks share. Blocks (pages, or
//! chunks) are counted by bins: of `b` blocks in a bin, `n` elements touch about `b n / (b + n)`.
//!
//! Invariants: decisions use integers that all ranks have received from all ranks, and no clock, so
//! equal calls choose equally. More elements, blocks or rounds never cost less.
//!
//! Source: No and Choudhary, *Techniques to provide run-time support for solving irregular problems*, sections 3.1 and
//! 3.2.

use crate::choose::{disk_time, is_cached, time};
use crate::collective::ExchangeCosts;
use crate::terms::Rates;

/// Copying an element that is near the previous one, picoseconds.
const NEAR_PS: i64 = 1_500;
/// Additional time of an element in another page than the previous one, picoseconds.
///
/// It misses the processor's caches.
const JUMP_PS: i64 = 12_000;
/// Time of an element that an owner moves and a rank takes (or gives), picoseconds.
///
/// Both work window by window.
const EXCHANGED_PS: i64 = 9_000;
/// Time to send an element's index to its owner, once, picoseconds.
///
/// The rank sorts the list and sends it, and the owner sorts it.
const TOLD_PS: i64 = 40_000;
/// Time per element to order a list by windows, picoseconds.
///
/// This is done before reading from the disk or out of chunks.
const ORDERED_PS: i64 = 16_000;
/// Time to wake a thread that continues with the next round, nanoseconds.
const HANDED_NS: i64 = 30_000;
/// Ranks per processor if each rank has its own, in thousandths.
const ONE: i64 = 1000;

/// Methods to move elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Each rank independently.
    Direct,
    /// Through owners, one step after another.
    Collective,
    /// Through owners that are one step ahead (reading) or behind (writing).
    Pipelined,
}

impl Method {
    /// The name in calls and reports.
    pub fn name(self) -> &'static str {
        match self {
            Method::Direct => "direct",
            Method::Collective => "collective",
            Method::Pipelined => "pipelined",
        }
    }
}

/// The request of one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wanted {
    /// Number of elements of its list.
    pub elements: i64,
    /// Number of elements in another page than the previous one in the list.
    pub jumps: i64,
    /// Number of pages, or chunks, that it touches.
    pub blocks: i64,
    /// Share of these that is in the page cache, in thousandths.
    pub cached: i64,
}

/// The requests of all ranks together, and their storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stored {
    /// Bytes of the elements that one index selects.
    pub row: i64,
    /// Bytes of a page, or of a decoded chunk.
    pub block: i64,
    /// True if blocks are encoded.
    pub encoded: bool,
    /// Number of pages, or chunks, that any rank touches.
    pub blocks: i64,
    /// Number of blocks of the array.
    pub all: i64,
}

/// Parameters of an access through owners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owned {
    /// Number of ranks that own a part.
    pub owners: i64,
    /// Number of steps of an owner: rounds, times groups that take turns.
    pub steps: i64,
    /// True if all ranks share memory.
    pub near: bool,
    /// True if owners must still receive the lists, for this access alone.
    pub untold: bool,
}

/// Estimated times of the methods, nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prices {
    /// Each rank independently; None for a write.
    pub direct: Option<i64>,
    /// Through owners, one step after another.
    pub collective: i64,
    /// Through owners, overlapped.
    pub pipelined: i64,
}

/// Input of the estimates; equal on all ranks.
#[derive(Debug, Clone, Copy)]
pub struct Lists<'a> {
    /// The request of each rank.
    pub wanted: &'a [Wanted],
    /// All requests together.
    pub stored: Stored,
    /// Parameters of an access through owners.
    pub owned: Owned,
    /// Costs of an exchange.
    pub costs: ExchangeCosts,
    /// Rates of the disk and the codecs.
    pub rates: Rates,
}

fn sum(a: i64, b: i64) -> i64 {
    a.saturating_add(b)
}

/// `n` times `each` picoseconds, in nanoseconds.
fn ps(n: i64, each: i64) -> i64 {
    clamped(i128::from(n) * i128::from(each) / 1000)
}

fn clamped(n: i128) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// Approximate number of blocks, of `blocks`, that `n` randomly placed elements touch.
pub fn touched(blocks: i64, n: i64) -> i64 {
    match blocks.min(n) {
        ..=0 => 0,
        least => {
            let both = i128::from(blocks) + i128::from(n);
            clamped((i128::from(blocks) * i128::from(n) * 2 + both) / (both * 2)).clamp(1, least)
        }
    }
}

impl Lists<'_> {
    /// Disk time for `blocks` blocks: one request for each, or all blocks between them, too.
    fn disk(&self, blocks: i64) -> i64 {
        let bytes = |n: i64| n.saturating_mul(self.stored.block);
        let each = disk_time(blocks, bytes(blocks), &self.rates);
        if self.stored.encoded {
            return each;
        }
        let all = self.stored.all.max(blocks);
        each.min(disk_time((bytes(all) >> 20).max(1), bytes(all), &self.rates))
    }

    /// The part of a time that is spent on uncached data.
    fn cold(ns: i64, cached: i64) -> i64 {
        clamped(i128::from(ns) * i128::from(ONE - cached.clamp(0, ONE)) / i128::from(ONE))
    }

    fn codec(&self, blocks: i64) -> i64 {
        match self.stored.encoded {
            true => time(blocks.saturating_mul(self.stored.block), self.rates.codec),
            false => 0,
        }
    }

    fn cached(&self) -> i64 {
        let some = self.wanted.iter().filter(|wanted| wanted.elements > 0);
        some.map(|wanted| wanted.cached.clamp(0, ONE)).min().unwrap_or(ONE)
    }

    /// Scales a processor time by the number of ranks that share a processor.
    fn shared(&self, ns: i64) -> i64 {
        let factor = self.costs.oversubscription.max(ONE);
        clamped(i128::from(ns) * i128::from(factor) / i128::from(ONE))
    }

    /// Estimated time if each rank works independently.
    fn direct(&self) -> i64 {
        let (mut busiest, mut disk) = (0_i64, 0_i64);
        for wanted in self.wanted {
            let cold = Self::cold(self.disk(wanted.blocks), wanted.cached);
            let copied = ps(wanted.elements, NEAR_PS);
            let bytes = wanted.elements.saturating_mul(self.stored.row);
            let moved = time(bytes, self.rates.pread_large);
            let misses = if self.stored.encoded || !is_cached(wanted.cached) {
                ps(wanted.elements, ORDERED_PS)
            } else {
                ps(wanted.jumps, JUMP_PS)
            };
            let own = sum(sum(copied, moved), sum(misses, self.codec(wanted.blocks)));
            busiest = busiest.max(own);
            disk = sum(disk, cold);
        }
        sum(self.shared(busiest), disk)
    }

    /// Processor time of the busiest rank if owners do the work, and time of the disk.
    fn two_phase(&self, write: bool) -> (i64, i64) {
        let (owned, stored) = (&self.owned, &self.stored);
        let all = self.wanted.iter().fold(0_i64, |n, wanted| sum(n, wanted.elements));
        let most = self.wanted.iter().map(|wanted| wanted.elements).max().unwrap_or(0);
        let each = all / owned.owners.max(1);
        let elements = each.max(most);
        let bytes = elements.saturating_mul(stored.row);
        let copied = time(bytes.saturating_mul(2), self.costs.copy);
        let codec =
            self.codec(stored.blocks).saturating_mul(1 + i64::from(write)) / owned.owners.max(1);
        let mut own = sum(sum(ps(elements, EXCHANGED_PS), copied), codec);
        if owned.untold {
            own = sum(own, ps(elements, TOLD_PS));
        }
        let mut disk = Self::cold(self.disk(stored.blocks), self.cached());
        if !owned.near {
            let sent = time(all.saturating_mul(stored.row), self.costs.messages);
            disk = sum(disk, sent);
        }
        (self.shared(own), disk)
    }

    /// Estimated time of each method.
    pub fn prices(&self, write: bool) -> Prices {
        let (own, disk) = self.two_phase(write);
        let steps = self.owned.steps.max(1);
        let barriers = steps.saturating_mul(2 * self.costs.barrier_ns);
        let collective = sum(sum(own, disk), barriers);
        let hidden = clamped(i128::from(own.min(disk)) * i128::from(steps - 1) / i128::from(steps));
        let handed = self.shared(steps.saturating_mul(HANDED_NS));
        let pipelined = sum(collective - hidden.min(collective), handed);
        // If an element has several values, only its owner can determine the last one.
        let direct = (!write).then(|| self.direct());
        Prices { direct, collective, pipelined }
    }
}

impl Prices {
    /// The fastest method; among equal ones, the one with less work.
    pub fn cheapest(&self) -> Method {
        let owners = match self.pipelined < self.collective {
            true => (Method::Pipelined, self.pipelined),
            false => (Method::Collective, self.collective),
        };
        match self.direct {
            Some(direct) if direct <= owners.1 => Method::Direct,
            _ => owners.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MI: i64 = 1 << 20;

    fn lists(wanted: &[Wanted], encoded: bool, steps: i64) -> Lists<'_> {
        let n = wanted.iter().map(|one| one.elements).sum();
        let (block, all) = if encoded { (1 << 20, 256) } else { (4096, 1 << 16) };
        Lists {
            wanted,
            stored: Stored { row: 8, block, encoded, blocks: touched(all, n), all },
            owned: Owned { owners: wanted.len() as i64, steps, near: true, untold: false },
            costs: ExchangeCosts::shared(2000),
            rates: Rates::MEASURED,
        }
    }

    fn rank(elements: i64, jumps: i64, cached: i64, blocks: i64) -> Wanted {
        Wanted { elements, jumps, blocks: touched(blocks, elements), cached }
    }

    fn chosen(wanted: Wanted, encoded: bool, steps: i64, write: bool) -> Method {
        lists(&[wanted; 4], encoded, steps).prices(write).cheapest()
    }

    #[test]
    fn cached_lists_that_jump_go_through_owners_and_sorted_ones_do_not() {
        let permuted = rank(8 * MI, 8 * MI, 1000, 1 << 16);
        let sorted = rank(8 * MI, 16384, 1000, 1 << 16);
        assert_eq!(Method::Collective, chosen(permuted, false, 1, false));
        assert_eq!(Method::Direct, chosen(sorted, false, 1, false));
        // A few elements do not justify a synchronisation.
        assert_eq!(Method::Direct, chosen(rank(1000, 1000, 1000, 1 << 16), false, 1, false));
    }

    #[test]
    fn who_reads_once_does_not_tell_owners_what_each_rank_reads_as_fast() {
        let once = |ranks: usize, cached| {
            let permuted = vec![rank(8 * MI, 8 * MI, cached, 1 << 16); ranks];
            let mut lists = lists(&permuted, false, 4);
            lists.owned.untold = true;
            lists.prices(false).cheapest()
        };
        assert_eq!(Method::Direct, once(4, 1000));
        assert_eq!(Method::Direct, once(4, 0));
        // Elements on the disk would be read sixteen times, which costs more than sending the lists
        // to owners.
        assert_eq!(Method::Direct, once(16, 1000));
        assert_eq!(Method::Pipelined, once(16, 0));
    }

    #[test]
    fn chunks_are_decoded_once() {
        let wanted = rank(8 * MI, 8 * MI, 1000, 256);
        assert_eq!(Method::Collective, chosen(wanted, true, 1, false));
        let price = |ranks: usize| lists(&vec![wanted; ranks], true, 1).prices(false);
        let saved = |ranks| price(ranks).direct.unwrap_or(0) - price(ranks).collective;
        assert!(saved(2) < saved(4) && saved(4) < saved(8));
    }

    #[test]
    fn steps_overlap_where_the_disk_is_busy_too() {
        assert_eq!(Method::Pipelined, chosen(rank(8 * MI, 8 * MI, 0, 1 << 16), false, 8, false));
        assert_eq!(Method::Collective, chosen(rank(8 * MI, 8 * MI, 0, 1 << 16), false, 1, false));
        assert_eq!(
            Method::Collective,
            chosen(rank(8 * MI, 8 * MI, 1000, 1 << 16), false, 8, false)
        );
        // No rank writes independently.
        assert_eq!(None, lists(&[rank(8, 8, 1000, 64); 4], false, 1).prices(true).direct);
        assert_eq!(Method::Pipelined, chosen(rank(8 * MI, 8 * MI, 0, 1 << 16), false, 8, true));
    }

    /// Pins the estimates, so that a change of a parameter shows its effect.
    #[test]
    fn prices_are_as_before() {
        let wanted = [rank(8 * MI, 8 * MI, 1000, 1 << 16); 4];
        let one = lists(&wanted, false, 1);
        let prices = |write| one.prices(write);
        let expected =
            Prices { direct: Some(245_944_260), collective: 184_669_376, pipelined: 184_729_376 };
        assert_eq!(expected, prices(false));
        assert_eq!(Prices { direct: None, ..expected }, prices(true));
        let cold = [rank(8 * MI, 8 * MI, 0, 1 << 16); 4];
        let one = lists(&cold, false, 4);
        let expected =
            Prices { direct: Some(735_758_748), collective: 290_705_782, pipelined: 211_688_478 };
        assert_eq!(expected, one.prices(false));
    }

    #[test]
    fn blocks_that_are_touched_are_at_most_all_and_at_most_one_an_element() {
        assert_eq!(0, touched(0, 5));
        assert_eq!(0, touched(5, 0));
        assert_eq!(1, touched(1 << 40, 1));
        assert_eq!(1, touched(1, 1 << 40));
        assert_eq!(50, touched(100, 100));
    }

    fn any_rank() -> impl Strategy<Value = Wanted> {
        let n = || prop_oneof![0..1000_i64, 0..i64::MAX];
        (n(), n(), n(), 0..=1000_i64).prop_map(|(elements, jumps, blocks, cached)| Wanted {
            elements,
            jumps,
            blocks,
            cached,
        })
    }

    proptest! {
        /// Compares the estimates with arithmetic that does not overflow, method by method.
        #[test]
        fn nothing_overflows_and_more_is_never_cheaper(
            wanted in proptest::collection::vec(any_rank(), 1..9),
            (row, block, blocks, all) in (0..1_i64 << 40, 1..1_i64 << 40, 0..i64::MAX, 0..i64::MAX),
            (owners, steps, near, untold) in (1..9_i64, 1..i64::MAX, any::<bool>(), any::<bool>()),
            encoded: bool, write: bool, more in 0..i64::MAX, which in 0..4_usize,
        ) {
            let prices = |wanted: &[Wanted], blocks: i64, steps: i64| Lists {
                wanted,
                stored: Stored { row, block, encoded, blocks, all },
                owned: Owned { owners, steps, near, untold },
                costs: ExchangeCosts::shared(1000),
                rates: Rates::MEASURED,
            }.prices(write);
            let before = prices(&wanted, blocks, steps);
            prop_assert!(before.collective >= 0 && before.pipelined >= 0);
            prop_assert_eq!(write, before.direct.is_none());
            let mut larger = wanted.clone();
            let (mut blocks, mut steps) = (blocks, steps);
            match which {
                0 => larger[0].elements = larger[0].elements.saturating_add(more),
                1 => larger[0].jumps = larger[0].jumps.saturating_add(more),
                2 => { larger[0].blocks = larger[0].blocks.saturating_add(more);
                       blocks = blocks.saturating_add(more); }
                _ => steps = steps.saturating_add(more),
            }
            // A rank without elements does not count in the cached share.
            prop_assume!(wanted[0].elements > 0);
            let after = prices(&larger, blocks, steps);
            prop_assert!(after.collective >= before.collective);
            if let (Some(a), Some(b)) = (before.direct, after.direct) {
                prop_assert!(b >= a);
            }
            // No method is cheaper than the chosen one.
            let cost = |p: &Prices, m| match m {
                Method::Direct => p.direct.unwrap(),
                Method::Collective => p.collective,
                Method::Pipelined => p.pipelined,
            };
            let least = [after.direct, Some(after.collective), Some(after.pipelined)];
            prop_assert_eq!(least.into_iter().flatten().min().unwrap(), cost(&after, after.cheapest()));
        }
    }
}
