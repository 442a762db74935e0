//! `belljar records` and `belljar stats`.

use axum::http::Method;
use serde_json::Value;

use super::super::args::{RecordFilterArgs, RecordsArgs, StatsArgs};
use super::super::ask::{ago, duration, escaped, shown_time, with_query, with_service};
use super::super::problem::Problem;
use super::super::stdout;
use super::super::table::Table;

const NOTHING: Option<&Value> = None;
/// The most that one page of the service has.
const PAGE: usize = 1_000;

fn query(filter: &RecordFilterArgs) -> Result<Vec<(&'static str, Option<String>)>, Problem> {
    let since = filter
        .since
        .as_deref()
        .map(|text| ago("--since", text))
        .transpose()?;
    Ok(vec![
        ("tenant_id", filter.tenant.clone()),
        ("user_id", filter.user.clone()),
        ("run_id", filter.run.clone()),
        ("policy_id", filter.policy.clone()),
        ("language", filter.language.clone()),
        ("status", filter.status.clone()),
        ("since", since.map(|since| since.to_string())),
    ])
}

pub(crate) fn records(args: &RecordsArgs) -> Result<u8, Problem> {
    if let Some(id) = &args.id {
        let path = format!("/v1/records/{}", escaped(id));
        let record: Value = with_service(&args.service, async |client| {
            Ok(client.call(Method::GET, &path, NOTHING).await?)
        })?;
        stdout::json(&record)?;
        return Ok(0);
    }
    let query = query(&args.filter)?;
    let records = with_service(&args.service, async |client| {
        let (mut records, mut before) = (Vec::new(), None);
        while records.len() < args.limit {
            let mut query = query.clone();
            query.push((
                "limit",
                Some((args.limit - records.len()).clamp(1, PAGE).to_string()),
            ));
            query.push(("before", before));
            let path = with_query("/v1/records", &query);
            let page: Value = client.call(Method::GET, &path, NOTHING).await?;
            records.extend(page["records"].as_array().into_iter().flatten().cloned());
            before = page["next"].as_i64().map(|next| next.to_string());
            if before.is_none() {
                break;
            }
        }
        Ok(records)
    })?;
    if args.service.json {
        stdout::json(&records)?;
        return Ok(0);
    }
    let mut table = Table::default();
    table.row([
        "ID", "TIME", "TENANT", "LANGUAGE", "POLICY", "STATUS", "SECONDS", "WHY",
    ]);
    for record in &records {
        let text = |name: &str| record[name].as_str().unwrap_or("-").to_owned();
        let seconds = record["wall_time_seconds"].as_f64();
        let why = record["error_message"].as_str().unwrap_or_default();
        table.row([
            text("record_id"),
            shown_time(record["created_at"].as_f64().unwrap_or_default()),
            text("tenant_id"),
            text("language"),
            text("policy_id"),
            text("status"),
            seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.3}")),
            why.chars().take(80).collect(),
        ]);
    }
    stdout::print(&table.render())?;
    Ok(0)
}

pub(crate) fn stats(args: &StatsArgs) -> Result<u8, Problem> {
    let mut query = query(&args.filter)?;
    let bucket = args
        .bucket
        .as_deref()
        .map(|text| duration("--bucket", text))
        .transpose()?;
    query.push((
        "bucket",
        bucket.map(|length| (length.get().max(1.0) as u64).to_string()),
    ));
    let path = with_query("/v1/stats", &query);
    let stats: Value = with_service(&args.service, async |client| {
        Ok(client.call(Method::GET, &path, NOTHING).await?)
    })?;
    if args.service.json {
        stdout::json(&stats)?;
        return Ok(0);
    }
    let mut table = Table::default();
    table.row(["executions", &stats["total_executions"].to_string()]);
    for (name, counts) in [
        ("status", "by_status"),
        ("language", "by_language"),
        ("policy", "by_policy"),
    ] {
        for (word, count) in stats[counts].as_object().into_iter().flatten() {
            table.row([format!("{name} {word}"), count.to_string()]);
        }
    }
    let seconds = |value: &Value| format!("{:.4} s", value.as_f64().unwrap_or_default());
    table.row([
        "wall time, mean".to_owned(),
        seconds(&stats["avg_wall_time_seconds"]),
    ]);
    for (name, value) in stats["wall_time_seconds"].as_object().into_iter().flatten() {
        table.row([format!("wall time, {name}"), seconds(value)]);
    }
    for bucket in stats["buckets"].as_array().into_iter().flatten() {
        let start = shown_time(bucket["start"].as_f64().unwrap_or_default());
        table.row([format!("from {start}"), bucket["executions"].to_string()]);
    }
    stdout::print(&table.render())?;
    Ok(0)
}
