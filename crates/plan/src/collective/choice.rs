//! Choice of the method (each rank independently, or two-phase) from the records of all ranks.
//!
//! | method      | description                                                              |
//! |-------------|--------------------------------------------------------------------------|
//! | `direct`    | each rank accesses its own section independently                         |
//! | `sieve`     | the same, through windows (data sieving)                                 |
//! | `two-phase` | owners access the sections of all ranks jointly; the ranks exchange data |
//!
//! Data in the page cache is cached for every rank of the node, so copying by another rank gains
//! nothing: `direct`. Concurrent writes into one file exclude each other in the kernel, so few
//! large writes are better than many small ones, in the page cache, too. Cold data comes from a
//! disk that all ranks share; the cost is the sum over all ranks, with each byte counted as often
//! as it is read. Encoded blocks are decoded by each rank that requests a part of them, or once.
//! Small sections are read before a plan of them is made.
//!
//! If memory is too short for slots that hold a block, the method is `direct`, whatever its cost.
//! If sections of a write overlap, each rank skips the elements that a later rank writes, so every
//! method is possible. Only if the plan cannot determine the remaining elements, the method must be
//! two-phase.
//!
//! Invariants: decisions use integers that all ranks have received from all ranks, and no clock, so
//! equal calls choose equally.

use alloc::vec::Vec;

use super::records::Records;
use crate::choose::{is_cached, time};

/// Processor time of each array of a rank, nanoseconds.
///
/// `PLAN_NS` is the time until the array is planned, which ends with a choice. `ARRAY_NS` is the
/// additional time of two-phase, compared with reading the rank's own section.
const PLAN_NS: i64 = 65_000;
const ARRAY_NS: i64 = 50_000;
/// Additional processor time of any two-phase access, nanoseconds.
///
/// It is spent on slots, threads that fill them, and rounds.
const ROUNDS_NS: i64 = 300_000;
/// Ranks per processor if each rank has its own, in thousandths.
const ONE: i64 = 1000;

/// Methods of collective accesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// The cheapest method.
    Auto = 0,
    /// Each rank independently.
    Direct = 1,
    /// Each rank independently, through windows.
    Sieve = 2,
    /// Through owners.
    TwoPhase = 3,
}

impl Method {
    /// The method of a word in a record.
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

/// Reasons for a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The caller requested it.
    Asked,
    /// A hint limits the number of ranks that access files to this number.
    FewTouchFiles(i64),
    /// There is one rank.
    OneRank,
    /// The memory is too short for two-phase.
    ///
    /// The values are the bytes of a slot, and the bytes that a rank has for one.
    NoMemory(i64, i64),
    /// Ranks write, or may write, the same elements in a way that cannot be cut.
    InOrder {
        /// True if it is not known whether they do.
        undecided: bool,
        /// The method that the caller requested instead.
        instead_of: Option<Method>,
    },
    /// All data is in the page cache.
    Cached,
    /// Ranks change the same encoded blocks.
    SharedBlocks,
    /// Planning takes longer than reading.
    TooSmall,
    /// Estimated times of independent accesses and of two-phase, nanoseconds.
    Cheaper(i64, i64),
}

/// A method with its reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// The method, never [`Method::Auto`].
    pub method: Method,
    /// The reason.
    pub why: Why,
}

/// Decision from the records and the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// A method is determined.
    Chosen(Choice),
    /// The cheapest method is chosen by [`Prices::cheapest`].
    ByPrice,
    /// The memory of the ranks is too short for any permitted method.
    ///
    /// The value is the reason why only two-phase is permitted, if that is the order of the ranks.
    NoMemory(Option<Why>),
}

/// Costs of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExchangeCosts {
    /// A synchronisation of all ranks, nanoseconds.
    pub barrier_ns: i64,
    /// Bytes per second of the cache lines that a rank copies out of a slot, or into it.
    pub copy: i64,
    /// Bytes per second between nodes, for all ranks together.
    pub messages: i64,
    /// Ranks per processor, in thousandths, at least 1000.
    pub oversubscription: i64,
}

impl ExchangeCosts {
    /// Costs if the given number of ranks (in thousandths) share a processor.
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

/// Estimated times of the methods, in nanoseconds; equal on all ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prices {
    /// Time of each rank's own accesses, and the share of them that is cached, in thousandths.
    pub own: Vec<(i64, i64)>,
    /// Sum of the times that owners need for their parts.
    pub parts: i64,
    /// Costs of synchronisation, copies and messages.
    pub costs: ExchangeCosts,
    /// The node of each rank.
    pub nodes: Vec<i64>,
    /// Maximum number of arrays of which a rank has sections.
    pub arrays: i64,
}

/// Data that a two-phase plan moves between ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exchanged {
    /// Bytes that all ranks write or read.
    pub given: i64,
    /// Bytes of the cache lines of slots that contain these bytes.
    pub touched: i64,
    /// The bytes of `given` that go to another node.
    pub far: i64,
    /// Rounds of the plan.
    pub rounds: i64,
    /// True if any array is stored in encoded blocks.
    pub encoded: bool,
    /// True if several ranks may access the same encoded block.
    pub shared_blocks: bool,
}

impl Prices {
    /// Total time if each rank works independently.
    pub fn alone(&self) -> i64 {
        self.own.iter().fold(0, |sum: i64, (cost, _)| sum.saturating_add(*cost))
    }

    /// Smallest cached share of any rank.
    fn cached(&self) -> i64 {
        self.own.iter().map(|(_, cached)| *cached).min().unwrap_or(0)
    }
}

impl Records {
    /// The method of a read that needs no plan; None if it needs one.
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

    /// The choice that a hint enforces for [`Method::Auto`]; None if a choice remains.
    pub fn few_touch_files(&self) -> Option<Choice> {
        let few = self.io_ranks();
        let why = Why::FewTouchFiles(few);
        (few < self.ranks() as i64).then_some(Choice { method: Method::TwoPhase, why })
    }

    /// The reason why memory is too short for a two-phase plan with slots of this size.
    ///
    /// None if the memory is sufficient.
    pub fn lacking(&self, slot: i64) -> Option<Why> {
        let offered = self.offered();
        (slot > offered).then_some(Why::NoMemory(slot, offered))
    }

    /// Decides on a method as far as estimated times are not needed, for slots of the given size.
    ///
    /// `order` is None unless ranks write in their order; its value is true if it is unknown
    /// whether they must.
    pub fn decide(&self, slot: i64, order: Option<bool>) -> Decision {
        let method = self.asked();
        let only = self.few_touch_files().filter(|_| method == Method::Auto);
        // A single rank orders its own sections.
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

/// Returns whether a rank can read its sections faster than plan and exchange them.
///
/// `own` is the time of reading them for this rank: two-phase saves at most this time for each
/// other rank, if all request the same. `arrays` is their number of arrays.
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
    /// Estimated time of two-phase, nanoseconds.
    pub fn two_phase(&self, moved: &Exchanged, write: bool) -> i64 {
        let (costs, &Exchanged { given, touched, far, rounds, .. }) = (&self.costs, moved);
        let near = i128::from(touched) * i128::from(given - far) / i128::from(given.max(1));
        let copied = time(i64::try_from(near).unwrap_or(i64::MAX), costs.copy);
        let sent = time(far, costs.messages);
        let barriers = rounds.saturating_mul((1 + i64::from(write)) * costs.barrier_ns);
        let sum = |a: i64, b: i64| a.saturating_add(b);
        let mut total = sum(sum(self.parts, copied), sum(sent, barriers));
        if !write && !moved.encoded {
            // All ranks share one disk but have several processors, and the disk reads the next
            // rounds while a round is exchanged. Data that is copied out of the page cache, or
            // decoded, uses the processors that exchange; their times are therefore added up.
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

    /// Chooses the method with the lowest estimated time.
    ///
    /// `lacking` is the reason why memory is too short for two-phase; `order` is described at
    /// [`Records::decide`].
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
