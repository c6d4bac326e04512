//! Steps that a library above this crate decodes: filters that exist only in HDF5 and its plug-ins.
//!
//! Problem. szip, n-bit, scale-offset and most plug-ins of HDF5 exist only in its library, which is
//! reached through Python.
//!
//! Idea. The code that describes the pipeline passes a decoder ([`Decode`](super::Decode)) as an
//! option of the step. It is a function of bytes like other codecs, so plans, threads, checksums,
//! masks and cached chunks need no special case.
//!
//! Invariants. The output has the requested size, or it is an error. The memory of that library is
//! counted: three copies of the stored bytes, five of the output. Nothing is encoded.

use super::decoder::Decoder;
use super::fault::Fault;
use super::spec::{CodecSpec, OptionValue};
use super::step::{Codec, Context, Needs, Written};

/// A filter of HDF5's library.
#[derive(Debug)]
pub struct Outside {
    decoder: Decoder,
    /// Set if it also changes the type of elements: then chunks stored without it have another
    /// meaning.
    converts: bool,
}

/// Memory that the library takes for itself: a file in memory with one chunk.
const STATE: usize = 256 << 10;

impl Outside {
    /// Options: `decode`, the [`Decoder`]; `type`, if the decoder converts from that type. Other
    /// options belong to the decoder.
    pub fn new(spec: &CodecSpec) -> Result<Outside, Fault> {
        let Some(OptionValue::Decoder(decoder)) = spec.get("decode") else {
            return Err(Fault::new("option decode with its decoder is missing"));
        };
        Ok(Outside { decoder: decoder.clone(), converts: spec.get("type").is_some() })
    }
}

impl Codec for Outside {
    fn name(&self) -> &'static str {
        "hdf5"
    }

    fn bound(&self, len: usize) -> usize {
        // szip adds at most some bits to each block of eight values; other filters add only
        // headers.
        len.saturating_add(len / 8).saturating_add(4096)
    }

    fn may_be_skipped(&self) -> bool {
        !self.converts
    }

    fn decoder(&self, len: usize) -> Needs {
        let (stored, decoded) = (self.bound(len).saturating_mul(3), len.saturating_mul(5));
        Needs { own: 0, library: stored.saturating_add(decoded).saturating_add(STATE) }
    }

    fn encode(&self, _input: &[u8], _output: &mut [u8], _context: &mut Context) -> Written {
        Err(Fault::new(
            "chunks can only be decoded; convert the array to another codec to change it",
        ))
    }

    fn decode(&self, input: &[u8], output: &mut [u8], _context: &mut Context) -> Written {
        self.decoder.0.decode(input, output)?;
        Ok(output.len())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::codec::{Decode, Pipeline};

    /// A decoder that doubles every byte.
    #[derive(Debug)]
    struct Twice;

    impl Decode for Twice {
        fn decode(&self, input: &[u8], output: &mut [u8]) -> Result<(), Fault> {
            if 2 * input.len() != output.len() {
                return Err(Fault::new("another length"));
            }
            output.iter_mut().enumerate().for_each(|(i, byte)| *byte = input[i / 2]);
            Ok(())
        }
    }

    fn spec() -> CodecSpec {
        let mut spec = CodecSpec::new("hdf5").int("filter", 6);
        spec.options.push(("decode".into(), OptionValue::Decoder(Decoder(Arc::new(Twice)))));
        spec
    }

    fn decode(specs: &[CodecSpec], mask: u32, stored: &[u8]) -> Result<[u8; 8], String> {
        let pipeline = Pipeline::new(specs, 8).unwrap();
        let mut out = [0; 8];
        let mut scratch = vec![0; pipeline.decode_scratch()];
        let done = pipeline.decode(stored, mask, &mut out, &mut scratch);
        done.map(|()| out).map_err(|error| error.to_string())
    }

    #[test]
    fn it_is_a_step_like_others_and_can_be_left_out_unless_it_converts() {
        let all = [spec(), CodecSpec::new("fletcher32")];
        let sum = CodecSpec::new("fletcher32");
        let stored = Pipeline::new(&[sum], 4).unwrap();
        let mut scratch = vec![0; stored.encode_scratch()];
        let stored = stored.encode(&[1, 2, 3, 4], &mut scratch).unwrap().bytes.to_vec();
        assert_eq!(Ok([1, 1, 2, 2, 3, 3, 4, 4]), decode(&all, 0, &stored));
        assert_eq!(Ok([9; 8]), decode(&all, 0b11, &[9; 8]));
        let converts = [spec().text("type", "00")];
        assert_eq!(Ok([5; 8]), decode(&converts, 0, &[5; 4]));
        let error = decode(&converts, 1, &[9; 8]).unwrap_err();
        assert!(error.contains("codec hdf5") && error.contains("skipped"), "{error}");
        assert!(decode(&all, 0b10, &[9; 3]).unwrap_err().contains("another length"));
        let pipeline = Pipeline::new(&all, 8).unwrap();
        let mut scratch = vec![0; pipeline.encode_scratch()];
        let error = pipeline.encode(&[0; 8], &mut scratch).unwrap_err();
        assert!(error.to_string().contains("only be decoded"), "{error}");
        assert!(Pipeline::new(&[CodecSpec::new("hdf5")], 8).is_err());
    }

    #[test]
    fn equal_filters_are_equal_whoever_decodes() {
        assert!(spec() == spec() && spec() != spec().int("more", 1));
    }
}
