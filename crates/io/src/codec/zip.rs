//! Chunks that zip has compressed: a member of a zip file, from its header on.
//!
//! Problem. Zip deflates members (`zip -r`), and stores their checksum next to the stream: in the
//! header before it or, if zip could not seek back, in a descriptor after it. A codec sees only the
//! bytes of its chunk. Idea. These bytes are the whole member, including header and descriptor, so
//! every chunk includes its checksum, which is compared at each decoding.
//!
//! A member that is not deflated is a chunk without this step (its mask marks that), and begins
//! after its header.
//!
//! Reference: APPNOTE.TXT, .ZIP File Format Specification 6.3, sections 4.3.7 and 4.3.9.

use super::deflate::{crc32, Deflate};
use super::fault::Fault;
use super::spec::CodecSpec;
use super::step::{Codec, Context, Needs, Written};

/// A deflated member of a zip file.
#[derive(Debug)]
pub struct Zip {
    stream: Deflate,
}

const HEADER: usize = 30;
const MARK: [u8; 4] = *b"PK\x03\x04";
const DESCRIPTOR: [u8; 4] = *b"PK\x07\x08";
const DEFLATED: u16 = 8;
/// Flags: the bytes are encrypted; checksum and sizes follow the stream.
const ENCRYPTED: u16 = 1;
const FOLLOWS: u16 = 8;
/// Placeholder for a size that is stored elsewhere.
const ELSEWHERE: u32 = u32::MAX;

/// Fields of a header.
struct Header {
    crc: u32,
    size: u32,
    /// Set if both are after the stream instead.
    follows: bool,
    /// Offset of the stream.
    begin: usize,
}

fn two(bytes: &[u8; HEADER], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn four(bytes: &[u8; HEADER], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

impl Header {
    fn read(input: &[u8]) -> Result<Header, Fault> {
        let Some(bytes) = input.first_chunk::<HEADER>().filter(|bytes| bytes.starts_with(&MARK))
        else {
            return Err(Fault::new("the chunk has no header of a zip member"));
        };
        let (flags, method) = (two(bytes, 6), two(bytes, 8));
        if flags & ENCRYPTED != 0 || method != DEFLATED {
            let why = format!("the member has method {method} and flags {flags:#x}, not deflate");
            return Err(Fault::new(why));
        }
        let begin = HEADER + usize::from(two(bytes, 26)) + usize::from(two(bytes, 28));
        let (crc, size) = (four(bytes, 14), four(bytes, 22));
        Ok(Header { crc, size, follows: flags & FOLLOWS != 0, begin })
    }

    /// Returns whether this is the checksum of the member; `rest` is the data after its stream.
    fn accepts(&self, crc: u32, rest: &[u8]) -> bool {
        if !self.follows {
            return self.crc == crc;
        }
        // The mark before a descriptor is optional.
        let crc = crc.to_le_bytes();
        rest.starts_with(&crc)
            || rest.strip_prefix(&DESCRIPTOR).is_some_and(|rest| rest.starts_with(&crc))
    }
}

impl Zip {
    /// Options: `level`, as for `deflate`.
    pub fn new(spec: &CodecSpec) -> Result<Zip, Fault> {
        Ok(Zip { stream: Deflate::bare(spec)? })
    }
}

impl Codec for Zip {
    fn name(&self) -> &'static str {
        "zip"
    }

    fn bound(&self, len: usize) -> usize {
        self.stream.bound(len).saturating_add(HEADER)
    }

    fn encoder(&self, len: usize) -> Needs {
        self.stream.encoder(len)
    }

    fn decoder(&self, len: usize) -> Needs {
        self.stream.decoder(len)
    }

    fn encode(&self, input: &[u8], output: &mut [u8], context: &mut Context) -> Written {
        let room = output.len();
        let Some((header, stream)) = output.split_at_mut_checked(HEADER) else {
            return Err(Fault::new(format!("a header does not fit in {room} bytes")));
        };
        let len = self.stream.encode(input, stream, context)?;
        let size = |len| u32::try_from(len).unwrap_or(ELSEWHERE).to_le_bytes();
        header.fill(0);
        header[..4].copy_from_slice(&MARK);
        header[4] = 20; // version 2.0 is needed to read it
        header[8..10].copy_from_slice(&DEFLATED.to_le_bytes());
        header[14..18].copy_from_slice(&crc32(input).to_le_bytes());
        header[18..22].copy_from_slice(&size(len));
        header[22..26].copy_from_slice(&size(input.len()));
        Ok(HEADER + len)
    }

    fn decode(&self, input: &[u8], output: &mut [u8], context: &mut Context) -> Written {
        let header = Header::read(input)?;
        let Some(stream) = input.get(header.begin..) else {
            return Err(Fault::new(format!("{} bytes are too short for the header", input.len())));
        };
        let (read, written) = self.stream.decode_front(stream, output, context)?;
        let promised = !header.follows && header.size != ELSEWHERE;
        if promised && u32::try_from(written) != Ok(header.size) {
            let why = format!("{written} bytes, but the size in its header is {}", header.size);
            return Err(Fault::new(format!("the member decodes to {why}")));
        }
        let found = crc32(&output[..written]);
        if !header.accepts(found, &stream[read..]) {
            let why = format!("the CRC-32 of {written} bytes, {found:08x}, is not the stored one");
            return Err(Fault::new(format!("{why}; the chunk is damaged")));
        }
        Ok(written)
    }
}
