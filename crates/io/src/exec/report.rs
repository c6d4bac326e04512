//! Report of an execution.

use super::times::Times;

/// Counts of the work done, comparable with the cost of the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Report {
    /// Read requests.
    pub reads: i64,
    /// Bytes of the read requests.
    pub read_bytes: i64,
    /// Write requests.
    pub writes: i64,
    /// Bytes of the write requests.
    pub written_bytes: i64,
    /// Bytes copied directly out of or into mapped files.
    pub mapped_bytes: i64,
    /// Bytes copied into mapped files, included in `mapped_bytes`.
    pub mapped_written_bytes: i64,
    /// Chunks decoded.
    pub decodes: i64,
    /// Chunks found in the cache: neither read nor decoded.
    pub kept: i64,
    /// Chunks encoded.
    pub encodes: i64,
    /// Rounds.
    pub rounds: i64,
    /// Number of flushes that were requested; not part of a plan.
    pub flushes: i64,
    /// Time of each phase.
    pub times: Times,
}

impl Report {
    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Report) {
        self.reads += other.reads;
        self.read_bytes += other.read_bytes;
        self.writes += other.writes;
        self.written_bytes += other.written_bytes;
        self.mapped_bytes += other.mapped_bytes;
        self.mapped_written_bytes += other.mapped_written_bytes;
        self.decodes += other.decodes;
        self.kept += other.kept;
        self.encodes += other.encodes;
        self.rounds += other.rounds;
        self.flushes += other.flushes;
        self.times.add(&other.times);
    }
}
