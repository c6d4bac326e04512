//! DEFLATE in zlib framing (`deflate`: HDF5 filter 1, numcodecs `Zlib`) and in gzip framing.
//!
//! libdeflate works on whole buffers and never writes past the output it is given, so a bomb ends
//! in "does not fit". gzip streams may have several members, as Python's `gzip` reads them; what
//! follows a zlib stream is ignored, as zlib does.

use std::cell::RefCell;
use std::ptr::NonNull;

use libdeflate_sys as sys;

use super::{Codec, CodecSpec, Fault};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    Zlib,
    Gzip,
}

/// DEFLATE with one framing and level.
#[derive(Debug)]
pub struct Deflate {
    framing: Framing,
    level: i32,
}

/// Framing (18 bytes for gzip) and the final block.
const FRAME: usize = 32;
/// Tables of libdeflate's decompressor.
const DECODER_BYTES: usize = 16 << 10;
/// The first bytes of a gzip member.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

struct Encoder {
    level: i32,
    raw: NonNull<sys::libdeflate_compressor>,
}

struct Decoder {
    raw: NonNull<sys::libdeflate_decompressor>,
}

thread_local! {
    // Both hold no data between calls, only memory.
    static ENCODER: RefCell<Option<Encoder>> = const { RefCell::new(None) };
    static DECODER: RefCell<Option<Decoder>> = const { RefCell::new(None) };
}

impl Drop for Encoder {
    fn drop(&mut self) {
        // SAFETY: `raw` came from `libdeflate_alloc_compressor` and is freed once.
        unsafe { sys::libdeflate_free_compressor(self.raw.as_ptr()) }
    }
}

impl Drop for Decoder {
    fn drop(&mut self) {
        // SAFETY: `raw` came from `libdeflate_alloc_decompressor` and is freed once.
        unsafe { sys::libdeflate_free_decompressor(self.raw.as_ptr()) }
    }
}

impl Encoder {
    fn new(level: i32) -> Result<Encoder, Fault> {
        // SAFETY: any level may be passed; a null pointer is checked for.
        let raw = NonNull::new(unsafe { sys::libdeflate_alloc_compressor(level) });
        match raw {
            Some(raw) => Ok(Encoder { level, raw }),
            None => Err(Fault::new("no memory for an encoder")),
        }
    }

    fn run(&mut self, framing: Framing, input: &[u8], output: &mut [u8]) -> usize {
        let (from, to) = (input.as_ptr().cast(), output.as_mut_ptr().cast());
        let raw = self.raw.as_ptr();
        // SAFETY: `raw` is a live compressor used by this thread alone; the pointers and lengths
        // are those of two slices that cannot overlap.
        unsafe {
            match framing {
                Framing::Zlib => {
                    sys::libdeflate_zlib_compress(raw, from, input.len(), to, output.len())
                }
                Framing::Gzip => {
                    sys::libdeflate_gzip_compress(raw, from, input.len(), to, output.len())
                }
            }
        }
    }
}

impl Decoder {
    fn new() -> Result<Decoder, Fault> {
        // SAFETY: no arguments; a null pointer is checked for.
        let raw = NonNull::new(unsafe { sys::libdeflate_alloc_decompressor() });
        raw.map(|raw| Decoder { raw }).ok_or_else(|| Fault::new("no memory for a decoder"))
    }

    /// Decode one stream; returns the bytes read and written.
    fn run(
        &mut self,
        framing: Framing,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<(usize, usize), Fault> {
        let (mut read, mut written) = (0usize, 0usize);
        let decode = match framing {
            Framing::Zlib => sys::libdeflate_zlib_decompress_ex,
            Framing::Gzip => sys::libdeflate_gzip_decompress_ex,
        };
        // SAFETY: `raw` is a live decompressor used by this thread alone; the pointers and lengths
        // are those of two slices that cannot overlap; both results outlive the call.
        let code = unsafe {
            decode(
                self.raw.as_ptr(),
                input.as_ptr().cast(),
                input.len(),
                output.as_mut_ptr().cast(),
                output.len(),
                &mut read,
                &mut written,
            )
        };
        if code == sys::libdeflate_result_LIBDEFLATE_SUCCESS {
            Ok((read.min(input.len()), written.min(output.len())))
        } else if code == sys::libdeflate_result_LIBDEFLATE_INSUFFICIENT_SPACE {
            Err(Fault::new(format!("the stream decodes to more than {} bytes", output.len())))
        } else {
            Err(Fault::new(format!("{} bytes of input are damaged or cut off", input.len())))
        }
    }
}

impl Deflate {
    /// zlib framing. Options: `level`, 0 to 12 or -1, default 6; above 9 means "slower and
    /// smaller than zlib".
    pub fn zlib(spec: &CodecSpec) -> Result<Deflate, Fault> {
        Deflate::new(spec, Framing::Zlib)
    }

    /// gzip framing, same options.
    pub fn gzip(spec: &CodecSpec) -> Result<Deflate, Fault> {
        Deflate::new(spec, Framing::Gzip)
    }

    fn new(spec: &CodecSpec, framing: Framing) -> Result<Deflate, Fault> {
        let level = spec.get_int("level", -1, -1, 12)?;
        let level = if level < 0 { 6 } else { level as i32 };
        Ok(Deflate { framing, level })
    }
}

impl Codec for Deflate {
    fn name(&self) -> &'static str {
        match self.framing {
            Framing::Zlib => "deflate",
            Framing::Gzip => "gzip",
        }
    }

    fn bound(&self, len: usize) -> usize {
        // libdeflate falls back to stored blocks of at least 5000 bytes with 5 bytes each.
        len.saturating_add((len / 5000).saturating_add(1) * 5).saturating_add(FRAME)
    }

    fn context_bytes(&self, _len: usize) -> usize {
        DECODER_BYTES + if self.level > 9 { 10 << 20 } else { 1 << 20 }
    }

    fn encode(&self, input: &[u8], output: &mut [u8]) -> Result<usize, Fault> {
        ENCODER.with_borrow_mut(|slot| {
            let encoder = match slot {
                Some(encoder) if encoder.level == self.level => encoder,
                other => other.insert(Encoder::new(self.level)?),
            };
            match encoder.run(self.framing, input, output) {
                0 => Err(Fault::new(format!(
                    "{} bytes do not fit in {} when encoded",
                    input.len(),
                    output.len()
                ))),
                len => Ok(len),
            }
        })
    }

    fn decode(&self, input: &[u8], output: &mut [u8]) -> Result<usize, Fault> {
        DECODER.with_borrow_mut(|slot| {
            let decoder = match slot {
                Some(decoder) => decoder,
                None => slot.insert(Decoder::new()?),
            };
            let (mut read, mut written) = decoder.run(self.framing, input, output)?;
            while self.framing == Framing::Gzip && input[read..].starts_with(&GZIP_MAGIC) {
                let (more_read, more_written) =
                    decoder.run(self.framing, &input[read..], &mut output[written..])?;
                read += more_read;
                written += more_written;
            }
            Ok(written)
        })
    }
}
