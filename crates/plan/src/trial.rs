//! A first part of a scattered read that serves as a trial of a disk with unknown rates.
//!
//! The part has about as many requests as the caller specified. The remainder is a few sections,
//! which are planned when the trial has measured the cost of requests.

use alloc::vec;
use alloc::vec::Vec;

use crate::error::PlanError;
use crate::layout::Strided;
use crate::section::{Range, Section};

/// Number of requests of trials.
///
/// A throttle that works in steps of a tenth of a second immediately grants the requests left in
/// one step and all requests of the next, 20 requests each at 200 requests per second. A trial that
/// ends in the third step has therefore waited for a whole step, wherever it began.
pub const TRIALS: [i64; 2] = [44, 40];
/// Minimum number of requests of a read that justifies a trial.
pub const WORTH: i64 = 96;
/// Elements within this many bytes share a page.
const PAGE: i64 = 4096;
/// Position of a sample in its run, in parts of 32; other probes use sixteenths.
const WITHIN: i128 = 11;

/// Cuts a section into a first part of about `wanted` requests, and the remainder.
///
/// A plan of the section has `reads` requests.
///
/// # Errors
/// Does not fail for a section of this layout.
pub fn cut(
    layout: &Strided,
    section: &Section,
    reads: i64,
    wanted: i64,
) -> Result<Vec<Section>, PlanError> {
    let mut axes: Vec<usize> = (0..section.ndim()).collect();
    let apart = |axis: &usize| layout.strides[*axis].saturating_mul(section.ranges()[*axis].step);
    axes.sort_by_key(|axis| core::cmp::Reverse(apart(axis).saturating_abs()));
    let (mut part, mut rest, mut reads) = (section.clone(), Vec::new(), reads);
    for axis in axes {
        let count = section.ranges()[axis].count;
        if count < 2 || reads <= wanted {
            continue;
        }
        // Number of indices of this axis with about the wanted number of requests, at least one.
        let each = (reads / count).max(1);
        let taken = (wanted / each).clamp(1, count - 1);
        let (first, others) = part.split(axis, taken)?;
        rest.push(others);
        part = first;
        reads = each.saturating_mul(taken);
    }
    let mut all = vec![part];
    all.extend(rest.into_iter().rev());
    Ok(all)
}

/// Elements that take about `wanted` of a section's `reads` requests, one in each.
///
/// The second value is a part of the remainder, for further samples.
///
/// # Errors
/// Does not fail for a section of this layout.
pub fn samples(
    layout: &Strided,
    section: &Section,
    reads: i64,
    wanted: i64,
) -> Result<(Section, Option<Section>), PlanError> {
    let mut parts = cut(layout, section, reads, wanted)?.into_iter();
    let mut few = parts.next().unwrap_or_else(|| section.clone());
    for axis in 0..few.ndim() {
        let range = few.ranges()[axis];
        let apart = layout.strides[axis].saturating_mul(range.step).saturating_abs();
        if range.count > 1 && apart < PAGE {
            // Not at the beginning: otherwise a probe of the page cache that finds these pages
            // would count all pages as cached.
            let (within, count) = (i128::from(range.count) * WITHIN / 32, 1);
            few = few.part(axis, i64::try_from(within).unwrap_or(0), count)?;
        }
    }
    Ok((few, parts.next()))
}

/// Returns whether a section skips so much of its span that another method may suit another disk.
pub fn is_scattered(layout: &Strided, section: &Section, read_bytes: i64) -> bool {
    let reach = |(range, stride): (&Range, &i64)| {
        (range.count - 1).max(0).saturating_mul(range.step).saturating_mul(*stride).saturating_abs()
    };
    let span = section.ranges().iter().zip(&layout.strides).map(reach);
    span.fold(layout.item, i64::saturating_add) / 2 > read_bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::layout::Part;

    fn layout(shape: &[i64]) -> Strided {
        let mut strides = vec![8; shape.len()];
        for axis in (0..shape.len().saturating_sub(1)).rev() {
            strides[axis] = strides[axis + 1] * shape[axis + 1];
        }
        let len = shape.iter().product::<i64>() * 8;
        let parts = vec![Part { file: 0, offset: 0, len }];
        Strided { shape: shape.to_vec(), item: 8, strides, parts }
    }

    fn section(ranges: &[(i64, i64, i64)]) -> Section {
        let range = |&(start, count, step)| Range::new(start, count, step).unwrap();
        Section::new(ranges.iter().map(range).collect())
    }

    #[test]
    fn rows_apart_are_cut_along_the_rows() {
        let layout = layout(&[16_000, 8192]);
        let rows = section(&[(0, 1000, 16), (0, 512, 1)]);
        let parts = cut(&layout, &rows, 1000, 40).unwrap();
        let first = section(&[(0, 40, 16), (0, 512, 1)]);
        assert_eq!(parts, [first, section(&[(640, 960, 16), (0, 512, 1)])]);
    }

    #[test]
    fn a_costly_axis_with_many_requests_for_an_index_is_cut_further() {
        let layout = layout(&[2, 16_000, 8192]);
        let rows = section(&[(0, 2, 1), (0, 1000, 16), (0, 512, 1)]);
        let parts = cut(&layout, &rows, 2000, 40).unwrap();
        assert_eq!(
            parts,
            [
                section(&[(0, 1, 1), (0, 40, 16), (0, 512, 1)]),
                section(&[(0, 1, 1), (640, 960, 16), (0, 512, 1)]),
                section(&[(1, 1, 1), (0, 1000, 16), (0, 512, 1)]),
            ]
        );
    }

    #[test]
    fn samples_are_one_element_of_each_request() {
        let layout = layout(&[16_000, 8192]);
        let rows = section(&[(0, 1000, 16), (0, 512, 1)]);
        let (few, rest) = samples(&layout, &rows, 1000, 28).unwrap();
        assert_eq!(few, section(&[(0, 28, 16), (176, 1, 1)]));
        let rest = rest.unwrap();
        assert_eq!(rest, section(&[(28 * 16, 972, 16), (0, 512, 1)]));
        assert!(few.intersect(&rest).is_none_or(|both| both.is_empty()));
        // Each element of a column is a request.
        let column = section(&[(0, 100, 1), (5, 1, 1)]);
        assert_eq!(samples(&layout, &column, 100, 28).unwrap().0.count(), Ok(28));
        let one = section(&[(3, 1, 1), (5, 1, 1)]);
        assert_eq!(samples(&layout, &one, 1, 28).unwrap(), (one, None));
    }

    #[test]
    fn dense_sections_are_not_scattered() {
        let layout = layout(&[1000, 1000]);
        assert!(!is_scattered(&layout, &section(&[(0, 1000, 1), (0, 1000, 1)]), 8_000_000));
        assert!(is_scattered(&layout, &section(&[(0, 1000, 1), (0, 10, 1)]), 80_000));
    }

    proptest! {
        #[test]
        fn parts_are_the_section_and_do_not_overlap(
            ranges in prop::collection::vec((0i64..5, 1i64..7, 1i64..4), 1..4),
            reads in 1i64..300,
            wanted in 1i64..50,
        ) {
            let shape: Vec<i64> = ranges.iter().map(|(s, n, k)| s + n * k).collect();
            let whole = section(&ranges);
            let parts = cut(&layout(&shape), &whole, reads, wanted).unwrap();
            let mut found: Vec<_> = parts.iter().flat_map(|part| part.indices()).collect();
            found.sort();
            prop_assert_eq!(found, whole.indices().collect::<Vec<_>>());
            prop_assert!(parts.len() <= ranges.len() + 1);
        }
    }
}
