//! Merging sorted runs in memory.
//!
//! Problem: a merge of `k` runs compares each element log2(k) times. If elements are merged one
//! after another, each comparison waits for the previous one, and only one thread can work.
//!
//! Approach: three cuts. The result is cut into chunks of equal length, and the positions in the
//! runs that belong to a chunk are found exactly (`select`), so that threads take chunks. A chunk
//! is cut into tiles that stay in a cache: a tile ends when the first run has given its share. A
//! tile is merged pairwise, in as many rounds as necessary, and each merge of two runs works at
//! four independent places (`two`).
//!
//! Invariants: stable: among equal elements, the one of the earlier run comes first. The result
//! does not depend on the number of threads.
//!
//! Reference: Varman, Scheufler, Iyer, Ricard, Merging multiple lists on hierarchical-memory
//! multiprocessors, 1991, for the cuts; Knuth, volume 3, 5.4.1, for trees of losers, which compare
//! one element after another.

use std::sync::{Mutex, PoisonError};

use outcore_io::cpu::side_by_side;

use crate::order::Order;
use select::select;
use two::two;

pub mod select;
mod two;

/// Bytes of a tile; two tiles fit the second-level cache.
const TILE: usize = 256 << 10;
/// Number of tiles of a chunk.
const TILES: usize = 16;

/// Number of scratch elements that `merge` can use: two tiles for each thread.
pub fn scratch(runs: usize, lanes: usize, bytes: usize) -> usize {
    2 * lanes * (TILE / bytes.max(1)).max(4 * runs)
}

/// Merges `runs` into `to`, which must have their total length.
///
/// `done` is called with each piece of the result while it is in the cache. `scratch` must have at
/// least two elements for each run.
pub fn merge<O: Order>(
    runs: &[&[O::Item]],
    to: &mut [O::Item],
    scratch: &mut [O::Item],
    lanes: usize,
    done: impl Fn(&mut [O::Item]) + Sync,
) {
    let least = 2 * runs.len().max(1);
    assert_eq!(to.len(), runs.iter().map(|run| run.len()).sum());
    assert!(scratch.len() >= least);
    let lanes = lanes.clamp(1, scratch.len() / least);
    let tile = scratch.len() / lanes / 2;
    let chunk = (tile * TILES).max(1);
    let chunks = Mutex::new(to.chunks_mut(chunk).enumerate());
    let benches = Mutex::new(scratch.chunks_mut(2 * tile));
    side_by_side(lanes, &|_| {
        let Some(bench) = benches.lock().unwrap_or_else(PoisonError::into_inner).next() else {
            return;
        };
        loop {
            let next = chunks.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((number, to)) = next else { break };
            let begin = select::<O>(runs, number * chunk);
            let end = select::<O>(runs, number * chunk + to.len());
            let parts = runs.iter().zip(begin.iter().zip(&end)).map(|(run, (b, e))| &run[*b..*e]);
            let mut tiles = Tiles::<O> { parts: parts.collect(), share: tile };
            let mut rest = to;
            while !rest.is_empty() {
                let parts = tiles.next();
                let len = parts.iter().map(|part| part.len()).sum();
                let (here, after) = std::mem::take(&mut rest).split_at_mut(len);
                one_tile::<O>(&parts, here, bench);
                done(here);
                rest = after;
            }
        }
    });
}

/// The remaining parts of a chunk.
struct Tiles<'a, O: Order> {
    parts: Vec<&'a [O::Item]>,
    /// Number of elements of a tile.
    share: usize,
}

impl<'a, O: Order> Tiles<'a, O> {
    /// The beginnings of the parts that form the next tile: at most a tile, at least one element.
    fn next(&mut self) -> Vec<&'a [O::Item]> {
        self.parts.retain(|part| !part.is_empty());
        let share = (self.share / self.parts.len().max(1)).max(1);
        // No element of the tile comes after the first element beyond a share.
        let mut bound: Option<(usize, O::Item)> = None;
        for (number, part) in self.parts.iter().enumerate() {
            if let Some(&item) = part.get(share) {
                if bound.is_none_or(|(_, least)| O::before(item, least)) {
                    bound = Some((number, item));
                }
            }
        }
        let mut tile = Vec::with_capacity(self.parts.len());
        for (number, part) in self.parts.iter_mut().enumerate() {
            let len = match bound {
                None => part.len(),
                Some((at, _)) if at == number => share,
                Some((at, item)) => part[..part.len().min(share)].partition_point(|&one| {
                    O::before(one, item) || number < at && !O::before(item, one)
                }),
            };
            let (here, rest) = part.split_at(len);
            if len > 0 {
                tile.push(here);
            }
            *part = rest;
        }
        tile
    }
}

/// Merges parts pairwise, from one half of `bench` to the other, finally to `to`.
fn one_tile<O: Order>(parts: &[&[O::Item]], to: &mut [O::Item], bench: &mut [O::Item]) {
    match parts {
        [] => return,
        [one] => return to.copy_from_slice(one),
        [a, b] => return two::<O>(a, b, to),
        _ => {}
    }
    let (mut here, mut there) = bench.split_at_mut(bench.len() / 2);
    let mut lens = round::<O>(parts.to_vec(), here);
    while lens.len() > 2 {
        lens = round::<O>(cut(here, &lens), there);
        std::mem::swap(&mut here, &mut there);
    }
    if let [a, b] = cut(here, &lens)[..] {
        two::<O>(a, b, to);
    }
}

fn cut<'a, T>(mut items: &'a [T], lens: &[usize]) -> Vec<&'a [T]> {
    let mut parts = Vec::with_capacity(lens.len());
    for &len in lens {
        let (part, rest) = items.split_at(len);
        parts.push(part);
        items = rest;
    }
    parts
}

/// Merges each part with the next one; returns the lengths of the results.
fn round<O: Order>(parts: Vec<&[O::Item]>, mut to: &mut [O::Item]) -> Vec<usize> {
    let mut lens = Vec::with_capacity(parts.len().div_ceil(2));
    for pair in parts.chunks(2) {
        let len = pair.iter().map(|part| part.len()).sum();
        let (here, rest) = std::mem::take(&mut to).split_at_mut(len);
        match pair {
            [a, b] => two::<O>(a, b, here),
            [one] => here.copy_from_slice(one),
            _ => {}
        }
        to = rest;
        lens.push(len);
    }
    lens
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::order::{Plain, Words};

    /// Sorted runs of pairs: a key of few values, and its source.
    fn runs() -> impl Strategy<Value = Vec<Vec<[u64; 2]>>> {
        let run = prop::collection::vec(0..40u64, 0..400);
        prop::collection::vec(run, 1..20).prop_map(|runs| {
            let mut count = 0;
            let mut number = |key| {
                count += 1;
                [key, count]
            };
            let mut all: Vec<Vec<[u64; 2]>> =
                runs.into_iter().map(|run| run.into_iter().map(&mut number).collect()).collect();
            all.iter_mut().for_each(|run| run.sort_by_key(|pair| pair[0]));
            all
        })
    }

    /// An order by keys only, which makes stability visible.
    struct Keys;

    impl Order for Keys {
        type Word = u64;
        type Item = [u64; 2];
        fn items(words: &mut [u64]) -> &mut [[u64; 2]] {
            words.as_chunks_mut().0
        }
        fn words(items: &mut [[u64; 2]]) -> &mut [u64] {
            items.as_flattened_mut()
        }
        fn before(a: [u64; 2], b: [u64; 2]) -> bool {
            a[0] < b[0]
        }
        fn choose(first: bool, a: [u64; 2], b: [u64; 2]) -> [u64; 2] {
            Words::<u64, 2>::choose(first, a, b)
        }
    }

    proptest! {
        #[test]
        fn it_is_a_stable_sort(all in runs(), scratch in 0..300usize, lanes in 1..4usize) {
            let mut expected = all.concat();
            expected.sort_by_key(|pair| pair[0]);
            let runs: Vec<&[[u64; 2]]> = all.iter().map(Vec::as_slice).collect();
            let mut to = vec![[0; 2]; expected.len()];
            let mut bench = vec![[0; 2]; 2 * runs.len() + scratch];
            let done = |part: &mut [[u64; 2]]| part.iter_mut().for_each(|pair| pair[1] += 7);
            merge::<Keys>(&runs, &mut to, &mut bench, lanes, done);
            to.iter_mut().for_each(|pair| pair[1] -= 7);
            prop_assert_eq!(expected, to);
        }

        #[test]
        fn cuts_are_exact(all in runs(), share in 0.0..=1.0f64) {
            let mut tagged: Vec<([u64; 2], usize)> = Vec::new();
            for (run, items) in all.iter().enumerate() {
                tagged.extend(items.iter().map(|item| (*item, run)));
            }
            tagged.sort_by_key(|(item, _)| item[0]);
            let rank = (tagged.len() as f64 * share) as usize;
            let expected: Vec<usize> = (0..all.len())
                .map(|run| tagged[..rank].iter().filter(|(_, of)| *of == run).count())
                .collect();
            let runs: Vec<&[[u64; 2]]> = all.iter().map(Vec::as_slice).collect();
            prop_assert_eq!(expected, select::select::<Keys>(&runs, rank));
        }
    }

    #[test]
    fn long_runs_take_few_looks() {
        let all: Vec<Vec<u32>> = (0..16u32)
            .map(|run| (0..1 << 16).map(|n: u32| n.wrapping_mul(n) / 7 * (run + 1)).collect())
            .collect();
        let mut all: Vec<Vec<u32>> = all;
        all.iter_mut().for_each(|run| run.sort());
        let runs: Vec<&[u32]> = all.iter().map(Vec::as_slice).collect();
        let mut ranges: Vec<select::Range> =
            runs.iter().map(|run| select::Range { least: 0, most: run.len() }).collect();
        let mut rounds = 0;
        loop {
            let left: usize = ranges.iter().map(|range| range.most - range.least).sum();
            if left == 0 {
                break;
            }
            let distance = left.div_ceil(16 * 16);
            let mut seen = Vec::new();
            for (run, range) in runs.iter().zip(&ranges) {
                let (first, count) = select::looks(*range, distance);
                seen.extend((0..count).map(|n| run[first + n * distance]));
            }
            assert!(seen.len() <= 16 * 17);
            select::narrow::<Plain<u32>>(&mut ranges, 400_000, distance, &seen);
            rounds += 1;
        }
        assert!(rounds <= 8, "{rounds}");
    }
}
