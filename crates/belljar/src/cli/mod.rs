//! The command line, in three stages: what was typed (`args`), what it means (`settings`), what is
//! done (`commands`). Standard output is for data, standard error for people.

mod args;
mod ask;
mod commands;
mod config;
mod deliver;
mod interrupts;
mod live_output;
mod messages;
mod problem;
mod progress;
mod settings;
mod stdout;
mod table;
mod words;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};
use problem::Problem;
use settings::Here;

/// Runs the command line of this process.
pub(crate) fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return misunderstood(&error, std::env::args_os()),
    };
    let json = cli.command.wants_json();
    ExitCode::from(match dispatch(cli.command) {
        Ok(code) => code,
        Err(problem) => problem.report(json),
    })
}

fn dispatch(command: Command) -> Result<u8, Problem> {
    match command {
        Command::Run(args) => commands::execute::execute(settings::run(args, &Here::find()?)?),
        Command::Exec(args) => commands::execute::execute(settings::exec(args, &Here::find()?)?),
        Command::Session(args) => commands::session::session(*args, &Here::find()?),
        Command::Batch(args) => commands::batch::batch(settings::batch(&args, &Here::find()?)?),
        Command::Doctor(args) => commands::doctor::doctor(&args),
        Command::Providers(args) => commands::providers::providers(&args),
        Command::Env(args) => commands::environments::environments(args, &Here::find()?),
        Command::Policy(args) => commands::policy::policy(&args),
        Command::Serve(args) => commands::serve::serve(settings::serve(&args)?),
        Command::Keys(args) => commands::keys::keys(args),
        Command::Tenants(args) => commands::keys::tenants(args),
        Command::Records(args) => commands::records::records(&args),
        Command::Stats(args) => commands::records::stats(&args),
        Command::Approvals(args) => commands::approvals::approvals(args),
        Command::Audit(args) => commands::audit::audit(args),
        Command::Config(args) => commands::config::config(&args),
        Command::Languages(args) => commands::languages::languages(&args),
        Command::Completions(args) => commands::completions::completions(&args),
        Command::Embedded(args) => commands::embedded::embedded(&args),
        Command::Reference => commands::reference::reference(),
    }
}

/// Help and version are answers, everything else that clap finds is a usage error.
fn misunderstood(error: &clap::Error, words: impl Iterator<Item = OsString>) -> ExitCode {
    if error.use_stderr() && json_was_typed(words) {
        let text = error.render().to_string();
        let mut paragraphs = text.trim().split("\n\n");
        let message = paragraphs.next().unwrap_or_default();
        let mut problem = Problem::usage(message.trim_start_matches("error: "));
        if let Some(hint) = paragraphs.next() {
            problem = problem.hint(hint.trim().trim_start_matches("tip: "));
        }
        return ExitCode::from(problem.report(true));
    }
    // Nothing is left to tell when not even this can be written.
    let _ = error.print();
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

/// Whether `--json` stands among our own words, before those of the program.
fn json_was_typed(words: impl Iterator<Item = OsString>) -> bool {
    words.take_while(|word| word != "--").any(|word| word == "--json")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_programs_own_json_flag_is_not_ours() {
        let typed = |words: &[&str]| json_was_typed(words.iter().map(OsString::from));
        assert!(typed(&["belljar", "run", "--json", "--nope"]));
        assert!(!typed(&["belljar", "run", "x", "--", "--json"]));
    }
}
