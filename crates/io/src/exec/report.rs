//! What an execution did.

use super::times::Times;

/// What was really done; comparable with the plan's cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Report {
    /// Read requests.
    pub reads: i64,
    /// Bytes they asked for.
    pub read_bytes: i64,
    /// Write requests.
    pub writes: i64,
    /// Bytes they wrote.
    pub written_bytes: i64,
    /// Bytes copied straight out of or into mapped files.
    pub mapped_bytes: i64,
    /// Of these, those that were copied into them.
    pub mapped_written_bytes: i64,
    /// Chunks decoded.
    pub decodes: i64,
    /// Chunks that were kept decoded: not read, not decoded.
    pub kept: i64,
    /// Chunks encoded.
    pub encodes: i64,
    /// Rounds.
    pub rounds: i64,
    /// Times that files were put on the disk, as was asked: no plan says so.
    pub flushes: i64,
    /// What it took.
    pub times: Times,
}

impl Report {
    /// Adds what another run did.
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
