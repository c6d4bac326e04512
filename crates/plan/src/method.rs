//! From a method to rounds: the cut of a nest, and the way to its bytes.
//!
//! | method   | rounds                                                   | memory             |
//! |----------|----------------------------------------------------------|--------------------|
//! | straight | 1 to 8 MiB                                               | none               |
//! | mapped   | 1 to 8 MiB of touched file; tiles if memory is transposed | none              |
//! | window   | extents that fit the second-level cache together         | a slot of a window |
//! | list     | extents to keep the disk's queue full; tiles likewise    | slots of 1 to 8 MiB |
//!
//! A window that is written from transposed memory has the rounds of a list. Rounds of the size of
//! a second-level cache would be so short along the file that each page is written in many parts.
//!
//! A write that reads first (`patch`) is never cut into tiles: its extents would overlap.
//!
//! Cold data: before the kernel writes a part of a page, it reads that page, one at a time, while
//! the writer waits. Rounds of straight, mapped and packed writes therefore read these pages
//! themselves (`Fetch`) in many concurrent requests, as a read does. The data read is dropped; the
//! page cache has it.

use crate::address::PAGE;
use crate::choose::{self, Need};
use crate::cost::piece_cost;
use crate::cut::{grow, Cut, Growth};
use crate::emit::{self, Edges, Gather, Means};
use crate::error::PlanError;
use crate::nest::{Axis, Nest};
use crate::piece::{Fetch, Piece, Way};
use crate::plan::{Channel, Cost, Direction, Method};
use crate::terms::{Home, Terms};

/// User bytes that a round should have so that several threads share an access.
pub(crate) fn share(bytes: i64, terms: &Terms) -> i64 {
    (bytes / 8).clamp(terms.share, 8 * terms.share)
}

/// Cuts a nest into rounds for a method.
pub(crate) fn cut_nest(
    nest: Nest,
    method: Method,
    means: Means,
    terms: &Terms,
) -> Result<Piece, PlanError> {
    match method {
        Method::Straight => {
            let how = Growth { target: share(means.total, terms), along: 0, tiles: false };
            let mut cut = grow(&nest, &how, Nest::bytes);
            if means.direction == Direction::Write {
                // Otherwise a page at a border of two requests would be partly written twice.
                align(&nest, &mut cut, Means { block: PAGE, ..means });
            }
            let way = Way::Straight { paged: paged(&nest, &cut) };
            let piece = Piece { nest, cut, way, fetch: None, slot: 0, lanes: terms.lanes };
            Ok(fetching(piece, means, terms))
        }
        Method::Mapped => {
            let target = share(resident(&nest), terms);
            let how = Growth { target, along: (terms.share / 64).max(1), tiles: true };
            let cut = grow(&nest, &how, resident);
            let piece =
                Piece { nest, cut, way: Way::Mapped, fetch: None, slot: 0, lanes: terms.lanes };
            Ok(fetching(piece, means, terms))
        }
        Method::Window => {
            let wanted = match window(&nest, means, terms) {
                Wanted { patch: false, .. } if writes_turned(&nest, means) => {
                    list(&nest, means, terms)
                }
                wanted => wanted,
            };
            let piece = cut_gather(wanted, nest, means, terms)?;
            Ok(if piece.patches() { piece } else { fetching(piece, means, terms) })
        }
        Method::List | Method::Chunks => cut_gather(list(&nest, means, terms), nest, means, terms),
    }
}

/// Cuts a nest for a write that bypasses the page cache.
///
/// The result is the sides of its runs, which go through the page cache, and their whole blocks.
/// None if the budget does not hold runs that are long enough.
///
/// A direct write removes its range from the page cache, and fails if another process dirties a
/// folio that reaches into this range during the write. The sides of all runs are therefore written
/// before the first block, and no other process writes (`terms.exclusive`, and one such plan at a
/// time).
pub(crate) fn cut_past(nest: Nest, means: Means, terms: &Terms) -> Option<[Piece; 2]> {
    let wanted = Wanted {
        gap: 1,
        channel: Channel::Direct,
        patch: false,
        desired: 8 * terms.share,
        along: terms.share / 4,
        extents: EXTENTS / 4, // Each cut of a run may be a page that is written twice.
        flight: 32 * terms.share,
    };
    let blocks = cut_gather(wanted, nest, means, terms).ok()?;
    let Way::Gather(direct) = blocks.way else { return None };
    let how = Gather { home: false, ..direct };
    let largest = blocks.nest.block(&blocks.cut.block);
    // The pages of sides may be on the disk; the kernel would read them one at a time. A probe of a
    // few places of the section would not show this: while a new array is written, the rest of it
    // is a hole.
    let fetch = Fetch::Edges(Edges { level: how.level, paged: paged(&blocks.nest, &blocks.cut) });
    let slot = emit::sides_used(&largest, how, means).max(fetch.slot(&largest));
    let lanes = blocks.lanes.min(terms.budget / slot.max(1));
    let long = largest.extent(how.level) >= 2 * means.block;
    if how.channel != Channel::Direct || !long || lanes < 1 {
        return None;
    }
    let way = Way::Sides(how);
    let sides = Piece { way, slot, lanes, fetch: Some(fetch), ..blocks.clone() };
    Some([sides, blocks])
}

/// Cuts a nest for a write of whole blocks that bypasses the page cache.
///
/// Every round consists of whole blocks.
///
/// None if runs have sides, or if bypassing the page cache does not pay off.
pub(crate) fn cut_past_whole(nest: Nest, means: Means, terms: &Terms) -> Option<Piece> {
    if !choose::writes_past(&nest, means, terms) {
        return None;
    }
    let [sides, blocks] = cut_past(nest, means, terms)?;
    let mut cost = Cost::default();
    piece_cost(&sides, means, &mut cost);
    (cost.writes == 0).then_some(blocks)
}

/// Returns the piece with the reads that it needs first, in smaller rounds.
///
/// Some rounds are then being read while others are being written. Returns the piece unchanged if
/// it needs no reads, or if the budget does not hold them.
fn fetching(piece: Piece, means: Means, terms: &Terms) -> Piece {
    let Piece { nest, way, .. } = &piece;
    let Some((need, _)) = choose::need(nest, means.direction, *way == Way::Mapped, terms) else {
        return piece;
    };
    let gather = |b: &Nest| Gather {
        level: b.level(terms.gap),
        channel: Channel::Cached,
        patch: false,
        home: false,
    };
    let own = |b: &Nest| match *way {
        Way::Gather(how) => Way::Gather(Gather { level: b.level(1), ..how }),
        way => way,
    };
    let packed = |b: &Nest| match own(b) {
        Way::Gather(how) => emit::slot_used(b, how, means.block),
        _ => 0,
    };
    let fetch = |b: &Nest, paged: bool| match need {
        Need::Pages => Fetch::Pages(gather(b)),
        Need::Edges => Fetch::Edges(Edges { level: b.level(1), paged }),
    };
    let slot = |b: &Nest| packed(b).max(fetch(b, true).slot(b));
    let each = (terms.budget / terms.lanes).max(1);
    if slot(&nest.one()) > each {
        return piece;
    }
    let large = |b: &Nest| slot(b).max(resident(b)).max(b.bytes());
    let target = (large(nest) / 8).clamp(terms.share, terms.share.saturating_mul(2));
    let how = Growth { target: target.min(each), along: 0, tiles: false };
    let mut cut = grow(nest, &how, large);
    if *way != Way::Mapped {
        align(nest, &mut cut, Means { block: PAGE, ..means });
    }
    let paged = paged(nest, &cut);
    let first = nest.block(&cut.block);
    let way = match own(&first) {
        Way::Straight { .. } => Way::Straight { paged },
        way => way,
    };
    let (fetch, slot) = (fetch(&first, paged), slot(&first));
    Piece { cut, way, fetch: Some(fetch), slot, ..piece }
}

/// Returns whether boxes of equal shape begin at the same place in their pages.
fn paged(nest: &Nest, cut: &Cut) -> bool {
    let alike = |(a, len): (&Axis, &i64)| *len == a.count || (len * a.file) % PAGE == 0;
    nest.axes.iter().zip(&cut.block).all(alike)
}

fn writes_turned(nest: &Nest, means: Means) -> bool {
    means.direction == Direction::Write && nest.transposed()
}

/// Bytes of a mapping that a box occupies in memory.
fn resident(b: &Nest) -> i64 {
    let level = b.level(4096);
    b.steps(level).saturating_mul(b.extent(level).saturating_add(4096))
}

/// Parameters that a gather should have.
#[derive(Clone, Copy)]
struct Wanted {
    /// Holes below this size are included in the extents.
    gap: i64,
    channel: Channel,
    patch: bool,
    /// Target size of the slot.
    desired: i64,
    /// For tiles: bytes along the file, and then at least `extents` extents of them.
    along: i64,
    extents: i64,
    /// Bytes that should be in flight concurrently, in as many rounds as necessary.
    flight: i64,
}

/// Extents of a tile, which is wide along memory for the copy.
const EXTENTS: i64 = 64;
/// Maximum number of concurrent rounds if rounds are small.
const FLYING: i64 = 16;

fn window(nest: &Nest, means: Means, terms: &Terms) -> Wanted {
    let cached = choose::is_cached(terms.cached_permille);
    let wide = if cached { terms.cached_gap } else { terms.gap };
    let gap = match means.direction {
        Direction::Read => terms.cached_gap,
        Direction::Write if terms.exclusive => wide,
        Direction::Write => 1,
    };
    let patch = means.direction == Direction::Write && nest.level(gap) != nest.level(1);
    // A part that is covered as a whole may not be covered within each tile, so extents have no
    // holes.
    let gap = if means.direction == Direction::Write && !patch { 1 } else { gap };
    Wanted {
        gap,
        channel: Channel::Cached,
        patch,
        desired: terms.window,
        along: terms.share / 256,
        extents: EXTENTS,
        flight: 0,
    }
}

fn list(nest: &Nest, means: Means, terms: &Terms) -> Wanted {
    let forced = terms.method == Some(Method::List);
    let read = means.direction == Direction::Read;
    let direct = terms.direct && forced && read || choose::goes_direct(nest, means, terms);
    let (gap, desired) = match means.direction {
        Direction::Read if nest.transposed() => (terms.gap, 32 * terms.share),
        Direction::Read => (terms.gap, 8 * terms.share),
        Direction::Write => (1, 8 * terms.share),
    };
    let channel = if direct { Channel::Direct } else { Channel::Cached };
    let flight = if direct { 32 * terms.share } else { 0 };
    Wanted { gap, channel, patch: false, desired, along: terms.share / 4, extents: EXTENTS, flight }
}

fn cut_gather(wanted: Wanted, nest: Nest, means: Means, terms: &Terms) -> Result<Piece, PlanError> {
    let Wanted { channel, patch, .. } = wanted;
    let gather = |b: &Nest| Gather { level: b.level(wanted.gap), channel, patch, home: false };
    let measure = |b: &Nest| emit::slot_used(b, gather(b), means.block);
    let whole = measure(&nest);
    let least = if whole <= terms.budget / terms.lanes { whole } else { measure(&nest.one()) };
    if least > terms.budget {
        if channel == Channel::Direct {
            let cached = Wanted { channel: Channel::Cached, ..wanted };
            return cut_gather(cached, nest, means, terms);
        }
        if nest.item > 1 {
            return cut_gather(wanted, nest.in_bytes(), means, terms);
        }
        let what = "a copy through a buffer";
        return Err(PlanError::BudgetTooSmall { what, needed: least, budget: terms.budget });
    }
    let lanes = terms.lanes.min(terms.budget / least);
    // Extents longer than a request are listed one by one, so a round should not have too many.
    let most = wanted.desired.min(terms.request.saturating_mul(4096));
    let floor = terms.share.min(most);
    let desired = (whole / (2 * lanes)).clamp(floor, most).min(terms.budget / lanes);
    let reads_direct = channel == Channel::Direct && means.direction == Direction::Read;
    let nest = if reads_direct && whole > desired && !nest.divides(means.block) {
        nest.in_bytes()
    } else {
        nest
    };
    // A tile is long along the file for the disk, and wide along memory for the copy.
    let along = wanted.along.min((desired / wanted.extents).max(terms.share / 64)).max(1);
    let how = Growth { target: desired, along, tiles: !patch };
    let mut cut = grow(&nest, &how, measure);
    let is_home = |cut: &Cut| {
        let largest = nest.block(&cut.block);
        channel == Channel::Direct && at_home(&nest, &largest, gather(&largest), means, terms)
    };
    // A transfer to or from the caller's array needs slots only for the ends of its runs, whatever
    // the size of a round.
    let target = (whole / (2 * lanes)).clamp(floor, most);
    if means.home.is_some() && channel == Channel::Direct && desired < target {
        let ends = |b: &Nest| match means.direction {
            Direction::Read => b.steps(b.level(wanted.gap)).saturating_mul(2 * means.page()),
            Direction::Write => emit::sides_used(b, gather(b), means),
        };
        let fits = |b: &Nest| ends(b) <= terms.budget / lanes;
        let longer =
            grow(&nest, &Growth { target, ..how }, |b| if fits(b) { b.bytes() } else { i64::MAX });
        cut = if is_home(&longer) { longer } else { cut };
    }
    let home = is_home(&cut);
    let home = Gather { home, ..gather(&nest.block(&cut.block)) };
    if channel == Channel::Direct {
        align(&nest, &mut cut, Means { block: means.unit(home), ..means });
    }
    let largest = nest.block(&cut.block);
    let way = Gather { home: home.home, ..gather(&largest) };
    let slot = match (way.home, means.direction) {
        (true, Direction::Write) => 0,
        _ => emit::slot_used(&largest, way, means.unit(way)),
    };
    let round = measure(&largest).max(1);
    // The disk is idle while it waits for a slot to be emptied. A small access is therefore in
    // flight as a whole.
    let flying = (wanted.flight / round).min(terms.budget / slot.max(1)).min(FLYING);
    let lanes = lanes.max(flying);
    Ok(Piece { nest, cut, way: Way::Gather(way), fetch: None, slot, lanes })
}

/// Returns whether a direct read or write can use the caller's array in place.
///
/// This requires runs on both sides, at the same place in pages of memory and pages of the file.
/// Runs to read must be so long that a copy takes longer than the requests for their ends; on a
/// disk with few requests per second none are. A write that bypasses the page cache makes these
/// requests in any case. The unit is a whole page although blocks may be smaller: a fork could copy
/// a page that other threads write to during the transfer, and the data from the disk would be
/// lost.
fn at_home(nest: &Nest, b: &Nest, how: Gather, means: Means, terms: &Terms) -> bool {
    let Some(Home { at, page }) = means.home else { return false };
    let rates = &terms.rates;
    let saves = |len| 2_i64.saturating_mul(rates.latency_ns) <= choose::time(len, rates.mapped);
    let pays = |len| match means.direction {
        Direction::Read => len >= (terms.share / 4).max(page) && saves(len),
        Direction::Write => true,
    };
    // In all boxes, and for all extents of a box at the same place in their pages.
    let congruent = |a: &Axis| a.count == 1 || (a.file - a.user) % page == 0;
    let alike = |a: &Axis| a.count == 1 || a.file % page == 0;
    how.level == b.run_level()
        && pays(b.extent(how.level))
        && (b.base - b.user - at) % page == 0
        && nest.axes.iter().all(congruent)
        && b.axes[..how.level].iter().all(alike)
}

/// Moves the borders of the innermost loop to borders of blocks of the file.
///
/// This is done if all repetitions of the loop have the same alignment. No block then belongs to
/// two rounds.
fn align(nest: &Nest, cut: &mut Cut, means: Means) {
    let block = means.block;
    let (Some(inner), Some(len)) = (nest.axes.last(), cut.block.last_mut()) else { return };
    let steps = block / nest.item;
    let alike = nest.axes[..nest.axes.len() - 1].iter().all(|a| a.file % block == 0);
    if *len == inner.count || inner.file != nest.item || !nest.divides(block) || !alike {
        return;
    }
    if *len >= steps {
        // Whole requests, unless this makes rounds much smaller.
        let whole = means.request / nest.item;
        let unit = if *len >= 4 * whole { whole } else { steps };
        *len = *len / unit * unit;
        cut.phase = nest.base % block / nest.item;
    }
}
