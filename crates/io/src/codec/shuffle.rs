//! Byte shuffle: all first bytes of the items, then all second bytes, and so on.
//!
//! HDF5's filter 2 and numcodecs' `Shuffle`. Bytes after the last whole item are not moved. It
//! makes nothing smaller, but groups equal bytes for the compressor that follows.

#![allow(unsafe_code)]

use super::fault::Fault;
use super::spec::CodecSpec;
use super::step::{Codec, Context, Written};

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

    /// Applies `whole` (`shuffle`, `unshuffle`) to the whole items, and copies the bytes after
    /// them.
    fn regroup(
        &self,
        whole: fn(usize, &[u8], &mut [u8]),
        input: &[u8],
        output: &mut [u8],
    ) -> Written {
        let room = output.len();
        let Some(output) = output.get_mut(..input.len()) else {
            return Err(Fault::new(format!("{} bytes do not fit in {room}", input.len())));
        };
        let items = input.len() - input.len() % self.item;
        let ((input, tail), (output, tail_out)) =
            (input.split_at(items), output.split_at_mut(items));
        tail_out.copy_from_slice(tail);
        whole(self.item, input, output);
        Ok(items + tail.len())
    }
}

/// Items processed at a time if there is no faster way, so that the bytes of one block stay in the
/// first-level cache.
const BLOCK: usize = 64;

fn shuffle_any(item: usize, first: usize, input: &[u8], output: &mut [u8]) {
    let count = input.len() / item;
    for first in (first..count).step_by(BLOCK) {
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

fn unshuffle_any(item: usize, first: usize, input: &[u8], output: &mut [u8]) {
    let count = input.len() / item;
    for first in (first..count).step_by(BLOCK) {
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

/// Shuffles whole items of any size; `input` and `output` have the same length.
fn shuffle(item: usize, input: &[u8], output: &mut [u8]) {
    let done = match item {
        _ if input.len() <= item => return output.copy_from_slice(input),
        1 => return output.copy_from_slice(input),
        2 => fast::shuffle::<2>(input, output),
        4 => fast::shuffle::<4>(input, output),
        8 => fast::shuffle::<8>(input, output),
        16 => fast::shuffle::<16>(input, output),
        _ => 0,
    };
    shuffle_any(item, done, input, output);
}

/// Inverts [`shuffle`].
fn unshuffle(item: usize, input: &[u8], output: &mut [u8]) {
    let done = match item {
        _ if input.len() <= item => return output.copy_from_slice(input),
        1 => return output.copy_from_slice(input),
        2 => fast::unshuffle::<2>(input, output),
        4 => fast::unshuffle::<4>(input, output),
        8 => fast::unshuffle::<8>(input, output),
        16 => fast::unshuffle::<16>(input, output),
        _ => 0,
    };
    unshuffle_any(item, done, input, output);
}

/// Items of 2, 4, 8 and 16 bytes, 64 at a time; both functions return the number of processed
/// items.
///
/// Sixteen items of N bytes are a 16 x N matrix of bytes in N vector registers; shuffling
/// transposes it. Number all bytes of the registers in order: interleaving the first half of them
/// with the second half moves byte x to 2x (modulo the number of bytes), which rotates the bits of
/// the number by one. The number is (item, byte in item) with 4 + log2(N) bits, so four rotations
/// exchange the two parts, and log2(N) rotations restore them.
#[cfg(target_arch = "x86_64")]
mod fast {
    use std::arch::x86_64::{
        __m128i, _mm_loadu_si128, _mm_storeu_si128, _mm_unpackhi_epi8, _mm_unpacklo_epi8,
    };

    /// Bytes of a register.
    const LANES: usize = 16;
    /// Items processed together: whole cache lines of each plane, because planes are often a power
    /// of two apart and would evict each other from the cache.
    const GROUP: usize = 64;

    #[inline(always)]
    fn load(bytes: &[u8; LANES]) -> __m128i {
        // SAFETY: 16 bytes are readable there; the load requires no alignment.
        unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store(register: __m128i, bytes: &mut [u8; LANES]) {
        // SAFETY: 16 bytes are writable there; the store requires no alignment.
        unsafe { _mm_storeu_si128(bytes.as_mut_ptr().cast(), register) }
    }

    #[inline(always)]
    fn rotated<const N: usize>(mut registers: [__m128i; N], times: u32) -> [__m128i; N] {
        for _ in 0..times {
            let old = registers;
            for i in 0..N / 2 {
                // SAFETY: every x86-64 processor has these instructions; they touch no memory.
                (registers[2 * i], registers[2 * i + 1]) = unsafe {
                    let (low, high) = (old[i], old[i + N / 2]);
                    (_mm_unpacklo_epi8(low, high), _mm_unpackhi_epi8(low, high))
                };
            }
        }
        registers
    }

    pub(super) fn shuffle<const N: usize>(input: &[u8], output: &mut [u8]) -> usize {
        let count = input.len() / N;
        let groups = count / GROUP;
        let mut lines = [[[0u8; LANES]; GROUP / LANES]; N];
        for (g, group) in input.chunks_exact(GROUP * N).enumerate().take(groups) {
            for (k, items) in group.chunks_exact(LANES * N).enumerate() {
                let (parts, _) = items.as_chunks::<LANES>();
                let mut registers = [load(&[0; LANES]); N];
                for (register, part) in registers.iter_mut().zip(parts) {
                    *register = load(part);
                }
                for (line, register) in lines.iter_mut().zip(rotated(registers, 4)) {
                    store(register, &mut line[k]);
                }
            }
            for (byte, line) in lines.iter().enumerate() {
                let at = byte * count + g * GROUP;
                output[at..at + GROUP].copy_from_slice(line.as_flattened());
            }
        }
        groups * GROUP
    }

    pub(super) fn unshuffle<const N: usize>(input: &[u8], output: &mut [u8]) -> usize {
        let count = input.len() / N;
        let groups = count / GROUP;
        let mut lines = [[[0u8; LANES]; GROUP / LANES]; N];
        for (g, group) in output.chunks_exact_mut(GROUP * N).enumerate().take(groups) {
            for (byte, line) in lines.iter_mut().enumerate() {
                let at = byte * count + g * GROUP;
                line.as_flattened_mut().copy_from_slice(&input[at..at + GROUP]);
            }
            for (k, items) in group.chunks_exact_mut(LANES * N).enumerate() {
                let mut registers = [load(&[0; LANES]); N];
                for (register, line) in registers.iter_mut().zip(&lines) {
                    *register = load(&line[k]);
                }
                let (parts, _) = items.as_chunks_mut::<LANES>();
                for (part, register) in parts.iter_mut().zip(rotated(registers, N.ilog2())) {
                    store(register, part);
                }
            }
        }
        groups * GROUP
    }
}

/// On other processors the loops above process all items.
#[cfg(not(target_arch = "x86_64"))]
mod fast {
    pub(super) fn shuffle<const N: usize>(_: &[u8], _: &mut [u8]) -> usize {
        0
    }
    pub(super) fn unshuffle<const N: usize>(_: &[u8], _: &mut [u8]) -> usize {
        0
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

    fn encode(&self, input: &[u8], output: &mut [u8], _context: &mut Context) -> Written {
        self.regroup(shuffle, input, output)
    }

    fn decode(&self, input: &[u8], output: &mut [u8], _context: &mut Context) -> Written {
        self.regroup(unshuffle, input, output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_goes_where_the_definition_says() {
        for item in [1usize, 2, 3, 4, 7, 8, 12, 16, 24] {
            for count in [0usize, 1, 2, 63, 64, 65, 127, 128, 1000] {
                let items: Vec<u8> = (0..item * count)
                    .map(|i| (i as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0])
                    .collect();
                let mut planes = vec![0; items.len()];
                shuffle(item, &items, &mut planes);
                for (i, &byte) in items.iter().enumerate() {
                    assert_eq!(byte, planes[i % item * count + i / item], "{item} {count} {i}");
                }
                let mut back = vec![0; items.len()];
                unshuffle(item, &planes, &mut back);
                assert!(items == back, "{item} {count}");
            }
        }
    }
}
