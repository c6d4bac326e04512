//! Codecs: from the bytes of a chunk to the stored bytes, and back.
//!
//! Problem. Chunks are stored through a list of filters (HDF5) or codecs (Zarr). They were written
//! by other programs, and may be damaged or hostile; and the memory that they need must be known in
//! advance.
//!
//! Idea. There are two kinds of step. A [`Codec`] converts bytes into other bytes, always in memory
//! of the caller with a known size: a stream whose header specifies more than that is an error. A
//! [`Checksum`] appends four bytes, which are checked and cut off in place, without a copy. A
//! [`Pipeline`] runs a list of steps; other modules use only pipelines.
//!
//! | name | module | stored form |
//! |---|---|---|
//! | `deflate`, `gzip` | [`deflate`] | zlib or gzip stream |
//! | `zstd` | [`zstd`] | Zstandard frames |
//! | `lz4`, `lz4hdf5` | [`lz4`] | LZ4 blocks in numcodecs' or HDF5's framing |
//! | `blosc` | [`blosc`] | Blosc 1 buffer |
//! | `lzf` | [`lzf`] | LZF stream as h5py writes it |
//! | `bzip2` | [`bzip2`] | bzip2 streams |
//! | `bitshuffle` | [`bitshuffle`] | blocks of regrouped bits, each perhaps compressed |
//! | `hdf5` | [`outside`] | the output of any filter of the HDF5 library; decoded only |
//! | `zip` | [`zip`] | a deflated member of a zip file, with its header |
//! | `shuffle` | [`shuffle`] | bytes regrouped by their position in the item |
//! | `crc32c`, `fletcher32` | [`crc32c`], [`fletcher32`] | the input and four bytes |
//!
//! Invariants. No input makes a step panic, hang, read or write out of bounds, or allocate more
//! than the [`Needs`] of its pipeline, unless it reserves that first. A decoded chunk has exactly
//! the size of a chunk, or is an error.
//!
//! To add a codec, write a file next to `shuffle.rs`, and add a line to `registry.rs`.

pub mod bitshuffle;
pub mod blosc;
pub mod bzip2;
mod coder;
pub mod crc32c;
mod decoder;
pub mod deflate;
mod fault;
pub mod fletcher32;
pub mod lz4;
pub mod lzf;
pub mod outside;
mod pipeline;
mod registry;
pub mod shuffle;
pub(crate) mod spec;
mod step;
pub mod zip;
pub mod zstd;

pub use coder::{Coder, Encoded};
pub use decoder::{Decode, Decoder};
pub use fault::Fault;
pub use pipeline::Pipeline;
pub use spec::{CodecSpec, OptionValue};
pub use step::{Checksum, Codec, Context, Needs, Written};

#[cfg(test)]
mod tests;
