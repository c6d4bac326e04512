//! A modelled machine: what an access of P ranks would take on it, in virtual time, with no data moved.
//!
//! Problem. Whether two phases pay on 10^5 ranks, or on a machine of 1996, cannot be tried here.
//!
//! Idea. The plans are real ([`Collective`](crate::collective::Collective), and for ranks on their own
//! the runs of their sections); only the machine is a model, of few parts that are resources with a
//! queue each:
//!
//! | part          | model                                                                     |
//! |---------------|---------------------------------------------------------------------------|
//! | files         | assigned in stripes over the servers, one file after another                  |
//! | server        | first come, first served; a block comes from its disk once, then from memory |
//! | disk          | a block that follows one of the last ones costs less than one that does not |
//! | rank          | issues `depth` requests, waits for them, goes on                           |
//! | message       | costs both ends a latency; bytes pass the port of the node, one way each   |
//! | agreement     | a message for each doubling of ranks                                       |
//!
//! Elements that are chosen one by one are described likewise ([`Scattered`]): `irregular` runs their collectives.
//!
//! The clock runs from event to event. An event is a request, as long as there are at most [`EVENTS`] in
//! a round; then a *burst*, several of one rank in a row in one block; then a group of bursts, of which
//! one drawn by a fixed sequence is looked at (`queue`).
//!
//! Invariants. Integers only, nanoseconds: equal input gives equal times everywhere. The bytes that
//! servers move are those of the streams. Memory is O(accesses + servers), and a bit for each block.
//!
//! Cost. O(min(requests, EVENTS) log P) and, for messages, O(tiles (P or log P)) (`exchange`).

mod exchange;
mod irregular;
mod machine;
mod queue;
mod rounds;
mod scattered;
mod servers;
mod stream;
#[cfg(test)]
mod tests;

pub use irregular::{each_alone, in_steps, Domains, Way};
pub use machine::{Machine, Manner, Outcome, Price, EVENTS};
pub use queue::alone;
pub use rounds::together;
pub use scattered::Scattered;
pub use stream::Stream;
