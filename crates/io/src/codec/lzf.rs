//! LZF (liblzf), as h5py's built-in filter 32000 stores it: the bare stream, no header.
//!
//! A control byte below 32 is followed by that number plus one of literal bytes. Any other begins a
//! match: its high three bits are the length minus two (7: another byte adds to it), its low five
//! bits and the next byte the distance minus one. A chunk that cannot be made smaller is stored
//! without the filter, and its mask marks that; that is `Fault::Incompressible`.
//!
//! Implemented here because the crates for it allocate as many bytes as the stream claims.
//!
//! Reference: Marc Lehmann, liblzf; `lzf_filter.c` in h5py.

#![allow(unsafe_code)]

use super::fault::Fault;
use super::step::{Codec, Context, Needs, Written};

/// The LZF codec; it has no options.
#[derive(Debug)]
pub struct Lzf;

const HASH_BITS: u32 = 14;
/// Position plus one of the last bytes with a hash; 0 if there are none.
type Table = [u32; 1 << HASH_BITS];
const LONGEST_LITERAL: usize = 32;
const LONGEST_MATCH: usize = 264;
const FARTHEST: usize = 1 << 13;

/// Output under construction; a write past its end fails.
struct Writer<'a> {
    output: &'a mut [u8],
    at: usize,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        let to = self.output.get_mut(self.at..self.at.checked_add(bytes.len())?)?;
        to.copy_from_slice(bytes);
        self.at += bytes.len();
        Some(())
    }

    fn literals(&mut self, bytes: &[u8]) -> Option<()> {
        for run in bytes.chunks(LONGEST_LITERAL) {
            self.put(&[run.len() as u8 - 1])?;
            self.put(run)?;
        }
        Some(())
    }

    fn matched(&mut self, distance: usize, len: usize) -> Option<()> {
        let (len, distance) = (len - 2, distance - 1);
        let high = (distance >> 8) as u8;
        if len < 7 {
            self.put(&[(len as u8) << 5 | high])?;
        } else {
            self.put(&[7 << 5 | high, (len - 7) as u8])?;
        }
        self.put(&[distance as u8])
    }
}

fn hash(bytes: &[u8]) -> usize {
    let word = u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]);
    (word.wrapping_mul(2_654_435_761) >> (32 - HASH_BITS)) as usize
}

/// Compresses into fewer than `output.len()` bytes; `None` if they do not fit.
fn compress(input: &[u8], output: &mut [u8], table: &mut Table) -> Option<usize> {
    table.fill(0);
    let mut writer = Writer { output, at: 0 };
    let (mut at, mut literal) = (0usize, 0usize);
    while at + 2 < input.len() {
        let slot = &mut table[hash(&input[at..])];
        let candidate = (*slot as usize).checked_sub(1);
        *slot = u32::try_from(at + 1).ok()?;
        let found =
            candidate.filter(|&c| at - c <= FARTHEST && input[c..c + 3] == input[at..at + 3]);
        let Some(start) = found else {
            at += 1;
            continue;
        };
        let longest = LONGEST_MATCH.min(input.len() - at);
        let same = input[start..].iter().zip(&input[at..at + longest]);
        let len = same.take_while(|(a, b)| a == b).count();
        writer.literals(&input[literal..at])?;
        writer.matched(at - start, len)?;
        at += len;
        literal = at;
    }
    writer.literals(&input[literal..])?;
    Some(writer.at)
}

fn take(input: &mut &[u8]) -> Result<usize, Fault> {
    let Some((&byte, rest)) = input.split_first() else {
        return Err(Fault::new("the stream ends inside a match"));
    };
    *input = rest;
    Ok(usize::from(byte))
}

fn decompress(mut input: &[u8], output: &mut [u8]) -> Result<usize, Fault> {
    let room = output.len();
    let full = || Fault::new(format!("the stream decodes to more than {room} bytes"));
    let mut at = 0;
    while let Some((&control, rest)) = input.split_first() {
        input = rest;
        let control = usize::from(control);
        if control < LONGEST_LITERAL {
            let Some((run, rest)) = input.split_at_checked(control + 1) else {
                return Err(Fault::new("the stream ends inside literal bytes"));
            };
            output.get_mut(at..at + run.len()).ok_or_else(full)?.copy_from_slice(run);
            at += run.len();
            input = rest;
            continue;
        }
        let mut len = (control >> 5) + 2;
        if control >> 5 == 7 {
            len += take(&mut input)?;
        }
        let distance = ((control & 31) << 8 | take(&mut input)?) + 1;
        let Some(start) = at.checked_sub(distance) else {
            return Err(Fault::new(format!("byte {at} refers back by {distance} bytes")));
        };
        if len > room - at {
            return Err(full());
        }
        if distance >= len {
            output.copy_within(start..start + len, at);
        } else {
            // The match overlaps its own output: it repeats the last `distance` bytes.
            for k in 0..len {
                output[at + k] = output[start + k];
            }
        }
        at += len;
    }
    Ok(at)
}

impl Codec for Lzf {
    fn name(&self) -> &'static str {
        "lzf"
    }

    fn bound(&self, len: usize) -> usize {
        len
    }

    fn encoder(&self, _len: usize) -> Needs {
        Needs { own: size_of::<Table>(), library: 0 }
    }

    fn encode(&self, input: &[u8], output: &mut [u8], context: &mut Context) -> Written {
        let table = context.get(|memory| {
            let place = memory.as_mut_ptr().cast::<Table>();
            let fits = memory.len() >= size_of::<Table>() && place.is_aligned();
            if fits {
                place
            } else {
                std::ptr::null_mut()
            }
        })?;
        // SAFETY: `get` has checked that the table is in memory that is borrowed for this call,
        // large enough and aligned; any bytes are a valid table.
        let table = unsafe { &mut *table };
        let room = input.len().saturating_sub(1).min(output.len());
        compress(input, &mut output[..room], table).ok_or(Fault::Incompressible)
    }

    fn decode(&self, input: &[u8], output: &mut [u8], _context: &mut Context) -> Written {
        decompress(input, output)
    }
}
