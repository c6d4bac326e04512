"""Lines of one-sided operations, and of sums and products over ranks, that guard data."""

from mutants import Mutant

ONE_SIDED = "tests/mpi/test_one_sided.py"
WHOLE = "tests/mpi/test_whole_arrays.py"
WINDOW = "python/outcore/ranks/dist/window.py"
PRODUCTS = "python/outcore/ranks/dist/products.py"
SERVICE = "python/outcore/ranks/transport/service.py"

MUTANTS = [
    Mutant(
        file=WINDOW,
        before="        self._take(owner, stripes)\n        try:\n            yield\n",
        after="        try:\n            yield\n",
        killed_by=f"{ONE_SIDED}::test_a_counter_gives_each_number_once",
        why="two ranks would read the same number, and what one adds would be lost",
    ),
    Mutant(
        file=WINDOW,
        before="        holder = self.parts.take(rank, stripes, who, _TRY, gone)\n",
        after="        holder = 0\n",
        killed_by=f"{ONE_SIDED}::test_locked_patch_is_changed_by_one_rank_only",
        why="what a rank of another node adds would be lost beside what ranks of this one do",
    ),
    Mutant(
        file=WINDOW,
        before="            # Wait for all copies before the locks are released.\n            self.settle()\n",
        after="",
        killed_by=f"{ONE_SIDED}::test_copies_on_other_nodes_are_changed_before_the_lock_goes",
        why="copies of an element would get what ranks add in different orders: they would differ",
    ),
    Mutant(
        file=WINDOW,
        before="            for rank in ranks:\n                if rank in self.parts.arrays:\n"
        "                    self.parts.add(rank, where, term)\n",
        after="            for rank in ranks[:1]:\n                if rank in self.parts.arrays:\n"
        "                    self.parts.add(rank, where, term)\n",
        killed_by=f"{ONE_SIDED}::test_copies_that_all_add_to_stay_equal",
        why="copies would keep what was there before",
    ),
    Mutant(
        file=WINDOW,
        before="            lost = holder == gone or self.group.poll_while_waiting(\n"
        "                holder - 1, time.monotonic() - began\n            )\n",
        after="            lost = True\n",
        killed_by=f"{ONE_SIDED}::test_locked_patch_is_changed_by_one_rank_only",
        why="a lock would be taken from a rank that is only slow",
    ),
    Mutant(
        file=WINDOW,
        before="            np.add.at(part, key, values)\n",
        after="            part[key] += values\n",
        killed_by=f"{ONE_SIDED}::test_patches_and_lists_are_those_of_numpy",
        why="of an element that is listed twice only one value would be added",
    ),
    Mutant(
        file=WINDOW,
        before="            piece[:, 0] += first * where[:, 2]\n",
        after="            piece[:, 0] += first\n",
        killed_by=f"{ONE_SIDED}::test_large_patches_go_in_pieces",
        why="pieces of a patch with steps would go to other elements",
    ),
    Mutant(
        file="crates/plan/src/distribution/axis.rs",
        before="        a.min(b)..a.max(b) + 1\n",
        after="        a..b + 1\n",
        killed_by="cargo outcore-plan distribution::tests::a_section_is_divided_among_those_who_own_it",
        why="of an array that runs backwards through its template nothing would be read or written",
    ),
    Mutant(
        file="crates/py/src/window.rs",
        before="        self.parts.iter().flatten().all(apart).then_some(array)\n",
        after="        let _ = apart;\n        Some(array)\n",
        killed_by=f"{ONE_SIDED}::test_a_part_is_copied_into_itself_as_numpy_does",
        why="memory that overlaps would be copied in an order that overwrites what is read later",
    ),
    Mutant(
        file="crates/io/src/word_locks.rs",
        before="                Ok(()) => return Ok(()),\n                Err(now) => now,\n",
        after="                Ok(()) => return Ok(()),\n                Err(now) if now == 0 => now,\n"
        "                Err(_) => return Ok(()),\n",
        killed_by="cargo outcore-io word_locks::tests::one_at_a_time_holds_a_lock",
        why="two would hold a lock",
    ),
    Mutant(
        file=SERVICE,
        before="                self._failure = self._failure or rebuild_error(body.tobytes(), rank)\n",
        after="                pass\n",
        killed_by=f"{ONE_SIDED}::test_requests_that_fail_elsewhere_fail_here",
        why="a put that was not done would be taken for done",
    ),
    Mutant(
        file="python/outcore/ranks/dist/sums.py",
        before="    spread = max(count, 1).bit_length() + 1\n",
        after="    spread = 1\n",
        killed_by=f"{WHOLE}::test_many_products_of_one_size_are_added_exactly",
        why="sums above a cut would be rounded: the bits would depend on the ranks",
    ),
    Mutant(
        file="python/outcore/ranks/dist/whole.py",
        before="        x, y = (x, y) if counts else (x.reshape(-1)[:0], y.reshape(-1)[:0])\n",
        after="",
        killed_by=f"{WHOLE}::test_dots_have_the_same_bits_whoever_has_the_elements",
        why="elements of which there are copies would be counted once for each",
    ),
    Mutant(
        file=PRODUCTS,
        before="            wide = min(ranks.gather_numbers(product.estimate_room, tell).setting(0))\n",
        after="            wide = ranks.gather_numbers(product.estimate_room, tell).setting(0)[ranks.rank]\n",
        killed_by=f"{WHOLE}::test_panels_are_as_wide_as_the_rank_with_the_least_room_has_them",
        why="ranks would cut the inner axis in different places, and bring different panels",
    ),
    Mutant(
        file=PRODUCTS,
        before="        self._sum = self._result.owned if same else np.empty(self._shape, self._work)\n",
        after="        self._sum = self._result.owned\n",
        killed_by=f"{WHOLE}::test_a_product_is_rounded_once_however_many_panels_there_are",
        why="sums would be rounded after each panel, and small terms lost",
    ),
    Mutant(
        file=PRODUCTS,
        before="        self._at += mine\n",
        after="",
        killed_by=f"{WHOLE}::test_products_in_panels_are_those_of_numpy",
        why="each panel would have the elements of the first one",
    ),
    Mutant(
        file="python/outcore/base/distribution/value.py",
        before="        extent = offset + max(stride * (lengths[axis] - 1), 0) + 1\n",
        after="        pass\n",
        killed_by="tests/property/test_distribution.py"
        "::test_blocks_of_a_part_end_where_those_of_the_whole_array_do",
        why="blocks of a part would have other ends than those of the whole array: other elements",
    ),
]
