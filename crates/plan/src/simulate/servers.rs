//! Servers: each has a queue, a disk, and a memory of blocks that were read once.
//!
//! Requests are served first come, first served, and are passed in the order of arrival. A queue is
//! therefore one number, the time at which the server is free.

use alloc::vec;
use alloc::vec::Vec;

use super::machine::{time, Machine};
use crate::error::PlanError;

/// Weight of an event: `seen` requests represent `all` requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Weight {
    pub seen: i64,
    pub all: i64,
}

pub(super) struct Servers<'a> {
    machine: &'a Machine,
    free: Vec<i64>,
    busy: Vec<i64>,
    /// The blocks at which each disk can continue a stream, the latest first.
    next: Vec<i64>,
    /// Blocks in memory, one bit each.
    kept: Vec<u64>,
    per_stripe: i64,
}

/// Consecutive requests: offset of the first, bytes of each, number.
///
/// There is more than one only within one block.
#[derive(Debug, Clone, Copy)]
pub(super) struct Burst {
    pub offset: i64,
    pub len: i64,
    pub count: i64,
}

impl<'a> Servers<'a> {
    /// Servers for files of `bytes` bytes in total.
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

    /// Busy time of the busiest server.
    pub fn busiest(&self) -> i64 {
        self.busy.iter().copied().max().unwrap_or(0)
    }

    /// Serves requests that arrive at time `at`; returns the time at which the last one is done.
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
            // The clock saturates at its maximum.
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

    /// Cost of a write; the written blocks are in memory afterwards.
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

    /// Returns whether a disk continues a stream.
    ///
    /// It records the new place of that stream, or of a new one.
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
