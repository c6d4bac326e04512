//! Chunks listed in a table that the format reads (HDF5).
//!
//! The format's own library returns the rows, but from a file that may be damaged or hostile: they
//! are checked before the planner sees them.

use std::path::Path;

use outcore_plan::{ChunkTable, Stored};

use super::files::damaged;
use super::{Cells, ChunkSize};
use crate::error::StorageError;

/// Converts rows into a table for the file with number `file` and length `file_len`.
///
/// Each row has three numbers: file offset or -1, stored bytes, filter mask. There is one row per
/// chunk of the box in C order.
///
/// # Errors
/// `Index` if a chunk is outside the file, has a length that no chunk of this array has, or
/// overlaps another; `BadJob` if the number of rows is wrong.
pub fn from_rows(
    cells: &Cells,
    rows: &[i64],
    size: ChunkSize,
    file: u32,
    file_len: i64,
    path: &Path,
) -> Result<ChunkTable, StorageError> {
    let (rows, rest) = rows.as_chunks::<3>();
    if rows.len() != cells.len() || !rest.is_empty() {
        let (rows, cells) = (rows.len(), cells.len());
        return Err(StorageError::BadJob(format!("{rows} rows for {cells} chunks")));
    }
    let mut stored = Vec::with_capacity(rows.len());
    for (&[offset, len, mask], cell) in rows.iter().zip(cells.iter()) {
        if offset == -1 {
            stored.push(None);
            continue;
        }
        let fail = |why: String| Err(damaged(path, Some(offset), format!("chunk {cell:?} {why}")));
        let Ok(mask) = u32::try_from(mask) else {
            return fail(format!("has the filter mask {mask:#x}"));
        };
        if !size.encoded && len != size.decoded {
            return fail(format!("has {len} bytes instead of {}", size.decoded));
        }
        if len < 1 || len > size.limit {
            return fail(format!("has {len} bytes, outside 1..={}", size.limit));
        }
        if offset < 0 || offset.checked_add(len).is_none_or(|end| end > file_len) {
            return fail(format!(
                "has {len} bytes from byte {offset} on, but the file ends at {file_len}"
            ));
        }
        stored.push(Some(Stored { file, offset, len, mask }));
    }
    let table = ChunkTable { lo: cells.lo.clone(), count: cells.count.clone(), stored };
    disjoint(table.stored.iter().flatten().map(|s| (s.offset, s.len)).collect(), path)?;
    Ok(table)
}

/// Offsets from here on are positions in the log of a change (`formats/hdf5/redo.py`), relative to
/// this number.
pub const LOG: i64 = 1 << 62;

/// Divides rows into those for chunks in the file and, if there are any, those for chunks in the
/// log; each chunk is in at most one of them.
pub fn in_log(mut rows: Vec<i64>) -> (Vec<i64>, Option<Vec<i64>>) {
    if rows.iter().step_by(3).all(|offset| *offset < LOG) {
        return (rows, None);
    }
    let mut there = rows.clone();
    for (here, there) in rows.chunks_mut(3).zip(there.chunks_mut(3)) {
        match here[0] < LOG {
            true => there[0] = -1,
            false => (here[0], there[0]) = (-1, here[0] - LOG),
        }
    }
    (rows, Some(there))
}

/// Returns an error if extents overlap. They are inside the file, so no sum overflows.
pub(super) fn disjoint(mut extents: Vec<(i64, i64)>, path: &Path) -> Result<(), StorageError> {
    extents.sort_unstable();
    for pair in extents.windows(2) {
        let ((offset, len), (next, next_len)) = (pair[0], pair[1]);
        if offset + len > next {
            let why = format!(
                "two chunks share bytes: {len} from byte {offset} on and {next_len} from {next} on"
            );
            return Err(damaged(path, Some(next), why));
        }
    }
    Ok(())
}
