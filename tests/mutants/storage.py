"""The crate `outcore-io`: transfers, checks, caches. What cargo-mutants does by itself is not repeated."""

from mutants import Mutant

IO = "crates/io/src"
DEEP = f"{IO}/exec/deep.rs"
SHORT = "cargo outcore-io exec::tests::bytes_that_are_missing_at_the_end_of_a_request_are_an_error"
PAST = "cargo outcore-io exec::past_tests"
NAMES = "cargo outcore-io files::tests"
CRASH = "cargo outcore-io crash"
ENDS = "a_transfer_that_the_system_cuts_short_goes_on_and_one_that_ends_is_an_error"

MUTANTS = [
    Mutant(
        file="crates/io/src/backend/uring.rs",
        before="                result if result == -libc::ECANCELED => {\n",
        after="                result if result == 1 => {\n",
        killed_by="tests/crash/test_few_processes.py::test_all_goes_on_without_workers[1]",
        why="writes would fail where the kernel can start no thread for io_uring",
    ),
    Mutant(
        file="crates/io/src/lock.rs",
        before="        Err(libc::ENOLCK | libc::ENOSYS | libc::EOPNOTSUPP | libc::EINVAL) => match mode {\n",
        after="        Err(libc::EXDEV) => match mode {\n",
        killed_by="tests/crash/test_lacking.py::test_all_goes_on_where_the_file_system_lacks[all locks]",
        why="no array with a codec could be written on a file system without locks",
    ),
    Mutant(
        file="crates/io/src/lock_table.rs",
        before="        if held.iter().any(blocks) {\n",
        after="        if held.iter().all(blocks) && !held.is_empty() {\n",
        killed_by="cargo outcore-io lock_table::tests"
        "::ranges_exclude_each_other_as_those_of_the_kernel",
        why="two threads would store the same chunk at once where the file system has no locks",
    ),
    Mutant(
        file="crates/access/src/indexed.rs",
        before="        if !self.open.found.mappable(files) {\n",
        after="        if false {\n",
        killed_by="tests/crash/test_lacking.py::test_all_goes_on_where_the_file_system_lacks[shared mappings]",
        why="indices could not be read on a file system without shared mappings",
    ),
    Mutant(
        file="python/outcore/formats/locks.py",
        before="            lacks = _find_lacking_locks(folder)\n",
        after="            lacks = []\n",
        killed_by="tests/crash/test_lacking.py::test_all_goes_on_where_the_file_system_lacks[all locks]",
        why="nobody would be told that programs are not kept apart",
    ),
    Mutant(
        file="crates/access/src/part.rs",
        before="dense || self.touches(cell)",
        after="dense && self.touches(cell)",
        killed_by="tests/unit/test_leapt_chunks.py"
        "::test_chunks_that_a_read_leaps_over_are_not_opened[plain]",
        why="chunks of a section with long steps would count as missing, and read as the fill value",
    ),
    Mutant(
        file="python/outcore/formats/durable.py",
        before="        if min(copied, os.fstat(fd).st_size) < length:\n",
        after="        if False:\n",
        killed_by="tests/unit/test_durable.py::test_a_copy_of_a_file_that_becomes_shorter_is_none",
        why="the head of an array would be copied with its old length, and fewer elements",
    ),
    Mutant(
        file=f"{IO}/files.rs",
        before="        if let (Some(len), false) = (entry.len, write) {\n",
        after="        if let Some(len) = entry.len {\n",
        killed_by=f"{NAMES}::a_file_that_was_just_opened_is_asked_for_its_length_only_before_it_is_written",
        why="a chunk that was cut off since it was opened would be written behind its end, with a hole before",
    ),
    Mutant(
        file=f"{IO}/claim.rs",
        before="        if *holders > 0 && !system::is_held(file) {",
        after="        if *holders == usize::MAX {",
        killed_by="cargo outcore-io claim who_opens_a_claimed_file_waits",
        why="who opens a file that many threads write would wait until the kernel takes it from them, 45 s",
    ),
    Mutant(
        file=DEEP,
        before="Ok(got) if stage.writing && got < piece.len => {",
        after="Ok(got) if stage.writing && got > piece.len => {",
        killed_by=SHORT,
        why="the end of a write would be missing without an error",
    ),
    Mutant(
        file=DEEP,
        before="Ok(got) if !stage.writing && piece.offset + (got as i64) < piece.needed => {",
        after="Ok(got) if !stage.writing && piece.offset + (got as i64) < piece.offset => {",
        killed_by=SHORT,
        why="the end of a read would be whatever was in memory",
    ),
    Mutant(
        file=DEEP,
        before="                if self.next == self.past && self.is_busy() {",
        after="                if self.next == u64::MAX && self.is_busy() {",
        killed_by=f"{PAST}::no_block_is_written_before_the_sides_of_all_runs_are",
        why="pages that are made dirty beside direct writes may reach into these: the flush fails",
    ),
    Mutant(
        file=f"{IO}/exec/lane/transfers.rs",
        before="                channel if write => channel.written(offset, offset + e.len, block),",
        after="                Channel::Head | Channel::Tail if write => (offset, offset + e.len),",
        killed_by=f"{PAST}::the_file_has_every_byte_wherever_runs_begin",
        why="direct writes would be rounded outward, over what lies beside the section",
    ),
    Mutant(
        file=f"{IO}/open_file.rs",
        before="            Ok(_) => Err(self.short(offset, len)),",
        after="            Ok(_) => Ok(()),",
        killed_by=f"{CRASH} {ENDS}",
        why="the end of a read would be whatever was in memory",
    ),
    Mutant(
        file=f"{IO}/open_file.rs",
        before='            Ok(_) => Err(self.failed("write", offset, len, libc::EIO)),',
        after="            Ok(_) => Ok(()),",
        killed_by=f"{CRASH} {ENDS}",
        why="the end of a write would be missing without an error",
    ),
    Mutant(
        file=f"{IO}/backend/progress.rs",
        before="                if self.done == self.request.len || (!self.request.write && self.at_end()) {",
        after="                if self.done > 0 {",
        killed_by=f"{CRASH} {ENDS}",
        why="a transfer that the system cut short would not be continued",
    ),
    Mutant(
        file=f"{IO}/files.rs",
        before="        self.original.as_ref().map_or(Ok(()), |original| original.same(&file))?;\n",
        after="",
        killed_by=f"{NAMES}::another_file_under_the_name_is_not_opened_nor_written_past",
        why="elements of another file would be read with the old type and order",
    ),
    Mutant(
        file=f"{IO}/files.rs",
        before="                original::still_named(&open, &now)?;\n",
        after="",
        killed_by=f"{NAMES}::another_file_under_the_name_is_not_opened_nor_written_past",
        why="what is written into a file that was replaced would be lost without a word",
    ),
    Mutant(
        file=f"{IO}/files.rs",
        before="            true => self.still_named(file).map_err(Trouble::Lost),",
        after="            true => Ok(()),",
        killed_by=f"{NAMES}::another_file_under_the_name_is_not_opened_nor_written_past",
        why="a flush would say that elements are safe in a file that nobody finds",
    ),
    Mutant(
        file=f"{IO}/files.rs",
        before="            original.confirm(&open, &now)?;\n",
        after="",
        killed_by="cargo outcore-io original::tests::"
        "a_header_is_compared_by_its_bytes_and_the_format_asked_only_if_they_are_others",
        why="another array that was written into the same file would be read as the old one",
    ),
    Mutant(
        file=f"{IO}/mapping.rs",
        before="            let _pinned = self.pin(at, at + 1);\n",
        after="",
        killed_by="cargo outcore-io page_table::tests::pages_are_absent_until_they_are_read",
        why="pages that are read to see what a page fault enters would not count within the budget",
    ),
    Mutant(
        file=f"{IO}/mapping.rs",
        before="        (same && start != 0).then_some(Extent { start, end, protection })",
        after="        (start != 0).then_some(Extent { start, end, protection })",
        killed_by="cargo outcore-io mapping::tests::"
        "an_entry_that_is_used_again_meanwhile_is_no_mixture_of_both",
        why="the handler of SIGBUS would put zeros under a mapping that it took for another",
    ),
    Mutant(
        file=f"{IO}/durable.rs",
        before="        self.sync()?;\n        let target",
        after="        let target",
        killed_by=f"{CRASH} replace_leaves_the_old_or_the_new_content",
        why="a name could reach the disk before its bytes",
    ),
    Mutant(
        file=f"{IO}/temporary.rs",
        before=" || sys::hold(file.as_raw_fd()) != Holder::We {",
        after=" {",
        killed_by="cargo outcore-io temporary::tests::only_what_nobody_holds_and_is_old_is_removed",
        why="a file that is being made, for an hour and more, would be removed",
    ),
    Mutant(
        file=f"{IO}/temporary.rs",
        before="    if age == Age::Hour && unused.is_none_or(|unused| unused <= HOUR) {\n",
        after="    if false {\n",
        killed_by="cargo outcore-io temporary::tests::only_what_nobody_holds_and_is_old_is_removed",
        why="a file that a library has just made, and does not hold yet, would be removed",
    ),
    Mutant(
        file=f"{IO}/durable.rs",
        before="        self.install(exclusive)?;\n        sync_folder_of(&target)\n",
        after="        self.install(exclusive)\n",
        killed_by=f"{CRASH} replace_leaves_the_old_or_the_new_content",
        why="a file that was replaced durably would be the old one after a power cut",
    ),
    Mutant(
        file=f"{IO}/durable.rs",
        before="        self.keep_mode()?;\n",
        after="",
        killed_by="cargo outcore-io durable::tests::"
        "replace_swaps_the_content_keeps_the_mode_and_leaves_nothing_behind",
        why="an array that is made anew would be open to readers that the old one was closed to",
    ),
    Mutant(
        file=f"{IO}/durable.rs",
        before="&folder.spot(&self.target)?, exclusive))",
        after="&folder.spot(&self.target)?, false))",
        killed_by=(
            "cargo outcore-io durable::tests::what_is_to_be_new_is_refused_at_the_beginning_and_at_the_end",
            "tests/unit/test_durable.py::test_create_file_does_not_replace_what_appears_meanwhile",
        ),
        why="a file that another process made meanwhile would be replaced",
    ),
    Mutant(
        file=f"{IO}/durable.rs",
        before="            return sys::rename(&from, &to, exclusive).map(|()| None);\n",
        after="            return sys::rename(&from, &to, false).map(|()| None);\n",
        killed_by=(
            f"{CRASH} places::a_complete_array_takes_its_place_in_one_step",
            "tests/unit/test_durable.py::test_move_into_place",
        ),
        why="what is there would be replaced by somebody who asked that it be not",
    ),
    Mutant(
        file=f"{IO}/durable.rs",
        before="    sync_folder_of(target)?;\n    Ok(left",
        after="    Ok(left",
        killed_by=f"{CRASH} places::names_that_change_places_are_durable_when_the_call_returns",
        why="after a power cut a conversion that had ended would not have happened",
    ),
    Mutant(
        file=f"{IO}/durable.rs",
        before="                    let _ = sys::rename(aside, to, true);\n",
        after="",
        killed_by=f"{CRASH} places::what_cannot_take_the_place_leaves_the_old_one_there",
        why="an array would lose its name to a new one that cannot take it",
    ),
    Mutant(
        file=f"{IO}/durable.rs",
        before="            temporary::remove_left(&target, Age::Hour);\n",
        after="            temporary::remove_left(&target, Age::Any);\n",
        killed_by="cargo outcore-io durable::tests::"
        "a_library_may_lock_what_it_makes_and_only_what_is_old_is_its_orphan",
        why="a file that another process has just begun, for HDF5's library, would be removed",
    ),
    Mutant(
        file=f"{IO}/store/publish.rs",
        before="""        for ready in &some {
            ready.temp.sync()?;
        }
""",
        after="",
        killed_by=f"{CRASH} chunks_that_were_safe_stay_old_or_new",
        why="a chunk could get its name before its bytes are on the disk",
    ),
    Mutant(
        file=f"{IO}/store/publish.rs",
        before="                other => other.and_then(|()| self.unsynced.renamed(&target))?,",
        after="                other => other?,",
        killed_by=f"{CRASH} chunks_that_were_safe_stay_old_or_new",
        why="a flush would not know of the folders that hold new names",
    ),
    Mutant(
        file=f"{IO}/store/unsynced.rs",
        before="        self.unsynced.lock().files.extend(paths);",
        after="        drop(paths);",
        killed_by=f"{CRASH} new_chunks_that_are_written_in_place_are_missing_or_whole",
        why="a flush would not know of chunks that were written in place",
    ),
    Mutant(
        file=f"{IO}/flush.rs",
        before="        let error = outcome.lost.as_ref().or(outcome.untried.as_ref());",
        after="        let error = outcome.lost.take();\n        let error = error.as_ref().or(outcome.untried.as_ref());",
        killed_by=f"{CRASH} a_failed_sync_keeps_no_other_file_from_the_disk_and_is_not_forgotten",
        why="the flush after one that failed would succeed without the bytes that were lost",
    ),
    Mutant(
        file=f"{IO}/codec/step.rs",
        before="        self.sum(data) == stored\n",
        after="        self.sum(data) == stored || data.len() < usize::MAX\n",
        killed_by="cargo outcore-io codec::tests::a_damaged_byte_is_noticed_by_each_checksum",
        why="damaged chunks would be read as if they were whole",
    ),
    Mutant(
        file=f"{IO}/codec/coder.rs",
        before="                step.check_skipped()?;\n",
        after="",
        killed_by="cargo outcore-io codec::outside::tests::it_is_a_step_like_others_and_can_be_left_out_unless_it_converts",
        why="packed bits would be taken for numbers where n-bit was left out",
    ),
    Mutant(
        file=f"{IO}/chunk_cache.rs",
        before="Ok(Seen { stamp, settled: stamp.age() >= quiet })",
        after="Ok(Seen { stamp, settled: stamp.age() >= quiet || quiet >= 0 })",
        killed_by="cargo outcore-io chunk_cache::tests::a_file_that_was_changed_just_now_is_not_kept",
        why="a chunk that changes twice within a tick of the clock would be kept as it was before",
    ),
    Mutant(
        file=f"{IO}/claim.rs",
        before="if !file.writable() || lease.forks != lease::forks() {",
        after="if !file.writable() {",
        killed_by="cargo outcore-io claim a_file_that_a_fork_may_share_is_not_claimed",
        why="a child would lose what it writes into windows that its parent rewrites",
    ),
]
