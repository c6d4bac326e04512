"""Lines by which virtual datasets, text and zipped stores have the elements of their files."""

from mutants import Mutant

CORE = "python/outcore/arrays/virtual/core.py"
SCHEDULES = "python/outcore/arrays/virtual/schedules.py"
SECTIONS = "python/outcore/arrays/virtual/sections.py"
MAPPINGS = "python/outcore/formats/hdf5/virtual.py"
HEAP = "python/outcore/formats/hdf5/strings.py"
CHUNKS = "python/outcore/formats/zarr/strings.py"
ARCHIVE = "python/outcore/formats/zarr/zip_archive.py"
SHARDS = "python/outcore/formats/zarr/shards.py"
UNZIPS = "crates/io/src/codec/zip.rs"
VDS = "tests/conformance/test_hdf5_virtual.py"
TEXT = "tests/conformance/test_strings.py"
ZIP = "tests/conformance/test_zarr_zip.py"
DIRECTORY = "python/outcore/formats/zip_directory.py"
ZARR_ZIP = "python/outcore/formats/zarr/zip_tree.py"
MEMBERS = "tests/conformance/test_zip_members.py"
SHARED = "tests/conformance/test_shared_bytes.py"

MUTANTS = [
    Mutant(
        file=CORE,
        before='        if not np.can_cast(theirs, mine, "same_kind" if numbers else "equiv"):\n',
        after="        if False:\n",
        killed_by=f"{VDS}::test_a_type_that_cannot_hold_the_source_is_refused",
        why="elements of a source would be cut to a type that does not hold them",
    ),
    Mutant(
        file=SECTIONS,
        before="        number = min(count, -(-(length - start) // step))\n",
        after="        number = count\n",
        killed_by=f"{VDS}::test_a_source_that_became_smaller",
        why="what a source does not have any more would be asked of it",
    ),
    Mutant(
        file=SCHEDULES,
        before="            if (None if source is None else source.info.shape) != shape:\n",
        after="            if False:\n",
        killed_by="tests/conformance/test_virtual_schedules.py::test_a_schedule_follows_its_sources",
        why="a source that has come since would read as the fill value",
    ),
    Mutant(
        file=CORE,
        before="                if meet[high, low:high].any():\n",
        after="                if False:\n",
        killed_by=f"{VDS}::test_the_last_of_mappings_that_overlap_counts",
        why="of mappings that overlap any one would have the elements, not the last as in the library",
    ),
    Mutant(
        file=MAPPINGS,
        before='        if error.code == "no-such-array":\n',
        after="        if True:\n",
        killed_by=f"{VDS}::test_a_source_that_cannot_be_read_is_an_error",
        why="a damaged source would read as the fill value",
    ),
    Mutant(
        file=HEAP,
        before="                if nbytes > has:\n",
        after="                if False:\n",
        killed_by=f"{TEXT}::test_damaged_references",
        why="text would be bytes of something else in the heap",
    ),
    Mutant(
        file=CHUNKS,
        before="    if len(found) != count:\n",
        after="    if False:\n",
        killed_by=f"{TEXT}::test_damaged_text",
        why="a chunk of text that is cut off would be read as far as it goes",
    ),
    Mutant(
        file=ARCHIVE,
        before="        if header[:4] != _MARK or first + member.nbytes > self._size:\n",
        after="        if first + member.nbytes > self._size:\n",
        killed_by=f"{ZIP}::test_damaged_files",
        why="elements would be read from wherever a damaged directory leads",
    ),
    Mutant(
        file=ARCHIVE,
        before="(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns) != self.stamp",
        after="False",
        killed_by=f"{ZIP}::test_a_file_that_was_replaced",
        why="chunks would be looked for where those of another file were",
    ),
    Mutant(
        file=ARCHIVE,
        before="        if not told or end > self._size:\n",
        after="        if end > self._size:\n",
        killed_by=f"{ZIP}::test_a_deflated_member_with_a_wrong_crc",
        why="a chunk would be compared with another CRC than that of the directory",
    ),
    Mutant(
        file=UNZIPS,
        before="        if !header.accepts(found, &stream[read..]) {\n",
        after="        if false && !header.accepts(found, &stream[read..]) {\n",
        killed_by="cargo outcore-io codec::tests::a_member_of_a_zip_file_has_its_checksum_in_front_or_behind",
        why="a damaged chunk of a zip file would be read without notice",
    ),
    Mutant(
        file=SHARDS,
        before="            if crc32c(raw[:-4]) != told:\n",
        after="            if False:\n",
        killed_by=(f"{ZIP}::test_damaged_shards", f"{TEXT}::test_damaged_shards_of_text"),
        why="a damaged index of a shard would be believed",
    ),
    Mutant(
        file=ZARR_ZIP,
        before="            if not COORDINATE.fullmatch(word) or int(word) >= length:\n",
        after="            if not word.isdecimal() or int(word) >= length:\n",
        killed_by=f"{MEMBERS}::test_only_ascii_digits_name_a_chunk",
        why="a member whose name has digits of another script would be taken for a chunk",
    ),
    Mutant(
        file=ZARR_ZIP,
        before="            if not COORDINATE.fullmatch(word) or int(word) >= length:\n",
        after="            if not COORDINATE.fullmatch(word) or int(word) > length:\n",
        killed_by=f"{MEMBERS}::test_only_ascii_digits_name_a_chunk",
        why="a member outside of the grid would be taken for another chunk",
    ),
    Mutant(
        file=ARCHIVE,
        before="                if size > member.size:\n",
        after="                if False:\n",
        killed_by=f"{MEMBERS}::test_members_inflate_to_what_they_claim",
        why="a member that claims little would be inflated as a whole, beside the budget",
    ),
    Mutant(
        file=DIRECTORY,
        before="        if len(comment) == 2 and over == 0:\n",
        after="        if len(comment) == 2:\n",
        killed_by=f"{MEMBERS}::test_an_end_record_that_contains_another",
        why="what a file has within its end record would be taken for the directory",
    ),
    Mutant(
        file=DIRECTORY,
        before="        at += end.moved\n",
        after="        pass\n",
        killed_by=f"{MEMBERS}::test_the_directory_is_what_zipfile_reads",
        why="members behind other bytes would be looked for in the wrong place",
    ),
    Mutant(
        file="python/outcore/arrays/verification.py",
        before="        for damage in _find_shared(array, format, tuple(stored[0]), stored[1]):\n",
        after="        for damage in ():\n",
        killed_by=f"{SHARED}::test_shards",
        why="chunks that share bytes would be called sound",
    ),
    Mutant(
        file=SHARDS,
        before="    wrong = offset[1:] < offset[:-1] + length[:-1]\n",
        after="    wrong = offset[1:] < offset[:-1]\n",
        killed_by=f"{SHARED}::test_shards",
        why="text of chunks that share bytes would be read without notice",
    ),
]
