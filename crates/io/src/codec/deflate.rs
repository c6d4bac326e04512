//! DEFLATE in zlib framing (`deflate`: HDF5 filter 1, numcodecs `Zlib`), in gzip framing, and
//! without framing (a member of a zip file, see [`zip`](super::zip)).
//!
//! libdeflate works on whole buffers and never writes past the end of the output, so a
//! decompression bomb ends in an error. gzip streams may have several members, which are read as by
//! Python's `gzip`; bytes after a zlib stream are ignored, as zlib does.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::c_void;

use libdeflate_sys as sys;

use super::fault::Fault;
use super::spec::CodecSpec;
use super::step::{Codec, Context, Needs, Written};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    Zlib,
    Gzip,
    Bare,
}

/// DEFLATE with one framing and level.
#[derive(Debug)]
pub struct Deflate {
    framing: Framing,
    level: i32,
}

/// Bytes of framing (18 for gzip) and the final block.
const FRAME: usize = 32;
/// The first bytes of a gzip member.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

thread_local! {
    /// Memory for the context that is being made, and the bytes that it took or would have taken.
    static PLACE: Cell<(*mut u8, usize)> = const { Cell::new((std::ptr::null_mut(), 0)) };
}

/// Allocation function for libdeflate, called once for a context.
unsafe extern "C" fn take(bytes: usize) -> *mut c_void {
    let (place, room) = PLACE.get();
    PLACE.set((std::ptr::null_mut(), bytes));
    if bytes <= room {
        place.cast()
    } else {
        std::ptr::null_mut()
    }
}

/// Release function for libdeflate: the memory belongs to the caller, so nothing is released.
unsafe extern "C" fn leave(_: *mut c_void) {}

/// Lets libdeflate make a context in `memory`; returns its result and the requested bytes.
fn made_in<T>(
    memory: &mut [u8],
    make: impl FnOnce(*const sys::libdeflate_options) -> *mut T,
) -> (*mut T, usize) {
    let options = sys::libdeflate_options {
        sizeof_options: size_of::<sys::libdeflate_options>(),
        malloc_func: Some(take),
        free_func: Some(leave),
    };
    PLACE.set((memory.as_mut_ptr(), memory.len()));
    let raw = make(&options);
    (raw, PLACE.replace((std::ptr::null_mut(), 0)).1)
}

/// Makes the context of an encoder in `memory`; returns it and its bytes.
fn encoder_in(memory: &mut [u8], level: i32) -> (*mut sys::libdeflate_compressor, usize) {
    // SAFETY: any level may be passed; the options are valid for the call, and the memory comes
    // from `take`, which returns it once, or nothing.
    made_in(memory, |options| unsafe { sys::libdeflate_alloc_compressor_ex(level, options) })
}

/// Makes the context of a decoder in `memory`; returns it and its bytes.
fn decoder_in(memory: &mut [u8]) -> (*mut sys::libdeflate_decompressor, usize) {
    // SAFETY: as in `encoder_in`.
    made_in(memory, |options| unsafe { sys::libdeflate_alloc_decompressor_ex(options) })
}

/// Decodes one stream; returns the bytes read and written.
///
/// # Safety
/// `raw` is a live decompressor without other users.
unsafe fn decode_one(
    raw: *mut sys::libdeflate_decompressor,
    framing: Framing,
    input: &[u8],
    output: &mut [u8],
) -> Result<(usize, usize), Fault> {
    let (mut read, mut written) = (0usize, 0usize);
    let decode = match framing {
        Framing::Zlib => sys::libdeflate_zlib_decompress_ex,
        Framing::Gzip => sys::libdeflate_gzip_decompress_ex,
        Framing::Bare => sys::libdeflate_deflate_decompress_ex,
    };
    let (from, to) = (input.as_ptr().cast(), output.as_mut_ptr().cast());
    // SAFETY: the caller's promise; the pointers and lengths are those of two slices that cannot
    // overlap; both results outlive the call.
    let code = unsafe { decode(raw, from, input.len(), to, output.len(), &mut read, &mut written) };
    if code == sys::libdeflate_result_LIBDEFLATE_SUCCESS {
        Ok((read.min(input.len()), written.min(output.len())))
    } else if code == sys::libdeflate_result_LIBDEFLATE_INSUFFICIENT_SPACE {
        Err(Fault::new(format!("the stream decodes to more than {} bytes", output.len())))
    } else {
        Err(Fault::new(format!("{} bytes of input are damaged or cut off", input.len())))
    }
}

/// Computes the checksum of gzip and zip.
pub(super) fn crc32(data: &[u8]) -> u32 {
    // SAFETY: the pointer and the length are those of a slice.
    unsafe { sys::libdeflate_crc32(0, data.as_ptr().cast(), data.len()) }
}

impl Deflate {
    /// zlib framing. Options: `level`, 0 to 12 or -1, default 6; levels above 9 are slower than
    /// zlib and make smaller streams.
    pub fn zlib(spec: &CodecSpec) -> Result<Deflate, Fault> {
        Deflate::new(spec, Framing::Zlib)
    }

    /// gzip framing, with the same options.
    pub fn gzip(spec: &CodecSpec) -> Result<Deflate, Fault> {
        Deflate::new(spec, Framing::Gzip)
    }

    /// No framing, with the same options.
    pub(super) fn bare(spec: &CodecSpec) -> Result<Deflate, Fault> {
        Deflate::new(spec, Framing::Bare)
    }

    /// Decodes the stream at the front of `input`; returns the bytes read and written.
    pub(super) fn decode_front(
        &self,
        input: &[u8],
        output: &mut [u8],
        context: &mut Context,
    ) -> Result<(usize, usize), Fault> {
        let raw = context.get(|memory| decoder_in(memory).0)?;
        // SAFETY: `raw` is a decompressor made above, now or for an earlier chunk, in memory that
        // no other code has touched since.
        unsafe { decode_one(raw, self.framing, input, output) }
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
            Framing::Bare => "zip",
        }
    }

    fn bound(&self, len: usize) -> usize {
        // libdeflate falls back to stored blocks of at least 5000 bytes with 5 bytes each.
        len.saturating_add((len / 5000).saturating_add(1) * 5).saturating_add(FRAME)
    }

    fn encoder(&self, _len: usize) -> Needs {
        Needs { own: encoder_in(&mut [], self.level).1, library: 0 }
    }

    fn decoder(&self, _len: usize) -> Needs {
        Needs { own: decoder_in(&mut []).1, library: 0 }
    }

    fn encode(&self, input: &[u8], output: &mut [u8], context: &mut Context) -> Written {
        let raw = context.get(|memory| encoder_in(memory, self.level).0)?;
        let encode = match self.framing {
            Framing::Zlib => sys::libdeflate_zlib_compress,
            Framing::Gzip => sys::libdeflate_gzip_compress,
            Framing::Bare => sys::libdeflate_deflate_compress,
        };
        let (from, to) = (input.as_ptr().cast(), output.as_mut_ptr().cast());
        // SAFETY: `raw` is a compressor made above, now or for an earlier chunk, in memory that no
        // other code has touched since; the pointers and lengths are those of two slices that
        // cannot overlap.
        match unsafe { encode(raw, from, input.len(), to, output.len()) } {
            0 => Err(Fault::new(format!(
                "{} bytes do not fit in {} when encoded",
                input.len(),
                output.len()
            ))),
            len => Ok(len),
        }
    }

    fn decode(&self, input: &[u8], output: &mut [u8], context: &mut Context) -> Written {
        let mut one = |input: &[u8], output: &mut [u8]| self.decode_front(input, output, context);
        let (mut read, mut written) = one(input, output)?;
        while self.framing == Framing::Gzip && input[read..].starts_with(&GZIP_MAGIC) {
            let (more_read, more_written) = one(&input[read..], &mut output[written..])?;
            read += more_read;
            written += more_written;
        }
        Ok(written)
    }
}
