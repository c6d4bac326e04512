//! Order of points by windows: a stable radix sort with as many digits as windows need.
//!
//! Problem: a file is read fastest in its order, and caches need neighbours together; but sorting
//! 10^8 addresses takes longer than copying the elements. Approach: points are sorted only by the
//! number of their window, which has few digits: one pass of counting and moving for most files,
//! two for the largest. The order within a window does not change, so the last of several values
//! for one element remains. If one pass is enough, it also computes the addresses (`place.rs`):
//! they are computed twice, which takes less time than storing them unordered first.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use super::list::{Addresses, Points, Window};

/// Bits of one pass: the caches can hold the ends of this many concurrently written streams.
pub(super) const DIGIT: u32 = 11;
/// Number of addresses that are compared with their successors in one step.
const TOGETHER: usize = 1 << 10;

impl Points {
    /// Returns whether the windows of the points already ascend.
    pub fn ascends(&self) -> bool {
        let Some(next) = self.file.get(1..) else { return true };
        // Many comparisons in one step, so that none waits for the previous one.
        self.file.chunks(TOGETHER).zip(next.chunks(TOGETHER)).all(|(here, next)| {
            let descends = |(a, b): (&i64, &i64)| a >> self.bits > b >> self.bits;
            !here.iter().zip(next).fold(false, |any, pair| any | descends(pair))
        })
    }

    /// Sorts the points by window; the points of one window stay in order.
    ///
    /// With `count`, also counts the different addresses in each window; addresses are then
    /// multiples of `item` apart.
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

    /// The end of the window that begins with run `first`, for ordered runs.
    fn end_of_window(&self, first: usize) -> usize {
        let number = self.file[first] >> self.bits;
        // Windows have few points or many: the step doubles until it is too long.
        let (mut low, mut step) = (first + 1, 1);
        while self.file.get(low + step).is_some_and(|a| a >> self.bits == number) {
            low += step;
            step *= 2;
        }
        let high = self.file.len().min(low + step);
        low + self.file[low..high].partition_point(|a| a >> self.bits == number)
    }

    /// The window that consists of some runs.
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

    /// Number of different addresses in a window that begins at `base`.
    fn distinct(&self, runs: Range<usize>, base: i64, item: i64) -> usize {
        let addresses = &self.file[runs.clone()];
        let room = ((1_i64 << self.bits) / item.max(1)) as usize + 1;
        if self.counts.is_empty() && addresses.len() * 64 < room {
            // A few points in a large window.
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
