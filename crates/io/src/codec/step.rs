//! Steps of a pipeline: codecs, checksums, and the memory that they work in.

use super::fault::Fault;
use crate::error::StorageError;
use crate::pool::{Arena, Reservation};

/// Bytes of a checksum.
pub(super) const SUM: usize = 4;
/// Where contexts may begin, in bytes.
pub(super) const ALIGN: usize = 64;

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
    pub(super) fn aligned(self, unit: usize) -> Needs {
        Needs { own: self.own.checked_next_multiple_of(unit).unwrap_or(self.own), ..self }
    }
}

/// The memory of one codec in one thread and direction.
pub struct Context<'a> {
    pub(super) memory: &'a mut [u8],
    /// Where in the memory the library put its context, once it is made.
    pub(super) made: &'a mut Option<usize>,
    pub(super) arena: Option<&'a Arena>,
}

impl Context<'_> {
    /// The context that `make` puts into the memory when it is first asked for. The pointer is good
    /// while this is borrowed.
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

    /// Counts memory that a library will hold beyond its [`Needs`], where somebody counts.
    pub(super) fn reserve(&self, bytes: usize) -> Result<Option<Reservation>, Fault> {
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

    /// Whether what was stored without this step means the same.
    fn may_be_skipped(&self) -> bool {
        true
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
pub(super) fn promised(output: &mut [u8], len: u64) -> Result<&mut [u8], Fault> {
    let room = output.len();
    let front = usize::try_from(len).ok().and_then(|len| output.get_mut(..len));
    front.ok_or_else(|| Fault::new(format!("the header promises {len} bytes, {room} expected")))
}

/// Refuses a chunk that a library cannot take.
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
    pub(super) fn name(&self) -> &'static str {
        match self {
            Step::Codec(codec) => codec.name(),
            Step::Checksum(sum) => sum.name(),
        }
    }

    /// Refuses a chunk for which a step was skipped that must not be.
    pub(super) fn check_skipped(&self) -> Result<(), StorageError> {
        match self {
            Step::Codec(codec) if !codec.may_be_skipped() => {
                let why = "it was left out for this chunk, whose elements have another type then";
                Err(Fault::new(why).of(codec.name()))
            }
            _ => Ok(()),
        }
    }
}
