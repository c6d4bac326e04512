//! Chunked arrays: batches of chunks are found, locked, planned and stored.
//!
//! A batch is the set of chunks that is resolved in one step: some hundreds of chunks (their files are open
//! during the batch), or whole shards, so that no shard is rewritten twice for one access.
//!
//! Waiting for another writer ends with Ctrl-C, or after a minute with an error that names the file.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use outcore_io::descriptors::{self, Places};
use outcore_io::exec::CacheUse;
use outcore_io::lock::FileLock;
use outcore_io::store::files::FileStore;
use outcore_io::store::listing::Listed;
use outcore_io::store::shards::{IndexFormat, ShardStore};
use outcore_io::store::{Cells, ChunkSize, ChunkStore, Naming, BYTES_A_CHUNK};
use outcore_io::{Arena, Pipeline, StorageError};
use outcore_plan::{
    ChunkTable, Chunked, Coding, Direction, GridBox, Order, PlanError, Section, Slab,
};

use crate::admission::{self, Mode};
use crate::described::{Described, Shard, Source};
use crate::empty::Empty;
use crate::error::{Fault, Reason};
use crate::guard::patiently;
use crate::hints::Cache;
use crate::loops::{self, Promise};
use crate::nesting::Reading;
use crate::part::{Context, Part, PartPoints};
use crate::step::{Access, Step};
use crate::table::{self, Table, HANDFUL};
use crate::terms::{self, pages};

/// Chunks in a batch if each is in a separate file, which is open during the batch.
const FILES_AT_ONCE: i64 = 192;
/// Files that a batch has open in addition to the files of chunks: lock, folder, queue of the engine, log.
const OTHER_FILES: i64 = 4;
/// Shards in a batch.
const SHARDS_AT_ONCE: i64 = 64;
/// Chunks in a batch if they are listed in a table.
const ROWS_AT_ONCE: i64 = 1 << 14;
/// Divisor: this part of the rest of the budget may be used for larger batches.
const TABLES: i64 = 8;
/// Chunks that are looked up one by one; for more, folders are listed.
const FEW: i64 = 1 << 12;
/// Batches that are examined without moving data: some seconds of work.
const BATCHES: i64 = 1 << 24;

/// The chunks of one array.
pub struct Chunks {
    store: Store,
    /// The grid of shards, if chunks are in shards.
    coarse: Option<Chunked>,
    at_once: i64,
    grid: Vec<i64>,
    /// Shape of a chunk.
    chunk: Vec<i64>,
}

enum Store {
    Core(Box<dyn ChunkStore>),
    Table(Box<Table>),
}

impl Chunks {
    /// Creates the store of this source.
    pub fn new(
        layout: &Chunked,
        source: &Source,
        pipeline: &Pipeline,
    ) -> Result<Chunks, StorageError> {
        let limit = pipeline.stored_limit();
        let size = ChunkSize {
            decoded: layout.chunk_bytes(),
            limit: if layout.encoded { to_i64(limit) } else { layout.chunk_bytes() },
            encoded: layout.encoded,
        };
        let grid = layout.grid();
        let (store, coarse, at_once) = match source {
            Source::Table { path, log, library, guard } => {
                let (library, guard) = (library.clone(), guard.clone());
                let table = Table::new(path.clone(), log.clone(), library, guard, size);
                (Store::Table(Box::new(table)), None, ROWS_AT_ONCE)
            }
            Source::Files { root, prefix, separator, lock, identity, shard } => {
                let identity = || identity.as_ref().map(|identity| identity());
                let naming = Naming {
                    root: root.clone(),
                    prefix: prefix.clone(),
                    separator: separator.clone(),
                };
                match shard {
                    None => {
                        let store = FileStore::new(naming, lock.clone(), grid.clone(), size)
                            .known(identity());
                        (Store::Core(Box::new(store)), None, FILES_AT_ONCE)
                    }
                    Some(shard) => {
                        let coarse = coarse(layout, shard)?;
                        let index = IndexFormat {
                            at_end: !shard.index_at_start,
                            crc32c: shard.index_crc32c,
                        };
                        let per_shard = shard.per_shard.clone();
                        let store = ShardStore::new(
                            naming,
                            lock.clone(),
                            grid.clone(),
                            per_shard,
                            index,
                            size,
                        )?
                        .known(identity());
                        (Store::Core(Box::new(store)), Some(coarse), ROWS_AT_ONCE)
                    }
                }
            }
        };
        Ok(Chunks { store, coarse, at_once, grid, chunk: layout.chunk.clone() })
    }

    /// Returns the grid of shards, if chunks are in shards.
    pub fn shards(&self) -> Option<&Chunked> {
        self.coarse.as_ref()
    }

    /// Loads what is kept in memory of the format's own table from the first access on. Returns the
    /// additional bytes that loading it again takes, `new` chunks later. Call it in a turn.
    pub fn prepare(&self, new: i64) -> Result<i64, Fault> {
        match &self.store {
            Store::Core(_) => Ok(0),
            Store::Table(table) => table.load(new),
        }
    }

    /// Waits until the written data is on the disk.
    pub fn flush(&self) -> Result<(), StorageError> {
        match &self.store {
            Store::Core(store) => store.flush(),
            Store::Table(table) => table.flush(),
        }
    }

    /// Calls `work` for each batch of the access. Locks and stores chunks, unless the mode only looks.
    pub fn each(
        &self,
        context: &Context,
        access: &Access,
        mode: Mode,
        work: &mut dyn FnMut(Step) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        context.layout.admit(access.section)?;
        let each = self.limits(context, access, mode)?;
        let _promise = match (mode, access.direction) {
            (Mode::Run, Direction::Write) => self.assure(&each)?,
            _ => None,
        };
        let mut empty = match mode {
            Mode::Look => self.empty(&each)?,
            Mode::Run | Mode::Nested => None,
        };
        for batch in each.grouping.batches(access.section, each.at_once)? {
            match empty.as_mut().is_some_and(|empty| empty.takes(&batch)) {
                true => context.interrupts.stop()?,
                false => self.batch_or_parts(&each, &batch, 1, work)?,
            }
        }
        for (batch, times) in empty.into_iter().flat_map(Empty::into_batches) {
            self.batch_or_parts(&each, &batch, times, work)?;
        }
        Ok(())
    }

    /// Returns the values that all batches of an access share, above all the number of chunks, or shards, in
    /// a batch.
    fn limits<'a>(
        &'a self,
        context: &'a Context<'a>,
        access: &'a Access<'a>,
        mode: Mode,
    ) -> Result<Each<'a>, Fault> {
        let layout = context.layout;
        let (grouping, most) = match &self.coarse {
            Some(shards) => (shards, self.shards_at_once(shards)),
            None => (layout, self.at_once),
        };
        let replacing = access.direction == Direction::Write;
        let coding = self.coding(context.described, access.direction);
        let least = self.least_plan(layout, context.described, access.direction);
        // The table of one chunk, or shard, and the memory for coding its chunks must fit. If memory is
        // plentiful, a batch has more of them.
        let each = self.table_bytes(&self.unit(), replacing);
        let chunk_cache = chunk_cache(layout, access)?;
        let plenty = (terms::budget(access.hints) - least - pages(each)).max(0) / TABLES;
        let at_once = 1 + (plenty / each.max(1)).min(most - 1);
        let at_once = at_once.min(self.with_files(descriptors::limit(), replacing));
        Ok(Each { context, access, mode, coding, least, chunk_cache, grouping, at_once })
    }

    /// Makes sure, before the first byte is written, that no part of a write is refused memory for good. Most
    /// writes find enough free memory for any chunk; otherwise all batches are checked first.
    fn assure(&self, each: &Each) -> Result<Option<Promise>, Fault> {
        let Each { context, access, .. } = *each;
        let met = each.grouping.met(access.section)?;
        if met < 2 {
            return Ok(None); // The error comes before the write begins.
        }
        let free = || terms::budget(access.hints);
        let least = self.least(context.layout, context.described, Direction::Write);
        let again = matches!(self.store, Store::Table(_)) && met > each.at_once;
        let promise = loops::promise(least);
        if !again && free() >= least {
            return Ok(Some(promise));
        }
        drop(promise);
        let mut promise = None;
        admission::in_turn(context.interrupts, || {
            let least = least.saturating_add(self.prepare(met)?);
            promise = Some(loops::promise(least.min(free())));
            match free() >= least {
                true => Ok(()),
                false => self.each(context, access, Mode::Look, &mut |_| Ok(())),
            }
        })?;
        Ok(promise)
    }

    /// Returns a record of batches of which nothing is stored, which need not be planned one by one; None if
    /// listing would cost more than it saves.
    fn empty<'a>(&self, each: &Each<'a>) -> Result<Option<Empty<'a>>, Fault> {
        let met = each.grouping.met(each.access.section)?;
        if met <= each.at_once.max(FEW) {
            return Ok(None);
        }
        let most = each.at_once.saturating_mul(BATCHES);
        if met > most {
            // A small budget makes many batches, each of which is at least counted.
            let chunks = each.context.layout.met(each.access.section)?;
            return Err(PlanError::TooManyChunks { chunks, most }.into());
        }
        let shape = each.grouping.touched(each.access.section)?;
        if shape.cells().is_err() {
            return Ok(None); // Places in it could not be numbered.
        }
        let most = usize::try_from(met).unwrap_or(usize::MAX);
        let listed = self.list(each.context, (&shape.lo, &shape.count), most)?;
        Ok(listed.map(|listed| Empty::new(each.grouping, shape, listed)))
    }

    /// Lists the stored chunks of a box, or the stored shards if chunks are in shards; None if more than
    /// `most` names were seen.
    fn list(
        &self,
        context: &Context,
        lo_and_count: (&[i64], &[i64]),
        most: usize,
    ) -> Result<Option<Listed>, Fault> {
        match &self.store {
            Store::Core(store) => {
                Ok(store.list(lo_and_count, most, &|| context.interrupts.check())?)
            }
            Store::Table(table) => {
                let guard = patiently(&context.described.path, context.interrupts, |patience| {
                    table.share(patience)
                })?;
                let locked = guard.as_ref().is_some_and(FileLock::flocked);
                Ok(Some(table.list(lo_and_count, locked)?))
            }
        }
    }

    /// Returns the shape of a unit, which is a chunk or a shard, and the places of the stored units, in C
    /// order of their grid.
    pub fn stored(&self, context: &Context) -> Result<(Vec<i64>, Listed), Fault> {
        let grouping = self.coarse.as_ref().unwrap_or(context.layout);
        let grid = grouping.grid();
        let lo = vec![0; grid.len()];
        let listed = self.list(context, (&lo, &grid), usize::MAX)?;
        Ok((grouping.chunk.clone(), listed.unwrap_or_default()))
    }

    /// Performs one batch, in parts if memory is too short for the whole batch.
    fn batch_or_parts(
        &self,
        each: &Each,
        batch: &Slab,
        times: i64,
        work: &mut dyn FnMut(Step) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let write = each.access.direction == Direction::Write;
        let most = self.with_files(descriptors::available(), write);
        if most < each.at_once && most < each.grouping.met(&batch.section)? {
            return Chunks::parts(each, batch, most, &mut |part| {
                self.batch(each, part, times, work)
            });
        }
        match self.batch(each, batch, times, work) {
            // Other accesses may now hold memory that was free when the batches were cut.
            Err(refused) if refused.is_about_room() && each.at_once > 1 => {
                Chunks::parts(each, batch, 1, &mut |part| self.batch(each, part, times, work))
            }
            done => done,
        }
    }

    /// Cuts a batch into smaller ones of `number` chunks, or shards.
    fn parts(
        each: &Each,
        batch: &Slab,
        most: i64,
        work: &mut dyn FnMut(&Slab) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        for mut part in each.grouping.batches(&batch.section, most)? {
            part.at.iter_mut().zip(&batch.at).for_each(|(at, first)| *at += first);
            work(&part)?;
        }
        Ok(())
    }

    /// Returns how many files a batch of `number` chunks, or shards, has open at the same time.
    fn open_files(&self, number: i64, write: bool) -> i64 {
        let theirs = match &self.store {
            Store::Core(store) => store.open_files(number, write),
            Store::Table(_) => 2,
        };
        theirs.saturating_add(OTHER_FILES)
    }

    /// Returns the number of chunks, or shards, of one batch if `places` files may be opened: half of them is
    /// left for others.
    fn with_files(&self, places: u64, write: bool) -> i64 {
        let places = i64::try_from(places / 2).unwrap_or(i64::MAX);
        if self.open_files(self.at_once, write) <= places {
            return self.at_once;
        }
        // More chunks need at most a proportional number of files.
        let each = self.open_files(2, write) - self.open_files(1, write);
        ((places - OTHER_FILES) / each.max(1)).clamp(1, self.at_once)
    }

    /// Counts the files of a batch before they are opened.
    fn reserve_files(&self, each: &Each, met: i64) -> Result<Places, Fault> {
        let write = each.access.direction == Direction::Write && each.mode != Mode::Look;
        let number = self.open_files(met, write);
        descriptors::take(u64::try_from(number).unwrap_or(u64::MAX)).ok_or_else(|| {
            let path = Path::new(&each.context.described.path);
            StorageError::no_place("open the files of chunks", path).into()
        })
    }

    /// Performs one batch in its turn.
    fn batch(
        &self,
        each: &Each,
        batch: &Slab,
        times: i64,
        work: &mut dyn FnMut(Step) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let (section, strides) = (&batch.section, each.access.strides);
        let GridBox { lo, count } = each.context.layout.touched(section)?;
        let cells = Cells::new(&lo, &count, &self.grid)?;
        let shift: i64 = batch.at.iter().zip(strides).map(|(i, stride)| i * stride).sum();
        let met = each.grouping.met(section)?;
        self.cells(each, &Batch { section, shift, cells, met, times, listed: None }, work)
    }

    /// Performs the requested work on some chunks in its turn.
    fn cells(
        &self,
        each: &Each,
        batch: &Batch,
        work: &mut dyn FnMut(Step) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let Each { context, access, mode, coding, least, chunk_cache, .. } = *each;
        let Batch { section, shift, cells, met, times, listed } = batch;
        let (layout, replacing) = (context.layout, access.direction == Direction::Write);
        let tables = pages(self.table_bytes(cells, replacing));
        let more_follow = **section != *access.section || mode == Mode::Nested || listed.is_some();
        let mut step = || {
            let _places = self.reserve_files(each, *met)?;
            let budget = terms::budget(access.hints) - tables;
            let batch = Part {
                context,
                access,
                section,
                cells,
                data: access.data.shifted(*shift),
                codecs: layout.encoded.then_some(coding),
                budget,
                tables,
                least,
                more_follow,
                chunk_cache,
                mode,
                times: *times,
                listed: listed.clone(),
            };
            let _tables = batch.reserve_tables()?;
            match access.direction {
                Direction::Write if mode != Mode::Look && layout.encoded => {
                    self.replace(&batch, work)
                }
                Direction::Write if mode != Mode::Look => self.patch(&batch, work),
                _ => self.look(&batch, work),
            }
        };
        match mode.step(context.interrupts, &mut step) {
            // Looking never waits for others, but it opens files.
            Err(refused) if mode == Mode::Look && refused.is_about_files() => {
                admission::in_turn(context.interrupts, step)?;
            }
            done => done?,
        }
        context.interrupts.stop()
    }

    /// Returns the memory that coding takes.
    fn coding(&self, described: &Described, direction: Direction) -> Coding {
        let collected = matches!(self.store, Store::Table(_)) && direction == Direction::Write;
        terms::coding(&described.pipeline, collected.then_some(HANDFUL))
    }

    /// Returns the smallest batch: a chunk, or the chunks of a shard.
    fn unit(&self) -> Cells {
        let mut count = vec![1; self.grid.len()];
        if let Some(shards) = &self.coarse {
            let each = shards.chunk.iter().zip(&self.chunk).zip(&self.grid);
            count = each.map(|((s, c), n)| (s / c).min(*n)).collect();
        }
        Cells { lo: vec![0; count.len()], count }
    }

    /// Returns the bytes of buffer with which any one chunk can be read, or written in part, including its
    /// table.
    pub fn least(&self, layout: &Chunked, described: &Described, direction: Direction) -> i64 {
        let tables = self.table_bytes(&self.unit(), direction == Direction::Write);
        self.least_plan(layout, described, direction).saturating_add(pages(tables))
    }

    /// As [`Chunks::least`], without the table.
    fn least_plan(&self, layout: &Chunked, described: &Described, direction: Direction) -> i64 {
        let coding = self.coding(described, direction);
        let plan = terms::least(layout, &described.pipeline, &coding, direction);
        let made = matches!(self.store, Store::Table(_)) && direction == Direction::Write;
        match made && !layout.encoded {
            true => plan.max(table::to_make(layout.chunk_bytes())),
            false => plan,
        }
    }

    /// Returns the bytes that are held in addition to chunks during a batch.
    fn table_bytes(&self, cells: &Cells, replacing: bool) -> i64 {
        let bytes = match &self.store {
            Store::Core(store) => store.held_bytes(cells, replacing),
            Store::Table(_) => (cells.len() as u64).saturating_mul(BYTES_A_CHUNK),
        };
        i64::try_from(bytes).unwrap_or(i64::MAX / 8)
    }

    /// Returns the number of shards that are looked up together: several, so that threads need not wait for
    /// each other after each shard; not many, because their indices are in memory during the batch.
    fn shards_at_once(&self, shards: &Chunked) -> i64 {
        let chunks = shards.chunk.iter().zip(&self.chunk).map(|(s, c)| s / c).product::<i64>();
        (self.at_once / chunks.max(1)).clamp(1, SHARDS_AT_ONCE)
    }

    /// Plans with the chunks as they are stored now.
    fn look(
        &self,
        batch: &Part,
        work: &mut dyn FnMut(Step) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let (resolved, _guard) = match &self.store {
            Store::Core(store) => {
                let found = store.resolve_some(batch.cells, false, &batch.wanted())?;
                (found, (Reading::of(None), None))
            }
            Store::Table(table) => {
                let guard = batch.patiently(|patience| table.share(patience))?;
                let guard = (Reading::of(guard.as_ref()), guard);
                let locked = guard.1.as_ref().is_some_and(FileLock::flocked);
                (table.resolve(batch.cells, false, locked)?, guard)
            }
        };
        self.refuse_missing(batch, &resolved.table)?;
        self.refuse_to_make(batch, &resolved.table)?;
        batch.step(&resolved, None, work)
    }

    /// Encodes chunks again and stores them, with other writers locked out.
    fn replace(
        &self,
        batch: &Part,
        work: &mut dyn FnMut(Step) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let _guard = batch.patiently(|patience| match &self.store {
            Store::Core(store) => store.lock(batch.cells, patience).map(Some),
            Store::Table(table) => table.lock(patience),
        })?;
        if let Store::Table(table) = &self.store {
            table.stretch()?;
        }
        // A chunk that is covered completely is not read: its old file need not even be opened, and the
        // library's own lock is needed only for storing. The same holds for a chunk none of whose elements is
        // written.
        let in_part = |cell: &Vec<i64>| batch.touches(cell) && !batch.covers(cell);
        let held = match &self.store {
            Store::Table(table) if batch.cells.iter().any(|cell| in_part(&cell)) => table.hold()?,
            _ => None,
        };
        let room = AtomicUsize::new(0);
        let (before, sink) = match &self.store {
            Store::Core(store) => (
                store.resolve_some(batch.cells, false, &|cell| in_part(&cell.to_vec()))?,
                store.begin(batch.cells, &|cell| batch.touches(cell))?,
            ),
            Store::Table(table) => {
                let largest = batch.context.described.pipeline.encoded_bound();
                (table.resolve(batch.cells, false, held.is_some())?, table.begin(largest, &room))
            }
        };
        let commit = |chunk: &[i64], mask: u32, bytes: &[u8]| sink.commit(chunk, mask, bytes);
        batch.step(&before, Some(&commit), &mut |step| {
            room.store(usize::try_from(step.plan.held()).unwrap_or(0), Ordering::Relaxed);
            work(step)
        })?;
        sink.finish()?;
        Ok(())
    }

    /// Writes into chunks that are stored without encoding.
    fn patch(
        &self,
        batch: &Part,
        work: &mut dyn FnMut(Step) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let fill = &batch.context.described.fill;
        match &self.store {
            Store::Core(store) => {
                let place = batch.patiently(|wait| {
                    store.in_place_some(batch.cells, fill, &batch.wanted(), wait)
                })?;
                batch.step(&place.resolved, None, work)
            }
            Store::Table(table) => {
                if table.is_short() {
                    let _guard = batch.patiently(|patience| table.lock(patience))?;
                    table.stretch()?;
                }
                let (place, guard) = batch
                    .patiently(|wait| table.in_place(batch.cells, fill, &batch.wanted(), wait))?;
                let _reading = Reading::of(guard.as_ref());
                batch.step(&place, None, work)
            }
        }
    }

    /// Returns an error if a write must first create chunks that are stored without encoding, and memory is
    /// too short for that.
    fn refuse_to_make(&self, batch: &Part, table: &ChunkTable) -> Result<(), Fault> {
        let makes = batch.access.direction == Direction::Write && batch.codecs.is_none();
        if !makes || matches!(self.store, Store::Core(_)) {
            return Ok(());
        }
        let needed = table::to_make(batch.context.layout.chunk_bytes());
        let wanted = batch.wanted();
        let mut chunks = batch.cells.iter().zip(&table.stored);
        if needed <= batch.budget || chunks.all(|(cell, at)| at.is_some() || !wanted(&cell)) {
            return Ok(());
        }
        let (what, budget) = ("creating a chunk", batch.budget);
        let needed = needed.saturating_add(batch.tables);
        let error = PlanError::BudgetTooSmall { what, needed, budget };
        Err(terms::refused(error, batch.access.hints, batch.ours(0)).into())
    }

    fn refuse_missing(&self, batch: &Part, table: &ChunkTable) -> Result<(), Fault> {
        if !batch.access.hints.missing_is_error || batch.access.direction == Direction::Write {
            return Ok(());
        }
        for (cell, stored) in batch.cells.iter().zip(&table.stored) {
            if stored.is_none() && batch.touches(&cell) {
                let path = &batch.context.described.path;
                let reason = Reason::MissingChunk { path: path.clone(), chunk: cell };
                return Err(Fault::from(reason).at(path));
            }
        }
        Ok(())
    }
}

/// State that all batches of an access share.
struct Each<'a> {
    context: &'a Context<'a>,
    access: &'a Access<'a>,
    mode: Mode,
    coding: Coding,
    /// Budget that is enough for a plan, whatever is stored.
    least: i64,
    chunk_cache: CacheUse,
    /// Grid of the units of batches: chunks or shards.
    grouping: &'a Chunked,
    /// Number of these units in one batch.
    at_once: i64,
}

/// Chunks that are processed together, and the request.
struct Batch<'a> {
    section: &'a Section,
    /// Bytes from the caller's first element to the one for index `[0, ..., 0]` of the section.
    shift: i64,
    cells: Cells,
    /// Number of chunks, or shards, that hold a requested element.
    met: i64,
    times: i64,
    listed: Option<PartPoints<'a>>,
}

/// Returns how an access uses the cached decoded chunks.
fn chunk_cache(layout: &Chunked, access: &Access) -> Result<CacheUse, StorageError> {
    let reads = access.direction == Direction::Read && layout.encoded;
    if !reads || access.hints.cache == Cache::Bypass {
        return Ok(CacheUse::Never);
    }
    let bytes = layout.met(access.section)?.saturating_mul(layout.chunk_bytes());
    Ok(Arena::global().cache_use(bytes))
}

/// Returns the grid whose cells are shards.
fn coarse(layout: &Chunked, shard: &Shard) -> Result<Chunked, StorageError> {
    let too_large = || StorageError::BadJob("a shard has more than 2^63 elements".into());
    let cells = layout.chunk.iter().zip(&shard.per_shard);
    let chunk: Option<Vec<i64>> = cells.map(|(c, n)| c.checked_mul(*n)).collect();
    let chunk = chunk.ok_or_else(too_large)?;
    let strides = Order::C.strides(&chunk, layout.item)?;
    Ok(Chunked::new(layout.shape.clone(), layout.item, chunk, strides, false, 0)?)
}

fn to_i64(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

mod listed;
#[cfg(test)]
mod tests;
