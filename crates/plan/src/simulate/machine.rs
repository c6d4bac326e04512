//! The parameters of a machine, the parameters of accesses, and the results.

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use crate::collective::Job;
use crate::error::PlanError;

/// Number of requests above which several are one event.
pub const EVENTS: i64 = 1 << 22;

/// A machine: servers with disks, nodes with ranks, a network. Nanoseconds, bytes, bytes per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    /// Servers that files are striped over.
    pub servers: u32,
    /// Bytes of a stripe.
    pub stripe: i64,
    /// Bytes that a server reads and caches as one unit; divides the stripe.
    pub block: i64,
    /// Time of a server per request.
    pub request_ns: i64,
    /// Rate of a server from its memory.
    pub memory_rate: i64,
    /// Time to get a block from the disk.
    pub block_ns: i64,
    /// Additional time if the block continues none of the last `streams` places of the disk.
    pub seek_ns: i64,
    /// Number of sequential streams that a disk follows without seeking.
    pub streams: u32,
    /// Read rate of a server's disk.
    pub disk_rate: i64,
    /// Write rate of a server's disk.
    pub write_rate: i64,
    /// Additional time of a write that continues none of those places.
    ///
    /// 0 if servers sort writes first.
    pub write_seek_ns: i64,
    /// Time of a rank per request.
    pub client_ns: i64,
    /// Number of read requests that a rank has in flight.
    pub depth: u32,
    /// Number of write requests that a rank has in flight.
    ///
    /// It is larger if servers accept writes before they are on disk.
    pub write_depth: u32,
    /// Time of a message at either end.
    pub message_ns: i64,
    /// Rate of a node's port, in each direction.
    pub message_rate: i64,
    /// Rate of copies in memory.
    pub copy_rate: i64,
    /// Number of ranks per node.
    pub per_node: u32,
    /// Time of a call before the first byte moves.
    pub call_ns: i64,
}

/// Rules by which ranks make requests from sections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Manner {
    /// Gaps below this many bytes are read, too.
    pub gap: i64,
    /// Maximum bytes of a request.
    pub most: i64,
    /// True if the whole extent from first to last byte is read (in a write, read and rewritten).
    pub extent: bool,
    /// Limit below which tiles are written piece by piece, in a write.
    ///
    /// These are the tiles of which the ranks write less than one part in `sparse`.
    ///
    /// 0: never.
    pub sparse: i64,
    /// Costs that decide whether denser tiles are written piece by piece.
    ///
    /// The alternative is to read, change and write the tile.
    ///
    /// Without them, tiles are read, changed and written.
    pub price: Option<Price>,
    /// True if, in a write, independent ranks skip the elements that later accesses write.
    pub leaves_out: bool,
    /// Number of slots of a rank, at least two: one is exchanged while the others are read into.
    pub slots: usize,
}

/// A plan's assumptions about a disk, independent of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Price {
    /// Nanoseconds per request.
    pub request_ns: i64,
    /// Bytes per second of a single request.
    pub device: i64,
    /// Bytes per second of many concurrent requests.
    pub stream: i64,
}

/// The result of a simulated access.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Time at which the last rank finishes, in nanoseconds.
    pub ns: i64,
    /// Number of requests.
    pub requests: i64,
    /// Bytes that servers moved.
    pub bytes: i64,
    /// Requested bytes; bytes that several ranks request are counted several times.
    pub useful: i64,
    /// Number of messages between ranks.
    pub messages: i64,
    /// Bytes of these messages.
    pub message_bytes: i64,
    /// Number of rounds; 0 for independent ranks.
    pub rounds: i64,
    /// Nanoseconds in which all ranks waited for requests, over all rounds.
    pub io_ns: i64,
    /// Nanoseconds of exchanges, over all rounds.
    pub exchange_ns: i64,
    /// Part of `exchange_ns`: copies in memory of the rank that copies most.
    pub copy_ns: i64,
    /// Busy time of the busiest server.
    pub busiest_ns: i64,
    /// Number of simulated events.
    pub events: i64,
}

impl Machine {
    /// Rejects invalid parameters.
    ///
    /// # Errors
    /// Fails for counts and rates below one, negative times, and a block that does not divide the
    /// stripe.
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

    /// Time of a synchronisation of all ranks.
    pub(crate) fn synchronisation(&self, ranks: u32) -> i64 {
        i64::from(u32::BITS - ranks.saturating_sub(1).leading_zeros()) * self.message_ns
    }

    /// Time to gather the records of all ranks before planning.
    ///
    /// It consists of a call, and `words` words of each rank.
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

/// Offsets of the arrays' files, in whole stripes, one after another.
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
