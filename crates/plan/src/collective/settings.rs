//! Settings: parameters in the records of ranks, and the rules that combine them.
//!
//! Ranks may differ in every setting. Each setting has a rule that gives all ranks the same result:
//! the least memory, the largest gap, the value of the first rank with a section.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::choice::Method;
use super::domains::Cut;
use super::records::Records;
use crate::assign::Solver;
use crate::trial;

/// Number of settings in a record.
const WORDS: usize = 14;
const METHOD: usize = 0;
const OFFERED: usize = 1;
const IO_RANKS: usize = 2;
const CUT: usize = 3;
const FLAGS: usize = 4;
const STRIPE: usize = 5;
const CACHED: usize = 6;
const GROUPS: usize = 7;
const GAP: usize = 8;
const SOLVER: usize = 9;
const DISK: usize = 10;
const LATENCY: usize = 11;
const RATE: usize = 12;
const UNTRIED: usize = 13;

/// Flags of the settings.
///
/// `REFUSES_OVERLAP`: several ranks must not write the same element. `DURABLE`: written data must
/// be on the disk at the end.
const REFUSES_OVERLAP: i64 = 1;
const DURABLE: i64 = 2;

const CUTS: [Cut; 4] = [Cut::Requested, Cut::Bounding, Cut::Fixed, Cut::Cyclic];
const SOLVERS: [Solver; 4] = [Solver::Balanced, Solver::Greedy, Solver::Matching, Solver::Exact];
/// Slots of a rank if memory allows: other ranks access one, and two are read ahead.
const MOST_SLOTS: i64 = 3;

/// Divisors of the budget that give the size of a slot.
///
/// The budget holds two or three slots and the memory for reading or writing a tile; with ranks on
/// other nodes, also two slots for messages.
const SHARES: [i64; 2] = [4, 6];
/// Default alignment of domains, bytes; a hint may set another one.
pub const ALIGN: i64 = 4096;

/// Number of parts into which the memory of a rank is divided; a slot is one of them.
///
/// `far`: there are ranks on other nodes.
pub fn slot_shares(far: bool) -> i64 {
    SHARES[usize::from(far)]
}

/// Bytes that a slot of a rank may have, if `free` bytes are free.
///
/// `memory`: bytes that a hint allows; None without a hint.
pub fn offered(free: i64, memory: Option<i64>, far: bool) -> i64 {
    let most = memory.filter(|bytes| *bytes != 0).map_or(free, |bytes| bytes.min(free));
    (most / slot_shares(far)).max(1)
}

/// The settings of one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// The requested method.
    pub method: Method,
    /// Bytes that a slot of this rank may have.
    pub offered: i64,
    /// Number of ranks that should access files.
    pub io_ranks: i64,
    /// Measure for cutting file domains.
    pub cut: Cut,
    /// True if it is an error that several ranks write the same elements.
    pub refuses_overlap: bool,
    /// True if written data must be on the disk at the end.
    pub durable: bool,
    /// Bytes of a stripe: domains begin at multiples of it.
    pub stripe: i64,
    /// Smallest share of its sections that is in the page cache, in thousandths.
    pub cached: i64,
    /// Number of groups in which owners take turns.
    pub groups: i64,
    /// Gaps below this many bytes are cheaper to read than a request, on the disks of this rank.
    pub gap: i64,
    /// Solver that assigns arrays to ranks.
    pub solver: Solver,
    /// Number of the disk of its arrays, on its node.
    pub disk: i64,
    /// Nanoseconds per request and bytes per second of this disk.
    ///
    /// None if the rank has not measured them recently.
    pub timed: Option<(i64, i64)>,
    /// Number of requests of its access, if they are scattered over a disk with unknown rates.
    pub untried: i64,
}

/// Rates of a disk, measured by a rank of its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimedDisk {
    /// Its number on this node.
    pub disk: i64,
    /// Time of a request, in nanoseconds.
    pub latency_ns: i64,
    /// Bytes per second.
    pub rate: i64,
}

impl Settings {
    /// The settings as words of a record.
    pub fn words(&self) -> [i64; WORDS] {
        let flags =
            REFUSES_OVERLAP * i64::from(self.refuses_overlap) + DURABLE * i64::from(self.durable);
        let cut = CUTS.iter().position(|cut| *cut == self.cut).unwrap_or(0);
        let solver = SOLVERS.iter().position(|solver| *solver == self.solver).unwrap_or(0);
        let (latency, rate) = self.timed.unwrap_or((0, 0));
        [
            self.method as i64,
            self.offered,
            self.io_ranks,
            cut as i64,
            flags,
            self.stripe,
            self.cached,
            self.groups,
            self.gap,
            solver as i64,
            self.disk,
            latency,
            rate,
            self.untried,
        ]
    }
}

/// Combined settings of all ranks. Unknown words count as the first alternative.
impl Records {
    /// The method that each rank requests.
    pub fn methods(&self) -> impl Iterator<Item = Method> + '_ {
        self.setting(METHOD).map(Method::of_number)
    }

    /// The method that all ranks request, once `methods` was found to be equal.
    pub fn asked(&self) -> Method {
        self.methods().next().unwrap_or(Method::Auto)
    }

    /// Returns whether all ranks have read their data with the same method.
    ///
    /// With `one`, each must have read a section of one array.
    pub fn all_done(&self, one: bool) -> bool {
        self.settled(METHOD, one)
    }

    /// Bytes that a slot of every rank may have.
    pub fn offered(&self) -> i64 {
        self.setting(OFFERED).min().unwrap_or(0).max(0)
    }

    /// Number of ranks that access files: the minimum over all ranks.
    pub fn io_ranks(&self) -> i64 {
        self.setting(IO_RANKS).min().unwrap_or(1).max(1)
    }

    /// Measure for cutting file domains.
    pub fn cut(&self) -> Cut {
        let number = usize::try_from(self.first_setting(CUT)).unwrap_or(0);
        CUTS.get(number).copied().unwrap_or(Cut::Requested)
    }

    /// Returns whether any rank forbids that several ranks write the same elements.
    pub fn refuses_overlap(&self) -> bool {
        self.setting(FLAGS).any(|flags| flags & REFUSES_OVERLAP != 0)
    }

    /// Returns whether any rank requires written data to be on the disk at the end.
    pub fn durable(&self) -> bool {
        self.setting(FLAGS).any(|flags| flags & DURABLE != 0)
    }

    /// Alignment of domains, bytes.
    pub fn stripe(&self) -> i64 {
        self.setting(STRIPE).max().unwrap_or(0)
    }

    /// Smallest cached share of any rank, in thousandths.
    pub fn cached(&self) -> i64 {
        self.setting(CACHED).min().unwrap_or(0)
    }

    /// Number of groups in which `owners` owners take turns.
    pub fn groups(&self, owners: i64) -> i64 {
        self.first_setting(GROUPS).min(owners).max(1)
    }

    /// The largest gap that is cheaper to read than a request.
    pub fn gap(&self) -> i64 {
        self.setting(GAP).max().unwrap_or(0)
    }

    /// Solver that assigns arrays to ranks.
    pub fn solver(&self) -> Solver {
        let number = usize::try_from(self.first_setting(SOLVER)).unwrap_or(0);
        SOLVERS.get(number).copied().unwrap_or(Solver::Balanced)
    }

    /// Rates of the disks of a node, as measured by its ranks.
    ///
    /// If several ranks measured a disk, the rates with the largest gap are used: a throttled
    /// device serves saved-up requests immediately, but only to one of the ranks.
    pub fn timed_disks(&self, nodes: &[i64], node: i64) -> Vec<TimedDisk> {
        let mut found: BTreeMap<i64, TimedDisk> = BTreeMap::new();
        let gap = |one: &TimedDisk| i128::from(one.latency_ns) * i128::from(one.rate);
        for (.., one, _) in
            self.disks(nodes).filter(|(_, of, one, _)| *of == node && one.is_timed())
        {
            let kept = found.entry(one.disk).or_insert(one);
            if (gap(&one), one.latency_ns) > (gap(kept), kept.latency_ns) {
                *kept = one;
            }
        }
        found.into_values().collect()
    }

    /// Ranks that should probe a disk before all ranks plan, one for each disk of a node.
    ///
    /// A disk is probed if no rank of the node knows its rates, and the ranks have many scattered
    /// requests for it. The probing rank is the one with most requests, which must be enough for a
    /// trial.
    pub fn triers(&self, nodes: &[i64]) -> Vec<u32> {
        let mut found: BTreeMap<(i64, i64), (i64, i64, u32)> = BTreeMap::new();
        for (rank, node, one, untried) in self.disks(nodes) {
            let (sum, most, who) = found.entry((node, one.disk)).or_default();
            // If one rank knows the rates, no probe is needed.
            *sum = if one.is_timed() { i64::MIN } else { sum.saturating_add(untried) };
            if untried > *most {
                (*most, *who) = (untried, rank);
            }
        }
        let worth = found
            .into_values()
            .filter(|(sum, most, _)| *sum >= trial::WORTH && *most >= trial::TRIALS[0]);
        let mut ranks: Vec<u32> = worth.map(|(.., rank)| rank).collect();
        ranks.sort_unstable();
        ranks
    }

    /// The disk of each rank that has one: rank, node, rates, untried requests.
    fn disks<'a>(
        &'a self,
        nodes: &'a [i64],
    ) -> impl Iterator<Item = (u32, i64, TimedDisk, i64)> + 'a {
        let figures = self.setting(LATENCY).zip(self.setting(RATE)).zip(self.setting(UNTRIED));
        let all = self.setting(DISK).zip(figures).zip(nodes).zip(0..);
        all.filter(|(((disk, _), _), _)| *disk != 0).map(|(((disk, said), node), rank)| {
            let ((latency_ns, rate), untried) = said;
            (rank, *node, TimedDisk { disk, latency_ns, rate }, untried.max(0))
        })
    }
}

impl TimedDisk {
    fn is_timed(&self) -> bool {
        self.latency_ns > 0 && self.rate > 0
    }
}

/// Number of slots of each rank: three if these fit, otherwise two.
///
/// `slot` is the size of one; two may have `offered` bytes each.
pub(super) fn slots(slot: i64, offered: i64) -> i64 {
    if slot.saturating_mul(MOST_SLOTS) <= offered.saturating_mul(2) {
        MOST_SLOTS
    } else {
        2
    }
}

#[cfg(test)]
mod tests {
    use super::super::records::{record, Stage};
    use super::*;

    fn said(offered: i64, cut: Cut, durable: bool) -> Settings {
        Settings {
            method: Method::Sieve,
            offered,
            io_ranks: 4,
            cut,
            refuses_overlap: !durable,
            durable,
            stripe: 4096,
            cached: 1000 - offered,
            groups: 3,
            gap: offered,
            solver: Solver::Matching,
            disk: 0,
            timed: None,
            untried: 0,
        }
    }

    fn of(settings: &[Vec<i64>]) -> Records {
        let rows: Vec<Vec<i64>> =
            settings.iter().map(|words| record(0, Stage::Ready, words, &[]).unwrap()).collect();
        let width = rows[0].len();
        Records::new(rows.concat(), width).unwrap()
    }

    #[test]
    fn every_setting_has_a_rule() {
        let words = |s: Settings| s.words().to_vec();
        let all = of(&[words(said(70, Cut::Cyclic, false)), words(said(50, Cut::Fixed, true))]);
        assert_eq!(vec![Method::Sieve, Method::Sieve], all.methods().collect::<Vec<_>>());
        assert_eq!((50, 4, 4096, 930, 70), {
            (all.offered(), all.io_ranks(), all.stripe(), all.cached(), all.gap())
        });
        assert_eq!(Cut::Cyclic, all.cut(), "of the first rank");
        assert!(all.durable() && all.refuses_overlap(), "what any rank says");
        assert_eq!(Solver::Matching, all.solver());
        assert_eq!((3, 2, 1), (all.groups(8), all.groups(2), all.groups(0)));
        assert_eq!((3, 2), (slots(33, 50), slots(34, 50)), "three only where they fit");
        let neither =
            of(&[words(Settings { refuses_overlap: false, ..said(1, Cut::Fixed, false) })]);
        assert!(!neither.durable() && !neither.refuses_overlap());
    }

    /// A disk, its measured rates, untried requests.
    type OfDisk = (i64, Option<(i64, i64)>, i64);

    fn with_disks(ranks: &[OfDisk]) -> Records {
        let said = |&(disk, timed, untried): &OfDisk| Settings {
            disk,
            timed,
            untried,
            ..said(1, Cut::Fixed, false)
        };
        of(&ranks.iter().map(|rank| said(rank).words().to_vec()).collect::<Vec<_>>())
    }

    #[test]
    fn of_what_ranks_of_a_node_timed_the_largest_gap_counts() {
        let all = with_disks(&[
            (7, Some((5_000, 100)), 0),
            (7, Some((6_000, 100)), 0),
            (7, None, 0),
            (8, Some((1, 1)), 0),
            (0, Some((9_999, 9_999)), 0),
            (7, Some((-9_999, 9_999)), 0),
            (7, Some((i64::MAX, i64::MAX)), 0),
        ]);
        let nodes = [3, 3, 3, 3, 3, 3, 4];
        let timed = |disk, latency_ns, rate| TimedDisk { disk, latency_ns, rate };
        assert_eq!(vec![timed(7, 6_000, 100), timed(8, 1, 1)], all.timed_disks(&nodes, 3));
        assert_eq!(vec![timed(7, i64::MAX, i64::MAX)], all.timed_disks(&nodes, 4));
        assert!(all.timed_disks(&nodes, 5).is_empty());
        let same = with_disks(&[(7, Some((10, 40)), 0), (7, Some((20, 20)), 0)]);
        assert_eq!(vec![timed(7, 20, 20)], same.timed_disks(&[0, 0], 0), "of equal gaps one");
    }

    #[test]
    fn one_rank_of_a_node_tries_a_disk_that_none_of_them_knows() {
        let few = trial::TRIALS[0];
        let ranks = [few, few + 1, few + 1, few].map(|untried| (7, None, untried));
        assert_eq!(vec![1], with_disks(&ranks).triers(&[0; 4]), "all together want many");
        let many = [(7, None, few - 1); 9];
        assert!(with_disks(&many).triers(&[0; 9]).is_empty(), "nobody has enough for a trial");
        assert!(with_disks(&ranks).triers(&[0, 0, 1, 1]).is_empty(), "of one node few");
        let mut known = ranks;
        for rank in 0..4 {
            known[rank] = (7, Some((1, 1)), few * 4);
            assert!(with_disks(&known).triers(&[0; 4]).is_empty(), "rank {rank} knows it");
            known[rank] = ranks[rank];
        }
        let apart = [(7, None, 100), (8, None, 200), (7, None, 300), (0, None, 400)];
        assert_eq!(vec![1, 2], with_disks(&apart).triers(&[0; 4]), "one for each disk");
        assert_eq!(vec![0, 1, 2], with_disks(&apart).triers(&[0, 0, 1, 1]), "and node");
        let odd = with_disks(&[(7, None, i64::MAX), (7, None, i64::MAX), (7, None, i64::MIN)]);
        assert_eq!(vec![0], odd.triers(&[0; 3]));
    }

    #[test]
    fn words_of_nobody_are_taken_for_the_first_choice() {
        let all = of(&[vec![9, -5, 0, 77, 0, -1, 0, -3, 0, i64::MIN]]);
        assert_eq!((Method::Auto, Cut::Requested, Solver::Balanced), {
            (all.asked(), all.cut(), all.solver())
        });
        assert_eq!((0, 1, 1), (all.offered(), all.io_ranks(), all.groups(5)));
        assert_eq!(0, of(&[vec![]]).offered(), "not said");
    }
}
