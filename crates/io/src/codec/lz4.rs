//! LZ4 blocks, in two framings.
//!
//! * `lz4` (numcodecs): size of the chunk as little-endian u32, then one block.
//! * `lz4hdf5` (HDF5 filter 32004): size of the chunk as big-endian u64, size of a block as
//!   big-endian u32, then for each block its stored size as big-endian u32 and its bytes; a block
//!   that cannot be made smaller is stored unchanged.
//!
//! The sizes are compared with the output buffer before anything is decoded. The encoder's table
//! is on its stack.

#![allow(unsafe_code)]

use std::ffi::c_int;

use lz4_sys as sys;

use super::fault::Fault;
use super::spec::CodecSpec;
use super::step::{at_most, promised, Codec, Context, Written};

/// Largest block that LZ4 accepts (`LZ4_MAX_INPUT_SIZE`).
const LARGEST: usize = 0x7e00_0000;

/// Returns the largest possible output of LZ4 for `len` bytes (`LZ4_compressBound`).
pub(super) fn block_bound(len: usize) -> usize {
    len.saturating_add(len / 255).saturating_add(16)
}

/// Encodes one block; `None` if it does not fit in `output`.
pub(super) fn encode_block(input: &[u8], output: &mut [u8]) -> Option<usize> {
    let from = c_int::try_from(input.len()).ok()?;
    let room = c_int::try_from(output.len()).unwrap_or(c_int::MAX);
    // SAFETY: pointers and lengths are those of two slices that cannot overlap (`room` is no more
    // than the length of the output); the library writes at most `room` bytes.
    let code = unsafe {
        sys::LZ4_compress_default(input.as_ptr().cast(), output.as_mut_ptr().cast(), from, room)
    };
    usize::try_from(code).ok().filter(|&len| len > 0)
}

/// Decodes one block that must fill `output`.
pub(super) fn decode_block(input: &[u8], output: &mut [u8]) -> Result<(), Fault> {
    let sizes = c_int::try_from(input.len()).ok().zip(c_int::try_from(output.len()).ok());
    let Some((from, room)) = sizes else {
        return Err(Fault::new(format!("a block of {} bytes is too large", output.len())));
    };
    // SAFETY: pointers and lengths are those of two slices that cannot overlap; this function of
    // the library reads and writes only inside them, whatever the input.
    let code = unsafe {
        sys::LZ4_decompress_safe(input.as_ptr().cast(), output.as_mut_ptr().cast(), from, room)
    };
    match usize::try_from(code) {
        Ok(len) if len == output.len() => Ok(()),
        Ok(len) => Err(Fault::new(format!("a block has {len} bytes instead of {room}"))),
        Err(_) => Err(Fault::new(format!("a block is damaged, or has more than {room} bytes"))),
    }
}

/// LZ4 in the framing of numcodecs.
#[derive(Debug)]
pub struct Lz4;

impl Lz4 {
    /// Option `level` (numcodecs' "acceleration") is accepted and has no effect.
    pub fn new(_spec: &CodecSpec) -> Result<Lz4, Fault> {
        Ok(Lz4)
    }
}

impl Codec for Lz4 {
    fn name(&self) -> &'static str {
        "lz4"
    }

    fn bound(&self, len: usize) -> usize {
        block_bound(len).saturating_add(4)
    }

    fn encode(&self, input: &[u8], output: &mut [u8], _context: &mut Context) -> Written {
        at_most(LARGEST, input, "LZ4")?;
        let Some((head, rest)) = output.split_first_chunk_mut::<4>() else {
            return Err(Fault::new("the buffer is too small for the header"));
        };
        *head = (input.len() as u32).to_le_bytes();
        let room = rest.len();
        let short = || Fault::new(format!("{} bytes do not fit in {room}", input.len()));
        Ok(4 + encode_block(input, rest).ok_or_else(short)?)
    }

    fn decode(&self, input: &[u8], output: &mut [u8], _context: &mut Context) -> Written {
        let Some((head, rest)) = input.split_first_chunk::<4>() else {
            return Err(Fault::new(format!("{} bytes are too short for a header", input.len())));
        };
        let output = promised(output, u32::from_le_bytes(*head).into())?;
        decode_block(rest, output)?;
        Ok(output.len())
    }
}

/// LZ4 in the framing of HDF5.
#[derive(Debug)]
pub struct Lz4Hdf5 {
    block: usize,
}

/// Largest block of the HDF5 plug-in, and its default.
const HDF5_BLOCK: i64 = 1 << 30;

impl Lz4Hdf5 {
    /// Options: `blocksize`, bytes; 0 or missing: one block per chunk, up to 1 GiB.
    pub fn new(spec: &CodecSpec) -> Result<Lz4Hdf5, Fault> {
        let block = spec.get_int("blocksize", 0, 0, HDF5_BLOCK)?;
        Ok(Lz4Hdf5 { block: if block == 0 { HDF5_BLOCK } else { block } as usize })
    }
}

/// Takes the next bytes of a header.
pub(super) fn take<const N: usize>(input: &mut &[u8]) -> Result<[u8; N], Fault> {
    let Some((head, rest)) = input.split_first_chunk::<N>() else {
        return Err(Fault::new("the input ends inside a header"));
    };
    *input = rest;
    Ok(*head)
}

impl Codec for Lz4Hdf5 {
    fn name(&self) -> &'static str {
        "lz4hdf5"
    }

    fn bound(&self, len: usize) -> usize {
        let blocks = len / self.block + 1;
        len.saturating_add(12 + 4 * blocks)
    }

    fn encode(&self, input: &[u8], output: &mut [u8], _context: &mut Context) -> Written {
        let short = || Fault::new("the buffer is too small for the output");
        // As in the plug-in, no block is larger than the chunk.
        let size = self.block.min(input.len()).max(1);
        let head = output.get_mut(..12).ok_or_else(short)?;
        head[..8].copy_from_slice(&(input.len() as u64).to_be_bytes());
        head[8..].copy_from_slice(&(size as u32).to_be_bytes());
        let mut at = 12;
        for block in input.chunks(size) {
            let room = output.get_mut(at + 4..).ok_or_else(short)?;
            // Only a smaller block is useful, so the encoder gets no more room.
            let smaller = room.get_mut(..block.len() - 1).ok_or_else(short)?;
            let len = match encode_block(block, smaller) {
                Some(len) => len,
                None => {
                    room.get_mut(..block.len()).ok_or_else(short)?.copy_from_slice(block);
                    block.len()
                }
            };
            output[at..at + 4].copy_from_slice(&(len as u32).to_be_bytes());
            at += 4 + len;
        }
        Ok(at)
    }

    fn decode(&self, input: &[u8], output: &mut [u8], _context: &mut Context) -> Written {
        let mut input = input;
        let total = u64::from_be_bytes(take::<8>(&mut input)?);
        let block = u32::from_be_bytes(take::<4>(&mut input)?) as usize;
        let output = promised(output, total)?;
        if block == 0 {
            return Err(Fault::new("the header specifies blocks of 0 bytes"));
        }
        for part in output.chunks_mut(block) {
            let len = u32::from_be_bytes(take::<4>(&mut input)?) as usize;
            let Some((stored, rest)) = input.split_at_checked(len) else {
                return Err(Fault::new(format!(
                    "a block should have {len} bytes, but {} bytes remain",
                    input.len()
                )));
            };
            input = rest;
            if len == part.len() {
                part.copy_from_slice(stored);
            } else {
                decode_block(stored, part)?;
            }
        }
        Ok(output.len())
    }
}
