//! [`Plan`]: a request and terms turned into numbered rounds.
//!
//! Problem: an access may have 10^15 elements, yet its plan has to be made in a microsecond, counted
//! exactly and run piece by piece. Idea: a plan holds only geometry (a few [`Nest`]s with their
//! [`Cut`]s); round `k` is computed from `k` alone. Work and memory follow the number of axes, of
//! parts the section crosses, and of chunks in the table, never the number of elements.

use crate::choose::{self, Choice};
use crate::cut::{grow, Cut, Growth};
use crate::emit::{self, Gather, Means};
use crate::error::PlanError;
use crate::layout::{ChunkTable, Layout, Strided};
use crate::nest::{Axis, Nest};
use crate::plan::{Channel, Direction, Method, Round};
use crate::section::Section;
use crate::terms::Terms;

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// Where the array lives.
    pub layout: &'a Layout,
    /// Chunked layouts: the part of the chunk table that the section touches.
    pub table: Option<&'a ChunkTable>,
    /// Which elements.
    pub section: &'a Section,
    /// Byte strides of the caller's array, one per axis of the section, any sign. Zero repeats an
    /// element, in writes only.
    pub user_stride: &'a [i64],
    /// Read or write.
    pub direction: Direction,
}

/// What is to be done, as a number of rounds, each a pure function of its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub(crate) means: Means,
    pub(crate) choice: Choice,
    pub(crate) pieces: Vec<Piece>,
    pub(crate) rounds: u64,
    pub(crate) slot_bytes: i64,
    pub(crate) lanes: i64,
}

/// A nest in one file, its cut, and the way to its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    pub nest: Nest,
    pub cut: Cut,
    pub way: Way,
    /// Number of its first round.
    pub first: u64,
}

/// The way to the bytes of a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Straight,
    Mapped,
    Gather(Gather),
}

impl Plan {
    /// Plans a request.
    ///
    /// Refuses sections outside the array, layouts that contradict themselves, sizes over 63 bits,
    /// forced methods that cannot do it, and budgets below the smallest round.
    pub fn new(request: &Request, terms: &Terms) -> Result<Plan, PlanError> {
        let terms = terms.sane();
        match request.layout {
            Layout::Strided(layout) => strided(request, layout, &terms),
            Layout::Chunked(_) => Err(PlanError::BadLayout("no planner for chunks".into())),
        }
    }

    /// Number of rounds.
    pub fn rounds(&self) -> u64 {
        self.rounds
    }

    /// The method of the stored bytes.
    pub fn method(&self) -> Method {
        self.choice.method
    }

    /// Largest slot of any round; `slot_bytes * lanes` stays within the budget.
    pub fn slot_bytes(&self) -> i64 {
        self.slot_bytes
    }

    /// Rounds that may be in flight at once: the lanes of the terms, or fewer if the budget does
    /// not hold so many slots.
    pub fn lanes(&self) -> i64 {
        self.lanes
    }

    /// Block size of direct transfers, for [`Bounds`](crate::Bounds).
    pub fn block(&self) -> i64 {
        self.means.block
    }

    /// Round `k`. Rounds touch disjoint parts of the caller's array.
    pub fn round(&self, k: u64) -> Result<Round, PlanError> {
        let mut round = Round::default();
        if k >= self.rounds {
            return Err(PlanError::Broken {
                rule: 0,
                detail: format!("round {k} of {}", self.rounds),
            });
        }
        let p = self.pieces.partition_point(|p| p.first <= k) - 1;
        let piece = &self.pieces[p];
        let b = piece.cut.round(&piece.nest, k - piece.first);
        round.slot_bytes = piece.way.emit(&b, self.means, 0, &mut round);
        Ok(round)
    }
}

impl Way {
    /// Adds the steps of one box to a round; returns the bytes of slot they use from `slot` on.
    fn emit(self, b: &Nest, means: Means, slot: i64, round: &mut Round) -> i64 {
        match self {
            Way::Straight => emit::straight(b, means, round),
            Way::Mapped => emit::mapped(b, means, round),
            Way::Gather(how) => return emit::gather(b, how, means, slot, round),
        }
        0
    }
}

fn means(request: &Request, terms: &Terms) -> Means {
    Means { direction: request.direction, block: terms.block, request: terms.request }
}

/// The nest of a section of a strided layout, through the concatenation of its parts.
fn nest_of(request: &Request, layout: &Strided) -> Result<Nest, PlanError> {
    let mut base = 0;
    let mut axes = Vec::with_capacity(layout.shape.len());
    for ((r, stride), user) in
        request.section.ranges().iter().zip(&layout.strides).zip(request.user_stride)
    {
        base += r.start * stride;
        axes.push(Axis { count: r.count, file: r.step * stride, user: *user });
    }
    Ok(Nest::new(0, base, 0, layout.item, axes))
}

fn strided(request: &Request, layout: &Strided, terms: &Terms) -> Result<Plan, PlanError> {
    layout.validate()?;
    request.section.within(&layout.shape)?;
    check_user(request, layout.item)?;
    let mut plan = Plan {
        means: means(request, terms),
        choice: Choice::only(terms.method.unwrap_or(Method::Straight), terms.method.is_some()),
        pieces: Vec::new(),
        rounds: 0,
        slot_bytes: 0,
        lanes: terms.lanes,
    };
    if request.section.is_empty() {
        return Ok(plan);
    }
    let nest = nest_of(request, layout)?;
    plan.choice = match terms.method {
        None => choose::choose(&nest, request.direction, terms),
        Some(Method::Mapped) if !terms.mapping => {
            return Err(PlanError::Impossible { method: "mapped", why: "files may not be mapped" });
        }
        Some(Method::Chunks) => {
            return Err(PlanError::Impossible { method: "chunks", why: "the array has no chunks" });
        }
        Some(method) => Choice::only(method, true),
    };
    for nest in nest.over_parts(&layout.parts)? {
        plan.add(nest, terms)?;
    }
    Ok(plan)
}

impl Plan {
    /// Cuts a nest into rounds and appends them.
    fn add(&mut self, nest: Nest, terms: &Terms) -> Result<(), PlanError> {
        let (nest, cut, way, slot, lanes) = cut_nest(nest, self.choice.method, self.means, terms)?;
        let rounds = cut.rounds(&nest);
        self.pieces.push(Piece { nest, cut, way, first: self.rounds });
        self.rounds = self.rounds.checked_add(rounds).ok_or(PlanError::TooLarge("plan"))?;
        self.slot_bytes = self.slot_bytes.max(slot);
        self.lanes = self.lanes.min(lanes);
        Ok(())
    }
}

/// Bytes of user data a round should have, so that several threads share an access.
fn share(bytes: i64, most: i64) -> i64 {
    (bytes / 8).clamp(1 << 20, most)
}

type CutNest = (Nest, Cut, Way, i64, i64);

fn cut_nest(nest: Nest, method: Method, means: Means, terms: &Terms) -> Result<CutNest, PlanError> {
    match method {
        Method::Straight => {
            let how = Growth { target: share(nest.bytes(), 8 << 20), along: 0, tiles: false };
            let cut = grow(&nest, &how, Nest::bytes);
            Ok((nest, cut, Way::Straight, 0, terms.lanes))
        }
        Method::Mapped => {
            let target = share(resident(&nest), 8 << 20);
            let how = Growth { target, along: 16 << 10, tiles: true };
            let cut = grow(&nest, &how, resident);
            Ok((nest, cut, Way::Mapped, 0, terms.lanes))
        }
        Method::Window => {
            let may_patch = means.direction == Direction::Write && terms.exclusive;
            let gap = match means.direction {
                Direction::Read => terms.cached_gap,
                Direction::Write if may_patch && terms.cached_permille < choose::CACHED => {
                    terms.gap
                }
                Direction::Write if may_patch => terms.cached_gap,
                Direction::Write => 1,
            };
            let patch = may_patch && nest.level(gap) != nest.level(1);
            let way = GatherWish { gap, channel: Channel::Cached, patch, desired: terms.window };
            cut_gather(nest, way, means, terms)
        }
        Method::List | Method::Chunks => {
            let direct = choose::goes_direct(&nest, means.direction, terms)
                || (terms.direct
                    && terms.method == Some(Method::List)
                    && means.direction == Direction::Read);
            let (gap, most) = match means.direction {
                Direction::Read if nest.transposed() => (terms.gap, 32 << 20),
                Direction::Read => (terms.gap, 8 << 20),
                Direction::Write => (1, 8 << 20),
            };
            let channel = if direct { Channel::Direct } else { Channel::Cached };
            let way = GatherWish { gap, channel, patch: false, desired: most };
            cut_gather(nest, way, means, terms)
        }
    }
}

/// Bytes of a mapping that a box keeps in memory.
fn resident(b: &Nest) -> i64 {
    let level = b.level(4096);
    let number: i64 = b.axes[..level].iter().map(|a| a.count).product();
    number.saturating_mul(b.extent(level).saturating_add(4096))
}

/// What a gather should be like.
#[derive(Clone, Copy)]
struct GatherWish {
    gap: i64,
    channel: Channel,
    patch: bool,
    /// Slot size aimed at.
    desired: i64,
}

fn cut_gather(
    nest: Nest,
    wish: GatherWish,
    means: Means,
    terms: &Terms,
) -> Result<CutNest, PlanError> {
    let gather =
        |b: &Nest| Gather { level: b.level(wish.gap), channel: wish.channel, patch: wish.patch };
    let measure = |b: &Nest| emit::slot_used(b, gather(b), means.block);
    let mut one = nest.clone();
    one.axes.iter_mut().for_each(|a| a.count = 1);
    let least = measure(&one);
    if least > terms.budget {
        if wish.channel == Channel::Direct {
            let cached = GatherWish { channel: Channel::Cached, ..wish };
            return cut_gather(nest, cached, means, terms);
        }
        if nest.item > 1 {
            return cut_gather(nest.in_bytes(), wish, means, terms);
        }
        return Err(PlanError::BudgetTooSmall {
            what: "a copy through a buffer",
            needed: least,
            budget: terms.budget,
        });
    }
    let lanes = terms.lanes.min(terms.budget / least);
    let limit = terms.budget / lanes;
    let total = measure(&nest);
    let desired = (total / (2 * lanes)).clamp((1 << 20).min(wish.desired), wish.desired);
    let along = if wish.gap > terms.cached_gap { 64 << 10 } else { 4 << 10 };
    let how = Growth { target: desired.min(limit), along, tiles: !wish.patch };
    let cut = grow(&nest, &how, measure);
    let mut block = nest.clone();
    block.axes.iter_mut().zip(&cut.block).for_each(|(a, b)| a.count = *b);
    let way = gather(&block);
    let slot = emit::slot_used(&block, way, means.block);
    Ok((nest, cut, Way::Gather(way), slot, lanes))
}

/// The caller's strides: as many as axes, their reach within 63 bits, no element twice on reading.
fn check_user(request: &Request, item: i64) -> Result<(), PlanError> {
    let ranges = request.section.ranges();
    if request.user_stride.len() != ranges.len() {
        return Err(PlanError::BadLayout(format!(
            "the caller's array has {} strides for {} axes",
            request.user_stride.len(),
            ranges.len()
        )));
    }
    let mut reach = item;
    for (r, s) in ranges.iter().zip(request.user_stride) {
        reach = s
            .checked_abs()
            .and_then(|s| s.checked_mul(r.count.max(1) - 1))
            .and_then(|s| s.checked_add(reach))
            .ok_or(PlanError::TooLarge("the caller's array"))?;
    }
    Ok(())
}
