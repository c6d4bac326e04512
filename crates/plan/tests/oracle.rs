//! Rules 4 to 6 of `DESIGN.md`, and the exactness of `Cost`: random plans are run byte by byte and
//! compared with an enumeration of the elements that knows only the definition of each layout.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{encode, World};
use outcore_plan::*;
use proptest::prelude::*;

/// Numbers that decide a case; zeros once they are used up, so that cases shrink to simple ones.
struct Dice {
    numbers: Vec<u32>,
    next: usize,
}

impl Dice {
    fn below(&mut self, n: i64) -> i64 {
        let number = self.numbers.get(self.next).copied().unwrap_or(0);
        self.next += 1;
        i64::from(number) % n.max(1)
    }

    fn yes(&mut self) -> bool {
        self.below(2) == 1
    }

    fn one_of<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as i64) as usize]
    }

    fn permutation(&mut self, n: usize) -> Vec<usize> {
        let mut p: Vec<usize> = (0..n).collect();
        (1..n).for_each(|k| p.swap(k, k - self.below(k as i64 + 1) as usize));
        p
    }

    /// Nested strides in some order of the axes, padded now and then.
    fn strides(&mut self, shape: &[i64], item: i64, unit: i64, padded: bool) -> Vec<i64> {
        let mut strides = vec![0; shape.len()];
        let mut stride = item;
        let order = match self.below(3) {
            0 => (0..shape.len()).rev().collect(),
            1 => (0..shape.len()).collect(),
            _ => self.permutation(shape.len()),
        };
        for d in order {
            if padded && self.below(4) == 3 {
                stride += unit * (1 + self.below(5));
            }
            strides[d] = stride;
            stride *= shape[d].max(1);
        }
        strides
    }

    fn bytes(&mut self, n: i64) -> Vec<u8> {
        let mut state = self.below(1 << 30) as u64 | 1;
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as u8
        };
        (0..n).map(|_| next()).collect()
    }
}

struct Case {
    layout: Layout,
    table: Option<ChunkTable>,
    section: Section,
    user_stride: Vec<i64>,
    direction: Direction,
    terms: Terms,
    files: Vec<Vec<u8>>,
    fill: Vec<u8>,
    user: Vec<u8>,
    zero: i64,
    cut: i64,
}

/// The case without its bytes.
impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let files: Vec<_> = self.files.iter().map(Vec::len).collect();
        let Case { layout, table, section, user_stride, direction, terms, .. } = self;
        writeln!(f, "{direction:?} {section} user {user_stride:?} files {files:?}")?;
        writeln!(f, "{layout:?}\n{table:?}\n{terms:?}")
    }
}

fn section(dice: &mut Dice, shape: &[i64]) -> Section {
    let range = |n: &i64| {
        if *n == 0 || dice.below(25) == 24 {
            return Range::new(0, 0, 1).unwrap();
        }
        if dice.below(3) == 0 {
            return Range::new(0, *n, 1).unwrap();
        }
        let start = dice.below(*n);
        let step = 1 + dice.below(3);
        let most = (n - start - 1) / step + 1;
        Range::new(start, 1 + dice.below(most), step).unwrap()
    };
    Section::new(shape.iter().map(range).collect())
}

fn strided(dice: &mut Dice, shape: &[i64], item: i64) -> (Layout, Vec<Vec<u8>>) {
    let pieces = 1 + if dice.yes() { dice.below(4) } else { 0 };
    let unit = if pieces > 1 { item } else { 1 };
    let strides = dice.strides(shape, item, unit, true);
    let span: i64 = shape.iter().zip(&strides).map(|(n, s)| (n - 1).max(0) * s).sum::<i64>() + item;
    let mut files = Vec::new();
    let mut parts = Vec::new();
    let mut left = span;
    for k in 0..pieces {
        let len = if k + 1 == pieces { left } else { dice.below(left / item + 1) * item };
        left -= len;
        let offset = if dice.yes() { dice.below(200) } else { 0 };
        parts.push(Part { file: k as u32, offset, len });
        let behind = dice.below(100);
        files.push(dice.bytes(offset + len + behind));
    }
    let layout = Strided::new(shape.to_vec(), item, strides, parts).unwrap();
    (Layout::Strided(layout), files)
}

fn chunked(dice: &mut Dice, shape: &[i64], item: i64) -> (Layout, ChunkTable, Vec<Vec<u8>>) {
    let chunk: Vec<i64> = shape.iter().map(|n| 1 + dice.below(n + 2)).collect();
    let strides = dice.strides(&chunk, item, 1, false);
    let encoded = dice.yes();
    let bytes = chunk.iter().product::<i64>() * item;
    let layout = Chunked::new(shape.to_vec(), item, chunk, strides, encoded, bytes + 3).unwrap();
    let count = layout.grid();
    let cells = count.iter().product::<i64>();
    let mut files = vec![dice.bytes(10), dice.bytes(0)];
    let mut stored = Vec::new();
    for _ in 0..cells {
        if dice.below(4) == 3 {
            stored.push(None);
            continue;
        }
        let f = dice.below(2) as usize;
        let raw = dice.bytes(bytes);
        let chunk = if encoded { encode(&raw) } else { raw };
        let offset = files[f].len() as i64;
        stored.push(Some(Stored { file: f as u32, offset, len: chunk.len() as i64, mask: 0 }));
        files[f].extend(chunk);
        let hole = dice.below(30);
        files[f].extend(dice.bytes(hole));
    }
    let table = ChunkTable::new(vec![0; shape.len()], count, stored).unwrap();
    (Layout::Chunked(layout), table, files)
}

fn terms(dice: &mut Dice) -> Terms {
    let mut t = Terms::new(dice.one_of(&[1 << 24, 100_000, 20_000, 3000, 400, 30, 1]));
    t.lanes = 1 + dice.below(4);
    t.cached_permille = dice.one_of(&[0, 1000, 500]);
    t.block = dice.one_of(&[512, 64, 16]);
    t.gap = dice.one_of(&[2000, 100, 10, 0, 0]);
    t.cached_gap = dice.one_of(&[200, 20, 0]);
    t.straight = dice.one_of(&[1, 16, 4096]);
    t.request = dice.one_of(&[1 << 20, 1024, 70, 1]);
    t.window = dice.one_of(&[100_000, 1000, 50]);
    t.share = dice.one_of(&[1 << 20, 500, 50, 1]);
    t.threads = 1 + dice.below(2);
    t.flushed = dice.yes();
    t.mapping = dice.yes();
    t.direct = dice.below(4) > 0;
    t.exclusive = dice.yes();
    t.scarce = dice.yes();
    t.method = dice.one_of(&[
        None,
        Some(Method::Straight),
        Some(Method::Window),
        Some(Method::Mapped),
        Some(Method::List),
        Some(Method::Chunks),
        Some(Method::List),
        Some(Method::Window),
    ]);
    t
}

/// Puts the caller's array where it lies in pages as it does in the file; where it does not, now and
/// then.
fn at_home(case: &mut Case, dice: &mut Dice) {
    let Layout::Strided(layout) = &case.layout else { return };
    let starts = case.section.ranges().iter().map(|range| range.start);
    let first: i64 = starts.zip(&layout.strides).map(|(start, stride)| start * stride).sum();
    let at = layout.parts[0].offset + first + i64::from(dice.below(8) == 7);
    case.terms.home = Some(Home { at, page: dice.one_of(&[16, 64, 256]) });
    // Arrays are small here; requests for the ends of what is brought home cost nothing.
    case.terms.rates.latency_ns = 0;
}

/// What codecs take; for chunks that are not encoded it must not matter.
fn coding(dice: &mut Dice) -> Coding {
    let (decoder, encoder) = (dice.one_of(&[0, 64, 1000]), dice.one_of(&[0, 77, 5000]));
    Coding {
        decode_scratch: dice.one_of(&[0, 50, 700]),
        encode_scratch: dice.one_of(&[0, 900]),
        decoder,
        encoder,
        both: decoder + encoder,
        held: dice.one_of(&[0, 300]),
        spare: dice.one_of(&[0, 10_000]),
    }
}

fn case(numbers: Vec<u32>) -> Case {
    let mut dice = Dice { numbers, next: 0 };
    let direction = dice.one_of(&[Direction::Read, Direction::Write]);
    let mut terms = terms(&mut dice);
    let item = dice.one_of(&[1, 2, 4, 8, 3, 12, 40]);
    let ndim = dice.below(6);
    let longest = if dice.below(3) == 2 { [1, 3000, 60, 20, 8, 5] } else { [1, 40, 17, 8, 5, 4] };
    let shape: Vec<i64> = (0..ndim)
        .map(|_| if dice.below(40) == 39 { 0 } else { 1 + dice.below(longest[ndim as usize]) })
        .collect();
    let section = section(&mut dice, &shape);
    let (layout, table, files) = if dice.below(5) < 3 {
        let (layout, files) = strided(&mut dice, &shape, item);
        (layout, None, files)
    } else {
        let (layout, table, files) = chunked(&mut dice, &shape, item);
        (layout, Some(table), files)
    };
    let encoded = matches!(&layout, Layout::Chunked(l) if l.encoded);
    terms.coding = coding(&mut dice);
    let impossible = encoded && terms.method != Some(Method::Chunks)
        || table.is_none() && terms.method == Some(Method::Chunks)
        || terms.method == Some(Method::Mapped) && !terms.mapping;
    if impossible && dice.below(10) > 0 {
        terms.method = None;
    }
    let mut user_stride = dice.strides(&section.shape(), item, 1, true);
    for s in &mut user_stride {
        match dice.below(8) {
            6 => *s = -*s,
            7 if direction == Direction::Write => *s = 0,
            _ => {}
        }
    }
    let reach = |sign: i64| -> i64 {
        let along = section.shape().into_iter().zip(&user_stride);
        along.map(|(n, s)| ((n - 1).max(0) * s * sign).max(0)).sum()
    };
    let zero = reach(-1) + dice.below(20);
    let len = zero + reach(1) + item + dice.below(20);
    let user = dice.bytes(len);
    let fill = dice.bytes(item);
    let cut = 1 + dice.below(6);
    Case { layout, table, section, user_stride, direction, terms, files, fill, user, zero, cut }
}

/// Where an element lives, from the definition of its layout alone.
enum Byte {
    File(usize, usize),
    Chunk(Vec<i64>, usize),
}

fn homes(case: &Case, index: &[i64]) -> Byte {
    match &case.layout {
        Layout::Strided(l) => {
            let mut at: i64 = index.iter().zip(&l.strides).map(|(i, s)| i * s).sum();
            for p in &l.parts {
                if at < p.len {
                    return Byte::File(p.file as usize, (p.offset + at) as usize);
                }
                at -= p.len;
            }
            panic!("no part holds {index:?}")
        }
        Layout::Chunked(l) => {
            let cell: Vec<i64> = index.iter().zip(&l.chunk).map(|(i, c)| i / c).collect();
            let inner = index.iter().zip(&l.chunk).zip(&l.strides);
            let at: i64 = inner.map(|((i, c), s)| i % c * s).sum();
            let stored = case.table.as_ref().unwrap().entry(&cell).unwrap();
            match stored {
                Some(s) if !l.encoded => Byte::File(s.file as usize, (s.offset + at) as usize),
                _ => Byte::Chunk(cell, at as usize),
            }
        }
    }
}

/// The decoded chunk as it was before.
fn old_chunk(case: &Case, cell: &[i64]) -> Vec<u8> {
    let Layout::Chunked(l) = &case.layout else { panic!() };
    match case.table.as_ref().unwrap().entry(cell).unwrap() {
        None => {
            let elements = (l.chunk_bytes() / l.item) as usize;
            case.fill.iter().copied().cycle().take(elements * l.item as usize).collect()
        }
        Some(s) => {
            let stored =
                &case.files[s.file as usize][s.offset as usize..(s.offset + s.len) as usize];
            if l.encoded {
                common::decode(stored)
            } else {
                stored.to_vec()
            }
        }
    }
}

fn item_of(case: &Case) -> usize {
    (match &case.layout {
        Layout::Strided(l) => l.item,
        Layout::Chunked(l) => l.item,
    }) as usize
}

/// The byte in the caller's array at which each element of the section begins, in C order.
fn user_places(case: &Case) -> Vec<usize> {
    let positions = Section::whole(&case.section.shape()).unwrap();
    let at = |p: Vec<i64>| -> i64 { p.iter().zip(&case.user_stride).map(|(i, s)| i * s).sum() };
    positions.indices().map(|p| (case.zero + at(p)) as usize).collect()
}

fn check_read(case: &Case, world: &World) {
    let item = item_of(case);
    let mut expected = case.user.clone();
    let mut times = vec![0; expected.len()];
    for (index, at) in case.section.indices().zip(user_places(case)) {
        let element = match homes(case, &index) {
            Byte::File(f, b) => case.files[f][b..b + item].to_vec(),
            Byte::Chunk(cell, b) => old_chunk(case, &cell)[b..b + item].to_vec(),
        };
        expected[at..at + item].copy_from_slice(&element);
        times[at..at + item].fill(1);
    }
    assert_eq!(expected, world.user);
    assert_eq!(times, world.user_writes, "every byte once");
    assert_eq!(case.files, world.files);
    assert!(world.chunks.is_empty());
}

fn check_write(case: &Case, world: &World) {
    let item = item_of(case);
    let mut files = case.files.clone();
    let mut asked: Vec<Vec<u8>> = files.iter().map(|f| vec![0; f.len()]).collect();
    let mut chunks = std::collections::BTreeMap::new();
    for (index, at) in case.section.indices().zip(user_places(case)) {
        let element = &case.user[at..at + item];
        match homes(case, &index) {
            Byte::File(f, b) => {
                files[f][b..b + item].copy_from_slice(element);
                asked[f][b..b + item].fill(1);
            }
            Byte::Chunk(cell, b) => {
                let chunk = chunks.entry(cell.clone()).or_insert_with(|| old_chunk(case, &cell));
                chunk[b..b + item].copy_from_slice(element);
            }
        }
    }
    if case.terms.method == Some(Method::Chunks) && case.table.is_some() {
        check_forced_chunks(case, world, &files, &chunks);
        return;
    }
    for (cell, chunk) in &chunks {
        same_inside(case, cell, chunk, &world.chunks[cell]);
    }
    assert_eq!(chunks.len(), world.chunks.len());
    assert_eq!(files, world.files);
    for (asked, times) in asked.iter().flatten().zip(world.file_writes.iter().flatten()) {
        assert!(times >= asked && *times <= 1, "a byte of a file written {times} times");
        assert!(case.terms.exclusive || times == asked, "a byte outside the section is written");
    }
}

/// Chunks stored as they are, but rewritten as a whole because a hint says so.
fn check_forced_chunks(
    case: &Case,
    world: &World,
    files: &[Vec<u8>],
    chunks: &std::collections::BTreeMap<Vec<i64>, Vec<u8>>,
) {
    assert_eq!(case.files, world.files);
    let table = case.table.as_ref().unwrap();
    for (cell, chunk) in &world.chunks {
        let expected = match (chunks.get(cell), table.entry(cell).unwrap()) {
            (Some(chunk), _) => chunk.clone(),
            (None, Some(s)) => {
                files[s.file as usize][s.offset as usize..(s.offset + s.len) as usize].to_vec()
            }
            (None, None) => panic!("chunk {cell:?} written for nothing"),
        };
        same_inside(case, cell, &expected, chunk);
    }
}

/// Equal in all elements that the array has; what an edge chunk holds beyond is free or filled.
fn same_inside(case: &Case, cell: &[i64], expected: &[u8], actual: &[u8]) {
    let Layout::Chunked(l) = &case.layout else { panic!() };
    for local in Section::whole(&l.chunk).unwrap().indices() {
        let outside = (0..cell.len()).any(|d| cell[d] * l.chunk[d] + local[d] >= l.shape[d]);
        let at: i64 = local.iter().zip(&l.strides).map(|(i, s)| i * s).sum();
        let range = at as usize..(at + l.item) as usize;
        if outside {
            let padding = &actual[range.clone()];
            assert!(padding == &expected[range] || padding == case.fill);
        } else {
            assert_eq!(expected[range.clone()], actual[range]);
        }
    }
}

fn verify(case: &Case) -> &'static str {
    let request = Request {
        layout: &case.layout,
        table: case.table.as_ref(),
        section: &case.section,
        user_stride: &case.user_stride,
        direction: case.direction,
    };
    let plan = match Plan::new(&request, &case.terms) {
        Ok(plan) => plan,
        Err(PlanError::BudgetTooSmall { needed, .. }) => {
            check_refusal(&request, &case.terms, needed);
            return "budget";
        }
        Err(PlanError::Impossible { .. }) => return "impossible",
        Err(error) => panic!("{error}"),
    };
    assert_eq!(plan, Plan::new(&request, &case.terms).unwrap());
    // More than asked for only where rounds are small and come from the disk.
    assert!((1..=case.terms.lanes.max(16)).contains(&plan.lanes()));
    let peak = plan.lane_bytes() * plan.lanes() + plan.held();
    assert!(peak <= case.terms.budget, "{}", plan.text());
    assert!(!plan.text().is_empty());
    if let (Some(method), true) = (case.terms.method, plan.rounds() > 0) {
        assert_eq!(method, plan.method());
    }
    let mut world = World::new(
        case.files.clone(),
        case.user.clone(),
        case.zero,
        case.fill.clone(),
        case.terms.block,
    );
    world.encoded = matches!(&case.layout, Layout::Chunked(l) if l.encoded);
    world.home = case.terms.home.map(|home| home.at);
    world.run(&plan);
    world.cost.useful_bytes = case.section.count().unwrap() * item_of(case) as i64;
    world.cost.peak_bytes =
        plan.lane_bytes() * plan.lanes().min(plan.rounds() as i64) + plan.held();
    let coding = case.terms.coding;
    let contexts = match (world.cost.decodes > 0, world.cost.encodes > 0) {
        (false, false) => 0,
        (true, false) => coding.decoder,
        (false, true) => coding.encoder,
        (true, true) => coding.both,
    };
    assert_eq!(contexts, plan.contexts());
    assert_eq!((world.cost.decodes > 0, world.cost.encodes > 0), plan.codes());
    assert!(world.cost.encodes == 0 || plan.held() >= coding.held);
    assert_eq!(world.cost, plan.cost(), "cost\n{}", plan.text());
    match case.direction {
        Direction::Read => check_read(case, &world),
        Direction::Write => check_write(case, &world),
    }
    plan.method().name()
}

/// The budget named in a refusal is the smallest that does, and any larger one does as well.
fn check_refusal(request: &Request, terms: &Terms, needed: i64) {
    assert!(needed > terms.budget);
    for more in [0, 1, 63, 64, 999, needed / 3, needed, 5 * needed, 1 << 40] {
        Plan::new(request, &Terms { budget: needed + more, ..terms.clone() }).unwrap();
    }
    let less = Plan::new(request, &Terms { budget: needed - 1, ..terms.clone() });
    assert!(matches!(less, Err(PlanError::BudgetTooSmall { .. })), "{less:?}");
}

/// Batches of chunks are a partition of the section, each within its limit.
fn check_batches(case: &Case) {
    let Layout::Chunked(layout) = &case.layout else { return };
    let mut found = Vec::new();
    for batch in layout.batches(&case.section, case.cut).unwrap() {
        assert!(layout.touched(&batch.section).unwrap().cells().unwrap() <= case.cut);
        for (d, r) in batch.section.ranges().iter().enumerate() {
            let whole = case.section.ranges()[d];
            assert_eq!(whole.start + batch.at[d] * whole.step, r.start);
        }
        found.extend(batch.section.indices());
    }
    found.sort();
    let mut expected: Vec<_> = case.section.indices().collect();
    expected.sort();
    assert_eq!(expected, found);
}

/// Changes one number somewhere in a round.
fn corrupt(round: &mut Round, dice: &mut Dice) {
    let mut numbers: Vec<&mut i64> = Vec::new();
    for t in round.reads.iter_mut().chain(&mut round.writes) {
        let e = &mut t.extents;
        numbers.extend([&mut e.offset, &mut e.len, &mut t.at]);
        numbers.extend(e.count.iter_mut().chain(&mut e.stride).chain(&mut t.at_stride));
    }
    for m in &mut round.moves {
        numbers.extend([&mut m.src_at, &mut m.dst_at, &mut m.item]);
        numbers.extend(m.count.iter_mut().chain(&mut m.src_stride).chain(&mut m.dst_stride));
    }
    for c in &mut round.chunk_writes {
        numbers.extend([&mut c.at, &mut c.len, &mut c.staged_at, &mut c.scratch, &mut c.bound]);
    }
    for c in &mut round.chunk_reads {
        let s = &mut c.stored;
        numbers.extend([&mut s.offset, &mut s.len, &mut c.staged_at, &mut c.at, &mut c.len]);
        numbers.extend([&mut c.scratch_at, &mut c.scratch]);
    }
    numbers.push(&mut round.slot_bytes);
    let k = dice.below(numbers.len() as i64) as usize;
    let old = *numbers[k];
    *numbers[k] = match dice.below(8) {
        0 => old + 1,
        1 => old - 1,
        2 => -old,
        3 => 0,
        4 => old.saturating_mul(2),
        5 => i64::MAX - dice.below(100),
        6 => i64::MIN + dice.below(100),
        _ => old + dice.below(2000) - 1000,
    };
}

/// A round that passes the check touches nothing outside its places, whatever it is.
fn check_corrupted(case: &Case, dice: &mut Dice) {
    let request = Request {
        layout: &case.layout,
        table: case.table.as_ref(),
        section: &case.section,
        user_stride: &case.user_stride,
        direction: case.direction,
    };
    let Ok(plan) = Plan::new(&request, &case.terms) else { return };
    if plan.rounds() == 0 {
        return;
    }
    let mut round = plan.round(dice.below(plan.rounds().min(1 << 30) as i64) as u64).unwrap();
    corrupt(&mut round, dice);
    let (files, user) = (case.files.clone(), case.user.clone());
    let mut world = World::new(files, user, case.zero, case.fill.clone(), case.terms.block);
    world.home = case.terms.home.map(|home| home.at);
    if let Ok(round) = check(round, &world.bounds(plan.slot_bytes())) {
        world.touch(&round);
    }
}

fn numbers(seed: u64) -> Vec<u32> {
    let mut state = seed.wrapping_mul(0x9E3779B97F4A7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 16) as u32
    };
    (0..160).map(|_| next()).collect()
}

/// What a case exercised, for the test of the tests.
fn kinds(case: &Case, method: &str, plan: Option<&Plan>) -> Vec<String> {
    let way = if case.direction == Direction::Read { "read" } else { "write" };
    let layout = match &case.layout {
        Layout::Strided(l) if l.parts.len() > 1 => "parts",
        Layout::Strided(_) => "strided",
        Layout::Chunked(l) if l.encoded => "encoded",
        Layout::Chunked(_) => "chunks",
    };
    let mut kinds = vec![format!("{way} {layout} {method}")];
    let Some(plan) = plan else { return kinds };
    if plan.rounds() > 1 {
        kinds.push(format!("{way} {layout} {method} rounds"));
    }
    for k in 0..plan.rounds() {
        let round = plan.round(k).unwrap();
        if !round.reads.is_empty() && !round.writes.is_empty() {
            kinds.push(format!("patch {layout}"));
        }
        for t in round.reads.iter().chain(&round.writes).filter(|t| t.channel == Channel::Direct) {
            let home = if t.memory == Place::User { " home" } else { "" };
            kinds.push(format!("direct {way} {layout}{home}"));
            if t.extents.count.iter().zip(&t.extents.stride).any(|(_, s)| s % case.terms.block != 0)
            {
                kinds.push(format!("direct {way} {layout} anywhere in blocks"));
            }
            if t.extents.count.len() > 1 {
                kinds.push(format!("direct {way} {layout} families"));
            }
        }
        if round.chunk_reads.len() > 1 {
            kinds.push(format!("{way} {layout} chunks together"));
        }
        if !round.chunk_reads.is_empty() && !round.chunk_writes.is_empty() {
            kinds.push(format!("{layout} chunk changed"));
        }
    }
    kinds.sort();
    kinds.dedup();
    kinds
}

#[test]
#[ignore = "prints what the random cases cover"]
fn coverage() {
    let mut seen = std::collections::BTreeMap::new();
    for seed in 0..20_000 {
        let case = case(numbers(seed));
        let method = verify(&case);
        let request = Request {
            layout: &case.layout,
            table: case.table.as_ref(),
            section: &case.section,
            user_stride: &case.user_stride,
            direction: case.direction,
        };
        let plan = Plan::new(&request, &case.terms).ok();
        for kind in kinds(&case, method, plan.as_ref()) {
            *seen.entry(kind).or_insert(0) += 1;
        }
    }
    seen.iter().for_each(|(kind, n)| println!("{n:6} {kind}"));
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 15_000, failure_persistence: None, max_shrink_iters: 4000, ..ProptestConfig::default()
    })]

    #[test]
    fn plans_do_what_was_asked(numbers in prop::collection::vec(any::<u32>(), 160)) {
        let case = case(numbers);
        let outcome = std::panic::catch_unwind(|| verify(&case));
        prop_assert!(outcome.is_ok(), "{case:#?}");
        check_batches(&case);
    }

    #[test]
    fn rare_ways_do_what_was_asked(
        mut numbers in prop::collection::vec(any::<u32>(), 160),
        way in 0..7_usize,
        sizes in prop::collection::vec(any::<u32>(), 8),
    ) {
        numbers[0] = [1, 0, 1, 0, 0, 1, 1][way];
        let mut case = case(numbers);
        let mut dice = Dice { numbers: sizes, next: 0 };
        let encoded = matches!(&case.layout, Layout::Chunked(l) if l.encoded);
        let t = &mut case.terms;
        (t.budget, t.mapping, t.direct, t.exclusive) = (1 << 24, true, true, true);
        (t.share, t.window) = (dice.one_of(&[1, 50, 500]), dice.one_of(&[30, 300, 3000]));
        t.gap = dice.one_of(&[0, 20, 300]);
        t.cached_gap = t.gap;
        t.request = dice.one_of(&[16, 64, 256]);
        t.block = dice.one_of(&[16, 64]);
        let methods = [Method::Window, Method::List, Method::List, Method::Mapped];
        t.method = (!encoded).then_some(*methods.get(way).unwrap_or(&Method::List));
        if way >= 5 {
            (t.method, t.scarce, t.cached_permille) = (None, true, 0);
            (t.straight, t.share) = (dice.one_of(&[16, 64]), dice.one_of(&[60, 300, 3000]));
        }
        if way == 4 || way == 6 {
            at_home(&mut case, &mut dice);
        }
        let outcome = std::panic::catch_unwind(|| verify(&case));
        prop_assert!(outcome.is_ok(), "{case:#?}");
    }

    #[test]
    fn corrupted_rounds_do_no_harm(
        numbers in prop::collection::vec(any::<u32>(), 160),
        change in prop::collection::vec(any::<u32>(), 5),
    ) {
        let case = case(numbers);
        let outcome = std::panic::catch_unwind(|| {
            check_corrupted(&case, &mut Dice { numbers: change, next: 0 });
        });
        prop_assert!(outcome.is_ok(), "{case:?}");
    }
}
