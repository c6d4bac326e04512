//! Settings: what a rank says beside its sections, and what all of them together allow.
//!
//! Ranks may differ in every setting, so each has a rule by which all come to the same: the least memory,
//! the largest gap, the word of the first rank that brought a section.

use super::choice::Method;
use super::domains::Cut;
use super::records::Records;
use crate::assign::Solver;

/// Number of settings in a record.
const WORDS: usize = 10;
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

/// Flags: no element may be given by several ranks; what is written has to be on the disk.
const REFUSES_OVERLAP: i64 = 1;
const DURABLE: i64 = 2;

const CUTS: [Cut; 4] = [Cut::Requested, Cut::Bounding, Cut::Fixed, Cut::Cyclic];
const SOLVERS: [Solver; 4] = [Solver::Balanced, Solver::Greedy, Solver::Matching, Solver::Exact];
/// Slots of a rank where there is room: other ranks look at one, and two are read ahead.
const MOST_SLOTS: i64 = 3;

/// Of the budget a slot is such a part: two slots or three, and what reading or writing a tile takes; with
/// ranks on other nodes also two that messages need.
const SHARES: [i64; 2] = [4, 6];
/// Domains begin at multiples of so many bytes where no hint says otherwise.
pub const ALIGN: i64 = 4096;

/// Into so many parts the memory of a rank is divided, of which a slot is one; `far`: there are ranks on other
/// nodes.
pub fn slot_shares(far: bool) -> i64 {
    SHARES[usize::from(far)]
}

/// Bytes that a slot of a rank may have, of so many that are free; `memory`: bytes that a hint allows, or none.
pub fn offered(free: i64, memory: Option<i64>, far: bool) -> i64 {
    let most = memory.filter(|bytes| *bytes != 0).map_or(free, |bytes| bytes.min(free));
    (most / slot_shares(far)).max(1)
}

/// What one rank says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// The method it asks for.
    pub method: Method,
    /// Bytes that a slot of it may have.
    pub offered: i64,
    /// How many ranks are to touch files.
    pub io_ranks: i64,
    /// How file domains are cut.
    pub cut: Cut,
    /// Whether ranks that write the same elements are an error.
    pub refuses_overlap: bool,
    /// Whether what is written has to be on the disk.
    pub durable: bool,
    /// Bytes of a stripe: domains begin at multiples of it.
    pub stripe: i64,
    /// The least share of its sections that is in the page cache, in thousandths.
    pub cached: i64,
    /// In how many groups owners take turns.
    pub groups: i64,
    /// Reading a gap below so many bytes is cheaper than a request, on its disks.
    pub gap: i64,
    /// How arrays are given to ranks.
    pub solver: Solver,
}

impl Settings {
    /// As words of a record.
    pub fn words(&self) -> [i64; WORDS] {
        let flags =
            REFUSES_OVERLAP * i64::from(self.refuses_overlap) + DURABLE * i64::from(self.durable);
        let cut = CUTS.iter().position(|cut| *cut == self.cut).unwrap_or(0);
        let solver = SOLVERS.iter().position(|solver| *solver == self.solver).unwrap_or(0);
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
        ]
    }
}

/// What all ranks together allow; words that no version of this wrote are taken for the first choice.
impl Records {
    /// The method that each rank asks for.
    pub fn methods(&self) -> impl Iterator<Item = Method> + '_ {
        self.setting(METHOD).map(Method::of_number)
    }

    /// The method that all ask for, once `methods` was found to be equal.
    pub fn asked(&self) -> Method {
        self.methods().next().unwrap_or(Method::Auto)
    }

    /// Whether all ranks have what they want by the same method; with `one`, each a section of one array.
    pub fn all_done(&self, one: bool) -> bool {
        self.settled(METHOD, one)
    }

    /// Bytes that a slot of any rank may have.
    pub fn offered(&self) -> i64 {
        self.setting(OFFERED).min().unwrap_or(0).max(0)
    }

    /// How many ranks touch files: as few as any rank says.
    pub fn io_ranks(&self) -> i64 {
        self.setting(IO_RANKS).min().unwrap_or(1).max(1)
    }

    /// How file domains are cut.
    pub fn cut(&self) -> Cut {
        let number = usize::try_from(self.first_setting(CUT)).unwrap_or(0);
        CUTS.get(number).copied().unwrap_or(Cut::Requested)
    }

    /// Whether any rank refuses that ranks write the same elements.
    pub fn refuses_overlap(&self) -> bool {
        self.setting(FLAGS).any(|flags| flags & REFUSES_OVERLAP != 0)
    }

    /// Whether any rank wants what is written to be on the disk.
    pub fn durable(&self) -> bool {
        self.setting(FLAGS).any(|flags| flags & DURABLE != 0)
    }

    /// Bytes at whose multiples domains begin.
    pub fn stripe(&self) -> i64 {
        self.setting(STRIPE).max().unwrap_or(0)
    }

    /// The least share that is cached on any rank, in thousandths.
    pub fn cached(&self) -> i64 {
        self.setting(CACHED).min().unwrap_or(0)
    }

    /// In how many groups so many owners take turns.
    pub fn groups(&self, owners: i64) -> i64 {
        self.first_setting(GROUPS).min(owners).max(1)
    }

    /// The largest gap that is cheaper to read than a request.
    pub fn gap(&self) -> i64 {
        self.setting(GAP).max().unwrap_or(0)
    }

    /// How arrays are given to ranks.
    pub fn solver(&self) -> Solver {
        let number = usize::try_from(self.first_setting(SOLVER)).unwrap_or(0);
        SOLVERS.get(number).copied().unwrap_or(Solver::Balanced)
    }
}

/// How many slots each rank has, if one has so many bytes and two may have `offered` each: three where
/// these fit.
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
