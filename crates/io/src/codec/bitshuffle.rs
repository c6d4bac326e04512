//! Bitshuffle: all first bits of the items of a block, then all second bits, and so on.
//!
//! It is used alone (HDF5 filter 32008), or followed by LZ4 or Zstandard for each block. X-ray
//! detectors write it.
//!
//! A block has some 8 KiB, and a multiple of eight items. Plane `8 * byte + bit` of the block holds
//! that bit of every item, the first of eight items in the lowest bit. Items after the last whole
//! group of eight are stored unchanged. With a compressor, the chunk begins with its size as
//! big-endian u64 and the size of a block in bytes as big-endian u32, and each block with its
//! stored size as big-endian u32.
//!
//! Bytes that are not a whole number of items are not encoded: because the library rejects them,
//! HDF5 skips the filter, and marks that in the mask of the chunk.
//!
//! The sizes in the headers are compared with the output buffer before anything is decoded. If
//! another writer chose an unusually large block, its memory is counted before it is allocated.
//!
//! Source: K. Masui et al., "A compression scheme for radio data in high performance computing",
//! Astronomy and Computing 12 (2015), section 3.2; the format is that of the `bitshuffle` library.

use super::fault::Fault;
use super::lz4;
use super::spec::CodecSpec;
use super::step::{promised, Codec, Context, Needs, Written, ALIGN};
use super::zstd::Zstd;

/// Items that become one byte of each plane.
const EIGHT: usize = 8;
/// Block size that the library aims at, in bytes, and its minimum, in items.
const TARGET: usize = 8192;
const LEAST: usize = 128;
/// Bytes of the header: sizes of the chunk and of a block.
const HEADER: usize = 12;

#[derive(Debug)]
enum Inner {
    None,
    Lz4,
    Zstd(Zstd),
}

/// Bitshuffle for items of one size.
#[derive(Debug)]
pub struct Bitshuffle {
    item: usize,
    /// Bytes of a block.
    block: usize,
    inner: Inner,
}

impl Bitshuffle {
    /// Options: `itemsize`, at least 1; `blocksize`, items in a block, a multiple of 8 (0 or
    /// missing: chosen by the library); `cname` (`lz4`, `zstd`, `none`; default `lz4`); `level` (of
    /// Zstandard).
    pub fn new(spec: &CodecSpec) -> Result<Bitshuffle, Fault> {
        let number = |key: &str, lo: i64| -> Result<usize, Fault> {
            let value = spec.get_int(key, 0, lo, i64::from(u32::MAX))?;
            usize::try_from(value).map_err(|_| Fault::new(format!("option {key} is too large")))
        };
        let item = number("itemsize", 1)?;
        if item == 0 {
            return Err(Fault::new("option itemsize is missing"));
        }
        let inner = match spec.get_text("cname", "lz4")? {
            "none" => Inner::None,
            "lz4" => Inner::Lz4,
            "zstd" => Inner::Zstd(Zstd::new(spec)?),
            other => {
                let why =
                    format!("inner compressor {other:?} is not available; use lz4, zstd or none");
                return Err(Fault::new(why));
            }
        };
        Ok(Bitshuffle { item, block: block_bytes(number("blocksize", 0)?, item)?, inner })
    }

    /// Returns the bytes for the context of the compressor; the memory for blocks follows it.
    fn context(&self, encodes: bool) -> usize {
        let bytes = match &self.inner {
            Inner::Zstd(zstd) if encodes => zstd.encoder(self.block).own,
            Inner::Zstd(zstd) => zstd.decoder(self.block).own,
            Inner::None | Inner::Lz4 => 0,
        };
        bytes.next_multiple_of(ALIGN)
    }

    fn needs(&self, len: usize, encodes: bool) -> Needs {
        let block = match self.inner {
            Inner::None => 0,
            _ => self.block.min(len),
        };
        Needs { own: self.context(encodes).saturating_add(block), library: 0 }
    }

    /// Returns the largest possible output of the compressor for one block.
    fn inner_bound(&self, len: usize) -> usize {
        match &self.inner {
            Inner::None => len,
            Inner::Lz4 => lz4::block_bound(len),
            Inner::Zstd(zstd) => zstd.bound(len),
        }
    }

    /// Returns how many of `len` bytes are in blocks; `None` if they are not a whole number of
    /// items.
    fn in_blocks(&self, len: usize) -> Option<usize> {
        len.is_multiple_of(self.item).then(|| len - len % self.item.saturating_mul(EIGHT))
    }

    /// Returns the same for a stored chunk, with an error for a wrong size.
    fn stored_in_blocks(&self, len: usize) -> Result<usize, Fault> {
        self.in_blocks(len).ok_or_else(|| {
            Fault::new(format!("{len} bytes are not whole items of {} bytes", self.item))
        })
    }

    fn encode_block(&self, block: &[u8], output: &mut [u8], context: &mut Context) -> Written {
        match &self.inner {
            Inner::Zstd(zstd) => zstd.encode(block, output, context),
            _ => lz4::encode_block(block, output).ok_or_else(|| {
                Fault::new(format!("the buffer is too small for a block of {} bytes", block.len()))
            }),
        }
    }

    fn decode_block(
        &self,
        stored: &[u8],
        block: &mut [u8],
        context: &mut Context,
    ) -> Result<(), Fault> {
        let Inner::Zstd(zstd) = &self.inner else { return lz4::decode_block(stored, block) };
        match zstd.decode(stored, block, context)? {
            len if len == block.len() => Ok(()),
            len => Err(Fault::new(format!("a block has {len} bytes instead of {}", block.len()))),
        }
    }
}

/// Returns the bytes of a block of `items` items; 0 means the choice of the library.
fn block_bytes(items: usize, item: usize) -> Result<usize, Fault> {
    let items = match items {
        0 => (TARGET / item / EIGHT * EIGHT).max(LEAST),
        items => items,
    };
    if !items.is_multiple_of(EIGHT) {
        return Err(Fault::new(format!("block size {items} is not a multiple of {EIGHT}")));
    }
    Ok(items.saturating_mul(item))
}

/// Passes the compressor's context, which takes the first `own` bytes, and room for one block to
/// `work`.
fn with_block(
    context: &mut Context,
    own: usize,
    block: usize,
    work: impl FnOnce(&mut Context, &mut [u8]) -> Written,
) -> Written {
    let arena = context.arena;
    let (front, back) = context.memory.split_at_mut(own.min(context.memory.len()));
    let mut inner = Context { memory: front, made: &mut *context.made, arena };
    if let Some(room) = back.get_mut(..block) {
        return work(&mut inner, room);
    }
    let _more = inner.reserve(block)?;
    work(&mut inner, &mut vec![0; block])
}

impl Codec for Bitshuffle {
    fn name(&self) -> &'static str {
        "bitshuffle"
    }

    fn bound(&self, len: usize) -> usize {
        if self.keeps_size() {
            return len;
        }
        let whole = self.inner_bound(self.block).saturating_add(4);
        let rest = self.inner_bound(len % self.block).saturating_add(4 + HEADER);
        (len / self.block).saturating_mul(whole).saturating_add(rest)
    }

    fn keeps_size(&self) -> bool {
        matches!(self.inner, Inner::None)
    }

    fn encoder(&self, len: usize) -> Needs {
        self.needs(len, true)
    }

    fn decoder(&self, len: usize) -> Needs {
        self.needs(len, false)
    }

    fn encode(&self, input: &[u8], output: &mut [u8], context: &mut Context) -> Written {
        let short = || Fault::new("the buffer is too small for the output");
        let (blocks, tail) =
            input.split_at(self.in_blocks(input.len()).ok_or(Fault::Incompressible)?);
        if self.keeps_size() {
            let output = output.get_mut(..input.len()).ok_or_else(short)?;
            let (planes, rest) = output.split_at_mut(blocks.len());
            rest.copy_from_slice(tail);
            for (from, to) in blocks.chunks(self.block).zip(planes.chunks_mut(self.block)) {
                to_planes(self.item, from, to);
            }
            return Ok(input.len());
        }
        let size = u32::try_from(self.block)
            .map_err(|_| Fault::new(format!("blocks of {} bytes are too large", self.block)))?;
        let head = output.get_mut(..HEADER).ok_or_else(short)?;
        head[..8].copy_from_slice(&(input.len() as u64).to_be_bytes());
        head[8..].copy_from_slice(&size.to_be_bytes());
        let largest = self.block.min(blocks.len());
        with_block(context, self.context(true), largest, |context, room| {
            let mut at = HEADER;
            for block in blocks.chunks(self.block) {
                let planes = &mut room[..block.len()];
                to_planes(self.item, block, planes);
                let rest = output.get_mut(at + 4..).ok_or_else(short)?;
                let len = self.encode_block(planes, rest, context)?;
                output[at..at + 4].copy_from_slice(&(len as u32).to_be_bytes());
                at += 4 + len;
            }
            let end = output.get_mut(at..at + tail.len()).ok_or_else(short)?;
            end.copy_from_slice(tail);
            Ok(at + tail.len())
        })
    }

    fn decode(&self, input: &[u8], output: &mut [u8], context: &mut Context) -> Written {
        if self.keeps_size() {
            let output = promised(output, input.len() as u64)?;
            let (planes, tail) = input.split_at(self.stored_in_blocks(input.len())?);
            let (blocks, rest) = output.split_at_mut(planes.len());
            rest.copy_from_slice(tail);
            for (from, to) in planes.chunks(self.block).zip(blocks.chunks_mut(self.block)) {
                from_planes(self.item, from, to);
            }
            return Ok(input.len());
        }
        let mut input = input;
        let total = u64::from_be_bytes(lz4::take::<8>(&mut input)?);
        let size = u32::from_be_bytes(lz4::take::<4>(&mut input)?) as usize;
        let size = block_bytes(size / self.item, self.item)?;
        let output = promised(output, total)?;
        let len = output.len();
        let (blocks, rest) = output.split_at_mut(self.stored_in_blocks(len)?);
        let largest = size.min(blocks.len());
        with_block(context, self.context(false), largest, |context, room| {
            for block in blocks.chunks_mut(size) {
                let stored = u32::from_be_bytes(lz4::take::<4>(&mut input)?) as usize;
                let Some((stored, left)) = input.split_at_checked(stored) else {
                    let left = input.len();
                    let why =
                        format!("a block should have {stored} bytes, but {left} bytes remain");
                    return Err(Fault::new(why));
                };
                input = left;
                let planes = &mut room[..block.len()];
                self.decode_block(stored, planes, context)?;
                from_planes(self.item, planes, block);
            }
            let Some(tail) = input.get(..rest.len()) else {
                let why = format!("{} bytes remain instead of {}", input.len(), rest.len());
                return Err(Fault::new(why));
            };
            rest.copy_from_slice(tail);
            Ok(len)
        })
    }
}

/// Transposes a matrix of 8 x 8 bits, with one byte for each row.
///
/// Source: H. S. Warren, "Hacker's Delight", section 7-3.
fn transposed(mut x: u64) -> u64 {
    for (distance, mask) in
        [(7, 0x00aa_00aa_00aa_00aa), (14, 0x0000_cccc_0000_cccc), (28, 0x0000_0000_f0f0_f0f0)]
    {
        let swapped = (x ^ (x >> distance)) & mask;
        x ^= swapped ^ (swapped << distance);
    }
    x
}

/// Passes common item sizes as constants to `$work`, so that it is compiled for each of them.
macro_rules! for_items {
    ($work:ident, $item:expr, $input:expr, $output:expr) => {
        match $item {
            1 => $work(1, $input, $output),
            2 => $work(2, $input, $output),
            4 => $work(4, $input, $output),
            8 => $work(8, $input, $output),
            item => $work(item, $input, $output),
        }
    };
}

/// Converts whole groups of eight items to bit planes; both slices have the same length.
fn to_planes(item: usize, input: &[u8], output: &mut [u8]) {
    for_items!(spread, item, input, output);
}

/// Inverts [`to_planes`].
fn from_planes(item: usize, input: &[u8], output: &mut [u8]) {
    for_items!(gather, item, input, output);
}

/// Transposes a matrix of 8 x 8 bytes: byte `j` of word `i` becomes byte `i` of word `j`.
fn swapped(mut x: [u64; EIGHT]) -> [u64; EIGHT] {
    for (distance, mask) in
        [(4, 0x0000_0000_ffff_ffff), (2, 0x0000_ffff_0000_ffff), (1, 0x00ff_00ff_00ff_00ff)]
    {
        for low in (0..EIGHT).filter(|i| i & distance == 0) {
            let bytes = ((x[low] >> (8 * distance)) ^ x[low + distance]) & mask;
            x[low + distance] ^= bytes;
            x[low] ^= bytes << (8 * distance);
        }
    }
    x
}

/// Converts at most eight bytes to a word.
fn word(bytes: &[u8]) -> u64 {
    match <[u8; EIGHT]>::try_from(bytes) {
        Ok(whole) => u64::from_le_bytes(whole),
        Err(_) => bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)),
    }
}

/// Converts 64 items at a time: eight bytes of each of the eight planes of a byte.
#[inline(always)]
fn spread(item: usize, input: &[u8], output: &mut [u8]) {
    let columns = input.len() / item / EIGHT;
    for (byte, planes) in output.chunks_exact_mut((EIGHT * columns).max(1)).enumerate() {
        for (group, items) in input.chunks(EIGHT * EIGHT * item).enumerate() {
            let mut x = [0; EIGHT];
            for (x, items) in x.iter_mut().zip(items.chunks_exact(EIGHT * item)) {
                *x =
                    transposed(u64::from_le_bytes(std::array::from_fn(|k| items[k * item + byte])));
            }
            for (plane, x) in planes.chunks_exact_mut(columns).zip(swapped(x)) {
                let bytes = &mut plane[EIGHT * group..];
                match bytes.first_chunk_mut::<EIGHT>() {
                    Some(whole) => *whole = x.to_le_bytes(),
                    None => bytes.copy_from_slice(&x.to_le_bytes()[..bytes.len()]),
                }
            }
        }
    }
}

/// Inverts [`spread`].
#[inline(always)]
fn gather(item: usize, input: &[u8], output: &mut [u8]) {
    let columns = input.len() / item / EIGHT;
    for (byte, planes) in input.chunks_exact((EIGHT * columns).max(1)).enumerate() {
        for (group, items) in output.chunks_mut(EIGHT * EIGHT * item).enumerate() {
            let (first, last) = (EIGHT * group, (EIGHT * group + EIGHT).min(columns));
            let rows = std::array::from_fn(|k| word(&planes[k * columns..][first..last]));
            for (x, items) in swapped(rows).into_iter().zip(items.chunks_exact_mut(EIGHT * item)) {
                for (k, value) in transposed(x).to_le_bytes().into_iter().enumerate() {
                    items[k * item + byte] = value;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Converts bit by bit, as the format is described.
    fn slowly(item: usize, input: &[u8]) -> Vec<u8> {
        let columns = input.len() / item / 8;
        let mut output = vec![0; input.len()];
        for number in 0..8 * columns {
            for bit in 0..8 * item {
                let value = input[number * item + bit / 8] >> (bit % 8) & 1;
                output[bit * columns + number / 8] |= value << (number % 8);
            }
        }
        output
    }

    #[test]
    fn planes_hold_the_bits_of_all_items() {
        for item in [1, 2, 3, 4, 5, 8, 12, 16] {
            for eights in [0, 1, 2, 7, 64] {
                let input: Vec<u8> =
                    (0..8 * eights * item).map(|i| ((i * i * 31) >> 3) as u8).collect();
                let (mut planes, mut back) = (vec![0; input.len()], vec![0; input.len()]);
                to_planes(item, &input, &mut planes);
                assert_eq!(slowly(item, &input), planes, "{item} {eights}");
                from_planes(item, &planes, &mut back);
                assert_eq!(input, back, "{item} {eights}");
            }
        }
    }

    #[test]
    fn blocks_of_another_writer_are_decoded_in_memory_that_is_counted() {
        use crate::codec::{Coder, Pipeline};
        use crate::pool::Arena;

        let spec = |block| CodecSpec::new("bitshuffle").int("itemsize", 4).int("blocksize", block);
        let chunk: Vec<u8> = (0..80_000u32).map(|i| (i / 7) as u8).collect();
        let theirs = Pipeline::new(&[spec(16_384)], chunk.len()).unwrap();
        let mut scratch = vec![0; theirs.encode_scratch()];
        let stored = theirs.encode(&chunk, &mut scratch).unwrap().bytes.to_vec();
        let ours = Pipeline::new(&[spec(0)], chunk.len()).unwrap();
        for (budget, fits) in [(1 << 20, true), (10_000, false)] {
            let arena = Arena::new(budget);
            let mut memory = vec![0; ours.needs(true, false).own];
            let coder = Coder::new(&ours, &mut memory, true, false).unwrap();
            let mut out = vec![0; chunk.len()];
            let done = coder.counting(&arena).decode(&stored, 0, &mut out, &mut []);
            assert_eq!(fits, done.is_ok(), "{done:?}");
            assert!(!fits || out == chunk);
        }
    }
}
