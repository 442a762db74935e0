//! `belljar config`: every value and where it came from.

use serde::Serialize;

use super::super::args::{ConfigArgs, ConfigCommand};
use super::super::config::{Config, KNOWN};
use super::super::problem::Problem;
use super::super::stdout;
use super::super::table::Table;

#[derive(Serialize)]
struct Shown {
    name: &'static str,
    value: Option<String>,
    origin: Option<String>,
    variable: String,
    about: &'static str,
}

pub(crate) fn config(args: &ConfigArgs) -> Result<u8, Problem> {
    let ConfigCommand::Show { json, config } = &args.command;
    let config = Config::load(config.as_deref())?;
    let shown: Vec<_> = KNOWN
        .iter()
        .map(|known| {
            let valued = config.get(known.name, None);
            Shown {
                name: known.name,
                // A URL may hold a password, and a secret is one.
                value: valued
                    .as_ref()
                    .map(|valued| match (known.name, valued.text.parse()) {
                        ("webhook_secret" | "key", _) => "…".to_owned(),
                        ("store", Ok(place)) => belljar_server::store::Place::to_string(&place),
                        _ => valued.text.clone(),
                    }),
                origin: valued.map(|valued| valued.origin.to_string()),
                variable: known.variable(),
                about: known.about,
            }
        })
        .collect();
    if *json {
        stdout::json(&shown)?;
        return Ok(0);
    }
    let mut table = Table::default();
    table.row(["SETTING", "VALUE", "FROM", "WHAT IT IS"]);
    for row in &shown {
        let value = row.value.as_deref().unwrap_or("-");
        table.row([row.name, value, row.origin.as_deref().unwrap_or("-"), row.about]);
    }
    stdout::print(&table.render())?;
    Ok(0)
}
