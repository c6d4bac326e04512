//! Cutting a section into slabs of bounded size.
//!
//! Used where a whole section at once would break the memory promise: a value that must be cast
//! before it is written. Slabs are disjoint, cover the section, and end on the boundaries of chunks
//! where they can, so that no chunk is encoded twice without need.

use outcore_plan::{Layout, Range, Section};

use crate::errors::Fault;

/// A part of a section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slab {
    /// First index within the section's own ranges, per axis.
    pub lo: Vec<i64>,
    /// Indices per axis.
    pub count: Vec<i64>,
    /// The elements, in the array.
    pub section: Section,
}

/// Cuts `section` into slabs of at most `limit` elements (or of one element, if that is more).
pub fn cut(
    section: &Section,
    layout: &Layout,
    fortran: bool,
    limit: i64,
) -> Result<Vec<Slab>, Fault> {
    let ranges = section.ranges();
    let unit: Vec<i64> = match layout {
        Layout::Strided(_) => vec![1; ranges.len()],
        Layout::Chunked(chunked) => chunked.chunk.clone(),
    };
    let order: Vec<usize> =
        if fortran { (0..ranges.len()).collect() } else { (0..ranges.len()).rev().collect() };
    let thick = thickness(ranges, &unit, &order, limit.max(1));
    let pieces: Vec<Vec<(i64, i64)>> =
        (0..ranges.len()).map(|d| pieces(&ranges[d], unit[d], thick[d])).collect();
    let mut slabs = vec![];
    let mut at = vec![0_usize; ranges.len()];
    if pieces.iter().any(Vec::is_empty) {
        return Ok(slabs);
    }
    loop {
        slabs.push(slab(ranges, &pieces, &at)?);
        // The fastest axis moves first: slabs follow each other in the file.
        let Some(d) = order.iter().copied().find(|d| at[*d] + 1 < pieces[*d].len()) else {
            return Ok(slabs);
        };
        at[d] += 1;
        order.iter().take_while(|e| **e != d).for_each(|e| at[*e] = 0);
    }
}

/// Indices per axis of a full slab: whole chunks, grown along the fast axes first.
fn thickness(ranges: &[Range], unit: &[i64], order: &[usize], limit: i64) -> Vec<i64> {
    // Indices of the range that fall into one chunk.
    let mut thick: Vec<i64> = ranges
        .iter()
        .zip(unit)
        .map(|(range, unit)| (unit / range.step).clamp(1, range.count.max(1)))
        .collect();
    let product = |thick: &[i64]| thick.iter().fold(1_i64, |all, n| all.saturating_mul(*n));
    // A chunk alone is too much: cut it, slow axes first.
    for d in order.iter().rev() {
        let others = product(&thick) / thick[*d].max(1);
        if product(&thick) > limit {
            thick[*d] = (limit / others.max(1)).clamp(1, thick[*d]);
        }
    }
    for d in order {
        let others = product(&thick) / thick[*d].max(1);
        let most = (limit / others.max(1)).clamp(thick[*d], ranges[*d].count.max(1));
        let whole_chunks = most - most % thick[*d];
        thick[*d] = if most == ranges[*d].count { most } else { whole_chunks.max(1) };
        if thick[*d] < ranges[*d].count {
            break;
        }
    }
    thick
}

/// The cuts along one axis: first index and count, in indices of the range.
fn pieces(range: &Range, unit: i64, thick: i64) -> Vec<(i64, i64)> {
    let mut pieces = vec![];
    let mut at = 0;
    while at < range.count {
        let mut count = thick.min(range.count - at);
        // End on a chunk boundary, if there is one inside.
        let end = range.start + (at + count) * range.step;
        if range.step == 1 && at + count < range.count && count > end % unit {
            count -= end % unit;
        }
        pieces.push((at, count));
        at += count;
    }
    pieces
}

fn slab(ranges: &[Range], pieces: &[Vec<(i64, i64)>], at: &[usize]) -> Result<Slab, Fault> {
    let chosen: Vec<(i64, i64)> = pieces.iter().zip(at).map(|(list, k)| list[*k]).collect();
    let section = ranges
        .iter()
        .zip(&chosen)
        .map(|(r, (lo, n))| Range::new(r.start + lo * r.step, *n, r.step))
        .collect::<Result<_, _>>()?;
    let (lo, count) = chosen.into_iter().unzip();
    Ok(Slab { lo, count, section: Section::new(section) })
}
