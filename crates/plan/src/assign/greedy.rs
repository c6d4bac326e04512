//! The paper's first heuristic (its figure 5): largest requests first.
//!
//! All requests are sorted by bytes, largest first. Each request in this order assigns its file to
//! its rank, unless the file is already assigned or the rank is full. No rank with capacity
//! requests the remaining files, so each goes to the least loaded rank. Requests of equal size are
//! ordered by rank, then by file, which is the order of the paper's table 2.
//!
//! Cost: sorting the nonempty requests.

use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::items::{Items, Room};

/// The rank of each item.
pub(super) fn solve(items: &Items<'_>) -> Vec<usize> {
    let requests = items.requests;
    let mut room = Room::new(items);
    let mut load = vec![0i64; requests.ranks()];
    let mut places: Vec<Option<usize>> = vec![None; items.all.len()];
    // The next free item of each file, and the end of its items.
    let mut free = vec![(0, 0); requests.files()];
    for (at, item) in items.all.iter().enumerate() {
        let (start, end) = &mut free[item.file];
        if *end == 0 {
            *start = at;
        }
        *end = at + 1;
    }
    for (rank, file) in sorted(items) {
        let (next, end) = &mut free[file];
        if *next < *end && room.has(rank) {
            room.take(rank);
            places[*next] = Some(rank);
            load[rank] += items.all[*next].bytes;
            *next += 1;
        }
    }
    let mut all = Vec::with_capacity(places.len());
    for (at, place) in places.into_iter().enumerate() {
        let rank = place.unwrap_or_else(|| {
            let file = items.all[at].file;
            let may = items.readers.iter().copied().filter(|&rank| requests.may(rank, file));
            // A full rank is chosen only if no other rank may read the file.
            let rank = may.min_by_key(|&rank| (!room.has(rank), load[rank], rank)).unwrap_or(0);
            room.take(rank);
            load[rank] += items.all[at].bytes;
            rank
        });
        all.push(rank);
    }
    all
}

/// Requests as (rank, file), largest first: the paper's table 2.
pub(super) fn sorted(items: &Items<'_>) -> Vec<(usize, usize)> {
    let requests = items.requests;
    let mut entries = Vec::new();
    for &rank in &items.readers {
        for file in 0..requests.files() {
            if requests.of(rank, file) > 0 && requests.may(rank, file) {
                entries.push((Reverse(requests.of(rank, file)), rank, file));
            }
        }
    }
    entries.sort_unstable();
    entries.into_iter().map(|(_, rank, file)| (rank, file)).collect()
}
