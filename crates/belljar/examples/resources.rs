//! Prints the inventory of kernel resources as Markdown: the text of docs/reference/resources.md.
//!
//! ```sh
//! cargo run -q -p belljar --example resources > docs/reference/resources.md
//! ```
//!
//! The table is `tests/resources.toml`. A test includes this file, compares the page and checks the table.

use std::fmt::Write as _;
use std::io::Write as _;

use serde::Deserialize;

const TABLE: &str = include_str!("../../../tests/resources.toml");

fn main() -> Result<(), Box<dyn std::error::Error>> {
    std::io::stdout().write_all(markdown(&inventory()?).as_bytes())?;
    Ok(())
}

/// The whole table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Inventory {
    group: Vec<Group>,
    stateless: Vec<StatelessCalls>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    title: String,
    resource: Vec<Resource>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Scope {
    Sandbox,
    Uid,
    Host,
}

/// One row.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Resource {
    pub(crate) name: String,
    scope: Scope,
    pub(crate) calls: Vec<String>,
    #[serde(default)]
    via: String,
    all: Option<String>,
    v2: Option<String>,
    v1: Option<String>,
    none: Option<String>,
    #[serde(default)]
    pub(crate) tests: Vec<String>,
    pub(crate) untested: Option<String>,
}

/// Calls that hold no resource of their own, and why.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StatelessCalls {
    pub(crate) why: String,
    pub(crate) calls: Vec<String>,
}

impl Inventory {
    pub(crate) fn resources(&self) -> impl Iterator<Item = &Resource> {
        self.group.iter().flat_map(|group| &group.resource)
    }

    pub(crate) fn stateless(&self) -> &[StatelessCalls] {
        &self.stateless
    }
}

impl Resource {
    /// The bounds with cgroup v2, v1 and without a memory cgroup; `None` where the row leaves one out or has both forms.
    pub(crate) fn bounds(&self) -> Option<[&str; 3]> {
        match (&self.all, &self.v2, &self.v1, &self.none) {
            (Some(all), None, None, None) => Some([all; 3]),
            (None, Some(v2), Some(v1), Some(none)) => Some([v2, v1, none]),
            _ => None,
        }
    }

    fn is_unbounded(&self, column: usize) -> bool {
        self.bounds()
            .is_some_and(|bounds| bounds[column].to_lowercase().contains("unbounded"))
    }
}

pub(crate) fn inventory() -> Result<Inventory, toml::de::Error> {
    toml::from_str(TABLE)
}

/// The whole page.
pub(crate) fn markdown(inventory: &Inventory) -> String {
    let unbounded = [0, 1, 2].map(|column| {
        inventory
            .resources()
            .filter(|row| row.is_unbounded(column))
            .count()
    });
    let mut text = format!(
        "# Kernel resources\n\n\
         <!-- Written by `cargo run -q -p belljar --example resources`; change tests/resources.toml instead. -->\n\n\
         What a guest of the native provider can use of the kernel, and what bounds it: {} resources. With cgroup v2 {} of them have \
         no bound of their own, or not everywhere; with v1 {}, without a memory cgroup {}. [They are listed below](#unbounded).\n\n\
         | Column | Meaning |\n|---|---|\n\
         | Scope | whose budget it is: `sandbox`; `uid`, all sandboxes of the user that runs belljar, where as root each sandbox \
         has a uid of its own; `host` |\n\
         | Reached by | [system calls](syscalls.md), and which arguments; some are refused, as the bound says |\n\
         | v2, v1, none | what bounds it with a memory cgroup of that version, or without one; one text where it is the same |\n\
         | Test | what shows it, in `crates/belljar/tests/it`; a name that ends in `_` stands for all tests that begin so |\n",
        inventory.resources().count(),
        unbounded[0],
        unbounded[1],
        unbounded[2],
    );
    // Writing into a string does not fail.
    for group in &inventory.group {
        let _ = write!(
            text,
            "\n## {}\n\n| Resource | Scope | Reached by | Bound | Test |\n|---|---|---|---|---|\n",
            group.title
        );
        for row in &group.resource {
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} |",
                row.name,
                match row.scope {
                    Scope::Sandbox => "sandbox",
                    Scope::Uid => "uid",
                    Scope::Host => "host",
                },
                reached_by(row),
                bound(row),
                proof(row)
            );
        }
    }
    unbounded_section(&mut text, inventory);
    stateless_section(&mut text, inventory);
    text
}

fn code(names: &[String]) -> String {
    let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(" ")
}

fn reached_by(row: &Resource) -> String {
    match (row.calls.is_empty(), row.via.is_empty()) {
        (true, _) => row.via.clone(),
        (false, true) => code(&row.calls),
        (false, false) => format!("{}: {}", code(&row.calls), row.via),
    }
}

fn bound(row: &Resource) -> String {
    match (&row.all, row.bounds()) {
        (Some(all), _) => all.clone(),
        (None, Some([v2, v1, none])) => format!("v2: {v2}<br>v1: {v1}<br>none: {none}"),
        (None, None) => String::new(),
    }
}

fn proof(row: &Resource) -> String {
    match &row.untested {
        Some(why) => format!("none: {why}"),
        None => code(&row.tests),
    }
}

/// Every resource that something is said to be without a bound of, with what is said.
fn unbounded_section(text: &mut String, inventory: &Inventory) {
    text.push_str(
        "\n## Unbounded\n\nFor guests that would use one of these against you, choose a provider with a kernel of its own (`gvisor`), or a \
         machine of their own.\n\n| Resource | Where | Why |\n|---|---|---|\n",
    );
    for row in inventory.resources() {
        let Some(bounds) = row.bounds() else { continue };
        let columns: Vec<_> = (0..3).filter(|column| row.is_unbounded(*column)).collect();
        let names = ["v2", "v1", "none"];
        let mut said: Vec<&str> = Vec::new();
        for column in &columns {
            if !said.contains(&bounds[*column]) {
                said.push(bounds[*column]);
            }
        }
        for why in said {
            let places: Vec<_> = columns
                .iter()
                .filter(|column| bounds[**column] == why)
                .map(|column| names[*column])
                .collect();
            let places = if places.len() == 3 {
                "everywhere".to_owned()
            } else {
                places.join(", ")
            };
            let _ = writeln!(text, "| {} | {places} | {why} |", row.name);
        }
    }
}

fn stateless_section(text: &mut String, inventory: &Inventory) {
    text.push_str(
        "\n## Calls that hold nothing\n\nCalls that a guest may make and that no row names:\n\n| Why | Calls |\n|---|---|\n",
    );
    for calls in inventory.stateless() {
        let _ = writeln!(text, "| they {} | {} |", calls.why, code(&calls.calls));
    }
}
