//! Merging sorted runs.
