//! What `--help` teaches by example, and the table of exit codes.

use std::fmt::Write;

use belljar::ErrorKind;

pub(super) const TOP: &str = "\
Examples:
  belljar run script.py               run a file
  belljar run -c 'print(6 * 7)'       run a line of Python
  belljar exec -- ls -la              run a command
  belljar session                     type code, cell by cell
  belljar batch in.jsonl -o out.jsonl run many requests
  belljar env create data --packages pandas
  belljar serve                       the same for many, over HTTP
  belljar doctor                      what does this machine give?

`belljar help run` tells more, with every option and the exit codes.";

pub(super) const ENV: &str = "\
Examples:
  belljar env create data --packages numpy,pandas,matplotlib --preload numpy,pandas
  belljar run -E data report.py
  belljar env list
  belljar env show data --verify
  belljar env remove data";

pub(super) const ENV_CREATE: &str = "\
Examples:
  belljar env create data --packages numpy,pandas --preload numpy,pandas
  belljar env create web --python 3.12 --packages 'requests>=2,<3' --packages httpx[http2]
  belljar env create app -r requirements.txt --replace
  belljar env create mine --packages ./dist/mine-1.0-py3-none-any.whl
  belljar env create offline --packages numpy --wheels ./wheels

Only wheels are taken, and no code of a package runs outside of a sandbox: pip fetches without
being able to start anything, and all the rest happens in sandboxes without a network. A build
that fails leaves nothing.";

pub(super) const ENV_IMPORT: &str = "\
Examples:
  belljar env import debian ./rootfs.tar
  docker export my-container | belljar env import mine -
  belljar env import slim python:3.12-slim

Then: belljar run -E debian script.py, also with --provider gvisor or --provider docker.";

pub(super) const RUN: &str = "\
Examples:
  belljar run script.py -- --verbose in.csv
  belljar run -c 'console.log(1 + 1)' --lang js
  echo 'puts 42' | belljar run - --lang ruby
  cat in.csv | belljar run filter.py > out.csv
  belljar run plot.py --file in.csv --out plot.png
  belljar run main.c --memory 64M --timeout 2s
  belljar run train.py --mount ./data:/workspace/data --json

`belljar run --help` tells more, with the exit codes.";

pub(super) const EXEC: &str = "\
Examples:
  belljar exec -- python3 -c 'print(2 + 2)'
  belljar exec \"echo 'Hello, Sandbox!'\"
  belljar exec --unpack project.tar.gz -- make test
  belljar exec --allow-command ls --allow-command cat -- ls -la

`belljar exec --help` tells more, with the exit codes.";

pub(super) const SESSION: &str = "\
Examples:
  belljar session                            a prompt; :help tells more, Ctrl-D leaves
  belljar session --lang javascript
  belljar session -E data --file sales.csv --pictures ./plots
  belljar session --allow-import math,json --timeout 5s
  echo 'sum(range(10))' | belljar session    the whole input is one cell
  program | belljar session --json           one JSON object on each line, for programs

With --json, requests look like this; id can be anything and comes back in every answer:
  {\"id\": 1, \"code\": \"x = input()\", \"stdin\": \"hello\"}
  {\"interrupt\": true}
  {\"reset\": true}

`belljar session --help` tells more, with the exit codes.";

pub(super) const BATCH: &str = "\
Examples:
  belljar batch programs.jsonl -o results.jsonl --jobs 8
  belljar batch programs.jsonl -o results.jsonl --policy team.toml --timeout 2s --memory 64M
  generate | belljar batch - -o - | jq .outcome.status

Lines look like this; all but one of code, file and command can be left out:
  {\"id\": 1, \"language\": \"python\", \"code\": \"print(input())\", \"stdin\": \"hello\"}
  {\"file\": \"main.c\", \"args\": [\"-v\"], \"env\": {\"A\": \"1\"}, \"files\": {\"in.txt\": \"text\"}}
  {\"command\": [\"ls\", \"-l\"], \"limits\": {\"timeout\": \"2s\", \"memory\": \"64M\"}}
  {\"language\": \"c\", \"code\": \"…\", \"cases\": [{\"stdin\": \"2\", \"expected_stdout\": \"4\"}, {\"args\": [\"x\"]}]}

`belljar batch --help` tells more, with the exit codes.";

pub(super) const PROVIDERS: &str = "\
Examples:
  belljar providers
  belljar providers --image python:3.12-slim    measure docker as well
  belljar run --provider gvisor script.py
  belljar run --image python:3.12-slim script.py
  belljar run --provider venv --trust mine.py   no wall at all: for code that you have read";

pub(super) const DOCTOR: &str = "\
Examples:
  belljar doctor
  belljar doctor --json | jq '.controls[] | select(.state == \"absent\")'";

pub(super) const POLICY: &str = "\
Examples:
  belljar policy list
  belljar policy show standard > team.toml
  belljar policy check team.toml
  belljar run script.py --policy team.toml";

pub(super) const SERVE: &str = "\
Examples:
  belljar serve
  belljar serve --listen 127.0.0.1:9000 --store postgres://belljar@db/belljar
  belljar serve --policies ./policies --places 32 --log json
  belljar serve --dev                        no keys, on this machine alone

Run something with the key that it shows:
  curl -H 'Authorization: Bearer bj_…' --json '{\"code\": \"print(6 * 7)\"}' http://127.0.0.1:8377/v1/executions";

pub(super) const KEYS: &str = "\
Examples:
  belljar keys create --role run --tenant team-a --expires 720h
  belljar keys list
  belljar keys revoke 0123456789abcdef";

pub(super) const RECORDS: &str = "\
Examples:
  belljar records --status failed --since 24h
  belljar records exe-0123456789abcdef --json
  belljar records --tenant team-a --json | jq '.[].code_hash'";

pub(super) const APPROVALS: &str = "\
Examples:
  belljar approvals
  belljar approvals show apr-0123456789abcdef
  belljar approvals grant apr-0123456789abcdef
  belljar approvals deny apr-0123456789abcdef --reason 'reads too much'
  belljar approvals --watch";

pub(super) const AUDIT: &str = "\
Examples:
  belljar audit verify
  belljar audit head > head-of-today.txt
  belljar audit verify --expect \"$(cat head-of-today.txt)\"
  belljar audit export --format csv > records.csv
  belljar audit forget --older-than 2160h";

pub(super) const CONFIG: &str = "\
Examples:
  belljar config show
  BELLJAR_LISTEN=127.0.0.1:9000 belljar config show --json";

pub(super) const LANGUAGES: &str = "\
Examples:
  belljar languages
  belljar run hello.go";

pub(super) const COMPLETIONS: &str = "\
Examples:
  belljar completions bash > ~/.local/share/bash-completion/completions/belljar
  belljar completions zsh > ~/.zfunc/_belljar
  belljar completions fish > ~/.config/fish/completions/belljar.fish";

pub(super) fn top_long() -> String {
    format!("{TOP}\n\n{}", exit_codes())
}

pub(super) fn run_long() -> String {
    format!("{}\n\n{}", without_last_line(RUN), exit_codes())
}

pub(super) fn exec_long() -> String {
    format!("{}\n\n{}", without_last_line(EXEC), exit_codes())
}

pub(super) fn session_long() -> String {
    format!(
        "{}\n\n{}",
        without_last_line(SESSION),
        table("Exit codes:", &session_exit_code_rows())
    )
}

pub(super) fn batch_long() -> String {
    format!(
        "{}\n\n{}",
        without_last_line(BATCH),
        table("Exit codes:", &batch_exit_code_rows())
    )
}

/// The long help is what the last line of the short one points to.
fn without_last_line(text: &str) -> &str {
    text.rsplit_once("\n\n").map_or(text, |(before, _)| before)
}

fn exit_codes() -> String {
    table("Exit codes:", &exit_code_rows())
}

fn table(heading: &str, rows: &[(String, String)]) -> String {
    let mut text = format!("{heading}\n");
    for (code, meaning) in rows {
        // Writing into a string does not fail.
        let _ = writeln!(text, "  {code:<5} {meaning}");
    }
    text.truncate(text.trim_end().len());
    text
}

/// Every exit code of `session` with what it means.
pub(crate) fn session_exit_code_rows() -> Vec<(String, String)> {
    let kind = |kind: ErrorKind, meaning: &str| (kind.exit_code().to_string(), meaning.to_owned());
    vec![
        (
            "0".to_owned(),
            "the prompt was left, or every line with --json was answered, whatever became of its code"
                .to_owned(),
        ),
        (
            "0-255".to_owned(),
            "of a piped cell: as of `run`, and 1 where it raised".to_owned(),
        ),
        (
            "1".to_owned(),
            "with --json: every line was answered, but some could not be understood or not be executed"
                .to_owned(),
        ),
        kind(ErrorKind::Usage, ErrorKind::Usage.meaning()),
        kind(ErrorKind::Engine, ErrorKind::Engine.meaning()),
        kind(ErrorKind::Denied, ErrorKind::Denied.meaning()),
        kind(
            ErrorKind::Killed,
            "it was told to end, or nobody read its answers",
        ),
    ]
}

/// Every exit code of `batch` with what it means.
pub(crate) fn batch_exit_code_rows() -> Vec<(String, String)> {
    let kind = |kind: ErrorKind, meaning: &str| (kind.exit_code().to_string(), meaning.to_owned());
    vec![
        (
            "0".to_owned(),
            "every line ran, whatever became of its program".to_owned(),
        ),
        (
            "1".to_owned(),
            "every line has an answer, but some have an error or a denial in place of an outcome".to_owned(),
        ),
        kind(
            ErrorKind::Usage,
            "the command line, the policy, the input or the output could not be used; nothing ran",
        ),
        kind(
            ErrorKind::Engine,
            "the input could not be read on or the output not written on; what is finished is kept",
        ),
        kind(ErrorKind::Killed, "it was interrupted; what is finished is kept"),
    ]
}

/// Every exit code of `run` and `exec` with what it means, in the order of the codes.
pub(crate) fn exit_code_rows() -> Vec<(String, String)> {
    let mut kinds = ErrorKind::LOCAL.to_vec();
    kinds.sort_by_key(|kind| kind.exit_code());
    let mut rows = vec![
        (
            "0-255".to_owned(),
            "the program's own exit code, passed on; 128 and its number for a signal".to_owned(),
        ),
        (
            "1".to_owned(),
            "also: the program succeeded, but a file wanted with --out could not be taken".to_owned(),
        ),
    ];
    rows.extend(
        kinds
            .iter()
            .map(|kind| (kind.exit_code().to_string(), kind.meaning().to_owned())),
    );
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_every_kind_in_order() {
        let codes: Vec<_> = exit_code_rows().into_iter().map(|(code, _)| code).collect();
        assert_eq!(codes, ["0-255", "1", "2", "124", "125", "126", "137", "137"]);
        assert!(exit_codes().contains("  124   a wall-clock or CPU time limit ended the program"));
    }

    #[test]
    fn the_long_help_does_not_point_to_itself() {
        assert!(!run_long().contains("tells more"));
        assert!(exec_long().starts_with("Examples:"));
        assert!(!batch_long().contains("tells more"));
        assert!(!session_long().contains("--help` tells more"));
    }
}
