//! Packets: a message between an owner and another rank, in parts that fit a buffer.
//!
//! Problem: a rank that requests the same elements several times receives more bytes of a tile than
//! the tile holds. A message of a round may therefore be larger than any buffer that the ranks have
//! agreed on.
//!
//! Approach: a message is a list of pieces in an order that both ends know. A packet has as many
//! pieces as fit.
//!
//! Invariants: packets contain the pieces in their order; none is larger than `most`, unless it is
//! a single piece.

/// Cuts a list of pieces into packets.
#[derive(Debug, Clone)]
pub struct Packets {
    most: i64,
    held: i64,
    number: usize,
}

impl Packets {
    /// Packets of at most `most` bytes.
    pub fn new(most: i64) -> Packets {
        Packets { most, held: 0, number: 0 }
    }

    /// The number of the packet of the next piece.
    pub fn next(&mut self, bytes: i64) -> usize {
        let all = self.held.saturating_add(bytes);
        if self.held > 0 && all > self.most {
            (self.number, self.held) = (self.number + 1, bytes);
        } else {
            self.held = all;
        }
        self.number
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn letters_fit_and_keep_the_order(
            pieces in prop::collection::vec(0..50_i64, 0..40),
            most in 1..100_i64,
        ) {
            let mut packets = Packets::new(most);
            let numbers: Vec<usize> = pieces.iter().map(|bytes| packets.next(*bytes)).collect();
            let mut sums: Vec<(i64, usize)> = Vec::new();
            for (number, bytes) in numbers.iter().zip(&pieces) {
                prop_assert!(*number == sums.len() || *number + 1 == sums.len());
                if *number == sums.len() {
                    sums.push((0, 0));
                }
                let last = sums.last_mut().unwrap();
                *last = (last.0 + bytes, last.1 + usize::from(*bytes > 0));
            }
            prop_assert!(sums.iter().all(|(sum, pieces)| *sum <= most || *pieces == 1));
            // No two consecutive packets would have fitted into one.
            prop_assert!(sums.windows(2).all(|two| two[0].0 + two[1].0 > most));
        }
    }
}
