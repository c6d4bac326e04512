//! A request and one plan of it: the types that all parts of an access share.

use std::time::Duration;

use outcore_io::exec::{CacheUse, Sink, User};
use outcore_io::pool::PAGE;
use outcore_io::{Claim, FileTable};
use outcore_plan::{Direction, Home, Layout, Plan, Section};

use crate::hints::Hints;

/// A request.
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

/// One plan of an access, with everything needed to run it.
pub struct Step<'a> {
    /// The plan to run.
    pub plan: Plan,
    /// The files that the plan numbers.
    pub files: &'a FileTable,
    /// The caller's array from index `[0, ..., 0]` of this step on.
    pub data: User<'a>,
    /// The part of the section.
    pub section: &'a Section,
    /// Share of its pages in the page cache, in thousandths.
    pub cached: Option<u32>,
    /// Sink for encoded chunks.
    pub sink: Option<&'a Sink<'a>>,
    /// Bytes of tables that are held during the step.
    pub tables: i64,
    /// Use of the cached decoded chunks.
    pub chunk_cache: CacheUse,
    /// The claim, if the plan assumes that no other process has the file open.
    pub alone: Option<Alone<'a>>,
    /// Number of steps of the access like this one, including this one; 1 unless the mode only looks.
    pub times: i64,
    /// Lowest byte and one past the highest byte of the caller's array that the step uses, relative to the
    /// first element of `data`.
    pub reach: (i64, i64),
    /// Time that planning took.
    pub planned: Duration,
}

/// A claim on a file, and the plan to use as soon as another process needs the file.
pub struct Alone<'a> {
    /// While this exists, no other process has the file open.
    pub claim: Claim<'a>,
    /// The plan for a file that others may have open.
    pub otherwise: Plan,
}

/// Minimum bytes of a result that is placed so that the disk can write into it directly.
const PLACED: i64 = 4 << 20;

/// Returns the bytes of a new array for a section of `elements` elements, and the offset within a page of
/// memory at which it begins, if that matters.
pub fn placed(layout: &Layout, section: &Section, elements: i64) -> Option<(i64, i64)> {
    let Layout::Strided(layout) = layout else { return None };
    let bytes = elements.checked_mul(layout.item).filter(|bytes| *bytes >= PLACED)?;
    layout.begin(section).filter(|at| Home::fits(*at)).map(|at| (bytes, at))
}

/// Returns the address of the caller's array, if the disk may write read data there, or take written data
/// from there. For an access without memory, a new array is assumed.
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

/// Returns the lowest byte and one past the highest byte that a loop over the section touches.
pub fn reach(section: &Section, strides: &[i64], item: i64) -> (i64, i64) {
    let (mut low, mut high) = (0, item);
    for (range, stride) in section.ranges().iter().zip(strides) {
        let far = (range.count - 1).max(0) * stride;
        low += far.min(0);
        high += far.max(0);
    }
    (low, high)
}
