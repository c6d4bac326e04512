//! The compiled module `outcore._core`: translation between Python and the core, no decisions.
//!
//! | file | translates |
//! |---|---|
//! | `array/`     | the calls of `DiskArray` |
//! | `open.rs`    | an open array: the GIL, Ctrl-C, the type of elements |
//! | `index_lists.rs` | lists of indices to accesses |
//! | `indexed.rs` | an index prepared for many arrays, and listed elements divided among ranks |
//! | `key.rs`     | `a[key]` to a section |
//! | `buffers.rs` | NumPy arrays to memory |
//! | `layout.rs`  | `ArrayInfo` to a layout |
//! | `hints.rs`   | `Hints` to hints |
//! | `library.rs` | callables of a format to a table of chunks and its locks |
//! | `collective.rs` | the plan of a collective, and its copies |
//! | `compute/`   | kernels on blocks in memory |
//! | `records.rs` | the state of a rank to its record for the others |
//! | `agreement.rs` | the records of all ranks to their agreements |
//! | `read_many.rs` | keys of many arrays to one list of accesses |
//! | `casting.rs` | a value of another type, cast by NumPy |
//! | `block_loops.rs` | loops over blocks |
//! | `durable.rs` | files that appear complete, temporary names, and files that killed processes left |
//! | `turn.rs`    | a turn at the memory for Python code |
//! | `calls.rs`   | calls inside calls of the same thread |
//! | `interrupt.rs`| Ctrl-C |
//! | `node_barrier.rs` | steps of the ranks of one node |
//! | `two_phase.rs` | the work of an owner in the rounds of a collective |
//! | `background.rs` | accesses in separate threads |
//! | `assign.rs`  | a matrix of requests to an assignment of files to ranks |
//! | `slabs.rs`   | shapes of pieces under a limit |
//! | `resident.rs`| typical sections of a new array to layouts with costs |
//! | `simulate.rs`| a modelled machine, and the cost of an access on it |
//! | `report.rs`  | a plan to the fields of `explain` |
//! | `measure.rs` | measuring a disk, and its parameters |
//! | `distribution.rs` | the owner of each index |
//! | `window.rs`  | parts of a distributed array that this process can see, and their locks |
//! | `memory.rs`  | the memory budget |
//! | `errors.rs`  | failures to exceptions |

#![deny(unsafe_code)]

use pyo3::prelude::*;

mod agreement;
mod array;
mod assign;
mod background;
mod block_loops;
mod buffers;
mod calls;
mod casting;
mod collective;
mod compute;
mod distribution;
mod durable;
mod errors;
mod hints;
mod index_lists;
mod indexed;
mod interrupt;
mod key;
mod layout;
mod library;
mod measure;
mod memory;
mod node_barrier;
mod open;
mod read_many;
mod records;
mod report;
mod resident;
mod simulate;
mod slabs;
mod traffic;
mod turn;
mod two_phase;
mod window;

/// The core of outcore.
#[pymodule]
mod _core {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::array::Array;
    #[pymodule_export]
    use crate::assign::assign;
    #[pymodule_export]
    use crate::background::Background;
    #[pymodule_export]
    use crate::block_loops::{wait_for_loops, Loop};
    #[pymodule_export]
    use crate::calls::{is_inside, reads_here, refuse_nested, Call, Changing};
    #[pymodule_export]
    use crate::collective::Collective;
    #[pymodule_export]
    use crate::compute::masks::{mask_extent, nonzero_places, take_masked};
    #[pymodule_export]
    use crate::compute::merge::{
        cut_runs, decode_words, keys_with_places, merge_runs, merge_scratch, sort_words,
    };
    #[pymodule_export]
    use crate::compute::reduce::{accumulate_products, Reduction};
    #[pymodule_export]
    use crate::compute::regions::{put_rows, take_rows};
    #[pymodule_export]
    use crate::compute::stencil::{Rank, StencilPass};
    #[pymodule_export]
    use crate::distribution::{Distribution, Grid};
    #[pymodule_export]
    use crate::durable::{
        allocate, fsync_folder, hold_temporary, move_into_place, remove_left, remove_orphan,
        temporary_name, TempFile,
    };
    #[pymodule_export]
    use crate::errors::error_codes;
    #[pymodule_export]
    use crate::indexed::{
        bins_of, count_bins, cut_bins, divide_elements, list_prices, rounds_of, touched_blocks,
        IndexSchedule,
    };
    #[pymodule_export]
    use crate::interrupt::Stop;
    #[pymodule_export]
    use crate::layout::file_id;
    #[pymodule_export]
    use crate::library::lookup3;
    #[pymodule_export]
    use crate::measure::{learned_disks, measure_disk, set_disks, set_learning, share_disks};
    #[pymodule_export]
    use crate::memory::{
        keep_chunks_after, kept_chunks, memory_limit, memory_state, reset_memory_peak,
        set_memory_limit, Reservation, SharedMemory,
    };
    #[pymodule_export]
    use crate::node_barrier::NodeBarrier;
    #[pymodule_export]
    use crate::open::writes;
    #[pymodule_export]
    use crate::read_many::{read_early, read_many};
    #[pymodule_export]
    use crate::resident::resident_layouts;
    #[pymodule_export]
    use crate::simulate::{
        scattered_blocks, simulate_alone, simulate_scattered, simulate_together,
    };
    #[pymodule_export]
    use crate::slabs::slab_shape;
    #[pymodule_export]
    use crate::traffic::{accumulate_plan, exchange_plan, Traffic};
    #[pymodule_export]
    use crate::turn::whole_in_turn;
    #[pymodule_export]
    use crate::two_phase::{flush_turns, own_price, Batch, Messages, Owner};

    #[pymodule_export]
    use crate::window::{Window, WordLocks};

    #[pymodule_export]
    use crate::records::{
        brief_record, failed_record, record, settings, slot_shares, try_disk, Records,
    };

    #[pymodule_init]
    fn init(m: &Bound<'_, PyModule>) -> PyResult<()> {
        outcore_access::terms::default_budget();
        m.add("CACHED", outcore_plan::CACHED)?;
        m.add("SPARSE", outcore_plan::collective::SPARSE)?;
        m.add("IMPOSSIBLE", outcore_plan::collective::IMPOSSIBLE)?;
        m.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
