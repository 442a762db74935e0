//! `belljar session`: cells that a person types, that come from a pipe, or that a program sends.

mod cell;
mod colon;
mod complete;
mod editor;
mod harmless;
mod lines;
mod live;
mod pictures;
mod prompt;
mod remote;
mod screen;
mod show;
mod signals;

use belljar::Error;

use crate::cli::args::SessionArgs;
use crate::cli::problem::Problem;
use crate::cli::settings::{self, Here, Mode, SessionSettings};

pub(crate) fn session(args: SessionArgs, here: &Here) -> Result<u8, Problem> {
    let json = args.json;
    let done = settings::session(args, here).and_then(perform);
    match done {
        // Whoever reads lines gets a line.
        Err(problem) if json => {
            let line = lines::error(&problem);
            crate::cli::stdout::write_with(|out| out.write_all(&line))?;
            Ok(problem.kind.exit_code())
        }
        done => done,
    }
}

fn perform(mut settings: SessionSettings) -> Result<u8, Problem> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Problem::from(Error::Runtime(error)))?;
    let mode = std::mem::replace(&mut settings.mode, Mode::Cell(String::new()));
    let code = runtime.block_on(async {
        match mode {
            Mode::Prompt { history } => prompt::converse(&settings, history).await,
            Mode::Cell(code) => cell::one(&settings, code).await,
            Mode::Lines(lines) => lines::answer(&settings, lines).await,
        }
    });
    // A thread that still waits for input may not hold up the end.
    runtime.shutdown_background();
    code
}
