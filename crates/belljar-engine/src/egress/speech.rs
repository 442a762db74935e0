//! What a guest begins to speak, and whether that may be: HTTP, TLS with the right name, or anything else.

use std::time::Duration;

use belljar_core::egress::{HostName, Protocol, Rule, cut};
use tokio::io::AsyncRead;

use super::hello::{self, Hello};
use super::http;
use super::pump::{Stopped, read_some};
use crate::weaken;

/// How long a guest may take for the first bytes of something that has to be looked at.
const PATIENCE: Duration = Duration::from_secs(30);
/// How many pieces a beginning may come in: each is looked at together with all before it.
const MOST_READS: u32 = 256;
/// How much of a beginning is looked at.
const LONGEST_BEGINNING: usize = 64 << 10;

/// What may be spoken on a connection.
#[derive(Clone, Copy)]
pub(super) struct Speaks {
    http: bool,
    tls: bool,
    /// What is neither as well.
    anything: bool,
}

/// What a guest speaks.
pub(super) enum Kind {
    /// It said nothing and left.
    Nothing,
    Http,
    Tls,
    Other,
}

impl Speaks {
    /// What these rules let be spoken on a port.
    pub(super) fn of(rules: &[&Rule], port: u16) -> Self {
        let unseen = |rule: &Rule| rule.protocol == Protocol::Tcp;
        let any =
            |speaks: fn(&Rule, u16) -> bool| rules.iter().any(|rule| unseen(rule) || speaks(rule, port));
        Self {
            http: any(Rule::speaks_http),
            tls: any(Rule::speaks_tls),
            anything: any(Rule::speaks_anything),
        }
    }
}

/// The beginning of one connection.
pub(super) struct Beginning<'a> {
    pub speaks: Speaks,
    /// The name that was asked for, where it is one.
    pub name: Option<&'a HostName>,
}

impl Beginning<'_> {
    /// What the guest begins to speak, checked as far as a beginning can be.
    pub(super) async fn begin<R: AsyncRead + Unpin>(
        &self,
        from: &mut R,
        beginning: &mut Vec<u8>,
    ) -> Result<Kind, Stopped> {
        let speaks = self.speaks;
        let mut deadline = None;
        let mut reads = 0u32;
        loop {
            // Whoever is to be looked at has to begin some time; others may listen for as long as they like.
            let patient = speaks.anything && beginning.is_empty();
            let reading = read_some(from, beginning);
            let read = if patient {
                reading.await
            } else {
                let until = *deadline.get_or_insert_with(|| tokio::time::Instant::now() + PATIENCE);
                match tokio::time::timeout_at(until, reading).await {
                    Ok(read) => read,
                    Err(_) => {
                        return Err(Stopped::Refused(
                            "nothing was said that could be looked at".to_owned(),
                        ));
                    }
                }
            };
            reads += 1;
            if reads > MOST_READS {
                return Err(Stopped::Refused(
                    "its beginning came in too many pieces".to_owned(),
                ));
            }
            match read? {
                0 if beginning.is_empty() => return Ok(Kind::Nothing),
                0 if speaks.anything => return Ok(Kind::Other),
                0 => return Err(Stopped::Refused("it broke off in its beginning".to_owned())),
                _ => {}
            }
            if let Some(kind) = self.judge(beginning)? {
                return Ok(kind);
            }
            if beginning.len() > LONGEST_BEGINNING {
                return Err(Stopped::Refused(
                    "its beginning is too long to be looked at".to_owned(),
                ));
            }
        }
    }

    /// What these first bytes are; nothing while that cannot be told.
    fn judge(&self, beginning: &[u8]) -> Result<Option<Kind>, Stopped> {
        let refused = |why: &str| Err(Stopped::Refused(why.to_owned()));
        if beginning.first().is_some_and(|first| hello::could_be(*first)) {
            if !self.speaks.tls {
                return refused("it is TLS, and HTTP in the clear was expected");
            }
            return match (hello::read(beginning), self.name) {
                (Hello::Unfinished, _) => Ok(None),
                (Hello::Nonsense, _) => refused("it begins like TLS and is none"),
                // Whoever is named by an address may call it what they like.
                (Hello::Named(_) | Hello::Unnamed, None) => Ok(Some(Kind::Tls)),
                (Hello::Named(_), _) if weaken::is_off("servername") => Ok(Some(Kind::Tls)),
                (Hello::Named(said), Some(name)) if HostName::new(&said).is_ok_and(|said| said == *name) => {
                    Ok(Some(Kind::Tls))
                }
                (Hello::Named(said), _) => refused(&format!("TLS asks for `{}` there", cut(&said))),
                (Hello::Unnamed, _) => refused("TLS does not say whom it asks for"),
            };
        }
        match self.speaks {
            Speaks { anything: true, .. } => {
                let kind = |is_http| if is_http { Kind::Http } else { Kind::Other };
                Ok(http::begins(beginning).map(kind))
            }
            Speaks { http: true, .. } => Ok(Some(Kind::Http)),
            _ => refused("it is no TLS"),
        }
    }
}
