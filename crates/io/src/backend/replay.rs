//! Possible states of the disk after a crash.
//!
//! Problem: between two syncs a file system may write any data in any order. Code that survives a
//! kill may still lose data in a power failure.
//!
//! Idea: take the files before a run (a [`Disk`]), the log of the run ([`Op`]) up to any point, and
//! a [`Loss`], and compute the files after the crash. The models reveal the usual mistakes: no sync
//! before a rename ([`Loss::NamesFirst`]), no sync at all ([`Loss::Unsynced`]), writes that rely on
//! their order ([`Loss::Torn`]).
//!
//! Paper: Pillai et al., "All File Systems Are Not Created Equal", OSDI 2014.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::faulty::Op;

/// Data that a crash removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// Nothing: only the process died.
    Nothing,
    /// All bytes and names that were not synced.
    Unsynced,
    /// All bytes that were not synced, but no names.
    NamesFirst,
    /// Some 4 KiB blocks of the bytes that were not synced, and the last few changes of names.
    Torn {
        /// Seed of the selection.
        seed: u64,
    },
}

const BLOCK: usize = 4096;

/// Names and contents of the files of a folder.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Disk {
    names: BTreeMap<PathBuf, u64>,
    contents: BTreeMap<u64, Vec<u8>>,
}

impl Disk {
    /// Takes a snapshot of the files below a folder.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn snapshot(folder: &Path) -> io::Result<Disk> {
        let mut disk = Disk::default();
        let mut folders = vec![folder.canonicalize()?];
        while let Some(next) = folders.pop() {
            for entry in next.read_dir()? {
                let (path, meta) = entry.and_then(|entry| Ok((entry.path(), entry.metadata()?)))?;
                if meta.is_dir() {
                    folders.push(path);
                } else if meta.is_file() {
                    disk.contents.insert(meta.ino(), std::fs::read(&path)?);
                    disk.names.insert(path, meta.ino());
                }
            }
        }
        Ok(disk)
    }

    /// Returns the content of a file; `None` if there is no such name.
    pub fn read(&self, path: &Path) -> Option<&[u8]> {
        self.contents.get(self.names.get(path)?).map(Vec::as_slice)
    }

    /// Returns the names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &Path> {
        self.names.keys().map(PathBuf::as_path)
    }

    /// Writes the files below `from` in this state into the folder `to`.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write_to(&self, from: &Path, to: &Path) -> io::Result<()> {
        let from = from.canonicalize()?;
        for (path, inode) in &self.names {
            let Ok(name) = path.strip_prefix(&from) else { continue };
            let target = to.join(name);
            if let Some(parent) = target.parent() {
                std::fs::create_dir_all(parent)?;
            }
            std::fs::write(target, self.contents.get(inode).map_or(&[][..], Vec::as_slice))?;
        }
        Ok(())
    }

    /// Returns the state of this disk after `ops` and a crash.
    pub fn after_crash(&self, ops: &[Op], loss: Loss) -> Disk {
        let mut chance = Chance(match loss {
            Loss::Torn { seed } => seed,
            _ => 0,
        });
        // Number of surviving changes since the last sync of their folder.
        let late: Vec<usize> = unsynced_names(ops);
        let kept = match loss {
            Loss::Nothing | Loss::NamesFirst => late.len(),
            Loss::Unsynced => 0,
            Loss::Torn { .. } => chance.below(late.len() + 1),
        };
        let lost = &late[kept..];
        let files = files(ops);
        let last_sync = last_syncs(ops, &files);
        let mut disk = self.clone();
        for (at, op) in ops.iter().enumerate() {
            let synced = last_sync.get(&files[at]).is_some_and(|sync| *sync > at);
            match op {
                Op::Write { offset, bytes, .. } => {
                    let content = disk.contents.entry(files[at]).or_default();
                    match loss {
                        _ if synced => write(content, *offset, bytes),
                        Loss::Nothing => write(content, *offset, bytes),
                        Loss::Unsynced | Loss::NamesFirst => {}
                        Loss::Torn { .. } => write_torn(content, *offset, bytes, &mut chance),
                    }
                }
                Op::Resize { len, .. } => {
                    let kept = match loss {
                        Loss::Nothing => true,
                        Loss::Torn { .. } => synced || chance.below(2) == 0,
                        _ => synced,
                    };
                    if kept {
                        disk.contents.entry(files[at]).or_default().resize(*len as usize, 0);
                    }
                }
                Op::Sync { .. } | Op::SyncFolder { .. } => {}
                Op::Create { path, .. } => {
                    disk.contents.insert(files[at], Vec::new());
                    if !lost.contains(&at) {
                        disk.names.insert(path.clone(), files[at]);
                    }
                }
                Op::Rename { from, to } if !lost.contains(&at) => disk.rename(from, to),
                Op::Exchange { from, to } if !lost.contains(&at) => {
                    let aside = Path::new("between");
                    disk.rename(to, aside);
                    disk.rename(from, to);
                    disk.rename(aside, from);
                }
                Op::Unlink { path } if !lost.contains(&at) => {
                    disk.names.remove(path);
                }
                Op::Rename { .. } | Op::Exchange { .. } | Op::Unlink { .. } => {}
            }
        }
        let names = &disk.names;
        disk.contents.retain(|inode, _| names.values().any(|named| named == inode));
        disk
    }
}

impl Disk {
    /// Renames a file, or a folder with its contents.
    fn rename(&mut self, from: &Path, to: &Path) {
        let old: Vec<PathBuf> =
            self.names.keys().filter(|n| n.starts_with(from)).cloned().collect();
        for name in old {
            let inside = name.strip_prefix(from).unwrap_or(&name);
            if let Some(inode) = self.names.remove(&name) {
                self.names.insert(to.join(inside), inode);
            }
        }
    }
}

/// Returns the positions of the changes of names that no later sync of their folder covers.
fn unsynced_names(ops: &[Op]) -> Vec<usize> {
    let mut late = Vec::new();
    for (at, op) in ops.iter().enumerate() {
        match op {
            Op::Create { .. } | Op::Rename { .. } | Op::Exchange { .. } | Op::Unlink { .. } => {
                late.push(at);
            }
            Op::SyncFolder { path } => late.retain(|change: &usize| {
                let (Op::Create { path: name, .. }
                | Op::Rename { to: name, .. }
                | Op::Exchange { to: name, .. }
                | Op::Unlink { path: name }) = &ops[*change]
                else {
                    return false;
                };
                name.parent() != Some(path)
            }),
            _ => {}
        }
    }
    late
}

/// Returns the file of each operation, 0 for none.
///
/// The system may reuse the inode number of a removed file. After a crash the removed file may be
/// back, so created files get separate numbers.
fn files(ops: &[Op]) -> Vec<u64> {
    let mut current = BTreeMap::new();
    let number = |(at, op): (usize, &Op)| match op {
        Op::Create { inode, .. } => {
            current.insert(*inode, u64::MAX - at as u64);
            u64::MAX - at as u64
        }
        Op::Write { inode, .. } | Op::Resize { inode, .. } | Op::Sync { inode } => {
            current.get(inode).copied().unwrap_or(*inode)
        }
        Op::SyncFolder { .. } | Op::Rename { .. } | Op::Exchange { .. } | Op::Unlink { .. } => 0,
    };
    ops.iter().enumerate().map(number).collect()
}

/// Returns the position of the last sync of each file.
fn last_syncs(ops: &[Op], files: &[u64]) -> BTreeMap<u64, usize> {
    let syncs = ops.iter().enumerate().filter(|(_, op)| matches!(op, Op::Sync { .. }));
    syncs.map(|(at, _)| (files[at], at)).collect()
}

fn write(content: &mut Vec<u8>, offset: i64, bytes: &[u8]) {
    let start = offset as usize;
    let end = start + bytes.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    content[start..end].copy_from_slice(bytes);
}

/// Writes half of the blocks; a lost block at the end leaves a hole or a shorter file.
fn write_torn(content: &mut Vec<u8>, offset: i64, bytes: &[u8], chance: &mut Chance) {
    let mut at = 0;
    while at < bytes.len() {
        let position = offset as usize + at;
        let step = (BLOCK - position % BLOCK).min(bytes.len() - at);
        if chance.below(2) == 0 {
            write(content, position as i64, &bytes[at..at + step]);
        }
        at += step;
    }
}

/// Generator SplitMix64.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) % bound.max(1) as u64) as usize
    }
}
