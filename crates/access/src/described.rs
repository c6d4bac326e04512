//! The facts that are known about an array before any of its files is open.
//!
//! A format makes them, through the bindings. Nothing in them is trusted: the planner validates the layout,
//! and the executor checks every extent against the files.

use std::path::PathBuf;
use std::sync::Arc;

use outcore_io::original::Original;
use outcore_io::store::root::Identity;
use outcore_io::strings::Strings;
use outcore_io::{FileTable, Pipeline, Reservation};
use outcore_plan::Layout;

use crate::guard::Guard;
use crate::table::Library;

/// Returns what was known of each file when its metadata were read, for a new table of files.
pub type Originals = Box<dyn Fn() -> Vec<Option<Original>> + Send + Sync>;

/// Returns the identity of the array to which the files belong, for a new chunk store.
pub type Identities = Box<dyn Fn() -> Identity + Send + Sync>;

/// Description of an array.
pub struct Described {
    /// Name of the array in messages.
    pub path: String,
    /// Storage of the elements.
    pub layout: Layout,
    /// True if the first axis varies fastest.
    pub fortran: bool,
    /// One element of the fill value; empty for strided layouts.
    pub fill: Vec<u8>,
    /// Counts the fill value, because a header may specify elements of kilobytes.
    pub fill_held: Option<Reservation>,
    /// Files of a strided layout, in the numbering of its parts.
    pub files: Vec<PathBuf>,
    /// Properties of each file when its metadata were read.
    pub originals: Originals,
    /// True if the files hold only this array and are never opened by a library that keeps the GIL while it
    /// waits (HDF5).
    pub plain: bool,
    /// Locks the file of a strided layout against other writers during a write; `None` if that is not needed.
    pub guard: Option<Guard>,
    /// Source of the chunks.
    pub source: Option<Source>,
    /// Codecs of a chunk, in the order of writing; empty for strided layouts.
    pub pipeline: Pipeline,
    /// Strings within an element that end otherwise than by NULs up to their last byte.
    pub strings: Vec<Strings>,
}

/// Ways to find stored chunks.
pub enum Source {
    /// Through the library of the format (HDF5).
    Table {
        /// Path of the file.
        path: PathBuf,
        /// Additional location of chunks while the file is being changed.
        log: Option<PathBuf>,
        /// Access to the table.
        library: Arc<dyn Library>,
        /// Locks against other programs.
        guard: Option<Guard>,
    },
    /// In one file per chunk, or per shard.
    Files {
        /// Folder of the files.
        root: PathBuf,
        /// Prefix before the coordinates.
        prefix: String,
        /// Separator between the coordinates.
        separator: String,
        /// A file whose byte ranges serve as locks.
        lock: PathBuf,
        /// Identity of the array to which the files belong.
        identity: Option<Identities>,
        /// Layout inside a shard; present if the files are shards.
        shard: Option<Shard>,
    },
}

/// Layout inside a shard file.
pub struct Shard {
    /// Chunks per shard along each axis.
    pub per_shard: Vec<i64>,
    /// True if the index is at the start of the file.
    pub index_at_start: bool,
    /// True if the index ends with its crc32c.
    pub index_crc32c: bool,
}

impl Described {
    /// Returns the files of a strided layout, as files that are opened when they are needed.
    pub fn table(&self, writable: bool) -> FileTable {
        FileTable::new(self.files.clone(), writable).known((self.originals)())
    }

    /// Returns the length of each axis.
    pub fn shape(&self) -> &[i64] {
        match &self.layout {
            Layout::Strided(strided) => &strided.shape,
            Layout::Chunked(chunked) => &chunked.shape,
        }
    }

    /// Returns the byte strides of a packed array of this shape, in the order of the file.
    pub fn packed(&self, shape: &[i64]) -> Vec<i64> {
        packed(shape, self.item(), self.fortran)
    }

    /// Returns the bytes of an element.
    pub fn item(&self) -> i64 {
        match &self.layout {
            Layout::Strided(strided) => strided.item,
            Layout::Chunked(chunked) => chunked.item,
        }
    }
}

/// Returns the byte strides of a packed array.
pub fn packed(shape: &[i64], item: i64, fortran: bool) -> Vec<i64> {
    let mut strides = vec![0; shape.len()];
    let mut step = item;
    let mut place = |d: usize| {
        strides[d] = step;
        step = step.saturating_mul(shape[d].max(1));
    };
    if fortran {
        (0..shape.len()).for_each(&mut place);
    } else {
        (0..shape.len()).rev().for_each(&mut place);
    }
    strides
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_strides_are_those_of_numpy() {
        assert_eq!(vec![96, 32, 8], packed(&[2, 3, 4], 8, false));
        assert_eq!(vec![8, 16, 48], packed(&[2, 3, 4], 8, true));
        // An axis without elements counts as one.
        assert_eq!(vec![8, 8], packed(&[5, 0], 8, false));
    }
}
