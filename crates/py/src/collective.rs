//! `_core.Collective`: the plan of a collective, and the copies between slots and the ranks' arrays.
//!
//! Python keeps the loop over rounds, because the messages are its own; here is what each round asks:
//! which tile, who wants what, and the copies, made without the GIL.

use numpy::{PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use outcore_io::slot::{self, Slot, UserBuffer};
use outcore_plan::collective::{
    self as plan, Access, Agreed, ArrayDescriptor, ExchangeCosts, Job, Overlap, Packets, Piece,
    Prices, Share, Tile, Why,
};
use outcore_plan::{Direction, PlanError, Section};
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::buffers::{self, Memory};
use crate::errors::{Class, Fault};
use crate::records::{chosen, cut_of, Decided};

/// Start, count and step of each axis.
type Ranges = Vec<(i64, i64, i64)>;

/// Of an array: its own words, those of its accesses, the shares of its owners.
pub(crate) type Words = (Vec<i64>, Vec<i64>, Vec<(u32, i64)>);

/// The plan of a collective.
#[pyclass(module = "outcore._core", frozen)]
pub struct Collective {
    pub(crate) plan: plan::Collective,
}

fn ranges(section: &Section) -> Ranges {
    section.ranges().iter().map(|r| (r.start, r.count, r.step)).collect()
}

fn wrong(text: String) -> Fault {
    Fault::new(Class::Internal, "broken-plan", text)
}

pub(crate) fn job(
    descriptor: &[i64],
    accesses: &[i64],
    shares: &[(u32, i64)],
) -> Result<Job, PlanError> {
    let descriptor = ArrayDescriptor::from_words(descriptor)?;
    let each = 2 + 3 * descriptor.shape.len();
    let access = |words: &[i64]| {
        let section = plan::section_from_words(&words[2..], &descriptor.shape)?;
        let number = |n: i64| u32::try_from(n).map_err(|_| PlanError::TooLarge("a rank"));
        Ok(Access { rank: number(words[0])?, item: number(words[1])?, section })
    };
    if !accesses.len().is_multiple_of(each) {
        let text = format!("{} words of accesses of {each}", accesses.len());
        return Err(PlanError::BadLayout(text));
    }
    let accesses = accesses.chunks_exact(each).map(access).collect::<Result<_, PlanError>>()?;
    let shares = shares.iter().map(|(rank, part)| Share { rank: *rank, part: *part }).collect();
    Ok(Job { descriptor, accesses, shares })
}

#[pymethods]
impl Collective {
    /// `jobs`: for each array its words (`Array.descriptor`), its accesses (rank, item, section; words of
    /// all one after another), and the shares of its owners.
    #[new]
    #[pyo3(signature = (jobs, *, ranks, slot, gap, align, least, cut, write = false))]
    #[allow(clippy::too_many_arguments, reason = "named in Python; each is one thing agreed on")]
    fn new(
        py: Python<'_>,
        jobs: Vec<Words>,
        ranks: u32,
        slot: i64,
        gap: i64,
        align: i64,
        least: i64,
        cut: &str,
        write: bool,
    ) -> PyResult<Collective> {
        let agreed = Agreed { ranks, slot, gap, align, least, cut: cut_of(cut), write };
        let plan = py.detach(|| {
            let jobs =
                jobs.iter().map(|(descriptor, accesses, shares)| job(descriptor, accesses, shares));
            plan::Collective::new(jobs.collect::<Result<_, _>>()?, &agreed)
        });
        Ok(Collective { plan: plan.map_err(Fault::from)? })
    }

    /// Number of rounds.
    #[getter]
    fn rounds(&self) -> i64 {
        self.plan.rounds()
    }

    /// Bytes of the largest batch.
    #[getter]
    fn slot_bytes(&self) -> i64 {
        self.plan.slot_bytes()
    }

    /// Whether accesses share elements; None if there were too many to find out.
    fn overlap(&self, py: Python<'_>) -> Option<bool> {
        match py.detach(|| self.plan.overlap()) {
            Overlap::Never => Some(false),
            Overlap::Somewhere => Some(true),
            Overlap::Unknown => None,
        }
    }

    /// Whether what is written has to be put in its place in the order of the ranks.
    #[getter]
    fn in_order(&self) -> bool {
        self.plan.in_order()
    }

    /// What a rank gives if it leaves out what later ones give: number of the array, of the item, and
    /// section; None if nobody leaves out anything.
    fn given(&self, rank: u32) -> Option<Vec<(u32, u32, Ranges)>> {
        let row = |(array, item, section): (u32, u32, &Section)| (array, item, ranges(section));
        self.plan.leaves_out().then(|| self.plan.given(rank).into_iter().map(row).collect())
    }

    /// Bytes that all ranks give, together, without what later ones give.
    #[getter]
    fn given_bytes(&self) -> i64 {
        self.plan.given_bytes()
    }

    /// The cheapest method, and why. `own`: what each rank's accesses cost, and the share that is cached;
    /// `parts`: what those of all owners cost. With `lacking` memory there is no two-phase;
    /// `order` as for `Records.decide`.
    #[pyo3(signature = (own, parts, nodes, *, oversubscription, arrays, write, lacking = None, order = None))]
    #[allow(clippy::too_many_arguments, reason = "named in Python; each is one thing agreed on")]
    fn cheapest(
        &self,
        py: Python<'_>,
        own: Vec<(i64, i64)>,
        parts: i64,
        nodes: Vec<i64>,
        oversubscription: i64,
        arrays: i64,
        write: bool,
        lacking: Option<(i64, i64)>,
        order: Option<bool>,
    ) -> Decided {
        let costs = ExchangeCosts::shared(oversubscription);
        let prices = Prices { own, parts, costs, nodes, arrays };
        let lacking = lacking.map(|(slot, room)| Why::NoMemory(slot, room));
        let decided = py.detach(|| {
            let moved = self.plan.exchanged(&prices.nodes);
            prices.cheapest(&moved, write, lacking, order)
        });
        chosen(decided)
    }

    /// What two-phase costs, nanoseconds summed over the ranks; as `cheapest`.
    #[pyo3(signature = (own, parts, nodes, *, oversubscription, arrays, write))]
    #[allow(clippy::too_many_arguments, reason = "named in Python; each is one thing agreed on")]
    fn two_phase_price(
        &self,
        own: Vec<(i64, i64)>,
        parts: i64,
        nodes: Vec<i64>,
        oversubscription: i64,
        arrays: i64,
        write: bool,
    ) -> i64 {
        let costs = ExchangeCosts::shared(oversubscription);
        let moved = self.plan.exchanged(&nodes);
        Prices { own, parts, costs, nodes, arrays }.two_phase(&moved, write)
    }

    /// How many slots each rank has, if two may have `offered` bytes each.
    fn slots(&self, offered: i64) -> i64 {
        self.plan.slots(offered)
    }

    /// Number of arrays.
    #[getter]
    fn arrays(&self) -> usize {
        self.plan.arrays()
    }

    /// Bytes of an element of an array.
    fn item(&self, array: u32) -> i64 {
        self.plan.job(array).map_or(0, |job| job.descriptor.item)
    }

    /// Bytes that all ranks ask for.
    #[getter]
    fn wanted_bytes(&self) -> i64 {
        self.plan.wanted_bytes()
    }

    /// Whether several ranks may touch the same encoded blocks.
    #[getter]
    fn shared_blocks(&self) -> bool {
        self.plan.shared_blocks()
    }

    /// Whether nothing in the file of an array lies between what a rank has of it and is another rank's.
    fn apart(&self, py: Python<'_>, array: u32) -> bool {
        py.detach(|| self.plan.apart(array))
    }

    /// What a rank owns, as boxes: number of the array, and section.
    fn parts(&self, rank: u32) -> Vec<(u32, Ranges)> {
        self.plan.parts(rank).iter().map(|(array, section)| (*array, ranges(section))).collect()
    }

    /// The same without what nobody wants around it, and how many elements of it are wanted or given.
    fn needed(&self, rank: u32) -> Vec<(u32, Ranges, i64)> {
        let needed = self.plan.needed(rank);
        needed.iter().map(|(array, section, useful)| (*array, ranges(section), *useful)).collect()
    }

    /// Whether an array is stored in blocks that are encoded.
    fn encoded(&self, array: u32) -> bool {
        self.plan.job(array).is_some_and(|job| job.descriptor.encoded)
    }

    /// Ranks that own anything.
    fn owners(&self) -> Vec<u32> {
        self.plan.owners().collect()
    }

    /// Number of tiles of a rank.
    fn tiles(&self, owner: u32) -> i64 {
        self.plan.tiles(owner)
    }

    /// The bounding sections of an array, and how many accesses lie in each.
    fn regions(&self, array: u32) -> Vec<(Ranges, usize)> {
        let regions = self.plan.regions(array).iter();
        regions.map(|region| (ranges(&region.section), region.members.len())).collect()
    }

    /// The first, and one past the last, of the tiles that an owner has in its slot in round `k`.
    fn batch(&self, owner: u32, k: i64) -> (i64, i64) {
        let batch = self.plan.batch(owner, k);
        (batch.start, batch.end)
    }

    /// Where in its slot an owner has tile `n`, in bytes.
    fn place(&self, owner: u32, n: i64) -> i64 {
        self.plan.place(owner, n)
    }

    /// Number of the array, and the section, of tile `n` of an owner.
    fn tile(&self, owner: u32, n: i64) -> Option<(u32, Ranges)> {
        self.plan.tile(owner, n).map(|tile| (tile.array, ranges(&tile.section)))
    }

    /// Who wants which part of a tile: rank, item, section; in the order of the ranks.
    fn table(&self, py: Python<'_>, owner: u32, n: i64) -> Vec<(u32, u32, Ranges)> {
        let pieces = py.detach(|| match self.plan.tile(owner, n) {
            Some(tile) => {
                let table = self.plan.table(&tile);
                table.into_iter().map(|piece| (tile.array, piece)).collect()
            }
            None => vec![],
        });
        let row = |(array, piece): (u32, Piece)| {
            let access = &self.plan.job(array)?.accesses[piece.access as usize];
            Some((access.rank, access.item, ranges(&piece.section)))
        };
        pieces.into_iter().filter_map(row).collect()
    }

    /// What the owner has to read of its tile: the smallest section that holds all that is wanted
    /// (None if nothing is), its elements, those that are wanted (each as often as it is), and the
    /// number of pieces.
    fn wanted(&self, py: Python<'_>, owner: u32, n: i64) -> Option<(Ranges, i64, i64, usize)> {
        py.detach(|| {
            let tile = self.plan.tile(owner, n)?;
            let table = self.plan.table(&tile);
            let held = self.plan.held(&tile, &table)?;
            let elements = held.count().unwrap_or(i64::MAX);
            Some((ranges(&held), elements, plan::useful(&table), table.len()))
        })
    }

    /// Bytes that each rank wants of a range of an owner's tiles, one number per rank.
    fn counts(&self, py: Python<'_>, owner: u32, tiles: (i64, i64), ranks: u32) -> Vec<i64> {
        py.detach(|| {
            let mut counts = vec![0; ranks as usize];
            for tile in (tiles.0..tiles.1).filter_map(|n| self.plan.tile(owner, n)) {
                if let Some(job) = self.plan.job(tile.array) {
                    for piece in self.plan.table(&tile) {
                        let rank = job.accesses[piece.access as usize].rank;
                        let bytes = piece.section.count().unwrap_or(0) * job.descriptor.item;
                        counts[rank as usize] += bytes;
                    }
                }
            }
            counts
        })
    }

    /// Bytes that a rank wants of a range of an owner's tiles.
    fn share(&self, owner: u32, tiles: (i64, i64), rank: u32) -> i64 {
        let of_tile = |tile: Tile| {
            let pieces = self.plan.pieces(&tile, rank);
            pieces.iter().map(|piece| self.bytes(&tile, piece)).sum::<i64>()
        };
        (tiles.0..tiles.1).filter_map(|n| self.plan.tile(owner, n)).map(of_tile).sum()
    }

    /// The same in packets of at most `most` bytes: what each holds.
    fn packets(&self, owner: u32, tiles: (i64, i64), rank: u32, most: i64) -> Vec<i64> {
        let (mut packets, mut held) = (Packets::new(most), Vec::new());
        for tile in (tiles.0..tiles.1).filter_map(|n| self.plan.tile(owner, n)) {
            for piece in self.plan.pieces(&tile, rank) {
                let bytes = self.bytes(&tile, &piece);
                let number = packets.next(bytes);
                held.resize(held.len().max(number + 1), 0);
                held[number] += bytes;
            }
        }
        held
    }

    /// Copies what `rank` wants of (`write`: gives to) the tiles that owners have in their slots in
    /// round `k`. `slots`: owner and its slot, bytes. `items`: the rank's arrays by number, each with
    /// the axes of the array on disk, upwards. Returns bytes.
    #[pyo3(signature = (k, rank, slots, items, write = false))]
    fn copy(
        &self,
        py: Python<'_>,
        k: i64,
        rank: u32,
        slots: Vec<(u32, Bound<'_, PyUntypedArray>)>,
        items: &Bound<'_, PyList>,
        write: bool,
    ) -> PyResult<usize> {
        let arrays = memories(items)?;
        let mut places = Vec::with_capacity(slots.len());
        for (owner, array) in &slots {
            places.push((*owner, place(array)?));
        }
        let direction = if write { Direction::Write } else { Direction::Read };
        let copied = py.detach(|| -> Result<usize, Fault> {
            let mut bytes = 0;
            for (owner, slot) in &places {
                for n in self.plan.batch(*owner, k) {
                    let Some(tile) = self.plan.tile(*owner, n) else { continue };
                    let (memory, len) = within(slot, self.plan.place(*owner, n))?;
                    for piece in self.plan.pieces(&tile, rank) {
                        bytes += self.piece(&tile, &piece, (memory, len), &arrays, direction)?;
                    }
                }
            }
            Ok(bytes)
        });
        Ok(copied?)
    }

    /// Packs what ranks want of the owner's tiles of round `k` into `packed`, one after another in the order of
    /// `ranks`; or, to `write`, unpacks what they gave, a later rank over an earlier one. `packet`: only
    /// that number of `packets` of so many bytes at most. Returns bytes.
    #[pyo3(signature = (owner, k, slot, ranks, packed, write = false, packet = None))]
    #[allow(clippy::too_many_arguments, reason = "one end and the other")]
    fn pack(
        &self,
        py: Python<'_>,
        owner: u32,
        k: i64,
        slot: &Bound<'_, PyUntypedArray>,
        ranks: Vec<u32>,
        packed: &Bound<'_, PyUntypedArray>,
        write: bool,
        packet: Option<(usize, i64)>,
    ) -> PyResult<usize> {
        let (slot, packed) = (place(slot)?, place(packed)?);
        let direction = if write { Direction::Write } else { Direction::Read };
        let done = py.detach(|| -> Result<usize, Fault> {
            let mut tiles = Vec::new();
            for n in self.plan.batch(owner, k) {
                if let Some(tile) = self.plan.tile(owner, n) {
                    tiles.push((tile, within(&slot, self.plan.place(owner, n))?));
                }
            }
            let mut at = 0;
            for rank in ranks {
                let mut chosen = Chosen::of(packet);
                for (tile, slot) in &tiles {
                    for piece in self.plan.pieces(tile, rank) {
                        if !chosen.next(self.bytes(tile, &piece)) {
                            continue;
                        }
                        at += self.packed(tile, &piece, *slot, &packed, at, direction)?;
                    }
                }
            }
            Ok(at)
        });
        Ok(done?)
    }

    /// The other end: copies what came from the owners, one after another, into the rank's arrays; or
    /// packs what they are to get. `packet` as for `pack`. Returns bytes.
    #[pyo3(signature = (k, rank, owners, packed, items, write = false, packet = None))]
    #[allow(clippy::too_many_arguments, reason = "one end and the other")]
    fn unpack(
        &self,
        py: Python<'_>,
        k: i64,
        rank: u32,
        owners: Vec<u32>,
        packed: &Bound<'_, PyUntypedArray>,
        items: &Bound<'_, PyList>,
        write: bool,
        packet: Option<(usize, i64)>,
    ) -> PyResult<usize> {
        let arrays = memories(items)?;
        let buffer = [place(packed)?];
        let direction = if write { Direction::Write } else { Direction::Read };
        let done = py.detach(|| -> Result<usize, Fault> {
            let [(memory, len)] = &buffer;
            let mut at = 0;
            for owner in owners {
                let mut chosen = Chosen::of(packet);
                for tile in self.plan.batch(owner, k).filter_map(|n| self.plan.tile(owner, n)) {
                    for piece in self.plan.pieces(&tile, rank) {
                        if !chosen.next(self.bytes(&tile, &piece)) {
                            continue;
                        }
                        // What is packed is a tile of its own: just this piece.
                        let alone = Tile { section: piece.section.clone(), ..tile };
                        let rest = len.checked_sub(at).ok_or_else(|| short(at, *len))?;
                        let data = memory.data.wrapping_add(at);
                        at += self.piece(&alone, &piece, (data, rest), &arrays, direction)?;
                    }
                }
            }
            Ok(at)
        });
        Ok(done?)
    }
}

/// Which pieces of a message go: those of one packet, or all.
struct Chosen(Option<(usize, Packets)>);

impl Chosen {
    fn of(packet: Option<(usize, i64)>) -> Chosen {
        Chosen(packet.map(|(number, most)| (number, Packets::new(most))))
    }

    fn next(&mut self, bytes: i64) -> bool {
        self.0.as_mut().is_none_or(|(number, packets)| packets.next(bytes) == *number)
    }
}

/// Whether a rank has read its sections sooner than a plan of them is made and exchanged by.
#[pyfunction]
pub fn reads_sooner(own: i64, ranks: i64, arrays: i64, oversubscription: i64) -> bool {
    plan::reads_sooner(own, ranks, arrays, oversubscription)
}

fn short(at: usize, len: usize) -> Fault {
    wrong(format!("a buffer of {len} bytes ended at {at}"))
}

/// Memory of a one-dimensional array of bytes, and its length.
fn place(array: &Bound<'_, PyUntypedArray>) -> Result<(Memory, usize), Fault> {
    let sane = array.ndim() == 1 && array.dtype().itemsize() == 1 && buffers::writeable(array);
    if !sane || buffers::memory(array).strides != [1] && array.len() > 1 {
        return Err(wrong("a slot is a writable array of bytes".to_owned()));
    }
    Ok((buffers::memory(array), array.len()))
}

/// What is left of a slot from a place on.
fn within((memory, len): &(Memory, usize), at: i64) -> Result<(*mut u8, usize), Fault> {
    let at = usize::try_from(at).unwrap_or(usize::MAX);
    let rest = len.checked_sub(at).ok_or_else(|| short(at, *len))?;
    Ok((memory.data.wrapping_add(at), rest))
}

/// An array of a rank: memory, shape, bytes of an element.
type Array = (Memory, Vec<i64>, i64);

fn memories(items: &Bound<'_, PyList>) -> PyResult<Vec<Array>> {
    let mut found = Vec::with_capacity(items.len());
    for item in items {
        let array = item.cast::<PyUntypedArray>()?;
        let item = array.dtype().itemsize() as i64;
        found.push((buffers::memory(array), buffers::shape(array), item));
    }
    Ok(found)
}

impl Collective {
    /// Bytes of a piece.
    fn bytes(&self, tile: &Tile, piece: &Piece) -> i64 {
        let item = self.plan.job(tile.array).map_or(0, |job| job.descriptor.item);
        piece.section.count().unwrap_or(0) * item
    }

    /// Copies one piece between a slot and an array of the rank whose access it is.
    fn piece(
        &self,
        tile: &Tile,
        piece: &Piece,
        (data, len): (*mut u8, usize),
        arrays: &[Array],
        direction: Direction,
    ) -> Result<usize, Fault> {
        let job = self.plan.job(tile.array).ok_or_else(|| wrong("no such array".to_owned()))?;
        let access = &job.accesses[piece.access as usize];
        let fits = |(_, shape, item): &&Array| {
            *shape == access.section.shape() && *item == job.descriptor.item
        };
        let Some((memory, _, item)) = arrays.get(access.item as usize).filter(fits) else {
            return Err(wrong(format!("array {} is not of its section's shape", access.item)));
        };
        let strides = slot::packed(&tile.section, &job.descriptor.order, *item);
        let slot = Slot { data, len, tile: &tile.section, strides: &strides };
        let held =
            UserBuffer { data: memory.data, section: &access.section, strides: &memory.strides };
        // SAFETY: the slot is a live array of `len` bytes; the other has the shape of the section, and
        // was made for it by the caller, who holds both. What is written to is written by us alone in
        // this round: slots are touched by their users between two synchronisations of all ranks.
        Ok(unsafe { slot::copy(&slot, &held, &piece.section, *item, direction) }?)
    }

    /// Copies one piece between the owner's slot and its place in a packed buffer.
    fn packed(
        &self,
        tile: &Tile,
        piece: &Piece,
        (slot, len): (*mut u8, usize),
        packed: &(Memory, usize),
        at: usize,
        direction: Direction,
    ) -> Result<usize, Fault> {
        let job = self.plan.job(tile.array).ok_or_else(|| wrong("no such array".to_owned()))?;
        let item = job.descriptor.item;
        let bytes = usize::try_from(piece.section.count()? * item).unwrap_or(usize::MAX);
        if packed.1.checked_sub(at).is_none_or(|rest| bytes > rest) {
            return Err(short(at, packed.1));
        }
        let strides = slot::packed(&tile.section, &job.descriptor.order, item);
        let along = slot::packed(&piece.section, &job.descriptor.order, item);
        let data = packed.0.data.wrapping_add(at);
        let place = Slot { data: slot, len, tile: &tile.section, strides: &strides };
        let held = UserBuffer { data, section: &piece.section, strides: &along };
        // SAFETY: `bytes` of the packed buffer are there, dense, and nobody else's in this round.
        Ok(unsafe { slot::copy(&place, &held, &piece.section, item, direction) }?)
    }
}
