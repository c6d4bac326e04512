//! bzip2: HDF5 filter 307, numcodecs `BZ2`.
//!
//! Consecutive streams are decoded as by Python's `bz2`; bytes after them are ignored. The library
//! allocates its own memory: known amounts, by the level of the stream, for which the writer may
//! have made another choice.

use ::bzip2::{Action, Compress, Compression, Decompress, Status};

use super::fault::Fault;
use super::spec::CodecSpec;
use super::step::{at_most, Codec, Context, Needs, Written};

/// bzip2 with one level.
#[derive(Debug)]
pub struct Bzip2 {
    level: u32,
}

/// Bytes that the library sorts at a time, for each level.
const BLOCK: usize = 100_000;
const LEVELS: u32 = 9;
/// Tables of the library whose size does not depend on the level: 64 Ki counts, Huffman codes, its
/// state.
const TABLES: usize = 512 << 10;
/// Largest input: the library counts bytes in 32 bits.
const LARGEST: usize = u32::MAX as usize;
/// The first bytes of a stream.
const MAGIC: &[u8] = b"BZh";

impl Bzip2 {
    /// Options: `level`, 1 to 9, default 9.
    pub fn new(spec: &CodecSpec) -> Result<Bzip2, Fault> {
        let level = spec.get_int("level", i64::from(LEVELS), 1, i64::from(LEVELS))?;
        Ok(Bzip2 { level: level as u32 })
    }
}

impl Codec for Bzip2 {
    fn name(&self) -> &'static str {
        "bzip2"
    }

    fn bound(&self, len: usize) -> usize {
        // According to the manual: 1 % and 600 bytes more.
        len.saturating_add(len / 100).saturating_add(600)
    }

    fn encoder(&self, _len: usize) -> Needs {
        // Two arrays with a word for each byte of a block.
        Needs { own: 0, library: 8 * BLOCK * self.level as usize + TABLES }
    }

    fn decoder(&self, _len: usize) -> Needs {
        Needs { own: 0, library: 4 * BLOCK * LEVELS as usize + TABLES }
    }

    fn encode(&self, input: &[u8], output: &mut [u8], _context: &mut Context) -> Written {
        at_most(LARGEST, input, "bzip2")?;
        let mut stream = Compress::new(Compression::new(self.level), 0);
        let room = output.len();
        loop {
            let (read, written) = (stream.total_in() as usize, stream.total_out() as usize);
            let rest = output.get_mut(written..).unwrap_or_default();
            let status =
                stream.compress(input.get(read..).unwrap_or_default(), rest, Action::Finish);
            match status {
                Ok(Status::StreamEnd) => return Ok(stream.total_out() as usize),
                Ok(_) if stream.total_out() as usize > written && written < room => {}
                Ok(_) => {
                    let why = format!("{} bytes do not fit in {room} when encoded", input.len());
                    return Err(Fault::new(why));
                }
                Err(error) => return Err(Fault::new(format!("the library failed: {error}"))),
            }
        }
    }

    fn decode(&self, input: &[u8], output: &mut [u8], _context: &mut Context) -> Written {
        let (mut read, mut written) = (0, 0);
        loop {
            let (took, gave) = decode_one(&input[read..], &mut output[written..])?;
            read += took;
            written += gave;
            if !input[read..].starts_with(MAGIC) {
                return Ok(written);
            }
        }
    }
}

/// Decodes one stream; returns the bytes read and written.
fn decode_one(input: &[u8], output: &mut [u8]) -> Result<(usize, usize), Fault> {
    let mut stream = Decompress::new(false);
    let room = output.len();
    loop {
        let (read, written) = (stream.total_in() as usize, stream.total_out() as usize);
        let rest = output.get_mut(written..).unwrap_or_default();
        let status = stream.decompress(input.get(read..).unwrap_or_default(), rest);
        let (took, gave) = (stream.total_in() as usize, stream.total_out() as usize);
        match status {
            Ok(Status::StreamEnd) => return Ok((took.min(input.len()), gave.min(room))),
            Ok(_) if took > read || gave > written => {}
            Ok(_) if gave == room => {
                return Err(Fault::new(format!("the stream decodes to more than {room} bytes")));
            }
            Ok(_) | Err(_) => {
                let why = format!("{} bytes of input are damaged or cut off", input.len());
                return Err(Fault::new(why));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::codec::{CodecSpec, Pipeline};

    #[test]
    fn several_streams_are_one_chunk_and_what_follows_is_ignored() {
        let specs = [CodecSpec::new("bzip2").int("level", 1)];
        let mut stored = Vec::new();
        for part in [&[1u8; 300][..], &[], &[2; 200]] {
            let pipeline = Pipeline::new(&specs, part.len()).unwrap();
            let mut scratch = vec![0; pipeline.encode_scratch()];
            stored.extend_from_slice(pipeline.encode(part, &mut scratch).unwrap().bytes);
        }
        stored.extend_from_slice(b"something else");
        let mut out = [0; 500];
        Pipeline::new(&specs, 500).unwrap().decode(&stored, 0, &mut out, &mut []).unwrap();
        assert!(out[..300].iter().all(|&byte| byte == 1) && out[300..].iter().all(|&b| b == 2));
    }
}
