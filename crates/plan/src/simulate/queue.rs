//! Ranks that make requests: the clock that runs from event to event.
//!
//! A heap holds when each piece of work can go on; the earliest issues its next `depth` requests, and can go
//! on when the last of them is served; what it reads and what it writes wait for each other. Ties go to what was
//! there first, so runs repeat exactly. Work that begins later comes between what is under way: the clock runs
//! no further than to what a rank waits for.
//!
//! Bursts. Where requests are too many, some that follow each other in one block are one event, as if
//! the server took them one after another. Groups. Where bursts are too many, a rank's requests are taken
//! in groups of equal length, and one burst of each stands for it. Which one is drawn from the group's number alone: drawn evenly, so that
//! servers get their share, and alike for ranks that walk alike, so that these meet the same blocks.

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

/// Requests that are made one after another; whether they write.
pub(super) type Work = Vec<(Stream, bool)>;

/// Work of one rank side by side, and more that begins when all of it has ended.
#[derive(Default)]
pub(super) struct Chain {
    pub first: Vec<Work>,
    pub then: Vec<Work>,
}

/// What was counted.
#[derive(Default)]
pub(super) struct Counted {
    pub requests: i64,
    pub bytes: i64,
    pub events: i64,
}

/// Servers, and the work that is under way.
pub(super) struct Queue<'a> {
    pub servers: Servers<'a>,
    pub counted: Counted,
    machine: &'a Machine,
    heap: BinaryHeap<Reverse<(i64, u64)>>,
    /// By number, the first of which is `gone`; none that is done.
    tasks: VecDeque<Option<Task>>,
    gone: u64,
    /// Of chains that have more: how much of the first is left, and the more. Numbered likewise.
    chains: VecDeque<Option<(usize, Vec<Work>)>>,
    gone_chains: u64,
    /// Of each turn: how much is under way, and when the last of it was done.
    turns: Vec<(usize, i64)>,
}

struct Task {
    work: Work,
    /// Number of the stream, and of its request.
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

    /// Begins work at a time, which is not before what anybody waited for; it is a part of a turn.
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

    /// Runs the clock until all of a turn is done; tells when that was.
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

    /// Issues the next requests of a task; tells when they are served, if there were any.
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

    /// A task has ended: its chain may go on.
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

/// How many requests a burst has at most, how many bursts a group.
#[derive(Clone, Copy)]
struct Lumps {
    burst: i64,
    group: i64,
}

/// The burst that stands for the requests from `at` on, and how many these are.
fn next(stream: &Stream, at: i64, lumps: Lumps, block: i64) -> (Burst, i64) {
    let left = stream.requests() - at;
    if lumps.group == 1 {
        let (offset, len) = stream.request(at);
        let count = stream.burst(at, offset, block).min(lumps.burst);
        return (Burst { offset, len, count }, count);
    }
    let group = stream.usual_burst(block).saturating_mul(lumps.group).min(left).max(1);
    // Well mixed bits of the group's place.
    let drawn = at + (mixed(at as u64) % group as u64) as i64;
    let (offset, len) = stream.request(drawn);
    let count = stream.burst(drawn, offset, block).min(group - (drawn - at));
    (Burst { offset, len, count }, group)
}

/// Which sections ranks access on their own: of a write without what later ones give, as far as that can be said.
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

/// Every rank on its own.
///
/// # Errors
/// A machine that is none; files beyond 63 bits or 2^33 blocks.
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
                let text = format!("an access of rank {} of {ranks}", access.rank);
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
