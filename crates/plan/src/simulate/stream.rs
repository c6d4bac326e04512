//! The requests of a rank, described and not enumerated: equal runs at the ends of nested loops.
//!
//! A section of an array in a given order is loops over its axes around a run of contiguous bytes.
//! Runs whose gaps are cheap to read are merged (data sieving); runs that are too long for one
//! request are cut. Request `k` and the number of requests are computed by arithmetic, so 10^12 of
//! them need no memory.

use alloc::vec;
use alloc::vec::Vec;

use super::machine::{time, Manner, Price};
use super::scattered::Scattered;
use crate::collective::ArrayDescriptor;
use crate::section::Section;

/// The requests of one section, in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stream {
    start: i64,
    /// Bytes of a run, including gaps that are read.
    run: i64,
    /// Maximum bytes of a request; the last one of a run may have less.
    most: i64,
    /// Number of requests of a run.
    parts: i64,
    /// Count and stride in bytes, from the slowest loop to the fastest.
    loops: Vec<(i64, i64)>,
    /// The pattern and the rank whose blocks are the runs; there is then one loop, over these.
    of: Option<(Scattered, u32)>,
}

impl Stream {
    /// The requests of a section of an array whose file begins at byte `base`.
    pub fn new(
        descriptor: &ArrayDescriptor,
        section: &Section,
        base: i64,
        manner: &Manner,
    ) -> Stream {
        let mut start = base;
        let mut run = descriptor.item;
        let mut loops: Vec<(i64, i64)> = vec![];
        for (place, axis) in descriptor.order.iter().enumerate().rev() {
            let (range, stride) = (section.ranges()[*axis], descriptor.stride(place));
            start += range.start * stride;
            let apart = range.step * stride;
            if range.count == 1 {
                continue;
            }
            let gap = apart - run;
            let reads_gaps = manner.extent || (loops.is_empty() && gap <= manner.gap.max(0));
            if reads_gaps {
                // An outer loop around gaps that are not read could not be merged.
                run += (range.count - 1) * apart;
            } else {
                loops.insert(0, (range.count, apart));
            }
        }
        if section.is_empty() {
            (run, loops) = (0, vec![(0, 0)]);
        }
        let most = manner.most.max(1);
        let parts = (run.max(1) - 1) / most + 1;
        Stream { start, run, most, parts, loops, of: None }
    }

    /// The requests of consecutive bytes.
    pub(super) fn contiguous(start: i64, run: i64, most: i64) -> Stream {
        let most = most.max(1);
        let loops = if run > 0 { vec![] } else { vec![(0, 0)] };
        Stream { start, run, most, parts: (run.max(1) - 1) / most + 1, loops, of: None }
    }

    /// The requests of the blocks of a rank, in the order of the file.
    pub(super) fn scattered(of: Scattered, rank: u32, most: i64) -> Stream {
        let loops = vec![(of.blocks, 0)];
        Stream { loops, of: Some((of, rank)), ..Stream::contiguous(0, of.run * of.item, most) }
    }

    /// Number of requests.
    pub fn requests(&self) -> i64 {
        self.loops.iter().fold(self.parts, |n, (count, _)| n.saturating_mul(*count))
    }

    /// Bytes of all requests.
    pub fn bytes(&self) -> i64 {
        self.loops.iter().fold(self.run, |n, (count, _)| n.saturating_mul(*count))
    }

    /// Offset and length of request `k`.
    pub fn request(&self, k: i64) -> (i64, i64) {
        let (mut rest, part) =
            if self.parts == 1 { (k, 0) } else { (k / self.parts, k % self.parts) };
        let mut offset = self.start + part * self.most;
        if let Some((of, rank)) = &self.of {
            offset += of.element(*rank, rest) * of.item;
            return (offset, self.most.min(self.run - part * self.most));
        }
        for (count, stride) in self.loops.iter().rev() {
            offset += rest % count * stride;
            rest /= count;
        }
        (offset, self.most.min(self.run - part * self.most))
    }

    /// Number of requests from `k` on in one block, at least one.
    pub(super) fn burst(&self, k: i64, offset: i64, block: i64) -> i64 {
        let Some((count, stride)) =
            self.loops.last().filter(|_| self.parts == 1 && self.of.is_none())
        else {
            return 1;
        };
        let room = (offset / block + 1) * block - offset - self.run;
        if room < 0 || *stride > block {
            return 1;
        }
        (room / stride + 1).min(count - k % count)
    }

    /// Approximate number of bursts.
    pub(super) fn bursts(&self, block: i64) -> i64 {
        self.requests() / self.usual_burst(block)
    }

    /// Usual number of requests of a burst.
    pub(super) fn usual_burst(&self, block: i64) -> i64 {
        match self.loops.last() {
            Some((count, stride)) if self.parts == 1 && self.of.is_none() => {
                (block / stride.max(&1)).clamp(1, (*count).max(1))
            }
            _ => 1,
        }
    }
}

impl Price {
    /// Time of the requests of a stream.
    pub(crate) fn of(&self, stream: &Stream) -> i64 {
        let (requests, bytes) = (stream.requests(), stream.bytes());
        let each = requests.saturating_mul(self.request_ns);
        each.saturating_add(time(bytes, self.device)).max(time(bytes, self.stream))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::section::Range;
    use proptest::prelude::*;

    fn runs(gap: i64, most: i64, extent: bool) -> Manner {
        Manner { gap, most, extent, sparse: 0, price: None, leaves_out: true, slots: 2 }
    }

    fn range(len: i64) -> impl Strategy<Value = Range> {
        (0..len, 0..=len, 1..4_i64)
            .prop_map(move |(a, n, s)| Range::new(a, n.min((len - a + s - 1) / s), s).unwrap())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

        /// Checks that every byte of the section is in exactly one request.
        ///
        /// Requests have other bytes only if gaps are read.
        #[test]
        fn requests_are_the_section(
            a in range(5), b in range(6), c in range(4), turned in any::<bool>(),
            gap in 0..40_i64, most in 1..60_i64, extent in any::<bool>(), block in 1..50_i64,
        ) {
            let shape = vec![5, 6, 4];
            let order = if turned { vec![2, 0, 1] } else { vec![0, 1, 2] };
            let descriptor = ArrayDescriptor { shape, item: 3, order, grain: vec![1; 3], encoded: false, lead: None };
            let section = Section::new(vec![a, b, c]);
            let stream = Stream::new(&descriptor, &section, 100, &runs(gap, most, extent));
            let mut seen = alloc::collections::BTreeMap::new();
            let mut bytes = 0;
            for k in 0..stream.requests() {
                let (offset, len) = stream.request(k);
                prop_assert!(1 <= len && len <= most);
                bytes += len;
                for byte in offset..offset + len {
                    *seen.entry(byte).or_insert(0) += 1;
                }
                let burst = stream.burst(k, offset, block);
                prop_assert!(burst >= 1 && k + burst <= stream.requests());
                for other in k + 1..k + burst {
                    let (at, len) = stream.request(other);
                    prop_assert_eq!((offset / block, offset / block), (at / block, (at + len - 1) / block));
                }
            }
            prop_assert_eq!(stream.bytes(), bytes);
            prop_assert!(seen.values().all(|n| *n == 1));
            let elements = section.count().unwrap();
            for index in section.indices() {
                let offset = 100 + descriptor.order.iter().enumerate()
                    .map(|(place, axis)| index[*axis] * descriptor.stride(place)).sum::<i64>();
                prop_assert!((offset..offset + 3).all(|byte| seen.contains_key(&byte)));
            }
            if gap == 0 && !extent {
                prop_assert_eq!(3 * elements, bytes);
            }
            if extent && elements > 0 {
                let (first, last) = (seen.keys().next().unwrap(), seen.keys().last().unwrap());
                prop_assert_eq!(bytes, last - first + 1);
            }
        }
    }
}
