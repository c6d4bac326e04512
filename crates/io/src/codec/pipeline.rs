//! A list of codecs as a single one: from a chunk to stored bytes and back.
//!
//! Problem. Each step needs memory, and its size must be known before anything runs, for the
//! budget. In most lists (`shuffle, deflate`) the last step of decoding can write directly to the
//! destination of the chunk.
//!
//! Idea. Sizes are computed once, forwards: `bounds[k]` is the largest output of the first `k`
//! steps for a chunk. Steps alternate between two halves of one scratch buffer that the caller
//! owns. Checksums change four bytes at the end and need no buffer.
//!
//! Invariants. `scratch_bytes` and `encoded_bound` hold for every input. A step never gets an
//! output buffer larger than its bound, so sizes claimed by a damaged stream are compared with it,
//! not trusted.

use std::sync::Arc;

use super::fault::Fault;
use super::registry::build;
use super::spec::CodecSpec;
use super::step::{Codec, Needs, Step, ALIGN, SUM};
use crate::error::StorageError;
use crate::page::PAGE;

/// A list of codecs for chunks of one size.
#[derive(Debug)]
pub struct Pipeline {
    specs: Arc<[CodecSpec]>,
    pub(super) steps: Vec<Step>,
    /// `bounds[k]`: the largest output of the first `k` steps for a chunk, in bytes.
    bounds: Vec<usize>,
    /// `limits[k]`: the same, with a margin for other encoders.
    pub(super) limits: Vec<usize>,
    /// Memory that each step needs to encode, and to decode.
    pub(super) encoders: Vec<Needs>,
    pub(super) decoders: Vec<Needs>,
}

/// Adds a margin for other encoders, which may split a stream into more and smaller blocks.
fn with_slack(bound: usize) -> usize {
    bound.saturating_add(bound / 16).saturating_add(4096)
}

impl Pipeline {
    /// Makes the pipeline that a format describes, for chunks of `decoded_len` bytes.
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
            // A skipped step passes its input on, which may be longer than its output.
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
        let needs = |of: &dyn Fn(&dyn Codec, usize) -> Needs, sizes: &[usize]| {
            let each = steps.iter().zip(sizes).map(|(step, &len)| match step {
                Step::Codec(codec) => of(codec.as_ref(), len).aligned(ALIGN),
                Step::Checksum(_) => Needs::default(),
            });
            each.collect()
        };
        let encoders = needs(&|codec, len| codec.encoder(len), &bounds);
        let decoders = needs(&|codec, len| codec.decoder(len), &limits);
        let specs = specs.into();
        Ok(Pipeline { specs, steps, bounds, limits, encoders, decoders })
    }

    /// Returns whether chunks are stored unchanged.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Returns the names of the steps, in the order of encoding.
    pub fn names(&self) -> Vec<&'static str> {
        self.steps.iter().map(Step::name).collect()
    }

    /// Returns its specification: with equal specifications and stored bytes, chunks of one size
    /// are equal.
    pub fn specs(&self) -> &Arc<[CodecSpec]> {
        &self.specs
    }

    /// Bytes of a decoded chunk.
    pub fn decoded_len(&self) -> usize {
        self.bounds[0]
    }

    /// Largest output of encoding for a chunk, in bytes.
    pub fn encoded_bound(&self) -> usize {
        self.bounds[self.steps.len()]
    }

    /// Longest stored chunk of any writer that [`Coder::decode`](super::Coder::decode) accepts.
    /// Reject longer ones before reading them.
    pub fn stored_limit(&self) -> usize {
        self.limits[self.steps.len()]
    }

    /// Bytes of scratch that `encode` needs, including its result.
    pub fn encode_scratch(&self) -> usize {
        let codecs = (0..self.steps.len()).filter(|&k| self.is_codec(k)).count();
        let copies_first = !self.steps.is_empty() && !self.is_codec(0);
        (codecs + usize::from(copies_first)).min(2) * self.encoded_bound()
    }

    /// Bytes of scratch that `decode` needs, in addition to the stored bytes and the output.
    pub fn decode_scratch(&self) -> usize {
        // Whatever the mask, the first step that is not skipped needs no scratch: a codec writes
        // into the output, a checksum writes nothing.
        let codecs = (1..self.steps.len()).filter(|&k| self.is_codec(k)).count();
        codecs.min(2) * self.intermediate_limit()
    }

    fn is_codec(&self, k: usize) -> bool {
        matches!(self.steps.get(k), Some(Step::Codec(_)))
    }

    /// Longest output of any decoding step except the last.
    pub(super) fn intermediate_limit(&self) -> usize {
        self.limits[self.steps.len().saturating_sub(1)]
    }

    /// Bytes of scratch that are enough for both directions.
    pub fn scratch_bytes(&self) -> usize {
        self.encode_scratch().max(self.decode_scratch())
    }

    /// Memory for contexts in each thread that codes chunks one after another.
    pub fn needs(&self, decodes: bool, encodes: bool) -> Needs {
        let decoders = self.decoders.iter().filter(|_| decodes);
        let encoders = self.encoders.iter().filter(|_| encodes);
        // Libraries release their memory before the next step. It is counted together with buffers,
        // which come in whole pages; rounding it up as well makes the sum exact.
        decoders.chain(encoders).fold(Needs::default(), |sum, step| Needs {
            own: sum.own.saturating_add(step.own),
            library: sum
                .library
                .max(step.library.checked_next_multiple_of(PAGE).unwrap_or(usize::MAX)),
        })
    }
}
