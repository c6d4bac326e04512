//! Simulation of the rounds of a two-phase access, as run by `collective/rounds.py`.
//!
//! Reading: the next rounds are read while the elements of the current round are sent to the ranks;
//! each round begins with an agreement. Writing: the ranks send their elements to the owners, which
//! write them while the next rounds begin. Holes are read as soon as their slot is free: at the
//! beginning, or when the previous contents of the slot are written.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

use super::exchange::{Exchanges, Loads, Needed};
use super::machine::{bases, Machine, Manner, Outcome};
use super::queue::{Chain, Queue, Work};
use super::servers::Servers;
use super::stream::Stream;
use crate::collective::{Collective, Job};
use crate::error::PlanError;

struct Clock<'a> {
    plan: &'a Collective,
    machine: &'a Machine,
    manner: &'a Manner,
    bases: Vec<i64>,
    /// A turn for each slot.
    queue: Queue<'a>,
    outcome: Outcome,
}

/// Simulates the rounds of a plan.
///
/// # Errors
/// Fails for an invalid machine, and for files beyond 63 bits or 2^33 blocks.
pub fn together(
    plan: &Collective,
    ranks: u32,
    machine: &Machine,
    manner: &Manner,
    write: bool,
) -> Result<Outcome, PlanError> {
    machine.check()?;
    let jobs: Vec<&Job> = (0..plan.arrays() as u32).filter_map(|k| plan.job(k)).collect();
    let bases = bases(jobs.iter().copied(), machine)?;
    let servers = Servers::new(machine, bases.last().copied().unwrap_or(0))?;
    let outcome =
        Outcome { rounds: plan.rounds(), useful: plan.wanted_bytes(), ..Outcome::default() };
    // The record of each rank: its name, its array's words, its sections: 2 + 3 numbers per axis.
    let words: usize = jobs.iter().map(|job| 8 + 3 * job.descriptor.shape.len()).sum();
    let begun = machine.gathering(ranks, words as i64);
    let exchanges = Exchanges::new(plan, ranks);
    // At least two: one is exchanged while another is read.
    let queue = Queue::new(machine, servers, manner.slots.max(2));
    let mut clock = Clock { plan, machine, manner, bases, queue, outcome };
    let ended = if write {
        clock.write(&exchanges, ranks, begun)
    } else {
        clock.read(&exchanges, ranks, begun)
    };
    Ok(Outcome {
        ns: ended.saturating_add(machine.synchronisation(ranks)),
        requests: clock.queue.counted.requests,
        bytes: clock.queue.counted.bytes,
        busiest_ns: clock.queue.servers.busiest(),
        events: clock.queue.counted.events,
        ..clock.outcome
    })
}

impl Clock<'_> {
    fn slots(&self) -> usize {
        self.manner.slots.max(2)
    }

    fn read(&mut self, exchanges: &Exchanges<'_>, ranks: u32, begun: i64) -> i64 {
        let (synchronisation, slots) = (self.machine.synchronisation(ranks), self.slots());
        let mut coming = VecDeque::new();
        let start = |clock: &mut Self, coming: &mut VecDeque<_>, k: usize, at: i64| {
            let (needed, loads) = exchanges.round(k as i64, false, clock.machine, clock.manner);
            let reads = needed.iter().filter_map(|n| clock.whole(n, false));
            let chains = reads.map(|work| Chain { first: vec![work], then: vec![] }).collect();
            clock.queue.begin(k % slots, at, chains);
            coming.push_back(loads);
        };
        for k in 0..slots - 1 {
            start(self, &mut coming, k, begun);
        }
        let mut done = begun;
        for k in 0..self.plan.rounds() as usize {
            let Some(loads) = coming.pop_front() else { break };
            let ready = self.queue.wait(k % slots);
            self.waited(ready - done);
            let synchronised = ready.max(done).saturating_add(synchronisation);
            start(self, &mut coming, k + slots - 1, synchronised);
            done = self.exchange(&loads, synchronised);
        }
        done
    }

    fn write(&mut self, exchanges: &Exchanges<'_>, ranks: u32, begun: i64) -> i64 {
        let (synchronisation, slots) = (self.machine.synchronisation(ranks), self.slots());
        // Tasks of owners and loads of the next rounds.
        let mut coming: VecDeque<(Vec<Needed>, Loads)> = VecDeque::new();
        for k in 0..slots {
            let next = exchanges.round(k as i64, true, self.machine, self.manner);
            let reads = self.chains(&[], &next.0);
            self.queue.begin(k, begun, reads);
            coming.push_back(next);
        }
        let mut done = begun;
        for k in 0..self.plan.rounds() as usize {
            let Some((needed, loads)) = coming.pop_front() else { break };
            let ready = self.queue.wait(k % slots);
            self.waited(ready - done);
            let synchronised = ready.max(done).saturating_add(synchronisation);
            done = self.exchange(&loads, synchronised).saturating_add(synchronisation);
            let next = exchanges.round((k + slots) as i64, true, self.machine, self.manner);
            let both = self.chains(&needed, &next.0);
            self.queue.begin(k % slots, done, both);
            coming.push_back(next);
        }
        let ended = (0..slots).map(|turn| self.queue.wait(turn)).max().unwrap_or(done);
        self.waited(ended - done);
        done.max(ended)
    }

    fn exchange(&mut self, loads: &Loads, at: i64) -> i64 {
        let ns = loads.ns(self.machine);
        self.outcome.exchange_ns = self.outcome.exchange_ns.saturating_add(ns);
        self.outcome.copy_ns = self.outcome.copy_ns.saturating_add(loads.copies(self.machine));
        self.outcome.messages += loads.messages;
        self.outcome.message_bytes += loads.bytes;
        at.saturating_add(ns)
    }

    fn waited(&mut self, ns: i64) {
        self.outcome.io_ns = self.outcome.io_ns.saturating_add(ns.max(0));
    }

    fn stream(&self, array: u32, section: &crate::section::Section) -> Option<Stream> {
        let job = self.plan.job(array)?;
        Some(Stream::new(&job.descriptor, section, self.bases[array as usize], self.manner))
    }

    /// Transfer of a tile in one piece.
    fn whole(&self, n: &Needed, write: bool) -> Option<Work> {
        Some(vec![(self.stream(n.array, &n.held)?, write)])
    }

    /// The work of each owner on a slot.
    ///
    /// The owner writes the current contents, then reads the holes of the next ones.
    fn chains(&self, now: &[Needed], next: &[Needed]) -> Vec<Chain> {
        let mut chains: BTreeMap<u32, Chain> = BTreeMap::new();
        for n in now {
            if let Some(work) = self.writes(n) {
                chains.entry(n.owner).or_default().first.push(work);
            }
        }
        for n in next {
            if let Some(work) = self.holes(n) {
                chains.entry(n.owner).or_default().then.push(work);
            }
        }
        chains.into_values().collect()
    }

    /// Reads of a tile before it is written: the parts with elements that the ranks do not write.
    fn holes(&self, n: &Needed) -> Option<Work> {
        let stream = self.stream(n.array, &n.held)?;
        let item = self.plan.job(n.array)?.descriptor.item;
        let given = n.full && stream.bytes() <= n.held.count().ok()?.saturating_mul(item);
        (!given && n.pieces.is_empty()).then(|| vec![(stream, false)])
    }

    fn writes(&self, n: &Needed) -> Option<Work> {
        if n.pieces.is_empty() {
            return self.whole(n, true);
        }
        n.pieces.iter().map(|piece| Some((self.stream(n.array, piece)?, true))).collect()
    }
}
