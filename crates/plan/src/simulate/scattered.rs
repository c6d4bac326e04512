//! Elements of simulated ranks, chosen one by one: described, not enumerated.
//!
//! Problem: 10^5 ranks with 2^21 indices each have 10^11 of them, too many to store or to visit.
//!
//! Approach: each element of the array belongs to one rank (a partitioned mesh). Ranks form
//! *neighbourhoods*, each of which has a part of the array. A part is cut into *strata*, with one
//! block of consecutive elements for each rank of the neighbourhood, in an order that is drawn for
//! each stratum separately. Arithmetic therefore gives the position of the `k`-th block of a rank,
//! and the ranks with elements in any interval of the array: in whole strata all ranks have equally
//! many, and only the blocks of the two strata at its ends are examined.
//!
//! The pattern is as random as a permutation of the array, with one exception: in any interval,
//! ranks have equally many elements, up to two blocks, while in a permutation their numbers would
//! differ by the square root.

use crate::error::PlanError;

/// The elements of each rank: all elements of one array, each once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scattered {
    /// Number of ranks.
    pub ranks: u32,
    /// Number of blocks of each rank.
    pub blocks: i64,
    /// Number of consecutive elements of a block.
    pub run: i64,
    /// Bytes of an element.
    pub item: i64,
    /// Number of ranks of a neighbourhood, whose elements are interleaved.
    pub spread: u32,
}

/// The part of an interval of elements in one neighbourhood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    pub hood: u32,
    /// Number of strata that are entirely inside.
    pub whole: i64,
    /// At either end: a stratum, and first and last position in it, in elements. Empty ends are 0.
    pub ends: [(i64, i64, i64); 2],
}

/// The order of one stratum: `place = (factor * rank + shift) mod size`.
struct Order {
    factor: u64,
    shift: u64,
    size: u64,
}

/// Hashed bits (the finalizer of SplitMix64).
pub(super) fn mixed(n: u64) -> u64 {
    let mut z = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

impl Order {
    fn new(hood: u32, stratum: i64, size: u64) -> Order {
        let bits = mixed(mixed(u64::from(hood)) ^ stratum as u64);
        let mut factor = bits % size + 1;
        // The loop ends, because 1 has no common divisor.
        while gcd(factor, size) != 1 {
            factor = factor % size + 1;
        }
        Order { factor: factor % size, shift: mixed(bits) % size, size }
    }

    fn place(&self, rank: u64) -> u64 {
        (self.factor * rank + self.shift) % self.size
    }

    /// The factor of the inverse.
    fn back(&self) -> u64 {
        // Euclid's algorithm with the multiples of the factor.
        let size = self.size as i128;
        let (mut old, mut rest) = (self.factor as i128, size);
        let (mut old_times, mut times) = (1_i128, 0_i128);
        while rest != 0 {
            let quotient = old / rest;
            (old, rest) = (rest, old - quotient * rest);
            (old_times, times) = (times, old_times - quotient * times);
        }
        old_times.rem_euclid(size) as u64
    }
}

impl Scattered {
    /// Rejects impossible counts.
    ///
    /// # Errors
    /// Fails for counts below one, more ranks in a neighbourhood than there are, and an array
    /// beyond 62 bits.
    pub fn check(&self) -> Result<(), PlanError> {
        let least = [i64::from(self.ranks), self.blocks, self.run, self.item];
        if least.iter().any(|n| *n < 1) || self.spread < 1 || self.spread > self.ranks {
            return Err(PlanError::BadLayout(alloc::format!("{self:?}")));
        }
        let bytes = least.iter().try_fold(1_i64, |n, more| n.checked_mul(*more));
        match bytes {
            Some(n) if n < 1 << 62 => Ok(()),
            _ => Err(PlanError::TooLarge("the array of a simulation")),
        }
    }

    /// Number of elements of the array.
    pub fn elements(&self) -> i64 {
        i64::from(self.ranks) * self.blocks * self.run
    }

    /// Number of bytes of the array.
    pub fn bytes(&self) -> i64 {
        self.elements() * self.item
    }

    /// First rank of a neighbourhood, and its number of ranks: the last one may have fewer.
    pub(super) fn hood(&self, hood: u32) -> (u32, u32) {
        let first = hood * self.spread;
        (first, self.spread.min(self.ranks - first))
    }

    /// The first element of block `k` of a rank; blocks ascend with `k`.
    pub fn element(&self, rank: u32, k: i64) -> i64 {
        let hood = rank / self.spread;
        let (first, size) = self.hood(hood);
        let place = Order::new(hood, k, u64::from(size)).place(u64::from(rank - first));
        (i64::from(first) * self.blocks + k * i64::from(size) + place as i64) * self.run
    }

    /// The parts of the elements `low..high` in each neighbourhood, in order.
    pub(super) fn pieces(&self, low: i64, high: i64) -> impl Iterator<Item = Piece> + '_ {
        let full = i64::from(self.spread) * self.blocks * self.run;
        let hoods = if low < high { low / full..(high - 1) / full + 1 } else { 0..0 };
        hoods.map(move |hood| {
            let (_, size) = self.hood(hood as u32);
            let stratum = i64::from(size) * self.run;
            let from = (low - hood * full).max(0);
            let to = (high - hood * full).min(stratum * self.blocks);
            let (first, last) = (from / stratum, to / stratum);
            let (begin, end) = (from % stratum, to % stratum);
            let (whole, ends) = if first == last {
                (0, [(first, begin, end), (0, 0, 0)])
            } else {
                let head = if begin == 0 { (0, 0, 0) } else { (first, begin, stratum) };
                let whole = last - first - i64::from(begin != 0);
                (whole, [head, if end == 0 { (0, 0, 0) } else { (last, 0, end) }])
            };
            Piece { hood: hood as u32, whole, ends }
        })
    }

    /// Passes the ranks with elements in the ends of a piece to `tell`, with their numbers.
    ///
    /// A rank may occur twice, once for each end.
    pub(super) fn at_ends(&self, piece: &Piece, mut tell: impl FnMut(u32, i64)) {
        let (first, size) = self.hood(piece.hood);
        for (stratum, from, to) in piece.ends {
            if from == to {
                continue;
            }
            let order = Order::new(piece.hood, stratum, u64::from(size));
            let back = order.back();
            for block in from / self.run..(to - 1) / self.run + 1 {
                let inside = to.min((block + 1) * self.run) - from.max(block * self.run);
                let apart = (block as u64 + order.size - order.shift) % order.size;
                let rank = (u128::from(apart) * u128::from(back) % u128::from(order.size)) as u32;
                tell(first + rank, inside);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn owners(of: &Scattered) -> Vec<u32> {
        let mut found = vec![u32::MAX; of.elements() as usize];
        for rank in 0..of.ranks {
            let mut last = -1;
            for k in 0..of.blocks {
                let first = of.element(rank, k);
                assert!(first > last, "blocks of a rank ascend");
                last = first;
                for element in first..first + of.run {
                    assert_eq!(u32::MAX, found[element as usize], "{of:?}: {element}");
                    found[element as usize] = rank;
                }
            }
        }
        found
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

        /// Checks that each element has one rank, and that pieces give the ranks of any interval.
        #[test]
        fn stretches_know_their_ranks(
            ranks in 1..14_u32, blocks in 1..7_i64, run in 1..4_i64, spread in 1..14_u32,
            cut in (0.0..1.0, 0.0..1.0),
        ) {
            let of = Scattered { ranks, blocks, run, item: 8, spread: spread.min(ranks) };
            of.check().unwrap();
            let owners = owners(&of);
            let at = |part: f64| (part * (of.elements() + 1) as f64) as i64;
            let (low, high) = (at(cut.0).min(at(cut.1)), at(cut.0).max(at(cut.1)));
            let mut expected = vec![0; ranks as usize];
            for rank in &owners[low as usize..high as usize] {
                expected[*rank as usize] += 1;
            }
            let mut found = vec![0; ranks as usize];
            for piece in of.pieces(low, high) {
                let (first, size) = of.hood(piece.hood);
                for rank in first..first + size {
                    found[rank as usize] += piece.whole * run;
                }
                of.at_ends(&piece, |rank, n| found[rank as usize] += n);
            }
            prop_assert_eq!(expected, found);
        }
    }

    #[test]
    fn ranks_lie_among_all_of_their_neighbourhood_and_nobody_else() {
        let of = Scattered { ranks: 64, blocks: 256, run: 1, item: 8, spread: 16 };
        let owners = owners(&of);
        for (hood, part) in owners.chunks(16 * 256).enumerate() {
            assert!(part.iter().all(|rank| *rank as usize / 16 == hood));
            // Rank 0 comes before rank 1 about as often as after it.
            let strata = part.chunks(16);
            let before = strata.filter(|s| {
                let place = |rank: usize| s.iter().position(|r| *r as usize == hood * 16 + rank);
                place(0) < place(1)
            });
            assert!((64..192).contains(&before.count()));
        }
    }

    #[test]
    fn what_nobody_can_have_is_refused() {
        let fine = Scattered { ranks: 4, blocks: 4, run: 1, item: 8, spread: 4 };
        assert!(fine.check().is_ok());
        for wrong in [
            Scattered { ranks: 0, ..fine },
            Scattered { blocks: 0, ..fine },
            Scattered { spread: 5, ..fine },
            Scattered { spread: 0, ..fine },
            Scattered { blocks: i64::MAX / 2, ..fine },
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }
}
