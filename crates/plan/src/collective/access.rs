//! Accesses of all ranks, equal on every rank.
//!
//! An [`ArrayDescriptor`] has the properties of an array that planning needs, whatever its format.
//! The accesses of all ranks to it are the papers' *file access descriptor* (FAD). Both are sent as
//! 64-bit words, three for each axis of a section, so their size depends neither on the number of
//! elements nor on the number of pieces (flattened lists of offsets grow with both).
//!
//! Reference: Thakur and Choudhary, "An Extended Two-Phase Method for Accessing Sections of
//! Out-of-Core Arrays", section 3.1.

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use crate::address::PAGE;
use crate::error::PlanError;
use crate::layout::Layout;
use crate::section::{Range, Section};
use crate::terms::Home;

/// Properties of an array that planning needs: its shape, and the order of its elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArrayDescriptor {
    /// Length of each axis.
    pub shape: Vec<i64>,
    /// Bytes of an element.
    pub item: i64,
    /// Axes, from the one that runs slowest in the file (in a chunk) to the fastest.
    pub order: Vec<usize>,
    /// Shape of the blocks with a single owner: chunks, or shards; 1 without blocks.
    pub grain: Vec<i64>,
    /// True if blocks are encoded: never cut, read and written as a whole.
    pub encoded: bool,
    /// Offset of the first byte in the file, for arrays that are one piece of the file.
    ///
    /// Domains begin at multiples that are counted from the beginning of the file. Tiles have the
    /// same position in memory pages as in the file, so that the disk can transfer them directly
    /// into slots.
    pub lead: Option<i64>,
}

/// A section that a rank reads or writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// The rank.
    pub rank: u32,
    /// Number of the rank's array in memory that is the target or the source.
    pub item: u32,
    /// The elements; may be empty.
    pub section: Section,
}

impl ArrayDescriptor {
    /// The descriptor of a layout.
    ///
    /// `per_shard` is the number of chunks of a shard per axis, if there are shards.
    pub fn of(layout: &Layout, per_shard: Option<&[i64]>) -> ArrayDescriptor {
        let (shape, item, strides) = match layout {
            Layout::Strided(s) => (&s.shape, s.item, &s.strides),
            Layout::Chunked(c) => (&c.shape, c.item, &c.strides),
        };
        let mut order: Vec<usize> = (0..shape.len()).collect();
        order.sort_by_key(|axis| (core::cmp::Reverse(strides[*axis]), *axis));
        let (grain, encoded) = match layout {
            Layout::Strided(_) => (vec![1; shape.len()], false),
            Layout::Chunked(c) => {
                let shard = |d: usize| per_shard.and_then(|n| n.get(d)).copied().unwrap_or(1);
                let grain = |(d, n): (usize, &i64)| n.saturating_mul(shard(d).max(1));
                (c.chunk.iter().enumerate().map(grain).collect(), c.encoded || per_shard.is_some())
            }
        };
        let descriptor =
            ArrayDescriptor { shape: shape.clone(), item, order, grain, encoded, lead: None };
        let dense = |(place, axis): (usize, &usize)| descriptor.stride(place) == strides[*axis];
        let lead = match layout {
            Layout::Strided(s) if descriptor.order.iter().enumerate().all(dense) => {
                match &s.parts[..] {
                    [part] => Some(part.offset),
                    _ => None,
                }
            }
            _ => None,
        };
        ArrayDescriptor { lead, ..descriptor }
    }

    /// Returns whether tiles have the same position in pages as in the file.
    ///
    /// Elements of all types are then aligned.
    pub(super) fn leads(&self) -> bool {
        self.lead.is_some_and(Home::fits)
    }

    /// Offset of a section in its page; 0 if tiles are not aligned with the file.
    pub(super) fn lead_of(&self, section: &Section) -> i64 {
        let Some(lead) = self.lead.filter(|_| self.leads()) else { return 0 };
        let starts = self.order.iter().enumerate();
        let first = |(place, axis): (usize, &usize)| {
            section.ranges()[*axis].start.wrapping_mul(self.stride(place))
        };
        starts.map(first).fold(lead, i64::wrapping_add).rem_euclid(PAGE)
    }

    /// First byte of a section in the file and one past its last, ignoring chunks.
    ///
    /// `None` if the section is empty.
    pub(super) fn span(&self, section: &Section) -> Option<(i64, i64)> {
        if section.is_empty() {
            return None;
        }
        let (mut first, mut last) = (0i64, 0i64);
        for (place, axis) in self.order.iter().enumerate() {
            let (range, stride) = (&section.ranges()[*axis], self.stride(place));
            first = first.saturating_add(range.start.saturating_mul(stride));
            last = last.saturating_add((range.stop() - 1).saturating_mul(stride));
        }
        Some((first, last.saturating_add(self.item)))
    }

    /// The descriptor as words.
    ///
    /// The words are `item, encoded, ndim`, then order, shape and grain of each axis, and the lead
    /// (-1 without one).
    pub fn words(&self) -> Vec<i64> {
        let mut words = vec![self.item, i64::from(self.encoded), self.shape.len() as i64];
        words.extend(self.order.iter().map(|axis| *axis as i64));
        words.extend(&self.shape);
        words.extend(&self.grain);
        words.push(self.lead.unwrap_or(-1));
        words
    }

    /// Creates a descriptor from words; rejects invalid arrays.
    pub fn from_words(words: &[i64]) -> Result<ArrayDescriptor, PlanError> {
        let bad = || PlanError::BadLayout(format!("the words of an array are invalid: {words:?}"));
        let [item, encoded, ndim, rest @ .., lead] = words else { return Err(bad()) };
        let n = rest.len() / 3;
        if !rest.len().is_multiple_of(3) || *ndim != n as i64 {
            return Err(bad());
        }
        let order: Vec<usize> = rest[..n].iter().map(|axis| *axis as usize).collect();
        let (shape, grain) = (rest[n..2 * n].to_vec(), rest[2 * n..].to_vec());
        let mut seen = order.clone();
        seen.sort_unstable();
        let sane = *item > 0
            && seen.into_iter().eq(0..n)
            && shape.iter().all(|n| *n >= 0)
            && grain.iter().all(|n| *n >= 1)
            && *lead >= -1;
        let bytes = shape.iter().try_fold(*item, |all, n| all.checked_mul((*n).max(1)));
        if !sane || bytes.is_none() {
            return Err(bad());
        }
        let lead = (*lead >= 0).then_some(*lead);
        Ok(ArrayDescriptor { shape, item: *item, order, grain, encoded: *encoded != 0, lead })
    }

    /// Bytes in the file from one index of an axis to the next, ignoring chunks.
    pub(crate) fn stride(&self, place: usize) -> i64 {
        let faster = self.order[place + 1..].iter().map(|axis| self.shape[*axis].max(1));
        faster.fold(self.item, i64::saturating_mul)
    }
}

/// The words of a section: start, count and step of each axis.
pub fn section_words(section: &Section) -> Vec<i64> {
    section.ranges().iter().flat_map(|r| [r.start, r.count, r.step]).collect()
}

/// Creates a section from words; rejects sections outside the array.
pub fn section_from_words(words: &[i64], shape: &[i64]) -> Result<Section, PlanError> {
    let range = |w: &[i64]| Range::new(w[0], w[1], w[2]);
    if words.len() != 3 * shape.len() {
        let what = format!("{words:?}");
        return Err(PlanError::BadSection { what, why: "three words for each axis are needed" });
    }
    let section = Section::new(words.chunks_exact(3).map(range).collect::<Result<_, _>>()?);
    section.within(shape)?;
    Ok(section)
}
