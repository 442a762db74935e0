//! `belljar completions`: a script that a shell can load.

use clap::CommandFactory;

use super::super::args::{Cli, CompletionsArgs};
use super::super::problem::Problem;
use super::super::stdout;

pub(crate) fn completions(args: &CompletionsArgs) -> Result<u8, Problem> {
    // Into memory first: clap_complete panics where standard output is closed.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "belljar", &mut script);
    stdout::write_with(|out| out.write_all(&script))?;
    Ok(0)
}
