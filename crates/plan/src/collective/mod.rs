//! Collective access of many ranks: the extended two-phase method.
//!
//! Problem: P ranks request sections of the same arrays at the same time. Independently, they make
//! many small requests in no particular order, and read elements twice that two of them request.
//!
//! Approach: every rank knows the accesses of all (`records`, `access`). Related accesses have a
//! bounding section (`regions`), which is cut into one domain for each I/O rank (`domains`).
//! Domains are read or written in tiles that fit a slot (`tiles`). In a round, every owner has its
//! next tile in its slot, or several small ones (`batches`), packed in the order of the file. A
//! rank that requests a part of a tile copies it out of the slot (into it, in a write). The part
//! and its place in the slot are computed from the accesses alone: the ranks communicate only that
//! a round is ready. A writing rank skips the elements that a later access writes (`overlap`), so
//! the order in which ranks write does not matter.
//!
//! Invariants: every requested element is in exactly one tile of exactly one owner. A slot never
//! holds more than `slot` bytes. All results are pure functions of the accesses and a number, so
//! all ranks agree without communication. Memory is O(accesses + owners).
//!
//! Reference: Thakur and Choudhary, "An Extended Two-Phase Method for Accessing Sections of
//! Out-of-Core Arrays", sections 3 and 4. Its *file domain access table* is [`Collective::table`].

mod access;
mod batches;
mod block_cyclic;
mod choice;
mod domains;
mod flushes;
mod holes;
mod messages;
mod overlap;
mod owners;
mod packets;
mod parts;
mod plan;
mod records;
mod regions;
mod settings;
mod tiles;

pub use access::{section_from_words, section_words, Access, ArrayDescriptor};
pub use choice::{reads_sooner, Choice, Decision, ExchangeCosts, Exchanged, Method, Prices, Why};
pub use domains::{Cut, Share};
pub use flushes::{turns, Owed, Turn};
pub use holes::{is_dense, Held, Way, IMPOSSIBLE, SPARSE};
pub use messages::{MessagePart, Messages, Peers};
pub use overlap::{leave_out, overlap, Left, Overlap};
pub use owners::{most_arrays, Owners};
pub use packets::Packets;
pub use plan::{useful, Agreed, Collective, Job, Piece, Tile};
pub use records::{failed, record, unsaid, Mismatch, Records, Said, Stage, Wanted, HEAD};
pub use regions::{hull, regions, Region};
pub use settings::{offered, slot_shares, Settings, TimedDisk, ALIGN};
pub use tiles::Tiling;
