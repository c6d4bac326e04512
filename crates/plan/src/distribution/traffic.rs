//! Traffic: the messages between ranks in each round, as a value.
//!
//! Problem: in a redistribution, an exchange of ghosts in either direction or a gather, elements
//! are sent between ranks, in as many rounds as the memory for messages requires, and are stored or
//! combined with existing elements. The messages must be known and counted before anything is sent.
//!
//! Approach: a message is a list of sections of the memory at its end, in the order in which
//! elements are sent; a round is an interval of that list. Only the lengths of sections determine
//! the ends of rounds. Both ends of a message have equal lengths, so both cut it identically.
//!
//! Invariants: no message of a round has more elements than the limit. If elements are combined,
//! each rank unpacks the received elements in the order of ranks, element by element, whatever the
//! limit: everything that it receives is one stream, message after message, and this stream is cut
//! into rounds. A sum of floating-point numbers therefore has the same bits in one round and in
//! many.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use crate::error::PlanError;
use crate::layout::Order;
use crate::section::Section;
use crate::slabs::Slabs;

/// The operation on a received element and the existing one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// The received element replaces the existing one.
    ///
    /// At most one element is received for each place.
    Copy,
    /// The received element is added.
    Add,
    /// The smaller one remains.
    Minimum,
    /// The larger one remains.
    Maximum,
    /// The received element replaces the existing one; the element of the highest rank remains.
    Last,
}

impl Operation {
    /// All operations.
    pub const ALL: [Operation; 5] =
        [Operation::Copy, Operation::Add, Operation::Minimum, Operation::Maximum, Operation::Last];

    /// The name in the public API.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Copy => "copy",
            Operation::Add => "add",
            Operation::Minimum => "minimum",
            Operation::Maximum => "maximum",
            Operation::Last => "last",
        }
    }

    /// Returns whether several elements may be received for one place, so that their order matters.
    pub fn combines(self) -> bool {
        self != Operation::Copy
    }
}

/// The elements sent between this rank and one other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The other rank.
    pub peer: i64,
    /// Places of the elements on this rank, in the order in which they are sent.
    ///
    /// Each section has its last axis fastest.
    pub sections: Vec<Section>,
    /// End of each round in `sections`.
    pub ends: Vec<usize>,
}

impl Message {
    /// Creates a message that is sent in one round.
    pub fn new(peer: i64, sections: Vec<Section>) -> Message {
        let ends = vec![sections.len()];
        Message { peer, sections, ends }
    }

    /// The sections sent in round `k`.
    pub fn round(&self, k: usize) -> &[Section] {
        let begin = if k == 0 { Some(0) } else { self.ends.get(k - 1).copied() };
        let found = begin.zip(self.ends.get(k)).and_then(|(a, b)| self.sections.get(a..*b));
        found.unwrap_or_default()
    }

    /// Number of elements.
    pub fn elements(&self) -> Result<i64, PlanError> {
        elements(&self.sections)
    }

    /// Cuts this end of a message in the same way as the other end, `other`, in the same rounds.
    fn cut_like(&mut self, other: &Message, limit: i64) -> Result<(), PlanError> {
        self.sections = cut(&self.sections, limit)?;
        self.ends.clone_from(&other.ends);
        Ok(())
    }
}

/// One rank's messages and local copies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Traffic {
    /// The operation on received elements.
    pub operation: Operation,
    /// Messages that the rank sends, by peer.
    pub sends: Vec<Message>,
    /// Messages that the rank receives, by peer; unpacked in this order.
    pub receives: Vec<Message>,
    /// Local copies: source and target. Made in the first round.
    pub own: Vec<(Section, Section)>,
}

impl Traffic {
    /// Cuts the traffic into rounds in which no message has more than `limit` elements.
    ///
    /// This is only for copies: a rank can cut its part without information about the messages of
    /// other ranks.
    pub fn in_rounds(mut self, limit: i64) -> Result<Traffic, PlanError> {
        for message in self.sends.iter_mut().chain(&mut self.receives) {
            cut_together(core::slice::from_mut(message), limit)?;
        }
        Ok(self)
    }

    /// Cuts the traffic into rounds in which no rank receives more than `limit` elements.
    ///
    /// Messages are received in the order of ranks. `received(q)` has the messages of rank `q` in
    /// one round.
    pub(super) fn in_ordered_rounds(
        mut self,
        me: i64,
        limit: i64,
        received: impl Fn(i64) -> Result<Vec<Message>, PlanError>,
    ) -> Result<Traffic, PlanError> {
        cut_together(&mut self.receives, limit)?;
        for message in &mut self.sends {
            // The ends of rounds of this message depend on the messages before it in the same
            // stream.
            let mut stream = received(message.peer)?;
            cut_together(&mut stream, limit)?;
            if let Some(other) = stream.iter().find(|other| other.peer == me) {
                message.cut_like(other, limit)?;
            }
        }
        Ok(self)
    }

    /// Number of rounds of this rank, counted from the first one; at least 1.
    pub fn rounds(&self) -> usize {
        self.all().map(|message| message.ends.len()).max().unwrap_or(0).max(1)
    }

    /// Number of messages that this rank sends, counted once for each round with elements.
    pub fn messages(&self) -> usize {
        let of_round = |k| self.sends.iter().filter(move |one| !one.round(k).is_empty()).count();
        (0..self.rounds()).map(of_round).sum()
    }

    /// Number of elements that this rank sends, and that it receives, in all rounds.
    pub fn elements(&self) -> Result<(i64, i64), PlanError> {
        Ok((total(&self.sends)?, total(&self.receives)?))
    }

    /// Maximum number of elements that this rank has in message buffers at a time.
    pub fn peak(&self) -> Result<i64, PlanError> {
        let mut peak = 0;
        for k in 0..self.rounds() {
            let mut held = 0_i64;
            for message in self.all() {
                held = held.saturating_add(elements(message.round(k))?);
            }
            peak = peak.max(held);
        }
        Ok(peak)
    }

    /// Upper bound of `peak` if rounds are cut with this limit.
    pub fn bound(&self, limit: i64) -> Result<i64, PlanError> {
        let mut held = 0_i64;
        for message in &self.sends {
            held = held.saturating_add(message.elements()?.min(limit));
        }
        if self.operation.combines() {
            return Ok(held.saturating_add(total(&self.receives)?.min(limit)));
        }
        for message in &self.receives {
            held = held.saturating_add(message.elements()?.min(limit));
        }
        Ok(held)
    }

    /// A limit with which buffers have at most `room` elements, or 1.
    ///
    /// `i64::MAX` if everything fits.
    pub fn limit(&self, room: i64) -> Result<i64, PlanError> {
        if self.bound(i64::MAX)? <= room {
            return Ok(i64::MAX);
        }
        let received = if self.operation.combines() { 1 } else { self.receives.len() };
        Ok((room / (self.sends.len() + received) as i64).max(1))
    }

    fn all(&self) -> impl Iterator<Item = &Message> {
        self.sends.iter().chain(&self.receives)
    }
}

impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |sections: &[Section]| elements(sections).map_err(|_| fmt::Error);
        let own = self.own.iter().map(|(from, _)| from.clone()).collect::<Vec<_>>();
        write!(f, "{}, {} here", self.operation.name(), of(&own)?)?;
        write!(f, "; rounds: {}, ", self.rounds())?;
        write!(f, "elements in buffers: {}", self.peak().map_err(|_| fmt::Error)?)?;
        for (word, messages) in [("to", &self.sends), ("from", &self.receives)] {
            for Message { peer, sections, ends } in messages {
                write!(f, "\n{word} {peer}: {}", of(sections)?)?;
                if ends.len() > 1 {
                    let first = ends.iter().position(|end| *end > 0).unwrap_or(0);
                    write!(f, " in rounds {first} to {}", ends.len() - 1)?;
                }
                let shown = sections.iter().take(4).map(|section| alloc::format!("{section}"));
                write!(f, ": {}", shown.collect::<Vec<_>>().join(", "))?;
                if sections.len() > 4 {
                    write!(f, " and {} more", sections.len() - 4)?;
                }
            }
        }
        Ok(())
    }
}

fn elements(sections: &[Section]) -> Result<i64, PlanError> {
    sections.iter().try_fold(0_i64, |sum, one| Ok(sum.saturating_add(one.count()?)))
}

fn total(messages: &[Message]) -> Result<i64, PlanError> {
    messages.iter().try_fold(0_i64, |sum, one| Ok(sum.saturating_add(one.elements()?)))
}

/// Cuts messages into rounds, one after another.
///
/// All messages of a round together have at most `limit` elements.
fn cut_together(messages: &mut [Message], limit: i64) -> Result<(), PlanError> {
    let limit = limit.max(1);
    let (mut round, mut filled) = (0_usize, 0_i64);
    for message in messages {
        message.sections = cut(&message.sections, limit)?;
        message.ends.clear();
        for (k, section) in message.sections.iter().enumerate() {
            let count = section.count()?;
            if filled > 0 && filled > limit - count {
                round += 1;
                filled = 0;
            }
            message.ends.resize(round, k); // for rounds before this one
            filled += count;
        }
        message.ends.resize(round, 0);
        message.ends.push(message.sections.len());
    }
    Ok(())
}

/// The same elements in the same order, in sections of at most `limit` elements.
fn cut(sections: &[Section], limit: i64) -> Result<Vec<Section>, PlanError> {
    let mut parts = Vec::with_capacity(sections.len());
    for section in sections {
        if section.count()? <= limit {
            parts.push(section.clone());
        } else {
            let order = Order::C.fastest_first(section.ndim());
            parts.extend(Slabs::of_elements(section, order, limit).map(|slab| slab.section));
        }
    }
    Ok(parts)
}
