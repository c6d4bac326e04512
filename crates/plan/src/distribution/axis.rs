//! One axis of a distributed array: the grid coordinate that owns each index.
//!
//! Problem: HPF gives index `i` to the coordinate that owns cell `t = stride * i + offset` of a
//! template, and templates are cut into blocks, assigned cyclically, or both. Arrays are too long
//! to process index by index.
//!
//! Approach: two rules suffice. *Blocks*: a coordinate owns one interval of the template, hence one
//! interval of the array, whatever the alignment. *Turns* (CYCLIC): with `M` cells in a turn of all
//! coordinates, only `stride mod M` and `offset mod M` matter. The number of owned indices below
//! `x` is then a sum of floors, which a Euclidean algorithm computes without a loop over `x`. It
//! gives the position of an index in its owner's memory, and bisection gives the inverse.
//!
//! Invariants: every index has one owner. Owned indices are stored in ascending order without gaps.
//! Products use 128 bits: indices, strides and extents have 63, and `M` is less than the extent.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::pattern::{affine, Align, Pattern};
use crate::error::PlanError;
use crate::section::Range;

/// Maximum number of ranges into which one axis, or a product of axes, is cut.
pub(super) const MOST_PIECES: i64 = 1 << 22;

/// A range of indices and the places where they are stored, in the same order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Strip {
    /// The indices in the whole array.
    pub global: Range,
    /// Their places in the memory of the rank.
    pub local: Range,
}

/// Indices next to the owned ones that a rank stores as copies: at most this many on each side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ghost {
    /// Number before the first owned index.
    pub low: i64,
    /// Number after the last owned index.
    pub high: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Axis {
    len: i64,
    /// Number of coordinates that share the axis.
    over: i64,
    rule: Rule,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Rule {
    /// Every coordinate has the whole axis.
    Whole,
    /// Coordinate `c` owns cells `c * size..(c + 1) * size`.
    Equal { size: i64, stride: i64, offset: i64 },
    /// Coordinate `c` owns the cells from end `c - 1` to end `c`.
    General { ends: Vec<i64>, stride: i64, offset: i64 },
    /// Coordinate `c` owns the cells that are in `c * size..(c + 1) * size` modulo `turn`.
    Turns { size: i64, turn: i64, stride: i64, offset: i64 },
}

fn bad<T>(why: String) -> Result<T, PlanError> {
    Err(PlanError::BadDistribution(why))
}

fn wide(n: i64) -> i128 {
    i128::from(n)
}

/// Converts back from 128 bits.
///
/// Callers ensure that the value fits; otherwise the result is wrong, but there is no panic.
fn narrow(n: i128) -> i64 {
    i64::try_from(n).unwrap_or(if n < 0 { 0 } else { i64::MAX })
}

fn ceil_div(a: i128, b: i128) -> i128 {
    -(-a).div_euclid(b)
}

/// Number of cells of the template: the given one, or up to the last cell with an element.
pub(super) fn extent(len: i64, align: &Align) -> Result<i64, PlanError> {
    let Align { stride, offset, extent } = *align;
    if stride == 0 {
        return bad(
            "an alignment with stride 0 puts all indices on one cell; give a stride other than 0"
                .into(),
        );
    }
    let last = wide(stride) * wide(len.max(1) - 1) + wide(offset);
    let (low, high) = (last.min(wide(offset)), last.max(wide(offset)));
    let needed = if len == 0 { 0 } else { high + 1 };
    let Ok(needed) = i64::try_from(needed) else {
        return Err(PlanError::TooLarge("the template that the array is aligned with"));
    };
    let extent = extent.unwrap_or(needed.max(0));
    if extent < 0 || (len > 0 && (low < 0 || needed > extent)) {
        return bad(format!(
            "an axis of length {len} aligned with {} needs cells {low} to {high}, but the template \
             has {extent} cells (from 0 on); change the offset or the extent",
            affine(stride, offset)
        ));
    }
    Ok(extent)
}

impl Axis {
    /// An axis of `len` indices over `over` coordinates of the grid.
    pub fn new(len: i64, over: i64, pattern: &Pattern, align: &Align) -> Result<Axis, PlanError> {
        let cells = extent(len, align)?;
        let Align { stride, offset, .. } = *align;
        let equal = |size: i64| Rule::Equal { size: size.clamp(1, cells.max(1)), stride, offset };
        let rule = match pattern {
            Pattern::Whole => Rule::Whole,
            Pattern::Block(None) => equal(block(cells, over)),
            Pattern::Block(Some(size)) => {
                if *size < 1 || wide(*size) * wide(over) < wide(cells) {
                    return bad(format!(
                        "BLOCK({size}) on {over} ranks holds less than the {cells} cells to be \
                         distributed; give blocks of {} or more",
                        block(cells, over)
                    ));
                }
                equal(*size)
            }
            Pattern::Cyclic(size) if *size < 1 => {
                return bad(format!(
                    "CYCLIC({size}) has an invalid block size; give blocks of 1 or more"
                ));
            }
            // If one turn has all cells, the rule is the same as for blocks. The same holds for a
            // single coordinate.
            Pattern::Cyclic(size) if wide(*size) * wide(over) >= wide(cells) => equal(*size),
            Pattern::Cyclic(_) if over == 1 => equal(cells),
            Pattern::Cyclic(size) => {
                let turn = size * over; // less than `cells`
                let (stride, offset) = (stride.rem_euclid(turn), offset.rem_euclid(turn));
                Rule::Turns { size: *size, turn, stride, offset }
            }
            Pattern::General(lengths) => {
                let ends = ends(lengths, over, cells)?;
                Rule::General { ends, stride, offset }
            }
        };
        Ok(Axis { len, over, rule })
    }

    /// Returns whether each coordinate owns one interval.
    pub fn is_in_one_piece(&self) -> bool {
        !matches!(self.rule, Rule::Turns { .. })
    }

    /// The coordinate that owns an index (0 if all coordinates have it).
    pub fn owner(&self, index: i64) -> i64 {
        let cell = |stride: i64, offset: i64| wide(stride) * wide(index) + wide(offset);
        match &self.rule {
            Rule::Whole => 0,
            Rule::Equal { size, stride, offset } => narrow(cell(*stride, *offset) / wide(*size)),
            Rule::General { ends, stride, offset } => {
                let cell = cell(*stride, *offset);
                narrow(ends.partition_point(|end| wide(*end) <= cell) as i128)
            }
            Rule::Turns { size, turn, stride, offset } => {
                narrow(cell(*stride, *offset).rem_euclid(wide(*turn)) / wide(*size))
            }
        }
    }

    /// Coordinates that may own a part of a range.
    ///
    /// For blocks these are exactly the owners, for turns all coordinates.
    pub fn candidates(&self, range: &Range) -> core::ops::Range<i64> {
        if range.count == 0 {
            return 0..0;
        }
        if !self.is_in_one_piece() {
            return 0..self.over;
        }
        // Blocks ascend or descend with the indices.
        let (a, b) = (self.owner(range.start), self.owner(range.stop() - 1));
        a.min(b)..a.max(b) + 1
    }

    /// Number of indices below `x` that coordinate `c` owns.
    pub fn below(&self, c: i64, x: i64) -> i64 {
        match self.rule {
            Rule::Turns { size, turn, stride, offset } => {
                turns_below(&Turn { size, turn, stride, offset }, c, x)
            }
            _ => {
                let (first, end) = self.interval(c);
                (x.min(end) - first).max(0)
            }
        }
    }

    /// Number of indices that coordinate `c` owns.
    pub fn count(&self, c: i64) -> i64 {
        self.below(c, self.len)
    }

    /// The index with number `k` among those that coordinate `c` owns; it must exist.
    pub fn index(&self, c: i64, k: i64) -> i64 {
        let Rule::Turns { turn, stride, .. } = self.rule else {
            return self.interval(c).0 + k;
        };
        // Ownership repeats after `period` indices, so bisect within one period.
        let period = (turn / gcd(stride, turn)).min(self.len).max(1);
        let each = self.below(c, period).max(1);
        let (before, within) = ((k / each) * period, k % each);
        let (mut low, mut high) = (0, period);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.below(c, middle + 1) > within {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        before + low
    }

    /// First index that coordinate `c` owns and one past the last, if they form one interval.
    ///
    /// Both are equal if the coordinate owns no index.
    fn interval(&self, c: i64) -> (i64, i64) {
        let (from, to, stride, offset) = match &self.rule {
            Rule::Whole => return (0, self.len),
            Rule::Turns { .. } => return (0, 0),
            Rule::Equal { size, stride, offset } => {
                (wide(*size) * wide(c), wide(*size) * wide(c + 1), *stride, *offset)
            }
            Rule::General { ends, stride, offset } => {
                let c = usize::try_from(c).unwrap_or(usize::MAX);
                let end = |c: usize| ends.get(c).copied().map_or(0, wide);
                (if c == 0 { 0 } else { end(c - 1) }, end(c), *stride, *offset)
            }
        };
        preimage(from, to, wide(stride), wide(offset), self.whole())
    }

    /// The strips of coordinate `c` within `window` (first index, one past the last).
    ///
    /// Places in memory account for the `ghost` indices stored next to the owned ones; with `all`,
    /// the ghosts are included. The strips ascend by first index.
    pub fn strips(
        &self,
        c: i64,
        ghost: Ghost,
        all: bool,
        window: (i64, i64),
    ) -> Result<Vec<Strip>, PlanError> {
        if let Rule::Turns { size, turn, stride, offset } = self.rule {
            self.refuse_ghost(ghost)?;
            return turns(&Turn { size, turn, stride, offset }, c, window);
        }
        let (kept, _) = self.kept_interval(c, ghost);
        let (first, end) = self.hull(c, ghost, all);
        let (first, end) = (first.max(window.0), end.min(window.1));
        strip(first, (end - first).max(0), first - kept)
    }

    /// The interval of all indices.
    pub fn whole(&self) -> (i64, i64) {
        (0, self.len)
    }

    /// An interval that contains all indices of coordinate `c`.
    pub fn hull(&self, c: i64, ghost: Ghost, all: bool) -> (i64, i64) {
        match (self.is_in_one_piece(), all) {
            (false, _) => self.whole(),
            (true, false) => self.interval(c),
            (true, true) => self.kept_interval(c, ghost),
        }
    }

    /// Number of indices that are stored, including ghosts.
    pub fn kept_count(&self, c: i64, ghost: Ghost) -> Result<i64, PlanError> {
        if !self.is_in_one_piece() {
            self.refuse_ghost(ghost)?;
            return Ok(self.count(c));
        }
        let (first, end) = self.kept_interval(c, ghost);
        Ok(end - first)
    }

    fn kept_interval(&self, c: i64, ghost: Ghost) -> (i64, i64) {
        let (first, end) = self.interval(c);
        if first == end {
            return (first, end);
        }
        let high = end.saturating_add(ghost.high).min(self.len);
        (first.saturating_sub(ghost.low).max(0), high)
    }

    fn refuse_ghost(&self, ghost: Ghost) -> Result<(), PlanError> {
        if ghost == Ghost::default() {
            return Ok(());
        }
        bad("ghost widths are not possible on a CYCLIC axis, whose parts have neighbours on all \
             sides; use BLOCK, or width 0 there"
            .into())
    }

    /// Number of coordinates that share the axis.
    pub fn over(&self) -> i64 {
        self.over
    }
}

/// Number of cells of a block if each of `over` coordinates has at most one block.
pub(super) fn block(cells: i64, over: i64) -> i64 {
    (cells / over + i64::from(cells % over > 0)).max(1)
}

fn ends(lengths: &[i64], over: i64, cells: i64) -> Result<Vec<i64>, PlanError> {
    if wide(over) != lengths.len() as i128 {
        return bad(format!(
            "there are {} lengths of general blocks for {over} ranks; give one for each",
            lengths.len()
        ));
    }
    let mut end = 0_i64;
    let mut ends = Vec::with_capacity(lengths.len());
    for length in lengths {
        if *length < 0 {
            return bad(format!("a general block has length {length}; give 0 or more"));
        }
        end = end.checked_add(*length).ok_or(PlanError::TooLarge("the sum of general blocks"))?;
        ends.push(end);
    }
    if end < cells {
        return bad(format!(
            "general blocks hold {end} cells together, but {cells} are to be distributed; make them \
             longer"
        ));
    }
    Ok(ends)
}

/// The indices of `window` that `stride * i + offset` maps to `from..to`: first, one past the last.
fn preimage(from: i128, to: i128, stride: i128, offset: i128, window: (i64, i64)) -> (i64, i64) {
    let (first, end) = if stride > 0 {
        (ceil_div(from - offset, stride), ceil_div(to - offset, stride))
    } else {
        (ceil_div(offset - to + 1, -stride), ceil_div(offset - from + 1, -stride))
    };
    let (first, end) = (first.max(wide(window.0)), end.min(wide(window.1)));
    if first < end {
        (narrow(first), narrow(end))
    } else {
        (0, 0)
    }
}

fn strip(first: i64, count: i64, local: i64) -> Result<Vec<Strip>, PlanError> {
    if count == 0 {
        return Ok(vec![]);
    }
    Ok(vec![Strip { global: Range::new(first, count, 1)?, local: Range::new(local, count, 1)? }])
}

// ------------------------------------------------------------------------------------------ turns

struct Turn {
    size: i64,
    turn: i64,
    stride: i64,
    offset: i64,
}

/// Number of indices below `x` whose cell, modulo `turn`, is in the block of `c`.
fn turns_below(t: &Turn, c: i64, x: i64) -> i64 {
    let from = wide(c) * wide(t.size);
    let floors = |shift: i128| floor_sum(wide(x), wide(t.turn), wide(t.stride), shift);
    // A multiple of `turn` lies in (cell - to, cell - from] exactly if the remainder is in
    // from..to.
    let upto = wide(t.offset) - from;
    narrow(floors(upto) - floors(upto - wide(t.size)))
}

/// The sum of `floor((a * i + b) / m)` over `i` in `0..n`, for `0 <= a < m` and any `b`.
fn floor_sum(n: i128, m: i128, a: i128, b: i128) -> i128 {
    let mut sum = n * b.div_euclid(m);
    let (mut n, mut m, mut a, mut b) = (n, m, a, b.rem_euclid(m));
    loop {
        if a >= m {
            sum += n * (n - 1) / 2 * (a / m);
            a %= m;
        }
        sum += n * (b / m);
        b %= m;
        let top = a * n + b;
        if top < m {
            return sum;
        }
        // Count the same points under the line by rows instead of columns.
        (n, b) = (top / m, top % m);
        (m, a) = (a, m);
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a, b);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a.max(1)
}

/// The `x` with `a * x = 1 (mod m)`, for `a` prime to `m`.
fn inverse(a: i128, m: i128) -> i128 {
    let (mut r, mut s) = ((a.rem_euclid(m), m), (1_i128, 0_i128));
    while r.1 != 0 {
        let q = r.0 / r.1;
        r = (r.1, r.0 - q * r.1);
        s = (s.1, s.0 - q * s.1);
    }
    s.0.rem_euclid(m)
}

/// The indices of a window that coordinate `c` owns.
///
/// The result has intervals or strided ranges, whichever are fewer.
fn turns(t: &Turn, c: i64, window: (i64, i64)) -> Result<Vec<Strip>, PlanError> {
    let before = turns_below(t, c, window.0);
    let count = turns_below(t, c, window.1.max(window.0)) - before;
    if count == 0 {
        return Ok(vec![]);
    }
    let (size, turn, offset) = (wide(t.size), wide(t.turn), wide(t.offset));
    let from = wide(c) * size;
    // An equivalent stride with the same owners and the fewest turns from the first index to the
    // last.
    let near = if wide(t.stride) * 2 > turn { wide(t.stride) - turn } else { wide(t.stride) };
    let (one, other) = (near * wide(window.0) + offset, near * wide(window.1 - 1) + offset);
    let (low, high) = (one.min(other), one.max(other));
    let first_turn = ceil_div(low - from - size + 1, turn);
    let blocks = (high - from).div_euclid(turn) - first_turn + 1;

    let common = gcd(t.stride, t.turn);
    // Remainders within the block that cells can have: first + n * common.
    let first_rest = from + (offset - from).rem_euclid(wide(common));
    let classes = ceil_div(from + size - first_rest, wide(common)).max(0);

    if blocks.min(classes) > wide(MOST_PIECES) {
        return bad(format!(
            "a rank owns {count} indices in more than {MOST_PIECES} ranges; use longer CYCLIC blocks"
        ));
    }
    if near != 0 && blocks <= classes {
        let numbers = (0..blocks).map(|k| if near > 0 { k } else { blocks - 1 - k });
        let cells =
            numbers.map(|k| (first_turn + k) * turn + from).map(|start| (start, start + size));
        return in_blocks(cells, near, offset, window, before);
    }
    let rests = (0..classes).map(|n| first_rest + n * wide(common));
    in_classes(rests, t, common, window)
}

/// One interval for each block of cells. `stored` is the number of owned indices before the first.
fn in_blocks(
    blocks: impl Iterator<Item = (i128, i128)>,
    stride: i128,
    offset: i128,
    window: (i64, i64),
    mut stored: i64,
) -> Result<Vec<Strip>, PlanError> {
    let mut strips = Vec::new();
    for (from, to) in blocks {
        let (first, end) = preimage(from, to, stride, offset, window);
        strips.extend(strip(first, end - first, stored)?);
        stored += end - first;
    }
    Ok(strips)
}

/// One strided range for each remainder.
///
/// Ownership repeats after `turn / common` indices; stored positions repeat after as many places as
/// there are remainders.
fn in_classes(
    rests: impl Iterator<Item = i128>,
    t: &Turn,
    common: i64,
    window: (i64, i64),
) -> Result<Vec<Strip>, PlanError> {
    let period = t.turn / common;
    // The cell of index i has remainder r exactly if (stride / common) * i = (r - offset) / common
    // (mod period).
    let inverse = inverse(wide(t.stride / common), wide(period));
    let first = |r: i128| (r - wide(t.offset)) / wide(common) * inverse;
    let mut firsts: Vec<i64> = rests.map(|r| narrow(first(r).rem_euclid(wide(period)))).collect();
    firsts.sort_unstable();
    let each = firsts.len() as i64;
    let members = firsts.into_iter().filter(|first| *first < window.1).enumerate();
    let mut strips = Vec::new();
    for (k, first) in members {
        let count = (window.1 - 1 - first) / period + 1;
        let global = Range::new(first, count, period)?;
        let (begin, count) = global.members(window.0, window.1);
        if count > 0 {
            let local = Range::new(k as i64 + begin * each, count, each)?;
            strips.push(Strip { global: global.part(begin, count), local });
        }
    }
    strips.sort_unstable();
    Ok(strips)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn sums_of_floors_are_sums(n in 0..60_i64, m in 1..40_i64, a in 0..40_i64, b in -90..90_i64) {
            let a = a % m;
            let expected: i64 = (0..n).map(|i| (a * i + b).div_euclid(m)).sum();
            prop_assert_eq!(wide(expected), floor_sum(wide(n), wide(m), wide(a), wide(b)));
        }

        #[test]
        fn a_window_shows_what_lies_in_it(
            (len, over, size) in (0..80_i64, 1..5_i64, 1..6_i64),
            (stride, offset) in (-50..50_i64, 0..9_i64),
            (from, to) in (0..80_i64, 0..80_i64),
        ) {
            let stride = if stride == 0 { 1 } else { stride };
            let offset = if stride > 0 { offset } else { offset - stride * len };
            let align = Align { stride, offset, extent: None };
            let axis = Axis::new(len, over, &Pattern::Cyclic(size), &align).unwrap();
            let window = (from.min(len), to.min(len));
            for c in 0..over {
                let strips = axis.strips(c, Ghost::default(), false, window).unwrap();
                prop_assert!(strips.windows(2).all(|w| w[0].global.start < w[1].global.start));
                let members = |s: &Strip| {
                    let (global, local) = (s.global, s.local);
                    (0..s.global.count).map(move |k| (global.index(k), local.index(k)))
                };
                let mut found: Vec<(i64, i64)> = strips.iter().flat_map(members).collect();
                found.sort_unstable();
                let mine = (0..len).filter(|i| axis.owner(*i) == c);
                let expected: Vec<(i64, i64)> = mine
                    .enumerate()
                    .map(|(k, i)| (i, k as i64))
                    .filter(|(i, _)| (window.0..window.1).contains(i))
                    .collect();
                prop_assert_eq!(expected, found);
            }
        }
    }

    #[test]
    fn the_largest_axes_do_not_overflow() {
        let most = i64::MAX - 1;
        let plain = Align { stride: 1, offset: 0, extent: None };
        let patterns = [
            Pattern::Block(None),
            Pattern::Cyclic(1),
            Pattern::Cyclic(most / 7),
            Pattern::Cyclic(1 << 40),
            Pattern::Cyclic(i64::MAX),
        ];
        for pattern in &patterns {
            for over in [1, 3, i32::MAX as i64] {
                let axis = Axis::new(most, over, pattern, &plain).unwrap();
                let total: i128 = (0..over.min(3)).map(|c| wide(axis.count(c))).sum();
                assert!(over > 3 || total == wide(most));
                for index in [0, 1, most / 2, most - 1] {
                    let c = axis.owner(index);
                    let place = axis.below(c, index);
                    assert_eq!(index, axis.index(c, place), "{pattern:?} over {over}");
                }
            }
        }
        let far = Align { stride: i64::MIN, offset: i64::MAX, extent: Some(i64::MAX) };
        assert!(Axis::new(2, 2, &Pattern::Block(None), &far).is_err());
        assert!(Axis::new(1, 2, &Pattern::Block(None), &Align { offset: 3, ..far }).is_ok());
        let back = Align { stride: -(1 << 31), offset: i64::MAX - 1, extent: Some(i64::MAX) };
        let axis = Axis::new(1 << 31, 5, &Pattern::Cyclic(1 << 33), &back).unwrap();
        for index in [0, 77, (1 << 31) - 1] {
            let c = axis.owner(index);
            assert_eq!(index, axis.index(c, axis.below(c, index)));
        }
    }

    #[test]
    fn too_many_ranges_are_refused() {
        let plain = Align { stride: 1, offset: 0, extent: None };
        let axis = Axis::new(1 << 62, 2, &Pattern::Cyclic(1 << 30), &plain).unwrap();
        assert_eq!(
            "bad-distribution",
            axis.strips(0, Ghost::default(), false, axis.whole()).unwrap_err().code()
        );
        assert_eq!(1 << 61, axis.count(1));
    }
}
