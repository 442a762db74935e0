//! What runs between clone and exec, and pid 1 of every sandbox.
//!
//! Lists of steps say what is done and in which order: one raises a nursery's root, one a shell's walls,
//! one turns a fork of init into a guest. The lists are data, worked out before anything happens; `perform`
//! carries out one step. Nothing here reads the host's environment or talks to anyone but the
//! engine.

mod adopt;
pub(crate) mod calls;
pub(crate) mod exit_slot;
mod file_locks;
mod files;
mod guest;
mod guests;
pub(crate) mod landlock;
mod locks;
mod perform;
mod pid_one;
pub(crate) mod plan;
mod room;
pub(crate) mod steps;

pub(crate) use pid_one::run;
pub(crate) use plan::install;
