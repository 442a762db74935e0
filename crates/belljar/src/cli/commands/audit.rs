//! `belljar audit`: verify, export, shorten.

use axum::http::Method;
use serde_json::{Value, json};

use super::super::args::{AuditArgs, AuditCommand, ExportForm};
use super::super::ask::{ago, with_query, with_service};
use super::super::messages;
use super::super::problem::Problem;
use super::super::stdout;

const NOTHING: Option<&Value> = None;

/// The columns of an export as CSV: document 000's fourteen, and which policy it was exactly.
const COLUMNS: [&str; 15] = [
    "record_id",
    "sandbox_id",
    "tenant_id",
    "user_id",
    "run_id",
    "language",
    "code_hash",
    "policy_id",
    "policy_hash",
    "status",
    "exit_code",
    "wall_time_seconds",
    "created_at",
    "completed_at",
    "error_message",
];

pub(crate) fn audit(args: AuditArgs) -> Result<u8, Problem> {
    let json = args.service.json;
    match args.command {
        AuditCommand::Verify { expect } => {
            let (seq, hash) = match expect.as_deref().map(str::trim) {
                None => (None, None),
                Some(text) => {
                    let (seq, hash) = text.split_once(':').ok_or_else(|| {
                        Problem::usage(format!("--expect: `{text}` is no head"))
                            .hint("give what `belljar audit head` printed")
                    })?;
                    (Some(seq.to_owned()), Some(hash.to_owned()))
                }
            };
            let path = with_query("/v1/audit/verify", &[("seq", seq), ("hash", hash)]);
            let found: Value = with_service(&args.service, async |client| {
                Ok(client.call(Method::GET, &path, NOTHING).await?)
            })?;
            let valid = found["valid"] == true;
            if json {
                stdout::json(&found)?;
            } else if valid {
                stdout::print(&format!("{} entries, none changed\n", found["entries"]))?;
            } else {
                messages::tell(found["reason"].as_str().unwrap_or("the chain is broken"));
            }
            return Ok(u8::from(!valid));
        }
        AuditCommand::Head => {
            let head: Value = with_service(&args.service, async |client| {
                Ok(client.call(Method::GET, "/v1/audit/head", NOTHING).await?)
            })?;
            match json {
                true => stdout::json(&head)?,
                false => {
                    let hash = head["hash"].as_str().unwrap_or_default();
                    stdout::print(&format!("{}:{hash}\n", head["seq"]))?;
                }
            }
        }
        AuditCommand::Export { format } => {
            if format == ExportForm::Csv {
                stdout::print(&(COLUMNS.join(",") + "\r\n"))?;
            }
            // Entry by entry: there is no end to how many there may be.
            with_service(&args.service, async |client| {
                let print = |line: &str| match format {
                    ExportForm::Jsonl => stdout::print(&format!("{line}\n")),
                    ExportForm::Csv => csv(line).map_or(Ok(()), |row| stdout::print(&row)),
                };
                client.lines("/v1/audit/entries", print).await
            })?;
        }
        AuditCommand::Forget { older_than } => {
            let before = ago("--older-than", &older_than)?;
            let done: Value = with_service(&args.service, async |client| {
                let body = json!({ "before": before });
                Ok(client.call(Method::POST, "/v1/audit/forget", Some(&body)).await?)
            })?;
            match json {
                true => stdout::json(&done)?,
                false => messages::tell(&format!("{} entries were removed", done["removed"])),
            }
        }
    }
    Ok(0)
}

/// The row of an entry, if it is one of an execution or a denial.
fn csv(line: &str) -> Option<String> {
    let entry: Value = serde_json::from_str(line).ok()?;
    if !["execution", "denial"].contains(&entry["kind"].as_str()?) {
        return None;
    }
    let record: Value = serde_json::from_str(entry["body"].as_str()?).ok()?;
    let cells: Vec<_> = COLUMNS.iter().map(|column| cell(&record[*column])).collect();
    Some(cells.join(",") + "\r\n")
}

/// A cell. What a spreadsheet would compute is marked as text: a record holds words of its caller.
fn cell(value: &Value) -> String {
    let text = match value {
        Value::Null => String::new(),
        Value::String(text) if text.starts_with(['=', '+', '-', '@', '\t', '\r']) => format!("'{text}"),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_and_computed_by_nobody() {
        assert_eq!(cell(&json!(null)), "");
        assert_eq!(cell(&json!(1.5)), "1.5");
        assert_eq!(cell(&json!("a,b")), "\"a,b\"");
        assert_eq!(cell(&json!("say \"hi\"\n")), "\"say \"\"hi\"\"\n\"");
        assert_eq!(cell(&json!("=cmd()")), "'=cmd()");
    }
}
