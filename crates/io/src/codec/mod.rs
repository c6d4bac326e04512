//! Codecs: a chunk's bytes to the bytes that are stored, and back.
//!
//! Problem. Chunks are stored through a list of filters (HDF5) or codecs (Zarr), written by other
//! programs, perhaps damaged, perhaps hostile; and the memory they need must be known beforehand.
//!
//! Idea. Two kinds of step. A [`Codec`] turns bytes into other bytes, always into memory that the
//! caller owns and sized: a stream that claims to be larger than that memory is refused, never
//! followed. A [`Checksum`] appends four bytes, which are checked and cut off in place, so that it
//! costs no copy. A [`Pipeline`] runs a list of them; it is the only thing other modules use.
//!
//! | name | module | stored form |
//! |---|---|---|
//! | `deflate`, `gzip` | [`deflate`] | zlib or gzip stream |
//! | `zstd` | [`zstd`] | Zstandard frames |
//! | `lz4`, `lz4hdf5` | [`lz4`] | LZ4 blocks in numcodecs' or HDF5's framing |
//! | `blosc` | [`blosc`] | Blosc 1 buffer |
//! | `lzf` | [`lzf`] | LZF stream as h5py writes it |
//! | `shuffle` | [`shuffle`] | bytes regrouped by their place in the item |
//! | `crc32c`, `fletcher32` | [`crc32c`], [`fletcher32`] | the input and four bytes |
//!
//! Invariants. No input makes a step panic, hang, read or write out of bounds, or allocate more
//! than [`Pipeline::context_bytes`]. A decoded chunk has exactly the size of a chunk, or is an
//! error.
//!
//! To add one: a file beside `shuffle.rs`, and a line in [`build`].

pub mod blosc;
pub mod crc32c;
pub mod deflate;
pub mod fletcher32;
pub mod lz4;
pub mod lzf;
mod pipeline;
pub mod shuffle;
pub mod zstd;

pub use pipeline::{Encoded, Pipeline};

use crate::error::{CodecFailure, StorageError};

/// The value of one option of a codec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OptionValue {
    /// A number, such as a level.
    Int(i64),
    /// A word, such as the name of Blosc's inner compressor.
    Text(String),
}

/// A codec as the format names it: see `Codec` in `python/outcore/formats/layout.py`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodecSpec {
    /// One of the names in the table of this module.
    pub name: String,
    /// Options by name; those that are missing have the usual defaults.
    pub options: Vec<(String, OptionValue)>,
}

impl CodecSpec {
    /// A codec with no options.
    pub fn new(name: &str) -> CodecSpec {
        CodecSpec { name: name.to_owned(), options: Vec::new() }
    }

    /// The same with a numeric option.
    pub fn int(mut self, key: &str, value: i64) -> CodecSpec {
        self.options.push((key.to_owned(), OptionValue::Int(value)));
        self
    }

    /// The same with an option that is a word.
    pub fn text(mut self, key: &str, value: &str) -> CodecSpec {
        self.options.push((key.to_owned(), OptionValue::Text(value.to_owned())));
        self
    }

    fn get(&self, key: &str) -> Option<&OptionValue> {
        self.options.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    fn get_int(&self, key: &str, default: i64, lo: i64, hi: i64) -> Result<i64, Fault> {
        match self.get(key) {
            None => Ok(default),
            Some(OptionValue::Int(value)) if (lo..=hi).contains(value) => Ok(*value),
            Some(OptionValue::Int(value)) => {
                Err(Fault::new(format!("option {key} is {value}, outside {lo}..={hi}")))
            }
            Some(OptionValue::Text(text)) => {
                Err(Fault::new(format!("option {key} is the text {text:?}, not a number")))
            }
        }
    }

    fn get_text(&self, key: &str, default: &'static str) -> Result<&str, Fault> {
        match self.get(key) {
            None => Ok(default),
            Some(OptionValue::Text(text)) => Ok(text),
            Some(OptionValue::Int(value)) => {
                Err(Fault::new(format!("option {key} is the number {value}, not a text")))
            }
        }
    }
}

/// Why a step gave up. The pipeline adds the name of the codec, the executor the chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The input is not what the codec writes, or an option is wrong; the text says how.
    Bad(String),
    /// Encoding only: the input cannot be made smaller; store it without this step and say so in
    /// the chunk's filter mask.
    Incompressible,
}

impl Fault {
    fn new(why: impl Into<String>) -> Fault {
        Fault::Bad(why.into())
    }

    fn of(self, codec: &'static str) -> StorageError {
        let why = match self {
            Fault::Bad(why) => why,
            Fault::Incompressible => "the chunk cannot be compressed".to_owned(),
        };
        StorageError::Codec(CodecFailure {
            codec,
            why,
            path: Default::default(),
            offset: None,
            chunk: Vec::new(),
        })
    }
}

/// Turns bytes into other bytes and back. Stateless; contexts of the libraries live per thread.
pub trait Codec: Send + Sync + std::fmt::Debug {
    /// The name in `layout.py`.
    fn name(&self) -> &'static str;

    /// The most bytes that `encode` makes of `len` bytes.
    fn bound(&self, len: usize) -> usize;

    /// Whether every encoding of `len` bytes has exactly `bound(len)` bytes.
    fn keeps_size(&self) -> bool {
        false
    }

    /// Memory that the library behind this codec holds per thread, at most, for chunks of `len`
    /// bytes.
    fn context_bytes(&self, len: usize) -> usize;

    /// Encode all of `input` into the front of `output`, which has at least `bound(input.len())`
    /// bytes; returns the bytes written.
    fn encode(&self, input: &[u8], output: &mut [u8]) -> Result<usize, Fault>;

    /// Decode all of `input` into the front of `output`; returns the bytes written. An input that
    /// decodes to more than `output` holds is an error.
    fn decode(&self, input: &[u8], output: &mut [u8]) -> Result<usize, Fault>;
}

/// Four bytes that follow the data they protect.
pub trait Checksum: Send + Sync + std::fmt::Debug {
    /// The name in `layout.py`.
    fn name(&self) -> &'static str;

    /// The bytes to append to `data`.
    fn sum(&self, data: &[u8]) -> [u8; 4];

    /// Whether `stored` may stand behind `data`. More than `sum` where old writers had a bug that
    /// the format forgives.
    fn accepts(&self, data: &[u8], stored: [u8; 4]) -> bool {
        self.sum(data) == stored
    }
}

/// One step of a pipeline.
#[derive(Debug)]
pub(crate) enum Step {
    Codec(Box<dyn Codec>),
    Checksum(Box<dyn Checksum>),
}

impl Step {
    fn name(&self) -> &'static str {
        match self {
            Step::Codec(codec) => codec.name(),
            Step::Checksum(sum) => sum.name(),
        }
    }
}

/// The list of all codecs.
fn build(spec: &CodecSpec) -> Result<Step, StorageError> {
    fn codec<C: Codec + 'static>(
        name: &'static str,
        made: Result<C, Fault>,
    ) -> Result<Step, StorageError> {
        made.map(|codec| Step::Codec(Box::new(codec))).map_err(|fault| fault.of(name))
    }
    match spec.name.as_str() {
        "deflate" => codec("deflate", deflate::Deflate::zlib(spec)),
        "gzip" => codec("gzip", deflate::Deflate::gzip(spec)),
        "zstd" => codec("zstd", zstd::Zstd::new(spec)),
        "lz4" => codec("lz4", lz4::Lz4::new(spec)),
        "lz4hdf5" => codec("lz4hdf5", lz4::Lz4Hdf5::new(spec)),
        "blosc" => codec("blosc", blosc::Blosc::new(spec)),
        "lzf" => codec("lzf", Ok(lzf::Lzf)),
        "shuffle" => codec("shuffle", shuffle::Shuffle::new(spec)),
        "crc32c" => Ok(Step::Checksum(Box::new(crc32c::Crc32c))),
        "fletcher32" => Ok(Step::Checksum(Box::new(fletcher32::Fletcher32))),
        other => Err(StorageError::Unavailable {
            what: "this codec",
            why: format!(
                "there is no codec named {other:?}; known are deflate, gzip, zstd, lz4, lz4hdf5, \
                 blosc, lzf, shuffle, crc32c and fletcher32"
            ),
        }),
    }
}

#[cfg(test)]
mod tests;
