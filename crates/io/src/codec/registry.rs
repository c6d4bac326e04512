//! List of all codecs.

use super::fault::Fault;
use super::spec::CodecSpec;
use super::step::{Codec, Step};
use super::{
    bitshuffle, blosc, bzip2, crc32c, deflate, fletcher32, lz4, lzf, outside, shuffle, zip, zstd,
};
use crate::error::StorageError;

/// Builds a step; this match is the list of all codecs.
pub(super) fn build(spec: &CodecSpec) -> Result<Step, StorageError> {
    fn codec<C: Codec + 'static>(
        name: &'static str,
        made: Result<C, Fault>,
    ) -> Result<Step, StorageError> {
        made.map(|codec| Step::Codec(Box::new(codec))).map_err(|fault| fault.of(name))
    }
    match spec.name.as_str() {
        "deflate" => codec("deflate", deflate::Deflate::zlib(spec)),
        "gzip" => codec("gzip", deflate::Deflate::gzip(spec)),
        "zip" => codec("zip", zip::Zip::new(spec)),
        "zstd" => codec("zstd", zstd::Zstd::new(spec)),
        "lz4" => codec("lz4", lz4::Lz4::new(spec)),
        "lz4hdf5" => codec("lz4hdf5", lz4::Lz4Hdf5::new(spec)),
        "blosc" => codec("blosc", blosc::Blosc::new(spec)),
        "bzip2" => codec("bzip2", bzip2::Bzip2::new(spec)),
        "bitshuffle" => codec("bitshuffle", bitshuffle::Bitshuffle::new(spec)),
        "hdf5" => codec("hdf5", outside::Outside::new(spec)),
        "lzf" => codec("lzf", Ok(lzf::Lzf)),
        "shuffle" => codec("shuffle", shuffle::Shuffle::new(spec)),
        "crc32c" => Ok(Step::Checksum(Box::new(crc32c::Crc32c))),
        "fletcher32" => Ok(Step::Checksum(Box::new(fletcher32::Fletcher32))),
        other => Err(StorageError::Unavailable {
            what: "this codec",
            why: format!(
                "there is no codec named {other:?}; use deflate, gzip, zstd, lz4, lz4hdf5, \
                 blosc, bzip2, bitshuffle, lzf, shuffle, crc32c, fletcher32, hdf5 or zip"
            ),
        }),
    }
}
