//! Reading ahead: the extents of a plan, passed to the operating system without waiting.

use outcore_io::StorageError;
use outcore_plan::{Family, Place, Transfer};

use crate::error::Fault;
use crate::step::Step;

/// Limit of extents of one access; the rest is left to the read itself, because each extent costs a system
/// call.
pub const MOST: usize = 1 << 18;

/// Announces the extents that the plan of a step will read, at most `left` of them; `Cancelled` when these
/// are used up.
pub fn ahead(step: &Step, left: &mut usize) -> Result<(), Fault> {
    for k in 0..step.plan.rounds() {
        let round = step.plan.round(k)?;
        for Transfer { file, extents, .. } in &round.reads {
            let open = step.files.open(*file)?;
            each(extents, left, &mut |offset, len| open.will_need(offset, len));
        }
        for read in &round.chunk_reads {
            step.files.open(read.stored.file)?.will_need(read.stored.offset, read.stored.len);
            *left = left.saturating_sub(1);
        }
        for moved in &round.moves {
            // A mapped read: announce from its first to its last byte.
            if let Place::File(file) = moved.src {
                let span: i64 = moved
                    .count
                    .iter()
                    .zip(&moved.src_stride)
                    .map(|(n, s)| (n - 1).max(0) * s)
                    .sum();
                step.files.open(file)?.will_need(moved.src_at, span + moved.item);
                *left = left.saturating_sub(1);
            }
        }
        if *left == 0 {
            return Err(StorageError::Cancelled.into());
        }
    }
    Ok(())
}

fn each(family: &Family, left: &mut usize, work: &mut dyn FnMut(i64, i64)) {
    let mut at = vec![0; family.count.len()];
    if family.count.contains(&0) {
        return;
    }
    while *left > 0 {
        let shift: i64 = at.iter().zip(&family.stride).map(|(i, s)| i * s).sum();
        work(family.offset + shift, family.len);
        *left -= 1;
        let Some(d) = (0..at.len()).rev().find(|d| at[*d] + 1 < family.count[*d]) else { return };
        at[d] += 1;
        at[d + 1..].fill(0);
    }
}

#[cfg(test)]
mod tests;
