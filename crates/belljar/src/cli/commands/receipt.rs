//! The receipt for people: which controls held, on standard error.

use std::io::Write;

use belljar::{Observed, Receipt};

use super::super::messages;
use super::super::table::Table;

pub(super) fn show(receipt: &Receipt) {
    messages::start_line();
    // A closed standard error leaves nobody to show it to.
    let _ = std::io::stderr().lock().write_all(render(receipt).as_bytes());
}

fn render(receipt: &Receipt) -> String {
    let mut table = Table::default();
    table.row(["provider", &receipt.provider]);
    table.row(["isolation", receipt.isolation.word()]);
    table.row([
        "policy".to_owned(),
        format!("{} (sha256 {})", receipt.policy_id, receipt.policy_hash),
    ]);
    if let Some(environment) = &receipt.environment {
        table.row([
            "environment".to_owned(),
            format!("{} (sha256 {})", environment.name, environment.digest),
        ]);
    }
    table.row(["network", receipt.network.word()]);
    table.row(["origin", &receipt.origin]);
    table.row(["shown", &receipt.shown.join(", ")]);
    let mut controls = Table::default();
    for (control, observed) in &receipt.controls {
        let (state, detail) = match observed {
            Observed::Enforced { detail } => ("enforced", detail),
            Observed::Absent { why } => ("ABSENT", why),
        };
        controls.row([control.word(), state, detail]);
    }
    table.render() + &controls.render()
}
