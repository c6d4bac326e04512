//! [`Plan`]: a request and terms turned into numbered rounds.
//!
//! Problem: an access may have 10^15 elements, yet its plan must be made in a microsecond, counted
//! exactly and run piece by piece. Approach: a plan holds only geometry, that is, nests of loops
//! and their cuts; round `k` is computed from `k` alone. Work and memory are proportional to the
//! number of axes, of parts that the section crosses, and of chunks in the table, never to the
//! number of elements.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use crate::address::{nests, round_up, PAGE};
use crate::choose::{self, Choice};
use crate::chunks::Cells;
use crate::chunks::SIDE;
use crate::cost::piece_cost;
use crate::emit::Means;
use crate::error::PlanError;
use crate::layout::{Layout, Strided};
use crate::method::{cut_nest, cut_past};
use crate::nest::{Axis, Nest};
use crate::piece::{Piece, Way};
use crate::plan::{Cost, Direction, Family, Method, Round};
use crate::points::strided::PointWork;
use crate::points::Chosen;
use crate::request::Request;
use crate::terms::Terms;

/// The steps of an access, as a number of rounds, each a pure function of its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub(crate) means: Means,
    choice: Choice,
    work: Work,
    rounds: u64,
    slot_bytes: i64,
    lanes: i64,
    contexts: i64,
    held: i64,
    cached_permille: i64,
    /// First round that bypasses the page cache; None unless the plan is such a write.
    past: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Work {
    /// Pieces, each with the number of its first round.
    Pieces(Vec<(u64, Piece)>),
    /// Two pieces with alternating rounds, so that threads that take rounds in order work at both.
    Halves(Box<[Piece; 2]>),
    Cells(Box<Cells>),
    /// Elements that are chosen one by one.
    Points(Box<PointWork>),
}

impl Plan {
    /// Plans a request.
    ///
    /// Fails for sections outside the array, inconsistent layouts, sizes over 63 bits, forced
    /// methods that cannot do the access, and budgets below the smallest round.
    pub fn new(request: &Request, terms: &Terms) -> Result<Plan, PlanError> {
        Plan::of(request, None, terms)
    }

    /// Plans an access to elements, or blocks of them, that are chosen one by one.
    ///
    /// The section of the request is the section of one block (`Index::cell`).
    pub fn indexed(request: &Request, chosen: &Chosen, terms: &Terms) -> Result<Plan, PlanError> {
        Plan::of(request, Some(chosen), terms)
    }

    fn of(request: &Request, chosen: Option<&Chosen>, terms: &Terms) -> Result<Plan, PlanError> {
        let terms = terms.sane();
        let (shape, item) = match request.layout {
            Layout::Strided(layout) => {
                layout.validate()?;
                (&layout.shape, layout.item)
            }
            Layout::Chunked(layout) => {
                layout.validate()?;
                (&layout.shape, layout.item)
            }
        };
        request.section.within(shape)?;
        check_user(request, item)?;
        let points = match chosen {
            None => Some(1),
            Some(chosen) => i64::try_from(chosen.len()).ok(),
        };
        let total = request.section.count()?.checked_mul(item);
        let total = total.zip(points).and_then(|(bytes, points)| bytes.checked_mul(points));
        let mut plan = Plan {
            means: Means {
                direction: request.direction,
                block: terms.block,
                request: terms.request,
                total: total.ok_or(PlanError::TooLarge("the section"))?,
                home: terms.home,
            },
            choice: Choice::only(terms.method.unwrap_or(Method::Straight), terms.method.is_some()),
            work: Work::Pieces(Vec::new()),
            rounds: 0,
            slot_bytes: 0,
            lanes: terms.lanes,
            contexts: 0,
            held: 0,
            cached_permille: terms.cached_permille,
            past: None,
        };
        if request.section.is_empty() || points == Some(0) {
            return Ok(plan);
        }
        match (request.layout, chosen) {
            (Layout::Strided(layout), None) => plan.strided(request, layout, &terms)?,
            (Layout::Strided(layout), Some(chosen)) => {
                let cell = nest_of(request, layout);
                let (work, method) =
                    PointWork::new(chosen.points, cell, &layout.parts, plan.means, &terms)?;
                (plan.rounds, plan.slot_bytes, plan.lanes) = (work.rounds(), work.slot, work.lanes);
                plan.choice = Choice::only(method, terms.method.is_some());
                plan.work = Work::Points(Box::new(work));
            }
            (Layout::Chunked(layout), _) => {
                let (cells, choice) = Cells::new(request, chosen, layout, plan.means, &terms)?;
                (plan.rounds, plan.slot_bytes, plan.lanes) =
                    (cells.rounds, cells.slot, cells.lanes);
                (plan.contexts, plan.held) = (cells.contexts, cells.held);
                plan.past = cells.past.then_some(0);
                plan.choice = choice;
                plan.work = Work::Cells(Box::new(cells));
            }
        }
        Ok(plan)
    }

    fn strided(
        &mut self,
        request: &Request,
        layout: &Strided,
        terms: &Terms,
    ) -> Result<(), PlanError> {
        let nest = nest_of(request, layout);
        let nests = nest.clone().over_parts(&layout.parts)?;
        // Times are estimated for the whole nest, but with the place in its pages that it has in
        // its first file.
        let nest = Nest { base: nests.first().map_or(nest.base, |first| first.base), ..nest };
        if choose::writes_past(&nest, self.means, terms) && self.past(&nests, terms)? {
            return Ok(());
        }
        // A window that is written back dirties pages that the next tile dirties again.
        let terms = &Terms { exclusive: terms.exclusive && !terms.scarce, ..terms.clone() };
        self.choice = match terms.method {
            None => choose::choose(&nest, self.means, terms),
            Some(Method::Mapped) if !terms.mapping => {
                let why = "files may not be mapped";
                return Err(PlanError::Impossible { method: "mapped", why });
            }
            Some(Method::Chunks) => {
                let why = "the array has no chunks";
                return Err(PlanError::Impossible { method: "chunks", why });
            }
            Some(method) => Choice::only(method, true),
        };
        if let ([nest], true) = (nests.as_slice(), self.choice.halves) {
            if let Some([first, second]) = nest.halves() {
                return self.halves(first, second, terms);
            }
        }
        self.choice.halves = false;
        let mut pieces = Vec::with_capacity(1);
        self.lanes = i64::MAX;
        for nest in nests {
            let piece = cut_nest(nest, self.choice.method, self.means, terms)?;
            self.slot_bytes = self.slot_bytes.max(piece.slot);
            self.lanes = self.lanes.min(piece.lanes);
            let first = self.rounds;
            let rounds = first.checked_add(piece.rounds());
            self.rounds = rounds.ok_or(PlanError::TooLarge("the plan"))?;
            pieces.push((first, piece));
        }
        // Every slot is as large as the largest slot of all pieces.
        self.lanes = self.lanes.min(terms.budget / self.slot_bytes.max(1)).max(1);
        self.work = Work::Pieces(pieces);
        Ok(())
    }

    /// Plans a write that bypasses the page cache: first the sides of runs, then whole blocks.
    ///
    /// Returns false and changes nothing if the budget is too small for that.
    fn past(&mut self, nests: &[Nest], terms: &Terms) -> Result<bool, PlanError> {
        let cut: Option<Vec<_>> =
            nests.iter().map(|nest| cut_past(nest.clone(), self.means, terms)).collect();
        let Some(cut) = cut else { return Ok(false) };
        let (sides, blocks): (Vec<_>, Vec<_>) = cut.into_iter().map(|[s, b]| (s, b)).unzip();
        let slot = sides.iter().chain(&blocks).map(|piece| piece.slot).max().unwrap_or(0);
        let lanes = sides.iter().chain(&blocks).map(|piece| piece.lanes).min().unwrap_or(1);
        let mut number = 0_u64;
        let mut pieces = Vec::with_capacity(2 * sides.len());
        let border = sides.len();
        for piece in sides.into_iter().chain(blocks) {
            if pieces.len() == border {
                self.past = Some(number);
            }
            let next = number.checked_add(piece.rounds()).ok_or(PlanError::TooLarge("the plan"))?;
            pieces.push((number, piece));
            number = next;
        }
        self.choice = Choice { past: true, ..Choice::only(Method::List, false) };
        (self.rounds, self.slot_bytes) = (number, slot);
        self.lanes = lanes.min(terms.budget / slot.max(1)).max(1);
        self.work = Work::Pieces(pieces);
        Ok(true)
    }

    /// Plans one half by calls and the other half through the mapping.
    fn halves(&mut self, first: Nest, second: Nest, terms: &Terms) -> Result<(), PlanError> {
        let first = cut_nest(first, Method::Straight, self.means, terms)?;
        let second = cut_nest(second, Method::Mapped, self.means, terms)?;
        self.choice.method = Method::Straight;
        self.lanes = first.lanes.min(second.lanes);
        let rounds = first.rounds().checked_add(second.rounds());
        self.rounds = rounds.ok_or(PlanError::TooLarge("the plan"))?;
        self.work = Work::Halves(Box::new([first, second]));
        Ok(())
    }

    /// Number of rounds.
    pub fn rounds(&self) -> u64 {
        self.rounds
    }

    /// The method of the stored bytes.
    pub fn method(&self) -> Method {
        self.choice.method
    }

    /// Returns whether another plan may be better once the terms include the expected page faults.
    pub fn turns_on_faults(&self) -> bool {
        self.choice.doubtful
    }

    /// Value of `Faults::rent` for the next read if this plan is run; None if it does not change.
    pub fn rent(&self) -> Option<i64> {
        self.choice.rent
    }

    /// Number of requested bytes.
    pub fn useful_bytes(&self) -> i64 {
        self.means.total
    }

    /// Largest slot of any round; `lane_bytes * lanes + held` stays within the budget.
    pub fn slot_bytes(&self) -> i64 {
        self.slot_bytes
    }

    /// Number of rounds that may be in flight concurrently.
    ///
    /// These are the lanes of the terms, fewer if the budget does not hold that many slots, and
    /// more if rounds from the disk are small.
    pub fn lanes(&self) -> i64 {
        self.lanes
    }

    /// Returns whether rounds read pages in advance so that a write finds them in the page cache.
    ///
    /// The data read is dropped.
    pub fn fetches(&self) -> bool {
        if let Work::Points(work) = &self.work {
            return work.fetches();
        }
        self.any(|piece| piece.fetch.is_some(), Cells::fetches)
    }

    /// First round that bypasses the page cache; None unless the plan is such a write.
    ///
    /// This round may begin when all rounds before it have ended. Nothing else may be written to
    /// the files while the rounds from this one on run.
    pub fn past_cache(&self) -> Option<u64> {
        self.past
    }

    /// Returns whether rounds read, change and write back data.
    pub fn writes_back(&self) -> bool {
        self.any(Piece::patches, Cells::writes_back)
    }

    fn any(&self, piece: impl Fn(&Piece) -> bool, cells: impl Fn(&Cells) -> bool) -> bool {
        match &self.work {
            Work::Pieces(pieces) => pieces.iter().any(|(_, p)| piece(p)),
            Work::Halves(halves) => halves.iter().any(piece),
            Work::Cells(all) => cells(all),
            Work::Points(_) => false,
        }
    }

    /// Extents that a write in place leaves in the page cache, per file.
    ///
    /// Extents are a page or more apart. Empty for chunks, for windows that are written back as a
    /// whole, and for writes that bypass the page cache.
    pub fn written(&self) -> Vec<(u32, Family)> {
        let of = |piece: &Piece| {
            let nest = &piece.nest;
            let level = nest.level(PAGE);
            let (count, stride) = nest.axes[..level].iter().map(|a| (a.count, a.file)).unzip();
            (nest.file, Family { offset: nest.base, len: nest.extent(level), count, stride })
        };
        match &self.work {
            Work::Cells(_) | Work::Points(_) => Vec::new(),
            _ if self.means.direction == Direction::Read || self.writes_back() => Vec::new(),
            _ if self.past.is_some() => Vec::new(),
            Work::Pieces(pieces) => pieces.iter().map(|(_, piece)| of(piece)).collect(),
            Work::Halves(halves) => halves.iter().map(of).collect(),
        }
    }

    /// Bytes of codec contexts for each round in flight, from the terms.
    pub fn contexts(&self) -> i64 {
        self.contexts
    }

    /// Bytes that a round in flight needs: its slot and its contexts.
    pub fn lane_bytes(&self) -> i64 {
        if self.contexts == 0 {
            return self.slot_bytes;
        }
        round_up(self.slot_bytes, SIDE).saturating_add(self.contexts)
    }

    /// Bytes that the receiver of encoded chunks may hold, once per access.
    pub fn held(&self) -> i64 {
        self.held
    }

    /// Returns whether any round decodes chunks, and whether any encodes them.
    pub fn codes(&self) -> (bool, bool) {
        match &self.work {
            Work::Cells(cells) => (cells.decodes, cells.encodes > 0),
            _ => (false, false),
        }
    }

    /// Block size of direct transfers, for [`Bounds`](crate::Bounds).
    pub fn block(&self) -> i64 {
        self.means.block
    }

    /// Round `k`. Rounds touch disjoint parts of the caller's array.
    pub fn round(&self, k: u64) -> Result<Round, PlanError> {
        if k >= self.rounds {
            let detail = format!("round {k} of {}", self.rounds);
            return Err(PlanError::Broken { rule: 0, detail });
        }
        match &self.work {
            Work::Cells(cells) => cells.round(k),
            Work::Points(work) => work.round(k, self.means),
            Work::Pieces(pieces) => {
                let mut round = Round::default();
                let (first, piece) = &pieces[pieces.partition_point(|p| p.0 <= k) - 1];
                round.slot_bytes = piece.emit(k - first, self.means, 0, &mut round);
                Ok(round)
            }
            Work::Halves(halves) => {
                let mut round = Round::default();
                let [first, second] = halves.each_ref().map(Piece::rounds);
                let both = first.min(second);
                let (piece, k) = match k {
                    k if k < 2 * both => (&halves[(k % 2) as usize], k / 2),
                    k if first > second => (&halves[0], k - both),
                    k => (&halves[1], k - both),
                };
                round.slot_bytes = piece.emit(k, self.means, 0, &mut round);
                Ok(round)
            }
        }
    }

    /// Resources that all rounds use. Encoded chunks that are written count as their bound.
    pub fn cost(&self) -> Cost {
        let rounds = i64::try_from(self.rounds).unwrap_or(i64::MAX);
        let mut cost = Cost {
            useful_bytes: self.useful_bytes(),
            rounds,
            peak_bytes: self.lane_bytes() * self.lanes.min(rounds) + self.held,
            ..Cost::default()
        };
        match &self.work {
            Work::Pieces(pieces) => {
                pieces.iter().for_each(|(_, piece)| piece_cost(piece, self.means, &mut cost));
            }
            Work::Halves(halves) => {
                halves.iter().for_each(|piece| piece_cost(piece, self.means, &mut cost));
            }
            Work::Cells(cells) => cells.cost(&mut cost),
            Work::Points(work) => work.cost(&mut cost),
        }
        cost
    }

    /// Approximate number of pages of mapped files that the plan touches.
    pub fn mapped_pages(&self) -> i64 {
        let pieces: Vec<&Piece> = match &self.work {
            Work::Pieces(pieces) => pieces.iter().map(|(_, piece)| piece).collect(),
            Work::Halves(halves) => halves.iter().collect(),
            Work::Cells(_) => vec![],
            Work::Points(work) => return work.mapped_pages(),
        };
        let mapped = pieces.into_iter().filter(|piece| matches!(piece.way, Way::Mapped));
        mapped.fold(0, |sum: i64, piece| sum.saturating_add(choose::pages(&piece.nest)))
    }

    /// One sentence with the reason for this method.
    pub fn why(&self) -> String {
        if self.rounds == 0 {
            return "nothing to do: the section is empty".into();
        }
        if self.choice.method == Method::Chunks && !self.choice.forced {
            return "chunks, because they are encoded: whole chunks go through the codecs".into();
        }
        if matches!(self.work, Work::Points(_)) {
            return self.why_points();
        }
        let why = self.choice.why(self.cached_permille, matches!(self.work, Work::Cells(_)));
        let first = "; pages that are not cached are read first, in concurrent requests";
        why + if self.fetches() { first } else { "" }
    }
}

impl Plan {
    /// Reason for the method used for elements of a list.
    fn why_points(&self) -> String {
        let write = self.means.direction == Direction::Write;
        let why = match self.choice.method {
            _ if self.choice.forced => format!("{}, as requested by a hint", self.choice.method.name()),
            Method::Mapped if write => {
                "mapped: elements are stored in the order of the file, without a request for each"
                    .into()
            }
            Method::Mapped => "mapped, because the elements are in the page cache".into(),
            Method::List => {
                "list, because the elements come from the disk: pages with elements, in concurrent requests"
                    .into()
            }
            method => format!("{}, because files may not be mapped", method.name()),
        };
        let first = "; pages that are not cached are read first, in concurrent requests";
        why + if self.fetches() { first } else { "" }
    }
}

/// The nest of a section of a strided layout, through the concatenation of its parts.
fn nest_of(request: &Request, layout: &Strided) -> Nest {
    let mut base = 0;
    let mut axes = Vec::with_capacity(layout.shape.len());
    let ranges = request.section.ranges().iter();
    for ((r, stride), user) in ranges.zip(&layout.strides).zip(request.user_stride) {
        base += r.start * stride;
        axes.push(Axis { count: r.count, file: r.step.saturating_mul(*stride), user: *user });
    }
    Nest::new(0, base, 0, layout.item, axes)
}

/// Checks the caller's strides.
///
/// There must be as many as axes, their reach must fit 63 bits, and a read must not store two
/// elements at one address.
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
    let count: Vec<i64> = ranges.iter().map(|r| r.count).collect();
    if request.direction == Direction::Read && !nests(item, &count, request.user_stride) {
        return Err(PlanError::BadLayout(format!(
            "elements of the caller's array overlap: shape {count:?}, strides {:?}, item {item}",
            request.user_stride
        )));
    }
    Ok(())
}
