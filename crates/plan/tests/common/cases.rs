//! Random cases and their expected results.
//!
//! The results come from an enumeration of elements that uses only the definition of each layout.

#![allow(dead_code, reason = "each test uses some of it")]

use outcore_plan::*;

use super::{decode, encode, World};

/// Numbers that determine a case; zeros once they are used up, so that cases shrink to simple ones.
pub struct Dice {
    pub numbers: Vec<u32>,
    pub next: usize,
}

impl Dice {
    pub fn below(&mut self, n: i64) -> i64 {
        let number = self.numbers.get(self.next).copied().unwrap_or(0);
        self.next += 1;
        i64::from(number) % n.max(1)
    }

    pub fn yes(&mut self) -> bool {
        self.below(2) == 1
    }

    pub fn one_of<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as i64) as usize]
    }

    pub fn permutation(&mut self, n: usize) -> Vec<usize> {
        let mut p: Vec<usize> = (0..n).collect();
        (1..n).for_each(|k| p.swap(k, k - self.below(k as i64 + 1) as usize));
        p
    }

    /// Nested strides in some order of the axes, sometimes padded.
    pub fn strides(&mut self, shape: &[i64], item: i64, unit: i64, padded: bool) -> Vec<i64> {
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

    pub fn bytes(&mut self, n: i64) -> Vec<u8> {
        let mut state = self.below(1 << 30) as u64 | 1;
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as u8
        };
        (0..n).map(|_| next()).collect()
    }
}

pub struct Case {
    pub layout: Layout,
    pub table: Option<ChunkTable>,
    pub section: Section,
    pub user_stride: Vec<i64>,
    pub direction: Direction,
    pub terms: Terms,
    pub files: Vec<Vec<u8>>,
    pub fill: Vec<u8>,
    pub user: Vec<u8>,
    pub zero: i64,
    pub cut: i64,
    /// Elements that are chosen one by one; the section applies to the other axes.
    pub lists: Option<Listed>,
}

/// Index lists along some axes.
#[derive(Debug, Clone)]
pub struct Listed {
    pub axes: Vec<usize>,
    pub lists: Vec<Vec<i64>>,
    pub kind: Kind,
    /// Bytes between points in the caller's array.
    pub point: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Points,
    Outer,
    Flat,
}

/// The case without its bytes.
impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let files: Vec<_> = self.files.iter().map(Vec::len).collect();
        let Case { layout, table, section, user_stride, direction, terms, lists, .. } = self;
        writeln!(f, "{direction:?} {section} user {user_stride:?} files {files:?}")?;
        writeln!(f, "{lists:?}\n{layout:?}\n{table:?}\n{terms:?}")
    }
}

pub fn section(dice: &mut Dice, shape: &[i64]) -> Section {
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

pub fn strided(dice: &mut Dice, shape: &[i64], item: i64) -> (Layout, Vec<Vec<u8>>) {
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

pub fn chunked(dice: &mut Dice, shape: &[i64], item: i64) -> (Layout, ChunkTable, Vec<Vec<u8>>) {
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

pub fn terms(dice: &mut Dice) -> Terms {
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

/// Aligns the caller's array with pages as in the file, or sometimes differently.
pub fn at_home(case: &mut Case, dice: &mut Dice) {
    let Layout::Strided(layout) = &case.layout else { return };
    let starts = case.section.ranges().iter().map(|range| range.start);
    let first: i64 = starts.zip(&layout.strides).map(|(start, stride)| start * stride).sum();
    let at = layout.parts[0].offset + first + i64::from(dice.below(8) == 7);
    case.terms.home = Some(Home { at, page: dice.one_of(&[16, 64, 256]) });
    // Arrays are small here; requests for the ends of directly read runs have no latency.
    case.terms.rates.latency_ns = 0;
}

/// Memory of codecs; it must not matter for chunks that are not encoded.
pub fn coding(dice: &mut Dice) -> Coding {
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

pub fn case(numbers: Vec<u32>) -> Case {
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
    Case {
        layout,
        table,
        section,
        user_stride,
        direction,
        terms,
        files,
        fill,
        user,
        zero,
        cut,
        lists: None,
    }
}

/// Location of an element, from the definition of its layout alone.
pub enum Byte {
    File(usize, usize),
    Chunk(Vec<i64>, usize),
}

pub fn homes(case: &Case, index: &[i64]) -> Byte {
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

/// The decoded chunk before the write.
pub fn old_chunk(case: &Case, cell: &[i64]) -> Vec<u8> {
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
                decode(stored)
            } else {
                stored.to_vec()
            }
        }
    }
}

pub fn item_of(case: &Case) -> usize {
    (match &case.layout {
        Layout::Strided(l) => l.item,
        Layout::Chunked(l) => l.item,
    }) as usize
}

/// The requested elements, in the order in which they are written.
///
/// Each has the byte in the caller's array at which it begins.
pub fn elements(case: &Case) -> Vec<(Vec<i64>, usize)> {
    let along = |p: &[i64]| -> i64 { p.iter().zip(&case.user_stride).map(|(i, s)| i * s).sum() };
    let Some(listed) = &case.lists else {
        let positions = Section::whole(&case.section.shape()).unwrap();
        let places = positions.indices().map(|p| (case.zero + along(&p)) as usize);
        return case.section.indices().zip(places).collect();
    };
    let shape = match &case.layout {
        Layout::Strided(l) => &l.shape,
        Layout::Chunked(l) => &l.shape,
    };
    let wrap = |i: i64, n: i64| if i < 0 { i + n } else { i };
    let points: Vec<Vec<i64>> = match listed.kind {
        Kind::Points => (0..listed.lists[0].len())
            .map(|k| {
                let axes = listed.axes.iter().zip(&listed.lists);
                axes.map(|(axis, list)| wrap(list[k], shape[*axis])).collect()
            })
            .collect(),
        Kind::Outer => {
            let mut all = vec![vec![]];
            for (axis, list) in listed.axes.iter().zip(&listed.lists) {
                let next = |p: &Vec<i64>| {
                    let p = p.clone();
                    let index = |i: &i64| [&p[..], &[wrap(*i, shape[*axis])]].concat();
                    list.iter().map(index).collect::<Vec<_>>()
                };
                all = all.iter().flat_map(next).collect();
            }
            all
        }
        Kind::Flat => {
            let lengths: Vec<i64> = listed.axes.iter().map(|axis| shape[*axis]).collect();
            let elements: i64 = lengths.iter().product();
            let point = |i: &i64| {
                let mut left = wrap(*i, elements);
                let mut at: Vec<i64> = lengths
                    .iter()
                    .rev()
                    .map(|n| {
                        let k = left % n;
                        left /= n;
                        k
                    })
                    .collect();
                at.reverse();
                at
            };
            listed.lists[0].iter().map(point).collect()
        }
    };
    let rest: Vec<i64> = case
        .section
        .ranges()
        .iter()
        .enumerate()
        .map(|(d, r)| if listed.axes.contains(&d) { 1 } else { r.count })
        .collect();
    let rest: Vec<Vec<i64>> = Section::whole(&rest).unwrap().indices().collect();
    let mut found = Vec::new();
    for (k, point) in points.iter().enumerate() {
        for p in &rest {
            let mut index: Vec<i64> =
                p.iter().zip(case.section.ranges()).map(|(i, r)| r.start + i * r.step).collect();
            for (axis, i) in listed.axes.iter().zip(point) {
                index[*axis] = *i;
            }
            let place = case.zero + k as i64 * listed.point + along(p);
            found.push((index, place as usize));
        }
    }
    found
}

pub fn check_read(case: &Case, world: &World) {
    let item = item_of(case);
    let mut expected = case.user.clone();
    let mut times = vec![0; expected.len()];
    for (index, at) in elements(case) {
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

pub fn check_write(case: &Case, world: &World) {
    let item = item_of(case);
    let mut files = case.files.clone();
    let mut asked: Vec<Vec<u8>> = files.iter().map(|f| vec![0; f.len()]).collect();
    let mut chunks = std::collections::BTreeMap::new();
    for (index, at) in elements(case) {
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
        // A list may contain an element several times.
        let once = case.lists.is_some() || *times <= 1;
        assert!(times >= asked && once, "a byte of a file written {times} times");
        let outside = *times > 0 && *asked == 0;
        assert!(case.terms.exclusive || !outside, "a byte outside the section is written");
    }
}

/// Checks unencoded chunks that are rewritten as a whole because a hint requires it.
pub fn check_forced_chunks(
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

/// Checks that all elements inside the array are equal; an edge chunk may hold anything beyond it.
pub fn same_inside(case: &Case, cell: &[i64], expected: &[u8], actual: &[u8]) {
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
