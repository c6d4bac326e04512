//! The plan of a collective: owners, rounds and tiles, and the parts of a tile that each rank has.
//!
//! The plan is made from the accesses of all ranks. It then computes by arithmetic: tile `n` of an
//! owner, the batch of a round, the pieces of a tile. `holes` decides how tiles are read and
//! written, `messages` who exchanges what.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use super::access::{Access, ArrayDescriptor};
use super::batches::Batches;
use super::block_cyclic::BlockCyclic;
use super::choice::Exchanged;
use super::domains::{self, Cut, Share};
use super::overlap::{leave_out, overlap, Left, Overlap};
use super::owners::Owners;
use super::parts::{Part, Span};
use super::records::{Records, Wanted};
use super::regions::{self, hull, Region};
use super::settings;
use super::tiles::Tiling;
use crate::address::PAGE;
use crate::error::PlanError;
use crate::section::Section;

/// Bytes of a cache line; a copy of one element moves a line.
const LINE: i64 = 64;
/// Minimum slot size for which an additional page is negligible.
const LEADS: i64 = 16 * PAGE;

/// One array of a collective, and all accesses to it.
#[derive(Debug, Clone)]
pub struct Job {
    /// The array.
    pub descriptor: ArrayDescriptor,
    /// The accesses of all ranks, in the order of ranks.
    pub accesses: Vec<Access>,
    /// The shares of ranks in the array.
    pub shares: Vec<Share>,
}

/// Parameters that the ranks have agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Agreed {
    /// Number of ranks.
    pub ranks: u32,
    /// Bytes of a slot.
    pub slot: i64,
    /// Reading a gap below this many bytes is cheaper than a request.
    pub gap: i64,
    /// Domains begin at multiples of this number of bytes, or at the first row after one.
    ///
    /// Multiples are counted from the beginning of the file. Borders are not moved if an owner
    /// would get nothing.
    pub align: i64,
    /// Minimum size of a tile, if the array has that many bytes.
    pub least: i64,
    /// Measure for cutting domains.
    pub cut: Cut,
    /// True if the accesses write; the last access to an element then counts.
    pub write: bool,
}

/// A tile: elements that an owner has in its slot in one round, alone or with other tiles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tile {
    /// Number of the array.
    pub array: u32,
    /// Number of its region.
    pub region: u32,
    /// The elements, packed in the slot in the order of the file.
    pub section: Section,
}

/// A part of a tile that an access reads or writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Number of the access in its array's list.
    pub access: u32,
    /// The elements.
    pub section: Section,
}

/// Elements that several writing accesses share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shared {
    /// None, or the accesses skip the elements that later ones write.
    Nothing,
    /// Some, so the order of the accesses matters.
    InOrder,
    /// Not known, so the order matters, too.
    Unknown,
}

/// The plan of a collective: owners, rounds and tiles.
#[derive(Debug, Clone)]
pub struct Collective {
    pub(super) jobs: Vec<Planned>,
    /// The batches of each rank.
    owned: Vec<Batches>,
    rounds: i64,
    slot: i64,
    leads: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Planned {
    job: Job,
    /// Remainders of the accesses if they skip elements that later ones write.
    ///
    /// Each remainder has the number of its access.
    ///
    /// They replace the accesses below.
    left: Option<(Vec<Access>, Vec<u32>)>,
    shared: Shared,
    regions: Vec<Region>,
    pub(super) tilings: Vec<Tiling>,
    /// Present if tiles are assigned one by one.
    pub(super) cyclic: Option<BlockCyclic>,
    /// Rank and number of each access (or remainder), sorted by rank.
    by_rank: Vec<(u32, u32)>,
}

/// Number of elements of all pieces; elements in several pieces are counted several times.
pub fn useful(table: &[Piece]) -> i64 {
    let count = |piece: &Piece| piece.section.count().unwrap_or(i64::MAX);
    table.iter().map(count).fold(0, i64::saturating_add)
}

impl Collective {
    /// Makes a plan; a pure function.
    ///
    /// # Errors
    /// Fails for a section outside its array; shares of unknown ranks, or no shares; and a slot
    /// that is too small for a block of an encoded array (`needed` is a sufficient size).
    pub fn new(jobs: Vec<Job>, agreed: &Agreed) -> Result<Collective, PlanError> {
        let mut owned: Vec<Vec<Part>> = vec![Vec::new(); agreed.ranks as usize];
        let mut planned = Vec::with_capacity(jobs.len());
        let mut slot = 0;
        for (number, job) in jobs.into_iter().enumerate() {
            check(&job, agreed)?;
            let mut regions = regions::regions(&job.descriptor, &job.accesses, agreed.gap);
            let all = Left::All;
            let parts = if agreed.write {
                leave_out(&job.descriptor, &job.accesses, &regions)
            } else {
                all
            };
            let shared = match parts {
                Left::Entangled => Shared::InOrder,
                Left::Unknown => Shared::Unknown,
                Left::All | Left::Parts(_) => Shared::Nothing,
            };
            let left = match parts {
                Left::Parts(parts) => Some(of_ranks(&job.accesses, parts)),
                Left::All | Left::Entangled | Left::Unknown => None,
            };
            let accesses = left.as_ref().map_or(&job.accesses, |(accesses, _)| accesses);
            if left.is_some() {
                regions = regions::regions(&job.descriptor, accesses, agreed.gap);
            }
            let bytes = |r: &Region| {
                let ranges = r.section.ranges().iter();
                ranges.fold(i128::from(job.descriptor.item), |n, r| n * i128::from(r.count))
            };
            let all: i128 = regions.iter().map(bytes).sum();
            // Tiles are small enough that each owner gets one, but a little larger than its part:
            // domains consist of whole units, and a remainder would need a separate round.
            let even = all / (job.shares.len() as i128) + 1;
            let even = even + even / 32 + i128::from(agreed.align.max(0));
            let most = agreed.slot.max(1);
            // A slot may be smaller than the least tile if memory is short.
            let wanted = even.clamp(i128::from(agreed.least.clamp(1, most)), i128::from(most));
            let room = agreed.slot - lead_room(&job.descriptor, agreed);
            let tilings = regions
                .iter()
                .map(|r| Tiling::new(&job.descriptor, r, wanted as i64, room, agreed.align))
                .collect::<Result<Vec<_>, _>>()?;
            let cyclic =
                (agreed.cut == Cut::Cyclic).then(|| BlockCyclic::new(&tilings, job.shares.len()));
            let parts = match &cyclic {
                Some(cyclic) => cyclic.parts(number as u32, &tilings, &job.shares),
                None => domains::cut(
                    number as u32,
                    &job.descriptor,
                    accesses,
                    &regions,
                    &tilings,
                    &job.shares,
                    (agreed.cut, agreed.align, agreed.gap),
                ),
            };
            // Every region has an owner.
            let longest = tilings.iter().map(Tiling::tile_bytes).max();
            slot = slot.max(longest.map_or(0, |tile| tile + lead_room(&job.descriptor, agreed)));
            for (rank, part) in parts {
                owned[rank as usize].push(part);
            }
            let mut by_rank: Vec<(u32, u32)> =
                accesses.iter().enumerate().map(|(k, a)| (a.rank, k as u32)).collect();
            by_rank.sort_unstable();
            planned.push(Planned { job, left, shared, regions, tilings, cyclic, by_rank });
        }
        let size = |part: &Part| {
            let array = match part {
                Part::Span(span) => span.array,
                Part::CyclicPart(cyclic_part) => cyclic_part.array,
            };
            let planned = &planned[array as usize];
            let (tiles, bytes) = planned.size(part);
            (tiles, bytes + lead_room(&planned.job.descriptor, agreed))
        };
        let packed = |parts| Batches::new(parts, size, agreed.least, slot.max(agreed.slot));
        let owned: Vec<Batches> = owned.into_iter().map(packed).collect();
        let rounds = owned.iter().map(Batches::rounds).max().unwrap_or(0);
        let slot = owned.iter().map(Batches::bytes).max().unwrap_or(0).max(slot);
        let leads = leads(agreed);
        Ok(Collective { jobs: planned, owned, rounds, slot, leads })
    }

    /// Makes a plan from the records of all ranks: a pure function.
    ///
    /// Slots are as large as the memory of all ranks allows, at most `slot`, but they hold at least
    /// one block; [`Records::lacking`] determines whether the memory is sufficient for this. Tiles
    /// have at least `least` bytes, if the array has that many.
    pub fn of_records(
        records: &Records,
        wanted: &[Wanted],
        (slot, least): (i64, i64),
        write: bool,
    ) -> Result<Collective, PlanError> {
        let owners = Owners::new(records, wanted, write);
        let given = owners.assigned(records, wanted, records.solver())?;
        let jobs = wanted.iter().enumerate().map(|(number, one)| Job {
            descriptor: one.descriptor.clone(),
            accesses: one.accesses.clone(),
            shares: owners.shares(given.as_ref(), number),
        });
        let jobs: Vec<Job> = jobs.collect();
        let offered = records.offered();
        let block = wanted.iter().map(Wanted::block).max().unwrap_or(0);
        let mut agreed = Agreed {
            ranks: u32::try_from(records.ranks()).map_err(|_| PlanError::TooLarge("the ranks"))?,
            slot: slot.max(block).min(offered),
            gap: records.gap(),
            align: records.stripe(),
            least,
            cut: records.cut(),
            write,
        };
        loop {
            match Collective::new(jobs.clone(), &agreed) {
                // The block of another array may be larger, or may need a little more than its
                // bytes.
                Err(PlanError::BudgetTooSmall { needed, .. }) => {
                    let more = agreed.slot.saturating_add(PAGE);
                    agreed.slot = if needed > agreed.slot { needed } else { more };
                }
                planned => return planned,
            }
        }
    }

    /// Bytes of the accesses of all ranks, without elements that later ones write.
    pub fn given_bytes(&self) -> i64 {
        let of_array = |array: u32| {
            let item = self.job(array).map_or(0, |job| job.descriptor.item);
            let counts = self.accesses(array).iter().map(|a| a.section.count().unwrap_or(i64::MAX));
            counts.fold(0, |sum: i64, n| sum.saturating_add(n.saturating_mul(item)))
        };
        (0..self.arrays() as u32).map(of_array).fold(0, i64::saturating_add)
    }

    /// Bytes of the cache lines of slots that all ranks access.
    ///
    /// Each line counts as often as a rank copies from it. For elements far apart, this is many
    /// times their bytes.
    pub fn touched_bytes(&self) -> i64 {
        let mut touched = 0_i64;
        for planned in &self.jobs {
            let descriptor = &planned.job.descriptor;
            let Some(&inner) = descriptor.order.last() else { continue };
            for region in &planned.regions {
                let lattice = region.section.ranges()[inner].step.max(1);
                for member in &region.members {
                    let section = &planned.accesses()[*member as usize].section;
                    let range = &section.ranges()[inner];
                    let elements = section.count().unwrap_or(i64::MAX);
                    let apart = descriptor.item.saturating_mul(range.step / lattice);
                    // At most a line for each element, and at least a line for each row.
                    let each = apart.clamp(descriptor.item, descriptor.item.max(LINE));
                    let rows = elements.checked_div(range.count).unwrap_or(0);
                    let row = range.count.saturating_mul(each).max(LINE);
                    touched = touched.saturating_add(rows.saturating_mul(row));
                }
            }
        }
        touched
    }

    /// Estimated bytes that go between nodes, assuming that all owners have equal parts.
    ///
    /// An exact count would require each rank to walk over all rounds.
    fn between_nodes(&self, nodes: &[i64]) -> i64 {
        let mut ranks_of: BTreeMap<i64, i128> = BTreeMap::new();
        for node in nodes {
            *ranks_of.entry(*node).or_default() += 1;
        }
        let (mut owners, mut near) = (0_i128, 0_i128);
        for owner in self.owners() {
            owners += 1;
            near +=
                nodes.get(owner as usize).and_then(|node| ranks_of.get(node)).copied().unwrap_or(0);
        }
        if owners == 0 || ranks_of.len() < 2 {
            return 0;
        }
        let given = self.given_bytes();
        let near = i128::from(given) * near / (owners * nodes.len() as i128);
        given - i64::try_from(near).unwrap_or(given)
    }

    /// Data that two-phase moves between ranks on these nodes.
    pub fn exchanged(&self, nodes: &[i64]) -> Exchanged {
        Exchanged {
            given: self.given_bytes(),
            touched: self.touched_bytes(),
            far: self.between_nodes(nodes),
            rounds: self.rounds(),
            encoded: self.jobs.iter().any(|planned| planned.job.descriptor.encoded),
            shared_blocks: self.shared_blocks(),
        }
    }

    /// Number of slots of each rank, if two may have `offered` bytes each.
    pub fn slots(&self, offered: i64) -> i64 {
        settings::slots(self.slot, offered)
    }

    /// Number of rounds: the maximum number of batches of a rank.
    pub fn rounds(&self) -> i64 {
        self.rounds
    }

    /// Bytes of the largest batch.
    pub fn slot_bytes(&self) -> i64 {
        self.slot
    }

    /// An array and the accesses to it.
    pub fn job(&self, array: u32) -> Option<&Job> {
        self.jobs.get(array as usize).map(|planned| &planned.job)
    }

    /// The regions of an array.
    pub fn regions(&self, array: u32) -> &[Region] {
        self.jobs.get(array as usize).map_or(&[], |planned| &planned.regions)
    }

    /// Ranks that own at least one tile.
    pub fn owners(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.owned.len() as u32).filter(|rank| self.tiles(*rank) > 0)
    }

    /// Number of tiles of a rank.
    pub fn tiles(&self, owner: u32) -> i64 {
        self.owned.get(owner as usize).map_or(0, Batches::tiles)
    }

    /// Tile number `n` of an owner.
    pub fn tile(&self, owner: u32, n: i64) -> Option<Tile> {
        let (part, first) = self.owned.get(owner as usize)?.of_tile(n)?;
        let (array, region, section) = match *part {
            Part::Span(Span { array, region, low, high }) => {
                let tiling = &self.jobs[array as usize].tilings[region as usize];
                (array, region, tiling.tile(low, high, n - first)?)
            }
            Part::CyclicPart(cyclic_part) => {
                let Planned { tilings, cyclic, .. } = &self.jobs[cyclic_part.array as usize];
                let (region, k) = cyclic.as_ref()?.tile(cyclic_part, n - first);
                let tiling = tilings.get(region as usize)?;
                (cyclic_part.array, region, tiling.tile(0, tiling.units(), k)?)
            }
        };
        Some(Tile { array, region, section })
    }

    /// Numbers of the tiles in an owner's slot in round `k`; empty after its last batch.
    pub fn batch(&self, owner: u32, k: i64) -> Range<i64> {
        self.owned.get(owner as usize).map_or(0..0, |batches| batches.batch(k))
    }

    /// Position of tile `n` in its owner's slot, in bytes: the same modulo a page as in the file.
    pub fn place(&self, owner: u32, n: i64) -> i64 {
        let place = self.owned.get(owner as usize).map_or(0, |batches| batches.place(n));
        let lead =
            |tile: Tile| self.jobs[tile.array as usize].job.descriptor.lead_of(&tile.section);
        let tile = if self.leads { self.tile(owner, n) } else { None };
        place + tile.map_or(0, lead)
    }

    /// The parts of a tile that a rank reads or writes, in the order of its accesses.
    pub fn pieces(&self, tile: &Tile, rank: u32) -> Vec<Piece> {
        let planned = &self.jobs[tile.array as usize];
        planned.of_rank(rank).filter_map(|number| planned.piece(number, tile)).collect()
    }

    /// The parts of a tile for all ranks, in the order of ranks.
    ///
    /// This is the paper's file domain access table.
    pub fn table(&self, tile: &Tile) -> Vec<Piece> {
        let planned = &self.jobs[tile.array as usize];
        let members = &planned.regions[tile.region as usize].members;
        members.iter().filter_map(|number| planned.piece(*number, tile)).collect()
    }

    /// The smallest section that contains all pieces of a tile's `table`; None if there are none.
    ///
    /// For encoded blocks, the whole tile.
    pub fn held(&self, tile: &Tile, table: &[Piece]) -> Option<Section> {
        let held = hull(table.iter().map(|piece| &piece.section))?;
        let encoded = self.jobs[tile.array as usize].job.descriptor.encoded;
        Some(if encoded { tile.section.clone() } else { held })
    }

    /// The parts that a rank owns, as boxes: array and section.
    ///
    /// For many tiles that are assigned one by one, equally many consecutive tiles.
    pub fn parts(&self, rank: u32) -> Vec<(u32, Section)> {
        self.boxes(rank).into_iter().map(|tile| (tile.array, tile.section)).collect()
    }

    /// The parts that a rank owns, reduced to the requested elements, with their number.
    ///
    /// For sections along a diagonal this is a small part. The number is less than the size of the
    /// section if there are gaps.
    pub fn needed(&self, rank: u32) -> Vec<(u32, Section, i64)> {
        let held = |tile: Tile| {
            let table = self.table(&tile);
            Some((tile.array, self.held(&tile, &table)?, useful(&table)))
        };
        self.boxes(rank).into_iter().filter_map(held).collect()
    }

    fn boxes(&self, rank: u32) -> Vec<Tile> {
        let cover = |Span { array, region, low, high }: Span| {
            let tiling = &self.jobs[array as usize].tilings[region as usize];
            Tile { array, region, section: tiling.cover(low, high) }
        };
        let mut boxes = Vec::new();
        for part in self.owned.get(rank as usize).into_iter().flat_map(Batches::parts) {
            match *part {
                Part::Span(span) => boxes.push(cover(span)),
                Part::CyclicPart(cyclic_part) => {
                    let Planned { tilings, cyclic, .. } = &self.jobs[cyclic_part.array as usize];
                    let rows = cyclic.iter().flat_map(|cyclic| cyclic.rows(cyclic_part, tilings));
                    boxes.extend(rows.map(cover));
                }
            }
        }
        boxes
    }

    /// Number of arrays.
    pub fn arrays(&self) -> usize {
        self.jobs.len()
    }

    /// Bytes that all ranks request, in total.
    pub fn wanted_bytes(&self) -> i64 {
        let bytes = |planned: &Planned| {
            let item = planned.job.descriptor.item;
            let counts = planned.job.accesses.iter().map(|a| a.section.count().unwrap_or(i64::MAX));
            counts.fold(0, |n: i64, count| n.saturating_add(count.saturating_mul(item)))
        };
        self.jobs.iter().map(bytes).fold(0, i64::saturating_add)
    }

    /// The accesses to an array to which members of regions refer.
    ///
    /// In a write, elements that later accesses write are excluded.
    pub fn accesses(&self, array: u32) -> &[Access] {
        self.jobs.get(array as usize).map_or(&[], |planned| planned.accesses())
    }

    /// Returns whether accesses skip the elements that later ones write.
    pub fn leaves_out(&self) -> bool {
        self.jobs.iter().any(|planned| planned.left.is_some())
    }

    /// Returns whether written data must be placed in the order of the ranks.
    pub fn in_order(&self) -> bool {
        self.jobs.iter().any(|planned| planned.shared != Shared::Nothing)
    }

    /// The order of a write: None if ranks need not write in order.
    ///
    /// Otherwise true if it is unknown whether they must.
    pub fn order(&self, write: bool) -> Option<bool> {
        (write && self.in_order()).then(|| self.overlap() == Overlap::Unknown)
    }

    /// The sections that a rank writes: array, number of its array in memory, section.
    ///
    /// Elements that later accesses write are excluded.
    pub fn given(&self, rank: u32) -> Vec<(u32, u32, &Section)> {
        let mut given = Vec::new();
        for (array, planned) in (0..).zip(&self.jobs) {
            let accesses = planned.of_rank(rank).map(|number| &planned.accesses()[number as usize]);
            given.extend(accesses.map(|access| (array, access.item, &access.section)));
        }
        given
    }

    /// Returns whether accesses of several ranks may touch the same block of an encoded array.
    ///
    /// This is so if they share a region.
    pub fn shared_blocks(&self) -> bool {
        self.jobs.iter().filter(|planned| planned.job.descriptor.encoded).any(|planned| {
            let rank = |k: &u32| planned.accesses()[*k as usize].rank;
            planned.regions.iter().any(|region| {
                let first = region.members.first().map(rank);
                region.members.iter().any(|k| Some(rank(k)) != first)
            })
        })
    }

    /// Returns whether the byte ranges of the ranks in the file are disjoint.
    ///
    /// A rank's range reaches from its first to its last byte of the array. The result is false for
    /// chunks.
    pub fn apart(&self, array: u32) -> bool {
        let Some(planned) = self.jobs.get(array as usize) else { return true };
        let descriptor = &planned.job.descriptor;
        if descriptor.encoded || descriptor.grain.iter().any(|n| *n > 1) {
            return false;
        }
        let mut spans: BTreeMap<u32, (i64, i64)> = BTreeMap::new();
        for access in planned.accesses() {
            if let Some((first, end)) = descriptor.span(&access.section) {
                let span = spans.entry(access.rank).or_insert((first, end));
                *span = (span.0.min(first), span.1.max(end));
            }
        }
        let mut spans: Vec<_> = spans.into_values().collect();
        spans.sort_unstable();
        spans.windows(2).all(|two| two[0].1 <= two[1].0)
    }

    /// Searches for elements in two accesses (in a write, the last access counts).
    pub fn overlap(&self) -> Overlap {
        let of_array = |planned: &Planned| {
            let Planned { job, left, shared, regions, .. } = planned;
            match shared {
                Shared::InOrder => Overlap::Somewhere,
                Shared::Unknown => Overlap::Unknown,
                Shared::Nothing if left.is_some() => Overlap::Somewhere,
                Shared::Nothing => {
                    let meet = |region| overlap(&job.descriptor, &job.accesses, region);
                    regions.iter().map(meet).max().unwrap_or(Overlap::Never)
                }
            }
        };
        self.jobs.iter().map(of_array).max().unwrap_or(Overlap::Never)
    }
}

impl Planned {
    /// Number of tiles of a part, and the maximum bytes of a tile.
    fn size(&self, part: &Part) -> (i64, i64) {
        match part {
            Part::Span(span) => {
                let tiling = &self.tilings[span.region as usize];
                (tiling.tiles(span.low, span.high), tiling.tile_bytes())
            }
            Part::CyclicPart(cyclic_part) => self
                .cyclic
                .as_ref()
                .map_or((0, 0), |cyclic| (cyclic.tiles(*cyclic_part), cyclic.tile_bytes())),
        }
    }

    fn accesses(&self) -> &[Access] {
        self.left.as_ref().map_or(&self.job.accesses, |(accesses, _)| accesses)
    }

    /// Numbers of the accesses of a rank.
    fn of_rank(&self, rank: u32) -> impl Iterator<Item = u32> + '_ {
        let first = self.by_rank.partition_point(|(other, _)| *other < rank);
        let mine = self.by_rank[first..].iter().take_while(move |(other, _)| *other == rank);
        mine.map(|(_, number)| *number)
    }

    fn piece(&self, number: u32, tile: &Tile) -> Option<Piece> {
        let section = self.accesses()[number as usize].section.intersect(&tile.section)?;
        let access = self.left.as_ref().map_or(number, |(_, of)| of[number as usize]);
        (!section.is_empty()).then_some(Piece { access, section })
    }
}

/// Returns whether slots are large enough to align tiles with the file.
fn leads(agreed: &Agreed) -> bool {
    agreed.slot >= LEADS
}

/// Bytes of a slot reserved for the offset of a tile in its page.
fn lead_room(descriptor: &ArrayDescriptor, agreed: &Agreed) -> i64 {
    if descriptor.leads() && leads(agreed) {
        PAGE
    } else {
        0
    }
}

/// Converts parts of accesses into accesses, with the number of the access of each.
fn of_ranks(accesses: &[Access], parts: Vec<(u32, Section)>) -> (Vec<Access>, Vec<u32>) {
    let part = |(k, section): (u32, Section)| {
        let Access { rank, item, .. } = accesses[k as usize];
        (Access { rank, item, section }, k)
    };
    parts.into_iter().map(part).unzip()
}

fn check(job: &Job, agreed: &Agreed) -> Result<(), PlanError> {
    for access in &job.accesses {
        access.section.within(&job.descriptor.shape)?;
    }
    let known = |share: &Share| share.rank < agreed.ranks && share.part >= 0;
    let sane = !job.shares.is_empty() && job.shares.iter().all(known);
    if !sane || job.accesses.iter().any(|access| access.rank >= agreed.ranks) {
        let text =
            format!("shares {:?} or accesses are invalid for {} ranks", job.shares, agreed.ranks);
        return Err(PlanError::BadLayout(text));
    }
    Ok(())
}
