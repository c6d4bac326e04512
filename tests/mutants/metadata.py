"""What arrays and groups say beside their elements: fill values, attributes, members."""

from mutants import Mutant

LINKS = "tests/conformance/test_broken_links.py::test_"
VALUES = "tests/conformance/test_attribute_values.py::test_"
LATE = "tests/conformance/test_attributes_together.py::test_late_writer_does_not_publish_old_attributes"
FILLS = "tests/unit/test_fill_values.py::test_"

MUTANTS = [
    Mutant(
        file="python/outcore/formats/fill_values.py",
        before="                if given.dtype == dtype or np.all(_is_same(filled, given)):\n",
        after="                if True:\n",
        killed_by=(
            f"{FILLS}what_does_not_fit_is_refused",
            f"{FILLS}every_format_refuses_it",
            f"{FILLS}the_command_line_refuses_it",
        ),
        why="elements that were never written would read as a number that nobody has said",
    ),
    Mutant(
        file="python/outcore/formats/fill_values.py",
        before="    return ~np.isinf(filled) | _is_equal(filled, given)\n",
        after="    return True\n",
        killed_by=f"{FILLS}what_does_not_fit_is_refused",
        why="a fill value that is too large for its dtype would be stored as infinity",
    ),
    Mutant(
        file="python/outcore/compute/copies/convert_group.py",
        before="        self.refused += groups.list_broken_links(self.path, format=self.format)\n",
        after="",
        killed_by=f"{LINKS}a_conversion_refuses_them_or_skips_them",
        why="arrays behind links whose file is not there would be missing from a copy without a word",
    ),
    Mutant(
        file="python/outcore/formats/hdf5/links.py",
        before="        if isinstance(error, RuntimeError) and _CIRCLE not in str(error):\n",
        after="        if isinstance(error, RuntimeError):\n",
        killed_by=f"{LINKS}the_other_members_are_listed",
        why="a link to itself would hide all other members of its group",
    ),
    Mutant(
        file="python/outcore/formats/zarr/store.py",
        before="    new: Document = _replace_nonfinite(said)\n",
        after="    new: Document = said\n",
        killed_by=f"{VALUES}nan_becomes_text_in_json_and_that_is_told",
        why="a document with a NaN in an attribute is no JSON: strict readers lose the whole array",
    ),
    Mutant(
        file="python/outcore/formats/zarr/store.py",
        before="    if odd:\n        warnings.warn(\n",
        after="    if not odd:\n        warnings.warn(\n",
        killed_by=(
            f"{VALUES}nan_becomes_text_in_json_and_that_is_told",
            f"{VALUES}a_conversion_tells_which_numbers_become_text",
        ),
        why="a copy would have text in place of a number, and nobody would be told",
    ),
    Mutant(
        file="python/outcore/formats/hdf5/attrs.py",
        before="not _is_exact(value, plain):\n",
        after="False:\n",
        killed_by=f"{VALUES}attributes_that_would_change_are_refused",
        why="large integers in a list of numbers would be rounded",
    ),
    Mutant(
        file="python/outcore/formats/hdf5/attrs.py",
        before='        if "\\0" in name:  #',
        after="        if False:  #",
        killed_by=f"{VALUES}a_name_that_hdf5_would_cut_is_refused",
        why="an attribute would take the place of another one, whose name is the beginning of its own",
    ),
    Mutant(
        file="python/outcore/formats/zarr/version3.py",
        before="            now = read_document(os.path.join(folder, _FILE)) or documents[_FILE]\n",
        after="            now = documents[_FILE]\n",
        killed_by=LATE,
        why="of two that change attributes at once, consolidated metadata would lose what one has set",
    ),
    Mutant(
        file="python/outcore/formats/zarr/version2.py",
        before="given if now is None else now\n",
        after="given\n",
        killed_by=LATE,
        why="of two that change attributes at once, consolidated metadata would lose what one has set",
    ),
]
