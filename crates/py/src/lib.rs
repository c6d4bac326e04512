//! The compiled module `outcore._core`: translation between Python and the core, no decisions.
//!
//! | file | translates |
//! |---|---|
//! | `array.rs`   | the calls of `DiskArray` |
//! | `key.rs`     | `a[key]` to a section |
//! | `buffers.rs` | NumPy arrays to memory |
//! | `layout.rs`  | `ArrayInfo` to a layout |
//! | `hints.rs`   | `Hints` to hints |
//! | `access.rs`  | an access to plans that run |
//! | `chunks.rs`  | a chunked array to batches |
//! | `collective.rs` | the plan of a collective, and its copies |
//! | `compute/`   | kernels on blocks that are in memory
//! | `records.rs` | what ranks told each other, to what is wanted of each array |
//! | `table.rs`   | a chunk table kept by a format's library |
//! | `terms.rs`   | the machine and the hints to terms |
//! | `prefetch.rs`| a plan to read-ahead |
//! | `many.rs`    | sections of many arrays to one loop over accesses |
//! | `admission.rs`    | several accesses to one budget |
//! | `windows.rs` | writes that read, change and write back |
//! | `nesting.rs` | a call inside a call of the same thread |
//! | `interrupt.rs`| Ctrl-C |
//! | `node_barrier.rs`   | steps of the ranks of one node |
//! | `cast.rs`    | a value of another type to the array's |
//! | `slabs.rs`   | a large cast to small ones |
//! | `assign.rs`  | a matrix of requests to an assignment of files to ranks |
//! | `simulate.rs`| a modelled machine, and what an access takes on it |
//! | `report.rs`  | a plan to what `explain` shows |
//! | `measure.rs` | measuring a disk, and its figures |
//! | `distribution.rs` | which rank owns which index |
//! | `memory.rs`  | the memory budget |
//! | `errors.rs`  | failures to exceptions |

use pyo3::prelude::*;

mod access;
mod admission;
mod array;
mod assign;
mod buffers;
mod cast;
mod chunks;
mod collective;
mod compute;
mod distribution;
mod empty;
mod errors;
mod guard;
mod habit;
mod hints;
mod interrupt;
mod key;
mod layout;
mod learning;
mod loops;
mod many;
mod measure;
mod memory;
mod nesting;
mod node_barrier;
mod part;
mod prefetch;
mod records;
mod report;
mod simulate;
mod slabs;
mod table;
mod terms;
mod traffic;
mod windows;

/// The core of outcore.
#[pymodule]
mod _core {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::access::writes;
    #[pymodule_export]
    use crate::admission::whole_in_turn;
    #[pymodule_export]
    use crate::array::Array;
    #[pymodule_export]
    use crate::assign::assign;
    #[pymodule_export]
    use crate::collective::Collective;
    #[pymodule_export]
    use crate::compute::merge::{
        cut_runs, decode_words, keys_with_places, merge_runs, merge_scratch, sort_words,
    };
    #[pymodule_export]
    use crate::compute::reduce::{accumulate_products, Reduction};
    #[pymodule_export]
    use crate::compute::stencil::{Rank, StencilPass};
    #[pymodule_export]
    use crate::distribution::{Distribution, Grid};
    #[pymodule_export]
    use crate::errors::error_codes;
    #[pymodule_export]
    use crate::interrupt::Stop;
    #[pymodule_export]
    use crate::layout::file_id;
    #[pymodule_export]
    use crate::loops::{wait_for_loops, Loop};
    #[pymodule_export]
    use crate::many::read_many;
    #[pymodule_export]
    use crate::measure::{learned_disks, measure_disk, set_disks, set_learning};
    #[pymodule_export]
    use crate::memory::{
        keep_chunks_after, kept_chunks, memory_limit, memory_state, reset_memory_peak,
        set_memory_limit, Reservation, SharedMemory,
    };
    #[pymodule_export]
    use crate::nesting::{is_inside, reads_here, refuse_nested, Call, Changing};
    #[pymodule_export]
    use crate::node_barrier::NodeBarrier;
    #[pymodule_export]
    use crate::simulate::{simulate_alone, simulate_together};
    #[pymodule_export]
    use crate::table::lookup3;
    #[pymodule_export]
    use crate::traffic::{accumulate_plan, exchange_plan, Traffic};

    #[pymodule_export]
    use crate::records::{brief_record, failed_record, record, Records};

    #[pymodule_init]
    fn init(m: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::terms::default_budget();
        m.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
