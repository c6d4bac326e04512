//! HDF5's variant of Fletcher's checksum, little endian after the data (filter 3).
//!
//! Two running sums modulo 65535 over big-endian 16-bit words; an odd last byte counts as the high
//! half of a word. A sum that is zero modulo 65535 is written as 65535 unless all data is zero,
//! because HDF5 reduces by folding the carry back. HDF5 before 1.6.3 swapped the bytes in each half
//! on little-endian machines; like HDF5, we accept that form and never write it.
//!
//! Reference: `H5_checksum_fletcher32` and `H5Z__filter_fletcher32` in the HDF5 library.

use super::step::Checksum;

/// The checksum of HDF5.
#[derive(Debug)]
pub struct Fletcher32;

/// Words summed in 32-bit lanes: 32 words of 65535, each times at most 32, are below 2^27.
const LANES: usize = 32;
/// Words after which the 64-bit sums are reduced; 2^16 words stay far below 2^64.
const REDUCE_AFTER: usize = 1 << 16;

/// Reduces a sum as HDF5's folding does: 1..=65535, or 0 if only zeros were added.
fn folded(sum: u64) -> u64 {
    match sum % 65535 {
        0 if sum > 0 => 65535,
        rest => rest,
    }
}

fn word(pair: &[u8]) -> u32 {
    u32::from(u16::from_be_bytes([pair[0], pair[1]]))
}

/// Adds the words of a run: `low` is their sum, `high` the sum of all values that `low` had.
///
/// After n words w[0], w[1], ... `high` has grown by n times the old `low` and (n - i) times each
/// w[i].
fn add(bytes: &[u8], low: &mut u64, high: &mut u64) {
    let (groups, rest) = bytes.as_chunks::<{ 2 * LANES }>();
    for group in groups {
        let (mut sum, mut weighted) = (0u32, 0u32);
        for (i, pair) in group.as_chunks::<2>().0.iter().enumerate() {
            sum += word(pair);
            weighted += word(pair) * (LANES - i) as u32;
        }
        *high += LANES as u64 * *low + u64::from(weighted);
        *low += u64::from(sum);
    }
    for pair in rest.chunks_exact(2) {
        *low += u64::from(word(pair));
        *high += *low;
    }
}

fn fletcher32(data: &[u8]) -> u32 {
    let (mut low, mut high) = (0u64, 0u64);
    let (words, last) = data.split_at(data.len() & !1);
    for run in words.chunks(2 * REDUCE_AFTER) {
        add(run, &mut low, &mut high);
        (low, high) = (folded(low), folded(high));
    }
    if let [last] = *last {
        low += u64::from(last) << 8;
        high += low;
    }
    ((folded(high) << 16) | folded(low)) as u32
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Computes it as HDF5 does: 32-bit sums, folded after 360 words.
    fn by_definition(data: &[u8]) -> u32 {
        let fold = |sum: u32| (sum & 0xffff) + (sum >> 16);
        let (mut low, mut high) = (0u32, 0u32);
        for run in data[..data.len() & !1].chunks(720) {
            for pair in run.chunks_exact(2) {
                low += word(pair);
                high += low;
            }
            (low, high) = (fold(low), fold(high));
        }
        if data.len() % 2 == 1 {
            low += u32::from(data[data.len() - 1]) << 8;
            high += low;
            (low, high) = (fold(low), fold(high));
        }
        (fold(high) << 16) | fold(low)
    }

    #[test]
    fn long_runs_and_extreme_words_sum_as_in_hdf5() {
        for len in [0, 1, 2, 3, 63, 64, 65, 719, 720, 721, 5000, 131_071, 131_072, 400_001] {
            for kind in 0..5u32 {
                let byte = |i: usize| match kind {
                    0 => 0,
                    1 => 0xff,
                    2 => (i as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0],
                    3 => u8::from(i + 1 == len),
                    _ => u8::from(i == 0) * 0x80,
                };
                let data: Vec<u8> = (0..len).map(byte).collect();
                assert_eq!(by_definition(&data), fletcher32(&data), "{len} bytes, kind {kind}");
            }
        }
    }
}
