//! Records that ranks exchange at the start of a collective, as 64-bit words.
//!
//! Problem: before any data moves, every rank must know the accesses of all others and check that
//! all ranks made the same call. There may be 10^5 ranks, and the time must not grow with the
//! number of elements.
//!
//! Approach: a rank's record is a row of words. All rows have one length and are gathered in one
//! call. A row begins with a head of fixed length. Most records have at most [`HEAD`] words; longer
//! ones are gathered a second time.
//!
//! | words | contents |
//! |---|---|
//! | 0, 1, 2 | version of this format, progress of the rank ([`Stage`]), number of the call |
//! | 3, 4, 5 | number of items, words of the record, number of settings |
//! | 6 to 19 | settings: numbers that may differ between ranks |
//! | 20 ... | for each item: names of its array and file; the words of the array, after their number (0: the same as for the item before); the words of the section, after their number |
//!
//! Invariants: rows come from other processes, possibly of other versions; no row causes a panic.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use super::access::{section_from_words, Access, ArrayDescriptor};
use super::overlap::{leave_out, Left};
use super::regions::regions;
use crate::error::PlanError;
use crate::section::Section;

/// Number of words of a row that are always sent.
pub const HEAD: usize = 64;
/// Number of words before the first item.
const FIXED: usize = 20;
const SETTINGS: usize = 6;
const VERSION: i64 = 5;
/// Maximum number of accesses for which shared elements are counted exactly.
const EXACT: usize = 256;

/// Progress of a rank when it makes its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The rank is ready to access its items.
    Ready = 0,
    /// The rank has failed.
    Failed = 1,
    /// The rank has already read its items (before the synchronisation).
    Done = 2,
    /// The rank has already read its items, but omitted them, or gave only the name of one.
    ///
    /// It sends them if other ranks still need data.
    Unsaid = 3,
}

/// A rank's request for one section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// Name of the array, equal on all ranks.
    pub name: i64,
    /// Name of its file, odd if only one process at a time may write the file.
    pub file: i64,
    /// Words of the array.
    pub descriptor: Vec<i64>,
    /// Words of the section.
    pub section: Vec<i64>,
}

/// Creates a rank's record of at least [`HEAD`] words.
pub fn record(
    call: i64,
    stage: Stage,
    settings: &[i64],
    items: &[Said],
) -> Result<Vec<i64>, PlanError> {
    if settings.len() > FIXED - SETTINGS {
        return Err(PlanError::BadLayout(format!(
            "a record has {} settings, which are too many",
            settings.len()
        )));
    }
    let mut words = vec![VERSION, stage as i64, call, items.len() as i64, 0, settings.len() as i64];
    words.extend(settings);
    words.resize(FIXED, 0);
    let mut before: &[i64] = &[];
    for Said { name, file, descriptor, section } in items {
        // Hundreds of arrays often have the same descriptor.
        let new = if descriptor == before { &[] } else { &descriptor[..] };
        before = descriptor;
        words.extend([*name, *file, new.len() as i64]);
        words.extend(new);
        words.push(section.len() as i64);
        words.extend(section);
    }
    words[4] = words.len() as i64;
    words.resize(words.len().max(HEAD), 0);
    Ok(words)
}

/// The record of a rank that has read its items and omits them.
///
/// With `name`, the record has one item, with only the name of its array.
pub fn unsaid(call: i64, settings: &[i64], name: Option<i64>) -> Result<Vec<i64>, PlanError> {
    let mut words = record(call, Stage::Unsaid, settings, &[])?;
    if let Some(name) = name {
        (words[3], words[4], words[FIXED]) = (1, FIXED as i64 + 1, name);
    }
    Ok(words)
}

/// The record of a rank that could not make its record.
pub fn failed() -> Vec<i64> {
    let mut words = vec![0; HEAD];
    (words[0], words[1]) = (VERSION, Stage::Failed as i64);
    words
}

/// The records of all ranks, by rank.
#[derive(Debug, Clone)]
pub struct Records {
    words: Vec<i64>,
    width: usize,
}

/// An array, and the accesses of all ranks to it.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Its name.
    pub name: i64,
    /// Name of its file; odd if only one process at a time may write the file.
    pub file: i64,
    /// The array.
    pub descriptor: ArrayDescriptor,
    /// The accesses, in the order of ranks.
    pub accesses: Vec<Access>,
    /// Ranks that have the array, ascending.
    pub have: Vec<u32>,
}

/// Reasons why records do not match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mismatch {
    /// This rank's descriptor of an array differs from that of the ranks before it.
    ArrayDescriptor(u32),
    /// These ranks requested another array than rank 0, or not exactly one.
    Array(Vec<u32>),
    /// Invalid words of a record.
    Words(PlanError),
}

impl From<PlanError> for Mismatch {
    fn from(error: PlanError) -> Mismatch {
        Mismatch::Words(error)
    }
}

impl Records {
    /// Creates records from rows of equal length, one after another.
    pub fn new(words: Vec<i64>, width: usize) -> Result<Records, PlanError> {
        if width < FIXED || words.is_empty() || !words.len().is_multiple_of(width) {
            let text =
                format!("{} words are not a whole number of records of {width}", words.len());
            return Err(PlanError::BadLayout(text));
        }
        Ok(Records { words, width })
    }

    fn rows(&self) -> impl Iterator<Item = &[i64]> {
        self.words.chunks_exact(self.width)
    }

    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.words.len() / self.width
    }

    /// Returns whether any rank failed.
    pub fn any_failed(&self) -> bool {
        self.rows().any(|row| row[1] == Stage::Failed as i64)
    }

    /// Returns whether any rank has omitted its items.
    pub fn any_unsaid(&self) -> bool {
        self.rows().any(|row| row[1] == Stage::Unsaid as i64)
    }

    /// Version and call of each rank.
    pub fn calls(&self) -> impl Iterator<Item = (i64, i64)> + '_ {
        self.rows().map(|row| (row[0], row[2]))
    }

    /// Returns whether all ranks made the same call, with the same version.
    pub fn same_call(&self) -> bool {
        let mut calls = self.calls();
        let first = calls.next();
        first.is_some_and(|(version, _)| version == VERSION)
            && calls.all(|call| Some(call) == first)
    }

    /// Number of words of the longest record.
    pub fn longest(&self) -> i64 {
        self.rows().map(|row| row[4]).max().unwrap_or(0)
    }

    /// A setting of all ranks; 0 for a rank that did not send it.
    pub fn setting(&self, number: usize) -> impl Iterator<Item = i64> + '_ {
        self.rows().map(move |row| {
            let said = number < FIXED - SETTINGS && (number as i64) < row[5];
            if said {
                row[SETTINGS + number]
            } else {
                0
            }
        })
    }

    /// A setting of the first rank that has an item, or of rank 0 if no rank has one.
    pub fn first_setting(&self, number: usize) -> i64 {
        let brought = self.rows().position(|row| row[3] > 0).unwrap_or(0);
        self.setting(number).nth(brought).unwrap_or(0)
    }

    /// Returns whether all ranks made the same call, have their data, and agree on a setting.
    ///
    /// With `one`, all ranks must also have exactly one section, of the same array.
    pub fn settled(&self, same: usize, one: bool) -> bool {
        let done = [Stage::Done as i64, Stage::Unsaid as i64];
        let mut settings = self.setting(same);
        let setting = settings.next();
        let name = self.words.get(FIXED);
        self.same_call()
            && self.rows().all(|row| done.contains(&row[1]))
            && settings.all(|said| Some(said) == setting)
            && (!one || self.rows().all(|row| row[3] == 1 && row.get(FIXED) == name))
    }

    /// All arrays in the order of their first occurrence, with the accesses to them.
    ///
    /// With `one`, all ranks must have requested exactly one section, of the same array.
    pub fn arrays(&self, one: bool) -> Result<Vec<Wanted>, Mismatch> {
        let mut found: Vec<Wanted> = Vec::new();
        let mut numbers: BTreeMap<i64, usize> = BTreeMap::new();
        let mut odd = Vec::new();
        for (rank, row) in self.rows().enumerate() {
            let rank = u32::try_from(rank).map_err(|_| PlanError::TooLarge("a rank"))?;
            let mut rest = &row[FIXED..];
            let mut before: &[i64] = &[];
            for item in 0..u32::try_from(row[3]).map_err(|_| bad(row))? {
                let ([name, file], descriptor) = take(&mut rest).ok_or_else(|| bad(row))?;
                let descriptor = if descriptor.is_empty() { before } else { descriptor };
                before = descriptor;
                let ([], section) = take(&mut rest).ok_or_else(|| bad(row))?;
                let number = *numbers.entry(name).or_insert(found.len());
                if number == found.len() {
                    let descriptor = ArrayDescriptor::from_words(descriptor)?;
                    found.push(Wanted { name, file, descriptor, accesses: vec![], have: vec![] });
                }
                let wanted = &mut found[number];
                if wanted.descriptor.words() != descriptor || wanted.file != file {
                    return Err(Mismatch::ArrayDescriptor(rank));
                }
                let section = section_from_words(section, &wanted.descriptor.shape)?;
                wanted.accesses.push(Access { rank, item, section });
                if wanted.have.last() != Some(&rank) {
                    wanted.have.push(rank);
                }
                if one && number > 0 {
                    odd.push(rank);
                }
            }
            if one && row[3] != 1 {
                odd.push(rank);
            }
        }
        odd.dedup();
        if odd.is_empty() {
            Ok(found)
        } else {
            Err(Mismatch::Array(odd))
        }
    }
}

fn bad(row: &[i64]) -> PlanError {
    PlanError::BadLayout(format!(
        "the words of a record are invalid: {:?} ...",
        &row[..FIXED.min(row.len())]
    ))
}

/// The next list of words, and the names before it.
fn take<'a, const N: usize>(rest: &mut &'a [i64]) -> Option<([i64; N], &'a [i64])> {
    let (names, after) = rest.split_first_chunk::<N>()?;
    let (length, after) = after.split_first()?;
    let (words, after) = after.split_at_checked(usize::try_from(*length).ok()?)?;
    *rest = after;
    Some((*names, words))
}

impl Wanted {
    /// Bytes of a block with a single owner, or of an element without blocks.
    pub fn block(&self) -> i64 {
        let grain = if self.descriptor.encoded { &self.descriptor.grain[..] } else { &[] };
        grain.iter().fold(self.descriptor.item, |bytes, n| bytes.saturating_mul(*n))
    }

    /// Bytes that at least one rank requests, each counted once.
    ///
    /// For very many accesses, this is an estimate: the bytes of the different sections, or of
    /// their bounding section if that is less.
    pub fn union(&self) -> i64 {
        let bytes = |sections: &mut dyn Iterator<Item = &Section>| {
            let each = sections
                .map(|s| s.count().unwrap_or(i64::MAX).saturating_mul(self.descriptor.item));
            each.fold(0, i64::saturating_add)
        };
        let found = regions(&self.descriptor, &self.accesses, 0);
        if self.accesses.len() <= EXACT {
            match leave_out(&self.descriptor, &self.accesses, &found) {
                Left::All => return bytes(&mut self.accesses.iter().map(|a| &a.section)),
                Left::Parts(parts) => return bytes(&mut parts.iter().map(|(_, part)| part)),
                Left::Entangled | Left::Unknown => {}
            }
        }
        let of_region = |region: &super::regions::Region| {
            let members = region.members.iter();
            let mut sections: Vec<_> =
                members.map(|k| &self.accesses[*k as usize].section).collect();
            sections.sort();
            sections.dedup();
            let around = bytes(&mut core::iter::once(&region.section));
            bytes(&mut sections.into_iter()).min(around)
        };
        found.iter().map(of_region).fold(0, i64::saturating_add)
    }

    /// Bytes that each of `ranks` ranks requests.
    pub fn requests(&self, ranks: usize) -> Vec<i64> {
        let mut bytes = vec![0_i64; ranks];
        for access in &self.accesses {
            let count = access.section.count().unwrap_or(i64::MAX);
            if let Some(all) = bytes.get_mut(access.rank as usize) {
                *all = all.saturating_add(count.saturating_mul(self.descriptor.item));
            }
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::section_words;
    use super::*;
    use crate::section::{Range, Section};

    fn descriptor(shape: &[i64], encoded: bool) -> ArrayDescriptor {
        let n = shape.len();
        ArrayDescriptor {
            shape: shape.to_vec(),
            item: 4,
            order: (0..n).collect(),
            grain: vec![2; n],
            encoded,
            lead: None,
        }
    }

    fn section(low: i64, count: i64) -> Section {
        let range = Range::new(low, count, 1).unwrap();
        Section::new(vec![range, range])
    }

    fn said(name: i64, descriptor: &ArrayDescriptor, s: &Section) -> Said {
        Said { name, file: 2 * name, descriptor: descriptor.words(), section: section_words(s) }
    }

    fn gathered(rows: &[Vec<i64>]) -> Records {
        let width = rows.iter().map(Vec::len).max().unwrap();
        let row = |row: &Vec<i64>| {
            let mut row = row.clone();
            row.resize(width, 0);
            row
        };
        Records::new(rows.iter().flat_map(row).collect(), width).unwrap()
    }

    #[test]
    fn records_say_who_wants_what() {
        let (a, b) = (descriptor(&[9, 9], false), descriptor(&[7, 8], true));
        let (s, t, none) = (section(1, 3), section(2, 5), section(0, 0));
        let item = |name, descriptor: &ArrayDescriptor, s: &Section| said(name, descriptor, s);
        let rows = [
            record(6, Stage::Ready, &[1, 20], &[item(-5, &a, &s), item(8, &b, &none)]).unwrap(),
            record(6, Stage::Done, &[3], &[]).unwrap(),
            record(
                6,
                Stage::Ready,
                &[2, 10],
                &[item(8, &b, &t), item(8, &b, &s), item(-5, &a, &t)],
            )
            .unwrap(),
        ];
        assert!(rows[2].len() > HEAD || rows[2][4] <= HEAD as i64);
        let records = gathered(&rows);
        assert!(!records.any_failed() && records.same_call());
        assert_eq!(vec![1, 3, 2], records.setting(0).collect::<Vec<_>>());
        assert_eq!(vec![20, 0, 10], records.setting(1).collect::<Vec<_>>());
        assert_eq!(vec![0; 3], records.setting(99).collect::<Vec<_>>());
        assert_eq!(
            (1, 20, 0),
            (records.first_setting(0), records.first_setting(1), records.first_setting(99))
        );
        let late = gathered(&[rows[1].clone(), rows[2].clone(), rows[0].clone()]);
        assert_eq!(
            (2, 10),
            (late.first_setting(0), late.first_setting(1)),
            "rank 0 brought nothing"
        );
        assert!(!records.settled(0, false) && !records.any_unsaid());
        let found = records.arrays(false).unwrap();
        assert_eq!(vec![-5, 8], found.iter().map(|w| w.name).collect::<Vec<_>>());
        assert_eq!((&a, &b), (&found[0].descriptor, &found[1].descriptor));
        assert_eq!((-10, 16), (found[0].file, found[1].file));
        assert_eq!(vec![0, 2], found[0].have);
        assert_eq!(vec![0, 2], found[1].have);
        let seen = |w: &Wanted| -> Vec<_> {
            w.accesses.iter().map(|x| (x.rank, x.item, x.section.clone())).collect()
        };
        assert_eq!(vec![(0, 0, s.clone()), (2, 2, t.clone())], seen(&found[0]));
        assert_eq!(vec![(0, 1, none), (2, 0, t), (2, 1, s)], seen(&found[1]));
        assert_eq!((4, 16), (found[0].block(), found[1].block()));
        assert_eq!(vec![36, 0, 100], found[0].requests(3));
        assert_eq!(Some(Mismatch::Array(vec![0, 1, 2])), records.arrays(true).err());
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let (s, empty) = (section(1, 3), section(0, 0));
        let one = |name, descriptor: ArrayDescriptor, section: &Section| {
            record(2, Stage::Ready, &[0], &[said(name, &descriptor, section)]).unwrap()
        };
        let plain = one(1, descriptor(&[9, 9], false), &s);
        let records = gathered(&[plain.clone(), one(1, descriptor(&[9, 9], false), &empty)]);
        assert!(records.arrays(true).is_ok() && !records.settled(0, true));
        let records = gathered(&[plain.clone(), one(1, descriptor(&[9, 8], false), &s)]);
        assert_eq!(Some(Mismatch::ArrayDescriptor(1)), records.arrays(false).err());
        let elsewhere = Said { file: 3, ..said(1, &descriptor(&[9, 9], false), &s) };
        let records =
            gathered(&[plain.clone(), record(2, Stage::Ready, &[0], &[elsewhere]).unwrap()]);
        assert_eq!(Some(Mismatch::ArrayDescriptor(1)), records.arrays(false).err());
        let records =
            gathered(&[plain.clone(), plain.clone(), one(2, descriptor(&[9, 8], false), &s)]);
        assert_eq!(Some(Mismatch::Array(vec![2])), records.arrays(true).err());
        let records = gathered(&[plain.clone(), record(3, Stage::Ready, &[], &[]).unwrap()]);
        assert!(!records.same_call());
        assert_eq!(vec![(VERSION, 2), (VERSION, 3)], records.calls().collect::<Vec<_>>());
        assert!(gathered(&[plain, failed()]).any_failed());
        assert!(record(2, Stage::Ready, &[0; FIXED - SETTINGS + 1], &[]).is_err());
        assert!(Records::new(vec![], 64).is_err() && Records::new(vec![0; 65], 64).is_err());
    }

    #[test]
    fn all_have_what_they_want() {
        let say = |stage, setting, name| {
            let item = said(name, &descriptor(&[9, 9], true), &section(1, 3));
            record(2, stage, &[setting], &[item]).unwrap()
        };
        let settled = |rows: &[Vec<i64>], one| gathered(rows).settled(0, one);
        let (done, unsaid) = (say(Stage::Done, 1, 7), record(2, Stage::Unsaid, &[1], &[]).unwrap());
        assert!(settled(&[done.clone(), done.clone()], true));
        assert!(settled(&[done.clone(), unsaid.clone(), say(Stage::Done, 1, 8)], false));
        assert!(gathered(&[done.clone(), unsaid.clone()]).any_unsaid());
        let brief = |name| super::unsaid(2, &[1], Some(name)).unwrap();
        assert_eq!((unsaid.clone(), HEAD), (super::unsaid(2, &[1], None).unwrap(), brief(7).len()));
        assert!(settled(&[brief(7), done.clone(), brief(7)], true));
        assert!(!settled(&[brief(7), brief(8)], true));
        assert!(!settled(&[brief(7), super::unsaid(4, &[1], Some(7)).unwrap()], true));
        assert!(!settled(&[brief(7), unsaid.clone()], true));
        assert!(gathered(&[brief(7), done.clone()]).any_unsaid());
        assert!(!settled(&[done.clone(), unsaid], true));
        assert!(!settled(&[done.clone(), say(Stage::Done, 1, 8)], true));
        assert!(!settled(&[done.clone(), say(Stage::Done, 2, 7)], false));
        assert!(!settled(&[done.clone(), say(Stage::Ready, 1, 7)], false));
        assert!(!settled(&[done, failed()], false));
    }

    proptest! {
        #[test]
        fn foreign_words_are_refused_or_read_but_never_panic(
            mut words in prop::collection::vec(prop_oneof![-3..20_i64, any::<i64>()], 2 * HEAD),
            change in prop::collection::vec((0..2 * HEAD, prop_oneof![-3..70_i64, any::<i64>()]), 0..3),
            damaged in any::<bool>(),
        ) {
            if damaged {
                let s = section(1, 3);
                let item = said(7, &descriptor(&[9, 9], false), &s);
                let good = record(2, Stage::Done, &[5], &[item]).unwrap();
                words = [good.clone(), good].concat();
                for (at, word) in change {
                    words[at] = word;
                }
            }
            let records = Records::new(words, HEAD).unwrap();
            let _ = (records.any_failed(), records.same_call(), records.longest());
            let _ = (records.settled(0, true), records.settled(99, false), records.any_unsaid());
            let _ = records.setting(3).count();
            for one in [false, true] {
                if let Ok(found) = records.arrays(one) {
                    for wanted in found {
                        let _ = (wanted.block(), wanted.requests(2), wanted.union());
                    }
                }
            }
        }
    }
}
