//! Damaged shards and tables: refused, or every chunk lies inside its file and on bytes of its own.
//!
//! `OUTCORE_FUZZ_INPUTS` sets the number of inputs, `OUTCORE_FUZZ_SEED` the seed; both are printed.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::Path;

use outcore_io::store::shards::{IndexFormat, ShardStore};
use outcore_io::store::table::from_rows;
use outcore_io::store::{Cells, ChunkSize, ChunkStore, Naming};
use outcore_io::StorageError;
use outcore_plan::ChunkTable;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    /// Numbers that are nearly right, or as wrong as can be.
    fn number(&mut self, usual: u64) -> u64 {
        match self.below(12) {
            0 => u64::MAX - self.below(3),
            1 => (1 << 63) - 1 + self.below(3),
            2 => u64::from(u32::MAX) + self.below(3),
            3 => self.next(),
            4 => 0,
            _ => self.below(usual),
        }
    }
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

const GRID: [i64; 2] = [3, 4];
const SIZE: ChunkSize = ChunkSize { decoded: 60, limit: 100, encoded: true };

/// What the planner relies on.
fn check(table: &ChunkTable, file_len: i64) {
    let mut extents: Vec<(i64, i64)> = table
        .stored
        .iter()
        .flatten()
        .map(|stored| {
            assert!((1..=SIZE.limit).contains(&stored.len) && stored.offset >= 0);
            (stored.offset, stored.offset.checked_add(stored.len).unwrap())
        })
        .collect();
    extents.sort_unstable();
    assert!(extents.iter().all(|extent| extent.1 <= file_len), "{extents:?} in {file_len}");
    assert!(extents.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{extents:?}");
}

/// Counts what was accepted; an error must be one that blames the file.
fn judge<T>(result: Result<T, StorageError>, accepted: &mut u64) -> Option<T> {
    match result {
        Ok(value) => {
            *accepted += 1;
            Some(value)
        }
        Err(error) => {
            assert_eq!("chunk-table-damaged", error.code(), "{error}");
            None
        }
    }
}

#[test]
fn damaged_shards_are_refused_or_harmless() {
    let inputs = setting("OUTCORE_FUZZ_INPUTS", 100_000) / 10;
    let seed = setting("OUTCORE_FUZZ_SEED", 20_260_102);
    println!("{inputs} inputs, seed {seed}");
    let mut random = Random(seed);
    let root = std::env::temp_dir().join(format!("outcore-store-hostile-{}", std::process::id()));
    std::fs::create_dir_all(&root).unwrap();
    let path = root.join("0.0");
    let all = Cells::new(&[0, 0], &GRID, &GRID).unwrap();
    let mut accepted = 0;
    for _ in 0..inputs {
        let index = IndexFormat { at_end: random.below(2) == 0, crc32c: random.below(2) == 0 };
        let naming = Naming { root: root.clone(), prefix: String::new(), separator: ".".into() };
        let (grid, shard) = (GRID.to_vec(), GRID.to_vec());
        let store = ShardStore::new(naming, root.join("0.0"), grid, shard, index, SIZE).unwrap();
        // Chunks one behind the other, some of them missing, one or two of them wrong.
        let body = 600 + random.below(600);
        let mut at = if index.at_end { 0 } else { 192 + 4 * u64::from(index.crc32c) };
        let mut entries = Vec::new();
        for _ in 0..12 {
            let len = 1 + random.below(60);
            let missing = random.below(4) == 0;
            entries.push(if missing { [u64::MAX; 2] } else { [at, len] });
            at += len;
        }
        for _ in 0..random.below(3) {
            let (k, which) = (random.below(12) as usize, random.below(2) as usize);
            entries[k][which] = random.number(body);
        }
        let mut raw: Vec<u8> = entries.iter().flatten().flat_map(|n| n.to_le_bytes()).collect();
        if index.crc32c {
            raw.extend(crc32c::crc32c(&raw).to_le_bytes());
        }
        let body = vec![7u8; body as usize];
        let mut file = if index.at_end { [body, raw].concat() } else { [raw, body].concat() };
        match random.below(20) {
            0 => file.truncate(random.below(file.len() as u64) as usize),
            1 => {
                let k = random.below(file.len() as u64) as usize;
                file[k] ^= 1 << random.below(8);
            }
            _ => {}
        }
        // A new file each time: some file systems sync one that is cut and written again.
        let _ = std::fs::remove_file(&path);
        std::fs::write(&path, &file).unwrap();
        for writable in [false, true] {
            if let Some(resolved) = judge(store.resolve(&all, writable), &mut accepted) {
                check(&resolved.table, file.len() as i64);
            }
        }
        let begun = judge(store.begin(&all).map(drop), &mut accepted);
        assert_eq!(begun.is_some(), store.resolve(&all, true).is_ok());
    }
    std::fs::remove_dir_all(&root).unwrap();
    println!("{accepted} accepted of {}", 3 * inputs);
    assert!(accepted > inputs / 2 && accepted < 3 * inputs);
}

#[test]
fn damaged_tables_are_refused_or_harmless() {
    let inputs = setting("OUTCORE_FUZZ_INPUTS", 100_000);
    let seed = setting("OUTCORE_FUZZ_SEED", 20_260_103);
    println!("{inputs} inputs, seed {seed}");
    let mut random = Random(seed);
    let all = Cells::new(&[0, 0], &GRID, &GRID).unwrap();
    let mut accepted = 0;
    for _ in 0..inputs {
        let file_len = 1000 + random.below(1000) as i64;
        let mut at = random.below(100) as i64;
        let mut rows = Vec::new();
        for _ in 0..12 {
            let len = 1 + random.below(90) as i64;
            let missing = random.below(4) == 0;
            rows.extend([if missing { -1 } else { at }, len, random.below(8) as i64]);
            at += len;
        }
        for _ in 0..random.below(3) {
            let k = random.below(36) as usize;
            rows[k] = random.number(file_len as u64) as i64;
        }
        let table = from_rows(&all, &rows, SIZE, 0, file_len, Path::new("a.h5"));
        if let Some(table) = judge(table, &mut accepted) {
            check(&table, file_len);
        }
    }
    println!("{accepted} accepted of {inputs}");
    assert!(accepted > inputs / 10 && accepted < inputs);
}
