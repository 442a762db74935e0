//! Secrets that a host is told, and that no guest ever has.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::host::{Host, HostError, HostName};
use super::rule::Rule;

/// The most secrets of one policy.
const MOST: usize = 64;

/// Where guests find whom to trust, if TLS ends at the engine for some host.
pub const TRUST_FILE: &str = "/.belljar/trust.pem";

/// Variables that say so, to one program or another.
const TRUST_VARIABLES: [&str; 8] = [
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "PIP_CERT",
    "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO",
    "AWS_CA_BUNDLE",
];

/// A secret, the host that it is for, and the header of a request that it goes into. The value itself is nowhere in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Secret {
    /// Guests have a variable of this name, with a placeholder in it.
    pub name: String,
    pub host: HostName,
    pub header: String,
    /// What the header says, with `{}` in the secret's place.
    pub format: String,
    #[serde(flatten)]
    pub source: SecretSource,
    /// Whether TLS from guests to that host ends at the engine, which then speaks TLS with the host.
    pub terminate_tls: bool,
    /// Whether it may be sent in the clear.
    pub in_the_clear: bool,
}

/// Where the engine finds a secret's value when it is needed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SecretSource {
    /// A variable of the engine's own.
    FromEnv(String),
    /// A file that the engine can read.
    FromFile(PathBuf),
}

/// A secret as it is written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecretFields {
    pub name: String,
    pub host: String,
    pub header: String,
    pub format: Option<String>,
    pub from_env: Option<String>,
    pub from_file: Option<PathBuf>,
    #[serde(default)]
    pub terminate_tls: bool,
    #[serde(default)]
    pub in_the_clear: bool,
}

/// What is wrong with a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    #[error("`{0}` is no name of a variable: letters, digits and `_`, and no digit first")]
    Name(String),
    #[error("{0} is there twice")]
    Twice(String),
    #[error(transparent)]
    Host(#[from] HostError),
    #[error("a secret is for one host by its name, not for `{0}`")]
    NotOne(String),
    #[error("`{0}` is not in allowed_hosts, so nobody could be told")]
    Unreachable(String),
    #[error("`{0}` is no header that a secret can be in")]
    Header(String),
    #[error(
        "`{0}` is no format: it has `{{}}` in it once, where the secret belongs, and nothing but plain characters around"
    )]
    Format(String),
    #[error("say where it is with one of from_env and from_file")]
    Source,
    #[error("`{0}` is no absolute path")]
    File(String),
    #[error("at most {MOST} secrets can be")]
    TooMany,
}

/// Headers that frame a request, or say whom it is for.
const FRAMING: [&str; 10] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "upgrade",
    "te",
    "trailer",
    "expect",
    "keep-alive",
    "content-encoding",
];

impl TryFrom<SecretFields> for Secret {
    type Error = SecretError;

    fn try_from(fields: SecretFields) -> Result<Self, SecretError> {
        let shown = |text: &str| text.escape_default().to_string();
        let variable = |name: &str| {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            (1..=128).contains(&name.len()) && name.bytes().all(plain) && !name.as_bytes()[0].is_ascii_digit()
        };
        if !variable(&fields.name) {
            return Err(SecretError::Name(shown(&fields.name)));
        }
        let host = match fields.host.parse()? {
            Host::Name(name) => name,
            _ => return Err(SecretError::NotOne(shown(&fields.host))),
        };
        let token = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let framing = FRAMING
            .iter()
            .any(|name| name.eq_ignore_ascii_case(&fields.header));
        if !(1..=128).contains(&fields.header.len()) || !fields.header.bytes().all(token) || framing {
            return Err(SecretError::Header(shown(&fields.header)));
        }
        let format = fields.format.unwrap_or_else(|| "{}".to_owned());
        if format.matches("{}").count() != 1 || !is_plain(&format) {
            return Err(SecretError::Format(shown(&format)));
        }
        let source = match (fields.from_env, fields.from_file) {
            (Some(name), None) if variable(&name) => SecretSource::FromEnv(name),
            (Some(name), None) => return Err(SecretError::Name(shown(&name))),
            (None, Some(path)) if path.is_absolute() => SecretSource::FromFile(path),
            (None, Some(path)) => return Err(SecretError::File(shown(&path.to_string_lossy()))),
            _ => return Err(SecretError::Source),
        };
        Ok(Self {
            name: fields.name,
            host,
            header: fields.header,
            format,
            source,
            terminate_tls: fields.terminate_tls,
            in_the_clear: fields.in_the_clear,
        })
    }
}

/// Whether a text can stand in a header as it is.
pub fn is_plain(text: &str) -> bool {
    text.len() <= 16 << 10 && text.bytes().all(|byte| (0x20..0x7f).contains(&byte))
}

impl Secret {
    /// What is wrong with these together, beside these rules; with the place of the one that it is wrong with.
    pub fn check(secrets: &[Self], rules: &[Rule], everyone: bool) -> Result<(), (usize, SecretError)> {
        let (mut names, mut headers) = (BTreeSet::new(), BTreeSet::new());
        for (at, secret) in secrets.iter().enumerate() {
            if at >= MOST {
                return Err((at, SecretError::TooMany));
            }
            if !names.insert(&secret.name) {
                return Err((at, SecretError::Twice(format!("the name `{}`", secret.name))));
            }
            if !headers.insert((&secret.host, secret.header.to_ascii_lowercase())) {
                let twice = format!("the header `{}` of `{}`", secret.header, secret.host);
                return Err((at, SecretError::Twice(twice)));
            }
            if !everyone && !rules.iter().any(|rule| rule.host.has_name(&secret.host)) {
                return Err((at, SecretError::Unreachable(secret.host.to_string())));
            }
        }
        Ok(())
    }

    /// What a guest sees in its place.
    pub fn placeholder(&self) -> String {
        format!("belljar-keeps-{}", self.name)
    }

    /// Variables that guests have in their place, whatever they ask for.
    pub fn placeholders(secrets: &[Self]) -> BTreeMap<String, String> {
        let placeholders = secrets.iter();
        placeholders
            .map(|secret| (secret.name.clone(), secret.placeholder()))
            .collect()
    }

    /// Variables that say whom to trust, unless they ask for others.
    pub fn trust_variables(secrets: &[Self]) -> BTreeMap<String, String> {
        let trusts = secrets.iter().any(|secret| secret.terminate_tls);
        let trust = TRUST_VARIABLES
            .iter()
            .filter(|_| trusts)
            .map(|name| ((*name).to_owned(), TRUST_FILE.to_owned()));
        trust.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields() -> SecretFields {
        SecretFields {
            name: "TOKEN".to_owned(),
            host: "api.example.com".to_owned(),
            header: "Authorization".to_owned(),
            format: Some("Bearer {}".to_owned()),
            from_env: Some("TOKEN".to_owned()),
            from_file: None,
            terminate_tls: false,
            in_the_clear: false,
        }
    }

    #[test]
    fn what_is_no_secret_is_said() {
        assert!(Secret::try_from(fields()).is_ok());
        type Change = fn(&mut SecretFields);
        let changes: [(Change, &str); 14] = [
            (|fields| fields.name = "1A".to_owned(), "no name of a variable"),
            (|fields| fields.name = String::new(), "no name of a variable"),
            (|fields| fields.host = "*.example.com".to_owned(), "one host"),
            (|fields| fields.host = "10.0.0.1".to_owned(), "one host"),
            (|fields| fields.host = "https://a.b".to_owned(), "the scheme"),
            (|fields| fields.header = "Host".to_owned(), "no header"),
            (
                |fields| fields.header = "Transfer-Encoding".to_owned(),
                "no header",
            ),
            (|fields| fields.header = "a b".to_owned(), "no header"),
            (|fields| fields.header = "a\r\nb".to_owned(), "no header"),
            (|fields| fields.format = Some("Bearer".to_owned()), "no format"),
            (
                |fields| fields.format = Some("{}\r\nX: {}".to_owned()),
                "no format",
            ),
            (|fields| fields.from_env = None, "one of from_env and from_file"),
            (
                |fields| fields.from_file = Some("/a".into()),
                "one of from_env and from_file",
            ),
            (
                |fields| (fields.from_env, fields.from_file) = (None, Some("a".into())),
                "no absolute path",
            ),
        ];
        for (change, why) in changes {
            let mut fields = fields();
            change(&mut fields);
            let error = Secret::try_from(fields).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn secrets_are_told_apart_and_their_hosts_can_be_reached() {
        let secret = Secret::try_from(fields()).unwrap();
        let rules = ["*.example.com".parse().unwrap()];
        let check = |secrets: &[Secret], rules: &[Rule]| Secret::check(secrets, rules, false);
        assert!(check(std::slice::from_ref(&secret), &rules).is_ok());
        assert!(
            check(std::slice::from_ref(&secret), &[])
                .unwrap_err()
                .1
                .to_string()
                .contains("allowed_hosts")
        );
        let mut other = secret.clone();
        assert!(
            check(&[secret.clone(), other.clone()], &rules)
                .unwrap_err()
                .1
                .to_string()
                .contains("name")
        );
        other.name = "OTHER".to_owned();
        other.header = "AUTHORIZATION".to_owned();
        assert!(
            check(&[secret.clone(), other.clone()], &rules)
                .unwrap_err()
                .1
                .to_string()
                .contains("header")
        );
        other.header = "X-Key".to_owned();
        assert!(check(&[secret, other], &rules).is_ok());
    }

    #[test]
    fn guests_have_placeholders_and_no_more_trust_than_they_need() {
        let mut secret = Secret::try_from(fields()).unwrap();
        let placeholders = Secret::placeholders(std::slice::from_ref(&secret));
        assert_eq!(
            placeholders,
            [("TOKEN".to_owned(), "belljar-keeps-TOKEN".to_owned())].into()
        );
        assert!(Secret::trust_variables(std::slice::from_ref(&secret)).is_empty());
        secret.terminate_tls = true;
        assert_eq!(Secret::trust_variables(&[secret])["SSL_CERT_FILE"], TRUST_FILE);
        assert!(TRUST_FILE.starts_with(crate::language::RUNNER_DIR));
    }
}
