//! Zstandard: one frame per chunk, the size of the content in its header, a checksum on request.
//!
//! Decoding accepts any number of frames, with or without sizes and checksums. It works directly
//! between the two buffers, so the window that a frame requests is never allocated.

#![allow(unsafe_code)]

use ::zstd::zstd_safe::{self, zstd_sys as sys};

use super::fault::Fault;
use super::spec::CodecSpec;
use super::step::{Codec, Context, Needs, Written};

/// Zstandard with one level.
#[derive(Debug)]
pub struct Zstd {
    level: i32,
    checksum: bool,
}

/// Sizes from which on the library uses other parameters for the same level.
const TIERS: [usize; 3] = [16 << 10, 128 << 10, 256 << 10];

/// Returns the memory that the library needs to encode at most `len` bytes at a level.
///
/// The library computes it for exactly these sizes. Short inputs of one tier may need more than
/// long ones of the next.
pub(super) fn encoder_bytes(level: i32, len: usize) -> usize {
    let sizes = TIERS.into_iter().filter(|&tier| tier < len).chain([len.max(1)]);
    // SAFETY: functions of plain numbers.
    let bytes = sizes.map(|len| unsafe {
        sys::ZSTD_estimateCCtxSize_usingCParams(sys::ZSTD_getCParams(level, len as u64, 0))
    });
    bytes.max().unwrap_or(0)
}

/// Returns the memory that the library needs to decode.
pub(super) fn decoder_bytes() -> usize {
    // SAFETY: no arguments.
    unsafe { sys::ZSTD_estimateDCtxSize() }
}

/// Converts the library's return value: a number of bytes, or an error.
fn checked(code: usize) -> Result<usize, Fault> {
    // SAFETY: a function of a plain number.
    match unsafe { sys::ZSTD_isError(code) } {
        0 => Ok(code),
        _ => Err(Fault::new(zstd_safe::get_error_name(code).to_lowercase())),
    }
}

impl Zstd {
    /// Options: `level` (-131072 to 22, default 3; 0 means the default), `checksum` (0 or 1,
    /// default 0).
    pub fn new(spec: &CodecSpec) -> Result<Zstd, Fault> {
        let level = spec.get_int("level", 3, -131_072, 22)? as i32;
        Ok(Zstd {
            // The library uses 0 for its default.
            level: if level == 0 { 3 } else { level },
            checksum: spec.get_int("checksum", 0, 0, 1)? == 1,
        })
    }
}

impl Codec for Zstd {
    fn name(&self) -> &'static str {
        "zstd"
    }

    fn bound(&self, len: usize) -> usize {
        // ZSTD_COMPRESSBOUND, and the checksum.
        let margin = if len < 128 << 10 { ((128 << 10) - len) >> 11 } else { 0 };
        len.saturating_add(len >> 8).saturating_add(margin + 4)
    }

    fn encoder(&self, len: usize) -> Needs {
        Needs { own: encoder_bytes(self.level, len), library: 0 }
    }

    fn decoder(&self, _len: usize) -> Needs {
        Needs { own: decoder_bytes(), library: 0 }
    }

    fn encode(&self, input: &[u8], output: &mut [u8], context: &mut Context) -> Written {
        // SAFETY: the library gets memory that is borrowed from now on, and checks that it is
        // aligned and large enough. Only the reset sets parameters to their defaults there, for
        // example that frames store the length of their content.
        let raw = context.get(|memory| unsafe {
            let raw = sys::ZSTD_initStaticCCtx(memory.as_mut_ptr().cast(), memory.len());
            if !raw.is_null() {
                sys::ZSTD_CCtx_reset(
                    raw,
                    sys::ZSTD_ResetDirective::ZSTD_reset_session_and_parameters,
                );
            }
            raw
        })?;
        let (level, sum) = (sys::ZSTD_cParameter::ZSTD_c_compressionLevel, self.checksum.into());
        let checksum = sys::ZSTD_cParameter::ZSTD_c_checksumFlag;
        // SAFETY: `raw` is a context made above, now or for an earlier chunk, in memory that no
        // other code has touched since; the pointers and lengths are those of two slices that
        // cannot overlap.
        unsafe {
            checked(sys::ZSTD_CCtx_setParameter(raw, level, self.level))?;
            checked(sys::ZSTD_CCtx_setParameter(raw, checksum, sum))?;
            let (to, from) = (output.as_mut_ptr().cast(), input.as_ptr().cast());
            checked(sys::ZSTD_compress2(raw, to, output.len(), from, input.len()))
        }
    }

    fn decode(&self, input: &[u8], output: &mut [u8], context: &mut Context) -> Written {
        // SAFETY: as in `encode`.
        let raw = context.get(|memory| unsafe {
            sys::ZSTD_initStaticDCtx(memory.as_mut_ptr().cast(), memory.len())
        })?;
        let (to, from) = (output.as_mut_ptr().cast(), input.as_ptr().cast());
        // SAFETY: as in `encode`.
        checked(unsafe { sys::ZSTD_decompressDCtx(raw, to, output.len(), from, input.len()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(codec: &Zstd, input: &[u8], memory: &mut [u8]) -> Result<Vec<u8>, Fault> {
        let mut output = vec![0; codec.bound(input.len())];
        let mut context = Context { memory, made: &mut None, arena: None };
        let len = codec.encode(input, &mut output, &mut context)?;
        // Once more, with the state that the first call left in the context.
        assert_eq!(Ok(len), codec.encode(input, &mut output, &mut context));
        output.truncate(len);
        Ok(output)
    }

    #[test]
    fn the_memory_is_enough_and_not_much_more_than_that() {
        let lens = [0, 1, 1000, 16_384, 16_385, 40_000, 131_073, 262_145, 300_000, 4 << 20];
        for level in -3..=22 {
            let lens = lens.iter().filter(|&&len| len < 1 << 20 || level % 5 == 2);
            for &len in lens {
                let codec = Zstd { level, checksum: false };
                let input: Vec<u8> = (0..len).map(|i| ((i * i) >> 7) as u8).collect();
                let needs = codec.encoder(len).own;
                let mut memory = vec![0u64; needs.div_ceil(8)];
                // SAFETY: the vector's own bytes.
                let memory = unsafe {
                    std::slice::from_raw_parts_mut(memory.as_mut_ptr().cast::<u8>(), needs)
                };
                let stored = encoded(&codec, &input, memory).unwrap();
                // As HDF5's filter requires.
                let told = zstd_safe::get_frame_content_size(&stored);
                assert_eq!(Ok(Some(len as u64)), told.map_err(|_| "no frame"));
                // A shorter input, which the library may treat differently, fits as well.
                encoded(&codec, &input[..len / 3], memory).unwrap();
                // With less memory the library fails: it allocates no other memory.
                let little = &mut memory[..(needs / 4) & !7];
                assert!(len < 40_000 || encoded(&codec, &input, little).is_err(), "{level}, {len}");
                let mut free = zstd_safe::CCtx::create();
                free.compress(&mut vec![0; codec.bound(len)][..], &input, level).unwrap();
                let used = free.sizeof();
                let told = format!("level {level}, {len} bytes: {used} of {needs}");
                assert!(used <= needs && needs <= 2 * used + (128 << 10), "{told}");
                let mut back = vec![0; len];
                let mut context =
                    Context { memory: &mut vec![0; decoder_bytes()], made: &mut None, arena: None };
                assert_eq!(Ok(len), codec.decode(&stored, &mut back, &mut context));
                assert_eq!(input, back);
            }
        }
    }

    #[test]
    fn level_0_is_level_3() {
        let codec = Zstd::new(&CodecSpec::new("zstd").int("level", 0)).unwrap();
        assert_eq!(3, codec.level);
    }
}
