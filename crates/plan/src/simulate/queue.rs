//! Ranks that make requests: the clock that runs from event to event.
//!
//! A heap holds when each rank can go on; the earliest issues its next `depth` requests, and can go on
//! when the last of them is served. Ties go to the lower number, so runs repeat exactly.
//!
//! Bursts. Where requests are too many, some that follow each other in one block are one event, as if
//! the server took them one after another. Groups. Where bursts are too many, a rank's requests are taken
//! in groups of equal length, and one burst of each stands for it. Which one is drawn from the group's number alone: drawn evenly, so that
//! servers get their share, and alike for ranks that walk alike, so that these meet the same blocks.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::servers::{Burst, Servers, Weight};
use super::{bases, Machine, Manner, Outcome, Stream, EVENTS};
use crate::collective::Job;
use crate::error::PlanError;

/// Requests that one rank makes, one after another, from a time on.
pub(super) struct Work {
    pub start: i64,
    pub streams: Vec<(Stream, bool)>,
}

/// What [`run`] counted.
#[derive(Default)]
pub(super) struct Counted {
    pub requests: i64,
    pub bytes: i64,
    pub events: i64,
}

/// Runs all work; returns when each is done.
pub(super) fn run(
    servers: &mut Servers<'_>,
    machine: &Machine,
    work: &[Work],
    counted: &mut Counted,
) -> Vec<i64> {
    let streams = || work.iter().flat_map(|work| &work.streams);
    let bursts = streams().fold(0_i64, |n, (s, _)| n.saturating_add(s.bursts(machine.block)));
    let requests = streams().fold(0_i64, |n, (s, _)| n.saturating_add(s.requests()));
    let lumps = Lumps { burst: requests / EVENTS + 1, group: bursts / EVENTS + 1 };
    for (stream, _) in streams() {
        counted.requests = counted.requests.saturating_add(stream.requests());
        counted.bytes = counted.bytes.saturating_add(stream.bytes());
    }
    let mut done: Vec<i64> = work.iter().map(|work| work.start).collect();
    // Number of the stream, and of its request.
    let mut places = vec![(0_usize, 0_i64); work.len()];
    let mut heap: BinaryHeap<Reverse<(i64, usize)>> =
        work.iter().enumerate().map(|(k, work)| Reverse((work.start, k))).collect();
    while let Some(Reverse((now, who))) = heap.pop() {
        let (mut stream, mut at) = places[who];
        let (mut issued, mut finished) = (now, now);
        let mut sent = 0;
        loop {
            let list = &work[who].streams;
            while list.get(stream).is_some_and(|(s, _)| at >= s.requests()) {
                (stream, at) = (stream + 1, 0);
            }
            let Some((requests, write)) = list.get(stream) else { break };
            let most = if *write { machine.write_depth } else { machine.depth };
            if sent >= most {
                break;
            }
            sent += 1;
            let (burst, all) = next(requests, at, lumps, machine.block);
            issued = issued.saturating_add(machine.client_ns.saturating_mul(all));
            let weight = Weight { seen: burst.count, all };
            finished = finished.max(servers.serve(issued, burst, weight, *write));
            counted.events += 1;
            at += all;
        }
        places[who] = (stream, at);
        done[who] = finished;
        if sent > 0 {
            heap.push(Reverse((finished, who)));
        }
    }
    done
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
    // Well mixed bits of the group's place (the finalizer of SplitMix64).
    let mut z = (at as u64).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    let drawn = at + ((z ^ (z >> 31)) % group as u64) as i64;
    let (offset, len) = stream.request(drawn);
    let count = stream.burst(drawn, offset, block).min(group - (drawn - at));
    (Burst { offset, len, count }, group)
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
    let mut servers = Servers::new(machine, bases[jobs.len()])?;
    let mut work: Vec<Work> =
        (0..ranks).map(|_| Work { start: machine.call_ns, streams: vec![] }).collect();
    let mut useful = 0_i64;
    for (job, base) in jobs.iter().zip(&bases) {
        for access in &job.accesses {
            access.section.within(&job.ground.shape)?;
            let Some(mine) = work.get_mut(access.rank as usize) else {
                let text = format!("an access of rank {} of {ranks}", access.rank);
                return Err(PlanError::BadLayout(text));
            };
            let stream = Stream::new(&job.ground, &access.section, *base, manner);
            let own = access.section.count()?.saturating_mul(job.ground.item);
            useful = useful.saturating_add(own);
            if write && stream.bytes() > own {
                mine.streams.push((stream.clone(), false));
            }
            mine.streams.push((stream, write));
        }
    }
    let mut counted = Counted::default();
    let done = run(&mut servers, machine, &work, &mut counted);
    let ns = done.into_iter().max().unwrap_or(0);
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
