"""Conversions, and the journal from which they go on."""

from mutants import Mutant

CHECKPOINTS = "tests/unit/test_checkpoints.py"
RUN = "python/outcore/arrays/schedule/run.py"
ORDER = "tests/unit/test_schedule.py::test_a_run_does_what_one_step_after_the_other_does"

MISSING = "tests/conformance/test_missing_values.py"
SINGLE = f"{MISSING}::test_single_arrays_keep_what_is_missing"

KEPT = "tests/conformance/test_kept_storage.py::test_"

MUTANTS = [
    Mutant(
        file="python/outcore/arrays/likeness.py",
        before="            found.append(other)\n",
        after="",
        killed_by=f"{KEPT}conversion_warns_of_layouts_it_cannot_keep",
        why="a copy would be several times as large as its source",
    ),
    Mutant(
        file="python/outcore/compute/jobs/complete.py",
        before='        options["compression"] = words["compression"] or "none"\n',
        after="        pass\n",
        killed_by=f"{KEPT}compression_is_dropped_on_request",
        why="what was asked for would not be done",
    ),
    Mutant(
        file="python/outcore/formats/spec.py",
        before="        return self.fill_value if habit and self.by_habit else self.missing\n",
        after="        return self.fill_value if habit else self.missing\n",
        killed_by=SINGLE,
        why="a fill value that is only the default would mask every zero",
    ),
    Mutant(
        file="python/outcore/formats/missing_values.py",
        before="    return Fill(*(fill_values.cast(value, dtype) for value in fill))\n",
        after="    return Fill(fill_values.cast(fill.stored, dtype))\n",
        killed_by=f"{MISSING}::test_elements_that_are_cast_keep_what_is_missing",
        why="missing values would become numbers where elements are cast",
    ),
    Mutant(
        file="python/outcore/formats/zarr/version3.py",
        before="        attrs[MISSING] = encode(missing, dtype)\n",
        after="        attrs[MISSING] = missing.item()\n",
        killed_by=f"{MISSING}::test_files_and_groups_keep_what_is_missing",
        why="xarray could not open a Zarr v3 array of floating point numbers",
    ),
    Mutant(
        file="python/outcore/formats/hdf5/create.py",
        before='        shape = () if spec.dtype.kind == "S" else (1,)\n',
        after="        shape = (1,)\n",
        killed_by=f"{MISSING}::test_files_and_groups_keep_what_is_missing",
        why="the NetCDF library would not take a character for one that is missing",
    ),
    Mutant(
        file="python/outcore/compute/jobs/checkpoints.py",
        before="            target.flush()\n        self._journal.commit(steps)\n",
        after="            self._journal.commit(steps)\n            target.flush()\n",
        killed_by=(
            f"{CHECKPOINTS}::test_tiles_are_recorded_after_the_flush_that_covers_them",
            f"{CHECKPOINTS}::test_nothing_is_recorded_if_the_flush_fails",
        ),
        why="after a crash a conversion would go on from tiles that are not on the disk",
    ),
    Mutant(
        file="python/outcore/compute/jobs/checkpoints.py",
        before="        steps, self._written = self._written, []\n",
        after="        steps = self._written\n",
        killed_by=f"{CHECKPOINTS}::test_a_tile_that_was_written_during_a_flush_waits_for_the_next_one",
        why="tiles that are written while a flush runs would be recorded with those before it",
    ),
    Mutant(
        file=RUN,
        before="        for store in live.stores:\n            store.wait()\n",
        after="",
        killed_by=(f"{CHECKPOINTS}::test_a_tile_is_recorded_when_it_has_been_written", ORDER),
        why="a step would be recorded, and its buffer used again, while it is being stored",
    ),
    Mutant(
        file=RUN,
        before="        for request in live.loads:\n            request.wait()\n",
        after="",
        killed_by=ORDER,
        why="a kernel would compute with what is not yet loaded",
    ),
    Mutant(
        file=RUN,
        before="        if before and before[0].number < live.step.after:\n            return False\n",
        after="",
        killed_by=ORDER,
        why="a step would load what an earlier one has not yet stored",
    ),
    Mutant(
        file=RUN,
        before="            if not self._can_load(live):\n                return\n",
        after="",
        killed_by=ORDER,
        why="a step would load into memory that another one is using",
    ),
    Mutant(
        file=RUN,
        before="        while not self._can_compute(live):\n            self._retire()\n",
        after="",
        killed_by=ORDER,
        why="a kernel would change what is being stored",
    ),
    Mutant(
        file=RUN,
        before="                request.finish(unwanted=True)\n",
        after="                pass\n",
        killed_by=f"{CHECKPOINTS}::test_buffers_live_as_long_as_the_requests_that_use_them",
        why="buffers would go back to the system while requests read into them",
    ),
    Mutant(
        file="python/outcore/compute/jobs/journal.py",
        before="            os.ftruncate(self._fd, size - torn)",
        after="            pass",
        killed_by="tests/unit/test_journal.py::test_a_torn_last_line_is_not_done",
        why="a number that was cut in half would be completed by the next one: a step that is not done",
    ),
    Mutant(
        file="python/outcore/compute/jobs/journal.py",
        before="            if locks.lock_file(self._fd) is False:\n",
        after="            if False:\n",
        killed_by="tests/unit/test_journal.py::test_one_process_at_a_time",
        why="two processes would make the same file at the same time",
    ),
    Mutant(
        file="python/outcore/compute/jobs/task.py",
        before='            description[f"{name} {kind}"] = value\n',
        after="            pass\n",
        killed_by="tests/unit/test_convert.py::test_another_job_is_not_resumed",
        why="a conversion would go on with a source that was changed: half old, half new",
    ),
]
