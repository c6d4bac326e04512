//! Blosc 1 buffers: numcodecs `Blosc`, Zarr v3 `blosc`, HDF5 filter 32001.
//!
//! The C library is called through its context interface: one thread, no global state. Its header
//! (16 bytes: version, inner version, flags, size of an item, then decoded bytes, bytes of a block,
//! encoded bytes as little-endian u32) is checked before the library sees it.

#![allow(unsafe_code)]

use std::ffi::{c_int, CStr};

use blosc_src as sys;

use super::fault::Fault;
use super::spec::CodecSpec;
use super::step::{at_most, promised, Codec, Context, Needs, Written};
use super::zstd;

/// Blosc with one inner compressor and shuffle.
#[derive(Debug)]
pub struct Blosc {
    level: c_int,
    shuffle: c_int,
    item: usize,
    cname: &'static CStr,
    block: usize,
}

/// Largest block that the library chooses.
const LARGEST_BLOCK: usize = 1 << 20;
/// Memory of inner compressors other than Zstandard: `deflateInit` of zlib takes 268 kB, LZ4 HC the
/// same; `inflateInit` takes less than Zstandard's decoder.
const ENCODER: usize = 288 << 10;
/// The library's own state, and the tails of a block's splits.
const STATE: usize = 8 << 10;
const HEADER: usize = sys::BLOSC_MIN_HEADER_LENGTH as usize;
const LARGEST: usize = sys::BLOSC_MAX_BUFFERSIZE as usize;

/// Inner compressors of this build.
const COMPRESSORS: [&CStr; 5] = [c"blosclz", c"lz4", c"lz4hc", c"zlib", c"zstd"];

/// Names of the inner formats, by the number in the header's flags.
const FORMATS: [&str; 8] =
    ["blosclz", "lz4", "snappy", "zlib", "zstd", "number 5", "number 6", "number 7"];
const SNAPPY: usize = 2;

impl Blosc {
    /// Options: `cname` (`lz4`, `lz4hc`, `blosclz`, `zlib`, `zstd`; default `lz4`), `level` (0 to
    /// 9, default 5), `shuffle` (0 none, 1 bytes, 2 bits; default 1), `itemsize` (default 1),
    /// `blocksize` (default 0: chosen by the library).
    pub fn new(spec: &CodecSpec) -> Result<Blosc, Fault> {
        let wanted = spec.get_text("cname", "lz4")?;
        let cname = COMPRESSORS.into_iter().find(|name| name.to_bytes() == wanted.as_bytes());
        let Some(cname) = cname else {
            return Err(Fault::new(format!(
                "inner compressor {wanted:?} is not available here; use blosclz, lz4, lz4hc, \
                 zlib or zstd"
            )));
        };
        let item = spec.get_int("itemsize", 1, 1, i64::from(u32::MAX))? as usize;
        Ok(Blosc {
            cname,
            level: spec.get_int("level", 5, 0, 9)? as c_int,
            shuffle: spec.get_int("shuffle", 1, 0, 2)? as c_int,
            // The library treats larger items as bytes; so does this code, to keep the library from
            // reading further.
            item: if item > sys::BLOSC_MAX_TYPESIZE as usize { 1 } else { item },
            block: spec.get_int("blocksize", 0, 0, i64::from(sys::BLOSC_MAX_BLOCKSIZE))? as usize,
        })
    }
}

/// Checks the header against the input; returns the bytes of the buffer, its decoded size, and the
/// block size.
fn checked(input: &[u8]) -> Result<(&[u8], usize, usize), Fault> {
    let Some((header, _)) = input.split_first_chunk::<HEADER>() else {
        return Err(Fault::new(format!("{} bytes are too short for a header", input.len())));
    };
    let [version, _, flags, item, n0, n1, n2, n3, b0, b1, b2, b3, c0, c1, c2, c3] = *header;
    let decoded = u32::from_le_bytes([n0, n1, n2, n3]) as usize;
    let block = u32::from_le_bytes([b0, b1, b2, b3]) as usize;
    let encoded = u32::from_le_bytes([c0, c1, c2, c3]) as usize;
    if u32::from(version) != sys::BLOSC_VERSION_FORMAT {
        return Err(Fault::new(format!("the header has version {version} instead of 2")));
    }
    let stored = flags & sys::BLOSC_MEMCPYED as u8 != 0;
    let inner = usize::from(flags >> 5);
    if !stored && (inner > 4 || inner == SNAPPY) {
        let name = FORMATS[inner];
        return Err(Fault::new(format!("inner compressor {name} is not available here")));
    }
    if !(HEADER..=input.len()).contains(&encoded) {
        return Err(Fault::new(format!(
            "the header specifies {encoded} bytes of input, {} are stored",
            input.len()
        )));
    }
    if decoded > LARGEST || (decoded > 0 && (block == 0 || block > decoded || item == 0)) {
        return Err(Fault::new(format!(
            "the header specifies {decoded} bytes in blocks of {block}, items of {item}"
        )));
    }
    Ok((&input[..encoded], decoded, block))
}

impl Blosc {
    /// Returns the largest block that the library chooses for `len` bytes.
    ///
    /// Compressors that are good at large blocks get 32 KiB or more, by the level (doubled for
    /// them); the others get one such block for each byte of an item.
    fn own_block(&self, len: usize) -> usize {
        let block = match (self.block, self.level) {
            (0, _) if self.cname == c"blosclz" || self.cname == c"lz4" => LARGEST_BLOCK,
            (0, 0 | 1) => 32 << 10,
            (0, 2) => 64 << 10,
            (0, 3) => 128 << 10,
            (0, 4 | 5) => 256 << 10,
            (0, 6..=8) => 512 << 10,
            (0, _) => LARGEST_BLOCK,
            (forced, _) => forced.max(128),
        };
        block.min(len)
    }

    /// Returns the largest block of `len` bytes that is expected from any writer.
    fn block(&self, len: usize) -> usize {
        self.block.max(LARGEST_BLOCK).min(len)
    }
}

impl Codec for Blosc {
    fn name(&self) -> &'static str {
        "blosc"
    }

    fn bound(&self, len: usize) -> usize {
        len.saturating_add(sys::BLOSC_MAX_OVERHEAD as usize)
    }

    fn encoder(&self, len: usize) -> Needs {
        let block = self.own_block(len);
        let inner = match self.level {
            // The library maps its levels to levels of Zstandard: 1, 3, 5, ... and the highest.
            9 if self.cname == c"zstd" => zstd::encoder_bytes(22, block),
            level if self.cname == c"zstd" => zstd::encoder_bytes((2 * level - 1).max(1), block),
            _ => ENCODER,
        };
        Needs { own: 0, library: block.saturating_mul(2).saturating_add(STATE + inner) }
    }

    fn decoder(&self, len: usize) -> Needs {
        // The input may have been written with any of the inner compressors.
        let inner = zstd::decoder_bytes().max(64 << 10);
        let library = self.block(len).saturating_mul(2).saturating_add(STATE + inner);
        Needs { own: 0, library }
    }

    fn encode(&self, input: &[u8], output: &mut [u8], _context: &mut Context) -> Written {
        at_most(LARGEST, input, "Blosc")?;
        // SAFETY: pointers and lengths are those of two slices that cannot overlap; the name is
        // terminated; the library writes no more than `output.len()` bytes.
        let code = unsafe {
            sys::blosc_compress_ctx(
                self.level,
                self.shuffle,
                self.item,
                input.len(),
                input.as_ptr().cast(),
                output.as_mut_ptr().cast(),
                output.len(),
                self.cname.as_ptr(),
                self.block,
                1,
            )
        };
        match usize::try_from(code) {
            Ok(len) if len >= HEADER && len <= output.len() => Ok(len),
            _ => Err(Fault::new(format!("the library failed with code {code}"))),
        }
    }

    fn decode(&self, input: &[u8], output: &mut [u8], context: &mut Context) -> Written {
        let (input, decoded, block) = checked(input)?;
        let room = output.len();
        // Two blocks; another writer may have chosen unusually large ones.
        let unusual = block.min(room).saturating_sub(self.block(room));
        let _more = context.reserve(unusual.saturating_mul(2))?;
        let output = promised(output, decoded as u64)?;
        if decoded == 0 {
            return Ok(0);
        }
        // SAFETY: `checked` compared the header's sizes with both slices: the library reads at most
        // the encoded size, which is `input.len()`, and writes at most `output.len()` bytes.
        let code = unsafe {
            sys::blosc_decompress_ctx(
                input.as_ptr().cast(),
                output.as_mut_ptr().cast(),
                output.len(),
                1,
            )
        };
        match usize::try_from(code) {
            Ok(len) if len == decoded => Ok(len),
            Ok(len) => Err(Fault::new(format!("{len} bytes were decoded instead of {decoded}"))),
            Err(_) => Err(Fault::new("the buffer is damaged")),
        }
    }
}
