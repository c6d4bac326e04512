//! Shards and chunk tables: each is rejected, or every chunk is inside its file and overlaps no
//! other.

use std::path::Path;

use outcore_io::store::shards::{IndexFormat, ShardStore};
use outcore_io::store::table::from_rows;
use outcore_io::store::{Cells, ChunkSize, ChunkStore, Naming};
use outcore_io::StorageError;
use outcore_plan::ChunkTable;

use crate::chance::Chance;
use crate::lane::{run, Outcome};

const GRID: [i64; 2] = [3, 4];
const SIZE: ChunkSize = ChunkSize { decoded: 60, limit: 100, encoded: true };

/// Checks the properties that the planner relies on.
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

/// Returns an accepted result; an error must blame the file.
fn judge<T>(result: Result<T, StorageError>) -> Option<T> {
    result.map_err(|error| assert_eq!("chunk-table-damaged", error.code(), "{error}")).ok()
}

#[derive(Debug)]
struct Shard {
    index: IndexFormat,
    file: Vec<u8>,
}

fn shard(chance: &mut Chance) -> Shard {
    let index = IndexFormat { at_end: chance.one_in(2), crc32c: chance.one_in(2) };
    // Consecutive chunks, some of them missing, one or two of them wrong.
    let body = 600 + chance.below(600);
    let mut at = if index.at_end { 0 } else { 192 + 4 * u64::from(index.crc32c) };
    let mut entries = Vec::new();
    for _ in 0..12 {
        let len = 1 + chance.below(60);
        entries.push(if chance.one_in(4) { [u64::MAX; 2] } else { [at, len] });
        at += len;
    }
    for _ in 0..chance.below(3) {
        let (k, which) = (chance.place(12), chance.place(2));
        entries[k][which] = chance.number(body);
    }
    let mut raw: Vec<u8> = entries.iter().flatten().flat_map(|n| n.to_le_bytes()).collect();
    if index.crc32c {
        raw.extend(crc32c::crc32c(&raw).to_le_bytes());
    }
    let body = vec![7u8; body as usize];
    let mut file = if index.at_end { [body, raw].concat() } else { [raw, body].concat() };
    match chance.below(20) {
        0 => file.truncate(chance.place(file.len())),
        1 => {
            let at = chance.place(file.len());
            file[at] ^= 1 << chance.below(8);
        }
        _ => {}
    }
    Shard { index, file }
}

#[test]
fn shards() {
    let root = std::env::temp_dir().join(format!("outcore-fuzz-{}", std::process::id()));
    std::fs::create_dir_all(&root).unwrap();
    let path = root.join("0.0");
    let all = Cells::new(&[0, 0], &GRID, &GRID).unwrap();
    let (accepted, refused) = run("shards", 10_000, shard, |Shard { index, file }| {
        let naming = Naming { root: root.clone(), prefix: String::new(), separator: ".".into() };
        let (grid, shape) = (GRID.to_vec(), GRID.to_vec());
        let store = ShardStore::new(naming, path.clone(), grid, shape, index, SIZE).unwrap();
        // A new file each time: some file systems sync a file that is truncated and written again.
        let _ = std::fs::remove_file(&path);
        std::fs::write(&path, &file).unwrap();
        let found = [false, true].map(|writable| {
            let resolved = judge(store.resolve(&all, writable));
            if let Some(resolved) = &resolved {
                check(&resolved.table, file.len() as i64);
            }
            resolved.is_some()
        });
        assert_eq!(found[1], judge(store.begin(&all, &|_| true).map(drop)).is_some());
        if found[0] {
            Outcome::Accepted
        } else {
            Outcome::Refused
        }
    });
    std::fs::remove_dir_all(&root).unwrap();
    assert!(accepted + refused < 100 || accepted.min(refused) > (accepted + refused) / 20);
}

#[derive(Debug)]
struct Rows {
    rows: Vec<i64>,
    file_len: i64,
}

fn rows(chance: &mut Chance) -> Rows {
    let file_len = 1000 + chance.below(1000) as i64;
    let mut at = chance.below(100) as i64;
    let mut rows = Vec::new();
    for _ in 0..12 {
        let len = 1 + chance.below(90) as i64;
        let offset = if chance.one_in(4) { -1 } else { at };
        rows.extend([offset, len, chance.below(8) as i64]);
        at += len;
    }
    for _ in 0..chance.below(3) {
        let k = chance.place(36);
        rows[k] = chance.number(file_len as u64) as i64;
    }
    Rows { rows, file_len }
}

#[test]
fn chunk_tables() {
    let all = Cells::new(&[0, 0], &GRID, &GRID).unwrap();
    let (accepted, refused) = run("chunk_tables", 100_000, rows, |Rows { rows, file_len }| {
        match judge(from_rows(&all, &rows, SIZE, 0, file_len, Path::new("a.h5"))) {
            Some(table) => {
                check(&table, file_len);
                Outcome::Accepted
            }
            None => Outcome::Refused,
        }
    });
    assert!(accepted + refused < 100 || accepted.min(refused) > (accepted + refused) / 20);
}
