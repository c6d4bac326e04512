//! A simulated world of bytes in which plans run: files, chunks, the caller's array.
//!
//! It is independent of planning: it executes each step byte by byte, and counts.

pub mod cases;

use std::collections::BTreeMap;

use outcore_plan::{
    check, Bounds, Channel, CheckedRound, Cost, IndexedMove, Move, Place, Plan, Stored, Transfer,
};

pub struct World {
    pub files: Vec<Vec<u8>>,
    pub user: Vec<u8>,
    /// Index in `user` of the caller's element 0.
    pub zero: i64,
    pub fill: Vec<u8>,
    pub block: i64,
    /// Address of the caller's element 0.
    pub home: Option<i64>,
    pub encoded: bool,
    /// Written chunks, decoded.
    pub chunks: BTreeMap<Vec<i64>, Vec<u8>>,
    /// Number of writes of each byte.
    pub file_writes: Vec<Vec<u8>>,
    pub user_writes: Vec<u8>,
    pub cost: Cost,
    slot: Vec<u8>,
}

/// A toy codec whose output is longer than its input and depends on every byte.
pub fn encode(bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![0xC0, 0xDE, (bytes.len() % 251) as u8];
    out.extend(bytes.iter().enumerate().map(|(i, b)| b ^ 0x5A ^ i as u8));
    out
}

pub fn decode(bytes: &[u8]) -> Vec<u8> {
    assert_eq!([0xC0, 0xDE], bytes[..2], "staged bytes are not an encoded chunk");
    bytes[3..].iter().enumerate().map(|(i, b)| b ^ 0x5A ^ i as u8).collect()
}

fn offsets(count: &[i64], strides: &[&[i64]]) -> Vec<Vec<i64>> {
    let mut all = vec![vec![0; strides.len()]];
    for (d, n) in count.iter().enumerate() {
        let next = |at: &Vec<i64>| {
            let at = at.clone();
            (0..*n)
                .map(move |i| {
                    at.iter().zip(strides).map(|(a, s)| a + i * s[d]).collect::<Vec<i64>>()
                })
                .collect::<Vec<_>>()
        };
        all = all.iter().flat_map(next).collect();
    }
    all
}

impl World {
    pub fn new(files: Vec<Vec<u8>>, user: Vec<u8>, zero: i64, fill: Vec<u8>, block: i64) -> World {
        World {
            file_writes: files.iter().map(|f| vec![0; f.len()]).collect(),
            user_writes: vec![0; user.len()],
            files,
            user,
            zero,
            fill,
            block,
            home: None,
            encoded: false,
            chunks: BTreeMap::new(),
            cost: Cost::default(),
            slot: Vec::new(),
        }
    }

    pub fn bounds(&self, slot_bytes: i64) -> Bounds {
        Bounds {
            slot_bytes,
            files: self.files.iter().map(|f| f.len() as i64).collect(),
            user: (-self.zero, self.user.len() as i64 - self.zero),
            fill: self.fill.len() as i64,
            block: self.block,
            home: self.home.map(|at| at & (self.block - 1)),
        }
    }

    /// Runs all rounds, the last one first: the order must not matter.
    pub fn run(&mut self, plan: &Plan) {
        let bounds = self.bounds(plan.slot_bytes());
        let mut largest = 0;
        for k in (0..plan.rounds()).rev() {
            let round = plan.round(k).unwrap();
            assert_eq!(round, plan.round(k).unwrap());
            largest = largest.max(round.slot_bytes);
            let round = check(round, &bounds).unwrap_or_else(|e| panic!("{e}\n{}", plan.text()));
            self.slot = vec![0xEE; round.slot_bytes as usize];
            self.round(&round);
        }
        assert_eq!(largest, plan.slot_bytes(), "slot_bytes\n{}", plan.text());
        self.cost.rounds = plan.rounds() as i64;
    }

    /// Reads and writes every byte that a round may touch, and nothing else.
    ///
    /// Panics if an address is out of bounds.
    pub fn touch(&mut self, round: &CheckedRound) {
        self.slot = vec![0; round.slot_bytes as usize];
        for t in &round.reads {
            self.transfer(t, true);
        }
        for c in &round.chunk_reads {
            let s = c.stored;
            let stored = self.read(Place::File(s.file), s.offset, s.len);
            self.write(Place::Slot, c.staged_at, &stored);
            self.write(Place::Slot, c.scratch_at, &vec![0; c.scratch as usize]);
            self.write(Place::Slot, c.at, &vec![0; c.len as usize]);
        }
        for m in &round.moves {
            self.copy(m);
        }
        for m in &round.indexed {
            self.indexed(m);
        }
        for t in &round.writes {
            self.transfer(t, false);
        }
        for c in &round.chunk_writes {
            let decoded = self.read(Place::Slot, c.at, c.len);
            assert_eq!(c.len as usize, decoded.len());
            self.write(Place::Slot, c.staged_at, &vec![0; c.scratch as usize]);
        }
    }

    fn round(&mut self, round: &CheckedRound) {
        for t in &round.reads {
            self.transfer(t, true);
        }
        for c in &round.chunk_reads {
            let Stored { file, offset, len, .. } = c.stored;
            let stored =
                self.files[file as usize][offset as usize..(offset + len) as usize].to_vec();
            self.write(Place::Slot, c.staged_at, &stored);
            // The decoder may use all of its scratch.
            self.write(Place::Slot, c.scratch_at, &vec![0xDD; c.scratch as usize]);
            let stored = self.read(Place::Slot, c.staged_at, len);
            let decoded = if self.encoded { decode(&stored) } else { stored };
            assert_eq!(c.len as usize, decoded.len());
            self.write(Place::Slot, c.at, &decoded);
            self.cost.reads += 1;
            self.cost.read_bytes += len;
            self.cost.decodes += i64::from(self.encoded);
        }
        for m in &round.moves {
            self.copy(m);
        }
        for m in &round.indexed {
            self.indexed(m);
        }
        self.requests_are_apart(round);
        for t in &round.writes {
            self.transfer(t, false);
        }
        for c in &round.chunk_writes {
            let decoded = self.slot[c.at as usize..(c.at + c.len) as usize].to_vec();
            if self.encoded {
                let encoded = encode(&decoded);
                assert!(encoded.len() as i64 <= c.bound && c.bound <= c.scratch);
                self.write(Place::Slot, c.staged_at, &vec![0xDD; c.scratch as usize]);
                self.write(Place::Slot, c.staged_at, &encoded);
            }
            assert!(self.chunks.insert(c.chunk.clone(), decoded).is_none(), "chunk written twice");
            self.cost.writes += 1;
            self.cost.written_bytes += c.bound;
            self.cost.encodes += i64::from(self.encoded);
        }
    }

    /// Checks that no two requests of a round write the same byte, because they run in any order.
    fn requests_are_apart(&self, round: &CheckedRound) {
        let mut written = Vec::new();
        for t in &round.writes {
            for at in offsets(&t.extents.count, &[&t.extents.stride]) {
                let offset = t.extents.offset + at[0];
                let (first, end) = t.channel.written(offset, offset + t.extents.len, self.block);
                written.push((t.file, first, end));
            }
        }
        written.retain(|(_, first, end)| first < end);
        written.sort_unstable();
        for pair in written.windows(2) {
            let apart = pair[0].0 != pair[1].0 || pair[0].2 <= pair[1].1;
            assert!(apart, "two requests of a round write the same byte: {pair:?}");
        }
    }

    fn transfer(&mut self, t: &Transfer, read: bool) {
        let file = Place::File(t.file);
        for at in offsets(&t.extents.count, &[&t.extents.stride, &t.at_stride]) {
            let (offset, memory, len) = (t.extents.offset + at[0], t.at + at[1], t.extents.len);
            let mut counted = len;
            if read && t.channel == Channel::Direct {
                // Whole blocks around the extent are read; bytes past the end of the file are
                // undefined.
                let before = offset % self.block;
                let whole = (before + len + self.block - 1) / self.block * self.block;
                let end = (offset - before + whole).min(self.files[t.file as usize].len() as i64);
                let bytes = self.read(file, offset - before, end - offset + before);
                self.write(t.memory, memory - before, &bytes);
                counted = whole;
            } else if read {
                let bytes = self.read(file, offset, len);
                self.write(t.memory, memory, &bytes);
            } else {
                let (first, end) = t.channel.written(offset, offset + len, self.block);
                let direct = t.channel == Channel::Direct && first < end;
                assert!(!direct || (first % self.block == 0 && end % self.block == 0));
                let home = match t.memory {
                    Place::User => self.home.unwrap_or(0),
                    _ => 0,
                };
                assert!(!direct || (memory + home - offset) % self.block == 0);
                let bytes = self.read(t.memory, memory + first - offset, end - first);
                self.write(file, first, &bytes);
                if first == end {
                    continue;
                }
                counted = end - first;
            }
            let (n, bytes) = if read {
                (&mut self.cost.reads, &mut self.cost.read_bytes)
            } else {
                (&mut self.cost.writes, &mut self.cost.written_bytes)
            };
            *n += 1;
            *bytes += counted;
        }
    }

    fn copy(&mut self, m: &Move) {
        for at in offsets(&m.count, &[&m.src_stride, &m.dst_stride]) {
            let element = self.read(m.src, m.src_at + at[0], m.item);
            self.write(m.dst, m.dst_at + at[1], &element);
            if matches!(m.src, Place::File(_)) || matches!(m.dst, Place::File(_)) {
                self.cost.mapped_bytes += m.item;
            }
        }
    }

    fn indexed(&mut self, m: &IndexedMove) {
        let counts = m.counts.list();
        let blocks = |k: usize| 0..counts.map_or(1, |counts| i64::from(counts[k]));
        for (k, past) in (0..m.points).flat_map(|k| blocks(k).map(move |n| (k, n * m.item))) {
            for at in offsets(&m.count, &[&m.src_stride, &m.dst_stride]) {
                let src = m.src_at + m.src_points.of(k) + past + at[0];
                let element = self.read(m.src, src, m.item);
                self.write(m.dst, m.dst_at + m.dst_points.of(k) + past + at[1], &element);
                if matches!(m.src, Place::File(_)) || matches!(m.dst, Place::File(_)) {
                    self.cost.mapped_bytes += m.item;
                }
            }
        }
    }

    fn read(&self, place: Place, at: i64, len: i64) -> Vec<u8> {
        let (bytes, at) = match place {
            Place::User => (&self.user, at + self.zero),
            Place::Slot => (&self.slot, at),
            Place::Fill => (&self.fill, at),
            Place::File(f) => (&self.files[f as usize], at),
        };
        bytes[at as usize..(at + len) as usize].to_vec()
    }

    fn write(&mut self, place: Place, at: i64, new: &[u8]) {
        let (bytes, times, at) = match place {
            Place::User => (&mut self.user, Some(&mut self.user_writes), at + self.zero),
            Place::Slot => (&mut self.slot, None, at),
            Place::Fill => panic!("the fill value is written"),
            Place::File(f) => {
                (&mut self.files[f as usize], Some(&mut self.file_writes[f as usize]), at)
            }
        };
        let range = at as usize..at as usize + new.len();
        bytes[range.clone()].copy_from_slice(new);
        times.into_iter().for_each(|t| t[range.clone()].iter_mut().for_each(|n| *n += 1));
    }
}
