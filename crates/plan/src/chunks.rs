//! Chunked layouts: the chunks that a section touches, and the rounds that read or write them.
//!
//! Problem: chunks are stored anywhere, may be missing, may be encoded, and an access may touch
//! very many. Approach: every chunk is planned independently, by arithmetic from its grid
//! coordinates; small chunks share a round. There are three kinds of chunks:
//!
//! | chunk                        | read                    | write                                 |
//! |------------------------------|-------------------------|---------------------------------------|
//! | encoded                      | whole, then a move      | read unless covered, move, whole      |
//! | missing                      | a move from the fill    | fill unless covered, move, whole      |
//! | stored as it is              | in place, like an array | in place                              |
//!
//! "Covered" means that the section has all elements of the chunk that are in the array. The part
//! of an edge chunk beyond the array is filled. Work and memory are proportional to the number of
//! chunks in the table, which callers limit with [`ChunkBatches`](crate::ChunkBatches).

use alloc::format;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use crate::address::{round_up, PAGE};
use crate::choose::{self, Choice};
use crate::cost::piece_cost;
use crate::emit::{add, copy, Means};
use crate::error::PlanError;
use crate::layout::{ChunkTable, Chunked, Stored};
use crate::method::{cut_nest, cut_past_whole, share};
use crate::nest::{Axis, Nest};
use crate::piece::{Piece, Way};
use crate::plan::{Channel, ChunkRead, ChunkWrite, Cost, Direction, Method, Move, Place, Round};
use crate::points::reach::{indexed, Reach, Spot};
use crate::points::{Addresses, Chosen, Points, Window};
use crate::request::Request;
use crate::section::Section;
use crate::terms::Terms;

mod weigh;

/// Alignment of data in a slot.
pub(crate) const SIDE: i64 = 64;
/// Minimum number of rounds per thread for chunks whose points are copied in place.
const TURNS: usize = 4;

/// The chunks of one access.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cells {
    layout: Chunked,
    terms: Terms,
    means: Means,
    method: Method,
    /// Chunks are written bypassing the page cache.
    pub past: bool,
    /// The chunks that the section touches along each axis.
    ///
    /// An indexed axis has one entry, which is replaced according to `chosen`.
    hits: Vec<Vec<Hit>>,
    /// Elements that are chosen one by one along some axes.
    chosen: Option<Picked>,
    /// Access to these elements in chunks that are stored without encoding, and its method.
    reach: Option<(Reach, Method)>,
    /// Bytes between the caller's elements, per axis.
    user: Vec<i64>,
    /// Table entry of every combination of hits, last axis fastest.
    stored: Vec<Option<Stored>>,
    groups: Vec<Group>,
    /// Bytes at the front of each slot for stored bytes and scratch.
    ///
    /// One chunk after another uses them.
    staging: i64,
    pub rounds: u64,
    pub slot: i64,
    pub lanes: i64,
    fetches: bool,
    writes_back: bool,
    /// Memory of codec contexts for each slot, in addition to the slot.
    pub contexts: i64,
    /// Reserved once, by the caller that receives encoded chunks.
    pub held: i64,
    /// True if encoded chunks are read.
    pub decodes: bool,
    /// Number of encoded chunks that are written.
    pub encodes: i64,
}

/// One chunk along one axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Hit {
    /// Grid coordinate.
    chunk: i64,
    /// First element of the section in the chunk, relative to the chunk.
    start: i64,
    /// The same element, relative to the section.
    first: i64,
    count: i64,
    step: i64,
    /// Number of elements of the chunk that are in the array.
    has: i64,
}

/// Points that are chosen along some axes, grouped into windows of chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Picked {
    points: Arc<Points>,
    windows: Range<usize>,
}

impl Picked {
    fn window(&self, number: usize) -> Window {
        self.points.windows()[self.windows.start + number]
    }
}

/// Neighbouring cells that share a round, or one cell with several rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Group {
    cell: usize,
    cells: usize,
    first: u64,
}

/// Work for one cell.
enum Task {
    /// Access in place, in the file.
    Stored(Piece),
    /// Read of a missing chunk.
    Fill(Nest),
    /// Access in place, in the file, to elements that are chosen one by one.
    Listed(Listed),
    /// Access through a decoded copy of the whole chunk.
    Whole(Whole),
}

struct Listed {
    /// The loops of the block of each point.
    cell: Nest,
    window: Window,
    stored: Stored,
    /// Bytes of slot.
    slot: i64,
}

struct Whole {
    chunk: Vec<i64>,
    /// The section's part of the chunk, or the block of each of its points.
    nest: Nest,
    window: Option<Window>,
    /// Stored chunk to read first.
    old: Option<Stored>,
    /// True if the chunk is filled first.
    fill: bool,
    /// True if the section has only a part of the chunk.
    partly: bool,
    len: i64,
}

impl Task {
    /// Bytes of slot, excluding the shared staging area.
    fn slot(&self) -> i64 {
        match self {
            Task::Stored(piece) => piece.slot,
            Task::Fill(_) => 0,
            Task::Listed(listed) => listed.slot,
            Task::Whole(whole) => round_up(whole.len, SIDE),
        }
    }

    fn rounds(&self) -> u64 {
        match self {
            Task::Stored(piece) => piece.rounds(),
            _ => 1,
        }
    }

    /// Alignment of the task's data in a slot.
    fn align(&self, block: i64) -> i64 {
        match self {
            Task::Stored(Piece { way: Way::Gather(how), .. }) if how.channel == Channel::Direct => {
                block
            }
            Task::Listed(_) => block.max(PAGE),
            _ => SIDE,
        }
    }
}

fn hits(
    layout: &Chunked,
    section: &Section,
    chosen: Option<&Chosen>,
    table: &ChunkTable,
) -> Result<Vec<Vec<Hit>>, PlanError> {
    let touched = layout.touched(section)?;
    let listed = |d: &usize| chosen.is_some_and(|chosen| chosen.points.grid().axes().contains(d));
    let lacks = |d: usize| {
        !listed(&d) && touched.lo[d] < table.lo[d]
            || !listed(&d)
                && touched.lo[d] + touched.count[d] > table.lo[d].saturating_add(table.count[d])
    };
    if table.lo.len() != touched.lo.len() || (0..touched.lo.len()).any(lacks) {
        return Err(PlanError::BadLayout(format!(
            "the section touches chunks {:?} + {:?}, the table has {:?} + {:?}",
            touched.lo, touched.count, table.lo, table.count
        )));
    }
    let along = |(d, r): (usize, &crate::section::Range)| {
        let n = layout.chunk[d];
        (touched.lo[d]..touched.lo[d] + touched.count[d])
            .filter_map(|chunk| {
                let low = chunk * n;
                let has = n.min(layout.shape[d] - low);
                let (first, count) = r.members(low, low + has);
                let part = r.part(first, count);
                let start = part.start - low;
                (count > 0).then_some(Hit { chunk, start, first, count, step: part.step, has })
            })
            .collect()
    };
    Ok(section.ranges().iter().enumerate().map(along).collect())
}

impl Cells {
    /// Plans all cells. The section is not empty and lies within the array.
    pub fn new(
        request: &Request,
        chosen: Option<&Chosen>,
        layout: &Chunked,
        means: Means,
        terms: &Terms,
    ) -> Result<(Cells, Choice), PlanError> {
        let Some(table) = request.table else {
            return Err(PlanError::BadLayout("a chunked layout needs its chunk table".into()));
        };
        table.validate()?;
        let mut cells = Cells {
            layout: layout.clone(),
            terms: terms.clone(),
            means,
            method: Method::Chunks,
            past: false,
            hits: hits(layout, request.section, chosen, table)?,
            chosen: chosen.map(|chosen| Picked {
                points: Arc::clone(chosen.points),
                windows: chosen.windows.clone(),
            }),
            reach: None,
            user: request.user_stride.to_vec(),
            stored: Vec::new(),
            groups: Vec::new(),
            staging: 0,
            rounds: 0,
            slot: 0,
            lanes: terms.lanes,
            fetches: false,
            writes_back: false,
            contexts: 0,
            held: 0,
            decodes: false,
            encodes: 0,
        };
        let number: usize = cells.hits.iter().map(Vec::len).product();
        let number = number * cells.chosen.as_ref().map_or(1, |picked| picked.windows.len());
        cells.stored.reserve_exact(number);
        for k in 0..number {
            let chunk: Vec<i64> = cells.cell(k).iter().map(|h| h.chunk).collect();
            cells.stored.push(table.entry(&chunk)?);
        }
        let mut reach = None;
        let in_place = !layout.encoded && terms.method != Some(Method::Chunks);
        if let (Some(picked), true) = (&cells.chosen, in_place) {
            let cell: Vec<Hit> =
                cells.hits.iter().filter_map(|along| along.first()).copied().collect();
            reach = Some(Reach::choose(&picked.points, &cells.nest(&cell, 0, 0), means, terms)?);
        }
        cells.reach = reach;
        let by_calls = cells.prefers_calls(number, reach);
        if by_calls {
            cells.reach = reach.map(|(reach, _)| reach.by_calls(terms));
        }
        let choice = if cells.chosen.is_none() && cells.pass_the_cache() {
            Choice { past: true, ..Choice::only(Method::List, false) }
        } else {
            // A window that is written back dirties pages that the next tile dirties again.
            cells.terms.exclusive &= !terms.scarce;
            cells.choose()?
        };
        cells.method = choice.method;
        if layout.encoded {
            cells.coding(number)?;
        }
        match (cells.group(number), &mut cells.reach) {
            (Err(PlanError::BudgetTooSmall { .. }), Some((reach, _))) if reach.fetches => {
                // Pages that are not read in advance are read by the kernel.
                reach.fetches = false;
                cells.regroup(number)?;
            }
            (Err(PlanError::BudgetTooSmall { .. }), _) if by_calls => {
                cells.reach = reach;
                cells.regroup(number)?;
                let choice = cells.choose()?;
                cells.method = choice.method;
                return Ok((cells, choice));
            }
            (done, _) => done?,
        }
        Ok((cells, choice))
    }

    /// Returns whether pages are read in advance so that a write finds them in the page cache.
    pub fn fetches(&self) -> bool {
        self.fetches
    }

    /// Returns whether a chunk is read, changed and written back.
    pub fn writes_back(&self) -> bool {
        self.writes_back && self.means.direction == Direction::Write
    }

    /// The hits of cell `k`; along indexed axes, a hit of one element.
    fn cell(&self, mut k: usize) -> Vec<Hit> {
        let mut cell: Vec<Hit> = Vec::with_capacity(self.hits.len());
        for along in self.hits.iter().rev() {
            cell.push(along[k % along.len()]);
            k /= along.len();
        }
        cell.reverse();
        if let Some(picked) = &self.chosen {
            let grid = picked.points.grid();
            let along = grid.coordinates(picked.points.cell(&picked.window(k)));
            for (axis, chunk) in grid.axes().iter().zip(along) {
                let n = self.layout.chunk[*axis];
                let has = n.min(self.layout.shape[*axis] - chunk * n);
                cell[*axis] = Hit { chunk, start: 0, first: 0, count: 1, step: 1, has };
            }
        }
        cell
    }

    /// The points of cell `k`, if elements are chosen one by one.
    fn window(&self, k: usize) -> Option<Window> {
        let each: usize = self.hits.iter().map(Vec::len).product();
        self.chosen.as_ref().map(|picked| picked.window(k / each.max(1)))
    }

    /// Chooses the method for chunks that are accessed in place, from the cell with most elements.
    fn choose(&self) -> Result<Choice, PlanError> {
        let terms = &self.terms;
        match (terms.method, self.layout.encoded) {
            (None | Some(Method::Chunks), true) => {
                Ok(Choice::only(Method::Chunks, terms.method.is_some()))
            }
            (Some(method), true) => Err(PlanError::Impossible {
                method: method.name(),
                why: "the chunks are encoded and can only be accessed as a whole",
            }),
            (Some(Method::Mapped), false) if !terms.mapping => {
                Err(PlanError::Impossible { method: "mapped", why: "files may not be mapped" })
            }
            (Some(method), false) => Ok(Choice::only(method, true)),
            (None, false) if self.reach.is_some_and(|(_, method)| method != Method::Chunks) => {
                Ok(Choice::only(self.reach.map_or(Method::List, |(_, method)| method), false))
            }
            (None, false) => {
                let most = |along: &Vec<Hit>| along.iter().copied().max_by_key(|h| h.count);
                let cell: Vec<Hit> = self.hits.iter().filter_map(most).collect();
                Ok(choose::choose(&self.nest(&cell, 0, 0), self.means, terms))
            }
        }
    }

    /// Decides whether the chunks are written bypassing the page cache, for lack of space in it.
    ///
    /// This requires that all chunks exist and only whole blocks of each are written. Nothing then
    /// goes through the page cache, so no order between cached and direct writes is needed.
    fn pass_the_cache(&mut self) -> bool {
        if !self.terms.scarce || self.layout.encoded {
            return false;
        }
        self.past = true;
        let passes = |k| match (self.stored[k], self.task(k)) {
            (Some(_), Ok(Task::Stored(Piece { way: Way::Gather(how), .. }))) => {
                how.channel == Channel::Direct
            }
            _ => false,
        };
        self.past = (0..self.stored.len()).all(passes);
        self.past
    }

    /// The loops over one chunk that begins at byte `base` of a file.
    fn nest(&self, cell: &[Hit], file: u32, mut base: i64) -> Nest {
        let mut user = 0;
        let mut axes = Vec::with_capacity(cell.len());
        for ((h, stride), us) in cell.iter().zip(&self.layout.strides).zip(&self.user) {
            base += h.start * stride;
            user += h.first * us;
            axes.push(Axis { count: h.count, file: h.step * stride, user: *us });
        }
        Nest::new(file, base, user, self.layout.item, axes)
    }

    fn task(&self, k: usize) -> Result<Task, PlanError> {
        let cell = self.cell(k);
        let len = self.layout.chunk_bytes();
        let stored = self.stored[k];
        let in_place = !self.layout.encoded && (self.past || self.method != Method::Chunks);
        match (stored, self.means.direction) {
            (None, Direction::Read) => return Ok(Task::Fill(self.nest(&cell, 0, 0))),
            (Some(s), _) if !self.layout.encoded && s.len < len => {
                return Err(PlanError::BadLayout(format!(
                    "a chunk of {len} bytes has {} bytes stored at byte {}",
                    s.len, s.offset
                )));
            }
            (Some(stored), _) if in_place && self.reach.is_some() => {
                return Ok(Task::Listed(self.in_place(k, &cell, stored)?));
            }
            (Some(s), _) if in_place => {
                let nest = self.nest(&cell, s.file, s.offset);
                if self.past {
                    let piece = cut_past_whole(nest, self.means, &self.terms);
                    let refused = PlanError::Impossible { method: "list", why: "blocks are cut" };
                    return Ok(Task::Stored(piece.ok_or(refused)?));
                }
                return Ok(Task::Stored(cut_nest(nest, self.method, self.means, &self.terms)?));
            }
            _ => {}
        }
        let write = self.means.direction == Direction::Write;
        let window = self.window(k);
        let partly = match (window, &self.chosen) {
            (Some(window), Some(picked)) => {
                let axes = picked.points.grid().axes();
                let listed = axes.iter().map(|axis| cell[*axis].has).product::<i64>();
                let rest = cell.iter().enumerate().filter(|(d, _)| !axes.contains(d));
                let mut rest = rest.map(|(_, h)| h);
                window.distinct as i64 != listed || rest.any(|h| h.count < h.has)
            }
            _ => cell.iter().any(|h| h.count < h.has),
        };
        let covered = write && !partly;
        let edge = cell.iter().zip(&self.layout.chunk).any(|(h, n)| h.has < *n);
        let old = stored.filter(|_| !covered);
        Ok(Task::Whole(Whole {
            chunk: cell.iter().map(|h| h.chunk).collect(),
            nest: self.nest(&cell, 0, 0),
            window,
            old,
            fill: write && old.is_none() && (edge || !covered),
            partly,
            len,
        }))
    }

    /// Computes the memory of encoded chunks: staging, contexts, rounds in flight.
    ///
    /// Chunks of a round are decoded one after another, and encoded one after another, so they
    /// share one part of the slot for stored bytes and scratch.
    fn coding(&mut self, number: usize) -> Result<(), PlanError> {
        let (coding, budget) = (self.terms.coding, self.terms.budget);
        let write = self.means.direction == Direction::Write;
        let mut chunks = 0;
        for k in 0..number {
            let Task::Whole(whole) = self.task(k)? else { continue };
            chunks += 1;
            if let Some(old) = whole.old {
                self.decodes = true;
                let staged = round_up(old.len, SIDE).saturating_add(coding.decode_scratch);
                self.staging = self.staging.max(staged);
            }
        }
        let mut spare = 0;
        if write && chunks > 0 {
            self.encodes = chunks;
            self.staging = self.staging.max(self.encoder_scratch());
            self.held = coding.held;
            spare = coding.spare.min((chunks - 1).saturating_mul(self.layout.encoded_bound));
        }
        self.staging = round_up(self.staging, SIDE);
        self.contexts = coding.contexts(self.decodes, write && chunks > 0);
        if chunks == 0 {
            return Ok(());
        }
        let slot = self.staging.saturating_add(round_up(self.layout.chunk_bytes(), SIDE));
        let lane = slot.saturating_add(self.contexts);
        let needed = lane.saturating_add(self.held);
        if needed > budget {
            let what = "a chunk with its encoded form";
            return Err(PlanError::BudgetTooSmall { what, needed, budget });
        }
        self.lanes = self.lanes.min((budget - self.held) / lane);
        // Larger slots, and more memory held for encoded chunks, use only the remaining budget.
        let left = budget - self.held - lane * self.lanes;
        self.held += spare.min(left / 2);
        Ok(())
    }

    /// Scratch bytes of an encoder.
    fn encoder_scratch(&self) -> i64 {
        self.terms.coding.encode_scratch.max(self.layout.encoded_bound)
    }

    /// Assigns cells to rounds again, with changed tasks.
    fn regroup(&mut self, number: usize) -> Result<(), PlanError> {
        self.groups.clear();
        (self.rounds, self.slot, self.lanes) = (0, 0, self.terms.lanes);
        (self.fetches, self.writes_back) = (false, false);
        self.group(number)
    }

    /// Assigns cells to rounds.
    fn group(&mut self, number: usize) -> Result<(), PlanError> {
        let useful = share(self.means.total, &self.terms);
        // Coding is slow. Rounds are therefore smaller than for copies, so that every thread gets
        // some, all threads end at about the same time, and decoded data is still in the
        // processor's cache when it is moved.
        let (most, least) = match self.layout.encoded {
            true => (self.terms.share / 2, self.terms.share / 8),
            false => (self.terms.share.saturating_mul(2), self.terms.share / 4),
        };
        let decoded = self.layout.chunk_bytes().saturating_mul(number as i64);
        let desired = (decoded / (2 * self.terms.lanes)).clamp(least, most);
        // Opening files and creating mappings takes longer than copying a few elements.
        let lanes = usize::try_from(self.terms.threads).unwrap_or(1).max(1);
        let turns = match self.reach {
            Some(_) => number.div_ceil(TURNS * lanes),
            None => usize::MAX,
        };
        let mut open: Option<(i64, i64)> = None; // slot and user bytes of the last group
        for k in 0..number {
            let task = self.task(k)?;
            match &task {
                Task::Stored(piece) => {
                    self.fetches |= piece.fetch.is_some();
                    self.writes_back |= piece.patches();
                }
                Task::Whole(whole) => self.writes_back |= whole.old.is_some(),
                Task::Listed(_) => self.fetches |= self.reach.is_some_and(|(r, _)| r.fetches),
                Task::Fill(_) => {}
            }
            // Any access that needs a slot also needs the staging area in front of it.
            let need = match task.slot() {
                0 => 0,
                need => self.staging.saturating_add(need),
            };
            if need > self.terms.budget {
                return Err(PlanError::BudgetTooSmall {
                    what: "a chunk that is processed as a whole",
                    needed: self.largest(number)?,
                    budget: self.terms.budget,
                });
            }
            if need > 0 && !self.layout.encoded {
                self.lanes = self.lanes.min(self.terms.budget / need);
            }
            if let Task::Stored(piece) = &task {
                self.lanes = self.lanes.min(piece.lanes);
            }
            let room = (self.terms.budget - self.held) / self.lanes - self.contexts;
            let target = desired.saturating_add(self.staging).min(room / SIDE * SIDE);
            let rounds = task.rounds();
            let bytes = self.bytes(k);
            if let (Some((slot, user)), Some(group)) = (&mut open, self.groups.last_mut()) {
                let begin = round_up(*slot, task.align(self.means.block));
                let end = match task.slot() {
                    0 => *slot,
                    more => begin.max(self.staging).saturating_add(more),
                };
                let room = group.cells < turns;
                if rounds == 1 && room && end <= target && *user + bytes <= useful {
                    (*slot, *user) = (end, *user + bytes);
                    group.cells += 1;
                    self.slot = self.slot.max(end);
                    continue;
                }
            }
            open = (rounds == 1).then_some((need, bytes));
            self.groups.push(Group { cell: k, cells: 1, first: self.rounds });
            self.slot = self.slot.max(need);
            self.rounds = self.rounds.checked_add(rounds).ok_or(PlanError::TooLarge("the plan"))?;
        }
        Ok(())
    }

    /// Bytes requested in cell `k`.
    fn bytes(&self, k: usize) -> i64 {
        let points = self.window(k).map_or(1, |window| window.points) as i64;
        points * self.cell(k).iter().map(|h| h.count).product::<i64>() * self.layout.item
    }

    fn largest(&self, number: usize) -> Result<i64, PlanError> {
        (0..number).try_fold(0, |most, k| Ok(most.max(self.task(k)?.slot())))
    }

    /// Round `k`.
    pub fn round(&self, k: u64) -> Result<Round, PlanError> {
        let mut round = Round::default();
        let g = self.groups.partition_point(|g| g.first <= k);
        let Some(group) = g.checked_sub(1).and_then(|g| self.groups.get(g)) else {
            return Ok(round);
        };
        for cell in group.cell..group.cell + group.cells {
            let task = self.task(cell)?;
            let mut at = round_up(round.slot_bytes, task.align(self.means.block));
            let used = match task {
                Task::Fill(nest) => {
                    match self.window(cell) {
                        Some(window) => {
                            let axes = nest.axes.iter().map(|a| Axis { file: 0, ..*a }).collect();
                            let cell = Nest { base: 0, axes, ..nest };
                            self.listed(&cell, window, (Place::Fill, 0), &mut round);
                        }
                        None => round.moves.push(fill(&nest)),
                    }
                    0
                }
                Task::Listed(listed) => match (self.spot(&listed), self.reach) {
                    (Some(spot), Some((reach, _))) => {
                        let points = listed.window.first..listed.window.end;
                        reach.emit(&spot, points, self.means, at, &mut round) - at
                    }
                    _ => 0,
                },
                Task::Stored(piece) => piece.emit(k - group.first, self.means, at, &mut round),
                Task::Whole(whole) => {
                    at = at.max(self.staging);
                    let used = round_up(whole.len, SIDE);
                    self.whole(whole, at, &mut round);
                    used
                }
            };
            if used > 0 {
                round.slot_bytes = at + used;
            }
        }
        Ok(round)
    }

    /// Adds the steps for a chunk that goes through the slot as a whole, at address `at`.
    fn whole(&self, whole: Whole, at: i64, round: &mut Round) {
        let (len, item) = (whole.len, self.layout.item);
        // Chunks that are not encoded need no second place.
        let staged_at = if self.layout.encoded { 0 } else { at };
        if let Some(stored) = whole.old {
            let chunk = whole.chunk.clone();
            let stored = self.exact(stored);
            let (scratch_at, scratch) = match self.layout.encoded {
                true => (round_up(stored.len, SIDE), self.terms.coding.decode_scratch),
                false => (at, 0),
            };
            let partly = whole.partly;
            let read = ChunkRead { chunk, stored, staged_at, scratch_at, scratch, at, len, partly };
            round.chunk_reads.push(read);
        }
        if whole.fill {
            round.moves.push(Move {
                src: Place::Fill,
                src_at: 0,
                src_stride: vec![0],
                dst: Place::Slot,
                dst_at: at,
                dst_stride: vec![item],
                count: vec![len / item],
                item,
            });
        }
        let first = at + whole.nest.base;
        match whole.window {
            Some(window) => self.listed(&whole.nest, window, (Place::Slot, at), round),
            None => {
                let stride: Vec<i64> = whole.nest.axes.iter().map(|a| a.file).collect();
                let one = copy(&whole.nest, Place::Slot, first, &stride, self.means.direction);
                round.moves.push(one);
            }
        }
        if self.means.direction == Direction::Write {
            let (scratch, bound) = match self.layout.encoded {
                true => (self.encoder_scratch(), self.layout.encoded_bound),
                false => (len, len),
            };
            let chunk = whole.chunk;
            round.chunk_writes.push(ChunkWrite { chunk, at, len, staged_at, scratch, bound });
        }
    }

    /// The points of cell `k`, in place.
    fn in_place(&self, k: usize, cell: &[Hit], stored: Stored) -> Result<Listed, PlanError> {
        let Some(window) = self.window(k) else {
            return Err(PlanError::BadLayout("a chunk without points".into()));
        };
        let mut listed = Listed { cell: self.nest(cell, 0, 0), window, stored, slot: 0 };
        if let (Some(spot), Some((reach, _))) = (self.spot(&listed), self.reach) {
            listed.slot = reach.used(&spot, window.first..window.end, 0);
        }
        Ok(listed)
    }

    fn spot<'a>(&'a self, listed: &'a Listed) -> Option<Spot<'a>> {
        let Stored { file, offset, .. } = listed.stored;
        Some(Spot {
            points: &self.chosen.as_ref()?.points,
            cell: &listed.cell,
            file,
            base: offset,
            inside: true,
            end: offset + self.layout.chunk_bytes(),
        })
    }

    /// Adds the move of the points of a window between the caller's array and a chunk.
    ///
    /// `there` is the place and address of the chunk.
    fn listed(&self, nest: &Nest, window: Window, there: (Place, i64), round: &mut Round) {
        let Some(picked) = &self.chosen else { return };
        let (place, at) = there;
        let range = window.first..window.end;
        let (user, counts) =
            (picked.points.user(range.clone()), picked.points.counts(range.clone()));
        if let (Place::Fill, Some(counts)) = (place, counts.list()) {
            // One element, copied to each element of a run.
            let first = |k: usize| nest.user + user.of(k);
            let runs = counts.iter().enumerate();
            round.moves.extend(runs.map(|(k, n)| self.filled(first(k), i64::from(*n))));
            return;
        }
        let addresses = match place {
            Place::Fill => Addresses::Row { first: 0, stride: 0 },
            _ => Addresses::List(range.clone().map(|k| picked.points.inside(k)).collect()),
        };
        let (direction, there) = (self.means.direction, (place, at, addresses));
        round.indexed.push(indexed(nest, there, user, counts, range.len(), direction));
    }

    /// The move of the fill value to `count` consecutive elements of the caller's array.
    fn filled(&self, at: i64, count: i64) -> Move {
        let item = self.layout.item;
        Move {
            src: Place::Fill,
            src_at: 0,
            src_stride: vec![0],
            dst: Place::User,
            dst_at: at,
            dst_stride: vec![item],
            count: vec![count],
            item,
        }
    }

    /// The entry without the spare bytes that chunks stored without encoding may have at their end.
    fn exact(&self, stored: Stored) -> Stored {
        let len = if self.layout.encoded { stored.len } else { self.layout.chunk_bytes() };
        Stored { len, ..stored }
    }

    /// Adds the cost of all rounds.
    ///
    /// Encoded chunks that are written count as their bound, because their length is not known in
    /// advance.
    pub fn cost(&self, cost: &mut Cost) {
        // `group` has already created every task once, so none fails here.
        for task in (0..self.stored.len()).filter_map(|k| self.task(k).ok()) {
            match task {
                Task::Fill(_) => {}
                Task::Stored(piece) => piece_cost(&piece, self.means, cost),
                Task::Listed(listed) => {
                    if let (Some(spot), Some((reach, _))) = (self.spot(&listed), self.reach) {
                        let points = listed.window.first..listed.window.end;
                        reach.cost(&spot, points, self.means, cost);
                    }
                }
                Task::Whole(whole) => {
                    if let Some(old) = whole.old {
                        cost.reads += 1;
                        cost.read_bytes = add(cost.read_bytes, 1, self.exact(old).len);
                        cost.decodes += i64::from(self.layout.encoded);
                    }
                    if self.means.direction == Direction::Write {
                        let encoded = self.layout.encoded;
                        let bytes = if encoded { self.layout.encoded_bound } else { whole.len };
                        cost.writes += 1;
                        cost.written_bytes = add(cost.written_bytes, 1, bytes);
                        cost.encodes += i64::from(encoded);
                    }
                }
            }
        }
    }
}

/// The move of the fill value into the caller's array.
fn fill(nest: &Nest) -> Move {
    let mut m = copy(nest, Place::Fill, 0, &vec![0; nest.axes.len()], Direction::Read);
    m.src_stride.fill(0);
    m
}
