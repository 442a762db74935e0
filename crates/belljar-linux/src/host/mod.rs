//! The engine's side: the launcher's client, cgroups, output, files, probing.

pub(crate) mod cgroup;
mod channel;
mod collect;
mod group;
mod interpreter;
mod launcher;
mod nursery;
mod output;
mod probe;
pub(crate) mod provider;
mod receipt;
mod rootfs;
mod runners;
mod sandbox;
mod shell;
mod spec;
mod stdin;
mod toolchain;
mod tree;
mod trial;
mod watch;
mod zygote;
