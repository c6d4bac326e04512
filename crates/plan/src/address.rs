//! Arithmetic of byte addresses: pages, alignment, and loops of strides.

/// A page of the page cache, as counted by planners.
pub(crate) const PAGE: i64 = 4096;

/// Rounds up to a multiple of a power of two.
pub(crate) fn round_up(n: i64, block: i64) -> i64 {
    n.saturating_add(block - 1) & -block
}

/// The largest address modulo `block` at which an extent can begin.
///
/// `base` is the address of one extent and `distances` are the distances between extents. `block`
/// is a power of two.
pub(crate) fn worst_residue(base: i64, distances: impl Iterator<Item = i64>, block: i64) -> i64 {
    let unit = distances.fold(block, |unit, d| {
        let lowest = d & d.wrapping_neg();
        if lowest > 0 {
            unit.min(lowest)
        } else {
            unit
        }
    });
    block - unit + base.rem_euclid(unit)
}

/// Returns whether the loops nest.
///
/// The loops nest if each stride, sorted by length, is at least the span of the shorter ones.
/// Nested loops address no byte twice. Strides that interleave without nesting are rejected, too.
pub fn nests(len: i64, count: &[i64], stride: &[i64]) -> bool {
    let mut done = len;
    let mut below = -1_i64; // strides up to this length are checked
    loop {
        let mut next: Option<(i64, i64)> = None; // the shortest stride not yet checked, its reach
        for (n, s) in count.iter().zip(stride) {
            let Some(s) = s.checked_abs() else { return false };
            if *n > 1 && s > below && next.is_none_or(|(least, _)| s < least) {
                let Some(reach) = (n - 1).checked_mul(s) else { return false };
                next = Some((s, reach));
            } else if *n > 1 && next.is_some_and(|(least, _)| s == least) && s > below {
                return false; // two loops of equal stride overlap
            }
        }
        let Some((s, reach)) = next else { return true };
        if s < done {
            return false;
        }
        let Some(sum) = done.checked_add(reach) else { return false };
        (done, below) = (sum, s);
    }
}
