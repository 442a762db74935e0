//! `belljar languages`: the whole table, with what of it this machine has.

use std::collections::BTreeMap;
use std::path::PathBuf;

use belljar::Language;
use belljar_core::Toolchain;
use belljar_core::language::TABLE;
use serde::Serialize;

use super::super::args::LanguagesArgs;
use super::super::problem::Problem;
use super::super::stdout;
use super::super::table::Table;

pub(crate) fn languages(args: &LanguagesArgs) -> Result<u8, Problem> {
    let engine = belljar::native_engine();
    let found = engine
        .usual_provider()
        .map(|provider| provider.examine().languages)
        .unwrap_or_default();
    if args.json {
        stdout::json(&rows(&found))?;
    } else {
        stdout::print(&table(&rows(&found)))?;
    }
    Ok(0)
}

#[derive(Serialize)]
struct Row<'a> {
    language: Language,
    aliases: &'static [&'static str],
    extensions: &'static [&'static str],
    available: bool,
    version: Option<&'a str>,
    programs: &'a [PathBuf],
    compiled: bool,
    install: &'static str,
}

fn rows(found: &BTreeMap<Language, Toolchain>) -> Vec<Row<'_>> {
    TABLE
        .iter()
        .map(|spec| {
            let toolchain = found.get(&spec.language);
            let recipe = toolchain
                .map(|toolchain| toolchain.recipe)
                .or(spec.recipes.first());
            Row {
                language: spec.language,
                aliases: spec.aliases,
                extensions: spec.extensions,
                available: toolchain.is_some(),
                version: toolchain
                    .map(|toolchain| toolchain.version.as_str())
                    .filter(|version| !version.is_empty()),
                programs: toolchain.map_or(&[], |toolchain| &toolchain.programs),
                compiled: recipe.is_some_and(|recipe| recipe.compile.is_some()),
                install: spec.install,
            }
        })
        .collect()
}

fn table(rows: &[Row<'_>]) -> String {
    let mut table = Table::default();
    table.row(["LANGUAGE", "ENDINGS", "VERSION", "PROGRAM"]);
    for row in rows {
        let endings: Vec<_> = row.extensions.iter().map(|ending| format!(".{ending}")).collect();
        let programs: Vec<_> = row
            .programs
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        let program = if row.available {
            programs.join(", ")
        } else {
            format!("not here; install {}", row.install)
        };
        table.row([
            row.language.word(),
            &endings.join(" "),
            row.version.map_or("-", number),
            &program,
        ]);
    }
    table.render()
}

/// The number in what a program says of its version, or all of it.
fn number(version: &str) -> &str {
    version
        .split_whitespace()
        .map(|word| word.trim_matches(['(', ')', ',', '"']))
        .find(|word| {
            word.contains('.')
                && word
                    .trim_start_matches('v')
                    .starts_with(|c: char| c.is_ascii_digit())
        })
        .unwrap_or(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_language_is_listed_with_what_to_install() {
        let nothing = BTreeMap::new();
        let text = table(&rows(&nothing));
        assert_eq!(text.lines().count(), Language::ALL.len() + 1);
        assert!(text.contains("lua"), "{text}");
        assert!(text.contains("not here; install golang-go"), "{text}");
    }

    #[test]
    fn only_the_number_of_a_version_is_shown() {
        for (version, shown) in [
            ("Python 3.11.7", "3.11.7"),
            ("v20.20.2", "v20.20.2"),
            ("x86_64-linux-gnu-gcc-12 (Debian 12.2.0-14) 12.2.0", "12.2.0-14"),
            ("openjdk version \"17.0.15\" 2025-04-15", "17.0.15"),
            ("go version go1.22 linux/amd64", "go version go1.22 linux/amd64"),
        ] {
            assert_eq!(number(version), shown);
        }
    }
}
