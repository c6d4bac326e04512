//! A modelled machine: estimated virtual time of an access of P ranks, without moving data.
//!
//! Problem: whether two phases pay off on 10^5 ranks, or on a machine of 1996, cannot be measured
//! here.
//!
//! Approach: the plans are real ([`Collective`](crate::collective::Collective), and for independent
//! ranks the runs of their sections). Only the machine is a model, with few parts, each of which is
//! a resource with a queue:
//!
//! | part          | model                                                                     |
//! |---------------|---------------------------------------------------------------------------|
//! | files         | assigned in stripes over the servers, one file after another                  |
//! | server        | first come, first served; a block comes from its disk once, then from memory |
//! | disk          | a block that follows one of the last ones costs less than one that does not |
//! | rank          | issues `depth` requests, waits for them, continues                         |
//! | message       | costs both ends a latency; bytes pass the port of the node, in each direction |
//! | agreement     | a message for each doubling of ranks                                       |
//!
//! Elements that are chosen one by one are described in a similar way ([`Scattered`]); `irregular`
//! runs their collectives.
//!
//! The clock advances from event to event. An event is a request if a round has at most [`EVENTS`];
//! otherwise a *burst* of consecutive requests of one rank in one block; otherwise a group of
//! bursts, represented by one burst that a fixed sequence selects (`queue`).
//!
//! Invariants: integers only, nanoseconds, so equal input gives equal times everywhere. Servers
//! move exactly the bytes of the streams. Memory is O(accesses + servers), and a bit for each
//! block.
//!
//! Cost: O(min(requests, EVENTS) log P) and, for messages, O(tiles (P or log P)) (`exchange`).

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
