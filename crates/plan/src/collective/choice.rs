//! Which method: every rank by itself, or two-phase? Decided from what all ranks said.
//!
//! | method      | what happens                                                             |
//! |-------------|--------------------------------------------------------------------------|
//! | `direct`    | each rank accesses its own section, as if it were alone                  |
//! | `sieve`     | the same, through windows (data sieving)                                 |
//! | `two-phase` | owners access what the ranks want together; the ranks exchange           |
//!
//! Data in the page cache is cached for every rank of the node, so nothing is won by having somebody else
//! copy it: direct. Writes into one file exclude each other in the kernel, so few large ones are better than
//! many small, also there. Cold data comes from a disk that all share: what counts is the sum over all
//! ranks, each byte as often as it is read. Encoded blocks are decoded by each rank that wants a part of
//! them, or once. Small sections are read before a plan of them is made.
//!
//! Where memory is too short for slots that hold a block, it is direct, whatever that costs. Where sections
//! of a write overlap, each rank leaves out what a higher one gives, so all methods will do. Only where the
//! plan cannot say what is left, it has to be two-phase.
//!
//! Invariants. Integers that all ranks have from all ranks, and no clock: equal calls choose equally.

use alloc::vec::Vec;

use super::records::Records;
use crate::choose::{is_cached, time};

/// What each of many arrays costs a rank's processor: until it is planned, which ends with a choice, and
/// then in two-phase, beyond reading a section of its own; nanoseconds.
const PLAN_NS: i64 = 65_000;
const ARRAY_NS: i64 = 50_000;
/// What any two-phase costs a processor besides: slots, threads that fill them, rounds as such.
const ROUNDS_NS: i64 = 300_000;
/// What a processor does for one rank alone, in thousandths.
const ONE: i64 = 1000;

/// How ranks access what they want.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// As it is cheapest.
    Auto = 0,
    /// Each by itself.
    Direct = 1,
    /// Each by itself, through windows.
    Sieve = 2,
    /// Through owners.
    TwoPhase = 3,
}

impl Method {
    /// Of a word in a record.
    pub fn of_number(number: i64) -> Method {
        match number {
            1 => Method::Direct,
            2 => Method::Sieve,
            3 => Method::TwoPhase,
            _ => Method::Auto,
        }
    }

    /// The name in calls and reports.
    pub fn name(self) -> &'static str {
        match self {
            Method::Auto => "auto",
            Method::Direct => "direct",
            Method::Sieve => "sieve",
            Method::TwoPhase => "two-phase",
        }
    }
}

/// Why a method was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// A caller asked for it.
    Asked,
    /// So many ranks touch files, by a hint.
    FewTouchFiles(i64),
    /// There is one rank.
    OneRank,
    /// There is no memory for two-phase: bytes of a slot, and what a rank has for one.
    NoMemory(i64, i64),
    /// Ranks write the same elements in a way that cannot be cut; perhaps, if nobody could find out.
    InOrder {
        /// Whether that is not known.
        undecided: bool,
        /// Another method was asked for.
        instead_of: Option<Method>,
    },
    /// All is in the page cache.
    Cached,
    /// Ranks change the same encoded blocks.
    SharedBlocks,
    /// To plan takes longer than to read.
    TooSmall,
    /// Prices of each rank by itself and of two-phase, nanoseconds.
    Cheaper(i64, i64),
}

/// A method, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// Not [`Method::Auto`].
    pub method: Method,
    /// The reason.
    pub why: Why,
}

/// What comes of the records and the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// This method.
    Chosen(Choice),
    /// What is cheapest: [`Prices::cheapest`].
    ByPrice,
    /// There is no way with the memory that ranks have. Tells why nothing but two-phase would do, if that is
    /// because of the order of the ranks.
    NoMemory(Option<Why>),
}

/// What an exchange costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExchangeCosts {
    /// A synchronisation of all ranks, nanoseconds.
    pub barrier_ns: i64,
    /// Bytes per second of the cache lines that a rank copies out of a slot, or into it.
    pub copy: i64,
    /// Bytes per second that go between nodes, all ranks together.
    pub messages: i64,
    /// Ranks that share a processor, in thousandths: 1000 and more.
    pub oversubscription: i64,
}

impl ExchangeCosts {
    /// Where so many ranks share a processor, in thousandths.
    pub fn shared(oversubscription: i64) -> ExchangeCosts {
        let oversubscription = oversubscription.clamp(ONE, 1000 * ONE);
        ExchangeCosts {
            barrier_ns: 60_000,
            copy: 8_000_000_000,
            messages: 2_000_000_000,
            oversubscription,
        }
    }
}

/// What the ways cost, in nanoseconds; equal on all ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prices {
    /// What each rank's own accesses cost, and the share of them that is cached, in thousandths.
    pub own: Vec<(i64, i64)>,
    /// What all owners need for their parts, summed.
    pub parts: i64,
    /// What it takes to synchronise, copy and send.
    pub costs: ExchangeCosts,
    /// The node of each rank.
    pub nodes: Vec<i64>,
    /// Of how many arrays a rank has sections, at most.
    pub arrays: i64,
}

/// What a plan in two phases moves between ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exchanged {
    /// Bytes that all ranks give or get.
    pub given: i64,
    /// Bytes of the cache lines of slots in which these lie.
    pub touched: i64,
    /// Those of the given bytes that go from node to node.
    pub far: i64,
    /// Rounds of the plan.
    pub rounds: i64,
    /// Whether any array is stored in blocks that are encoded.
    pub encoded: bool,
    /// Whether several ranks may touch the same of these blocks.
    pub shared_blocks: bool,
}

impl Prices {
    /// What it costs if each rank goes by itself.
    pub fn alone(&self) -> i64 {
        self.own.iter().fold(0, |sum: i64, (cost, _)| sum.saturating_add(*cost))
    }

    /// The least share that is cached on any rank.
    fn cached(&self) -> i64 {
        self.own.iter().map(|(_, cached)| *cached).min().unwrap_or(0)
    }
}

impl Records {
    /// How ranks read if nothing has to be planned for that.
    pub fn unplanned(&self, encoded: bool) -> Option<Choice> {
        let method = self.asked();
        match method {
            Method::Auto
                if self.few_touch_files().is_none() && !encoded && is_cached(self.cached()) =>
            {
                Some(Choice { method: Method::Direct, why: Why::Cached })
            }
            Method::Direct | Method::Sieve => Some(Choice { method, why: Why::Asked }),
            Method::Auto | Method::TwoPhase => None,
        }
    }

    /// What a hint leaves of [`Method::Auto`]; None if there is something to choose.
    pub fn few_touch_files(&self) -> Option<Choice> {
        let few = self.io_ranks();
        let why = Why::FewTouchFiles(few);
        (few < self.ranks() as i64).then_some(Choice { method: Method::TwoPhase, why })
    }

    /// Why there is no memory for a plan in two phases with slots of so many bytes.
    pub fn lacking(&self, slot: i64) -> Option<Why> {
        let offered = self.offered();
        (slot > offered).then_some(Why::NoMemory(slot, offered))
    }

    /// What all ranks do, as far as that does not depend on prices; with slots of so many bytes.
    ///
    /// `order`: ranks write, and in their order; whether nobody could find out if they have to.
    pub fn decide(&self, slot: i64, order: Option<bool>) -> Decision {
        let method = self.asked();
        let only = self.few_touch_files().filter(|_| method == Method::Auto);
        // One rank puts its own sections in order.
        let by_itself = self.ranks() == 1 && method == Method::Auto;
        let has_to = method == Method::TwoPhase || only.is_some();
        if self.lacking(slot).is_some() && (has_to || (order.is_some() && !by_itself)) {
            return Decision::NoMemory(order.map(|undecided| in_order(undecided, None)));
        }
        match (only, method, order) {
            (Some(choice), ..) => Decision::Chosen(choice),
            (None, Method::Auto, _) => Decision::ByPrice,
            (None, Method::Direct | Method::Sieve, Some(undecided)) => {
                let why = in_order(undecided, Some(method));
                Decision::Chosen(Choice { method: Method::TwoPhase, why })
            }
            (None, ..) => Decision::Chosen(Choice { method, why: Why::Asked }),
        }
    }
}

/// Whether a rank has read its sections sooner than a plan of them is made and exchanged by.
///
/// `own` is what reading them costs this rank: two-phase saves at most as much for each other rank, where
/// all want the same. `arrays`: of how many arrays they are.
pub fn reads_sooner(own: i64, ranks: i64, arrays: i64, oversubscription: i64) -> bool {
    let more = (arrays - 1).max(0).saturating_mul(PLAN_NS);
    let planned = ROUNDS_NS.saturating_add(arrays.saturating_mul(ARRAY_NS)).saturating_add(more);
    (ranks - 1).saturating_mul(own) <= scaled(planned, oversubscription)
}

fn in_order(undecided: bool, instead_of: Option<Method>) -> Why {
    Why::InOrder { undecided, instead_of }
}

fn scaled(ns: i64, thousandths: i64) -> i64 {
    let ns = i128::from(ns) * i128::from(thousandths) / i128::from(ONE);
    i64::try_from(ns).unwrap_or(i64::MAX)
}

impl Prices {
    /// What two-phase costs, nanoseconds.
    pub fn two_phase(&self, moved: &Exchanged, write: bool) -> i64 {
        let (costs, &Exchanged { given, touched, far, rounds, .. }) = (&self.costs, moved);
        let near = i128::from(touched) * i128::from(given - far) / i128::from(given.max(1));
        let copied = time(i64::try_from(near).unwrap_or(i64::MAX), costs.copy);
        let sent = time(far, costs.messages);
        let barriers = rounds.saturating_mul((1 + i64::from(write)) * costs.barrier_ns);
        let sum = |a: i64, b: i64| a.saturating_add(b);
        let mut total = sum(sum(self.parts, copied), sum(sent, barriers));
        if !write && !moved.encoded {
            // The disk is one for all, processors are several; and while a round is exchanged the disk
            // reads the next ones. What is copied out of the page cache, or decoded, takes the processors
            // that exchange: there, all that processors do is summed.
            let beside = scaled(copied, costs.oversubscription) / (self.own.len().max(1) as i64);
            let overlapped = i128::from(self.parts.min(sum(beside, sent)));
            let hidden = overlapped * i128::from(rounds - 1) / i128::from(rounds.max(1));
            let saved = i128::from(copied - beside) + hidden;
            let saved = saved * i128::from(ONE - self.cached()) / i128::from(ONE);
            total -= i64::try_from(saved).unwrap_or(total);
        }
        let each = ROUNDS_NS.saturating_add(self.arrays.saturating_mul(ARRAY_NS));
        sum(total, scaled(each, costs.oversubscription))
    }

    /// Chooses by price. `lacking`: why there is no memory for two-phase; `order` as for [`Records::decide`].
    pub fn cheapest(
        &self,
        moved: &Exchanged,
        write: bool,
        lacking: Option<Why>,
        order: Option<bool>,
    ) -> Choice {
        let direct = |why| Choice { method: Method::Direct, why };
        let two_phase = |why| Choice { method: Method::TwoPhase, why };
        if self.own.len() == 1 {
            return direct(Why::OneRank);
        }
        if let Some(why) = lacking {
            return direct(why);
        }
        if let Some(undecided) = order {
            return two_phase(in_order(undecided, None));
        }
        if !moved.encoded && !write && is_cached(self.cached()) {
            return direct(Why::Cached);
        }
        if write && moved.encoded && moved.shared_blocks {
            return two_phase(Why::SharedBlocks);
        }
        let dearest = self.own.iter().map(|(cost, _)| *cost).max().unwrap_or(0);
        let ranks = self.own.len() as i64;
        if !write && reads_sooner(dearest, ranks, self.arrays, self.costs.oversubscription) {
            return direct(Why::TooSmall);
        }
        let (alone, both) = (self.alone(), self.two_phase(moved, write));
        let why = Why::Cheaper(alone, both);
        if both < alone {
            two_phase(why)
        } else {
            direct(why)
        }
    }
}

#[cfg(test)]
mod tests;
