//! Encoding and decoding with a pipeline in one thread.
//!
//! Problem. Contexts of the libraries (hundreds of KiB to decode, many MiB to encode at a high
//! level) should be reused from chunk to chunk, but must count in the budget of the operation. If
//! each thread that ever coded a chunk kept them for ever, they would not be counted.
//!
//! Idea. The caller provides their memory for the duration of the operation: Zstandard and
//! libdeflate are configured to use it, and no other memory. So the count is exact. Blosc allocates
//! its own memory, whose size is known and included in [`Needs`](super::Needs).
//!
//! Invariant. A context is used only by the codec that made it, in the memory where it was made.

use super::fault::Fault;
use super::pipeline::Pipeline;
use super::step::{Checksum, Context, Needs, Step, ALIGN, SUM};
use crate::error::StorageError;
use crate::pool::Arena;

/// An encoded chunk: borrowed from the scratch buffer (or the chunk itself, if there is no codec).
#[derive(Debug, Clone, Copy)]
pub struct Encoded<'a> {
    /// Bytes to store.
    pub bytes: &'a [u8],
    /// HDF5 filter mask: bit k set means that step k was skipped.
    pub mask: u32,
}

/// Encodes and decodes chunks, one after another.
pub struct Coder<'a> {
    pipeline: &'a Pipeline,
    decoders: Vec<Place<'a>>,
    encoders: Vec<Place<'a>>,
    arena: Option<&'a Arena>,
}

/// Memory for the context of one step, and the offset of the context in it, once it is made.
struct Place<'a> {
    memory: &'a mut [u8],
    made: Option<usize>,
}

impl<'a> Coder<'a> {
    /// Makes a coder that decodes, encodes, or both, with memory of [`Pipeline::needs`] bytes
    /// (`own`) that begins at a multiple of 64.
    ///
    /// # Errors
    /// `BadJob` if the memory is too small.
    pub fn new(
        pipeline: &'a Pipeline,
        memory: &'a mut [u8],
        decodes: bool,
        encodes: bool,
    ) -> Result<Coder<'a>, StorageError> {
        let (needs, has) = (pipeline.needs(decodes, encodes).own, memory.len());
        if has < needs {
            return Err(StorageError::BadJob(format!("{has} bytes for contexts of {needs}")));
        }
        let mut rest = memory;
        let mut places = |steps: &[Needs], wanted: bool| {
            let steps = steps.iter().filter(|_| wanted);
            steps
                .map(|step| {
                    let (memory, left) = std::mem::take(&mut rest).split_at_mut(step.own);
                    rest = left;
                    Place { memory, made: None }
                })
                .collect()
        };
        let decoders = places(&pipeline.decoders, decodes);
        let encoders = places(&pipeline.encoders, encodes);
        Ok(Coder { pipeline, decoders, encoders, arena: None })
    }

    /// Counts unexpected memory of libraries in `arena`.
    pub fn counting(self, arena: &'a Arena) -> Coder<'a> {
        Coder { arena: Some(arena), ..self }
    }

    /// Encodes one chunk. `scratch` has at least [`encode_scratch`](Pipeline::encode_scratch)
    /// bytes; the result is in it.
    pub fn encode<'s>(
        &mut self,
        chunk: &'s [u8],
        scratch: &'s mut [u8],
    ) -> Result<Encoded<'s>, StorageError> {
        let pipeline = self.pipeline;
        if chunk.len() != pipeline.decoded_len() || scratch.len() < pipeline.encode_scratch() {
            return Err(StorageError::BadJob(format!(
                "a chunk of {} bytes and {} of scratch for a pipeline of {} and {}",
                chunk.len(),
                scratch.len(),
                pipeline.decoded_len(),
                pipeline.encode_scratch()
            )));
        }
        // `front` holds the current bytes as soon as any step has run.
        let half = pipeline.encoded_bound().min(scratch.len());
        let (mut front, mut back) = scratch.split_at_mut(half);
        let mut held: Option<usize> = None; // None: still the chunk itself
        let mut mask = 0u32;
        for (k, step) in pipeline.steps.iter().enumerate() {
            match step {
                Step::Checksum(sum) => {
                    let len = held.unwrap_or_else(|| {
                        front[..chunk.len()].copy_from_slice(chunk);
                        chunk.len()
                    });
                    let tail = sum.sum(&front[..len]);
                    front[len..len + SUM].copy_from_slice(&tail);
                    held = Some(len + SUM);
                }
                Step::Codec(codec) => {
                    let context = &mut context(&mut self.encoders, k, self.arena)?;
                    let done = match held {
                        None => codec.encode(chunk, front, context),
                        Some(len) => {
                            let done = codec.encode(&front[..len], back, context);
                            if done.is_ok() {
                                std::mem::swap(&mut front, &mut back);
                            }
                            done
                        }
                    };
                    match done {
                        Ok(len) => held = Some(len),
                        Err(Fault::Incompressible) => mask |= 1 << k,
                        Err(fault) => return Err(fault.of(codec.name())),
                    }
                }
            }
        }
        let bytes = match held {
            None => chunk,
            Some(len) => &front[..len],
        };
        Ok(Encoded { bytes, mask })
    }

    /// Decodes one stored chunk into `out`, which has exactly the size of a chunk, skipping the
    /// steps whose bit in `mask` is set. `scratch` has at least
    /// [`decode_scratch`](Pipeline::decode_scratch) bytes.
    ///
    /// On error `out` is undefined. The error names the codec; callers that know the file and the
    /// chunk add them.
    pub fn decode(
        &mut self,
        stored: &[u8],
        mask: u32,
        out: &mut [u8],
        scratch: &mut [u8],
    ) -> Result<(), StorageError> {
        let pipeline = self.pipeline;
        if out.len() != pipeline.decoded_len() || scratch.len() < pipeline.decode_scratch() {
            return Err(StorageError::BadJob(format!(
                "{} bytes of output and {} of scratch for a pipeline of {} and {}",
                out.len(),
                scratch.len(),
                pipeline.decoded_len(),
                pipeline.decode_scratch()
            )));
        }
        if stored.len() > pipeline.stored_limit() {
            return Err(Fault::new(format!(
                "{} bytes are stored, but a chunk of {} bytes takes at most {}",
                stored.len(),
                out.len(),
                pipeline.stored_limit()
            ))
            .of(pipeline.steps.last().map_or("none", Step::name)));
        }
        let (mut front, mut back) =
            scratch.split_at_mut(pipeline.intermediate_limit().min(scratch.len()));
        let mut input: &[u8] = stored;
        for (k, step) in pipeline.steps.iter().enumerate().rev() {
            if skipped(mask, k) {
                step.check_skipped()?;
                continue;
            }
            match step {
                Step::Checksum(sum) => input = verified(sum.as_ref(), input)?,
                Step::Codec(codec) if (0..k).all(|earlier| skipped(mask, earlier)) => {
                    let context = &mut context(&mut self.decoders, k, self.arena)?;
                    let len = codec.decode(input, out, context);
                    let len = len.map_err(|fault| fault.of(codec.name()))?;
                    return pipeline.whole(len, codec.name());
                }
                Step::Codec(codec) => {
                    let exact = pipeline.exact(k, mask);
                    let room = exact.unwrap_or(pipeline.limits[k]);
                    let fault = |fault: Fault| fault.of(codec.name());
                    let context = &mut context(&mut self.decoders, k, self.arena)?;
                    let len = codec.decode(input, &mut front[..room], context).map_err(fault)?;
                    if exact.is_some_and(|exact| exact != len) {
                        let why = format!("the chunk decodes to {len} bytes instead of {room}");
                        return Err(Fault::new(why).of(codec.name()));
                    }
                    // The next step reads the new content of `front` and writes into the other
                    // half.
                    (front, back) = (back, front);
                    input = &back[..len];
                }
            }
        }
        pipeline.whole(input.len(), pipeline.steps.first().map_or("none", Step::name))?;
        out.copy_from_slice(input);
        Ok(())
    }
}

impl Pipeline {
    /// Encodes a single chunk, with uncounted contexts on the heap; for tests and tools. Use a
    /// [`Coder`] for many chunks.
    ///
    /// # Errors
    /// As [`Coder::encode`].
    pub fn encode<'s>(
        &self,
        chunk: &'s [u8],
        scratch: &'s mut [u8],
    ) -> Result<Encoded<'s>, StorageError> {
        let mut memory = vec![0; self.needs(false, true).own + ALIGN];
        Coder::new(self, aligned(&mut memory), false, true)?.encode(chunk, scratch)
    }

    /// Decodes a single chunk, like [`encode`](Pipeline::encode).
    ///
    /// # Errors
    /// As [`Coder::decode`].
    pub fn decode(
        &self,
        stored: &[u8],
        mask: u32,
        out: &mut [u8],
        scratch: &mut [u8],
    ) -> Result<(), StorageError> {
        let mut memory = vec![0; self.needs(true, false).own + ALIGN];
        Coder::new(self, aligned(&mut memory), true, false)?.decode(stored, mask, out, scratch)
    }

    /// Returns the decoded size of step `k`, if the steps before it determine it.
    fn exact(&self, k: usize, mask: u32) -> Option<usize> {
        let mut len = self.decoded_len();
        for (_, step) in self.steps.iter().enumerate().take(k).filter(|&(j, _)| !skipped(mask, j)) {
            len = match step {
                Step::Checksum(_) => len + SUM,
                Step::Codec(codec) if codec.keeps_size() => codec.bound(len),
                Step::Codec(_) => return None,
            };
        }
        Some(len)
    }

    fn whole(&self, len: usize, codec: &'static str) -> Result<(), StorageError> {
        if len == self.decoded_len() {
            return Ok(());
        }
        let why = format!("the chunk decodes to {len} bytes instead of {}", self.decoded_len());
        Err(Fault::new(why).of(codec))
    }
}

/// Returns the part of `memory` from the first aligned byte on.
fn aligned(memory: &mut [u8]) -> &mut [u8] {
    let skipped = memory.as_ptr().align_offset(ALIGN);
    memory.get_mut(skipped..).unwrap_or_default()
}

/// Returns the context of step `k`.
fn context<'c>(
    places: &'c mut [Place],
    k: usize,
    arena: Option<&'c Arena>,
) -> Result<Context<'c>, StorageError> {
    match places.get_mut(k) {
        Some(Place { memory, made }) => Ok(Context { memory, made, arena }),
        None => Err(StorageError::BadJob("a coder for the other direction".into())),
    }
}

fn skipped(mask: u32, k: usize) -> bool {
    mask >> k & 1 == 1
}

/// Returns the data before the checksum if the checksum is correct.
fn verified<'a>(sum: &dyn Checksum, input: &'a [u8]) -> Result<&'a [u8], StorageError> {
    let Some((data, stored)) = input.split_last_chunk::<SUM>() else {
        let why = format!("{} bytes are too short for a checksum", input.len());
        return Err(Fault::new(why).of(sum.name()));
    };
    if sum.accepts(data, *stored) {
        return Ok(data);
    }
    let why = format!(
        "the checksum of {} bytes is {:02x?}, but {stored:02x?} is stored; the chunk is damaged",
        data.len(),
        sum.sum(data)
    );
    Err(Fault::new(why).of(sum.name()))
}
