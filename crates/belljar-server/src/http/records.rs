//! `/v1/records`, `/v1/stats` and `/v1/audit`.

use axum::Json;
use axum::body::Body as AnyBody;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use belljar_core::SandboxStatus;
use futures_util::stream;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::Shared;
use super::answer::Failed;
use super::caller::Caller;
use super::read::{Body, Id, Params};
use crate::store::{Entry, RecordFilter, StatsFilter, Store};
use crate::wire::{Problem, WireError};

/// How many records a page has unless said.
const PAGE: usize = 100;
/// How many entries are read at a time for an export.
const EXPORTED: i64 = 500;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct RecordParams {
    tenant_id: Option<String>,
    user_id: Option<String>,
    run_id: Option<String>,
    policy_id: Option<String>,
    language: Option<String>,
    /// `completed`, `failed`, `timeout` or `killed`.
    status: Option<String>,
    /// Created at this time or later, in seconds since the epoch.
    since: Option<f64>,
    /// Created before this time.
    until: Option<f64>,
    /// The `next` of the page before.
    before: Option<i64>,
    /// How many at most, up to 1000.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

impl RecordParams {
    fn filter(&self) -> Result<RecordFilter, Failed> {
        let status = match &self.status {
            None => None,
            Some(word) => Some(
                word.parse::<SandboxStatus>()
                    .map_err(|error| WireError::new("status", error.to_string()))?,
            ),
        };
        for (field, value) in [
            ("tenant_id", &self.tenant_id),
            ("user_id", &self.user_id),
            ("run_id", &self.run_id),
            ("policy_id", &self.policy_id),
            ("language", &self.language),
        ] {
            if let Some(value) = value {
                crate::wire::check_name(field, value)?;
            }
        }
        Ok(RecordFilter {
            tenant_id: self.tenant_id.clone(),
            user_id: self.user_id.clone(),
            run_id: self.run_id.clone(),
            policy_id: self.policy_id.clone(),
            language: self.language.clone(),
            status,
            since: self.since.filter(|time| time.is_finite()),
            until: self.until.filter(|time| time.is_finite()),
            before: self.before,
        })
    }

    fn limit(&self) -> Result<usize, Failed> {
        match self.limit.unwrap_or(PAGE) {
            limit @ 1..=1000 => Ok(limit),
            _ => Err(WireError::new("limit", "must be from 1 to 1000").into()),
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RecordList {
    #[schema(value_type = Vec<Object>)]
    records: Vec<Value>,
    /// What to give as `before` for the next page; null on the last.
    next: Option<i64>,
}

/// Records of executions and denials, the newest first.
#[utoipa::path(
    get, path = "/v1/records", tag = "records", params(RecordParams),
    responses(
        (status = 200, body = RecordList),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn list(
    State(shared): State<Shared>,
    Caller(who): Caller,
    Params(params): Params<RecordParams>,
) -> Result<Json<RecordList>, Failed> {
    let page = shared
        .service
        .records(&who, params.filter()?, params.limit()?)
        .await?;
    let records = page.records.into_iter().map(|(_, record)| record).collect();
    Ok(Json(RecordList {
        records,
        next: page.next,
    }))
}

/// One record.
#[utoipa::path(
    get, path = "/v1/records/{id}", tag = "records", params(("id" = String, Path)),
    responses(
        (status = 200, body = Object),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn get(
    State(shared): State<Shared>,
    Caller(who): Caller,
    Id(id): Id,
) -> Result<Json<Value>, Failed> {
    Ok(Json(shared.service.get_record(&who, &id).await?))
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct StatsParams {
    tenant_id: Option<String>,
    user_id: Option<String>,
    run_id: Option<String>,
    policy_id: Option<String>,
    language: Option<String>,
    status: Option<String>,
    /// Created at this time or later, in seconds since the epoch.
    since: Option<f64>,
    /// Created before this time.
    until: Option<f64>,
    /// The length of a bucket in seconds; without it there are none.
    #[param(minimum = 1, maximum = 31_536_000)]
    bucket: Option<u32>,
}

/// Figures over records: how many, by status, language and policy, and how long they took.
#[utoipa::path(
    get, path = "/v1/stats", tag = "records", params(StatsParams),
    responses(
        (status = 200, body = Object),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn stats(
    State(shared): State<Shared>,
    Caller(who): Caller,
    Params(params): Params<StatsParams>,
) -> Result<Json<crate::store::Stats>, Failed> {
    let bucket = params.bucket;
    if bucket.is_some_and(|bucket| !(1..=31_536_000).contains(&bucket)) {
        return Err(WireError::new("bucket", "must be from 1 to 31536000 seconds").into());
    }
    let params = RecordParams {
        tenant_id: params.tenant_id,
        user_id: params.user_id,
        run_id: params.run_id,
        policy_id: params.policy_id,
        language: params.language,
        status: params.status,
        since: params.since,
        until: params.until,
        ..RecordParams::default()
    };
    let filter = StatsFilter {
        records: params.filter()?,
        bucket,
    };
    Ok(Json(shared.service.stats(&who, filter).await?))
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct HeadAnswer {
    /// The last entry's place.
    seq: i64,
    /// Its hash: kept elsewhere, it shows later that nothing up to here was changed.
    hash: String,
}

/// The last entry of the audit chain.
#[utoipa::path(
    get, path = "/v1/audit/head", tag = "audit",
    responses(
        (status = 200, body = HeadAnswer),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn audit_head(
    State(shared): State<Shared>,
    Caller(who): Caller,
) -> Result<Json<HeadAnswer>, Failed> {
    let head = shared.service.chain(&who)?.head().await?;
    Ok(Json(HeadAnswer {
        seq: head.seq,
        hash: head.hash,
    }))
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct EntryParams {
    /// Those after this place.
    after: i64,
}

/// The chain, one entry on each line: its place, kind, hash and body, as they were hashed.
#[utoipa::path(
    get, path = "/v1/audit/entries", tag = "audit", params(EntryParams),
    responses(
        (status = 200, body = String, content_type = "application/x-ndjson"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn audit_entries(
    State(shared): State<Shared>,
    Caller(who): Caller,
    Params(params): Params<EntryParams>,
) -> Result<Response, Failed> {
    let store = shared.service.chain(&who)?.clone();
    let lines = stream::unfold(Some((store, params.after)), async |state| {
        let (store, after) = state?;
        match lines_after(&store, after).await {
            Ok(Some((text, last))) => Some((Ok(text), Some((store, last)))),
            Ok(None) => None,
            // The answer has begun: it can only break off.
            Err(error) => Some((Err(error), None)),
        }
    });
    Ok((
        [(CONTENT_TYPE, "application/x-ndjson")],
        AnyBody::from_stream(lines),
    )
        .into_response())
}

async fn lines_after(store: &Store, after: i64) -> Result<Option<(String, i64)>, crate::store::StoreError> {
    let entries = store.entries(after, EXPORTED).await?;
    let last = entries.last().map(|entry| entry.seq);
    let text: String = entries.iter().map(line).collect();
    Ok(last.map(|last| (text, last)))
}

fn line(entry: &Entry) -> String {
    let line = serde_json::json!({
        "seq": entry.seq, "kind": entry.kind.word(), "hash": entry.hash, "body": entry.body,
    });
    format!("{line}\n")
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct VerifyParams {
    /// A place that was kept elsewhere, with `hash`.
    seq: Option<i64>,
    /// The hash that the entry there must have.
    hash: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct VerifyAnswer {
    valid: bool,
    /// How many entries were read, where it is valid.
    entries: Option<u64>,
    /// The first entry that is wrong.
    seq: Option<i64>,
    /// What is wrong with it.
    reason: Option<String>,
}

/// Reads the whole chain and says whether it is whole.
#[utoipa::path(
    get, path = "/v1/audit/verify", tag = "audit", params(VerifyParams),
    responses(
        (status = 200, body = VerifyAnswer),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn audit_verify(
    State(shared): State<Shared>,
    Caller(who): Caller,
    Params(params): Params<VerifyParams>,
) -> Result<Json<VerifyAnswer>, Failed> {
    let expected = match (params.seq, params.hash) {
        (None, None) => None,
        (Some(seq), Some(hash)) => Some(crate::store::Head { seq, hash }),
        _ => {
            return Err(WireError::new("hash", "goes with `seq`: give both or none").into());
        }
    };
    let verified = shared.service.verify(&who, expected.as_ref()).await?;
    Ok(Json(match verified {
        Ok(verified) => VerifyAnswer {
            valid: true,
            entries: Some(verified.entries),
            seq: None,
            reason: None,
        },
        Err(broken) => VerifyAnswer {
            valid: false,
            entries: None,
            seq: Some(broken.seq()),
            reason: Some(broken.to_string()),
        },
    }))
}

/// What is old enough to be forgotten.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ForgetRequest {
    /// Entries from before this time, in seconds since the epoch.
    before: f64,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ForgetAnswer {
    /// How many entries were removed.
    removed: u64,
}

/// Removes old entries from the beginning of the chain. What stays can still be proved: an entry says what went.
#[utoipa::path(
    post, path = "/v1/audit/forget", tag = "audit", request_body = ForgetRequest,
    responses(
        (status = 200, body = ForgetAnswer),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn audit_forget(
    State(shared): State<Shared>,
    Caller(who): Caller,
    Body(request): Body<ForgetRequest>,
) -> Result<Json<ForgetAnswer>, Failed> {
    let removed = shared.service.forget(&who, request.before).await?;
    Ok(Json(ForgetAnswer { removed }))
}
