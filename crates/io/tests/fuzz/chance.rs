//! Random numbers, and kinds of damage to an input.

/// Generator SplitMix64.
pub struct Chance(u64);

impl Chance {
    /// Returns the generator of one input.
    pub fn new(seed: u64, input: u64) -> Chance {
        let mut mixed = Chance(seed ^ input.wrapping_mul(0xd134_2543_de82_ef95));
        Chance(mixed.next())
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `n`; 0 if `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    /// Returns a position among `n` items.
    pub fn place(&mut self, n: usize) -> usize {
        self.below(n as u64) as usize
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Returns one element of a list.
    pub fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.place(list.len())]
    }

    /// Returns mostly `usual`, otherwise a number at the ends of the integer range.
    pub fn number(&mut self, usual: u64) -> u64 {
        match self.below(12) {
            0 => u64::MAX - self.below(3),
            1 => (1 << 63) - 1 + self.below(3),
            2 => u64::from(u32::MAX) + self.below(3),
            3 => self.next(),
            4 => 0,
            _ => self.below(usual),
        }
    }

    /// Returns a number that is small, near a power of two, near the end, or arbitrary.
    pub fn extreme(&mut self) -> i64 {
        match self.below(9) {
            0..=3 => self.below(20) as i64,
            4 => 4096,
            5 | 6 => {
                let (bits, d) = (self.below(63), self.below(5) as i64 - 2);
                (1_i64 << bits).saturating_add(d)
            }
            7 => i64::MAX - self.below(100) as i64,
            _ => self.next() as i64,
        }
    }

    pub fn extremes<const N: usize>(&mut self) -> [i64; N] {
        std::array::from_fn(|_| self.extreme())
    }

    /// Cuts, lengthens, splices, or flips bits of bytes, or writes a wrong number where a length
    /// may be.
    pub fn damage(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(3) {
            let n = bytes.len();
            match self.below(9) {
                0 => bytes.truncate(self.place(n + 1)),
                1 => bytes.extend((0..self.below(40)).map(|_| 0u8)),
                2 => bytes.extend((0..self.below(40)).map(|k| (k as u8).wrapping_mul(37))),
                3 if n > 0 => {
                    let (at, len) = (self.place(n), self.place(64));
                    bytes.drain(at..(at + len).min(n));
                }
                4 if n > 0 => {
                    let (at, from) = (self.place(n), self.place(n));
                    let piece = bytes[from..(from + self.place(32)).min(n)].to_vec();
                    bytes.splice(at..at, piece);
                }
                5 | 6 if n > 8 => {
                    let at = if self.one_in(2) { self.place(20) } else { self.place(n) };
                    let lie = self.of(&LIES);
                    let lie = if self.one_in(2) { lie.to_le_bytes() } else { lie.to_be_bytes() };
                    for (byte, lie) in bytes.iter_mut().skip(at).zip(lie) {
                        *byte = lie;
                    }
                }
                7 if n > 0 => {
                    let at = self.place(n.min(24));
                    bytes[at] = self.next() as u8;
                }
                _ if n > 0 => {
                    let at = self.place(n);
                    bytes[at] ^= 1 << self.below(8);
                }
                _ => {}
            }
        }
    }
}

/// Numbers that are typical for wrong sizes and offsets.
const LIES: [u32; 12] =
    [0, 1, 0xff, 0x7fff, 0xffff, 0x1_0000, 0x7fff_ffff, 0x8000_0000, 0xffff_fff0, !0, 2000, 2001];
