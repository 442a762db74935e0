//! The execution requirements R20 to R32, and R9, R13 and R36, held by the native provider.
//! Each test is named after its line in the requirements and runs as everyone.

mod execution;
mod files;
mod leaks;
mod limits;
mod network;
mod policy;
