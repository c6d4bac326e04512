//! CRC-32C (Castagnoli), little endian after the data: Zarr v3 `crc32c`, numcodecs `CRC32C`.

use super::step::Checksum;

/// The checksum of Zarr v3.
#[derive(Debug)]
pub struct Crc32c;

impl Checksum for Crc32c {
    fn name(&self) -> &'static str {
        "crc32c"
    }

    fn sum(&self, data: &[u8]) -> [u8; 4] {
        ::crc32c::crc32c(data).to_le_bytes()
    }
}
