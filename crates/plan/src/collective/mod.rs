//! Collective access: many ranks, each byte across the disk once. The extended two-phase method.
//!
//! Problem. P ranks want sections of the same arrays at the same time. Independently they make many
//! small requests in no order, and read twice what two of them want.
//!
//! Idea. Every rank knows the accesses of all (`records`, `access`). Those that belong together have a bounding
//! section (`regions`), which is cut into one domain for each I/O rank (`domains`), each of which is
//! read or written in tiles that fit a slot (`tiles`). In a round every owner has its next tile in
//! its slot, or several small ones (`batches`), packed in the order of the file; who wants a part of it
//! copies it out (into it, in a write). Which part that is, and where in the slot, follows from the
//! accesses alone: nothing is said between the ranks but that a round is there. Who writes leaves out what
//! a later access gives (`overlap`), so the order in which ranks write does not matter.
//!
//! Invariants. Every element asked for lies in exactly one tile of exactly one owner. A slot never
//! holds more than `slot` bytes. All answers are pure functions of the accesses and a number, so all
//! ranks agree without asking. Memory is O(accesses + owners).
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
