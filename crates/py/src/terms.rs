//! What the planner is told: the machine, the file as it is cached now, the user's wishes.
//!
//! Looking at the page cache costs a system call a look, so a section of a few pages is taken as
//! cached, and a larger one is judged by a handful of its elements at regular distances.

use std::os::fd::RawFd;
use std::sync::OnceLock;

use outcore_io::pool::PAGE;
use outcore_io::{cpu, probe, Arena, FileTable, Pipeline};
use outcore_plan::{Method, Rates, Section, Strided, Terms};

use crate::hints::{Cache, Wishes};
use crate::measure::Figures;

/// Sections that span less than this are not worth a look.
const GLANCE: i64 = 64 << 10;
/// Looks per access, and for a small one: a look costs as much as reading a page.
const LOOKS: i64 = 16;
const FEW_LOOKS: i64 = 4;
/// Bytes of a small access.
const SMALL: i64 = 256 << 10;
/// Bytes per look, where neighbours are wanted as well.
const LOOK: i64 = 64 << 10;

/// Slots for data that comes from the disk: some are being read while others are being copied.
const DEEP: i64 = 4;

/// What was found out about the files of an array, once.
#[derive(Debug, Default)]
pub struct Found {
    block: OnceLock<Option<i64>>,
    disk: OnceLock<Option<Figures>>,
}

impl Found {
    /// The block of direct I/O on these files; none where the first of them refuses it.
    fn block(&self, files: &FileTable) -> Option<i64> {
        if files.is_empty() {
            return None; // Missing chunks only: nothing to ask yet, and nothing to remember.
        }
        *self.block.get_or_init(|| {
            let alignment = probe::direct_alignment(files.path(0).ok()?)?;
            Some(i64::from(alignment.memory.max(alignment.offset)).max(512))
        })
    }

    /// The figures of the disk of the first file, if it was measured.
    fn disk(&self, files: &FileTable) -> Option<Figures> {
        if files.is_empty() {
            return None;
        }
        *self.disk.get_or_init(|| crate::measure::figures(files.path(0).ok()?))
    }
}

/// What codecs hold besides the slots of a plan.
#[derive(Debug, Clone, Copy, Default)]
pub struct Extra {
    /// Bytes for each round in flight.
    pub each: i64,
    /// Bytes in all.
    pub once: i64,
}

impl Extra {
    /// For chunks that go through this pipeline; `collected` if encoded chunks are kept in memory
    /// before they are stored.
    pub fn of(pipeline: &Pipeline, collected: bool) -> Extra {
        // The libraries' own contexts (a few MiB a thread) are not memory of the arena.
        let each = pipeline.scratch_bytes().next_multiple_of(PAGE);
        // Slots come in whole pages.
        let held = if collected { pipeline.encoded_bound().saturating_mul(2) } else { 0 };
        let once = held.saturating_add(PAGE);
        let fit = |bytes| i64::try_from(bytes).unwrap_or(i64::MAX / 4).min(i64::MAX / 4);
        Extra { each: fit(each), once: fit(once) }
    }

    /// Bytes for this many rounds in flight.
    pub fn bytes(&self, lanes: i64) -> i64 {
        self.each.saturating_mul(lanes).saturating_add(self.once)
    }
}

/// The terms for an access; `codecs` is there if chunks go through codecs.
pub fn terms(
    wishes: &Wishes,
    found: &Found,
    files: &FileTable,
    cached: Option<u32>,
    codecs: Option<Extra>,
) -> Terms {
    let mut terms = Terms::new(i64::try_from(wishes.budget()).unwrap_or(i64::MAX));
    terms.lanes = if codecs.is_some() { lanes(wishes) } else { lanes(wishes).max(DEEP) };
    if let Some((gap, latency_ns, device, stream)) = found.disk(files) {
        terms.gap = gap;
        terms.rates = Rates { latency_ns, device, stream, ..terms.rates };
    }
    if let Some(extra) = codecs {
        // At most half of the budget for the codecs; fewer rounds at once where that is not enough.
        let room = (terms.budget - extra.once).max(0) / 2;
        terms.lanes = (room / extra.each.max(1)).clamp(1, terms.lanes);
        terms.budget = (terms.budget - extra.bytes(terms.lanes)).max(0);
    }
    terms.threads = lanes(wishes);
    terms.exclusive = wishes.exclusive;
    // A wish that this layout cannot fulfil is none: hints never change results.
    terms.method = wishes.method.filter(|_| codecs.is_none());
    terms.cached_permille = i64::from(cached.unwrap_or(0));
    terms.mapping = wishes.cache != Cache::Bypass || terms.method == Some(Method::Mapped);
    if wishes.cache == Cache::Bypass {
        terms.cached_permille = 0;
    }
    if wishes.cache != Cache::Keep {
        if let Some(block) = found.block(files) {
            terms.block = block;
            terms.direct = true;
        }
    }
    terms
}

/// Rounds side by side.
pub fn lanes(wishes: &Wishes) -> i64 {
    wishes.threads.unwrap_or_else(cpu::cores).max(1) as i64
}

/// The share of a section that is in the page cache, in thousandths; `None` if nobody knows.
pub fn cached(layout: &Strided, section: &Section, files: &FileTable) -> Option<u32> {
    let (mut sum, mut number) = (0_u64, 0_u64);
    let looks = look(layout, section, files, &mut |fd, offset, len| {
        sum += u64::from(probe::cached(fd, offset, len)?);
        number += 1;
        Some(())
    });
    match looks? {
        0 => Some(1000),
        _ => u32::try_from(sum / number.max(1)).ok(),
    }
}

/// Whether more than a quarter of a section is on the disk; if not, what is not cached is mostly
/// holes (the first look is often at the page of the header).
pub fn stored(layout: &Strided, section: &Section, files: &FileTable) -> bool {
    let mut stored = 0;
    let looks = look(layout, section, files, &mut |fd, offset, len| {
        stored += i64::from(!probe::hole(fd, offset, len));
        Some(())
    });
    looks.is_none_or(|looks| 4 * stored > looks)
}

/// Looks at elements at regular distances, with dense neighbours; none where the section is small.
/// Returns how many there were, or nothing if a look could not be had.
fn look(
    layout: &Strided,
    section: &Section,
    files: &FileTable,
    one: &mut dyn FnMut(RawFd, i64, i64) -> Option<()>,
) -> Option<i64> {
    let mut axes: Vec<(i64, i64)> = section
        .ranges()
        .iter()
        .zip(&layout.strides)
        .map(|(range, stride)| (range.count, range.step * stride))
        .filter(|(count, _)| *count > 1)
        .collect();
    axes.sort_by_key(|(_, stride)| std::cmp::Reverse(*stride));
    let base: i64 = section.ranges().iter().zip(&layout.strides).map(|(r, s)| r.start * s).sum();
    let span: i64 = axes.iter().map(|(count, stride)| (count - 1) * stride).sum();
    if span < GLANCE {
        return Some(0);
    }
    // Dense neighbours at the fast end: that much can be looked at in one call.
    let mut run = layout.item;
    for (count, stride) in axes.iter().rev() {
        if *stride > run {
            break;
        }
        run = run.max(stride * (count - 1) + run);
    }
    let bytes = axes.iter().fold(layout.item, |all, (count, _)| all.saturating_mul(*count));
    let looks = if bytes < SMALL { FEW_LOOKS } else { LOOKS };
    for look in 0..looks {
        let at = base + element(&axes, look, looks);
        let (file, offset, room) = locate(layout, at)?;
        let fd = files.open(file).ok()?.fd();
        one(fd, offset, run.min(LOOK).min(room))?;
    }
    Some(looks)
}

/// Bytes from the first element to the one `look / looks` of the way through the section.
fn element(axes: &[(i64, i64)], look: i64, looks: i64) -> i64 {
    // A mixed-radix fraction: each axis takes what the slower ones left over, so that looks are
    // spread over all axes.
    let (mut offset, mut left) = (0, look);
    for (count, stride) in axes {
        let scaled = i128::from(left) * i128::from(*count);
        let index = (scaled / i128::from(looks)) as i64;
        left = (scaled % i128::from(looks)) as i64;
        offset += index * stride;
    }
    offset
}

/// File, offset there, and bytes left in the part that holds byte `at` of the concatenation.
fn locate(layout: &Strided, at: i64) -> Option<(u32, i64, i64)> {
    let mut first = 0;
    for part in &layout.parts {
        if at < first + part.len {
            return Some((part.file, part.offset + at - first, first + part.len - at));
        }
        first += part.len;
    }
    None
}

/// The memory budget of a new process, from its control group and what is free.
pub fn default_budget() {
    Arena::global().set_limit(probe::memory().default_budget());
}
