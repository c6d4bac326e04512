"""Arrays that become longer or shorter: elements first, length last, one at a time, nothing old behind the end."""

from mutants import Mutant

FORMATS = "python/outcore/formats"
GROWING = "tests/unit/test_growing.py"
PREFIXES = "tests/crash/test_prefixes.py"
TWICE = f"{GROWING}::test_two_handles_append_one_behind_the_other"
AT_ONCE = f"{GROWING}::test_threads_and_processes_append_each_row_once"
RAW_KILLED = f"{GROWING}::test_a_raw_file_killed_while_it_grows"
GIVEN_BACK = f"{GROWING}::test_what_a_failed_append_reserved_is_given_back"
ANEW = f"{GROWING}::test_the_record_of_an_empty_raw_file_that_was_made_anew_counts_for_nothing"
OTHER_FILE = f"{GROWING}::test_the_record_of_a_raw_file_counts_for_no_other_file_and_size"
BEHIND = f"{GROWING}::test_a_resize_shows_zeros_where_old_bytes_lay_behind_the_end"
UNLIMITED = "tests/conformance/test_netcdf4_unlimited.py"

MUTANTS = [
    # In every format
    Mutant(
        file="python/outcore/arrays/disk/array.py",
        before="                    longer.flush(True)\n                finally:\n",
        after="                finally:\n",
        killed_by=f"{PREFIXES}::test_append",
        why="after a power cut an array would be longer, and its new elements not those that were appended",
    ),
    Mutant(
        file="python/outcore/arrays/disk/array.py",
        before="            growth = plan_append(array.info, data, axis)\n",
        after="            growth = plan_append(self.handle.info, data, axis)\n",
        killed_by=TWICE,
        why="of two handles that append the second would overwrite the rows of the first",
    ),
    Mutant(
        file="python/outcore/arrays/disk/array.py",
        before="            check_seen(self.handle.info, array.info, shape)\n",
        after="",
        killed_by=f"{GROWING}::test_a_resize_does_not_cut_off_what_another_handle_appended",
        why="a resize would cut off rows that its handle has never seen",
    ),
    Mutant(
        file=f"{FORMATS}/locks.py",
        before="        fd = lock_by_name(path, GROWTH) if _KNOWN else _lock_folder(path)\n",
        after="        fd = None\n",
        killed_by=AT_ONCE,
        why="two that append at once would write their rows to the same place",
    ),
    Mutant(
        file=f"{FORMATS}/growing.py",
        before="                    format.release(now)\n",
        after="                    pass\n",
        killed_by=GIVEN_BACK,
        why="what an append reserved before it failed would stay, and be rows of other programs",
    ),
    Mutant(
        file=f"{FORMATS}/durable.py",
        before="            if os.fstat(fd).st_size > min(old, new):\n                os.ftruncate(fd, min(old, new))\n",
        after="            if os.fstat(fd).st_size > new:\n                os.ftruncate(fd, new)\n",
        killed_by=BEHIND,
        why="a longer array would show old bytes instead of zeros",
    ),
    # The length that is read under the lock
    Mutant(
        file=f"{FORMATS}/npy.py",
        before="        yield _reshape(info, now.shape, _get_part(now).origin)\n",
        after="        yield info\n",
        killed_by=TWICE,
        why="the second of two handles would overwrite the rows of the first (.npy)",
    ),
    Mutant(
        file=f"{FORMATS}/raw.py",
        before="            yield _change_last(info, shape)\n",
        after="            yield info\n",
        killed_by=AT_ONCE,
        why="the second of two handles would overwrite the rows of the first, or never append (raw)",
    ),
    Mutant(
        file=f"{FORMATS}/zarr/grid.py",
        before="        yield replace(info, shape=now.shape)\n",
        after="        yield info\n",
        killed_by=TWICE,
        why="the second of two handles would overwrite the rows of the first (Zarr)",
    ),
    Mutant(
        file=f"{FORMATS}/hdf5/growing.py",
        before="            yield _GrowingDataset(now, (inner, dataset), fd, extend, held)\n",
        after="            yield _GrowingDataset(info, (inner, dataset), fd, extend, held)\n",
        killed_by=TWICE,
        why="the second of two handles would overwrite the rows of the first (HDF5)",
    ),
    # Raw files: the record
    Mutant(
        file=f"{FORMATS}/raw.py",
        before="        unfinished.begin(last.path, end, new)\n",
        after="",
        killed_by=RAW_KILLED,
        why="after a kill a raw file would have rows of zeros, or no longer open",
    ),
    Mutant(
        file=f"{FORMATS}/unfinished.py",
        before="                os.fsync(fd)\n            finally:\n                os.close(fd)\n"
        "            _core.fsync_folder(name)\n",
        after="            finally:\n                os.close(fd)\n",
        killed_by=f"{PREFIXES}::test_append",
        why="after a power cut a raw file would be longer, and nothing would say that its rows are none",
    ),
    Mutant(
        file=f"{FORMATS}/raw.py",
        before="            unfinished.undo_unfinished_append(last.path)\n            with durable",
        after="            with durable",
        killed_by=f"{GROWING}::test_an_append_after_one_that_was_killed",
        why="rows that a killed process reserved would count as appended",
    ),
    Mutant(
        file=f"{FORMATS}/unfinished.py",
        before="        if not same or not 0 <= record.old <= record.new:\n            return None\n",
        after="",
        killed_by=OTHER_FILE,
        why="the record of a file that was replaced would cut off rows of its successor",
    ),
    Mutant(
        file=f"{FORMATS}/unfinished.py",
        before="        return record if mark in (record.mark, bytes(_MARK)) else None\n",
        after="        return record\n",
        killed_by=ANEW,
        why="the record of a file that was written anew in place would cut off its rows",
    ),
    # HDF5: the change that is still open
    Mutant(
        file=f"{FORMATS}/hdf5/growing.py",
        before="            if not len(old):\n                return rows\n",
        after="            return rows\n",
        killed_by=GIVEN_BACK,
        why="an append that fails would leave new elements in chunks of the old file",
    ),
    Mutant(
        file=f"{FORMATS}/hdf5/growing.py",
        before="access.lock_for_writing(inner, alone=True) as fd",
        after="access.lock_for_writing(inner) as fd",
        killed_by=AT_ONCE,
        why="two threads would extend one HDF5 dataset, each in a change of its own",
    ),
    Mutant(
        file=f"{FORMATS}/hdf5/redo.py",
        before="        self._map(offset + low, high - low, begin + low)\n",
        after="        self._map(offset, length, begin)\n",
        killed_by=TWICE,
        why="the part of a chunk that an append leaves alone would be replaced by zeros",
    ),
    # NetCDF4: what is shorter than its dimension
    Mutant(
        file="crates/access/src/chunks.rs",
        before="                    table.stretch()?;\n                }\n                let (place, guard) =",
        after="                }\n                let (place, guard) =",
        killed_by=f"{UNLIMITED}::test_writes_behind_what_is_stored_are_seen_by_all",
        why="what is written behind the stored end of a NetCDF4 variable nobody would ever read",
    ),
    Mutant(
        file="crates/access/src/chunks.rs",
        before="        if let Store::Table(table) = &self.store {\n            table.stretch()?;\n        }\n",
        after="",
        killed_by=f"{UNLIMITED}::test_writes_behind_what_is_stored_are_seen_by_all",
        why="the same for variables whose chunks are encoded: written where nobody ever reads",
    ),
]
