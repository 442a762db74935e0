//! Telling a program of one's own what waits for approval, and hearing its word. Both ways are signed.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::http::Method;
use hmac::{Hmac, KeyInit, Mac};
use serde::Deserialize;
use sha2::Sha256;

use super::Service;
use super::error::ServiceError;
use crate::client::{Client, ClientError};
use crate::wire;

/// The header with the signature: `t=SECONDS,v1=HEX`, an HMAC-SHA256 over `SECONDS.BODY`.
pub(crate) const SIGNATURE: &str = "belljar-signature";
/// How old a signature may be.
const FRESH: f64 = 300.0;
/// How often it is tried, and how long to wait in between.
const TRIES: u32 = 4;
const BETWEEN: Duration = Duration::from_secs(1);
/// How long it may take to answer.
const ANSWERING: Duration = Duration::from_secs(20);

/// Who is told.
#[derive(Clone)]
pub struct Webhook {
    pub url: String,
    /// What both sides know.
    pub secret: Arc<str>,
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

/// What it answers, where it decides at once.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub(super) struct Verdict {
    /// `grant` or `deny`.
    decision: Verb,
    #[serde(default)]
    reason: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verb {
    Grant,
    Deny,
}

impl Webhook {
    /// The signature of a body at a time.
    pub fn sign(&self, now: f64, body: &[u8]) -> String {
        let time = now as u64;
        let digits: String = self
            .mac(time, body)
            .finalize()
            .into_bytes()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        format!("t={time},v1={digits}")
    }

    /// Whether a signature is ours and fresh.
    pub fn is_signed(&self, now: f64, body: &[u8], signature: &str) -> bool {
        let part = |name: &str| {
            signature
                .split(',')
                .find_map(|part| part.trim().strip_prefix(name))
        };
        let (Some(time), Some(digits)) = (part("t="), part("v1=")) else {
            return false;
        };
        let Ok(time) = time.parse::<u64>() else {
            return false;
        };
        let bytes: Option<Vec<u8>> = (0..digits.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok())
            .collect();
        let is_fresh = (now - time as f64).abs() <= FRESH;
        // Compared in constant time.
        bytes.is_some_and(|bytes| is_fresh && self.mac(time, body).verify_slice(&bytes).is_ok())
    }

    fn mac(&self, time: u64, body: &[u8]) -> Hmac<Sha256> {
        let mut mac = match Hmac::<Sha256>::new_from_slice(self.secret.as_bytes()) {
            Ok(mac) => mac,
            // HMAC takes a key of any length.
            Err(_) => unreachable!("a key of any length is taken"),
        };
        mac.update(format!("{time}.").as_bytes());
        mac.update(body);
        mac
    }

    async fn send(&self, body: &wire::Approval, now: f64) -> Result<Option<Verdict>, ClientError> {
        let bytes = serde_json::to_vec(body).map_err(|error| ClientError::Answer(error.to_string()))?;
        let signature = self.sign(now, &bytes);
        let client = Client::remote(&self.url, None)?;
        let headers = [(SIGNATURE, signature.as_str())];
        let response = client.send(Method::POST, "", Some(body), &headers).await?;
        let signature = response.headers().get(SIGNATURE).cloned();
        let answer = axum::body::to_bytes(response.into_body(), 64 << 10).await;
        // Whoever decides later says nothing now, and whoever does not sign says nothing at all.
        let Some(verdict) = answer
            .ok()
            .and_then(|bytes| Some((serde_json::from_slice(&bytes).ok()?, bytes)))
        else {
            return Ok(None);
        };
        let signature = signature.as_ref().and_then(|value| value.to_str().ok());
        let signed = about(&body.approval_id, &verdict.1);
        match signature.is_some_and(|signature| self.is_signed(now, &signed, signature)) {
            true => Ok(Some(verdict.0)),
            false => Err(ClientError::Answer(
                "the webhook's answer is not signed".to_owned(),
            )),
        }
    }
}

/// What is signed by one who decides: the id is part of it.
fn about(approval_id: &str, body: &[u8]) -> Vec<u8> {
    [approval_id.as_bytes(), b"\n", body].concat()
}

impl Service {
    /// Whether anybody can decide by a signature.
    pub fn has_webhook(&self) -> bool {
        self.settings.webhook.is_some()
    }

    /// Tells the webhook, if there is one, and takes its word. Nobody waits for that.
    pub(super) async fn tell_webhook(self: &Arc<Self>, approval_id: &str) {
        let Some(webhook) = self.settings.webhook.clone() else {
            return;
        };
        let (service, approval_id) = (Arc::clone(self), approval_id.to_owned());
        tokio::spawn(async move {
            for turn in 0..TRIES {
                let Ok(Some(approval)) = service.store.approval(&approval_id).await else {
                    return;
                };
                let Ok(shown) = service.shown(approval.clone(), true).await else {
                    return;
                };
                let sent = tokio::time::timeout(ANSWERING, webhook.send(&shown, service.now())).await;
                match sent {
                    Ok(Ok(Some(verdict))) => {
                        let grant = verdict.decision == Verb::Grant;
                        // It may have been decided meanwhile.
                        let _ = service
                            .decide_with(&approval, grant, "webhook", verdict.reason)
                            .await;
                        return;
                    }
                    Ok(Ok(None)) => return,
                    Ok(Err(error)) => tracing::warn!(%error, "the webhook was not told"),
                    Err(_) => tracing::warn!("the webhook took too long"),
                }
                tokio::time::sleep(BETWEEN * 2_u32.pow(turn)).await;
            }
        });
    }

    /// The word of a webhook that decides later: signed, and about something that waits.
    pub async fn webhook_decides(
        &self,
        approval_id: &str,
        signature: Option<&str>,
        body: &[u8],
    ) -> Result<wire::Approval, ServiceError> {
        let webhook = self.settings.webhook.as_ref().ok_or(ServiceError::Unauthorized)?;
        // The id is part of what was signed: a word about one thing is none about another.
        let signed = about(approval_id, body);
        let is_signed = signature.is_some_and(|signature| webhook.is_signed(self.now(), &signed, signature));
        if !is_signed {
            return Err(ServiceError::Unauthorized);
        }
        let verdict: Verdict = serde_json::from_slice(body)
            .map_err(|error| crate::wire::WireError::new("decision", error.to_string()))?;
        let approval = self.store.approval(approval_id).await?;
        let approval = approval.ok_or_else(|| ServiceError::not_found("approval", approval_id))?;
        let grant = verdict.decision == Verb::Grant;
        self.decide_with(&approval, grant, "webhook", verdict.reason)
            .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_for_one_body_at_one_time() {
        let webhook = Webhook {
            url: "http://x".to_owned(),
            secret: "s3cret".into(),
        };
        let signature = webhook.sign(1000.5, b"body");
        assert!(signature.starts_with("t=1000,v1="));
        assert!(webhook.is_signed(1000.0, b"body", &signature));
        assert!(webhook.is_signed(1299.0, b"body", &signature));
        assert!(!webhook.is_signed(1301.0, b"body", &signature));
        assert!(!webhook.is_signed(1000.0, b"bodY", &signature));
        assert!(!webhook.is_signed(1000.0, b"body", &signature.replace("t=1000", "t=1001")));
        for bad in ["", "t=1000", "v1=00", "t=x,v1=00", "t=1000,v1=0", "t=1000,v1=zz"] {
            assert!(!webhook.is_signed(1000.0, b"body", bad), "{bad}");
        }
        let other = Webhook {
            secret: "other".into(),
            ..webhook.clone()
        };
        assert!(!other.is_signed(1000.0, b"body", &signature));
        assert!(!format!("{webhook:?}").contains("s3cret"));
    }
}
