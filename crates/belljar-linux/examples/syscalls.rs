//! Prints the system-call rules as Markdown: the text of docs/reference/syscalls.md.
//!
//! ```sh
//! cargo run -q -p belljar-linux --example syscalls > docs/reference/syscalls.md
//! ```

use std::fmt::Write as _;
use std::io::Write as _;

use belljar_linux::{Rule, RuleAction, arguments, rules};

fn main() -> std::io::Result<()> {
    std::io::stdout().write_all(markdown().as_bytes())
}

/// The whole page. A test compares it with the one in the repository.
pub(crate) fn markdown() -> String {
    let rules = rules();
    let mut text = format!(
        "# System calls\n\n\
         <!-- Written by `cargo run -q -p belljar-linux --example syscalls`; change \
         crates/belljar-linux/src/policies/table.rs instead. -->\n\n\
         Which system calls a guest may make, on x86-64: {} calls have a rule, each with its reason.\n\n\
         | A call that | gets |\n|---|---|\n\
         | is allowed | carried out |\n\
         | is checked | carried out, unless its arguments ask for something that the reason rules out: then `EPERM`, or \
         the error that the list of requests names |\n\
         | is refused | `EPERM` |\n\
         | is not supported | `EOPNOTSUPP` |\n\
         | is ignored | success, and nothing is done |\n\
         | is not on this page, `clone3` and `openat2` among them | `ENOSYS`, as on a kernel that does not have \
         it; programs fall back |\n\
         | is made for another architecture, or with an x32 number | the end of the process |\n",
        rules.len()
    );
    section(&mut text, "Allowed", &rules, |action| action == RuleAction::Allow);
    section(&mut text, "Checked", &rules, |action| {
        matches!(action, RuleAction::Check(_))
    });
    section(&mut text, "Refused", &rules, |action| action == RuleAction::Deny);
    section(&mut text, "Not supported", &rules, |action| {
        action == RuleAction::Unsupported
    });
    section(&mut text, "Ignored", &rules, |action| {
        action == RuleAction::Ignored
    });
    text += REQUESTS;
    requests(&mut text, "`ioctl`", "`ENOTTY`", arguments::IOCTL);
    requests(&mut text, "`fcntl`", "`EINVAL`", arguments::FCNTL);
    requests(
        &mut text,
        "`fcntl`, counted",
        "`ENOLCK` beyond 4,096 locks",
        arguments::RECORD_LOCKS,
    );
    requests(&mut text, "`prctl`", "`EINVAL`", arguments::PRCTL);
    requests(&mut text, "`seccomp`", "`EINVAL`", arguments::SECCOMP);
    for level in arguments::SETSOCKOPT {
        let name = format!("`setsockopt`, `{}`", level.name);
        requests(&mut text, &name, "`ENOPROTOOPT`", level.options);
    }
    text + AFFECTED
}

const REQUESTS: &str = "\n## Requests by number\n\n\
    These calls carry hundreds of requests each. A guest may make the ones listed here; any other fails as on a kernel that does \
    not have it. `TIOCSTI`, `TIOCLINUX`, `F_SETLEASE`, `F_NOTIFY` and `F_SETPIPE_SZ` fail with `EPERM`.\n\n\
    | Call | Others fail with | Allowed |\n|---|---|---|\n";

const AFFECTED: &str = "\n## Programs that notice\n\n\
    | Refused | Why | Who notices, and how |\n|---|---|---|\n\
    | filters on sockets (`SO_ATTACH_FILTER` and its kin) | their compiled programs come from one budget of the whole machine, and \
    freeing thousands at once deadlocked a kernel (P55) | `tcpdump`, `dhclient` and others that capture packets, which need sockets \
    that are refused anyway |\n\
    | filters on system calls (`seccomp`, `PR_SET_SECCOMP`) | the same | programs that restrict themselves with one, such as \
    Chromium's own sandbox (start it with `--no-sandbox`), OpenSSH's server and container runtimes |\n\
    | extended attributes (`setxattr` and its kin) | the kernel charges POSIX ACLs to nobody (P56), and a filter cannot see \
    which attribute is set | `cp -a` and Python's `shutil.copy2` go on without them, `tar --acls` warns; `setfacl` and \
    `setfattr` fail |\n\
    | locks of open file descriptions (`F_OFD_SETLK`), and more than 4,096 record locks | the kernel charges locks to nobody (P59) | \
    programs that use open file description locks; SQLite uses record locks |\n\
    | larger pipes (`F_SETPIPE_SZ`) | pipe pages are counted for all processes of a user (P61) | `subprocess.Popen(pipesize=…)` |\n\
    | siblings (`CLONE_PARENT`) | they would leave the tree of processes that is watched (P57) | container runtimes |\n";

fn requests(text: &mut String, call: &str, errno: &str, list: &[arguments::Request]) {
    let names: Vec<_> = list.iter().map(|request| format!("`{}`", request.name)).collect();
    // Writing into a string does not fail.
    let _ = writeln!(text, "| {call} | {errno} | {} |", names.join(" "));
}

/// One table: a row for each reason, in the order of the rules.
fn section(text: &mut String, title: &str, rules: &[Rule], belongs: impl Fn(RuleAction) -> bool) {
    let mut rows: Vec<(&str, Vec<String>)> = Vec::new();
    for rule in rules.iter().filter(|rule| belongs(rule.action)) {
        let name = format!("`{}`", rule.name);
        match rows.iter_mut().find(|(reason, _)| *reason == rule.reason) {
            Some((_, names)) => names.push(name),
            None => rows.push((rule.reason, vec![name])),
        }
    }
    let count: usize = rows.iter().map(|(_, names)| names.len()).sum();
    // Writing into a string does not fail.
    let _ = write!(text, "\n## {title}: {count}\n\n| Reason | Calls |\n|---|---|\n");
    for (reason, names) in rows {
        let _ = writeln!(text, "| {reason} | {} |", names.join(" "));
    }
}
