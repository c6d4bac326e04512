//! Order of the flushes of many ranks.
//!
//! Problem: a flush writes out everything that all processes of a node have written to a file, and
//! ends with a separate request that empties the disk's cache. If every rank flushes, there are as
//! many of these requests as ranks. Concurrent flushes also cut a range into small requests.
//!
//! Approach: among the ranks of a node with the same file, one flushes it; different files are
//! flushed by different ranks.
//!
//! Invariants: a flush of a file (device and inode) is skipped only if another process of the same
//! kernel flushes it after all ranks have prepared, and no other kernel has it in its cache. A rank
//! with files of its own (chunks), or with files on a file system of several machines, flushes them
//! itself; the first rank of a node does so before the others.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

/// Files of an array that a rank must flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owed {
    /// Nothing.
    Nothing,
    /// Files that no other rank flushes for this rank.
    Own,
    /// A file, which any process of the node may flush: device and inode.
    File(i64, i64),
}

/// Time at which a rank flushes an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// In the first group.
    First,
    /// After the first group has finished.
    Then,
    /// Never: the rank has nothing to flush, or another rank's flush includes it.
    Spared,
}

/// The turns of each rank, by array.
///
/// `said` has, for each array and rank, whether the rank requests a flush, and the files it must
/// flush; `nodes` has the node of each rank. An array without a requested flush is not flushed.
pub fn turns(nodes: &[i64], said: &[Vec<(bool, Owed)>]) -> Vec<Vec<Turn>> {
    let mut assigned = 0;
    let of_array = |said: &Vec<(bool, Owed)>| {
        let mut turns = vec![Turn::Spared; nodes.len()];
        if !said.iter().any(|(asked, _)| *asked) {
            return turns;
        }
        let mut alike: BTreeMap<(i64, Owed), Vec<usize>> = BTreeMap::new();
        for (rank, (node, (_, owed))) in nodes.iter().zip(said).enumerate() {
            if *owed != Owed::Nothing {
                alike.entry((*node, *owed)).or_default().push(rank);
            }
        }
        for ((_, owed), ranks) in alike {
            if let Owed::File(..) = owed {
                turns[ranks[assigned % ranks.len()]] = Turn::First;
            } else {
                turns[ranks[0]] = Turn::First;
                ranks[1..].iter().for_each(|rank| turns[*rank] = Turn::Then);
            }
        }
        assigned += 1;
        turns
    };
    said.iter().map(of_array).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FILE: Owed = Owed::File(7, 9);

    #[test]
    fn one_rank_of_a_node_flushes_a_file_and_of_many_files_each_another() {
        use Turn::{First, Spared};
        let nodes = [0, 0, 1, 1];
        let said = |file| vec![(true, file); 4];
        let nobody = vec![(false, FILE); 4];
        let all = turns(&nodes, &[said(FILE), nobody, said(Owed::File(7, 10))]);
        assert_eq!(vec![First, Spared, First, Spared], all[0]);
        assert_eq!(vec![Spared; 4], all[1]);
        assert_eq!(vec![Spared, First, Spared, First], all[2]);
    }

    #[test]
    fn who_has_files_of_his_own_flushes_them_after_the_first_of_the_node() {
        use Turn::{First, Spared, Then};
        let said = vec![(false, Owed::Own), (true, Owed::Own), (false, Owed::Nothing)];
        assert_eq!(vec![vec![First, Then, Spared]], turns(&[4, 4, 4], &[said]));
    }

    fn owed() -> impl Strategy<Value = Owed> {
        prop_oneof![Just(Owed::Nothing), Just(Owed::Own), (0..2_i64).prop_map(|n| Owed::File(1, n))]
    }

    proptest! {
        /// Checks that no needed flush is skipped.
        ///
        /// A spared rank must have nothing to flush, or a rank of its node must flush the same
        /// file.
        #[test]
        fn what_is_owed_is_flushed(
            ranks in prop::collection::vec((0..3_i64, any::<bool>(), owed()), 1..12),
            arrays in 1..4_usize,
        ) {
            let nodes: Vec<i64> = ranks.iter().map(|(node, ..)| *node).collect();
            let said: Vec<(bool, Owed)> = ranks.iter().map(|(_, asked, owed)| (*asked, *owed)).collect();
            let all = turns(&nodes, &vec![said.clone(); arrays]);
            prop_assert_eq!(arrays, all.len());
            for turns in &all {
                let asked = said.iter().any(|(asked, _)| *asked);
                for (rank, turn) in turns.iter().enumerate() {
                    let owed = said[rank].1;
                    if !asked || owed == Owed::Nothing {
                        prop_assert_eq!(Turn::Spared, *turn);
                        continue;
                    }
                    let same = |other: &usize| nodes[*other] == nodes[rank] && said[*other].1 == owed;
                    let first = (0..nodes.len()).filter(same).filter(|r| turns[*r] == Turn::First);
                    prop_assert_eq!(1, first.count());
                    if let Owed::File(..) = owed {
                        prop_assert_ne!(Turn::Then, *turn);
                    } else {
                        prop_assert_ne!(Turn::Spared, *turn);
                    }
                }
            }
        }
    }
}
