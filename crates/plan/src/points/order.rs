//! Points ordered by windows: a stable radix sort of as many digits as windows need.
//!
//! Problem. A file is read fastest in its order, and caches want neighbours together; but to sort 10^8
//! addresses takes longer than to copy the elements. Idea. Only the number of the window counts, and that has
//! few digits: one pass of counting and moving for most files, two for the largest. The order
//! within a window stays, so that of several values for one element the last one wins. Where one pass does, it
//! is the one that computes the addresses (`place.rs`): they are computed twice, which takes less than to
//! write them down in no order first.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use super::list::{Addresses, Points, Window};

/// Bits of one pass: so many streams are written side by side that the caches still hold their ends.
pub(super) const DIGIT: u32 = 11;
/// Addresses that are compared with the next ones at once.
const TOGETHER: usize = 1 << 10;

impl Points {
    /// Whether the windows of the points ascend already.
    pub fn ascends(&self) -> bool {
        let Some(next) = self.file.get(1..) else { return true };
        // Some at once, so that none of the comparisons waits for the one before it.
        self.file.chunks(TOGETHER).zip(next.chunks(TOGETHER)).all(|(here, next)| {
            let descends = |(a, b): (&i64, &i64)| a >> self.bits > b >> self.bits;
            !here.iter().zip(next).fold(false, |any, pair| any | descends(pair))
        })
    }

    /// Puts the points in the order of their windows; those of one window stay in their order. With
    /// `count`, also counts how many different addresses each window has; addresses are multiples of
    /// `item` apart then.
    pub fn order(&mut self, count: Option<i64>) {
        if !self.windows.is_empty() || self.file.is_empty() {
            return;
        }
        if !self.ascends() {
            self.sort();
        }
        let mut first = 0;
        while first < self.file.len() {
            let end = self.end_of_window(first);
            self.windows.push(self.window(first..end, count));
            first = end;
        }
    }

    /// The end of the window that begins with run `first`, of runs in order.
    fn end_of_window(&self, first: usize) -> usize {
        let number = self.file[first] >> self.bits;
        // Windows have few points or many: steps double until one is too long.
        let (mut low, mut step) = (first + 1, 1);
        while self.file.get(low + step).is_some_and(|a| a >> self.bits == number) {
            low += step;
            step *= 2;
        }
        let high = self.file.len().min(low + step);
        low + self.file[low..high].partition_point(|a| a >> self.bits == number)
    }

    /// The window of some runs, all that there are in it.
    pub(super) fn window(&self, runs: Range<usize>, count: Option<i64>) -> Window {
        let number = self.file[runs.start] >> self.bits;
        let points = self.points_of(runs.clone());
        let distinct = match count {
            Some(item) => self.distinct(runs.clone(), number << self.bits, item),
            None => points,
        };
        Window { number, first: runs.start, end: runs.end, points, distinct }
    }

    fn sort(&mut self) {
        let number = self.file.len();
        let (mut low, mut high) = (i64::MAX, i64::MIN);
        for address in &self.file {
            (low, high) = (low.min(address >> self.bits), high.max(address >> self.bits));
        }
        let digits = 64 - (high - low).leading_zeros();
        let passes = digits.div_ceil(DIGIT).max(1);
        let width = digits.div_ceil(passes);
        for pass in 0..passes {
            let shift = pass * width;
            let digit = |address: &i64| {
                (((address >> self.bits) - low) >> shift) as usize & ((1 << width) - 1)
            };
            let mut places = vec![0_usize; 1 << width];
            self.file.iter().for_each(|address| places[digit(address)] += 1);
            let mut sum = 0;
            for place in &mut places {
                sum += core::mem::replace(place, sum);
            }
            let (mut file, mut user) = (vec![0_i64; number], vec![0_i64; number]);
            let mut counts = vec![0_u32; self.counts.len()];
            let mut put = |k: usize, memory: i64| {
                let address = self.file[k];
                let place = &mut places[digit(&address)];
                (file[*place], user[*place]) = (address, memory);
                if let Some(count) = counts.get_mut(*place) {
                    *count = self.counts[k];
                }
                *place += 1;
            };
            match &self.user {
                Addresses::Row { first, stride } => {
                    (0..number).for_each(|k| put(k, first + k as i64 * stride));
                }
                other => {
                    let list = other.list().unwrap_or(&[]);
                    list.iter().enumerate().for_each(|(k, memory)| put(k, *memory));
                }
            }
            self.file = file;
            self.user = Addresses::List(user);
            self.counts = counts;
        }
    }

    /// Different addresses in a window that begins at `base`.
    fn distinct(&self, runs: Range<usize>, base: i64, item: i64) -> usize {
        let addresses = &self.file[runs.clone()];
        let room = ((1_i64 << self.bits) / item.max(1)) as usize + 1;
        if self.counts.is_empty() && addresses.len() * 64 < room {
            // A few points of a large window.
            let mut sorted: Vec<i64> = addresses.to_vec();
            sorted.sort_unstable();
            sorted.dedup();
            return sorted.len();
        }
        let mut seen = vec![0_u64; room.div_ceil(64)];
        for (k, address) in runs.zip(addresses) {
            let place = ((address - base) / item) as usize;
            for place in place..place + self.count(k) as usize {
                seen[place / 64] |= 1 << (place % 64);
            }
        }
        seen.iter().map(|word| word.count_ones() as usize).sum()
    }
}
