//! Simulation of accesses to elements chosen one by one.
//!
//! Each rank accesses its elements independently, or owners work in steps.
//!
//! The steps are those of `collective/irregular.py`: file domains and rounds come from [`divide`],
//! and groups of owners take turns. For each interval that an owner reads or writes, the bytes to
//! or from each rank are counted ([`Scattered`]). There are two ways to divide the work:
//!
//! | | domains | owners of two groups |
//! |---|---|---|
//! | [`Domains::Asked`] | outcore's: an owner's rounds follow each other in the file | those of the next group do not wait |
//! | [`Domains::InTurn`] | the paper's: a round is an interval of the file, of which each owner has a part | one group at a time |
//!
//! Owners reach the servers in an order that is drawn for each step: on a real machine nothing
//! keeps them in the order of the file.
//!
//! Source: No and Choudhary, *Techniques to provide run-time support for solving irregular problems*, sections 3.1
//! and 3.2.

use alloc::vec;
use alloc::vec::Vec;

use super::exchange::Loads;
use super::machine::{Machine, Outcome};
use super::queue::{Chain, Queue};
use super::scattered::{mixed, Piece, Scattered};
use super::servers::Servers;
use super::stream::Stream;
use crate::error::PlanError;
use crate::points::divide;

/// Maximum number of blocks at the ends of domains that are counted, over all steps.
///
/// With more, sums are estimated.
const EXACT: i64 = 1 << 26;
/// Maximum number of parts of all owners and rounds.
const PARTS: i64 = 1 << 26;
/// Words that each rank sends before an access: the call and a few settings.
const WORDS: i64 = 8;

/// Division of the file among owners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Domains {
    /// By the number of requested elements; a group begins while the previous one works.
    Asked,
    /// Round-robin within each round; one group after another.
    InTurn,
}

/// Parameters of an access through owners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Way {
    /// Number of ranks that own parts of the file, evenly spread over the ranks.
    pub owners: u32,
    /// Bytes of an owner's buffer.
    pub chunk: i64,
    /// Number of groups in which owners take turns.
    pub groups: u32,
    /// Division of the file.
    pub domains: Domains,
    /// True if a step is read, or the last one written, during the exchange.
    pub ahead: bool,
    /// Maximum bytes of a request.
    pub most: i64,
}

/// Each rank independently: one request for each block, in the order of the file.
///
/// # Errors
/// Fails for an invalid machine or pattern, and a file of 2^33 blocks.
pub fn each_alone(
    of: &Scattered,
    machine: &Machine,
    most: i64,
    write: bool,
) -> Result<Outcome, PlanError> {
    machine.check()?;
    of.check()?;
    let mut queue = Queue::new(machine, Servers::new(machine, of.bytes())?, 1);
    let chain = |rank| Chain {
        first: vec![vec![(Stream::scattered(*of, rank, most), write)]],
        then: vec![],
    };
    queue.begin(0, machine.call_ns, (0..of.ranks).map(chain).collect());
    let ns = queue.wait(0);
    let ended =
        Outcome { ns, useful: of.bytes(), io_ns: ns - machine.call_ns, ..Outcome::default() };
    Ok(counted(&queue, ended))
}

/// Access through owners in steps.
///
/// # Errors
/// As for [`each_alone`]; also for owners, groups or a chunk below one, more owners than ranks, and
/// more than 2^26 parts.
pub fn in_steps(
    of: &Scattered,
    way: &Way,
    machine: &Machine,
    write: bool,
) -> Result<Outcome, PlanError> {
    machine.check()?;
    of.check()?;
    let queue = Queue::new(machine, Servers::new(machine, of.bytes())?, 2);
    let plan = Steps::new(of, way)?;
    let outcome = Outcome { rounds: plan.rounds, useful: of.bytes(), ..Outcome::default() };
    let synchronisation = machine.synchronisation(of.ranks);
    let mut clock = Clock { plan: &plan, machine, queue, outcome, synchronisation };
    let begun = machine.gathering(of.ranks, WORDS);
    let done = if write { clock.write(begun) } else { clock.read(begun) };
    let ns = done.saturating_add(synchronisation);
    Ok(counted(&clock.queue, Outcome { ns, ..clock.outcome }))
}

fn counted(queue: &Queue<'_>, outcome: Outcome) -> Outcome {
    Outcome {
        requests: queue.counted.requests,
        bytes: queue.counted.bytes,
        events: queue.counted.events,
        busiest_ns: queue.servers.busiest(),
        ..outcome
    }
}

/// Owners and their elements in each step.
pub(super) struct Steps<'a> {
    of: &'a Scattered,
    way: Way,
    groups: i64,
    pub rounds: i64,
    /// For [`Domains::Asked`]: first element and one past the last of each part.
    ///
    /// The order is round after round, owner after owner.
    cut: Vec<(i64, i64)>,
    exact: bool,
}

impl<'a> Steps<'a> {
    pub fn new(of: &'a Scattered, way: &Way) -> Result<Steps<'a>, PlanError> {
        let least = [i64::from(way.owners), i64::from(way.groups), way.chunk, way.most];
        if least.iter().any(|n| *n < 1) || way.owners > of.ranks {
            return Err(PlanError::BadLayout(alloc::format!(
                "{way:?} is invalid for {} ranks",
                of.ranks
            )));
        }
        let elements = of.elements();
        let rounds = match way.domains {
            Domains::Asked => divide::rounds(of.bytes(), way.owners, way.chunk),
            // A chunk has whole elements.
            Domains::InTurn => divide::rounds(elements, way.owners, (way.chunk / of.item).max(1)),
        };
        let parts = rounds.saturating_mul(i64::from(way.owners));
        if parts > PARTS {
            return Err(PlanError::TooLarge("the number of chunks of a simulation"));
        }
        let mut cut = vec![];
        if way.domains == Domains::Asked {
            // Each element is requested once, so the number of elements of a bin is its width.
            let (width, bins) = divide::bins(elements, 1, way.owners);
            let sums: Vec<i64> = (0..bins).map(|bin| width.min(elements - bin * width)).collect();
            cut = vec![(0, 0); parts as usize];
            let mut at = 0;
            for (part, sum) in
                divide::cut(&sums, way.owners as usize, rounds as usize).iter().zip(&sums)
            {
                let stretch = &mut cut[*part as usize];
                if stretch.0 == stretch.1 {
                    *stretch = (at, at);
                }
                at += sum;
                stretch.1 = at;
            }
        }
        let looked = parts.saturating_mul(i64::from(of.spread));
        let groups = i64::from(way.groups.min(way.owners));
        Ok(Steps { of, way: *way, groups, rounds, cut, exact: looked <= EXACT })
    }

    #[cfg(test)]
    pub fn estimated(of: &'a Scattered, way: &Way) -> Result<Steps<'a>, PlanError> {
        Ok(Steps { exact: false, ..Steps::new(of, way)? })
    }

    pub fn count(&self) -> i64 {
        self.rounds * self.groups
    }

    /// The owners of a step, with first element and one past the last.
    pub fn owned(&self, step: i64) -> impl Iterator<Item = (u32, i64, i64)> + '_ {
        let (round, group) = (step / self.groups, step % self.groups);
        let owners = i64::from(self.way.owners);
        let group = owners * group / self.groups..owners * (group + 1) / self.groups;
        group.filter_map(move |owner| {
            let (low, high) = self.stretch(round, owner);
            // As `owner * size // owners` in `irregular.py`.
            let rank = owner * i64::from(self.of.ranks) / owners;
            (low < high).then_some((rank as u32, low, high))
        })
    }

    fn stretch(&self, round: i64, owner: i64) -> (i64, i64) {
        let owners = i64::from(self.way.owners);
        match self.way.domains {
            Domains::Asked => self.cut[(round * owners + owner) as usize],
            Domains::InTurn => {
                let each = (self.way.chunk / self.of.item).max(1);
                let first = i128::from(round) * i128::from(owners) * i128::from(each);
                let elements = i128::from(self.of.elements());
                let len = (i128::from(owners) * i128::from(each)).min(elements - first);
                let cut = |k: i64| (first + len * i128::from(k) / i128::from(owners)) as i64;
                (cut(owner), cut(owner + 1))
            }
        }
    }

    /// Loads of ranks in a step.
    pub fn loads(&self, step: i64, machine: &Machine, write: bool) -> Loads {
        match self.exact {
            true => self.looked_at(step, machine, write),
            false => self.added_up(step, write),
        }
    }

    fn looked_at(&self, step: i64, machine: &Machine, write: bool) -> Loads {
        let mut loads = Loads::new(self.of.ranks);
        let mut counts = vec![0_i64; self.of.ranks as usize];
        for (owner, low, high) in self.owned(step) {
            for piece in self.of.pieces(low, high) {
                self.of.at_ends(&piece, |rank, n| counts[rank as usize] += n);
                let (first, size) = self.of.hood(piece.hood);
                for rank in first..first + size {
                    let n = piece.whole * self.of.run + core::mem::take(&mut counts[rank as usize]);
                    if n > 0 {
                        let (from, to) = if write { (rank, owner) } else { (owner, rank) };
                        loads.packet(from, to, n * self.of.item, machine.per_node);
                    }
                }
            }
        }
        loads
    }

    /// Estimated loads of a step.
    ///
    /// The estimate assigns blocks at the ends of intervals to all ranks of the neighbourhood in
    /// equal parts, and assumes one rank per node.
    fn added_up(&self, step: i64, write: bool) -> Loads {
        let mut loads = Loads::new(self.of.ranks);
        let hoods = self.of.ranks.div_ceil(self.of.spread) as usize;
        let mut sums = vec![(0_i64, 0_i64); hoods];
        for (owner, low, high) in self.owned(step) {
            let mut all = (0, 0);
            for piece in self.of.pieces(low, high) {
                let (packets, elements) = self.estimate(&piece);
                let bytes = elements * self.of.item;
                let sum = &mut sums[piece.hood as usize];
                *sum = (sum.0 + packets, sum.1 + bytes);
                all = (all.0 + packets, all.1 + bytes);
            }
            loads.end(owner, all.0, all.1, !write, true);
        }
        for (hood, (packets, bytes)) in sums.iter().enumerate() {
            let (first, size) = self.of.hood(hood as u32);
            let part = |all: i64, k: u32| {
                all / i64::from(size) + i64::from(i64::from(k) < all % i64::from(size))
            };
            for k in 0..size {
                loads.end(first + k, part(*packets, k), part(*bytes, k), write, false);
            }
        }
        loads
    }

    /// Estimated number of ranks with elements of a piece, and the number of its elements.
    fn estimate(&self, piece: &Piece) -> (i64, i64) {
        let size = i64::from(self.of.hood(piece.hood).1);
        let blocks = |(_, from, to): (i64, i64, i64)| match from == to {
            true => 0,
            false => (to - 1) / self.of.run - from / self.of.run + 1,
        };
        let [a, b] = piece.ends.map(blocks);
        let packets = if piece.whole > 0 { size } else { a + b - a * b / size };
        let ends: i64 = piece.ends.iter().map(|(_, from, to)| to - from).sum();
        (packets, piece.whole * size * self.of.run + ends)
    }
}

struct Clock<'a> {
    plan: &'a Steps<'a>,
    machine: &'a Machine,
    /// Two turns: for this step, and for the previous or next one.
    queue: Queue<'a>,
    outcome: Outcome,
    synchronisation: i64,
}

impl Clock<'_> {
    /// Returns whether owners of the next group start without waiting.
    fn groups_overlap(&self) -> bool {
        self.plan.way.ahead && self.plan.groups > 1 && self.plan.way.domains == Domains::Asked
    }

    fn begin(&mut self, step: i64, at: i64, write: bool) {
        let (item, most) = (self.plan.of.item, self.plan.way.most);
        let mut owned: Vec<_> = self.plan.owned(step).collect();
        owned.sort_by_key(|(owner, ..)| mixed(mixed(step as u64) ^ u64::from(*owner)));
        let chain = |(_, low, high): (u32, i64, i64)| Chain {
            first: vec![vec![(Stream::contiguous(low * item, (high - low) * item, most), write)]],
            then: vec![],
        };
        self.queue.begin((step % 2) as usize, at, owned.into_iter().map(chain).collect());
    }

    fn wait(&mut self, step: i64) -> i64 {
        self.queue.wait((step % 2) as usize)
    }

    fn exchange(&mut self, step: i64, at: i64, write: bool) -> i64 {
        let loads = self.plan.loads(step, self.machine, write);
        let ns = loads.ns(self.machine);
        let outcome = &mut self.outcome;
        outcome.exchange_ns = outcome.exchange_ns.saturating_add(ns);
        outcome.copy_ns = outcome.copy_ns.saturating_add(loads.copies(self.machine));
        outcome.messages += loads.messages;
        outcome.message_bytes += loads.bytes;
        at.saturating_add(ns)
    }

    fn waited(&mut self, ns: i64) {
        self.outcome.io_ns = self.outcome.io_ns.saturating_add(ns.max(0));
    }

    fn read(&mut self, begun: i64) -> i64 {
        let (ahead, count) = (self.plan.way.ahead, self.plan.count());
        let mut done = begun;
        for step in 0..count {
            if step == 0 || !ahead {
                self.begin(step, done, false);
            }
            let more = ahead && step + 1 < count;
            if more && self.groups_overlap() {
                self.begin(step + 1, done, false);
            }
            let ready = self.wait(step).max(done);
            self.waited(ready - done);
            if more && !self.groups_overlap() {
                self.begin(step + 1, ready, false);
            }
            done = self.exchange(step, ready.saturating_add(self.synchronisation), false);
        }
        done
    }

    fn write(&mut self, begun: i64) -> i64 {
        let (ahead, count) = (self.plan.way.ahead, self.plan.count());
        let mut done = begun;
        for step in 0..count {
            let agreed = done.saturating_add(self.synchronisation);
            let exchanged = self.exchange(step, agreed, true);
            done = exchanged;
            if self.groups_overlap() {
                self.begin(step, exchanged, true);
            }
            if ahead && step > 0 {
                done = self.wait(step - 1).max(exchanged);
            }
            if !self.groups_overlap() {
                self.begin(step, done, true);
            }
            if !ahead {
                done = self.wait(step).max(exchanged);
            }
            self.waited(done - exchanged);
        }
        let ended = self.wait(count - 1).max(done);
        self.waited(ended - done);
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    fn machine() -> Machine {
        Machine {
            servers: 3,
            stripe: 64,
            block: 32,
            request_ns: 1_000,
            memory_rate: 1_000_000_000,
            block_ns: 10_000,
            seek_ns: 100_000,
            streams: 2,
            disk_rate: 1_000_000_000,
            write_rate: 500_000_000,
            write_seek_ns: 0,
            client_ns: 7,
            depth: 1,
            write_depth: 1,
            message_ns: 50,
            message_rate: 1_000_000_000,
            copy_rate: 1_000_000_000,
            per_node: 1,
            call_ns: 0,
        }
    }

    fn ways() -> impl Strategy<Value = (Scattered, Way)> {
        let of = (1..12_u32, 1..40_i64, 1..4_i64, 1..12_u32);
        let way = (1..12_u32, 1..400_i64, 1..6_u32, any::<bool>(), any::<bool>(), 1..100_i64);
        (of, way).prop_map(
            |((ranks, blocks, run, spread), (owners, chunk, groups, paper, ahead, most))| {
                let of = Scattered { ranks, blocks, run, item: 8, spread: spread.min(ranks) };
                let domains = if paper { Domains::InTurn } else { Domains::Asked };
                (of, Way { owners: owners.min(ranks), chunk, groups, domains, ahead, most })
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

        /// Checks that each element is moved once, and that messages match the elements.
        ///
        /// Estimates must have the same sum.
        #[test]
        fn steps_move_each_element_once((of, way) in ways(), write in any::<bool>(), per_node in 1..4_u32) {
            let m = Machine { per_node, ..machine() };
            let mut rank_of = vec![0; of.elements() as usize];
            for rank in 0..of.ranks {
                for k in 0..of.blocks {
                    let first = of.element(rank, k) as usize;
                    rank_of[first..first + of.run as usize].fill(rank);
                }
            }
            let (steps, rough) = (Steps::new(&of, &way).unwrap(), Steps::estimated(&of, &way).unwrap());
            let mut seen = vec![false; rank_of.len()];
            let (mut messages, mut bytes, mut requests) = (0, 0, 0);
            for step in 0..steps.count() {
                let mut packets: BTreeMap<(u32, u32), i64> = BTreeMap::new();
                let mut all = 0;
                for (owner, low, high) in steps.owned(step) {
                    requests += ((high - low) * 8 - 1) / way.most + 1;
                    all += (high - low) * 8;
                    for element in low as usize..high as usize {
                        prop_assert!(!core::mem::replace(&mut seen[element], true));
                        if rank_of[element] / per_node != owner / per_node {
                            *packets.entry((owner, rank_of[element])).or_default() += 8;
                        }
                    }
                }
                let loads = steps.loads(step, &m, write);
                prop_assert_eq!(packets.len() as i64, loads.messages);
                prop_assert_eq!(packets.values().sum::<i64>(), loads.bytes);
                prop_assert_eq!(all, rough.loads(step, &m, write).bytes);
                messages += loads.messages;
                bytes += loads.bytes;
            }
            prop_assert!(seen.iter().all(|seen| *seen));
            let outcome = in_steps(&of, &way, &m, write).unwrap();
            prop_assert_eq!((messages, bytes), (outcome.messages, outcome.message_bytes));
            prop_assert_eq!((requests, of.bytes()), (outcome.requests, outcome.bytes));
            prop_assert!(outcome.ns >= outcome.busiest_ns && outcome.ns >= outcome.exchange_ns);
        }

        /// Checks that reading ahead is not slower than sequential steps.
        ///
        /// Groups take turns as in the paper.
        #[test]
        fn who_reads_ahead_loses_nothing((of, way) in ways(), write in any::<bool>()) {
            // No seek times, because the order of requests would change later times.
            let m = Machine { seek_ns: 0, block_ns: 0, ..machine() };
            let way = Way { domains: Domains::InTurn, ..way };
            let [one, other] = [false, true].map(|ahead| in_steps(&of, &Way { ahead, ..way }, &m, write).unwrap());
            prop_assert!(other.ns <= one.ns);
            prop_assert_eq!((one.requests, one.messages), (other.requests, other.messages));
        }

        #[test]
        fn ranks_alone_make_a_request_for_each_block((of, way) in ways(), write in any::<bool>()) {
            let outcome = each_alone(&of, &machine(), way.most, write).unwrap();
            let each = (of.run * 8 - 1) / way.most + 1;
            prop_assert_eq!(i64::from(of.ranks) * of.blocks * each, outcome.requests);
            prop_assert_eq!((of.bytes(), of.bytes()), (outcome.bytes, outcome.useful));
        }
    }

    #[test]
    fn two_ranks_by_hand() {
        // Each rank has 4 of 8 elements, one in each pair; each owner has 4 consecutive elements,
        // two for each rank.
        let of = Scattered { ranks: 2, blocks: 4, run: 1, item: 8, spread: 2 };
        let way = Way {
            owners: 2,
            chunk: 32,
            groups: 1,
            domains: Domains::Asked,
            ahead: false,
            most: 64,
        };
        let m = Machine { servers: 1, seek_ns: 0, block_ns: 0, ..machine() };
        let outcome = in_steps(&of, &way, &m, false).unwrap();
        // A record of 8 words for each rank; queued requests; an agreement; 16 bytes each way,
        // copied when they are packed, unpacked or stay; an agreement at the end.
        let exchange = 2 * 50 + (16 + 16 + 16) + 16;
        assert_eq!((50 + 128) + (7 + 2 * 1_032) + 50 + exchange + 50, outcome.ns);
        assert_eq!(
            (2, 64, 2, 32),
            (outcome.requests, outcome.bytes, outcome.messages, outcome.message_bytes)
        );
        assert_eq!((exchange, 48), (outcome.exchange_ns, outcome.copy_ns));
        // Two groups, one after the other: the second is read while the first is sent, or after
        // that.
        let two = Way { groups: 2, domains: Domains::InTurn, ..way };
        let [after, ahead] = [false, true].map(|ahead| {
            let outcome = in_steps(&of, &Way { ahead, ..two }, &m, false).unwrap();
            outcome.ns
        });
        let step = 50 + (50 + (16 + 16) + 16);
        assert_eq!((50 + 128) + 2 * (7 + 1_032 + step) + 50, after);
        assert_eq!(after - step, ahead);
        // With `Asked`, both groups begin immediately: the server is never idle.
        let ours = Way { ahead: true, domains: Domains::Asked, ..two };
        assert_eq!(ahead - 7, in_steps(&of, &ours, &m, false).unwrap().ns);
    }

    #[test]
    fn a_hundred_thousand_ranks_take_no_memory_and_little_time() {
        let of = Scattered { ranks: 100_000, blocks: 1 << 21, run: 1, item: 8, spread: 100_000 };
        let m =
            Machine { servers: 274, stripe: 1 << 20, block: 1 << 16, per_node: 128, ..machine() };
        for domains in [Domains::Asked, Domains::InTurn] {
            let way =
                Way { owners: 548, chunk: 1 << 28, groups: 4, domains, ahead: true, most: 1 << 26 };
            let outcome = in_steps(&of, &way, &m, false).unwrap();
            assert_eq!((of.bytes(), of.bytes()), (outcome.bytes, outcome.useful));
            assert!(outcome.ns >= outcome.busiest_ns);
        }
        let few = Scattered { blocks: 1 << 10, ..of };
        let alone = each_alone(&few, &m, 1 << 20, false).unwrap();
        assert_eq!((100_000 << 10, few.bytes()), (alone.requests, alone.bytes));
    }

    #[test]
    fn ways_that_are_none_are_refused() {
        let of = Scattered { ranks: 2, blocks: 4, run: 1, item: 8, spread: 2 };
        let way = Way {
            owners: 2,
            chunk: 32,
            groups: 1,
            domains: Domains::Asked,
            ahead: false,
            most: 64,
        };
        for wrong in [
            Way { owners: 3, ..way },
            Way { owners: 0, ..way },
            Way { chunk: 0, ..way },
            Way { groups: 0, ..way },
        ] {
            assert!(in_steps(&of, &wrong, &machine(), false).is_err(), "{wrong:?}");
        }
        let many = Scattered { blocks: 1 << 40, ..of };
        assert!(in_steps(&many, &Way { chunk: 1, ..way }, &machine(), false).is_err());
    }
}
