"""Files that formats make and change: order of syncs and names, logs, locks."""

from mutants import Mutant

DURABLE = "python/outcore/formats/durable.py"
REDO = "python/outcore/formats/hdf5/redo.py"
ACCESS = "python/outcore/formats/hdf5/access.py"
STORE = "python/outcore/formats/zarr/store.py"
KILLED = "tests/crash/test_hdf5_killed.py"
PREFIXES = "tests/crash/test_prefixes.py"
LOOKUP = "python/outcore/formats/hdf5/lookup.py"
CHUNKS = "python/outcore/formats/hdf5/chunks.py"
FILTERS = "python/outcore/formats/hdf5/filters.py"
FILTERED = "tests/conformance/test_hdf5_filters.py::test_"
LOOKED_UP = "tests/unit/test_hdf5_lookup.py::test_"
TOGETHER = "tests/unit/test_failing_together.py::test_"

TYPES = "python/outcore/formats/hdf5/types.py"
FILLS = "tests/conformance/test_fill_values_read_back.py::test_"

NAMES = "tests/conformance/test_netcdf4_names.py::test_"
ENDS = "tests/conformance/test_hdf5_strings.py::test_"

MUTANTS = [
    Mutant(
        file="crates/io/src/strings.rs",
        before="                string[end.unwrap_or(none)..].fill(0);\n",
        after="                let _ = (string, end, none);\n",
        killed_by="cargo outcore-io strings::tests::strings_end_where_the_file_says",
        why="a string would go on behind the NUL that ends it",
    ),
    Mutant(
        file="crates/access/src/open/run.rs",
        before="                self.run_as(Mode::Run, access, interrupts)?;\n                self.finish_strings(access)",
        after="                self.run_as(Mode::Run, access, interrupts)",
        killed_by=(
            f"{ENDS}strings_end_where_h5py_ends_them",
            "tests/mpi/test_strings.py::test_ranks_read_strings_as_one_process_does",
        ),
        why="sections would have strings that go on behind the NUL that ends them",
    ),
    Mutant(
        file="crates/access/src/indexed.rs",
        before="            self.finish_strings_at(*data, &axes)?;\n",
        after="            let _ = axes;\n",
        killed_by=f"{ENDS}strings_end_where_h5py_ends_them",
        why="listed elements would have strings that go on behind the NUL that ends them",
    ),
    Mutant(
        file="crates/access/src/indexed.rs",
        before="            self.finish_strings_at(data, &[(data.bounds().1 / item.max(1), item)])?;\n",
        after="            let _ = item;\n",
        killed_by=f"{ENDS}strings_end_where_h5py_ends_them",
        why="elements of a schedule would have strings that go on behind the NUL that ends them",
    ),
    Mutant(
        file="python/outcore/formats/hdf5/index.py",
        before="        first = size + room\n",
        after="        first = size\n",
        killed_by=(
            "tests/conformance/test_hdf5_types.py::"
            "test_compact_datasets_are_found_in_every_object_header"
        ),
        why="elements of a compact dataset would be read from the wrong bytes of its object header",
    ),
    Mutant(
        file="python/outcore/formats/hdf5/format.py",
        before="                if inner is not None and self.is_netcdf:\n                    inner",
        after="                if False:\n                    inner",
        killed_by=f"{NAMES}open_gives_the_variable_not_the_dimension",
        why="elements would be written to the placeholder of a dimension, and lost",
    ),
    Mutant(
        file="python/outcore/formats/hdf5/netcdf_names.py",
        before="    return _to_hidden_name(name) if taken or variable in dims else name\n",
        after="    return name\n",
        killed_by=f"{NAMES}conversions_carry_names_of_netcdf",
        why="a variable would be refused, or take the place of a dimension of others",
    ),
    Mutant(
        file=TYPES,
        before="        one = np.array(text, h5py.string_dtype(encoding))\n",
        after="",
        killed_by=(
            f"{FILLS}every_fill_value_is_read_as_it_was_given",
            f"{FILLS}new_elements_of_bytes_are_empty_without_a_fill_value",
        ),
        why="elements that were never written would show the bytes of a pointer",
    ),
    Mutant(
        file="python/outcore/formats/hdf5/index.py",
        before="    if chunked and body[2] & _PLAIN_EDGES and",
        after="    if False and",
        killed_by=f"{FILTERED}edges_that_are_not_filtered_are_refused",
        why="chunks at the edges of a dataset, which have no filters, would be decoded: wrong elements",
    ),
    Mutant(
        file=LOOKUP,
        before='        sound = int.from_bytes(data[-4:], "little") == _core.lookup3(data[:-4])\n',
        after="        sound = True\n",
        killed_by=f"{LOOKED_UP}a_wrong_checksum_is_not_believed",
        why="chunks would be read, and written, where a damaged index says they are",
    ),
    Mutant(
        file=LOOKUP,
        before="        if rest.any() or not _is_ascending(cells):\n",
        after="        if rest.any():\n",
        killed_by=f"{LOOKED_UP}two_chunks_of_one_place_are_found_where_one_looks",
        why="of two chunks for one place either would be read, and half of the elements written to the other",
    ),
    Mutant(
        file=LOOKUP,
        before="            self.check(rows[rows[:, 0] >= 0])\n",
        after="",
        killed_by=f"{LOOKED_UP}addresses_that_cannot_be_are_refused",
        why="a write to one chunk would change another one that has the same bytes",
    ),
    Mutant(
        file=LOOKUP,
        before="not _test_bit(bitmap, bits_at, which * (each // usual) + page)",
        after="not _test_bit(bitmap, bits_at, page)",
        killed_by=f"{LOOKED_UP}extensible_arrays_with_pages",
        why="chunks would read as never written, and be made anew in place of what is there",
    ),
    Mutant(
        file=CHUNKS,
        before="                self._is_unreadable = rows is None\n",
        after="                self._is_unreadable = False\n",
        killed_by=f"{LOOKED_UP}two_chunks_of_one_place_are_found_where_one_looks",
        why="the library would look up one of two chunks for one place",
    ),
    Mutant(
        file=CHUNKS,
        before="            return rows if self._read_stamp() == parts.stamp else None\n",
        after="            return rows\n",
        killed_by=f"{LOOKED_UP}what_is_read_of_a_file_that_changes_meanwhile_is_not_used",
        why="chunks would be looked for where they were before another program moved them",
    ),
    Mutant(
        file=CHUNKS,
        before="            visit = self._walk_index if self._is_misread(dset) else self._visit_chunks\n",
        after="            visit = self._visit_chunks\n",
        killed_by=f"{LOOKED_UP}an_array_without_a_limit_on_its_second_axis",
        why="an append would make chunks anew that are there, with the fill value in place of the old elements",
    ),
    Mutant(
        file="python/outcore/formats/hdf5/growing.py",
        before="overlay.find_in_log(offset, stored)\n                    if self.encoded",
        after="None\n                    if self.encoded",
        killed_by=f"{TOGETHER}an_append_in_parts_into_a_chunk_that_was_moved_to_the_log",
        why="of an append in parts only the last part of a chunk would be left",
    ),
    Mutant(
        file=ACCESS,
        before="            if _core.reads_here(*key):",
        after="            if False:",
        killed_by=f"{TOGETHER}changes_during_a_chunk_read_are_refused",
        why="a handler that changes the file whose chunks its thread reads would wait for itself",
    ),
    Mutant(
        file="python/outcore/arrays/disk/array.py",
        before="        _core.whole_in_turn(append)",
        after="        append()",
        killed_by=f"{TOGETHER}an_append_that_waits_for_memory_does_not_keep_its_lock",
        why="an append and a reader of the file would wait for each other",
    ),
    Mutant(
        file=DURABLE,
        before="        view, offset = view[count:], offset + count\n",
        after="        break\n",
        killed_by="tests/unit/test_durable.py::test_all_is_written_however_little_a_call_takes",
        why="what a call did not take would be missing without an error",
    ),
    Mutant(
        file=REDO,
        before="""        if sync:
            os.fsync(self._log)
            _core.fsync_folder(self.path)
        # The change""",
        after="        # The change",
        killed_by=f"{KILLED}::test_a_change_reaches_the_disk_in_order",
        why="after a power cut the file would be half changed, without the log that completes it",
    ),
    Mutant(
        file=REDO,
        before="            _core.fsync_folder(self.path)\n        # The change",
        after="        # The change",
        killed_by=f"{KILLED}::test_a_change_reaches_the_disk_in_order",
        why="the name of the log could be lost while the file is half changed",
    ),
    Mutant(
        file=REDO,
        before="""        if sync:
            os.fsync(self._fd)
        index = array""",
        after="        index = array",
        killed_by=f"{KILLED}::test_a_change_reaches_the_disk_in_order",
        why="the log would be complete while new bytes behind the old end are not on the disk",
    ),
    Mutant(
        file=REDO,
        before="        os.ftruncate(fd, final)\n    if sync:\n        os.fsync(fd)\n",
        after="        os.ftruncate(fd, final)\n",
        killed_by=f"{KILLED}::test_a_change_reaches_the_disk_in_order",
        why="the log would be removed while the changes are not on the disk",
    ),
    Mutant(
        file=REDO,
        before="return (index, final) if _compute_checksum(log, index) == crc else None",
        after="return (index, final)",
        killed_by=f"{KILLED}::test_logs_that_are_not_to_be_trusted",
        why="a log whose bytes are damaged would be copied into the file",
    ),
    Mutant(
        file=REDO,
        before="    if zlib.crc32(raw) != index_crc:\n        return None\n",
        after="",
        killed_by=f"{KILLED}::test_logs_that_are_not_to_be_trusted",
        why="bytes of a log would be copied to other places of the file",
    ),
    Mutant(
        file=REDO,
        before="(inode, device) != (file.st_ino, file.st_dev)",
        after="False",
        killed_by=f"{KILLED}::test_logs_that_are_not_to_be_trusted",
        why="the log of a file that was replaced would be copied into its successor",
    ),
    Mutant(
        file=REDO,
        before="        alone = locks.lock_file(log)\n",
        after="        alone = True\n",
        killed_by=f"{KILLED}::test_the_log_of_a_change_that_is_being_made_is_left_alone",
        why="the log of a change that is being made would be taken for that of a killed process",
    ),
    Mutant(
        file=REDO,
        before="            if self._size >= self.old_size:\n                os.ftruncate(self._fd, self._size)",
        after="            os.ftruncate(self._fd, self._size)",
        killed_by=f"{KILLED}::test_a_file_is_not_cut_before_its_log_is_complete",
        why="the old file would be cut before the change is decided",
    ),
    Mutant(
        file=ACCESS,
        before="                _check_not_changing(path, os.stat(path))\n            redo.recover(path)\n",
        after="                _check_not_changing(path, os.stat(path))\n",
        killed_by=f"{KILLED}::test_killed_before_each_step[resize-earliest]",
        why="a file that a killed process left half changed would be opened as it is",
    ),
    Mutant(
        file=ACCESS,
        before="                if first and _try_lock(fd):",
        after="                if first:",
        killed_by="tests/conformance/test_hdf5_locks.py::test_a_chunk_written_in_part_is_ours_from_look_up_to_storing",
        why="two processes would change the structures of one HDF5 file at the same time",
    ),
    Mutant(
        file=STORE,
        before="    fd = locks.lock_by_name(file, locks.CONTENT)\n    try:\n        yield",
        after="    fd = None\n    try:\n        yield",
        killed_by="tests/conformance/test_zarr3.py::test_changing_metadata_waits_for_writers_of_chunks",
        why="metadata would change under writers of chunks",
    ),
    Mutant(
        file="python/outcore/formats/locks.py",
        before="                if os.path.samestat(os.fstat(fd), os.stat(path)):\n                    return fd",
        after="                return fd",
        killed_by="tests/unit/test_durable.py::test_a_document_that_was_replaced_is_locked_anew",
        why="one writer would hold the old document, another one the new one",
    ),
    Mutant(
        file="python/outcore/formats/npy.py",
        before="    if not same or _describe_elements(now) != _describe_elements(info):\n",
        after="    if not same:\n",
        killed_by="tests/unit/test_replaced_files.py::test_a_file_that_was_made_anew_in_place",
        why="elements of another array would be read with the old dtype, order and shape",
    ),
    Mutant(
        file="python/outcore/formats/hdf5/create.py",
        before="    origin.mark_replaced(file, name)\n",
        after="",
        killed_by="tests/unit/test_replaced_files.py::test_a_file_that_was_replaced",
        why="what is written through an open handle would go into a dataset that is gone",
    ),
    Mutant(
        file="python/outcore/formats/hdf5/chunks.py",
        before="        if dset is None or self.fingerprint not in (None, origin.get_fingerprint(dset)):\n",
        after="        if dset is None:\n",
        killed_by="tests/unit/test_replaced_files.py::test_a_chunked_dataset_that_was_replaced",
        why="chunks of another dataset would be read, and stored, as those of the old one",
    ),
    Mutant(
        file="python/outcore/formats/hdf5/chunks.py",
        before="        return table.seen is None or origin.is_unchanged(self.path, *table.seen)\n",
        after="        return True\n",
        killed_by="tests/unit/test_replaced_files.py::test_a_chunked_dataset_that_was_replaced",
        why="chunks would be read and written where those of a dataset that is gone were",
    ),
    Mutant(
        file="python/outcore/formats/durable.py",
        before="    while found and len(found) < length:\n",
        after="    while False:\n",
        killed_by="tests/unit/test_formats.py::test_a_call_that_reads_less_than_was_asked_for_changes_nothing",
        why="a record or a superblock would be believed that was read in part",
    ),
    Mutant(
        file=FILTERS,
        before='    _check_bytes("the header promises", int.from_bytes(stored[:4], "little"), nbytes)\n',
        after="",
        killed_by=f"{FILTERED}damaged_chunks_are_refused_and_named",
        why="the library would read behind its memory, and that would be taken for elements",
    ),
    Mutant(
        file=FILTERS,
        before="    _check_least(stored, _SO_HEADER + (count * bits + 7) // 8)\n",
        after="",
        killed_by=f"{FILTERED}damaged_chunks_are_refused_and_named",
        why="the library would unpack what lies behind a chunk that was cut off",
    ),
    Mutant(
        file=FILTERS,
        before="        if out is not None and not np.array_equal(out, found):\n",
        after="        if False:\n",
        killed_by=f"{FILTERED}damaged_chunks_are_refused_and_named",
        why="of a chunk of szip that was cut off, what was in memory would be taken for elements",
    ),
    Mutant(
        file=FILTERS,
        before='        _check_bytes("there are", len(stored), nbytes)\n        return\n    bits, size',
        after="        return\n    bits, size",
        killed_by=f"{FILTERED}parameters_that_lead_the_library_astray_are_refused",
        why="the library would read behind a chunk that n-bit stored as it was",
    ),
    Mutant(
        file="python/outcore/formats/hdf5/types.py",
        before='codec.name == "hdf5" and any(c.name not in _KEEP_SIZE for c in codecs)',
        after='codec.name == "hdf5" and not codecs and any(c.name not in _KEEP_SIZE for c in codecs)',
        killed_by=f"{FILTERED}a_filter_behind_one_that_changes_sizes_is_refused",
        why="the library would be told a longer output than the filter gives, and read behind it",
    ),
]
