//! Servers: a queue each, a disk, and a memory of blocks that were read once.
//!
//! First come, first served, and requests are given in the order in which they come; so a queue is
//! one number, the time at which the server is free.

use alloc::vec;
use alloc::vec::Vec;

use super::machine::{time, Machine};
use crate::error::PlanError;

/// One in so many requests was looked at: `all` requests stand behind `seen` of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Weight {
    pub seen: i64,
    pub all: i64,
}

pub(super) struct Servers<'a> {
    machine: &'a Machine,
    free: Vec<i64>,
    busy: Vec<i64>,
    /// The blocks that each disk could go on with, the latest first.
    next: Vec<i64>,
    /// Blocks in memory, a bit each.
    kept: Vec<u64>,
    per_stripe: i64,
}

/// Requests in a row: where the first begins, bytes of each, how many (more than one in one block only).
#[derive(Debug, Clone, Copy)]
pub(super) struct Burst {
    pub offset: i64,
    pub len: i64,
    pub count: i64,
}

impl<'a> Servers<'a> {
    /// For files of so many bytes in all.
    pub fn new(machine: &'a Machine, bytes: i64) -> Result<Servers<'a>, PlanError> {
        const MOST: i64 = 1 << 33;
        let blocks = bytes / machine.block + 1;
        if blocks > MOST {
            return Err(PlanError::TooLarge("the number of blocks of a simulation"));
        }
        let count = machine.servers as usize;
        Ok(Servers {
            machine,
            free: vec![0; count],
            busy: vec![0; count],
            next: vec![-1; count * machine.streams as usize],
            kept: vec![0; (blocks / 64 + 1) as usize],
            per_stripe: machine.stripe / machine.block,
        })
    }

    /// Work of the busiest.
    pub fn busiest(&self) -> i64 {
        self.busy.iter().copied().max().unwrap_or(0)
    }

    /// Serves requests that come at a time; returns when the last is done.
    pub fn serve(&mut self, at: i64, burst: Burst, weight: Weight, write: bool) -> i64 {
        let end = burst.offset + burst.len;
        let (mut from, mut done) = (burst.offset, at);
        while from < end {
            let stripe = from / self.machine.stripe;
            let to = end.min((stripe + 1) * self.machine.stripe);
            let server = (stripe % i64::from(self.machine.servers)) as usize;
            let cost = if write {
                self.written(server, from, to, burst.count)
            } else {
                self.read(server, from, to, burst.count)
            };
            let cost = if weight.seen == weight.all {
                cost
            } else {
                i64::try_from(i128::from(cost) * i128::from(weight.all) / i128::from(weight.seen))
                    .unwrap_or(i64::MAX >> 8)
            };
            // A clock that cannot show so much stands still at its end.
            let finished = self.free[server].max(at).saturating_add(cost);
            self.free[server] = finished;
            self.busy[server] = self.busy[server].saturating_add(cost);
            done = done.max(finished);
            from = to;
        }
        done
    }

    fn read(&mut self, server: usize, from: i64, to: i64, count: i64) -> i64 {
        let m = self.machine;
        let (first, last) = (from / m.block, (to - 1) / m.block);
        let (mut missed, mut missed_bytes) = (0, 0);
        for block in first..=last {
            let (word, bit) = ((block / 64) as usize, 1_u64 << (block % 64));
            if self.kept[word] & bit == 0 {
                self.kept[word] |= bit;
                missed += 1;
                missed_bytes += to.min((block + 1) * m.block) - from.max(block * m.block);
            }
        }
        let bytes = (to - from) * count;
        let memory = time(bytes - missed_bytes, m.memory_rate);
        let mut cost = m.request_ns.saturating_mul(count).saturating_add(memory);
        if missed > 0 {
            let seek = if self.goes_on(server, first, last) { 0 } else { m.seek_ns };
            let disk = time(missed_bytes, m.disk_rate).saturating_add(seek);
            cost = cost.saturating_add(m.block_ns.saturating_mul(missed)).saturating_add(disk);
        }
        cost
    }

    /// Blocks that are written are in memory from then on.
    fn written(&mut self, server: usize, from: i64, to: i64, count: i64) -> i64 {
        let m = self.machine;
        let (first, last) = (from / m.block, (to - 1) / m.block);
        for block in first..=last {
            self.kept[(block / 64) as usize] |= 1_u64 << (block % 64);
        }
        let seek = match m.write_seek_ns {
            0 => 0,
            _ if self.goes_on(server, first, last) => 0,
            seek => seek,
        };
        let cost = m.request_ns.saturating_mul(count).saturating_add(seek);
        cost.saturating_add(time((to - from) * count, m.write_rate))
    }

    /// Whether a disk continues a stream; where that stream, or a new one, is now.
    fn goes_on(&mut self, server: usize, first: i64, last: i64) -> bool {
        let ends = (last + 1) % self.per_stripe == 0;
        let others = i64::from(self.machine.servers) - 1;
        let streams = self.machine.streams as usize;
        let places = &mut self.next[server * streams..(server + 1) * streams];
        let known = places.iter().position(|place| *place == first);
        places[..=known.unwrap_or(streams - 1)].rotate_right(1);
        places[0] = last + 1 + if ends { others * self.per_stripe } else { 0 };
        known.is_some()
    }
}
