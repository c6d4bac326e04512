"""Arrays that others replaced, and links that lead elsewhere: nothing is written or removed there."""

from mutants import Mutant

FORMATS = "python/outcore/formats"
STORE = f"{FORMATS}/zarr/store.py"
ROOT = "crates/io/src/store/root.rs"
BENEATH = "crates/io/src/beneath.rs"
REPLACED = "tests/unit/test_replaced.py"
LINKS = "tests/conformance/test_links.py"
WHILE_IT_GROWS = f"{REPLACED}::test_a_zarr_array_that_is_replaced_while_it_grows"
OTHERS = f"{REPLACED}::test_a_file_with_another_array_is_not_appended_to"
OUTSIDE = f"{LINKS}::test_nothing_outside_a_store_changes"
INSIDE = "tests/crash/test_convert_inside.py"
REPLACING = "tests/crash/test_replacing.py"
CREATING = "python/outcore/arrays/creating.py"

MUTANTS = [
    # Replaced
    Mutant(
        file=CREATING,
        before='    mode: Mode = "w" if overwrite else "x"\n',
        after='    overwrite, mode = True, "w"\n',
        killed_by=f"{REPLACING}::test_existing_arrays_are_replaced_only_with_overwrite",
        why="a program would lose an array whose name it uses twice",
    ),
    Mutant(
        file=CREATING,
        before="    if overwrite and (fresh := _get_staging(path, options)) is not None:\n",
        after="    if overwrite and (fresh := None):\n",
        killed_by=f"{REPLACING}::test_a_full_disk_leaves_the_old_array_or_the_new_one",
        why="after a full disk or a kill there would be neither the old array nor the new one",
    ),
    Mutant(
        file=CREATING,
        before="            array.write(..., data)\n            array.flush()\n",
        after="            array.write(..., data)\n",
        killed_by=f"{REPLACING}::test_the_new_array_is_on_the_disk_before_it_takes_the_place",
        why="after a crash of the machine the name of the old array could be on an empty one",
    ),
    Mutant(
        file=f"{FORMATS}/replacing.py",
        before="            locks.lock_file(fd, wait=True)\n",
        after="            pass\n",
        killed_by=f"{REPLACING}::test_two_that_replace_an_array_of_a_file_take_turns",
        why="one of two programs would name the array that the other one has just begun",
    ),
    Mutant(
        file=f"{FORMATS}/zarr/grid.py",
        before="    with lock_document(source.lock):\n        confirm(info)\n        remove_outside",
        after="    with lock_document(source.lock):\n        remove_outside",
        killed_by=WHILE_IT_GROWS,
        why="chunks of an array that took the place of ours would be removed",
    ),
    Mutant(
        file=f"{FORMATS}/zarr/version3.py",
        before="        confirm(info)\n        document",
        after="        document",
        killed_by=(WHILE_IT_GROWS, f"{REPLACED}::test_a_zarr_array_that_was_replaced"),
        why="shape and attributes of an array that took the place of ours would be changed (Zarr 3)",
    ),
    Mutant(
        file=f"{FORMATS}/zarr/version2.py",
        before="        confirm(info)\n        documents",
        after="        documents",
        killed_by=(WHILE_IT_GROWS, f"{REPLACED}::test_a_zarr_array_that_was_replaced"),
        why="shape and attributes of an array that took the place of ours would be changed (Zarr 2)",
    ),
    Mutant(
        file=f"{FORMATS}/hdf5/growing.py",
        before="        if _get_kind(now) != _get_kind(info):\n",
        after="        if False:\n",
        killed_by=OTHERS,
        why="rows would be appended to an HDF5 dataset that took the place of ours",
    ),
    Mutant(
        file=f"{FORMATS}/zarr/identity.py",
        before="        if _describe_elements(found) != _describe_elements(info):\n",
        after="        if False:\n",
        killed_by=f"{REPLACED}::test_an_array_without_a_folder_of_its_own_reads_as_its_fill_value",
        why="chunks of another shape, order or codec would be read and written as those of ours",
    ),
    Mutant(
        file=ROOT,
        before="        while self.state().document != Some(now) {\n",
        after="        while false && self.state().document != Some(now) {\n",
        killed_by="cargo outcore-io store::root::tests::an_access_asks_once_and_reads_metadata_again_only_when_they_changed",
        why="chunks would be read and written whatever took the place of their array",
    ),
    Mutant(
        file=ROOT,
        before="            self.same_folder(Beneath::open(&self.path)?.stamp())?;\n",
        after="",
        killed_by="cargo outcore-io store::root::tests::a_folder_that_took_the_place_of_ours_is_told_by_its_stamp",
        why="an array in another folder would be taken for ours if its metadata are alike",
    ),
    Mutant(
        file=ROOT,
        before="        self.same_folder(folder.stamp())?;\n",
        after="",
        killed_by="cargo outcore-io store::root::tests::a_folder_that_took_the_place_of_ours_is_told_by_its_stamp",
        why="the first access would go into whatever folder has the name by then",
    ),
    Mutant(
        file="crates/io/src/store/files.rs",
        before="        self.root.confirm(cells)?;\n        let mut found",
        after="        let mut found",
        killed_by=f"{REPLACED}::test_a_zarr_array_that_was_replaced",
        why="accesses to chunks would not ask whether these are still of the array that was opened",
    ),
    # Links
    Mutant(
        file=BENEATH,
        before="    how.resolve = libc::RESOLVE_BENEATH;\n",
        after="    how.resolve = 0;\n",
        killed_by="cargo outcore-io beneath::tests::links_that_lead_out_are_refused_with_and_without_the_system_s_help",
        why="what links in a store lead to, anywhere, would be overwritten",
    ),
    Mutant(
        file=BENEATH,
        before="            return Err(libc::ELOOP);\n",
        after="            continue;\n",
        killed_by="cargo outcore-io beneath::tests::links_that_lead_out_are_refused_with_and_without_the_system_s_help",
        why="the same on systems without openat2: a folder behind a link would be left out of the path",
    ),
    Mutant(
        file="crates/io/src/durable.rs",
        before="    root.map_or(Ok(beneath::Holder::Anywhere), |root| root.holder(path, missing))\n",
        after="    if missing == Missing::Make {\n        if let Some(above) = root.and(path.parent()) {\n            let _ = std::fs::create_dir_all(above);\n        }\n    }\n    Ok(beneath::Holder::Anywhere)\n",
        killed_by=OUTSIDE,
        why="new chunks would be made and renamed in folders that links lead to",
    ),
    Mutant(
        file=f"{FORMATS}/zarr/chunks.py",
        before="flags | (0 if above is None else os.O_NOFOLLOW)",
        after="flags",
        killed_by=OUTSIDE,
        why="chunks that no longer belong to an array would be removed in folders that links lead to",
    ),
    Mutant(
        file=STORE,
        before="    if os.path.islink(path) and not _is_inside(os.path.dirname(path), path):\n        raise leads_out(path)\n",
        after="",
        killed_by=f"{LINKS}::test_metadata_that_are_a_link_out_are_not_written",
        why="a file that a link in a store leads to would be replaced by metadata",
    ),
    Mutant(
        file=STORE,
        before="    if not _is_inside(folder, path):\n        raise leads_out(path)\n",
        after="",
        killed_by=f"{LINKS}::test_an_array_of_a_group_that_is_a_link_out_is_neither_opened_for_writing_nor_replaced",
        why="an array outside of its group would be written or replaced through a link",
    ),
    Mutant(
        file="crates/io/src/temporary.rs",
        before="    !both && std",
        after="    std",
        killed_by="tests/unit/test_growing.py::test_folders_of_killed_creations_are_swept",
        why="the only copy of an array would be swept, left where a kill came between two renames",
    ),
    Mutant(
        file="python/outcore/compute/jobs/target.py",
        before="os.path.isdir(named) and os.stat(named).st_ino == inode\n",
        after="False\n",
        killed_by="tests/unit/test_jobs.py"
        "::test_whenever_it_is_killed_the_new_folder_replaces_the_old_one",
        why="who goes on after a kill would put the old array back, or what is left of it",
    ),
    Mutant(
        file="python/outcore/compute/jobs/journal.py",
        before='            self._append("\\n".join(lines))\n            _core.fsync',
        after='            os.ftruncate(self._fd, 0)\n            self._append("\\n".join(lines))\n            '
        "_core.fsync",
        killed_by="tests/unit/test_jobs.py"
        "::test_whenever_it_is_killed_nothing_is_left_of_the_job_that_was_given_up",
        why="nobody would find what a job left that was given up at that moment",
    ),
    # Conversions into a file that exists
    Mutant(
        file="python/outcore/compute/jobs/target.py",
        before="formats.find_staging_path(outer + tail, format) if inner is not None and there else None\n",
        after="None\n",
        killed_by=(
            f"{INSIDE}::test_the_old_dataset_outlives_a_full_disk",
            f"{INSIDE}::test_the_old_dataset_is_there_until_the_new_one_is_whole",
        ),
        why="a conversion that fails would have destroyed the dataset that it was to replace",
    ),
    Mutant(
        file="python/outcore/compute/jobs/target.py",
        before="            formats.publish(self.final, format=self.format, exclusive=not self.overwrite)\n",
        after="            formats.publish(self.final, format=self.format, exclusive=False)\n",
        killed_by=f"{INSIDE}::test_a_name_that_is_taken_is_refused_before_and_after",
        why="a dataset that appeared during a conversion would be replaced without being asked for",
    ),
    Mutant(
        file=f"{FORMATS}/hdf5/format.py",
        before="    with access.open_for_changes(path, create.to_partial_name(inner)) as file:\n",
        after='    with access.open_session(path, "r+") as file:\n',
        killed_by="tests/crash/test_hdf5_killed.py::test_killed_before_each_step_of_naming_what_is_whole",
        why="a kill between two steps would leave neither the older dataset nor the new one",
    ),
    Mutant(
        file=f"{FORMATS}/hdf5/format.py",
        before="            if create.to_partial_name(inner) not in file:\n                return  #",
        after="            if False:\n                return  #",
        killed_by="tests/crash/test_leftovers.py"
        "::test_whenever_it_is_killed_all_that_is_left_can_be_removed",
        why="who was killed after the dataset had its name could not go on, nor end",
    ),
    Mutant(
        file=f"{FORMATS}/zarr/staged.py",
        before="aside, exclusive or depth < len(names))",
        after="aside, False)",
        killed_by="tests/crash/test_leftovers.py::test_no_array_of_a_store_is_replaced_in_a_race",
        why="an array that appeared at the last moment would be replaced without being asked for",
    ),
    Mutant(
        file="python/outcore/compute/jobs/target.py",
        before='        if error.code != "not-found":\n            raise\n',
        after="        pass\n",
        killed_by="tests/crash/test_leftovers.py::test_leftovers_that_cannot_be_removed_stay_listed",
        why="nobody would find what a job left that could not be removed at once",
    ),
    # Inputs that change while a job rests
    Mutant(
        file="python/outcore/compute/jobs/changed.py",
        before="                    yield durable.read_at(",
        after="                    durable.read_at(",
        killed_by="tests/unit/test_changed_inputs.py::test_one_element_that_changed_is_noticed",
        why="a job would go on with an input that was changed: half old, half new",
    ),
    Mutant(
        file="python/outcore/compute/jobs/changed.py",
        before='                    text = f"{name} {status.st_mtime_ns} {status.st_size}"\n',
        after="                    pass\n",
        killed_by="tests/unit/test_changed_inputs.py::test_one_element_that_changed_is_noticed",
        why="a job would go on with a Zarr array that was changed: half old, half new",
    ),
]
