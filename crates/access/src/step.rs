//! What is asked, and one plan of it: the words that all parts of an access share.

use std::time::Duration;

use outcore_io::exec::{CacheUse, Sink, User};
use outcore_io::pool::PAGE;
use outcore_io::{Claim, FileTable};
use outcore_plan::{Direction, Home, Layout, Plan, Section};

use crate::hints::Hints;

/// What is asked.
#[derive(Clone, Copy)]
pub struct Access<'a> {
    /// Read or write.
    pub direction: Direction,
    /// The elements.
    pub section: &'a Section,
    /// Byte strides of the caller's array, one per axis of the section.
    pub strides: &'a [i64],
    /// The caller's array from index `[0, ..., 0]` of the section on; none if nothing will be moved.
    pub data: User<'a>,
    /// Hints.
    pub hints: &'a Hints,
}

/// One plan of an access, and what it takes to run it.
pub struct Step<'a> {
    /// What is to be done.
    pub plan: Plan,
    /// The files it numbers.
    pub files: &'a FileTable,
    /// The caller's array from index `[0, ..., 0]` of this step on.
    pub data: User<'a>,
    /// The part of the section.
    pub section: &'a Section,
    /// Share of its pages in the page cache, in thousandths.
    pub cached: Option<u32>,
    /// Where encoded chunks go.
    pub sink: Option<&'a Sink<'a>>,
    /// Bytes of tables that are held meanwhile.
    pub tables: i64,
    /// What it does with decoded chunks that are kept.
    pub chunk_cache: CacheUse,
    /// The plan is for somebody who has the file to himself.
    pub alone: Option<Alone<'a>>,
    /// So many steps of the access are like this one, itself included; 1 unless it only looks.
    pub times: i64,
    /// Lowest byte and one past the highest byte of the caller's array that it touches, from the first element
    /// of `data` on.
    pub reach: (i64, i64),
    /// What it took to plan it.
    pub planned: Duration,
}

/// A claim, and what to do as soon as somebody else wants the file.
pub struct Alone<'a> {
    /// While this lives, nobody else has the file open.
    pub claim: Claim<'a>,
    /// The plan for a file that others may have open.
    pub otherwise: Plan,
}

/// Results of so many bytes are made where the disk can put what it reads.
const PLACED: i64 = 4 << 20;

/// Bytes of a new array for a section of so many elements, and where in a page of memory it begins, if
/// that matters.
pub fn placed(layout: &Layout, section: &Section, elements: i64) -> Option<(i64, i64)> {
    let Layout::Strided(layout) = layout else { return None };
    let bytes = elements.checked_mul(layout.item).filter(|bytes| *bytes >= PLACED)?;
    layout.begin(section).filter(|at| Home::fits(*at)).map(|at| (bytes, at))
}

/// Where the caller's array is, if the disk may put there what it reads, or take from there what it
/// writes. Whoever only asks what a read takes is told of one into a new array.
pub fn home(layout: &Layout, access: &Access) -> Option<Home> {
    let at = match access.direction {
        Direction::Write if access.data.is_none() => return None,
        Direction::Read if access.data.is_none() => {
            placed(layout, access.section, access.section.count().ok()?)?.1
        }
        _ => access.data.address(),
    };
    Some(Home { at, page: PAGE as i64 })
}

/// Lowest byte and one past the highest byte that a walk over the section touches.
pub fn reach(section: &Section, strides: &[i64], item: i64) -> (i64, i64) {
    let (mut low, mut high) = (0, item);
    for (range, stride) in section.ranges().iter().zip(strides) {
        let far = (range.count - 1).max(0) * stride;
        low += far.min(0);
        high += far.max(0);
    }
    (low, high)
}
