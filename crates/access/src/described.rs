//! What is known about an array before any of its files is open.
//!
//! Made by a format, through the bindings. Nothing in it is trusted: the planner checks the layout against
//! itself, the executor every extent against the files.

use std::path::PathBuf;
use std::sync::Arc;

use outcore_io::original::Original;
use outcore_io::store::root::Identity;
use outcore_io::strings::Strings;
use outcore_io::{FileTable, Pipeline, Reservation};
use outcore_plan::Layout;

use crate::guard::Guard;
use crate::table::Library;

/// Tells what was known of each file when its metadata were read, for a table of files that is new.
pub type Originals = Box<dyn Fn() -> Vec<Option<Original>> + Send + Sync>;

/// Tells which array the files are of, for a chunk store that is new.
pub type Identities = Box<dyn Fn() -> Identity + Send + Sync>;

/// An array.
pub struct Described {
    /// What the user calls it.
    pub path: String,
    /// Where the elements are.
    pub layout: Layout,
    /// Whether the first axis runs fastest.
    pub fortran: bool,
    /// One element of the fill value; empty for strided layouts.
    pub fill: Vec<u8>,
    /// Counts it, where a header claims elements of kilobytes.
    pub fill_held: Option<Reservation>,
    /// The files of a strided layout, in the numbering of its parts.
    pub files: Vec<PathBuf>,
    /// What was known of each.
    pub originals: Originals,
    /// Whether they hold nothing but this array and are never opened by a library that keeps the GIL
    /// while it waits (HDF5).
    pub plain: bool,
    /// Keeps others out of a strided layout's file while it is written; `None` if nobody needs to.
    pub guard: Option<Guard>,
    /// Where chunks are.
    pub source: Option<Source>,
    /// Codecs of a chunk, in the order of writing; empty for strided layouts.
    pub pipeline: Pipeline,
    /// Strings of an element that end in another way than by NULs up to their last byte.
    pub strings: Vec<Strings>,
}

/// How stored chunks are found.
pub enum Source {
    /// Through the library of the format (HDF5).
    Table {
        /// The file.
        path: PathBuf,
        /// Where chunks lie besides, while the file is being changed.
        log: Option<PathBuf>,
        /// Who knows the table.
        library: Arc<dyn Library>,
        /// How the file is kept from others.
        guard: Option<Guard>,
    },
    /// One file per chunk, or per shard.
    Files {
        /// Folder.
        root: PathBuf,
        /// Before the coordinates.
        prefix: String,
        /// Between the coordinates.
        separator: String,
        /// A file whose byte ranges serve as locks.
        lock: PathBuf,
        /// Which array they are of.
        identity: Option<Identities>,
        /// Present if the files are shards.
        shard: Option<Shard>,
    },
}

/// The inside of a shard file.
pub struct Shard {
    /// Chunks per axis.
    pub per_shard: Vec<i64>,
    /// Whether the index comes first.
    pub index_at_start: bool,
    /// Whether the index ends with its crc32c.
    pub index_crc32c: bool,
}

impl Described {
    /// The files of a strided layout, as files that are opened when they are needed.
    pub fn table(&self, writable: bool) -> FileTable {
        FileTable::new(self.files.clone(), writable).known((self.originals)())
    }

    /// Length of each axis.
    pub fn shape(&self) -> &[i64] {
        match &self.layout {
            Layout::Strided(strided) => &strided.shape,
            Layout::Chunked(chunked) => &chunked.shape,
        }
    }

    /// Byte strides of a packed array of this shape, in the order of the file.
    pub fn packed(&self, shape: &[i64]) -> Vec<i64> {
        packed(shape, self.item(), self.fortran)
    }

    /// Bytes of an element.
    pub fn item(&self) -> i64 {
        match &self.layout {
            Layout::Strided(strided) => strided.item,
            Layout::Chunked(chunked) => chunked.item,
        }
    }
}

/// Byte strides of a packed array.
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
