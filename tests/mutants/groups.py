"""Groups: their attributes, stores that are replaced, and conversions of whole files."""

from mutants import Mutant

GROUPS = "tests/conformance/test_groups.py::test_"
WHOLE = "tests/unit/test_convert_group.py::test_"
CONVERT = "python/outcore/compute/copies/convert_group.py"
ZARR = "python/outcore/formats/zarr/format.py"
ZARR3 = "python/outcore/formats/zarr/version3.py"

MUTANTS = [
    Mutant(
        file=ZARR,
        before="        if replace and os.path.isdir(target):\n            check_only_nodes(target)\n",
        after="        if replace and os.path.isdir(target):\n",
        killed_by=f"{GROUPS}a_store_with_files_of_others_is_not_replaced",
        why="files of others in the folder of a store would be removed with it",
    ),
    Mutant(
        file=ZARR3,
        before='        changed = edit(document.get("attributes") or {})\n',
        after="        changed = edit({})\n",
        killed_by=f"{GROUPS}group_attributes_set_by_another_library_stay",
        why="a change of one attribute of a group would drop all others",
    ),
    Mutant(
        file="python/outcore/formats/zarr/tree.py",
        before="        if deep and there:\n",
        after="        if there:\n",
        killed_by=f"{GROUPS}a_description_has_the_members_of_a_listing",
        why="an array with two names would be missing under one of them",
    ),
    Mutant(
        file="python/outcore/formats/hdf5/groups.py",
        before="netcdf=self.is_netcdf, drop=drop)\n        return",
        after="netcdf=self.is_netcdf, drop=None)\n        return",
        killed_by=f"{GROUPS}group_attributes_set_by_another_library_stay",
        why="a change of one attribute of a group would drop all others",
    ),
    Mutant(
        file=CONVERT,
        before="            if there and self.overwrite and os.path.isdir(self.outer):\n"
        "                formats.check_replaceable(self.outer, whole=True)\n",
        after="",
        killed_by=f"{WHOLE}a_store_of_others_is_not_replaced",
        why="a conversion would run for hours before it is refused",
    ),
    Mutant(
        file=CONVERT,
        before="        if self.going_on:\n            journal.check_same(job)\n",
        after="        if self.going_on:\n",
        killed_by=f"{WHOLE}arrays_of_two_states_of_a_source_are_not_mixed",
        why="a file would be made of arrays of two sources, or in two ways",
    ),
    Mutant(
        file=CONVERT,
        before="        found._check_not_source(source, dst)\n",
        after="",
        killed_by=f"{WHOLE}into_a_group_of_a_file",
        why="a file would be replaced by what is read from it",
    ),
    Mutant(
        file="python/outcore/compute/jobs/target.py",
        before="    if PARTIAL in name or (inner is None and WHOLE in name):\n",
        after="    if PARTIAL in name or WHOLE in name:\n",
        killed_by=f"{WHOLE}everything_is_carried_over",
        why="each array of a file would begin with the removal of those before it",
    ),
]
