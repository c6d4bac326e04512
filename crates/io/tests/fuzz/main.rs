//! Hostile input: damaged streams, shards, chunk tables and layouts are handled or refused. Nothing
//! panics, hangs, touches memory that is not its own, or allocates by what an input claims.
//!
//! Every input is a pure function of seed and number, so a failure is named by these two. Settings
//! come from the environment (`lane.rs` lists them); `./x fuzz` drives all targets.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]
#![cfg(target_os = "linux")]

mod chance;
mod lane;
mod plans;
mod streams;
mod tables;
