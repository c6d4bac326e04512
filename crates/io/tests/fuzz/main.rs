//! Hostile input: damaged streams, shards, chunk tables and layouts are handled or rejected. No
//! input causes a panic, a hang, an access to foreign memory, or an allocation of a size that it
//! claims.
//!
//! Every input is a pure function of seed and number, which identify a failure. Settings come from
//! the environment (`lane.rs` lists them); `./x fuzz` runs all targets.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]
#![cfg(target_os = "linux")]

mod chance;
mod lane;
mod plans;
mod streams;
mod tables;
