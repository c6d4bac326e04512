//! Steps of a pipeline: codecs, checksums, and the memory that they work in.

use super::fault::Fault;
use crate::error::StorageError;
use crate::pool::{Arena, Reservation};

/// Bytes of a checksum.
pub(super) const SUM: usize = 4;
/// Alignment of contexts, bytes.
pub(super) const ALIGN: usize = 64;

/// Memory for coding in each thread, in addition to input and output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Needs {
    /// Memory from the caller, reused from chunk to chunk: tables, contexts of libraries.
    pub own: usize,
    /// Most memory that a library allocates while it works on a chunk.
    pub library: usize,
}

impl Needs {
    /// Sum of both.
    pub fn bytes(self) -> usize {
        self.own.saturating_add(self.library)
    }

    /// Rounds its own memory up to whole units.
    pub(super) fn aligned(self, unit: usize) -> Needs {
        Needs { own: self.own.checked_next_multiple_of(unit).unwrap_or(self.own), ..self }
    }
}

/// The memory of one codec in one thread and direction.
pub struct Context<'a> {
    pub(super) memory: &'a mut [u8],
    /// Offset in the memory where the library put its context, once it is made.
    pub(super) made: &'a mut Option<usize>,
    pub(super) arena: Option<&'a Arena>,
}

impl Context<'_> {
    /// Returns the context, which `make` puts into the memory at the first call. The pointer is
    /// valid while this is borrowed.
    pub(super) fn get<T>(
        &mut self,
        make: impl FnOnce(&mut [u8]) -> *mut T,
    ) -> Result<*mut T, Fault> {
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

    /// Counts memory that a library will allocate beyond its [`Needs`], if there is an arena.
    pub(super) fn reserve(&self, bytes: usize) -> Result<Option<Reservation>, Fault> {
        let Some(arena) = self.arena.filter(|_| bytes > 0) else { return Ok(None) };
        match arena.reserve("a codec", bytes as u64) {
            Ok(held) => Ok(Some(held)),
            Err(StorageError::Budget(failure)) => Err(Fault::Memory(failure)),
            Err(error) => Err(Fault::new(error.to_string())),
        }
    }
}

/// Number of bytes written by a step, or an error.
pub type Written = Result<usize, Fault>;

/// Converts bytes into other bytes and back. Stateless; the caller owns contexts of the libraries.
pub trait Codec: Send + Sync + std::fmt::Debug {
    /// Returns the name in `layout.py`.
    fn name(&self) -> &'static str;

    /// Returns the largest output of `encode` for `len` bytes.
    fn bound(&self, len: usize) -> usize;

    /// Returns whether every encoding of `len` bytes has exactly `bound(len)` bytes.
    fn keeps_size(&self) -> bool {
        false
    }

    /// Returns whether chunks stored without this step have the same meaning.
    fn may_be_skipped(&self) -> bool {
        true
    }

    /// Returns the memory to encode at most `len` bytes.
    fn encoder(&self, _len: usize) -> Needs {
        Needs::default()
    }

    /// Returns the memory to decode to at most `len` bytes.
    fn decoder(&self, _len: usize) -> Needs {
        Needs::default()
    }

    /// Encodes all of `input` into the front of `output`, which has at least `bound(input.len())`
    /// bytes; returns the bytes written.
    fn encode(&self, input: &[u8], output: &mut [u8], context: &mut Context) -> Written;

    /// Decodes all of `input` into the front of `output`; returns the bytes written. It is an error
    /// if the decoded input does not fit in `output`.
    fn decode(&self, input: &[u8], output: &mut [u8], context: &mut Context) -> Written;
}

/// Returns the front of `output` for the `len` bytes that a header specifies.
pub(super) fn promised(output: &mut [u8], len: u64) -> Result<&mut [u8], Fault> {
    let room = output.len();
    let front = usize::try_from(len).ok().and_then(|len| output.get_mut(..len));
    front.ok_or_else(|| Fault::new(format!("the header specifies {len} bytes, {room} expected")))
}

/// Returns an error if a chunk is too large for a library.
pub(super) fn at_most(largest: usize, input: &[u8], library: &str) -> Result<(), Fault> {
    let len = input.len();
    if len <= largest {
        return Ok(());
    }
    let why = format!("chunks of {len} bytes are too large; {library} takes at most {largest}");
    Err(Fault::new(why))
}

/// Four bytes that follow the data they protect.
pub trait Checksum: Send + Sync + std::fmt::Debug {
    /// Returns the name in `layout.py`.
    fn name(&self) -> &'static str;

    /// Returns the bytes to append to `data`.
    fn sum(&self, data: &[u8]) -> [u8; 4];

    /// Returns whether `stored` may follow `data`. Accepts more than `sum` if a format tolerates a
    /// bug of old writers.
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
    pub(super) fn name(&self) -> &'static str {
        match self {
            Step::Codec(codec) => codec.name(),
            Step::Checksum(sum) => sum.name(),
        }
    }

    /// Returns an error if a step must not be skipped.
    pub(super) fn check_skipped(&self) -> Result<(), StorageError> {
        match self {
            Step::Codec(codec) if !codec.may_be_skipped() => {
                let why = "it was skipped for this chunk, whose elements thus have another type";
                Err(Fault::new(why).of(codec.name()))
            }
            _ => Ok(()),
        }
    }
}
