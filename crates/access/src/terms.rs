//! Input of the planner: the machine, the file as it is cached now, the user's hints.
//!
//! Each sample of the page cache costs a system call. So a section of one page counts as cached, a section of
//! a few pages is examined as a whole, and a larger one is judged by a few of its elements at regular
//! distances.

use std::os::fd::RawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::OnceLock;

use outcore_io::disks::{self, Figures, Origin};
use outcore_io::page_table::Entered;
use outcore_io::pool::PAGE;
use outcore_io::{cpu, probe, Arena, FileTable, Pipeline};
use outcore_plan::gaps::Prices;
use outcore_plan::{
    Chunked, Coding, Direction, Faults, Layout, Method, PlanError, Rates, Section, Strided, Terms,
};

use crate::hints::{Cache, Hints};

/// Sections that span less than this are examined as a whole.
const GLANCE: i64 = 64 << 10;
/// Samples per access, and per small access: a sample costs as much as reading a page.
const LOOKS: i64 = 16;
const FEW_LOOKS: i64 = 4;
/// Samples after which, half of the way to the next one, a page is read to learn how many pages a page fault
/// maps.
const TRIES: [i64; 3] = [2, 8, 13];
/// Bytes of a small access.
pub const SMALL: i64 = 256 << 10;
/// Bytes per sample, if neighbours are requested as well.
const LOOK: i64 = 64 << 10;

/// Slots for data that comes from the disk: some are being read while others are being copied.
const DEEP: i64 = 4;

/// Properties of the files of an array, each determined once.
#[derive(Debug, Default)]
pub struct Found {
    block: OnceLock<Option<i64>>,
    device: OnceLock<Option<u64>>,
    scarce: OnceLock<bool>,
    mappable: OnceLock<bool>,
}

impl Found {
    /// Returns the block of direct I/O on these files; none if the first of them rejects direct I/O.
    fn block(&self, files: &FileTable) -> Option<i64> {
        if files.is_empty() {
            return None; // Missing chunks only: there is no file to ask yet, and nothing to remember.
        }
        self.block_at(files.path(0).ok()?)
    }

    fn block_at(&self, path: &Path) -> Option<i64> {
        *self.block.get_or_init(|| {
            let alignment = probe::direct_alignment(path)?;
            Some(i64::from(alignment.memory.max(alignment.offset)).max(512))
        })
    }

    /// Returns whether the first of these files can be mapped: some network and FUSE file systems reject it.
    pub fn mappable(&self, files: &FileTable) -> bool {
        if files.is_empty() {
            return true; // There is no file to ask yet.
        }
        let Ok(file) = files.open(0) else { return true };
        *self.mappable.get_or_init(|| probe::can_be_mapped(file.fd(), file.writable()))
    }

    /// Returns whether the page cache is too small for an array of `bytes` bytes. This is determined once, so
    /// that writes do not change their method because of other programs.
    fn scarce(&self, bytes: i64) -> bool {
        let (bytes, held) = (u64::try_from(bytes).unwrap_or(0), Arena::global().limit());
        *self.scarce.get_or_init(|| !probe::memory().caches(bytes, held))
    }

    /// Returns the parameters of the disk of the first file, if any are known.
    fn disk(&self, files: &FileTable) -> Option<Figures> {
        if files.is_empty() {
            return None;
        }
        Some(self.disk_of(files.path(0).ok()?)?.0)
    }

    /// Returns the costs of gaps between written pages, and of requests, on the disk of these files.
    pub fn prices(&self, files: &FileTable) -> Prices {
        let mut terms = Terms::new(0);
        if let Some(Figures { latency_ns, device, stream, .. }) = self.disk(files) {
            terms.rates = Rates { latency_ns, device, stream, ..terms.rates };
        }
        Prices::new(probe::page_size(), &terms)
    }

    /// Returns the current parameters of the disk that holds `path`, if any are known.
    pub fn disk_of(&self, path: &Path) -> Option<(Figures, Origin)> {
        disks::figures(self.device(path)?)
    }

    /// Returns the number of the disk that holds `path`; determined once.
    pub fn device(&self, path: &Path) -> Option<u64> {
        *self.device.get_or_init(|| Some(std::fs::metadata(path).ok()?.dev()))
    }
}

/// Returns the memory of coding chunks of this pipeline; `collected` is the number of encoded bytes that
/// should be collected in memory before they are stored.
pub fn coding(pipeline: &Pipeline, collected: Option<usize>) -> Coding {
    let fit = |bytes| i64::try_from(bytes).unwrap_or(i64::MAX / 8).min(i64::MAX / 8);
    let contexts = |decodes, encodes| fit(pipeline.needs(decodes, encodes).bytes());
    // One buffer to collect chunks in, and one that is passed to the format.
    let chunk = fit(pipeline.encoded_bound().next_multiple_of(PAGE));
    Coding {
        decode_scratch: fit(pipeline.decode_scratch()),
        encode_scratch: fit(pipeline.encode_scratch()),
        decoder: contexts(true, false),
        encoder: contexts(false, true),
        both: contexts(true, true),
        held: if collected.is_some() { 2 * chunk } else { 0 },
        spare: collected.map_or(0, fit),
    }
}

/// Returns the maximum that an access to any one chunk needs, whatever is stored: a budget of this, and of
/// the bytes of its tables, is always enough.
pub fn least(layout: &Chunked, pipeline: &Pipeline, coding: &Coding, direction: Direction) -> i64 {
    let (page, chunk) = (PAGE as i64, layout.chunk_bytes());
    if !layout.encoded {
        return page; // Bytes without codecs go through buffers of any size.
    }
    let limit = i64::try_from(pipeline.stored_limit()).unwrap_or(i64::MAX / 8);
    let decoding = limit.saturating_add(coding.decode_scratch);
    let (staged, contexts, held) = match direction {
        Direction::Read => (decoding, coding.decoder, 0),
        Direction::Write => (decoding.max(coding.encode_scratch), coding.both, coding.held),
    };
    // Each part begins at a line of the processor's cache.
    let parts = [staged, chunk, contexts, held, 3 * 64 + page - 1];
    parts.into_iter().fold(0, i64::saturating_add) & -page
}

/// Returns the bytes of buffer that an access may hold now, in whole pages, as buffers are.
pub fn budget(hints: &Hints) -> i64 {
    i64::try_from(hints.budget()).unwrap_or(i64::MAX) & -(PAGE as i64)
}

/// Rounds up to whole pages, as buffers are: the rest of a budget in whole pages is then in whole pages, too.
pub fn pages(bytes: i64) -> i64 {
    bytes.saturating_add(PAGE as i64 - 1) & -(PAGE as i64)
}

/// Expresses a refusal of memory in terms of the budget that was set: `needed` is a sufficient budget, in
/// addition to the bytes that others hold; `ours` are the bytes that this access holds.
pub fn refused(error: PlanError, hints: &Hints, ours: i64) -> PlanError {
    let PlanError::BudgetTooSmall { what, needed, .. } = error else { return error };
    let arena = Arena::global();
    let by_hint = hints.memory.is_some_and(|hint| hints.assumed || hint <= arena.available());
    let used = i64::try_from(arena.used()).unwrap_or(i64::MAX);
    let others = if by_hint { 0 } else { (used - ours).max(0) };
    // Buffers take whole pages, whatever others hold.
    let needed = pages(pages(needed).saturating_add(others));
    let budget = i64::try_from(hints.budget()).unwrap_or(i64::MAX);
    PlanError::BudgetTooSmall { what, needed, budget }
}

/// Returns the terms for an access; `codecs` is given if chunks go through codecs.
pub fn terms(
    hints: &Hints,
    found: &Found,
    files: &FileTable,
    cached: Option<u32>,
    codecs: Option<Coding>,
    budget: i64,
) -> Terms {
    let mut terms = Terms::new(budget);
    terms.lanes = if codecs.is_some() { lanes(hints) } else { lanes(hints).max(DEEP) };
    if let Some(Figures { gap, latency_ns, device, stream }) = found.disk(files) {
        terms.gap = gap;
        terms.rates = Rates { latency_ns, device, stream, ..terms.rates };
    }
    terms.coding = codecs.unwrap_or_default();
    terms.threads = lanes(hints);
    terms.exclusive = hints.exclusive;
    // A hint that this layout cannot follow is ignored: hints never change results.
    terms.method = hints.method.filter(|_| codecs.is_none());
    terms.cached_permille = i64::from(cached.unwrap_or(0));
    terms.mapping = hints.cache != Cache::Bypass || terms.method == Some(Method::Mapped);
    if terms.mapping && codecs.is_none() && !found.mappable(files) {
        terms.mapping = false;
        terms.method = terms.method.filter(|method| *method != Method::Mapped);
    }
    if hints.cache == Cache::Bypass {
        terms.cached_permille = 0;
    }
    if hints.cache != Cache::Keep {
        if let Some(block) = found.block(files) {
            terms.block = block;
            terms.direct = true;
        }
    }
    terms
}

/// Returns the terms for files that do not exist yet, on the disk of `beside`: whether they can be written
/// bypassing the page cache, and in which blocks.
pub fn of_new_files(hints: &Hints, found: &Found, beside: &Path) -> Terms {
    let mut terms = Terms::new(0);
    if hints.cache != Cache::Keep {
        if let Some(block) = found.block_at(beside) {
            (terms.block, terms.direct) = (block, true);
        }
    }
    terms
}

/// Returns the terms for an access to an array that may bypass the page cache, if no other process writes the
/// array and the page cache is too small for it or is not wanted.
pub fn past_cache(
    terms: Terms,
    hints: &Hints,
    found: &Found,
    layout: &Layout,
    direction: Direction,
) -> Terms {
    let bytes = match layout {
        Layout::Strided(layout) => layout.parts.iter().map(|part| part.len).sum(),
        Layout::Chunked(layout) => {
            layout.shape.iter().fold(layout.item, |all, n| all.saturating_mul(*n))
        }
    };
    if !terms.direct || !hints.exclusive {
        return terms;
    }
    let scarce = hints.cache == Cache::Bypass || found.scarce(bytes);
    // A page is written either bypassing the page cache, or through it.
    let pages = scarce && direction == Direction::Write;
    let block = if pages { terms.block.max(probe::page_size()) } else { terms.block };
    Terms { scarce, block, ..terms }
}

/// Returns the assumed parameters of a disk of which nothing is known.
pub fn assumed() -> Figures {
    let (gap, rates) = (Terms::new(0).gap, Rates::MEASURED);
    let Rates { latency_ns, device, stream, .. } = rates;
    Figures { gap, latency_ns, device, stream }
}

/// Returns what the planner may know of the disk below a folder, and its origin.
pub fn rates_below(folder: &Path) -> (Rates, Origin) {
    let device = std::fs::metadata(folder).ok().map(|found| found.dev());
    match device.and_then(disks::figures) {
        Some((Figures { latency_ns, device, stream, .. }, origin)) => {
            (Rates { latency_ns, device, stream, ..Rates::MEASURED }, origin)
        }
        None => (Rates::MEASURED, Origin::Assumed),
    }
}

/// Returns the number of concurrent rounds.
pub fn lanes(hints: &Hints) -> i64 {
    hints.threads.unwrap_or_else(cpu::cores).max(1) as i64
}

/// Returns the share of a section that is in the page cache, in thousandths; `None` if it is unknown.
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

/// Returns whether more than a quarter of a section is on the disk; if not, the part that is not cached is
/// mostly holes (the first sample is often at the page of the header).
pub fn stored(layout: &Strided, section: &Section, files: &FileTable) -> bool {
    let mut stored = 0;
    let looks = look(layout, section, files, &mut |fd, offset, len| {
        stored += i64::from(!probe::hole(fd, offset, len));
        Some(())
    });
    looks.is_none_or(|looks| 4 * stored > looks)
}

/// Takes samples of elements at regular distances, with dense neighbours; none if the section is small.
/// Returns the number of samples, or None if one failed.
fn look(
    layout: &Strided,
    section: &Section,
    files: &FileTable,
    one: &mut dyn FnMut(RawFd, i64, i64) -> Option<()>,
) -> Option<i64> {
    let (base, axes) = walk(layout, section);
    let span: i64 = axes.iter().map(|(count, stride)| (count - 1) * stride).sum();
    if span < PAGE as i64 {
        return Some(0); // A page or two: fetching them is one request in any case.
    }
    if span < GLANCE {
        let (file, offset, room) = locate(layout, base)?;
        let file = files.open(file).ok()?;
        one(file.fd(), offset, (span + layout.item).min(room))?;
        return Some(1);
    }
    // Dense neighbours along the fastest axes: that many bytes can be examined in one call.
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
        let file = files.open(file).ok()?;
        one(file.fd(), offset, run.min(LOOK).min(room))?;
    }
    Some(looks)
}

/// Drops the pages of a few elements from the page cache: those that a trial of a disk has read. A subsequent
/// long read would be cut in two at each page that is already cached.
pub fn forget(layout: &Strided, few: &Section, files: &FileTable) {
    let (base, axes) = walk(layout, few);
    for number in 0..axes.iter().fold(1, |all: i64, (count, _)| all.saturating_mul(*count)) {
        let (mut left, mut at) = (number, base);
        for (count, stride) in axes.iter().rev() {
            at += left % count * stride;
            left /= count;
        }
        let Some((file, offset, _)) = locate(layout, at) else { return };
        let Ok(file) = files.open(file) else { return };
        probe::forget(file.fd(), offset, layout.item);
    }
}

/// Returns the offset of the first element, and number and distance of elements per axis, the slowest axis
/// first.
fn walk(layout: &Strided, section: &Section) -> (i64, Vec<(i64, i64)>) {
    let mut axes: Vec<(i64, i64)> = section
        .ranges()
        .iter()
        .zip(&layout.strides)
        .map(|(range, stride)| (range.count, range.step * stride))
        .filter(|(count, _)| *count > 1)
        .collect();
    axes.sort_by_key(|(_, stride)| std::cmp::Reverse(*stride));
    let base = section.ranges().iter().zip(&layout.strides).map(|(r, s)| r.start * s).sum();
    (base, axes)
}

/// Returns the page faults of a read of a section through the mapping of its file, estimated from a few of
/// its pages; none if the system does not report them, or if there are several files.
pub fn faults(layout: &Strided, section: &Section, files: &FileTable) -> Option<Faults> {
    if files.len() != 1 {
        return None;
    }
    let file = files.open(0).ok()?;
    let needed = layout.parts.iter().map(|part| part.offset.saturating_add(part.len)).max()?;
    let mapping = file.kept()?.mapping(needed, &Arena::global()).ok()?;
    let (base, axes) = walk(layout, section);
    let place = |k: i64, of: i64| {
        let (_, offset, _) = locate(layout, base + element(&axes, k, of))?;
        usize::try_from(offset).ok()
    };
    let looks: Option<Vec<usize>> = (0..LOOKS).map(|look| place(look, LOOKS)).collect();
    // Between the other samples: these must not find pages that were mapped by a try before.
    let tries: Option<Vec<usize>> = TRIES.iter().map(|k| place(2 * k + 1, 2 * LOOKS)).collect();
    let Entered { absent, large } = mapping.entered(&looks?, &tries?)?;
    Some(Faults { absent, large, chunks: 0, rent: 0 })
}

/// Returns the bytes from the first element to the one `look / looks` of the way through the section.
fn element(axes: &[(i64, i64)], look: i64, looks: i64) -> i64 {
    // A mixed-radix fraction: each axis takes the remainder of the slower ones, so that samples are spread
    // over all axes.
    let (mut offset, mut left) = (0, look);
    for (count, stride) in axes {
        let scaled = i128::from(left) * i128::from(*count);
        let index = (scaled / i128::from(looks)) as i64;
        left = (scaled % i128::from(looks)) as i64;
        offset += index * stride;
    }
    offset
}

/// Returns file, offset there, and bytes left in the part, for byte `at` of the concatenation.
pub(crate) fn locate(layout: &Strided, at: i64) -> Option<(u32, i64, i64)> {
    let mut first = 0;
    for part in &layout.parts {
        if at < first + part.len {
            return Some((part.file, part.offset + at - first, first + part.len - at));
        }
        first += part.len;
    }
    None
}

/// Sets the memory budget of a new process, from its control group and the free memory.
pub fn default_budget() {
    Arena::global().set_limit(probe::memory().default_budget());
}

#[cfg(test)]
mod tests;
