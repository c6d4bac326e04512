//! Byte shuffle: all first bytes of the items, then all second bytes, and so on.
//!
//! HDF5's filter 2 and numcodecs' `Shuffle`. Bytes after the last whole item stay where they are.
//! Makes nothing smaller, but puts equal bytes together for the compressor that follows.

use super::{Codec, CodecSpec, Fault};

/// Shuffle for items of one size.
#[derive(Debug)]
pub struct Shuffle {
    item: usize,
}

impl Shuffle {
    /// Options: `itemsize`, at least 1.
    pub fn new(spec: &CodecSpec) -> Result<Shuffle, Fault> {
        let item = spec.get_int("itemsize", 0, 1, i64::from(u32::MAX))?;
        if item == 0 {
            return Err(Fault::new("option itemsize is missing"));
        }
        let item = usize::try_from(item).map_err(|_| Fault::new("option itemsize is too large"))?;
        Ok(Shuffle { item })
    }
}

/// Items handled at a time where the size is not known at compile time, so that the planes of one
/// block stay in the first-level cache.
const BLOCK: usize = 64;

fn shuffle_any(item: usize, input: &[u8], output: &mut [u8]) {
    let count = input.len() / item;
    for first in (0..count).step_by(BLOCK) {
        let last = (first + BLOCK).min(count);
        for byte in 0..item {
            let plane = &mut output[byte * count + first..byte * count + last];
            let items = &input[first * item..last * item];
            for (to, from) in plane.iter_mut().zip(items.chunks_exact(item)) {
                *to = from[byte];
            }
        }
    }
}

fn unshuffle_any(item: usize, input: &[u8], output: &mut [u8]) {
    let count = input.len() / item;
    for first in (0..count).step_by(BLOCK) {
        let last = (first + BLOCK).min(count);
        for byte in 0..item {
            let plane = &input[byte * count + first..byte * count + last];
            let items = &mut output[first * item..last * item];
            for (from, to) in plane.iter().zip(items.chunks_exact_mut(item)) {
                to[byte] = *from;
            }
        }
    }
}

/// Items of a size known at compile time: the inner loop is unrolled and vectorised.
fn shuffle_fixed<const N: usize>(input: &[u8], output: &mut [u8]) {
    let count = input.len() / N;
    let mut planes: [&mut [u8]; N] = std::array::from_fn(|_| Default::default());
    let mut rest = output;
    for plane in &mut planes {
        let (head, tail) = rest.split_at_mut(count);
        *plane = head;
        rest = tail;
    }
    for (i, item) in input.chunks_exact(N).enumerate().take(count) {
        for (plane, byte) in planes.iter_mut().zip(item) {
            plane[i] = *byte;
        }
    }
}

fn unshuffle_fixed<const N: usize>(input: &[u8], output: &mut [u8]) {
    let count = input.len() / N;
    let planes: [&[u8]; N] = std::array::from_fn(|k| &input[k * count..(k + 1) * count]);
    for (i, item) in output.chunks_exact_mut(N).enumerate().take(count) {
        for (plane, byte) in planes.iter().zip(item) {
            *byte = plane[i];
        }
    }
}

impl Codec for Shuffle {
    fn name(&self) -> &'static str {
        "shuffle"
    }

    fn bound(&self, len: usize) -> usize {
        len
    }

    fn keeps_size(&self) -> bool {
        true
    }

    fn context_bytes(&self, _len: usize) -> usize {
        0
    }

    fn encode(&self, input: &[u8], output: &mut [u8]) -> Result<usize, Fault> {
        let Some(output) = output.get_mut(..input.len()) else {
            return Err(Fault::new("the output is shorter than the input"));
        };
        let whole = input.len() - input.len() % self.item;
        let ((input, tail), (output, tail_out)) =
            (input.split_at(whole), output.split_at_mut(whole));
        tail_out.copy_from_slice(tail);
        match self.item {
            _ if input.len() <= self.item => output.copy_from_slice(input),
            1 => output.copy_from_slice(input),
            2 => shuffle_fixed::<2>(input, output),
            4 => shuffle_fixed::<4>(input, output),
            8 => shuffle_fixed::<8>(input, output),
            16 => shuffle_fixed::<16>(input, output),
            item => shuffle_any(item, input, output),
        }
        Ok(whole + tail.len())
    }

    fn decode(&self, input: &[u8], output: &mut [u8]) -> Result<usize, Fault> {
        let room = output.len();
        let Some(output) = output.get_mut(..input.len()) else {
            return Err(Fault::new(format!("{} bytes do not fit in {room}", input.len())));
        };
        let whole = input.len() - input.len() % self.item;
        let ((input, tail), (output, tail_out)) =
            (input.split_at(whole), output.split_at_mut(whole));
        tail_out.copy_from_slice(tail);
        match self.item {
            _ if input.len() <= self.item => output.copy_from_slice(input),
            1 => output.copy_from_slice(input),
            2 => unshuffle_fixed::<2>(input, output),
            4 => unshuffle_fixed::<4>(input, output),
            8 => unshuffle_fixed::<8>(input, output),
            16 => unshuffle_fixed::<16>(input, output),
            item => unshuffle_any(item, input, output),
        }
        Ok(whole + tail.len())
    }
}
