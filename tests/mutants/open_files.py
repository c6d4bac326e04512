"""Open files as a budget of their own."""

from mutants import Mutant

IO = "crates/io/src"
OPEN = "tests/unit/test_open_files.py"
THREADS = f"{OPEN}::test_sixteen_threads_read_and_write_chunks_with_256_files"
RAW = f"{OPEN}::test_an_array_of_many_files_keeps_few_open"
ARRAYS = f"{OPEN}::test_many_open_arrays_share_few_places"

MUTANTS = [
    Mutant(
        file=f"{IO}/descriptors.rs",
        before="    if !count(&budget.kept, 1, limit / 2) {",
        after="    if !count(&budget.kept, 1, u64::MAX) {",
        killed_by=(RAW, ARRAYS),
        why="files that are only kept would take all places",
    ),
    Mutant(
        file="crates/access/src/chunks.rs",
        before="        descriptors::take(u64::try_from(number).unwrap_or(u64::MAX)).ok_or_else(|| {",
        after="        Some(descriptors::take_some(u64::from(number < 0))).ok_or_else(|| {",
        killed_by=THREADS,
        why="threads together would have more files open than the system allows",
    ),
    Mutant(
        file=f"{IO}/exec/mod.rs",
        before="        Some(Err(StorageError::Io(failure))) if descriptors::is_shortage(failure.errno) => {",
        after="        Some(Err(StorageError::Io(failure))) if failure.errno == 0 => {",
        killed_by=RAW,
        why="a round of requests that has all its files open would fail where one at a time goes on",
    ),
]
