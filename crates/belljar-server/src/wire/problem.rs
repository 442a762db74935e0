//! A problem document of RFC 9457, with the denial inside where there is one.

use belljar_core::{Denial, ErrorKind, Record};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// Why there is no result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// `urn:belljar:problem:` and the kind.
    #[serde(rename = "type")]
    pub kind_uri: String,
    /// The kind in a few words.
    pub title: String,
    /// The answer's status.
    pub status: u16,
    /// What went wrong this time.
    pub detail: String,
    /// The kind: a stable word.
    pub kind: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The field that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The refusal, with the smallest change that would allow it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub denial: Option<Denial>,
    /// The refusal's row in the audit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub record: Option<Value>,
    /// In how many seconds it may be worth trying again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u64>,
    /// The request that it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

impl Problem {
    pub fn new(kind: ErrorKind, detail: impl Into<String>) -> Self {
        Self {
            kind_uri: format!("urn:belljar:problem:{kind}"),
            title: kind.title().to_owned(),
            status: kind.http_status(),
            detail: detail.into(),
            kind: kind.word().to_owned(),
            hint: None,
            field: None,
            denial: None,
            record: None,
            retry_after: None,
            request_id: None,
        }
    }

    /// The refusal and its record, where this is one.
    pub fn refusal(&self) -> Option<(Denial, Record)> {
        let record = serde_json::from_value(self.record.clone()?).ok()?;
        Some((self.denial.clone()?, record))
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}
