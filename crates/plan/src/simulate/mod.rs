//! A modelled machine: what an access of P ranks would take on it, in virtual time, with no data moved.
//!
//! Problem. Whether two phases pay on 10^5 ranks, or on a machine of 1996, cannot be tried here.
//!
//! Idea. The plans are real ([`Collective`](crate::collective::Collective), and for ranks on their own
//! the runs of their sections); only the machine is a model, of few parts that are resources with a
//! queue each:
//!
//! | part          | model                                                                     |
//! |---------------|---------------------------------------------------------------------------|
//! | files         | assigned in stripes over the servers, one file after another                  |
//! | server        | first come, first served; a block comes from its disk once, then from memory |
//! | disk          | a block that follows one of the last ones costs less than one that does not |
//! | rank          | issues `depth` requests, waits for them, goes on                           |
//! | message       | costs both ends a latency; bytes pass the port of the node, one way each   |
//! | agreement     | a message for each doubling of ranks                                       |
//!
//! The clock runs from event to event. An event is a request, as long as there are at most [`EVENTS`] in
//! a round; then a *burst*, several of one rank in a row in one block; then a group of bursts, of which
//! one drawn by a fixed sequence is looked at (`queue`).
//!
//! Invariants. Integers only, nanoseconds: equal input gives equal times everywhere. The bytes that
//! servers move are those of the streams. Memory is O(accesses + servers), and a bit for each block.
//!
//! Cost. O(min(requests, EVENTS) log P) and, for messages, O(tiles (P or log P)) (`exchange`).

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

mod exchange;
mod queue;
mod rounds;
mod servers;
mod stream;
#[cfg(test)]
mod tests;

pub use queue::alone;
pub use rounds::together;
pub use stream::Stream;

use crate::collective::Job;
use crate::error::PlanError;

/// Requests beyond which several are one event.
pub const EVENTS: i64 = 1 << 22;

/// A machine: servers with disks, nodes with ranks, a network. Nanoseconds, bytes, bytes per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    /// Servers that files are striped over.
    pub servers: u32,
    /// Bytes of a stripe.
    pub stripe: i64,
    /// Bytes that a server reads and keeps at once; divides the stripe.
    pub block: i64,
    /// What any request costs a server.
    pub request_ns: i64,
    /// Rate of a server out of its memory.
    pub memory_rate: i64,
    /// What it costs to get a block from the disk.
    pub block_ns: i64,
    /// What it costs more if it follows none of the `streams` places where the disk was last.
    pub seek_ns: i64,
    /// How many sequential streams a disk follows without seeking.
    pub streams: u32,
    /// Rate of the disk of a server, reading.
    pub disk_rate: i64,
    /// Writing.
    pub write_rate: i64,
    /// What a request costs the rank that makes it.
    pub client_ns: i64,
    /// Read requests a rank has on their way.
    pub depth: u32,
    /// Write requests a rank has on their way: more, if servers take them before they are on disk.
    pub write_depth: u32,
    /// What a message costs the rank at either end.
    pub message_ns: i64,
    /// Rate of a node's port, each way.
    pub message_rate: i64,
    /// Rate of copies in memory.
    pub copy_rate: i64,
    /// Ranks of a node.
    pub per_node: u32,
    /// What a call costs before the first byte moves.
    pub call_ns: i64,
}

/// How ranks make requests out of sections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Manner {
    /// Gaps below so many bytes are read too.
    pub gap: i64,
    /// No request is longer.
    pub most: i64,
    /// The whole extent from first to last byte is read (written: read and rewritten).
    pub extent: bool,
    /// In a write, tiles of which less than one in so many elements is given are written piece by
    /// piece; 0: never.
    pub sparse: i64,
    /// By which tiles of which more is given are written piece by piece, or read, changed and written: what costs
    /// less. Without it the latter.
    pub price: Option<Price>,
    /// In a write, ranks on their own leave out what later ones give.
    pub leaves_out: bool,
    /// Slots of a rank: one is exchanged, into the others is read what comes. Two at least.
    pub slots: usize,
}

/// What plans assume of a disk, whatever the machine: nanoseconds of a request, bytes per second of one, and
/// of many at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Price {
    /// Nanoseconds.
    pub request_ns: i64,
    /// Bytes per second.
    pub device: i64,
    /// Bytes per second.
    pub stream: i64,
}

impl Price {
    /// Of requests.
    pub(crate) fn of(&self, stream: &Stream) -> i64 {
        let (requests, bytes) = (stream.requests(), stream.bytes());
        let each = requests.saturating_mul(self.request_ns);
        each.saturating_add(time(bytes, self.device)).max(time(bytes, self.stream))
    }
}

/// What an access takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outcome {
    /// When the last rank is done, in nanoseconds.
    pub ns: i64,
    /// Requests.
    pub requests: i64,
    /// Bytes that servers moved.
    pub bytes: i64,
    /// Bytes that ranks asked for, each as often as it was.
    pub useful: i64,
    /// Messages between ranks.
    pub messages: i64,
    /// Bytes in them.
    pub message_bytes: i64,
    /// Rounds; 0 for ranks on their own.
    pub rounds: i64,
    /// Nanoseconds in which everybody waited for requests, of all rounds.
    pub io_ns: i64,
    /// Nanoseconds that exchanges took, of all rounds.
    pub exchange_ns: i64,
    /// Work of the busiest server.
    pub busiest_ns: i64,
    /// Events looked at.
    pub events: i64,
}

impl Machine {
    /// Refuses what no machine is.
    ///
    /// # Errors
    /// Counts and rates below one, negative times, a block that does not divide the stripe.
    pub fn check(&self) -> Result<(), PlanError> {
        let rates = [self.memory_rate, self.disk_rate, self.write_rate, self.message_rate];
        let counts = [i64::from(self.servers), self.stripe, self.block, i64::from(self.depth)];
        let more = [self.copy_rate, i64::from(self.per_node), i64::from(self.write_depth)];
        let streams = i64::from(self.streams);
        let times = [self.request_ns, self.block_ns, self.seek_ns, self.client_ns, self.call_ns];
        let sane = rates.iter().chain(&counts).chain(&more).all(|n| *n >= 1)
            && times.iter().chain([&self.message_ns]).all(|n| (0..1 << 40).contains(n))
            && (1..=1 << 10).contains(&streams)
            && self.stripe % self.block.max(1) == 0;
        if sane {
            return Ok(());
        }
        Err(PlanError::BadMachine(format!("{self:?}")))
    }

    /// A synchronisation of all ranks.
    pub(crate) fn synchronisation(&self, ranks: u32) -> i64 {
        i64::from(u32::BITS - ranks.saturating_sub(1).leading_zeros()) * self.message_ns
    }

    /// What all ranks tell all others before they can plan: a call, and words of each rank.
    pub(crate) fn gathering(&self, ranks: u32, words: i64) -> i64 {
        let bytes = i64::from(ranks).saturating_mul(words).saturating_mul(8);
        let told = time(bytes, self.message_rate);
        self.call_ns.saturating_add(self.synchronisation(ranks)).saturating_add(told)
    }
}

/// Nanoseconds for bytes at a rate.
pub(crate) fn time(bytes: i64, rate: i64) -> i64 {
    match bytes.checked_mul(1_000_000_000) {
        Some(n) => n / rate,
        None => i64::try_from(i128::from(bytes) * 1_000_000_000 / i128::from(rate))
            .unwrap_or(i64::MAX >> 2),
    }
}

/// Bytes of the file of each array, in whole stripes, one after another: where each begins.
pub(crate) fn bases<'a>(
    jobs: impl Iterator<Item = &'a Job>,
    machine: &Machine,
) -> Result<Vec<i64>, PlanError> {
    let mut at = 0_i64;
    let mut bases = vec![];
    for job in jobs {
        bases.push(at);
        let bytes =
            job.descriptor.shape.iter().try_fold(job.descriptor.item, |n, len| n.checked_mul(*len));
        let stripes = bytes.map(|n| (n.max(1) - 1) / machine.stripe + 1);
        at = stripes
            .and_then(|n| n.checked_mul(machine.stripe))
            .and_then(|n| n.checked_add(at))
            .ok_or(PlanError::TooLarge("the files of a simulation"))?;
    }
    bases.push(at);
    Ok(bases)
}
