//! Division of one axis: a pattern of template cells, and the alignment with cells.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Assignment of the cells of a template along an axis of the grid.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// `*`: not divided.
    Whole,
    /// BLOCK, or BLOCK(k): one interval of k cells each; without k, the minimal length.
    Block(Option<i64>),
    /// CYCLIC(k): blocks of k cells, assigned round-robin.
    Cyclic(i64),
    /// GEN_BLOCK: one interval each, of these lengths.
    General(Vec<i64>),
}

/// Alignment: index `i` of the array lies on cell `stride * i + offset` of the template.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Align {
    /// The stride, any value except 0.
    pub stride: i64,
    /// The cell of index 0.
    pub offset: i64,
    /// Number of cells of the template, from 0 on; `None`: up to the last one with an element.
    pub extent: Option<i64>,
}

impl Default for Align {
    fn default() -> Align {
        Align { stride: 1, offset: 0, extent: None }
    }
}

impl core::fmt::Display for Pattern {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Pattern::Whole => write!(f, "*"),
            Pattern::Block(None) => write!(f, "BLOCK"),
            Pattern::Block(Some(size)) => write!(f, "BLOCK({size})"),
            Pattern::Cyclic(1) => write!(f, "CYCLIC"),
            Pattern::Cyclic(size) => write!(f, "CYCLIC({size})"),
            Pattern::General(lengths) => {
                let words: Vec<String> = lengths.iter().map(i64::to_string).collect();
                write!(f, "GEN_BLOCK({})", words.join(", "))
            }
        }
    }
}

/// An affine expression such as `2*i + 1`.
pub(super) fn affine(stride: i64, offset: i64) -> String {
    let product = match stride {
        1 => "i".to_owned(),
        -1 => "-i".to_owned(),
        _ => format!("{stride}*i"),
    };
    match offset {
        0 => product,
        _ if stride < 0 && offset > 0 => format!("{offset} - {}", product.trim_start_matches('-')),
        _ if offset < 0 => format!("{product} - {}", offset.unsigned_abs()),
        _ => format!("{product} + {offset}"),
    }
}
