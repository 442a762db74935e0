//! `belljar reference`: the whole command line as Markdown, out of the same definitions as `--help`.
//!
//! Hidden: it keeps docs/reference/cli.md true.

use std::fmt::Write;

use clap::{Arg, Command, CommandFactory};

use super::super::args::Cli;
use super::super::args::examples::{batch_exit_code_rows, exit_code_rows, session_exit_code_rows};
use super::super::problem::Problem;
use super::super::stdout;

pub(crate) fn reference() -> Result<u8, Problem> {
    stdout::print(&markdown())?;
    Ok(0)
}

fn markdown() -> String {
    let mut cli = Cli::command();
    // Only a built command knows the full names and usages of its subcommands.
    cli.build();
    let mut text = String::from(
        "# Command line\n\n<!-- Written by `belljar reference`; change crates/belljar/src/cli/args instead. -->\n",
    );
    command(&mut text, &mut cli, 2);
    for (heading, rows) in [
        ("Exit codes", exit_code_rows()),
        ("Exit codes of `belljar session`", session_exit_code_rows()),
        ("Exit codes of `belljar batch`", batch_exit_code_rows()),
    ] {
        line(
            &mut text,
            &format!("\n## {heading}\n\n| Code | Meaning |\n|---|---|"),
        );
        for (code, meaning) in rows {
            line(&mut text, &format!("| {code} | {meaning} |"));
        }
    }
    text
}

fn command(text: &mut String, command: &mut Command, level: usize) {
    let name = command.get_bin_name().unwrap_or(command.get_name()).to_owned();
    line(text, &format!("\n{} `{name}`\n", "#".repeat(level)));
    if let Some(about) = command.get_long_about().or(command.get_about()) {
        line(text, &about.to_string());
    }
    let usage = command.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim();
    line(text, &format!("\n```text\n{}\n```", dedent(usage)));
    // Each command carries its own short examples; the long form repeats them with the exit codes.
    if let Some(examples) = command.get_after_help() {
        line(
            text,
            &format!("\n```text\n{}\n```", without_pointer(&examples.to_string())),
        );
    }
    arguments(text, command);
    for subcommand in command.get_subcommands_mut() {
        if !subcommand.is_hide_set() && subcommand.get_name() != "help" {
            self::command(text, subcommand, level + 1);
        }
    }
}

/// The arguments, under the headings that help has them under.
fn arguments(text: &mut String, command: &Command) {
    let shown = |arg: &&Arg| !arg.is_hide_set() && !["help", "version"].contains(&arg.get_id().as_str());
    let mut groups: Vec<(&str, Vec<&Arg>)> = Vec::new();
    for arg in command.get_arguments().filter(shown) {
        let heading = arg.get_help_heading().unwrap_or(if arg.is_positional() {
            "Arguments"
        } else {
            "Options"
        });
        match groups.iter_mut().find(|(name, _)| *name == heading) {
            Some((_, args)) => args.push(arg),
            None => groups.push((heading, vec![arg])),
        }
    }
    for (heading, args) in groups {
        line(text, &format!("\n**{heading}**\n\n| | |\n|---|---|"));
        for arg in args {
            line(text, &format!("| {} | {} |", signature(arg), meaning(arg)));
        }
    }
}

fn signature(arg: &Arg) -> String {
    let value = arg
        .get_value_names()
        .filter(|_| arg.get_action().takes_values())
        .map(|names| names.join(" "));
    let mut forms: Vec<String> = Vec::new();
    forms.extend(arg.get_short().map(|short| format!("-{short}")));
    forms.extend(arg.get_long().map(|long| format!("--{long}")));
    let text = match (forms.is_empty(), value) {
        (true, value) => value.unwrap_or_default(),
        (false, None) => forms.join(", "),
        (false, Some(value)) => format!("{} {value}", forms.join(", ")),
    };
    // A bar would end the cell, also inside of code.
    format!("`{}`", text.replace('|', "\\|"))
}

fn meaning(arg: &Arg) -> String {
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let words: Vec<_> = arg
        .get_possible_values()
        .iter()
        .filter(|_| arg.get_action().takes_values())
        .map(|value| format!("`{}`", value.get_name()))
        .collect();
    let help = help.replace('|', "\\|");
    if words.is_empty() {
        help
    } else {
        format!("{help}: {}", words.join(", "))
    }
}

fn without_pointer(examples: &str) -> &str {
    examples.split("\n\n`belljar").next().unwrap_or(examples)
}

fn dedent(usage: &str) -> String {
    usage.lines().map(str::trim).collect::<Vec<_>>().join("\n")
}

fn line(text: &mut String, content: &str) {
    // Writing into a string does not fail.
    let _ = writeln!(text, "{content}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_has_every_command_option_and_exit_code() {
        let text = markdown();
        for part in [
            "### `belljar run`",
            "### `belljar exec`",
            "#### `belljar policy check`",
            "| `-e, --env NAME[=VALUE]` |",
            "`--mount HOST:GUEST[:ro\\|rw]`",
            "`restricted`",
            "| 124 |",
            "belljar run [OPTIONS] <FILE | -c CODE | -> [-- ARGS...]",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert!(!text.contains("belljar reference`\n\n"), "{text}");
        assert!(!text.contains('\x1b'));
    }
}
