//! Prints the system-call rules as Markdown: the text of docs/reference/syscalls.md.
//!
//! ```sh
//! cargo run -q -p belljar-linux --example syscalls > docs/reference/syscalls.md
//! ```

use std::fmt::Write as _;
use std::io::Write as _;

use belljar_linux::{Rule, RuleAction, rules};

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
         What a guest may ask of the kernel, on x86-64: {} calls have a rule, each with its reason.\n\n\
         | A call that | gets |\n|---|---|\n\
         | is allowed | carried out |\n\
         | is checked | carried out, unless its arguments ask for what the reason rules out: then `EPERM` |\n\
         | is refused | `EPERM` |\n\
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
    text
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
