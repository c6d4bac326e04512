//! A decoder above this crate, as an option of a codec: see [`outside`](super::outside).

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::fault::Fault;

/// A decoder of one step.
pub trait Decode: fmt::Debug + Send + Sync {
    /// Decodes all of `input` into all of `output`.
    ///
    /// # Errors
    /// `Bad` if the filter cannot have written the input; `Other` for errors unrelated to the
    /// input.
    fn decode(&self, input: &[u8], output: &mut [u8]) -> Result<(), Fault>;
}

/// A decoder as an option of a codec. The other options determine the output, so all decoders are
/// equal.
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
