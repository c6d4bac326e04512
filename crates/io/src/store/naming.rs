//! Names of the files of chunks and shards.

use std::path::PathBuf;

/// Naming scheme for the files of chunks or shards: `root/prefix + separator.join(coordinates)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Naming {
    /// Folder of the array.
    pub root: PathBuf,
    /// Beginning of each name, such as `c/`.
    pub prefix: String,
    /// Separator of coordinates, such as `/` or `.`.
    pub separator: String,
}

impl Naming {
    /// Returns the path of one chunk or shard.
    ///
    /// An array without axes has one chunk: `c` after the prefix `c/`, `0` after an empty prefix.
    pub fn path(&self, coordinates: &[i64]) -> PathBuf {
        let mut key = self.prefix.clone();
        if coordinates.is_empty() {
            let bare = self.prefix.trim_end_matches(['/', '.']);
            key = if bare.is_empty() { "0".to_owned() } else { bare.to_owned() };
        }
        for (d, c) in coordinates.iter().enumerate() {
            if d > 0 {
                key.push_str(&self.separator);
            }
            key.push_str(&c.to_string());
        }
        self.root.join(key)
    }
}
