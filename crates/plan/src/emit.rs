//! From a box of the nest to the steps of a round: the ways to access the bytes of a file.
//!
//! | way      | file side                                   | memory side              |
//! |----------|---------------------------------------------|--------------------------|
//! | straight | runs contiguous on both sides               | the caller's array       |
//! | mapped   | a mapping                                   | a move                   |
//! | gather   | extents, small gaps included, into the slot | a move out of the slot   |
//! | home     | whole pages of runs, bypassing the page cache | the caller's array     |
//! | patch    | a gather that is changed and written back   | a move into the slot     |
//! | sides    | the parts of runs before and after whole blocks; a gather writes the whole blocks | a move into the slot |
//!
//! `Window` and `List` are both gathers; they differ in gap, channel and size. The same functions
//! emit the steps and count them, so `Cost` is exact.

use alloc::vec;
use alloc::vec::Vec;

use crate::address::{round_up, worst_residue, PAGE};
use crate::nest::{ends_page, starts_page, Nest};
use crate::plan::{Channel, Cost, Direction, Family, Move, Place, Round, Transfer};
use crate::terms::Home;

/// Parameters of a gather: how it accesses the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gather {
    /// Loops from this one inwards lie inside one extent.
    pub level: usize,
    /// Kernel path.
    pub channel: Channel,
    /// Write by reading, changing and writing back, because extents have holes.
    pub patch: bool,
    /// Direct transfer between the disk and the caller's array.
    ///
    /// A read moves whole pages of runs directly; only the bytes before and after them go through
    /// the slot. A write moves whole blocks directly.
    pub home: bool,
}

/// Parameters of an access that all ways need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Means {
    pub direction: Direction,
    /// Block of direct I/O.
    pub block: i64,
    /// Largest single request, a multiple of `block`.
    pub request: i64,
    /// Number of bytes that the whole access requests.
    pub total: i64,
    /// Address of the caller's array in memory; its page is at least as large as the block.
    pub home: Option<Home>,
}

impl Means {
    /// The unit of a gather: a page of the caller's memory, or a block.
    pub fn unit(self, how: Gather) -> i64 {
        match how.home {
            true => self.page(),
            false => self.block,
        }
    }

    /// A page of the caller's memory, or a block if the page size is unknown.
    pub fn page(self) -> i64 {
        self.home.map_or(self.block, |home| home.page)
    }
}

/// Places of the extents of a box in the slot.
pub(crate) struct SlotShape {
    /// Distance in the slot, for every loop.
    pub stride: Vec<i64>,
    /// Number of slot bytes used.
    pub used: i64,
}

/// Packs extents one after another.
///
/// For direct I/O, slot and file addresses stay congruent modulo the block, and extents rounded
/// outward never overlap.
pub(crate) fn slot_shape(b: &Nest, how: Gather, block: i64) -> SlotShape {
    let mut stride: Vec<i64> = b.axes.iter().map(|a| a.file).collect();
    let len = b.extent(how.level);
    if how.channel == Channel::Cached {
        let mut span = len;
        for d in (0..how.level).rev() {
            stride[d] = span;
            span = span.saturating_mul(b.axes[d].count);
        }
        return SlotShape { stride, used: span };
    }
    // The worst case of all boxes of this nest, so that all boxes have the same slot layout.
    let residue = worst_residue(b.base, b.axes.iter().map(|a| a.file), block);
    let mut span = round_up(residue.saturating_add(len), block);
    let mut reach = 0_i64;
    for d in (0..how.level).rev() {
        let a = b.axes[d];
        stride[d] = span.saturating_add((a.file - span).rem_euclid(block));
        let more = stride[d].saturating_mul(a.count - 1);
        reach = reach.saturating_add(more);
        span = span.saturating_add(more);
    }
    let used = round_up(reach.saturating_add(residue).saturating_add(len), block);
    SlotShape { stride, used }
}

/// Slot bytes of a gather without building its shape.
pub(crate) fn slot_used(b: &Nest, how: Gather, block: i64) -> i64 {
    if how.home {
        // The first and the last page of each extent; at most one page of data is read for each.
        return b.steps(how.level).saturating_mul(2 * block);
    }
    slot_shape(b, how, block).used
}

/// The first and the last byte of every extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Edges {
    /// Loops from this one inwards lie inside one extent.
    pub level: usize,
    /// Boxes of equal shape begin at the same place in their pages.
    ///
    /// It is then known which ends are on page borders.
    pub paged: bool,
}

impl Edges {
    /// Returns whether the pages at the beginning, and at the end, of extents are partly written.
    fn partial(self, b: &Nest) -> [bool; 2] {
        let known = |on_border| !(self.paged && on_border);
        [known(starts_page(b, self.level, 0)), known(ends_page(b, self.level))]
    }

    /// Maximum number of bytes read.
    pub fn number(self, b: &Nest) -> i64 {
        b.steps(self.level).saturating_mul(2)
    }
}

/// Reads one byte of each page that extents begin or end in. Returns the bytes of slot used.
pub(crate) fn fetch_edges(b: &Nest, edges: Edges, slot: i64, round: &mut Round) -> i64 {
    let mut at_stride = Vec::with_capacity(edges.level);
    let mut used = 1;
    for a in b.axes[..edges.level].iter().rev().filter(|a| a.count > 1) {
        at_stride.insert(0, used);
        used *= a.count;
    }
    let ends = [b.base, b.base + b.extent(edges.level) - 1];
    let mut at = slot;
    for (offset, _) in ends.iter().zip(edges.partial(b)).filter(|(_, partial)| *partial) {
        round.reads.push(Transfer {
            file: b.file,
            extents: Family { offset: *offset, ..family_of(b, edges.level, 1) },
            memory: Place::Slot,
            at,
            at_stride: at_stride.clone(),
            channel: Channel::Cached,
        });
        at += used;
    }
    // All boxes have the same slot layout, whether they end on pages or not.
    edges.number(b)
}

/// Counts `times` boxes of `fetch_edges`.
pub(crate) fn edges_cost(b: &Nest, edges: Edges, times: i64, cost: &mut Cost) {
    let sides = edges.partial(b).iter().filter(|partial| **partial).count() as i64;
    let number = times.saturating_mul(b.steps(edges.level));
    cost.reads = add(cost.reads, number, sides);
    cost.read_bytes = add(cost.read_bytes, number, sides);
}

/// Reads the extents of a gather as a read access does. Returns the bytes of slot used.
pub(crate) fn fetch_pages(
    b: &Nest,
    how: Gather,
    means: Means,
    slot: i64,
    round: &mut Round,
) -> i64 {
    let shape = slot_shape(b, how, means.block);
    let whole = extents_of(b, how, &shape, slot);
    cut_requests(whole, means.request, &mut round.reads);
    shape.used
}

/// Counts `times` boxes of `fetch_pages`.
pub(crate) fn pages_cost(b: &Nest, how: Gather, means: Means, times: i64, cost: &mut Cost) {
    let (len, number) = (b.extent(how.level), times.saturating_mul(b.steps(how.level)));
    cost.reads = add(cost.reads, number, requests(len, means.request));
    cost.read_bytes = add(cost.read_bytes, number, len);
}

/// The extents of a gather with their places in the slot, from address `at` on.
fn extents_of(b: &Nest, how: Gather, shape: &SlotShape, at: i64) -> Transfer {
    Transfer {
        file: b.file,
        extents: family_of(b, how.level, b.extent(how.level)),
        memory: Place::Slot,
        at,
        at_stride: outer(b, how.level, |d| shape.stride[d]),
        channel: how.channel,
    }
}

/// Straight transfers between file and the caller's array.
pub(crate) fn straight(b: &Nest, paged: bool, means: Means, round: &mut Round) {
    let level = b.run_level();
    let mut whole = Transfer {
        file: b.file,
        extents: family_of(b, level, b.extent(level)),
        memory: Place::User,
        at: b.user,
        at_stride: outer(b, level, |d| b.axes[d].user),
        channel: Channel::Cached,
    };
    if means.direction == Direction::Read {
        cut_requests(whole, means.request, &mut round.reads);
        return;
    }
    if let Some(first) = first_write(b, level, paged, means) {
        let head = split_off(&mut whole, first);
        round.writes.push(head);
    }
    cut_requests(whole, means.request, &mut round.writes);
}

/// Bytes of the first request of runs that need several, if the other requests can end on pages.
///
/// Otherwise two requests write parts of one page, and the first of them reads the page if it is
/// cold.
fn first_write(b: &Nest, level: usize, paged: bool, means: Means) -> Option<i64> {
    let alike = paged && b.axes[..level].iter().all(|a| a.file % PAGE == 0);
    let inside = b.base % PAGE;
    let cut = b.extent(level) > means.request && means.request % PAGE == 0;
    (alike && cut && inside != 0).then(|| means.request - inside)
}

/// One move between the caller's array and the mapped file.
pub(crate) fn mapped(b: &Nest, means: Means, round: &mut Round) {
    let stride: Vec<i64> = b.axes.iter().map(|a| a.file).collect();
    round.moves.push(copy(b, Place::File(b.file), b.base, &stride, means.direction));
}

/// Bytes of an extent before, in and after its whole pages.
///
/// The extent has `len` bytes and begins at `residue` modulo a page. Without whole pages, all bytes
/// may count as before them.
fn ends(residue: i64, len: i64, page: i64) -> (i64, i64, i64) {
    let head = if residue == 0 { 0 } else { (page - residue).min(len) };
    let whole = (len - head) & -page;
    (head, whole, len - head - whole)
}

/// Reads whole pages of runs into the caller's array. Returns the bytes of slot used.
fn home(b: &Nest, how: Gather, means: Means, slot: i64, round: &mut Round) -> i64 {
    let (page, len, number) = (means.unit(how), b.extent(how.level), b.steps(how.level));
    let (head, whole, tail) = ends(b.base.rem_euclid(page), len, page);
    let user = outer(b, how.level, |d| b.axes[d].user);
    let mut packed = user.clone();
    let counts = outer(b, how.level, |d| b.axes[d].count);
    let mut each = page;
    for (stride, count) in packed.iter_mut().zip(&counts).rev() {
        *stride = each;
        each *= count;
    }
    // Each end has a page in the slot, with the bytes at the same place as in the page.
    for (skip, part, at) in [(0, head, slot), (head + whole, tail, slot + number * page)] {
        if part == 0 {
            continue;
        }
        let offset = b.base + skip;
        let at = at + offset.rem_euclid(page);
        round.reads.push(Transfer {
            file: b.file,
            extents: Family { offset, ..family_of(b, how.level, part) },
            memory: Place::Slot,
            at,
            at_stride: packed.clone(),
            channel: Channel::Direct,
        });
        let bytes = |outer: &[i64], inner| outer.iter().copied().chain([inner]).collect();
        round.moves.push(Move {
            src: Place::Slot,
            src_at: at,
            src_stride: bytes(&packed, 1),
            dst: Place::User,
            dst_at: b.user + skip,
            dst_stride: bytes(&user, 1),
            count: bytes(&counts, part),
            item: 1,
        });
    }
    if whole > 0 {
        let pages = Transfer {
            file: b.file,
            extents: Family { offset: b.base + head, ..family_of(b, how.level, whole) },
            memory: Place::User,
            at: b.user + head,
            at_stride: user,
            channel: Channel::Direct,
        };
        cut_requests(pages, means.request, &mut round.reads);
    }
    slot_used(b, how, page)
}

/// Writes the whole blocks of runs from the caller's array; `sides` writes the rest.
///
/// Returns the bytes of slot used.
fn from_home(b: &Nest, how: Gather, means: Means, round: &mut Round) -> i64 {
    let len = b.extent(how.level);
    let (head, whole, _) = ends(b.base.rem_euclid(means.block), len, means.block);
    if whole > 0 && has_blocks(b, how, means) {
        let blocks = Transfer {
            file: b.file,
            extents: Family { offset: b.base + head, ..family_of(b, how.level, whole) },
            memory: Place::User,
            at: b.user + head,
            at_stride: outer(b, how.level, |d| b.axes[d].user),
            channel: Channel::Direct,
        };
        cut_requests(blocks, means.request, &mut round.writes);
    }
    0
}

/// Transfers extents through the slot from address `slot` on. Returns the bytes of slot used.
pub(crate) fn gather(b: &Nest, how: Gather, means: Means, slot: i64, round: &mut Round) -> i64 {
    if how.home {
        return match means.direction {
            Direction::Read => home(b, how, means, slot, round),
            Direction::Write => from_home(b, how, means, round),
        };
    }
    let shape = slot_shape(b, how, means.block);
    let at = match how.channel {
        Channel::Direct => slot + b.base % means.block,
        _ => slot,
    };
    if means.direction == Direction::Write
        && how.channel == Channel::Direct
        && !has_blocks(b, how, means)
    {
        return shape.used; // `sides` writes all of it.
    }
    let whole = extents_of(b, how, &shape, at);
    round.moves.push(copy(b, Place::Slot, at, &shape.stride, means.direction));
    match (means.direction, how.channel) {
        (Direction::Read, Channel::Direct) => cut_direct_reads(whole, means, &mut round.reads),
        (Direction::Read, _) => cut_requests(whole, means.request, &mut round.reads),
        (Direction::Write, Channel::Direct) => cut_direct_writes(whole, means, &mut round.writes),
        (Direction::Write, _) => {
            let mut back = Vec::new();
            cut_requests(whole, means.request, &mut back);
            if how.patch {
                round.reads.extend(back.iter().cloned());
            }
            round.writes.append(&mut back);
        }
    }
    shape.used
}

/// Returns whether the runs of a box are long enough to have whole blocks.
fn has_blocks(b: &Nest, how: Gather, means: Means) -> bool {
    b.extent(how.level) >= means.block
}

/// The first elements of every run of a box, which are a box, too.
///
/// They have at least a block, and fewer elements than the run if possible.
fn first_block(b: &Nest, how: Gather, means: Means) -> Nest {
    let mut counts: Vec<i64> = b.axes.iter().map(|a| a.count).collect();
    let mut within = b.item;
    for d in (how.level..b.axes.len()).rev() {
        counts[d] = ((means.block - 1) / within + 1).min(b.axes[d].count);
        within = within.saturating_mul(b.axes[d].count);
    }
    b.block(&counts)
}

/// Writes the parts of runs before and after whole blocks through the page cache.
///
/// Short runs are written as a whole. Returns the bytes of slot used.
pub(crate) fn sides(b: &Nest, how: Gather, means: Means, slot: i64, round: &mut Round) -> i64 {
    let cached = Gather { channel: Channel::Cached, ..how };
    if !has_blocks(b, how, means) {
        return gather(b, cached, means, slot, round);
    }
    let first = first_block(b, how, means);
    let shape = slot_shape(&first, cached, means.block);
    let behind = |d: usize| b.axes[d].count - first.axes[d].count;
    let steps = how.level..b.axes.len();
    let last = Nest {
        base: b.base + steps.clone().map(|d| behind(d) * b.axes[d].file).sum::<i64>(),
        user: b.user + steps.map(|d| behind(d) * b.axes[d].user).sum::<i64>(),
        ..first.clone()
    };
    let on_border =
        |at| at % means.block == 0 && b.axes[..how.level].iter().all(|a| a.file % means.block == 0);
    let sides = [
        (&first, Channel::Head, slot, on_border(b.base)),
        (&last, Channel::Tail, slot + shape.used, on_border(b.base + b.extent(how.level))),
    ];
    for (part, channel, at, _) in sides.into_iter().filter(|(.., on_border)| !on_border) {
        round.moves.push(copy(part, Place::Slot, at, &shape.stride, means.direction));
        round.writes.push(Transfer { channel, ..extents_of(part, cached, &shape, at) });
    }
    2 * shape.used
}

/// Slot bytes of `sides`.
pub(crate) fn sides_used(b: &Nest, how: Gather, means: Means) -> i64 {
    let cached = Gather { channel: Channel::Cached, ..how };
    match has_blocks(b, how, means) {
        true => 2 * slot_used(&first_block(b, how, means), cached, means.block),
        false => slot_used(b, cached, means.block),
    }
}

/// Counts `times` extents of `len` bytes of `sides` that begin at `residue` modulo the block.
pub(crate) fn sides_cost(len: i64, means: Means, residue: i64, times: i64, cost: &mut Cost) {
    let (head, _, tail) = ends(residue, len, means.block);
    let (number, bytes) = match len < means.block {
        true => (requests(len, means.request), len),
        false => (i64::from(head > 0) + i64::from(tail > 0), head + tail),
    };
    cost.writes = add(cost.writes, times, number);
    cost.written_bytes = add(cost.written_bytes, times, bytes);
}

/// Counts `times` extents of a gather that begin at `residue` modulo the block or the page.
pub(crate) fn gather_cost(
    len: i64,
    how: Gather,
    means: Means,
    residue: i64,
    times: i64,
    cost: &mut Cost,
) {
    let plain = requests(len, means.request);
    let mut reads = |n: i64, bytes: i64| {
        cost.reads = add(cost.reads, times, n);
        cost.read_bytes = add(cost.read_bytes, times, bytes);
    };
    match (means.direction, how.channel) {
        (Direction::Read, Channel::Cached | Channel::Head | Channel::Tail) => reads(plain, len),
        (Direction::Read, Channel::Direct) if how.home => {
            let (head, whole, tail) = ends(residue, len, means.unit(how));
            let sides = i64::from(head > 0) + i64::from(tail > 0);
            let first = round_up(residue % means.block + head, means.block) * i64::from(head > 0);
            let bytes = first + whole + round_up(tail, means.block);
            reads(sides + requests(whole, means.request), bytes);
        }
        (Direction::Read, Channel::Direct) => {
            let rounded = round_up(residue.saturating_add(len), means.block);
            reads(requests(rounded, means.request), rounded);
        }
        (Direction::Write, Channel::Direct) => {
            let (_, whole, _) = ends(residue, len, means.block);
            let whole = if len < means.block { 0 } else { whole };
            cost.writes = add(cost.writes, times, requests(whole, means.request));
            cost.written_bytes = add(cost.written_bytes, times, whole);
        }
        (Direction::Write, _) => {
            if how.patch {
                reads(plain, len);
            }
            cost.writes = add(cost.writes, times, plain);
            cost.written_bytes = add(cost.written_bytes, times, len);
        }
    }
}

/// Counts `times` boxes of straight transfers.
pub(crate) fn straight_cost(b: &Nest, paged: bool, means: Means, times: i64, cost: &mut Cost) {
    let level = b.run_level();
    let len = b.extent(level);
    let runs = times.saturating_mul(b.steps(level));
    let (n, bytes, first) = match means.direction {
        Direction::Read => (&mut cost.reads, &mut cost.read_bytes, None),
        Direction::Write => {
            let first = first_write(b, level, paged, means);
            (&mut cost.writes, &mut cost.written_bytes, first)
        }
    };
    let each = match first {
        Some(first) => 1 + requests(len - first, means.request),
        None => requests(len, means.request),
    };
    *n = add(*n, runs, each);
    *bytes = add(*bytes, runs, len);
}

/// `sum + times * each`, saturating at 63 bits.
pub(crate) fn add(sum: i64, times: i64, each: i64) -> i64 {
    sum.saturating_add(times.saturating_mul(each))
}

/// Requests for `len` bytes.
pub(crate) fn requests(len: i64, request: i64) -> i64 {
    if len == 0 {
        0
    } else {
        (len - 1) / request + 1
    }
}

/// The move between the caller's array and a place laid out with `stride`.
pub(crate) fn copy(b: &Nest, place: Place, at: i64, stride: &[i64], direction: Direction) -> Move {
    let kept = || b.axes.iter().enumerate().filter(|(_, a)| a.count > 1);
    let other: Vec<i64> = kept().map(|(d, _)| stride[d]).collect();
    let user: Vec<i64> = kept().map(|(_, a)| a.user).collect();
    let count = kept().map(|(_, a)| a.count).collect();
    let item = b.item;
    match direction {
        Direction::Read => Move {
            src: place,
            src_at: at,
            src_stride: other,
            dst: Place::User,
            dst_at: b.user,
            dst_stride: user,
            count,
            item,
        },
        Direction::Write => Move {
            src: Place::User,
            src_at: b.user,
            src_stride: user,
            dst: place,
            dst_at: at,
            dst_stride: other,
            count,
            item,
        },
    }
}

/// The extents of a box: one per step of the loops outside `level`.
fn family_of(b: &Nest, level: usize, len: i64) -> Family {
    Family {
        offset: b.base,
        len,
        count: outer(b, level, |d| b.axes[d].count),
        stride: outer(b, level, |d| b.axes[d].file),
    }
}

fn outer(b: &Nest, level: usize, value: impl Fn(usize) -> i64) -> Vec<i64> {
    (0..level).filter(|&d| b.axes[d].count > 1).map(value).collect()
}

/// Splits extents longer than a request: one more loop of whole requests, and the rest.
pub(crate) fn cut_requests(whole: Transfer, request: i64, out: &mut Vec<Transfer>) {
    let len = whole.extents.len;
    if len <= request {
        out.push(whole);
        return;
    }
    let (full, rest) = (len / request, len % request);
    let mut many = whole.clone();
    many.extents.len = request;
    if full > 1 {
        many.extents.count.push(full);
        many.extents.stride.push(request);
        many.at_stride.push(request);
    }
    out.push(many);
    if rest > 0 {
        let mut last = whole;
        last.extents.len = rest;
        last.extents.offset += full * request;
        last.at += full * request;
        out.push(last);
    }
}

/// Cuts direct reads into requests that end on whole blocks, so that no block is read twice.
pub(crate) fn cut_direct_reads(whole: Transfer, means: Means, out: &mut Vec<Transfer>) {
    if whole.extents.len <= means.request - means.block {
        out.push(whole);
        return;
    }
    for_each_extent(&whole, |mut one| {
        let first = means.request - one.extents.offset % means.block;
        if one.extents.len <= first {
            out.push(one);
            return;
        }
        let head = split_off(&mut one, first);
        out.push(head);
        cut_requests(one, means.request, out);
    });
}

/// Cuts direct writes into requests that begin and end at borders of blocks.
///
/// The sides of the extent are excluded; other steps write them.
fn cut_direct_writes(whole: Transfer, means: Means, out: &mut Vec<Transfer>) {
    if whole.extents.len <= means.request {
        out.push(whole);
        return;
    }
    for_each_extent(&whole, |mut one| {
        let border = round_up(one.extents.offset, means.block);
        let first = border - one.extents.offset + means.request;
        if one.extents.len <= first {
            out.push(one);
            return;
        }
        let head = split_off(&mut one, first);
        out.push(head);
        cut_requests(one, means.request, out);
    });
}

/// Takes the first `len` bytes off a single extent.
fn split_off(one: &mut Transfer, len: i64) -> Transfer {
    let mut head = one.clone();
    head.extents.len = len;
    one.extents.len -= len;
    one.extents.offset += len;
    one.at += len;
    head
}

/// Visits the extents of a family one by one. Only for extents about as long as a request.
fn for_each_extent(whole: &Transfer, mut visit: impl FnMut(Transfer)) {
    let counts = &whole.extents.count;
    let mut index = vec![0; counts.len()];
    loop {
        let along = |stride: &[i64]| -> i64 { index.iter().zip(stride).map(|(i, s)| i * s).sum() };
        visit(Transfer {
            extents: Family {
                offset: whole.extents.offset + along(&whole.extents.stride),
                len: whole.extents.len,
                count: Vec::new(),
                stride: Vec::new(),
            },
            at: whole.at + along(&whole.at_stride),
            at_stride: Vec::new(),
            ..whole.clone()
        });
        let Some(d) = (0..counts.len()).rev().find(|&d| index[d] + 1 < counts[d]) else { return };
        index[d] += 1;
        index[d + 1..].fill(0);
    }
}
