//! HDF5's variant of Fletcher's checksum, little endian behind the data (filter 3).
//!
//! Two running sums modulo 65535 over big-endian 16-bit words; an odd last byte counts as the high
//! half of a word. A sum that is zero modulo 65535 is written as 65535 unless all data is zero,
//! because HDF5 reduces by folding the carry back. HDF5 before 1.6.3 swapped the bytes in each half
//! on little-endian machines; like HDF5, we accept that form and never write it.
//!
//! Reference: `H5_checksum_fletcher32` and `H5Z__filter_fletcher32` in the HDF5 library.

use super::Checksum;

/// The checksum of HDF5.
#[derive(Debug)]
pub struct Fletcher32;

/// Words after which the 32-bit sums must be folded, as in HDF5: 360 words of 65535 on top of a
/// folded sum add up to less than 2^32.
const FOLD_AFTER: usize = 360;

fn fold(sum: u32) -> u32 {
    (sum & 0xffff) + (sum >> 16)
}

fn fletcher32(data: &[u8]) -> u32 {
    let (mut low, mut high) = (0u32, 0u32);
    let mut words = data.chunks_exact(2);
    for _ in 0..=data.len() / 2 / FOLD_AFTER {
        for word in words.by_ref().take(FOLD_AFTER) {
            low += u32::from(u16::from_be_bytes([word[0], word[1]]));
            high += low;
        }
        low = fold(low);
        high = fold(high);
    }
    if let [last] = *words.remainder() {
        low += u32::from(last) << 8;
        high += low;
        low = fold(low);
        high = fold(high);
    }
    (fold(high) << 16) | fold(low)
}

impl Checksum for Fletcher32 {
    fn name(&self) -> &'static str {
        "fletcher32"
    }

    fn sum(&self, data: &[u8]) -> [u8; 4] {
        fletcher32(data).to_le_bytes()
    }

    fn accepts(&self, data: &[u8], stored: [u8; 4]) -> bool {
        let sum = self.sum(data);
        stored == sum || stored == [sum[1], sum[0], sum[3], sum[2]]
    }
}
