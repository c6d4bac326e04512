//! A list of codecs as one: chunk to stored bytes and back.
//!
//! Problem. Each step needs memory of its own, and the budget must know how much before anything
//! runs; and of most lists (`shuffle, deflate`) the last step of decoding can write straight into
//! the place where the chunk is wanted.
//!
//! Idea. Sizes are computed once, forwards: `bounds[k]` is the most that the first `k` steps make of
//! a chunk. Steps alternate between two halves of one scratch buffer that the caller owns.
//! Checksums change four bytes at the end and cost no buffer.
//!
//! Invariants. `scratch_bytes` and `encoded_bound` hold for every input. A step never sees an
//! output larger than its bound, so what a damaged stream claims is compared with it, not believed.

use super::{build, Checksum, CodecSpec, Fault, Step};
use crate::error::StorageError;

/// Bytes of a checksum.
const SUM: usize = 4;

/// An encoded chunk: borrowed from the scratch buffer (or the chunk itself, if there is no codec).
#[derive(Debug, Clone, Copy)]
pub struct Encoded<'a> {
    /// What is to be stored.
    pub bytes: &'a [u8],
    /// HDF5 filter mask: bit k set means that step k was skipped.
    pub mask: u32,
}

/// A list of codecs for chunks of one size.
#[derive(Debug)]
pub struct Pipeline {
    steps: Vec<Step>,
    /// `bounds[k]`: the most bytes that the first `k` steps make of a chunk.
    bounds: Vec<usize>,
    /// `limits[k]`: the same, with room for other encoders than ours.
    limits: Vec<usize>,
}

/// What other encoders may add to our bound: they may cut a stream into more and smaller blocks.
fn with_slack(bound: usize) -> usize {
    bound.saturating_add(bound / 16).saturating_add(4096)
}

impl Pipeline {
    /// The pipeline that a format describes, for chunks of `decoded_len` bytes.
    ///
    /// Fails with `Unavailable` for a codec that is not known, with `Codec` for an option that is
    /// out of range, and with `Codec` if an encoded chunk might not fit the address space.
    pub fn new(specs: &[CodecSpec], decoded_len: usize) -> Result<Pipeline, StorageError> {
        let mut steps = Vec::with_capacity(specs.len());
        let (mut bounds, mut limits) = (vec![decoded_len], vec![decoded_len]);
        let (mut bound, mut limit, mut exact) = (decoded_len, decoded_len, true);
        for (k, spec) in specs.iter().enumerate() {
            let step = build(spec)?;
            if k >= 32 {
                return Err(Fault::new("a pipeline has at most 32 steps").of(step.name()));
            }
            (bound, limit) = match &step {
                Step::Checksum(_) => (bound.saturating_add(SUM), limit.saturating_add(SUM)),
                Step::Codec(codec) => {
                    exact &= codec.keeps_size();
                    let limit = codec.bound(limit);
                    (codec.bound(bound), if exact { limit } else { with_slack(limit) })
                }
            };
            // A step that is skipped leaves its input, which may be longer than its output.
            bound = bound.max(bounds[k]);
            limit = limit.max(limits[k]);
            if limit > isize::MAX as usize / 4 {
                return Err(Fault::new(format!("chunks of {decoded_len} bytes are too large"))
                    .of(step.name()));
            }
            steps.push(step);
            bounds.push(bound);
            limits.push(limit);
        }
        Ok(Pipeline { steps, bounds, limits })
    }

    /// Whether chunks are stored as they are.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Names of the steps, in the order of encoding.
    pub fn names(&self) -> Vec<&'static str> {
        self.steps.iter().map(Step::name).collect()
    }

    /// Bytes of a decoded chunk.
    pub fn decoded_len(&self) -> usize {
        self.bounds[0]
    }

    /// The most bytes that [`encode`](Pipeline::encode) makes of a chunk.
    pub fn encoded_bound(&self) -> usize {
        self.bounds[self.steps.len()]
    }

    /// The longest stored chunk that [`decode`](Pipeline::decode) accepts, whoever wrote it.
    /// Refuse longer ones before reading them.
    pub fn stored_limit(&self) -> usize {
        self.limits[self.steps.len()]
    }

    /// Bytes of scratch that `encode` needs, its result included.
    pub fn encode_scratch(&self) -> usize {
        let codecs = (0..self.steps.len()).filter(|&k| self.is_codec(k)).count();
        let copies_first = !self.steps.is_empty() && !self.is_codec(0);
        (codecs + usize::from(copies_first)).min(2) * self.encoded_bound()
    }

    /// Bytes of scratch that `decode` needs, besides the stored bytes and the output.
    pub fn decode_scratch(&self) -> usize {
        // Whatever the mask, the first step that is not skipped needs no scratch: a codec writes
        // into the output, a checksum writes nothing.
        let codecs = (1..self.steps.len()).filter(|&k| self.is_codec(k)).count();
        codecs.min(2) * self.intermediate_limit()
    }

    fn is_codec(&self, k: usize) -> bool {
        matches!(self.steps.get(k), Some(Step::Codec(_)))
    }

    /// The longest output of any step of decoding but the last.
    fn intermediate_limit(&self) -> usize {
        self.limits[self.steps.len().saturating_sub(1)]
    }

    /// Bytes of scratch that are enough for both directions.
    pub fn scratch_bytes(&self) -> usize {
        self.encode_scratch().max(self.decode_scratch())
    }

    /// The most memory that the libraries behind the codecs hold in each thread that uses this.
    pub fn context_bytes(&self) -> usize {
        self.steps.iter().zip(&self.limits).fold(0, |sum, (step, &len)| match step {
            Step::Codec(codec) => sum.saturating_add(codec.context_bytes(len)),
            Step::Checksum(_) => sum,
        })
    }

    /// Encode one chunk. `scratch` has at least [`encode_scratch`](Pipeline::encode_scratch) bytes;
    /// the result lies in it.
    pub fn encode<'a>(
        &self,
        chunk: &'a [u8],
        scratch: &'a mut [u8],
    ) -> Result<Encoded<'a>, StorageError> {
        if chunk.len() != self.decoded_len() || scratch.len() < self.encode_scratch() {
            return Err(StorageError::BadJob(format!(
                "a chunk of {} bytes and {} of scratch for a pipeline of {} and {}",
                chunk.len(),
                scratch.len(),
                self.decoded_len(),
                self.encode_scratch()
            )));
        }
        // `front` always holds the current bytes once any step has run.
        let half = self.encoded_bound().min(scratch.len());
        let (mut front, mut back) = scratch.split_at_mut(half);
        let mut held: Option<usize> = None; // None: still the chunk itself
        let mut mask = 0u32;
        for (k, step) in self.steps.iter().enumerate() {
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
                    let done = match held {
                        None => codec.encode(chunk, front),
                        Some(len) => {
                            let done = codec.encode(&front[..len], back);
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

    /// Decode one stored chunk into `out`, which has exactly the size of a chunk, skipping the
    /// steps whose bit in `mask` is set. `scratch` has at least
    /// [`decode_scratch`](Pipeline::decode_scratch) bytes.
    ///
    /// On error `out` is undefined. The error names the codec; who knows the file and the chunk
    /// adds them.
    pub fn decode(
        &self,
        stored: &[u8],
        mask: u32,
        out: &mut [u8],
        scratch: &mut [u8],
    ) -> Result<(), StorageError> {
        if out.len() != self.decoded_len() || scratch.len() < self.decode_scratch() {
            return Err(StorageError::BadJob(format!(
                "{} bytes of output and {} of scratch for a pipeline of {} and {}",
                out.len(),
                scratch.len(),
                self.decoded_len(),
                self.decode_scratch()
            )));
        }
        if stored.len() > self.stored_limit() {
            return Err(Fault::new(format!(
                "{} bytes are stored, but a chunk of {} bytes takes at most {}",
                stored.len(),
                out.len(),
                self.stored_limit()
            ))
            .of(self.steps.last().map_or("none", Step::name)));
        }
        let (mut front, mut back) =
            scratch.split_at_mut(self.intermediate_limit().min(scratch.len()));
        let mut input: &[u8] = stored;
        for (k, step) in self.steps.iter().enumerate().rev() {
            if skipped(mask, k) {
                continue;
            }
            match step {
                Step::Checksum(sum) => input = verified(sum.as_ref(), input)?,
                Step::Codec(codec) if (0..k).all(|earlier| skipped(mask, earlier)) => {
                    let len = codec.decode(input, out).map_err(|fault| fault.of(codec.name()))?;
                    return self.whole(len, codec.name());
                }
                Step::Codec(codec) => {
                    let exact = self.exact(k, mask);
                    let room = exact.unwrap_or(self.limits[k]);
                    let fault = |fault: Fault| fault.of(codec.name());
                    let len = codec.decode(input, &mut front[..room]).map_err(fault)?;
                    if exact.is_some_and(|exact| exact != len) {
                        let why = format!("the chunk decodes to {len} bytes instead of {room}");
                        return Err(Fault::new(why).of(codec.name()));
                    }
                    // The next step reads what is now in `front` and writes into the other half.
                    (front, back) = (back, front);
                    input = &back[..len];
                }
            }
        }
        self.whole(input.len(), self.steps.first().map_or("none", Step::name))?;
        out.copy_from_slice(input);
        Ok(())
    }

    /// The size of what step `k` decodes to, if the steps before it leave no choice.
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

fn skipped(mask: u32, k: usize) -> bool {
    mask >> k & 1 == 1
}

/// What stands before the checksum, if the checksum is right.
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
