//! Requests of ranks: the clock that advances from event to event.
//!
//! A heap holds the time at which each piece of work can continue. The earliest issues its next
//! `depth` requests, and can continue when the last of them is served; reads and writes of one
//! piece of work wait for each other. Ties go to the work that began first, so runs repeat exactly.
//! Work that begins later is interleaved with work in progress: the clock advances only as far as a
//! rank waits.
//!
//! Bursts: if there are too many requests, several consecutive ones in one block are one event, as
//! if the server served them one after another. Groups: if there are too many bursts, a rank's
//! requests are divided into groups of equal length, and one burst represents each group. It is
//! drawn from the group's number alone: uniformly, so that servers get their share, and equally for
//! ranks with equal access patterns, so that these access the same blocks.

use alloc::collections::{BinaryHeap, VecDeque};
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::machine::{bases, Machine, Manner, Outcome, EVENTS};
use super::scattered::mixed;
use super::servers::{Burst, Servers, Weight};
use super::stream::Stream;
use crate::collective::{leave_out, regions, Job, Left};
use crate::error::PlanError;
use crate::section::Section;

/// Requests that are made one after another; true if they write.
pub(super) type Work = Vec<(Stream, bool)>;

/// Concurrent work of one rank, and further work that begins when all of it has ended.
#[derive(Default)]
pub(super) struct Chain {
    pub first: Vec<Work>,
    pub then: Vec<Work>,
}

/// Counted requests, bytes and events.
#[derive(Default)]
pub(super) struct Counted {
    pub requests: i64,
    pub bytes: i64,
    pub events: i64,
}

/// Servers, and the work in progress.
pub(super) struct Queue<'a> {
    pub servers: Servers<'a>,
    pub counted: Counted,
    machine: &'a Machine,
    heap: BinaryHeap<Reverse<(i64, u64)>>,
    /// Tasks by number, beginning with number `gone`; None for finished tasks.
    tasks: VecDeque<Option<Task>>,
    gone: u64,
    /// For chains with further work: the number of unfinished first tasks, and the further work.
    ///
    /// Chains are numbered in the same way as tasks.
    chains: VecDeque<Option<(usize, Vec<Work>)>>,
    gone_chains: u64,
    /// For each turn: the number of unfinished tasks, and the time at which the last one ended.
    turns: Vec<(usize, i64)>,
}

struct Task {
    work: Work,
    /// Number of the current stream, and of its next request.
    place: (usize, i64),
    lumps: Lumps,
    turn: usize,
    chain: Option<u64>,
}

impl<'a> Queue<'a> {
    pub fn new(machine: &'a Machine, servers: Servers<'a>, turns: usize) -> Queue<'a> {
        Queue {
            servers,
            counted: Counted::default(),
            machine,
            heap: BinaryHeap::new(),
            tasks: VecDeque::new(),
            gone: 0,
            chains: VecDeque::new(),
            gone_chains: 0,
            turns: vec![(0, 0); turns],
        }
    }

    /// Begins work of a turn at a time not before the end of earlier waits.
    pub fn begin(&mut self, turn: usize, at: i64, chains: Vec<Chain>) {
        self.turns[turn].1 = self.turns[turn].1.max(at);
        let all =
            || chains.iter().flat_map(|chain| [&chain.first, &chain.then]).flatten().flatten();
        let block = self.machine.block;
        let bursts = all().fold(0_i64, |n, (s, _)| n.saturating_add(s.bursts(block)));
        let requests = all().fold(0_i64, |n, (s, _)| n.saturating_add(s.requests()));
        let bytes = all().fold(0_i64, |n, (s, _)| n.saturating_add(s.bytes()));
        self.counted.requests = self.counted.requests.saturating_add(requests);
        self.counted.bytes = self.counted.bytes.saturating_add(bytes);
        let lumps = Lumps { burst: requests / EVENTS + 1, group: bursts / EVENTS + 1 };
        for Chain { first, then } in chains {
            let (first, then) = if first.is_empty() { (then, first) } else { (first, then) };
            let chain = (!then.is_empty()).then_some(self.gone_chains + self.chains.len() as u64);
            if chain.is_some() {
                self.chains.push_back(Some((first.len(), then)));
            }
            for work in first {
                self.task(Task { work, place: (0, 0), lumps, turn, chain }, at);
            }
        }
    }

    fn task(&mut self, task: Task, at: i64) {
        self.turns[task.turn].0 += 1;
        self.heap.push(Reverse((at, self.gone + self.tasks.len() as u64)));
        self.tasks.push_back(Some(task));
    }

    /// Advances the clock until all work of a turn is finished; returns that time.
    pub fn wait(&mut self, turn: usize) -> i64 {
        while self.turns[turn].0 > 0 {
            let Some(Reverse((now, number))) = self.heap.pop() else { break };
            if let Some(finished) = self.go_on(now, number) {
                self.heap.push(Reverse((finished, number)));
            } else {
                self.ended(now, number);
            }
        }
        self.turns[turn].1
    }

    /// Issues the next requests of a task.
    ///
    /// Returns the time at which they are served, or None if there are no more.
    fn go_on(&mut self, now: i64, number: u64) -> Option<i64> {
        let task = self.tasks.get_mut((number - self.gone) as usize)?.as_mut()?;
        let (mut stream, mut at) = task.place;
        let (mut issued, mut finished) = (now, now);
        let (mut sent, mut writes) = (0, None);
        loop {
            while task.work.get(stream).is_some_and(|(s, _)| at >= s.requests()) {
                (stream, at) = (stream + 1, 0);
            }
            let Some((requests, write)) = task.work.get(stream) else { break };
            let most = if *write { self.machine.write_depth } else { self.machine.depth };
            if sent >= most || writes.is_some_and(|before| before != *write) {
                break;
            }
            (sent, writes) = (sent + 1, Some(*write));
            let (burst, all) = next(requests, at, task.lumps, self.machine.block);
            issued = issued.saturating_add(self.machine.client_ns.saturating_mul(all));
            let weight = Weight { seen: burst.count, all };
            finished = finished.max(self.servers.serve(issued, burst, weight, *write));
            self.counted.events += 1;
            at += all;
        }
        task.place = (stream, at);
        (sent > 0).then_some(finished)
    }

    /// Ends a task and starts the further work of its chain, if it was the last one.
    fn ended(&mut self, now: i64, number: u64) {
        let found = self.tasks.get_mut((number - self.gone) as usize).and_then(Option::take);
        let Some(task) = found else { return };
        while self.tasks.front().is_some_and(Option::is_none) {
            self.tasks.pop_front();
            self.gone += 1;
        }
        if let Some(chain) = task.chain {
            let place = (chain - self.gone_chains) as usize;
            let left = self.chains.get_mut(place).and_then(Option::as_mut).map(|chain| {
                chain.0 -= 1;
                chain.0
            });
            if left == Some(0) {
                let then = self.chains[place].take().map(|chain| chain.1);
                for work in then.into_iter().flatten() {
                    self.task(Task { work, place: (0, 0), chain: None, ..task }, now);
                }
                while self.chains.front().is_some_and(Option::is_none) {
                    self.chains.pop_front();
                    self.gone_chains += 1;
                }
            }
        }
        let turn = &mut self.turns[task.turn];
        *turn = (turn.0 - 1, turn.1.max(now));
    }
}

/// Maximum number of requests of a burst, and of bursts of a group.
#[derive(Clone, Copy)]
struct Lumps {
    burst: i64,
    group: i64,
}

/// The burst that represents the requests from `at` on, and their number.
fn next(stream: &Stream, at: i64, lumps: Lumps, block: i64) -> (Burst, i64) {
    let left = stream.requests() - at;
    if lumps.group == 1 {
        let (offset, len) = stream.request(at);
        let count = stream.burst(at, offset, block).min(lumps.burst);
        return (Burst { offset, len, count }, count);
    }
    let group = stream.usual_burst(block).saturating_mul(lumps.group).min(left).max(1);
    // Pseudo-random position within the group.
    let drawn = at + (mixed(at as u64) % group as u64) as i64;
    let (offset, len) = stream.request(drawn);
    let count = stream.burst(drawn, offset, block).min(group - (drawn - at));
    (Burst { offset, len, count }, group)
}

/// Sections that ranks access independently.
///
/// In a write, the elements that later accesses write are excluded, if they can be determined.
fn made(job: &Job, manner: &Manner, write: bool) -> Vec<(u32, Section)> {
    let all = || job.accesses.iter().map(|a| (a.rank, a.section.clone())).collect();
    if !write || !manner.leaves_out {
        return all();
    }
    let regions = regions(&job.descriptor, &job.accesses, manner.gap);
    match leave_out(&job.descriptor, &job.accesses, &regions) {
        Left::Parts(parts) => {
            let part = |(k, section): (u32, _)| (job.accesses[k as usize].rank, section);
            parts.into_iter().map(part).collect()
        }
        Left::All | Left::Entangled | Left::Unknown => all(),
    }
}

/// Every rank independently.
///
/// # Errors
/// Fails for an invalid machine, and for files beyond 63 bits or 2^33 blocks.
pub fn alone(
    jobs: &[Job],
    ranks: u32,
    machine: &Machine,
    manner: &Manner,
    write: bool,
) -> Result<Outcome, PlanError> {
    machine.check()?;
    let bases = bases(jobs.iter(), machine)?;
    let servers = Servers::new(machine, bases[jobs.len()])?;
    let mut work: Vec<Work> = vec![vec![]; ranks as usize];
    let mut useful = 0_i64;
    for (job, base) in jobs.iter().zip(&bases) {
        for access in &job.accesses {
            access.section.within(&job.descriptor.shape)?;
            if access.rank >= ranks {
                let text =
                    format!("an access is of rank {}, but there are {ranks} ranks", access.rank);
                return Err(PlanError::BadLayout(text));
            }
            let own = access.section.count()?.saturating_mul(job.descriptor.item);
            useful = useful.saturating_add(own);
        }
        for (rank, section) in &made(job, manner, write) {
            let Some(mine) = work.get_mut(*rank as usize) else { continue };
            let stream = Stream::new(&job.descriptor, section, *base, manner);
            let own = section.count()?.saturating_mul(job.descriptor.item);
            if write && stream.bytes() > own {
                mine.push((stream.clone(), false));
            }
            mine.push((stream, write));
        }
    }
    let mut queue = Queue::new(machine, servers, 1);
    let chain = |work| Chain { first: vec![work], then: vec![] };
    queue.begin(0, machine.call_ns, work.into_iter().map(chain).collect());
    let ns = if ranks == 0 { 0 } else { queue.wait(0) };
    let Queue { servers, counted, .. } = queue;
    Ok(Outcome {
        ns,
        requests: counted.requests,
        bytes: counted.bytes,
        useful,
        io_ns: ns - machine.call_ns,
        busiest_ns: servers.busiest(),
        events: counted.events,
        ..Outcome::default()
    })
}
