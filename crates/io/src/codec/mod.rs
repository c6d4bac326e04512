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
//! than the [`Needs`] of its pipeline, unless it reserves that first. A decoded chunk has exactly the
//! size of a chunk, or is an error.
//!
//! To add one: a file beside `shuffle.rs`, and a line in [`build`].

pub mod blosc;
mod coder;
pub mod crc32c;
pub mod deflate;
pub mod fletcher32;
pub mod lz4;
pub mod lzf;
mod pipeline;
pub mod shuffle;
pub mod zstd;

pub use coder::{Coder, Encoded};
pub use pipeline::Pipeline;

use crate::error::{BudgetFailure, CodecFailure, StorageError};
use crate::pool::{Arena, Reservation};

/// The value of one option of a codec.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum OptionValue {
    /// A number, such as a level.
    Int(i64),
    /// A word, such as the name of Blosc's inner compressor.
    Text(String),
}

/// A codec as the format names it: see `Codec` in `python/outcore/formats/layout.py`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
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
    /// The library needs more memory than was to be expected, and it is not there.
    Memory(BudgetFailure),
}

impl Fault {
    fn new(why: impl Into<String>) -> Fault {
        Fault::Bad(why.into())
    }

    fn of(self, codec: &'static str) -> StorageError {
        let why = match self {
            Fault::Bad(why) => why,
            Fault::Memory(failure) => return StorageError::Budget(failure),
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

/// Memory that coding takes in each thread that does it, besides input and output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Needs {
    /// Given by the caller, and kept from chunk to chunk: tables, contexts of libraries.
    pub own: usize,
    /// Allocated by a library while it works on a chunk, at most.
    pub library: usize,
}

impl Needs {
    /// Both together.
    pub fn bytes(self) -> usize {
        self.own.saturating_add(self.library)
    }

    /// With memory of its own in whole units.
    fn aligned(self, unit: usize) -> Needs {
        Needs { own: self.own.checked_next_multiple_of(unit).unwrap_or(self.own), ..self }
    }
}

/// The memory of one codec in one thread and direction.
pub struct Context<'a> {
    memory: &'a mut [u8],
    /// Where in the memory the library put its context, once it is made.
    made: &'a mut Option<usize>,
    arena: Option<&'a Arena>,
}

impl Context<'_> {
    /// The context that `make` puts into the memory when it is first asked for. The pointer is good
    /// while this is borrowed.
    fn get<T>(&mut self, make: impl FnOnce(&mut [u8]) -> *mut T) -> Result<*mut T, Fault> {
        let start = self.memory.as_mut_ptr();
        if let Some(at) = *self.made {
            return Ok(start.wrapping_add(at).cast());
        }
        let place = make(self.memory);
        let at = (place as usize).wrapping_sub(start as usize);
        if place.is_null() || at >= self.memory.len() {
            let why = format!("{} bytes are too few for a context", self.memory.len());
            return Err(Fault::new(why));
        }
        *self.made = Some(at);
        Ok(place)
    }

    /// Counts memory that a library will hold beyond its [`Needs`], where somebody counts.
    fn reserve(&self, bytes: usize) -> Result<Option<Reservation>, Fault> {
        let Some(arena) = self.arena.filter(|_| bytes > 0) else { return Ok(None) };
        match arena.reserve("a codec", bytes as u64) {
            Ok(held) => Ok(Some(held)),
            Err(StorageError::Budget(failure)) => Err(Fault::Memory(failure)),
            Err(error) => Err(Fault::new(error.to_string())),
        }
    }
}

/// Bytes written by a step.
pub type Written = Result<usize, Fault>;

/// Turns bytes into other bytes and back. Stateless; contexts of the libraries are the caller's.
pub trait Codec: Send + Sync + std::fmt::Debug {
    /// The name in `layout.py`.
    fn name(&self) -> &'static str;

    /// The most bytes that `encode` makes of `len` bytes.
    fn bound(&self, len: usize) -> usize;

    /// Whether every encoding of `len` bytes has exactly `bound(len)` bytes.
    fn keeps_size(&self) -> bool {
        false
    }

    /// What encoding at most `len` bytes takes.
    fn encoder(&self, _len: usize) -> Needs {
        Needs::default()
    }

    /// What decoding to at most `len` bytes takes.
    fn decoder(&self, _len: usize) -> Needs {
        Needs::default()
    }

    /// Encode all of `input` into the front of `output`, which has at least `bound(input.len())`
    /// bytes; returns the bytes written.
    fn encode(&self, input: &[u8], output: &mut [u8], context: &mut Context) -> Written;

    /// Decode all of `input` into the front of `output`; returns the bytes written. An input that
    /// decodes to more than `output` holds is an error.
    fn decode(&self, input: &[u8], output: &mut [u8], context: &mut Context) -> Written;
}

/// The front of `output` that takes the `len` bytes which a header promises.
fn promised(output: &mut [u8], len: u64) -> Result<&mut [u8], Fault> {
    let room = output.len();
    let front = usize::try_from(len).ok().and_then(|len| output.get_mut(..len));
    front.ok_or_else(|| Fault::new(format!("the header promises {len} bytes, {room} expected")))
}

/// Refuses a chunk that a library cannot take.
fn at_most(largest: usize, input: &[u8], library: &str) -> Result<(), Fault> {
    let len = input.len();
    if len <= largest {
        return Ok(());
    }
    let why = format!("chunks of {len} bytes are too large; {library} takes at most {largest}");
    Err(Fault::new(why))
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
