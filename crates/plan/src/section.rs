//! Regular sections: the elements that an access selects.

use alloc::format;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use crate::error::PlanError;

/// One axis of a [`Section`]: `start, start+step, ...`, `count` indices in all.
///
/// Canonical form: an empty range is `0, 0, 1`; a range of one index has step 1. Equal sets of
/// indices are therefore equal values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Range {
    /// First index.
    pub start: i64,
    /// Number of indices.
    pub count: i64,
    /// Distance between neighbours, at least 1.
    pub step: i64,
}

/// A regular section `(l:u:s, ...)`: the product of one [`Range`] per axis. Zero axes: one element.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Section {
    ranges: Vec<Range>,
}

impl Range {
    /// A canonical range, or an error for invalid arguments (negative, step < 1, overflow).
    pub fn new(start: i64, count: i64, step: i64) -> Result<Range, PlanError> {
        let bad = |why| PlanError::BadSection { what: format!("{start}+{count}*{step}"), why };
        if start < 0 || count < 0 {
            return Err(bad("start and count must not be negative"));
        }
        if step < 1 {
            return Err(bad("step must be at least 1"));
        }
        if count == 0 {
            return Ok(Range { start: 0, count: 0, step: 1 });
        }
        let step = if count == 1 { 1 } else { step };
        (count - 1)
            .checked_mul(step)
            .and_then(|span| span.checked_add(start))
            .filter(|last| *last < i64::MAX)
            .ok_or_else(|| bad("the last index does not fit in 63 bits"))?;
        Ok(Range { start, count, step })
    }

    /// One past the last index; `start` if empty.
    pub fn stop(&self) -> i64 {
        if self.count == 0 {
            self.start
        } else {
            self.start + (self.count - 1) * self.step + 1
        }
    }

    /// Index number `k`.
    pub(crate) fn index(&self, k: i64) -> i64 {
        self.start + k * self.step
    }

    /// Members number `first..first + count`.
    pub(crate) fn part(&self, first: i64, count: i64) -> Range {
        match count {
            0 => Range { start: 0, count: 0, step: 1 },
            1 => Range { start: self.index(first), count, step: 1 },
            _ => Range { start: self.index(first), count, step: self.step },
        }
    }

    /// Numbers of the members in `low..high`, as first and count.
    pub(crate) fn members(&self, low: i64, high: i64) -> (i64, i64) {
        let below = |bound: i64| {
            if bound <= self.start {
                0
            } else {
                ((bound - self.start - 1) / self.step + 1).min(self.count)
            }
        };
        let (first, end) = (below(low), below(high));
        (first, (end - first).max(0))
    }

    /// The indices in both ranges: again a range (Chinese remainder theorem).
    pub fn intersect(&self, other: &Range) -> Range {
        const EMPTY: Range = Range { start: 0, count: 0, step: 1 };
        if self.count == 0 || other.count == 0 {
            return EMPTY;
        }
        let (low, high) = (self.start.max(other.start), self.stop().min(other.stop()));
        let (s, t) = (i128::from(self.step), i128::from(other.step));
        let (g, x) = gcd(s, t);
        let apart = i128::from(other.start) - i128::from(self.start);
        if apart % g != 0 {
            return EMPTY;
        }
        // self.start + k * s is in the other range for k = k0 (mod t / g).
        let k0 = ((apart / g) * x).rem_euclid(t / g);
        let step = s / g * t;
        let meet = i128::from(self.start) + k0 * s;
        let first = meet + (i128::from(low) - meet).div_euclid(step) * step;
        let first = if first < i128::from(low) { first + step } else { first };
        if first >= i128::from(high) {
            return EMPTY;
        }
        let count = (i128::from(high) - 1 - first) / step + 1;
        // All of these values lie in the smaller of two ranges of i64.
        let start = i64::try_from(first).unwrap_or(0);
        let count = i64::try_from(count).unwrap_or(0);
        let step = if count == 1 { 1 } else { i64::try_from(step).unwrap_or(1) };
        Range { start, count, step }
    }
}

/// `g = gcd(a, b)` and `x` with `a * x = g (mod b)`, for positive arguments.
fn gcd(a: i128, b: i128) -> (i128, i128) {
    let (mut r, mut s) = ((a, b), (1, 0));
    while r.1 != 0 {
        let q = r.0 / r.1;
        r = (r.1, r.0 - q * r.1);
        s = (s.1, s.0 - q * s.1);
    }
    (r.0, s.0)
}

impl Section {
    /// A section from its ranges.
    pub fn new(ranges: Vec<Range>) -> Section {
        Section { ranges }
    }

    /// The whole of an array of this shape.
    pub fn whole(shape: &[i64]) -> Result<Section, PlanError> {
        let ranges = shape.iter().map(|n| Range::new(0, *n, 1)).collect::<Result<_, _>>()?;
        Ok(Section { ranges })
    }

    /// The ranges, one per axis.
    pub fn ranges(&self) -> &[Range] {
        &self.ranges
    }

    /// Number of axes.
    pub fn ndim(&self) -> usize {
        self.ranges.len()
    }

    /// Number of indices along each axis.
    pub fn shape(&self) -> Vec<i64> {
        self.ranges.iter().map(|r| r.count).collect()
    }

    /// Returns whether the section has no element.
    pub fn is_empty(&self) -> bool {
        self.ranges.iter().any(|r| r.count == 0)
    }

    /// Number of elements.
    pub fn count(&self) -> Result<i64, PlanError> {
        if self.is_empty() {
            return Ok(0);
        }
        let product = self.ranges.iter().try_fold(1_i64, |n, r| n.checked_mul(r.count));
        product.ok_or(PlanError::TooLarge("the number of elements"))
    }

    /// Rejects a section that does not lie within an array of this shape.
    pub fn within(&self, shape: &[i64]) -> Result<(), PlanError> {
        if self.ndim() != shape.len() {
            return Err(PlanError::BadSection {
                what: self.to_string(),
                why: "its number of axes differs from that of the array",
            });
        }
        for (axis, (r, len)) in self.ranges.iter().zip(shape).enumerate() {
            if r.stop() > *len {
                return Err(PlanError::OutOfBounds { section: self.to_string(), axis, len: *len });
            }
        }
        Ok(())
    }

    /// The elements in both sections; `None` if the numbers of axes differ.
    pub fn intersect(&self, other: &Section) -> Option<Section> {
        if self.ndim() != other.ndim() {
            return None;
        }
        let both = self.ranges.iter().zip(&other.ranges);
        Some(Section { ranges: both.map(|(a, b)| a.intersect(b)).collect() })
    }

    /// Indices number `first..first + count` of one axis, and all indices of the other axes.
    pub fn part(&self, axis: usize, first: i64, count: i64) -> Result<Section, PlanError> {
        let bad = |why| PlanError::BadSection { what: self.to_string(), why };
        let range = self.ranges.get(axis).ok_or_else(|| bad("the axis does not exist"))?;
        if first < 0 || count < 0 || first > range.count - count {
            return Err(bad("the requested part is outside"));
        }
        let mut ranges = self.ranges.clone();
        ranges[axis] = range.part(first, count);
        Ok(Section { ranges })
    }

    /// Cuts one axis before its index number `at` into two sections.
    pub fn split(&self, axis: usize, at: i64) -> Result<(Section, Section), PlanError> {
        let count = self.ranges.get(axis).map_or(0, |r| r.count);
        Ok((self.part(axis, 0, at)?, self.part(axis, at, count - at)?))
    }

    /// The smallest section of step 1 that contains this one.
    pub fn bounding(&self) -> Section {
        let bound = |r: &Range| Range { start: r.start, count: r.stop() - r.start, step: 1 };
        Section { ranges: self.ranges.iter().map(bound).collect() }
    }

    /// Every index, last axis fastest. For tests and small sections.
    pub fn indices(&self) -> impl Iterator<Item = Vec<i64>> + '_ {
        let mut next = (!self.is_empty()).then(|| vec![0; self.ndim()]);
        core::iter::from_fn(move || {
            let at = next.clone()?;
            let index = at.iter().zip(&self.ranges).map(|(k, r)| r.index(*k)).collect();
            next = (0..at.len()).rev().find(|&d| at[d] + 1 < self.ranges[d].count).map(|d| {
                let mut step = at.clone();
                step[d] += 1;
                step[d + 1..].fill(0);
                step
            });
            Some(index)
        })
    }
}

impl core::fmt::Display for Section {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "[")?;
        for (d, r) in self.ranges.iter().enumerate() {
            let comma = if d > 0 { ", " } else { "" };
            match (r.count, r.step) {
                (1, _) => write!(f, "{comma}{}", r.start)?,
                (_, 1) => write!(f, "{comma}{}:{}", r.start, r.stop())?,
                _ => write!(f, "{comma}{}:{}:{}", r.start, r.stop(), r.step)?,
            }
        }
        write!(f, "]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range() -> impl Strategy<Value = Range> {
        (0..40_i64, 0..12_i64, 1..9_i64).prop_map(|(a, n, s)| Range::new(a, n, s).unwrap())
    }

    fn set(r: &Range) -> Vec<i64> {
        (0..r.count).map(|k| r.index(k)).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn intersection_is_that_of_sets(a in range(), b in range()) {
            let expected: Vec<i64> = set(&a).into_iter().filter(|i| set(&b).contains(i)).collect();
            let both = a.intersect(&b);
            prop_assert_eq!(&expected, &set(&both));
            prop_assert_eq!(Range::new(both.start, both.count, both.step).unwrap(), both);
            prop_assert_eq!(both, b.intersect(&a));
        }

        #[test]
        fn members_are_those_between(r in range(), low in 0..60_i64, len in 0..60_i64) {
            let (first, count) = r.members(low, low + len);
            let expected: Vec<i64> =
                set(&r).into_iter().filter(|i| (low..low + len).contains(i)).collect();
            prop_assert_eq!(expected, set(&r.part(first, count)));
        }

        #[test]
        fn a_split_loses_nothing(a in range(), b in range(), at in 0..12_i64) {
            let whole = Section::new(vec![a, b]);
            let at = at.min(b.count);
            let (left, right) = whole.split(1, at).unwrap();
            prop_assert_eq!(whole.count().unwrap(), left.count().unwrap() + right.count().unwrap());
            let mut both: Vec<_> = left.indices().chain(right.indices()).collect();
            both.sort();
            let mut expected: Vec<_> = whole.indices().collect();
            expected.sort();
            prop_assert_eq!(expected, both);
        }
    }

    #[test]
    fn large_ranges_do_not_wrap() {
        let big = i64::MAX - 1;
        assert!(Range::new(1, big, 2).is_err());
        assert!(Range::new(big, 2, 1).is_err());
        let a = Range::new(0, 3, big / 2).unwrap();
        let b = Range::new(big / 2, 2, 1).unwrap();
        assert_eq!(Range::new(big / 2, 1, 1).unwrap(), a.intersect(&b));
        let many = Section::whole(&[1 << 40, 1 << 40]).unwrap();
        assert_eq!(Err(PlanError::TooLarge("the number of elements")), many.count());
        let none = Section::whole(&[1 << 40, 0, 1 << 40]).unwrap();
        assert_eq!(Ok(0), none.count());
    }

    #[test]
    fn sections_have_edges() {
        let scalar = Section::new(vec![]);
        assert_eq!((Ok(1), 1), (scalar.count(), scalar.indices().count()));
        assert_eq!(Ok(()), scalar.within(&[]));
        let s = Section::new(vec![Range::new(2, 3, 4).unwrap(), Range::new(0, 5, 1).unwrap()]);
        assert_eq!("[2:11:4, 0:5]", s.to_string());
        assert_eq!("[2:11, 0:5]", s.bounding().to_string());
        assert_eq!(Ok(()), s.within(&[11, 5]));
        assert!(matches!(s.within(&[10, 5]), Err(PlanError::OutOfBounds { axis: 0, len: 10, .. })));
        assert!(s.within(&[11]).is_err() && s.part(2, 0, 1).is_err() && s.split(0, 4).is_err());
    }
}
