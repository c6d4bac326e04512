//! The rounds of a two-phase access on the clock, as `collective/rounds.py` runs them.
//!
//! Reading: the next rounds are read while what ranks want of this one goes to them; each round begins with
//! an agreement. Writing: what ranks give goes to the owners, who write it while the next round begins;
//! what nobody gives is read before.

use std::collections::VecDeque;

use super::exchange::{Exchanges, Loads, Needed};
use super::queue::{run, Counted, Work};
use super::servers::Servers;
use super::{bases, Machine, Manner, Outcome, Stream};
use crate::collective::{Collective, Job};
use crate::error::PlanError;

struct Clock<'a> {
    plan: &'a Collective,
    machine: &'a Machine,
    manner: &'a Manner,
    bases: Vec<i64>,
    servers: Servers<'a>,
    counted: Counted,
    outcome: Outcome,
}

/// The rounds of a plan.
///
/// # Errors
/// A machine that is none; files beyond 63 bits or 2^33 blocks.
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
    // Of each rank its name, its array's words, its sections: 2 + 3 numbers an axis.
    let words: usize = jobs.iter().map(|job| 8 + 3 * job.ground.shape.len()).sum();
    let begun = machine.gathering(ranks, words as i64);
    let exchanges = Exchanges::new(plan, ranks);
    let counted = Counted::default();
    let mut clock = Clock { plan, machine, manner, bases, servers, counted, outcome };
    let ended = if write {
        clock.write(&exchanges, ranks, begun)
    } else {
        clock.read(&exchanges, ranks, begun)
    };
    Ok(Outcome {
        ns: ended.saturating_add(machine.meeting(ranks)),
        requests: clock.counted.requests,
        bytes: clock.counted.bytes,
        busiest_ns: clock.servers.busiest(),
        events: clock.counted.events,
        ..clock.outcome
    })
}

impl Clock<'_> {
    fn read(&mut self, exchanges: &Exchanges<'_>, ranks: u32, begun: i64) -> i64 {
        let meeting = self.machine.meeting(ranks);
        // When the next rounds are read, and what is exchanged then.
        let mut coming = VecDeque::new();
        let mut started = 0;
        let mut start = |clock: &mut Clock<'_>, coming: &mut VecDeque<_>, at: i64| {
            let (needed, loads) = exchanges.round(started, false, clock.machine, clock.manner);
            coming.push_back((clock.run(clock.reads(&needed, at), at), loads));
            started += 1;
        };
        for _ in 0..self.manner.ahead.max(1) {
            start(self, &mut coming, begun);
        }
        let mut done = begun;
        for _ in 0..self.plan.rounds() {
            let Some((ready, loads)) = coming.pop_front() else { break };
            self.waited(ready - done);
            let met = ready.max(done).saturating_add(meeting);
            start(self, &mut coming, met);
            done = self.exchange(&loads, met);
        }
        done
    }

    fn write(&mut self, exchanges: &Exchanges<'_>, ranks: u32, begun: i64) -> i64 {
        let meeting = self.machine.meeting(ranks);
        // When the slots of this turn, and of the other, are free again.
        let (mut this, mut other) = (begun, begun);
        let (needed, mut loads) = exchanges.round(0, true, self.machine, self.manner);
        let mut prepared = self.run(self.holes(&needed, begun), begun);
        let mut writes = self.writes(&needed, 0);
        for k in 0..self.plan.rounds() {
            let met = prepared.max(this).saturating_add(meeting);
            let exchanged = self.exchange(&loads, met).saturating_add(meeting);
            let next = exchanges.round(k + 1, true, self.machine, self.manner);
            let before = self.holes(&next.0, exchanged);
            let count = writes.len();
            for work in &mut writes {
                work.start = exchanged;
            }
            // What is written now and what is read for the next round meet at the servers.
            writes.extend(before);
            let done = run(&mut self.servers, self.machine, &writes, &mut self.counted);
            let latest = |list: &[i64]| list.iter().copied().max().unwrap_or(exchanged);
            let written = latest(&done[..count]);
            prepared = latest(&done[count..]);
            self.waited(written.max(prepared) - exchanged);
            (this, other) = (other, written);
            writes = self.writes(&next.0, 0);
            loads = next.1;
        }
        this.max(other)
    }

    fn exchange(&mut self, loads: &Loads, at: i64) -> i64 {
        let ns = loads.ns(self.machine);
        self.outcome.exchange_ns = self.outcome.exchange_ns.saturating_add(ns);
        self.outcome.messages += loads.messages;
        self.outcome.message_bytes += loads.bytes;
        at.saturating_add(ns)
    }

    fn waited(&mut self, ns: i64) {
        self.outcome.io_ns = self.outcome.io_ns.saturating_add(ns.max(0));
    }

    /// When all of this is done.
    fn run(&mut self, work: Vec<Work>, at: i64) -> i64 {
        let done = run(&mut self.servers, self.machine, &work, &mut self.counted);
        done.into_iter().max().unwrap_or(at)
    }

    fn stream(&self, array: u32, section: &crate::section::Section) -> Option<Stream> {
        let job = self.plan.job(array)?;
        Some(Stream::new(&job.ground, section, self.bases[array as usize], self.manner))
    }

    fn reads(&self, needed: &[Needed], start: i64) -> Vec<Work> {
        let work = |n: &Needed| {
            Some(Work { start, streams: vec![(self.stream(n.array, &n.held)?, false)] })
        };
        needed.iter().filter_map(work).collect()
    }

    /// Whether a tile is read before it is written: something in its requests is not given.
    fn holes(&self, needed: &[Needed], start: i64) -> Vec<Work> {
        let work = |n: &Needed| {
            let stream = self.stream(n.array, &n.held)?;
            let item = self.plan.job(n.array)?.ground.item;
            let given = n.full && stream.bytes() <= n.held.count().ok()?.saturating_mul(item);
            (!given && n.pieces.is_empty()).then(|| Work { start, streams: vec![(stream, false)] })
        };
        needed.iter().filter_map(work).collect()
    }

    fn writes(&self, needed: &[Needed], start: i64) -> Vec<Work> {
        let work = |n: &Needed| {
            let whole = [n.held.clone()];
            let sections = if n.pieces.is_empty() { &whole[..] } else { &n.pieces };
            let streams = sections.iter().filter_map(|s| Some((self.stream(n.array, s)?, true)));
            Some(Work { start, streams: streams.collect() })
        };
        needed.iter().filter_map(work).collect()
    }
}
