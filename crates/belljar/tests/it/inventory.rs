//! The inventory of kernel resources (`tests/resources.toml`, docs/reference/resources.md) is complete and names real tests.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use belljar_linux::{RuleAction, rules};

/// Prints docs/reference/resources.md; the test has its words from the same place.
#[path = "../../examples/resources.rs"]
#[expect(dead_code, reason = "its main function is for the example")]
mod resources;

use resources::{Inventory, inventory};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_resource_reference_is_the_table() {
    let page = fs::read_to_string(repository().join("docs/reference/resources.md")).expect("the page");
    let table = inventory().expect("the table");
    assert!(
        page == resources::markdown(&table),
        "docs/reference/resources.md is not what the table says; write it anew: \
         cargo run -q -p belljar --example resources > docs/reference/resources.md"
    );
}

/// What is wrong with a table, one line each.
fn mistakes(table: &Inventory) -> Vec<String> {
    let mut wrong = Vec::new();
    let known = test_names();
    for row in table.resources() {
        if row.bounds().is_none() {
            wrong.push(format!("{}: either `all`, or `v2`, `v1` and `none`", row.name));
        }
        if row.tests.is_empty() == row.untested.is_none() {
            wrong.push(format!("{}: either tests or why there are none", row.name));
        }
        for test in &row.tests {
            let found = match test.strip_suffix('_') {
                Some(_) => known
                    .range(test.clone()..)
                    .next()
                    .is_some_and(|name| name.starts_with(test)),
                None => known.contains(test),
            };
            if !found {
                wrong.push(format!("{}: there is no test {test}", row.name));
            }
        }
    }
    wrong.extend(call_mistakes(table));
    wrong
}

/// Calls that a guest may make and that are in no row, and calls in rows that have no rule.
fn call_mistakes(table: &Inventory) -> Vec<String> {
    let mut wrong = Vec::new();
    let permitted: BTreeSet<&str> = rules()
        .iter()
        .filter(|rule| matches!(rule.action, RuleAction::Allow | RuleAction::Check(_)))
        .map(|rule| rule.name)
        .collect();
    let mut listed = BTreeSet::new();
    for row in table.resources() {
        listed.extend(row.calls.iter().map(String::as_str));
    }
    for group in table.stateless() {
        for call in &group.calls {
            if !listed.insert(call) {
                wrong.push(format!("{call} is in a row and among those that {}", group.why));
            }
        }
    }
    wrong.extend(
        permitted
            .difference(&listed)
            .map(|call| format!("{call} is in no row")),
    );
    let known: BTreeSet<&str> = rules().iter().map(|rule| rule.name).collect();
    wrong.extend(
        listed
            .difference(&known)
            .map(|call| format!("{call} has no rule")),
    );
    wrong
}

/// The names of all test functions of the workspace.
fn test_names() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut waiting = vec![repository().join("crates")];
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                waiting.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("a source file");
                names.extend(text.lines().filter_map(|line| {
                    let name = line.trim_start().strip_prefix("fn ")?.split(['(', '<']).next()?;
                    Some(name.to_owned())
                }));
            }
        }
    }
    names
}

#[test]
#[cfg(target_arch = "x86_64")]
fn every_permitted_call_and_every_named_test_is_accounted_for() {
    let wrong = mistakes(&inventory().expect("the table"));
    assert!(wrong.is_empty(), "tests/resources.toml:\n{}", wrong.join("\n"));
}

/// The negative control: each kind of mistake is found.
#[test]
fn a_wrong_inventory_is_found() {
    let table = |row: &str| {
        let text = format!(
            "[[group]]\ntitle = 'x'\n[[group.resource]]\nname = 'x'\nscope = 'host'\n{row}\n\
             [[stateless]]\nwhy = 'x'\ncalls = []\n"
        );
        mistakes(&toml::from_str(&text).expect("a table")).join("\n")
    };
    let fine = "calls = ['read']\nall = 'x'\ntests = ['p11_descriptors_run_out']";
    assert!(!table(fine).contains("x:"));
    assert!(table(fine).contains("mmap is in no row"));
    assert!(table(&fine.replace("read", "reed")).contains("reed has no rule"));
    assert!(
        table(&fine.replace("p11_descriptors_run_out", "p11_nothing_like_it"))
            .contains("there is no test p11_nothing")
    );
    assert!(table(&fine.replace("p11_descriptors_run_out", "p999_")).contains("there is no test p999_"));
    assert!(table(&fine.replace("all = 'x'", "v2 = 'x'")).contains("either `all`"));
    assert!(table(&fine.replace("tests = ['p11_descriptors_run_out']", "")).contains("either tests or why"));
}
