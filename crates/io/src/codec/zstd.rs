//! Zstandard: one frame per chunk, the size of the content in its header, a checksum on request.
//!
//! Decoding takes any number of frames, with or without sizes and checksums. It works straight
//! between the two buffers, so that the window that a frame asks for is never allocated.

use std::cell::RefCell;

use ::zstd::zstd_safe::{self, CCtx, CParameter, DCtx};

use super::{Codec, CodecSpec, Fault};

/// Zstandard with one level.
#[derive(Debug)]
pub struct Zstd {
    level: i32,
    checksum: bool,
}

thread_local! {
    // Both hold no data between calls, only memory and, in the encoder, parameters, which `encode`
    // sets anew each time.
    static ENCODER: RefCell<Option<CCtx<'static>>> = const { RefCell::new(None) };
    static DECODER: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
}

/// log2 of the chain and hash tables of level 0 (which means 3) to 22 for large inputs, from the
/// library's table of default parameters.
const TABLES: [(u32, u32); 23] = [
    (16, 17),
    (13, 14),
    (15, 16),
    (16, 17),
    (18, 18),
    (18, 19),
    (18, 19),
    (19, 20),
    (19, 20),
    (20, 21),
    (21, 22),
    (21, 22),
    (22, 23),
    (22, 22),
    (22, 23),
    (23, 23),
    (22, 22),
    (23, 22),
    (23, 22),
    (24, 22),
    (25, 23),
    (26, 24),
    (27, 25),
];

/// What the contexts take whatever the level: entropy tables, literals and sequences of one block,
/// the optimal parser's arrays.
const BASE_BYTES: usize = 3 << 20;

/// The most memory that the library takes to encode `len` bytes at a level, and to decode.
pub(super) fn context_bytes(level: i32, len: usize) -> usize {
    let (chain, hash) = TABLES[level.clamp(1, 22) as usize];
    // The library makes tables smaller for small inputs.
    let fit = len.max(1 << 14).saturating_mul(4);
    let entries = (1usize << chain).min(fit) + (1usize << hash).min(fit);
    BASE_BYTES + 6 * entries
}

/// Encoders larger than this (high levels, for which encoding takes long anyway) are not kept for
/// the next chunk.
const KEEP: usize = 16 << 20;

fn fault(code: usize) -> Fault {
    Fault::new(zstd_safe::get_error_name(code).to_lowercase())
}

impl Zstd {
    /// Options: `level` (-131072 to 22, default 3), `checksum` (0 or 1, default 0).
    pub fn new(spec: &CodecSpec) -> Result<Zstd, Fault> {
        Ok(Zstd {
            level: spec.get_int("level", 3, -131_072, 22)? as i32,
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

    fn context_bytes(&self, len: usize) -> usize {
        context_bytes(self.level, len)
    }

    fn encode(&self, input: &[u8], output: &mut [u8]) -> Result<usize, Fault> {
        ENCODER.with_borrow_mut(|slot| {
            let context = match slot {
                Some(context) => context,
                None => slot.insert(
                    CCtx::try_create().ok_or_else(|| Fault::new("no memory for an encoder"))?,
                ),
            };
            context.set_parameter(CParameter::CompressionLevel(self.level)).map_err(fault)?;
            context.set_parameter(CParameter::ChecksumFlag(self.checksum)).map_err(fault)?;
            let len = context.compress2(output, input).map_err(fault);
            if context.sizeof() > KEEP {
                *slot = None;
            }
            len
        })
    }

    fn decode(&self, input: &[u8], output: &mut [u8]) -> Result<usize, Fault> {
        DECODER.with_borrow_mut(|slot| {
            let context = match slot {
                Some(context) => context,
                None => slot.insert(
                    DCtx::try_create().ok_or_else(|| Fault::new("no memory for a decoder"))?,
                ),
            };
            context.decompress(output, input).map_err(fault)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_stay_below_what_is_promised() {
        for level in [-5, 1, 3, 6, 9, 12, 15, 19, 22] {
            for len in [0usize, 1000, 300_000, 4 << 20] {
                let codec = Zstd { level, checksum: false };
                let input: Vec<u8> = (0..len).map(|i| ((i * i) >> 7) as u8).collect();
                let mut output = vec![0; codec.bound(len)];
                ENCODER.with_borrow_mut(|slot| *slot = None);
                codec.encode(&input, &mut output).unwrap();
                let promised = codec.context_bytes(len);
                let kept = ENCODER.with_borrow(|slot| slot.as_ref().map_or(0, CCtx::sizeof));
                assert!(kept <= promised.min(KEEP), "level {level}, {len} bytes: {kept}");
                let mut context = CCtx::create();
                context.compress(&mut output[..], &input, level).unwrap();
                let used = context.sizeof();
                assert!(used <= promised, "level {level}, {len} bytes: {used} > {promised}");
            }
        }
    }
}
