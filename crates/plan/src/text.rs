//! The text form of plans and rounds, for `explain` and golden files.

use alloc::format;
use alloc::string::String;
use core::fmt::{self, Display, Formatter};

use crate::plan::{Channel, Cost, Direction, IndexedMove, Move, Place, Round, Transfer};
use crate::planner::Plan;

/// Number of rounds shown in full.
const SHOWN: u64 = 3;

impl Plan {
    /// The text form: method, cost, the first rounds and the last.
    pub fn text(&self) -> String {
        let verb = if self.means.direction == Direction::Read { "read" } else { "write" };
        let mut text = format!(
            "{verb}, method {}\nwhy    {}\nslots  {} B x {} in flight",
            self.method().name(),
            self.why(),
            self.slot_bytes(),
            self.lanes(),
        );
        if self.contexts() + self.held() > 0 {
            text += &format!(", contexts {} B each, {} B held", self.contexts(), self.held());
        }
        text += "\n";
        text += &format!("cost   {}\n", self.cost());
        let first = self.rounds().min(SHOWN);
        for k in (0..first).chain((self.rounds() > first).then(|| self.rounds() - 1)) {
            match self.round(k) {
                Ok(round) => text += &format!("round {k}, slot {} B\n{round}", round.slot_bytes),
                Err(error) => text += &format!("round {k}\n  {error}\n"),
            }
            if k + 1 == SHOWN && self.rounds() > SHOWN + 1 {
                text += &format!("... {} more\n", self.rounds() - SHOWN - 1);
            }
        }
        text
    }
}

impl Display for Cost {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Cost { reads, read_bytes, writes, written_bytes, mapped_bytes, useful_bytes, .. } =
            self;
        write!(f, "{useful_bytes} B requested, {} rounds", self.rounds)?;
        if *reads > 0 {
            write!(f, ", {reads} reads {read_bytes} B")?;
        }
        if *writes > 0 {
            write!(f, ", {writes} writes {written_bytes} B")?;
        }
        if *mapped_bytes > 0 {
            write!(f, ", {mapped_bytes} B mapped")?;
        }
        if self.decodes + self.encodes > 0 {
            write!(f, ", {} decodes, {} encodes", self.decodes, self.encodes)?;
        }
        write!(f, ", peak {} B", self.peak_bytes)
    }
}

/// `count by stride`, one pair per loop.
struct Loops<'a>(&'a [i64], &'a [&'a [i64]]);

impl Display for Loops<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (d, n) in self.0.iter().enumerate() {
            write!(f, " x {n} by ")?;
            for (k, strides) in self.1.iter().enumerate() {
                write!(f, "{}{}", if k > 0 { "|" } else { "" }, strides[d])?;
            }
        }
        Ok(())
    }
}

impl Display for Place {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Place::User => write!(f, "user"),
            Place::Slot => write!(f, "slot"),
            Place::File(n) => write!(f, "file {n}"),
            Place::Fill => write!(f, "fill"),
        }
    }
}

fn transfer(t: &Transfer, verb: &str, f: &mut Formatter<'_>) -> fmt::Result {
    let e = &t.extents;
    let channel = match t.channel {
        Channel::Cached => "cached",
        Channel::Direct => "direct",
        Channel::Head => "cached, before whole blocks",
        Channel::Tail => "cached, after whole blocks",
    };
    writeln!(
        f,
        "  {verb} file {} at {} | {} at {}: {} B{} ({channel})",
        t.file,
        e.offset,
        t.memory,
        t.at,
        e.len,
        Loops(&e.count, &[&e.stride, &t.at_stride])
    )
}

impl Display for Move {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "move {} at {} > {} at {}: {} B{}",
            self.src,
            self.src_at,
            self.dst,
            self.dst_at,
            self.item,
            Loops(&self.count, &[&self.src_stride, &self.dst_stride])
        )
    }
}

impl Display for IndexedMove {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "move {} blocks {} at {} > {} at {}: {} B{}",
            self.counts.blocks(self.points),
            self.src,
            self.src_at,
            self.dst,
            self.dst_at,
            self.item,
            Loops(&self.count, &[&self.src_stride, &self.dst_stride])
        )
    }
}

impl Display for Round {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for t in &self.reads {
            transfer(t, "read", f)?;
        }
        for c in &self.chunk_reads {
            let s = c.stored;
            writeln!(
                f,
                "  read chunk {:?} file {} at {}: {} B | slot at {} + {} B > {} B at {} (mask {})",
                c.chunk, s.file, s.offset, s.len, c.staged_at, c.scratch, c.len, c.at, s.mask
            )?;
        }
        for m in &self.moves {
            writeln!(f, "  {m}")?;
        }
        for m in &self.indexed {
            writeln!(f, "  {m}")?;
        }
        for t in &self.writes {
            transfer(t, "write", f)?;
        }
        for c in &self.chunk_writes {
            writeln!(
                f,
                "  write chunk {:?}: {} B at {} > at most {} of {} B at {}",
                c.chunk, c.len, c.at, c.bound, c.scratch, c.staged_at
            )?;
        }
        Ok(())
    }
}
