//! Values of secrets: read here when a sandbox is raised, put into requests, and kept from coming back.

use std::fmt;
use std::fs;
use std::io::{self, Read};
use std::sync::Arc;

use belljar_core::egress::{Egress, HostName, Secret, SecretSource, is_plain};
use belljar_core::{Denial, DenialCode};
use rustix::fs::{Mode, OFlags, open};

use super::authority::{Authorities, Authority};
use crate::weaken;

/// The longest value.
const LONGEST: u64 = 16 << 10;
/// The most that is added to one request.
const MOST_ADDED: usize = 32 << 10;
/// A shorter value could be anything, and is not looked for in what comes back.
const SHORTEST_LOOKED_FOR: usize = 8;

/// What the hosts of one sandbox are told.
#[derive(Clone, Debug, Default)]
pub(crate) struct Secrets {
    told: Vec<Arc<Told>>,
    authority: Option<Arc<Authority>>,
}

/// One secret with its value.
pub(super) struct Told {
    pub secret: Secret,
    value: String,
}

impl fmt::Debug for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Told")
            .field("secret", &self.secret)
            .finish_non_exhaustive()
    }
}

impl Secrets {
    /// Reads the values. Without them nothing is to run.
    pub(crate) fn load(egress: &Egress, authorities: &Authorities) -> Result<Self, Denial> {
        if egress.secrets.is_empty() {
            return Ok(Self::default());
        }
        let told = egress.secrets.iter().map(|secret| {
            let value = value(secret).map_err(|why| unavailable(secret, &why))?;
            Ok(Arc::new(Told {
                secret: secret.clone(),
                value,
            }))
        });
        let told = told.collect::<Result<Vec<_>, Denial>>()?;
        // Every small request of a guest becomes longer by that.
        let added = |host: &HostName| -> usize {
            let mine = told.iter().filter(|told| told.secret.host == *host);
            mine.map(|told| told.header().1.len()).sum()
        };
        if let Some(much) = told.iter().find(|told| added(&told.secret.host) > MOST_ADDED) {
            let why = format!(
                "what `{}` is told is more than {MOST_ADDED} bytes",
                much.secret.host
            );
            return Err(unavailable(&much.secret, &why));
        }
        let authority = authorities.get().map_err(|error| {
            let first = &egress.secrets[0];
            unavailable(first, &format!("an authority for TLS cannot be made: {error}"))
        })?;
        Ok(Self {
            told,
            authority: Some(authority),
        })
    }

    /// Whom guests have to trust beside those whom they would.
    pub(crate) fn trust(&self) -> Option<Arc<[u8]>> {
        let terminates = self.told.iter().any(|told| told.secret.terminate_tls);
        self.authority
            .as_ref()
            .filter(|_| terminates)
            .map(|authority| authority.bundle())
    }

    /// What that host is told, and by whose authority.
    pub(super) fn of(&self, host: &HostName) -> Option<(Vec<Arc<Told>>, Arc<Authority>)> {
        let mine = self.told.iter().filter(|told| told.secret.host == *host);
        let mine: Vec<_> = mine.cloned().collect();
        let authority = self.authority.clone()?;
        (!mine.is_empty()).then_some((mine, authority))
    }
}

impl Told {
    /// The header of a request that it goes into, in lower case, and the whole line.
    pub(super) fn header(&self) -> (String, Vec<u8>) {
        let said = self.secret.format.replace("{}", &self.value);
        let line = format!("{}: {said}\r\n", self.secret.header);
        (self.secret.header.to_ascii_lowercase(), line.into_bytes())
    }
}

fn value(secret: &Secret) -> Result<String, String> {
    let text = match &secret.source {
        SecretSource::FromEnv(name) => {
            std::env::var(name).map_err(|_| format!("the variable {name} is not set"))?
        }
        SecretSource::FromFile(path) => {
            let read = || -> io::Result<String> {
                let mut text = String::new();
                // A pipe would have everybody wait for whoever writes to it.
                let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
                let file = fs::File::from(open(path, flags, Mode::empty())?);
                if !file.metadata()?.is_file() {
                    return Err(io::Error::other("it is no file"));
                }
                file.take(LONGEST + 1).read_to_string(&mut text)?;
                if text.len() as u64 > LONGEST {
                    return Err(io::Error::other("it is too long"));
                }
                Ok(text)
            };
            read().map_err(|error| format!("{}: {error}", path.display()))?
        }
    };
    let text = text.trim_end_matches(['\r', '\n']);
    if text.is_empty() || !is_plain(text) {
        return Err("its value is empty, or has characters that no header has".to_owned());
    }
    Ok(text.to_owned())
}

fn unavailable(secret: &Secret, why: &str) -> Denial {
    let fix = match &secret.source {
        SecretSource::FromEnv(name) => format!("set {name} where belljar runs"),
        SecretSource::FromFile(path) => format!("put it into {}", path.display()),
    };
    let message = format!("the secret `{}` is not there: {why}", secret.name);
    Denial::new(
        DenialCode::SecretUnavailable,
        "secrets",
        &secret.name,
        message,
        fix,
    )
}

/// Looks for values in what comes back from a host, however it is cut into pieces.
///
/// Nothing is held back: what is passed on, and when, does not depend on how much of it is like a secret. Otherwise a guest could
/// have anybody say its guesses and see which are right so far.
#[derive(Debug)]
pub(super) struct Lookout {
    told: Vec<Arc<Told>>,
    /// The end of what was passed on, one byte less than the longest value.
    last: Vec<u8>,
}

impl Lookout {
    pub(super) fn new(told: &[Arc<Told>]) -> Self {
        let long = |told: &&Arc<Told>| told.value.len() >= SHORTEST_LOOKED_FOR;
        Self {
            told: told.iter().filter(long).cloned().collect(),
            last: Vec::new(),
        }
    }

    /// The name of a secret that these would complete.
    pub(super) fn look(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.last.extend_from_slice(bytes);
        let mut longest = 0;
        for told in &self.told {
            let value = told.value.as_bytes();
            longest = longest.max(value.len());
            if self.last.windows(value.len()).any(|part| part == value) && !weaken::is_off("lookout") {
                return Err(told.secret.name.clone());
            }
        }
        let keep = self.last.len().min(longest.saturating_sub(1));
        self.last.drain(..self.last.len() - keep);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use belljar_core::{Language, NetworkPolicy, Policy, Request, guard};
    use rustix::fs::{CWD, FileType, mknodat};

    use super::*;

    fn told(name: &str, value: &str) -> Arc<Told> {
        let fields = belljar_core::egress::SecretFields {
            name: name.to_owned(),
            host: "a.example.com".to_owned(),
            header: "Authorization".to_owned(),
            format: Some("Bearer {}".to_owned()),
            from_env: Some(name.to_owned()),
            from_file: None,
            terminate_tls: true,
            in_the_clear: false,
        };
        Arc::new(Told {
            secret: Secret::try_from(fields).unwrap(),
            value: value.to_owned(),
        })
    }

    #[test]
    fn values_do_not_come_back_in_any_pieces() {
        let told = [
            told("ONE", "aabaabaac"),
            told("TWO", "0123456789"),
            told("SHORT", "x"),
        ];
        for (text, found) in [
            ("nothing of it, xxx", None),
            ("almost: aabaabaa", None),
            ("aabaabaab 012345678", None),
            ("aabaabaabaac", Some("ONE")),
            ("..0123456789..", Some("TWO")),
            ("0120123456789", Some("TWO")),
        ] {
            for size in [1, 2, 3, 5, 8, 100] {
                let (mut lookout, mut passed) = (Lookout::new(&told), 0);
                let mut result = None;
                for piece in text.as_bytes().chunks(size) {
                    if let Err(name) = lookout.look(piece) {
                        result = Some(name);
                        break;
                    }
                    passed += piece.len();
                }
                assert_eq!(result.as_deref(), found, "{text} in pieces of {size}");
                let value = found.map(|name| if name == "ONE" { "aabaabaac" } else { "0123456789" });
                let passed = &text[..passed];
                assert!(value.is_none_or(|value| !passed.contains(value)));
                // Whatever it is like, it is passed on piece by piece.
                assert!(found.is_some() || passed == text);
            }
        }
    }

    #[test]
    fn nobody_prints_a_value() {
        let told = told("ONE", "very-secret-value");
        assert!(!format!("{told:?}").contains("very-secret"));
        assert_eq!(
            told.header(),
            (
                "authorization".to_owned(),
                b"Authorization: Bearer very-secret-value\r\n".to_vec()
            )
        );
    }

    #[test]
    fn a_value_that_is_not_there_is_said_with_what_to_do() {
        let dir = std::env::temp_dir().join(crate::fresh_id("secret"));
        let mut secret = told("NOT_SET_ANYWHERE_BELLJAR", "x").secret.clone();
        let egress = |secret: &Secret| Egress {
            secrets: vec![secret.clone()],
            ..Egress::default()
        };
        let load = |secret: &Secret| Secrets::load(&egress(secret), &Authorities::default());
        let denial = load(&secret).unwrap_err();
        assert_eq!(denial.code, DenialCode::SecretUnavailable);
        assert_eq!(denial.fix, "set NOT_SET_ANYWHERE_BELLJAR where belljar runs");
        secret.source = SecretSource::FromFile(dir.clone());
        assert!(load(&secret).unwrap_err().fix.starts_with("put it into"));
        for (content, fine) in [
            ("a value\n", true),
            ("\n", false),
            ("a\nb\n", false),
            ("a\u{e9}", false),
        ] {
            fs::write(&dir, content).unwrap();
            assert_eq!(load(&secret).is_ok(), fine, "{content:?}");
        }
        fs::write(&dir, "a".repeat(20_000)).unwrap();
        assert!(load(&secret).unwrap_err().message.contains("too long"));
        // Whoever opened a pipe would wait for somebody to write to it.
        fs::remove_file(&dir).unwrap();
        mknodat(CWD, &dir, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        assert!(load(&secret).unwrap_err().message.contains("no file"));
        let _ = fs::remove_file(dir);
    }

    #[test]
    fn what_is_added_to_a_request_is_bounded() {
        let place = std::env::temp_dir().join(crate::fresh_id("secret"));
        fs::write(&place, "a".repeat(16_000)).unwrap();
        let mut secrets: Vec<_> = ["ONE", "TWO", "THREE"]
            .map(|name| told(name, "x").secret.clone())
            .into();
        for (secret, header) in secrets.iter_mut().zip(["A", "B", "C"]) {
            secret.source = SecretSource::FromFile(place.clone());
            secret.header = header.to_owned();
        }
        let load = |secrets: &[Secret]| {
            let egress = Egress {
                secrets: secrets.to_vec(),
                ..Egress::default()
            };
            Secrets::load(&egress, &Authorities::default())
        };
        assert!(load(&secrets[..2]).is_ok());
        assert!(load(&secrets).unwrap_err().message.contains("32768 bytes"));
        let _ = fs::remove_file(place);
    }

    /// A request cannot have its own in a placeholder's place, the real one least of all.
    #[test]
    fn placeholders_stand_whatever_a_request_sets() {
        let mut capabilities = crate::fake::capabilities(&[Language::Python]);
        capabilities.networks.insert(NetworkPolicy::Restricted);
        let mut policy = Policy::builtin("standard").unwrap();
        (policy.network, policy.allow_network) = (NetworkPolicy::Restricted, true);
        policy.allowed_hosts = vec!["a.example.com".parse().unwrap()];
        policy.secrets = vec![told("TOKEN", "x").secret.clone()];
        let mut request = Request::code(Language::Python, &b"1"[..]);
        request.env = [("TOKEN", "the real one"), ("SSL_CERT_FILE", "/own")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        let plan = guard::check(&policy, &capabilities, &request).unwrap();
        let env = plan.stages()[0].env();
        assert_eq!(
            (&*env["TOKEN"], &*env["SSL_CERT_FILE"]),
            ("belljar-keeps-TOKEN", "/own")
        );
    }
}
