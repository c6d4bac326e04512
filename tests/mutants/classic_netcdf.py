"""Classic NetCDF: what is believed of a header, and the order in which files change."""

from mutants import Mutant

HERE = "python/outcore/formats/netcdf/classic"
DAMAGE = "tests/unit/test_netcdf_classic_damage.py::test_"
CHANGES = "tests/unit/test_netcdf_classic_changes.py::test_"

MUTANTS = [
    Mutant(
        file=f"{HERE}/header.py",
        before="        if number < 0 or (least and number > left // least):\n",
        after="        if number < 0:\n",
        killed_by=f"{DAMAGE}claims_that_cannot_be_are_named",
        why="a header that claims a billion dimensions would be read until the file ends",
    ),
    Mutant(
        file=f"{HERE}/places.py",
        before="        if begin < end:\n",
        after="        if begin < 0:\n",
        killed_by=f"{DAMAGE}variables_that_overlap_are_refused",
        why="a write to one variable would change another one, or the header",
    ),
    Mutant(
        file=f"{HERE}/places.py",
        before="    if end > begin + step:\n",
        after="    if end < begin:\n",
        killed_by=f"{DAMAGE}variables_that_overlap_are_refused",
        why="the last variable of a record would lie in the first one of the next record",
    ),
    Mutant(
        file=f"{HERE}/describing.py",
        before="    if nbytes and variable.begin + nbytes > file.size:\n",
        after="    if nbytes < 0:\n",
        killed_by=f"{DAMAGE}what_is_cut_off_is_found_by_verify",
        why="a file that was cut off would open",
    ),
    Mutant(
        file=f"{HERE}/changes.py",
        before="    check_whole(file)\n    end = begin + file.records * step\n",
        after="    end = begin + file.records * step\n",
        killed_by=f"{DAMAGE}what_is_cut_off_is_found_by_verify",
        why="what is missing at the end of a file would become zeros when records are appended",
    ),
    Mutant(
        file=f"{HERE}/files.py",
        before="    return both[length:] if fits.all() else None\n",
        after="    return both[length:]\n",
        killed_by=f"{CHANGES}a_record_of_a_change_counts_only_for_its_file",
        why="an old record would undo what another program changed later",
    ),
    Mutant(
        file=f"{HERE}/files.py",
        before="    is_for_this = magic == _MAGIC and (inode, device) == (status.st_ino, status.st_dev)\n",
        after="    is_for_this = magic == _MAGIC\n",
        killed_by=f"{CHANGES}a_record_of_a_change_counts_only_for_its_file",
        why="a file would get the header that was meant for one that had its name before",
    ),
    Mutant(
        file=f"{HERE}/files.py",
        before="                os.fsync(side)\n            finally:\n                os.close(side)\n"
        "            _core.fsync_folder(name)\n            _write(fd, both[length:])\n",
        after="                os.fsync(side)\n            finally:\n                os.close(side)\n"
        "            os.unlink(name)\n            _write(fd, both[length:])\n",
        killed_by=f"{CHANGES}attributes_change_whole_after_a_kill[in place]",
        why="a kill would leave half of each header",
    ),
    Mutant(
        file=f"{HERE}/format.py",
        before='            changes.grow(file, records, (info.extra["dataset"].strip("/"),))\n',
        after='            changes.grow(file, records, (info.extra["dataset"].strip("/"),))\n'
        "            files.write_records(file, records)\n",
        killed_by=f"{CHANGES}records_are_counted_after_they_are_written",
        why="after a kill the file would have records that nobody wrote",
    ),
    Mutant(
        file=f"{HERE}/changes.py",
        before="    durable.change_length(file.path, end, begin + records * step)\n",
        after="    durable.change_length(file.path, begin + records * step, begin + records * step)\n",
        killed_by=f"{CHANGES}bytes_after_the_last_record_do_not_show",
        why="new records of other variables would show what an interrupted append left there",
    ),
    Mutant(
        file=f"{HERE}/format.py",
        before="        if records < file.records and len(others) > 1:\n",
        after="        if records < 0:\n",
        killed_by=f"{CHANGES}resize_fills_new_records",
        why="making one variable shorter would delete records of all others",
    ),
    Mutant(
        file=f"{HERE}/changes.py",
        before="    if all(map(old.is_record, old.variables)):\n",
        after="    if not fixed:\n",
        killed_by="tests/crash/test_replacing.py::test_existing_arrays_are_replaced_only_with_overwrite",
        why="a variable that replaces another would be made out of its elements, before it is removed",
    ),
    Mutant(
        file="python/outcore/arrays/handle.py",
        before="            if moves and locate_parts(found) != locate_parts(self.info):\n                self.adopt(found)\n                return\n",
        after="",
        killed_by=f"{CHANGES}files_of_outcore_have_room_for_attributes",
        why="an array whose attributes moved its file could not be written any more",
    ),
    Mutant(
        file="python/outcore/formats/layout.py",
        before="    return step == other and row <= after and after + its_row <= step\n",
        after="    return step == other\n",
        killed_by="tests/unit/test_netcdf_classic.py::test_two_record_variables_of_a_file_share_no_bytes",
        why="a result would be stored over its own input",
    ),
]
