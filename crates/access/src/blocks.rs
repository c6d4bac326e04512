//! Requirements of a loop over the blocks of an open array.

use outcore_io::pool::PAGE;
use outcore_plan::Direction;

use crate::error::Fault;
use crate::loops::Blocks;
use crate::open::Open;
use crate::terms;

/// Takes the bytes that blocks may have together; returns the bytes that they will have, or would need.
pub type Choose<'a> = dyn Fn(u64) -> Result<u64, Fault> + 'a;

/// Blocks of an array that are read, and perhaps written to another array.
pub struct OfArray<'a> {
    /// The array.
    pub open: &'a Open,
    /// Chooses the blocks; the last choice counts.
    pub choose: &'a Choose<'a>,
    /// Array to which each block is copied, if any.
    pub target: Option<&'a Open>,
    /// Number of elements of the array.
    pub elements: i64,
}

impl Blocks for OfArray<'_> {
    fn least(&self) -> Result<u64, Fault> {
        let read = self.open.least_to_read();
        let write = self.target.map_or(Ok(0), |target| target.least_to_cast(self.elements));
        match (read, write) {
            (Ok(read), Ok(write)) => Ok(u64::try_from(read.max(write)).unwrap_or(0)),
            (Err(read), Err(write)) if read.is_about_memory() => {
                Err(read.beside("the other array", write.needed().unwrap_or(0)))
            }
            (Err(refused), _) | (_, Err(refused)) => Err(refused),
        }
    }

    fn least_besides_tables(&self) -> u64 {
        let write = self.target.map(|target| target.least(Direction::Write));
        let least = self.open.least(Direction::Read).max(write.unwrap_or(0));
        u64::try_from(terms::pages(least).saturating_add(2 * PAGE as i64)).unwrap_or(0)
    }

    fn choose(&self, room: u64) -> Result<u64, Fault> {
        (self.choose)(room)
    }
}
