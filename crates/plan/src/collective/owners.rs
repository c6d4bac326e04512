//! Owners: the ranks that may own parts of each array, and their assigned shares.
//!
//! Problem: one call reads or writes many arrays. A rank can own parts only of arrays that it has
//! opened; a file that only one process may write at a time has one writer. Approach: the ranks
//! that may own a part of an array are found from the records, and [`assign`] balances their
//! shares.
//!
//! Invariants: the result is a pure function of the records of all ranks, so all ranks get the
//! same. All arrays of a file with one writer have one owner, if any rank has them all.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::domains::Share;
use super::records::{Records, Wanted};
use crate::assign::{assign, Aim, Assignment, Objective, Requests, Solver};
use crate::error::PlanError;

/// The ranks that may own a part of each array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owners {
    /// For each array: eligible ranks, ascending; at least one.
    pub able: Vec<Vec<u32>>,
    /// For each array: true if one rank must own all of it.
    pub whole: Vec<bool>,
    /// For each array: a number that is equal for arrays in one file.
    pub files: Vec<i64>,
}

impl Owners {
    /// Finds the eligible owners: I/O ranks that have the array, or all that have it.
    pub fn new(records: &Records, wanted: &[Wanted], write: bool) -> Owners {
        let ranks = records.ranks() as i64;
        let io_ranks = records.io_ranks().min(ranks);
        let chosen: BTreeSet<i64> = (0..io_ranks).map(|k| k * ranks / io_ranks).collect();
        let whole: Vec<bool> = wanted.iter().map(|one| write && one.file % 2 != 0).collect();
        // For files with one writer: the ranks that have all arrays of the file.
        let mut everything: BTreeMap<i64, BTreeSet<u32>> = BTreeMap::new();
        for (one, _) in wanted.iter().zip(&whole).filter(|(_, whole)| **whole) {
            let have: BTreeSet<u32> = one.have.iter().copied().collect();
            everything
                .entry(one.file)
                .and_modify(|all| all.retain(|r| have.contains(r)))
                .or_insert(have);
        }
        let of_array = |one: &Wanted| {
            let all = everything.get(&one.file);
            let has_all = |rank: &u32| all.is_some_and(|all| all.contains(rank));
            let some = either(&one.have, has_all);
            either(&some, |rank| chosen.contains(&i64::from(*rank)))
        };
        let files = wanted.iter().map(|one| one.file >> 1).collect();
        Owners { able: wanted.iter().map(of_array).collect(), whole, files }
    }

    /// Assigns arrays to ranks: smallest largest load, then little traffic; or as a hint specifies.
    ///
    /// None if no assignment is needed: all eligible ranks share a single array. If the given
    /// solver fails, [`Solver::Balanced`] is used, because hints never raise errors.
    pub fn assigned(
        &self,
        records: &Records,
        wanted: &[Wanted],
        solver: Solver,
    ) -> Result<Option<Assignment>, PlanError> {
        if self.able.len() < 2 || self.able.iter().all(|ranks| ranks.len() < 2) {
            return Ok(None);
        }
        let (ranks, arrays) = (records.ranks(), wanted.len());
        // Elements that several ranks request are read once.
        let sizes: Vec<i64> = wanted.iter().map(Wanted::union).collect();
        let mut bytes = vec![0; ranks * arrays];
        let mut eligible = vec![false; ranks * arrays];
        for (number, one) in wanted.iter().enumerate() {
            for (rank, want) in one.requests(ranks).into_iter().enumerate() {
                bytes[rank * arrays + number] = want.min(sizes[number]);
            }
            for rank in &self.able[number] {
                eligible[*rank as usize * arrays + number] = true;
            }
        }
        let requests = Requests::new(ranks, arrays, bytes)?
            .with_sizes(sizes)?
            .with_groups(self.files.clone())?
            .with_eligible(eligible)?
            .with_whole(self.whole.clone())?;
        let aim = Aim { alpha: 1, beta: 1, objective: Objective::Traffic };
        let mut given = match assign(&requests, solver, &aim) {
            Err(PlanError::Unassignable(_) | PlanError::TooManyToTry(_)) => {
                let mut given = assign(&requests, Solver::Balanced, &aim)?;
                given.why += &format!("; {} was requested, but cannot do this", solver.name());
                given
            }
            other => other?,
        };
        given.why += &self.of_files();
        Ok(Some(given))
    }

    /// The shares of ranks in an array.
    pub fn shares(&self, given: Option<&Assignment>, number: usize) -> Vec<Share> {
        let able = &self.able[number];
        let Some(given) = given else {
            let most = if self.whole[number] { 1 } else { able.len() };
            return able[..most].iter().map(|rank| Share { rank: *rank, part: 1 }).collect();
        };
        let mut shares: Vec<Share> = given.shares[number]
            .iter()
            .filter(|share| share.bytes > 0)
            .map(|share| Share { rank: share.rank as u32, part: share.bytes })
            .collect();
        shares.sort_by_key(|share| share.rank);
        if shares.is_empty() {
            // No rank requests anything of it, so it has no tiles either.
            shares.push(Share { rank: able[0], part: 1 });
        }
        shares
    }

    /// Text about arrays that share files.
    fn of_files(&self) -> String {
        let files: BTreeSet<i64> = self.files.iter().copied().collect();
        if files.len() == self.files.len() {
            return String::new();
        }
        let pairs = self.files.iter().zip(&self.whole);
        let alone: BTreeSet<i64> =
            pairs.filter(|(_, whole)| **whole).map(|(file, _)| *file).collect();
        let one = match alone.len() {
            0 => String::new(),
            n => format!(", {n} of them with one writer each"),
        };
        let s = if files.len() == 1 { "" } else { "s" };
        format!("; the {} arrays are in {} file{s}{one}", self.files.len(), files.len())
    }
}

/// The members of `ranks` with a property; all of them if none has it.
fn either(ranks: &[u32], holds: impl Fn(&u32) -> bool) -> Vec<u32> {
    let some: Vec<u32> = ranks.iter().copied().filter(|rank| holds(rank)).collect();
    if some.is_empty() {
        ranks.to_vec()
    } else {
        some
    }
}

/// Maximum number of arrays of which a rank requests elements.
pub fn most_arrays(wanted: &[Wanted], ranks: usize) -> i64 {
    if wanted.len() < 2 {
        return 1;
    }
    let mut of_rank = vec![0_i64; ranks];
    for one in wanted {
        for (count, bytes) in of_rank.iter_mut().zip(one.requests(ranks)) {
            *count += i64::from(bytes > 0);
        }
    }
    of_rank.into_iter().max().unwrap_or(1).max(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::choice::Method;
    use super::super::records::{record, Said, Stage};
    use super::super::{section_words, ArrayDescriptor, Cut, Settings};
    use super::*;
    use crate::section::{Range, Section};

    /// Records in which rank `k` requests `count` elements of each array (name, file, count).
    fn brought(ranks: &[Vec<(i64, i64, i64)>], io_ranks: i64) -> (Records, Vec<Wanted>) {
        let settings = Settings {
            method: Method::Auto,
            offered: 1 << 20,
            io_ranks,
            cut: Cut::Requested,
            refuses_overlap: false,
            durable: false,
            stripe: 1,
            cached: 0,
            groups: 1,
            gap: 0,
            solver: Solver::Exact,
            disk: 0,
            timed: None,
            untried: 0,
        };
        let said = |rank: usize, (name, file, count): (i64, i64, i64)| Said {
            name,
            file,
            descriptor: ArrayDescriptor {
                shape: vec![100_000],
                item: 1,
                order: vec![0],
                grain: vec![1],
                encoded: false,
                lead: None,
            }
            .words(),
            section: section_words(&Section::new(vec![Range {
                start: 1000 * rank as i64,
                count,
                step: 1,
            }])),
        };
        let rows: Vec<Vec<i64>> = (0..ranks.len())
            .map(|k| {
                let items: Vec<Said> = ranks[k].iter().map(|one| said(k, *one)).collect();
                record(1, Stage::Ready, &settings.words(), &items).unwrap()
            })
            .collect();
        let width = rows.iter().map(Vec::len).max().unwrap();
        let mut words = Vec::new();
        for mut row in rows {
            row.resize(width, 0);
            words.extend(row);
        }
        let records = Records::new(words, width).unwrap();
        let wanted = records.arrays(false).unwrap();
        (records, wanted)
    }

    #[test]
    fn io_ranks_own_what_they_have_and_others_what_these_have_not() {
        let ranks = [vec![(1, 2, 9)], vec![(1, 2, 9), (4, 6, 9)], vec![(1, 2, 9)], vec![(1, 2, 9)]];
        let (records, wanted) = brought(&ranks, 2);
        let owners = Owners::new(&records, &wanted, true);
        assert_eq!(vec![vec![0, 2], vec![1]], owners.able);
        assert_eq!((vec![false, false], vec![1, 3]), (owners.whole, owners.files));
        let (records, wanted) = brought(&ranks, i64::MAX);
        assert_eq!(vec![0, 1, 2, 3], Owners::new(&records, &wanted, true).able[0]);
    }

    #[test]
    fn a_file_with_one_writer_has_one() {
        // Arrays 1 and 2 are in file 3; only rank 1 has both.
        let ranks = [vec![(1, 3, 9)], vec![(1, 3, 9), (2, 3, 9)], vec![(2, 3, 9)]];
        let (records, wanted) = brought(&ranks, 3);
        let owners = Owners::new(&records, &wanted, true);
        assert_eq!(
            (vec![vec![1], vec![1]], vec![true; 2]),
            (owners.able.clone(), owners.whole.clone())
        );
        assert_eq!(None, owners.assigned(&records, &wanted, Solver::Balanced).unwrap());
        assert_eq!(vec![Share { rank: 1, part: 1 }], owners.shares(None, 0));
        // Reads do not need this.
        assert_eq!(vec![0, 1], Owners::new(&records, &wanted, false).able[0]);
        // One array that all ranks have: the first rank owns it.
        let (records, wanted) = brought(&[vec![(1, 3, 9)], vec![(1, 3, 9)]], 2);
        let owners = Owners::new(&records, &wanted, true);
        assert_eq!(vec![Share { rank: 0, part: 1 }], owners.shares(None, 0));
    }

    #[test]
    fn a_solver_that_cannot_do_it_leaves_it_to_one_that_can() {
        // 40 arrays are too many for the exact solver.
        let all: Vec<_> = (0..40).map(|k| (k, 2 * k, 10 + k)).collect();
        let (records, wanted) = brought(&[all.clone(), all], 2);
        let owners = Owners::new(&records, &wanted, false);
        let given = owners.assigned(&records, &wanted, Solver::Exact).unwrap().unwrap();
        assert_eq!(Solver::Balanced, given.solver);
        assert!(given.why.contains("exact was requested, but cannot do this"), "{}", given.why);
        assert_eq!(40, most_arrays(&wanted, 2));
    }

    proptest! {
        /// Compares the owners with the requests of each rank, one by one.
        #[test]
        fn owners_have_their_arrays_and_shares_are_everything(
            has in proptest::collection::vec(proptest::collection::vec(0..40_i64, 5), 1..6),
            files in proptest::collection::vec(0..6_i64, 5),
            io_ranks in 1..7_i64,
            write: bool,
        ) {
            // A rank does not request an array with a count up to 9.
            let of = |counts: &Vec<i64>| -> Vec<(i64, i64, i64)> {
                let each = counts.iter().enumerate().filter(|(_, n)| **n > 9);
                each.map(|(k, n)| (k as i64, files[k], *n)).collect()
            };
            let ranks: Vec<_> = has.iter().map(of).collect();
            let (records, wanted) = brought(&ranks, io_ranks);
            prop_assume!(!wanted.is_empty());
            let owners = Owners::new(&records, &wanted, write);
            let given = owners.assigned(&records, &wanted, Solver::Balanced).unwrap();
            let most = ranks.iter().map(Vec::len).max().unwrap() as i64;
            prop_assert_eq!(if wanted.len() < 2 { 1 } else { most }, most_arrays(&wanted, ranks.len()));
            for (number, one) in wanted.iter().enumerate() {
                let who = |rank: &u32| ranks[*rank as usize].iter().any(|(name, ..)| *name == one.name);
                let shares = owners.shares(given.as_ref(), number);
                prop_assert!(!shares.is_empty());
                prop_assert!(shares.iter().all(|share| who(&share.rank) && share.part > 0));
                prop_assert!(shares.windows(2).all(|two| two[0].rank < two[1].rank));
                if write && one.file % 2 != 0 {
                    prop_assert_eq!(1, shares.len());
                    // All arrays of the file have this owner, if any rank has them all.
                    let together: Vec<_> = (0..wanted.len()).filter(|k| wanted[*k].file == one.file).collect();
                    let all = |rank: u32| together.iter().all(|k| wanted[*k].have.contains(&rank));
                    if (0..ranks.len() as u32).any(all) {
                        for k in together {
                            prop_assert_eq!(shares[0].rank, owners.shares(given.as_ref(), k)[0].rank);
                        }
                    }
                }
                if let Some(given) = &given {
                    let sum: i64 = given.shares[number].iter().map(|share| share.bytes).sum();
                    prop_assert_eq!(one.union(), sum);
                }
            }
        }
    }
}
