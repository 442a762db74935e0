//! `belljar approvals`: what waits for somebody's word, and that word.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::http::Method;
use belljar_server::client::Client;
use belljar_server::wire::Approval;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::args::{ApprovalsArgs, ApprovalsCommand};
use super::super::ask::{escaped, now, shown_time, with_query, with_service};
use super::super::interrupts::Interrupts;
use super::super::messages;
use super::super::problem::Problem;
use super::super::stdout;
use super::super::table::Table;

const NOTHING: Option<&Value> = None;
/// How often it is looked again.
const LOOKING: Duration = Duration::from_millis(500);

#[derive(Deserialize)]
struct List {
    approvals: Vec<Approval>,
}

pub(crate) fn approvals(args: ApprovalsArgs) -> Result<u8, Problem> {
    let json = args.service.json;
    let state = (args.state != "all").then(|| args.state.clone());
    let Some(command) = args.command else {
        return with_service(&args.service, async |client| match args.watch {
            true => watch(&client, json).await,
            false => list(&client, state, json).await,
        });
    };
    let (path, body) = match command {
        ApprovalsCommand::Show { id } => {
            let path = format!("/v1/approvals/{}", escaped(&id));
            let approval: Approval = with_service(&args.service, async |client| {
                Ok(client.call(Method::GET, &path, NOTHING).await?)
            })?;
            match json {
                true => stdout::json(&approval)?,
                false => stdout::print(&shown(&approval))?,
            }
            return Ok(0);
        }
        ApprovalsCommand::Grant { id, reason } => (
            format!("/v1/approvals/{}/grant", escaped(&id)),
            json!({ "reason": reason }),
        ),
        ApprovalsCommand::Deny { id, reason } => (
            format!("/v1/approvals/{}/deny", escaped(&id)),
            json!({ "reason": reason }),
        ),
    };
    let decided: Approval = with_service(&args.service, async |client| {
        Ok(client.call(Method::POST, &path, Some(&body)).await?)
    })?;
    match json {
        true => stdout::json(&decided)?,
        false => messages::tell(&format!("{} is {}", decided.approval_id, decided.state)),
    }
    Ok(0)
}

async fn fetch(client: &Client, state: Option<String>) -> Result<Vec<Approval>, Problem> {
    let path = with_query("/v1/approvals", &[("state", state)]);
    let list: List = client.call(Method::GET, &path, NOTHING).await?;
    Ok(list.approvals)
}

async fn list(client: &Client, state: Option<String>, json: bool) -> Result<u8, Problem> {
    let approvals = fetch(client, state).await?;
    if json {
        stdout::json(&approvals)?;
        return Ok(0);
    }
    let mut table = Table::default();
    table.row(["ID", "ASKED", "TENANT", "USER", "POLICY", "STATE", "ASKS FOR"]);
    for approval in &approvals {
        table.row(cells(approval));
    }
    stdout::print(&table.render())?;
    Ok(0)
}

fn cells(approval: &Approval) -> [String; 7] {
    [
        approval.approval_id.clone(),
        shown_time(approval.created_at),
        approval.tenant_id.clone(),
        approval.user_id.clone().unwrap_or_else(|| "-".to_owned()),
        approval.policy_id.clone(),
        approval.state.clone(),
        approval.asks.join("; "),
    ]
}

/// Tells what comes and what becomes of it, until it is told to end.
async fn watch(client: &Client, json: bool) -> Result<u8, Problem> {
    let mut interrupts = Interrupts::listen()?;
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    let mut first = true;
    loop {
        for approval in fetch(client, None).await?.into_iter().rev() {
            let told = known.insert(approval.approval_id.clone(), approval.state.clone());
            let is_news = told.as_ref() != Some(&approval.state);
            // What was decided before anybody watched is no news.
            if !is_news || (first && approval.state != "pending") {
                continue;
            }
            match json {
                true => stdout::print(&format!("{}\n", json!(approval)))?,
                false => {
                    let mut table = Table::default();
                    table.row(cells(&approval));
                    stdout::print(&table.render())?;
                }
            }
        }
        first = false;
        tokio::select! {
            () = tokio::time::sleep(LOOKING) => {}
            () = interrupts.next() => return Ok(0),
        }
    }
}

/// One approval, for whoever decides.
fn shown(approval: &Approval) -> String {
    let mut table = Table::default();
    table.row(["approval", &approval.approval_id]);
    table.row(["state", &approval.state]);
    table.row(["asked", &shown_time(approval.created_at)]);
    if approval.state == "pending" {
        let left = format!("{:.0} s", (approval.expires_at - now()).max(0.0));
        table.row(["expires in", &left]);
    }
    table.row(["tenant", &approval.tenant_id]);
    for (name, value) in [
        ("user", &approval.user_id),
        ("run", &approval.run_id),
        ("decided by", &approval.decided_by),
        ("reason", &approval.reason),
    ] {
        if let Some(value) = value {
            table.row([name, value]);
        }
    }
    let policy = format!("{} ({})", approval.policy_id, approval.policy_hash);
    table.row(["policy", &policy]);
    table.row(["code", &approval.code_hash]);
    for ask in &approval.asks {
        table.row(["asks for", ask]);
    }
    let mut text = table.render();
    if let Some(code) = approval
        .request
        .as_ref()
        .and_then(|request| request.code.as_deref())
    {
        text += "\n";
        text += &lines(code);
    }
    if let Some(diff) = &approval.diff {
        text += "\nchanged since it was last approved:\n";
        text += &lines(diff);
    }
    if let Some(tool) = &approval.tool {
        text += &format!("\n{}\n", messages::visible(&tool.to_string()));
    }
    text
}

/// Somebody else's text, line by line, with everything escaped that a terminal would act on.
fn lines(text: &str) -> String {
    text.lines()
        .map(|line| format!("  {}\n", messages::visible(&line.replace('\t', "    "))))
        .collect()
}
