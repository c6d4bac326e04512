//! Code above this crate that decodes a step, as an option of its codec: see [`outside`](super::outside).

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::fault::Fault;

/// What decodes.
pub trait Decode: fmt::Debug + Send + Sync {
    /// Decodes all of `input` into all of `output`.
    ///
    /// # Errors
    /// `Bad` if the input is not what the filter writes; `Other` for what has nothing to do with it.
    fn decode(&self, input: &[u8], output: &mut [u8]) -> Result<(), Fault>;
}

/// What decodes, as an option of a codec. What comes out follows from the other options: all are equal.
#[derive(Debug, Clone)]
pub struct Decoder(pub Arc<dyn Decode>);

impl PartialEq for Decoder {
    fn eq(&self, _other: &Decoder) -> bool {
        true
    }
}

impl Eq for Decoder {}

impl Hash for Decoder {
    fn hash<H: Hasher>(&self, _state: &mut H) {}
}
