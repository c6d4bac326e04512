//! Codecs as formats specify them.

use super::decoder::Decoder;
use super::fault::Fault;

/// The value of one option of a codec.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum OptionValue {
    /// A number, such as a level.
    Int(i64),
    /// A string, such as the name of Blosc's inner compressor.
    Text(String),
    /// A decoder in a library above this crate.
    Decoder(Decoder),
}

/// A codec as the format specifies it: see `Codec` in `python/outcore/formats/layout.py`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CodecSpec {
    /// One of the names in the table of this module.
    pub name: String,
    /// Options by name; missing ones have the usual defaults.
    pub options: Vec<(String, OptionValue)>,
}

impl CodecSpec {
    /// A codec with no options.
    pub fn new(name: &str) -> CodecSpec {
        CodecSpec { name: name.to_owned(), options: Vec::new() }
    }

    /// Adds a numeric option.
    pub fn int(mut self, key: &str, value: i64) -> CodecSpec {
        self.options.push((key.to_owned(), OptionValue::Int(value)));
        self
    }

    /// Adds an option that is a string.
    pub fn text(mut self, key: &str, value: &str) -> CodecSpec {
        self.options.push((key.to_owned(), OptionValue::Text(value.to_owned())));
        self
    }

    pub(super) fn get(&self, key: &str) -> Option<&OptionValue> {
        self.options.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    pub(super) fn get_int(&self, key: &str, default: i64, lo: i64, hi: i64) -> Result<i64, Fault> {
        match self.get(key) {
            None => Ok(default),
            Some(OptionValue::Int(value)) if (lo..=hi).contains(value) => Ok(*value),
            Some(OptionValue::Int(value)) => {
                Err(Fault::new(format!("option {key} is {value}, outside {lo}..={hi}")))
            }
            Some(other) => Err(Fault::new(format!("option {key} is {other:?}, not a number"))),
        }
    }

    pub(super) fn get_text(&self, key: &str, default: &'static str) -> Result<&str, Fault> {
        match self.get(key) {
            None => Ok(default),
            Some(OptionValue::Text(text)) => Ok(text),
            Some(other) => Err(Fault::new(format!("option {key} is {other:?}, not a string"))),
        }
    }
}
