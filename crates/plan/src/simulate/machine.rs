//! The machine as figures, how ranks use it, and what comes of it.

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

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
    /// What a write costs more that follows none of those places; 0 where servers put writes in order first.
    pub write_seek_ns: i64,
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
    /// Of these: copies in memory of the rank that copies most.
    pub copy_ns: i64,
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
        let later = [self.message_ns, self.write_seek_ns];
        let sane = rates.iter().chain(&counts).chain(&more).all(|n| *n >= 1)
            && times.iter().chain(&later).all(|n| (0..1 << 40).contains(n))
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
