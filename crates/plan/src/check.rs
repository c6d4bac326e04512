//! The check between planning and execution: [`check`] proves that a round stays inside its places.
//!
//! The executor accepts only [`CheckedRound`], and its copy kernels and kernel calls do not check
//! again. Memory safety therefore rests on this file, which is small and independent of the
//! planners: it proves rules 1 to 3 of `DESIGN.md` for every step, whatever planner made the round.
//! Cost: linear in the number of steps and their axes. All arithmetic is checked.
//!
//! Rule 2 is proved by nesting: sorted by length, each stride must be at least the span of the
//! shorter ones. Arrays made by slicing and transposing never overlap themselves without nesting;
//! such memory is rejected.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::address::{nests, round_up, worst_residue};
use crate::error::PlanError;
use crate::plan::{Channel, ChunkRead, ChunkWrite, IndexedMove, Move, Place, Round, Transfer};
use crate::points::Addresses;

/// The places that a round may access.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of the slot given to the round.
    pub slot_bytes: i64,
    /// Lengths of the files, by number.
    pub files: Vec<i64>,
    /// Lowest byte of the caller's array and one past its highest, relative to element 0.
    pub user: (i64, i64),
    /// Bytes of the fill value; 0 if there is none.
    pub fill: i64,
    /// Block size of direct I/O, a power of two.
    pub block: i64,
    /// Address of the caller's element 0 modulo the block.
    ///
    /// None if direct transfers may not use the caller's array.
    pub home: Option<i64>,
}

/// A round that was checked against its bounds. Only [`check`] creates it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedRound {
    round: Round,
}

impl CheckedRound {
    /// The round, read-only.
    pub fn round(&self) -> &Round {
        &self.round
    }
}

impl core::ops::Deref for CheckedRound {
    type Target = Round;
    fn deref(&self) -> &Round {
        &self.round
    }
}

/// Proves rules 1 to 3 for one round.
pub fn check(round: Round, bounds: &Bounds) -> Result<CheckedRound, PlanError> {
    if round.slot_bytes < 0 || round.slot_bytes > bounds.slot_bytes {
        return Err(broken(3, || {
            format!("slot of {} bytes, {} given", round.slot_bytes, bounds.slot_bytes)
        }));
    }
    if bounds.block < 1 || bounds.block & (bounds.block - 1) != 0 {
        return Err(broken(1, || format!("block of {} bytes", bounds.block)));
    }
    let at = Places { bounds, slot: round.slot_bytes };
    for t in &round.reads {
        at.transfer(t, true)?;
    }
    for c in &round.chunk_reads {
        at.chunk_read(c)?;
    }
    for m in &round.moves {
        at.copy(m)?;
    }
    for m in &round.indexed {
        at.indexed(m)?;
    }
    for t in &round.writes {
        at.transfer(t, false)?;
    }
    for c in &round.chunk_writes {
        at.chunk_write(c)?;
    }
    Ok(CheckedRound { round })
}

#[cold]
fn broken(rule: u8, detail: impl FnOnce() -> String) -> PlanError {
    PlanError::Broken { rule, detail: detail() }
}

struct Places<'a> {
    bounds: &'a Bounds,
    slot: i64,
}

impl Places<'_> {
    fn limits(&self, place: Place) -> Result<(i64, i64), PlanError> {
        match place {
            Place::User => Ok(self.bounds.user),
            Place::Slot => Ok((0, self.slot)),
            Place::Fill => Ok((0, self.bounds.fill)),
            Place::File(f) => match self.bounds.files.get(f as usize) {
                Some(len) => Ok((0, *len)),
                None => Err(broken(1, || format!("file {f} of {}", self.bounds.files.len()))),
            },
        }
    }

    /// Rule 1 for the family `at + sum(i * stride)`, `len` bytes each.
    fn inside(
        &self,
        place: Place,
        at: i64,
        len: i64,
        count: &[i64],
        stride: &[i64],
    ) -> Result<(), PlanError> {
        let (low, high) = self.limits(place)?;
        match span(at, len, count, stride) {
            Some((first, end)) if low <= first && end <= high => Ok(()),
            Some((first, end)) => Err(broken(1, || {
                format!("bytes {first}..{end} of {place:?}, which has {low}..{high}")
            })),
            None => Err(broken(1, || {
                format!("{place:?} at {at}, {len} bytes, {count:?} by {stride:?} overflows")
            })),
        }
    }

    fn transfer(&self, t: &Transfer, read: bool) -> Result<(), PlanError> {
        let e = &t.extents;
        if !matches!(t.memory, Place::Slot | Place::User)
            || e.stride.len() != e.count.len()
            || t.at_stride.len() != e.count.len()
        {
            return Err(broken(1, || format!("malformed transfer {t:?}")));
        }
        self.inside(Place::File(t.file), e.offset, e.len, &e.count, &e.stride)?;
        self.inside(t.memory, t.at, e.len, &e.count, &t.at_stride)?;
        let target = if read { &t.at_stride } else { &e.stride };
        if read && matches!(t.channel, Channel::Head | Channel::Tail) {
            return Err(broken(1, || format!("a read of parts of blocks: {t:?}")));
        }
        if t.channel == Channel::Direct {
            self.direct(t, read)?;
        } else if !nests(e.len, &e.count, target) {
            return Err(broken(2, || format!("extents overlap in {t:?}")));
        }
        Ok(())
    }

    /// Checks a direct transfer.
    ///
    /// In the slot, addresses are congruent to the file's, and extents rounded outward stay inside
    /// the slot and do not overlap. Transfers between the file and the caller's array consist of
    /// whole blocks at addresses that are multiples of the block.
    fn direct(&self, t: &Transfer, read: bool) -> Result<(), PlanError> {
        let (e, block) = (&t.extents, self.bounds.block);
        if let (Place::User, Some(home)) = (t.memory, self.bounds.home) {
            let target = if read { &t.at_stride } else { &e.stride };
            let start = t.at.checked_add(home).unwrap_or(1);
            let whole = |n: &i64| n % block == 0;
            let strides = e.stride.iter().chain(&t.at_stride).all(whole);
            return match strides && [e.offset, e.len, start].iter().all(whole) {
                true if nests(e.len, &e.count, target) => Ok(()),
                true => Err(broken(2, || format!("extents overlap in {t:?}"))),
                false => Err(broken(1, || format!("direct transfer of parts of blocks: {t:?}"))),
            };
        }
        let congruent = |a: i64, b: i64| a.rem_euclid(block) == b.rem_euclid(block);
        if t.memory != Place::Slot
            || !congruent(t.at, e.offset)
            || !e.stride.iter().zip(&t.at_stride).all(|(f, s)| congruent(*f, *s))
        {
            return Err(broken(1, || format!("direct transfer is not congruent: {t:?}")));
        }
        let (first, end) = span(t.at, e.len, &e.count, &t.at_stride).unwrap_or((-1, -1));
        if first & -block < 0 || round_up(end, block) > self.slot {
            return Err(broken(1, || format!("direct transfer leaves its slot: {t:?}")));
        }
        let residue = worst_residue(t.at, t.at_stride.iter().copied(), block);
        let longest = round_up(residue.saturating_add(e.len), block);
        // A write does not exceed its extents.
        let apart = match read {
            true => nests(longest, &e.count, &t.at_stride),
            false => nests(e.len, &e.count, &e.stride),
        };
        match apart {
            true => Ok(()),
            false => Err(broken(2, || format!("extents overlap in {t:?}"))),
        }
    }

    fn copy(&self, m: &Move) -> Result<(), PlanError> {
        if m.item < 1 || m.src_stride.len() != m.count.len() || m.dst_stride.len() != m.count.len()
        {
            return Err(broken(1, || format!("malformed move {m:?}")));
        }
        if m.dst == Place::Fill || m.src == m.dst {
            return Err(broken(2, || format!("move within or into {:?}", m.dst)));
        }
        self.inside(m.src, m.src_at, m.item, &m.count, &m.src_stride)?;
        self.inside(m.dst, m.dst_at, m.item, &m.count, &m.dst_stride)?;
        if !nests(m.item, &m.count, &m.dst_stride) {
            return Err(broken(2, || format!("a byte is written twice by {m:?}")));
        }
        Ok(())
    }

    /// Checks a move of listed blocks.
    ///
    /// Blocks are copied one after another, so rule 2 is checked for each block alone.
    /// `Index::place` ensures that no two blocks of a read have the same target address.
    fn indexed(&self, m: &IndexedMove) -> Result<(), PlanError> {
        let runs = m.counts.list();
        let listed = |points: &Addresses| points.list().is_none_or(|list| list.len() == m.points);
        if m.item < 1
            || m.points == 0
            || !listed(&m.src_points)
            || !listed(&m.dst_points)
            || runs.is_some_and(|runs| runs.len() != m.points || !m.count.is_empty())
            || m.src_stride.len() != m.count.len()
            || m.dst_stride.len() != m.count.len()
        {
            return Err(broken(1, || format!("malformed move of {} blocks", m.points)));
        }
        if m.dst == Place::Fill || m.src == m.dst {
            return Err(broken(2, || format!("move within or into {:?}", m.dst)));
        }
        let sides = [
            (m.src, m.src_at, &m.src_points, &m.src_stride),
            (m.dst, m.dst_at, &m.dst_points, &m.dst_stride),
        ];
        for (place, at, points, stride) in sides {
            let outside = || broken(1, || format!("blocks of {place:?} at {at} are not inside"));
            if let Addresses::Row { first, stride } = points {
                let last = i64::try_from(m.points - 1).ok().and_then(|n| n.checked_mul(*stride));
                last.and_then(|last| last.checked_add(*first)).ok_or_else(outside)?;
            }
            // A block lies inside if its address is between these limits.
            let (low, high) = self.limits(place)?;
            let (first, end) = span(at, m.item, &m.count, stride).ok_or_else(outside)?;
            let low = low.checked_sub(first).ok_or_else(outside)?;
            let high = high.checked_sub(end).ok_or_else(outside)?;
            let sane = low <= high && high.checked_sub(low).is_some();
            let within = match runs {
                None => points.within(m.points, low, high),
                Some(runs) => points.hold(runs, m.item, low, high),
            };
            if !sane || !within {
                return Err(outside());
            }
        }
        if !nests(m.item, &m.count, &m.dst_stride) {
            return Err(broken(2, || "a byte of a block is written twice".into()));
        }
        Ok(())
    }

    fn chunk_read(&self, c: &ChunkRead) -> Result<(), PlanError> {
        self.inside(Place::File(c.stored.file), c.stored.offset, c.stored.len, &[], &[])?;
        self.inside(Place::Slot, c.staged_at, c.stored.len, &[], &[])?;
        self.inside(Place::Slot, c.scratch_at, c.scratch, &[], &[])?;
        self.inside(Place::Slot, c.at, c.len, &[], &[])
    }

    fn chunk_write(&self, c: &ChunkWrite) -> Result<(), PlanError> {
        self.inside(Place::Slot, c.at, c.len, &[], &[])?;
        if c.bound > c.scratch {
            return Err(broken(1, || format!("output of {} bytes in {}", c.bound, c.scratch)));
        }
        self.inside(Place::Slot, c.staged_at, c.scratch, &[], &[])
    }
}

/// First byte and one past the last of a family; `None` on overflow or invalid counts.
fn span(at: i64, len: i64, count: &[i64], stride: &[i64]) -> Option<(i64, i64)> {
    if len < 0 {
        return None;
    }
    let (mut first, mut last) = (at, at);
    for (n, s) in count.iter().zip(stride) {
        if *n < 1 {
            return None;
        }
        let reach = (n - 1).checked_mul(*s)?;
        if reach < 0 {
            first = first.checked_add(reach)?;
        } else {
            last = last.checked_add(reach)?;
        }
    }
    Some((first, last.checked_add(len)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Family;

    fn bounds() -> Bounds {
        Bounds {
            slot_bytes: 1 << 16,
            files: vec![1 << 20],
            user: (-64, 64),
            fill: 8,
            block: 4096,
            home: None,
        }
    }

    fn rule(round: Round) -> u8 {
        match check(round, &bounds()) {
            Ok(_) => 0,
            Err(PlanError::Broken { rule, .. }) => rule,
            Err(other) => panic!("{other}"),
        }
    }

    fn a_move(dst_at: i64, dst_stride: Vec<i64>, count: Vec<i64>) -> Round {
        let src_stride = vec![0; count.len()];
        let m = Move {
            src: Place::Fill,
            src_at: 0,
            src_stride,
            dst: Place::User,
            dst_at,
            dst_stride,
            count,
            item: 8,
        };
        Round { moves: vec![m], ..Round::default() }
    }

    fn a_read(offset: i64, at: i64, len: i64, stride: i64, slot_bytes: i64) -> Round {
        let t = Transfer {
            file: 0,
            extents: Family { offset, len, count: vec![2], stride: vec![stride] },
            memory: Place::Slot,
            at,
            at_stride: vec![stride % 4096 + 8192],
            channel: Channel::Direct,
        };
        Round { reads: vec![t], slot_bytes, ..Round::default() }
    }

    #[test]
    fn moves_stay_inside_and_write_once() {
        assert_eq!(0, rule(a_move(-64, vec![64, -8, 16], vec![2, 1, 4])));
        assert_eq!(0, rule(a_move(56, vec![-8], vec![15])));
        assert_eq!(1, rule(a_move(56, vec![-8], vec![17])));
        assert_eq!(1, rule(a_move(0, vec![i64::MAX], vec![3])));
        assert_eq!(2, rule(a_move(0, vec![4], vec![3])));
        assert_eq!(2, rule(a_move(0, vec![8, 8], vec![2, 2])));
        assert_eq!(2, rule(a_move(0, vec![8, -8], vec![2, 2])));
        assert_eq!(2, rule(a_move(0, vec![0], vec![2])));
        assert_eq!(0, rule(a_move(0, vec![0, 7], vec![1, 1])));
    }

    #[test]
    fn direct_reads_are_congruent_and_apart() {
        assert_eq!(0, rule(a_read(100, 100, 50, 10_000, 16 << 10)));
        assert_eq!(1, rule(a_read(100, 104, 50, 10_000, 16 << 10)));
        assert_eq!(1, rule(a_read(100, 100, 50, 10_000, 10 << 10)));
        assert_eq!(2, rule(a_read(100, 100, 8000, 10_000, 64 << 10)));
        assert_eq!(3, rule(a_read(100, 100, 50, 10_000, 1 << 20)));
    }

    #[test]
    fn the_callers_memory_takes_and_gives_whole_blocks() {
        let check = |offset, at, len, (stride, at_stride), write| {
            let extents = Family { offset, len, count: vec![2], stride: vec![stride] };
            let (memory, channel, at_stride) = (Place::User, Channel::Direct, vec![at_stride]);
            let t = Transfer { file: 0, extents, memory, at, at_stride, channel };
            let mut round = Round::default();
            if write { &mut round.writes } else { &mut round.reads }.push(t);
            let home = Some(96);
            match check(round, &Bounds { user: (0, 1 << 16), home, ..bounds() }) {
                Ok(_) => 0,
                Err(PlanError::Broken { rule, .. }) => rule,
                Err(other) => panic!("{other}"),
            }
        };
        for write in [false, true] {
            assert_eq!(0, check(8192, 4000, 4096, (8192, 4096), write));
            assert_eq!(1, check(8192, 4008, 4096, (8192, 4096), write), "memory within a block");
            assert_eq!(1, check(8200, 4000, 4096, (8192, 4096), write), "a file within a block");
            assert_eq!(1, check(8192, 4000, 4000, (8192, 4096), write), "a part of a block");
            assert_eq!(1, check(8192, 4000, 4096, (8192, 4104), write), "the second one");
        }
        // Only target addresses must not overlap.
        assert_eq!(2, check(8192, 4000, 8192, (4096, 8192), true));
        assert_eq!(2, check(8192, 4000, 8192, (8192, 4096), false));
        assert_eq!(0, check(8192, 4000, 8192, (8192, 4096), true));
    }
}
