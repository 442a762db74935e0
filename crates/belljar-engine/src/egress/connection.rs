//! One connection of a guest: whom it is for, whether that may be, and everything that is said on it.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use belljar_core::Denial;
use belljar_core::egress::{Event, Host, HostName, Met, Protocol, Rule, cut, is_public, refusal};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Notify;

use super::Shared;
use super::dial::{Dialled, NotDialled, connect};
use super::hello::{self, Hello};
use super::http::{self, Head, Requests};
use super::pump::{Ended, Way, pass, read_some};
use crate::execute::now;

/// How long a guest may take for the first bytes of something that has to be looked at.
const PATIENCE: Duration = Duration::from_secs(30);
/// How many pieces a beginning may come in: each is looked at together with all before it.
const MOST_READS: u32 = 256;
/// How much of a beginning is looked at.
const LONGEST_BEGINNING: usize = 64 << 10;

/// Whom a guest connected to.
#[derive(Clone, Debug)]
enum Whom {
    Name(HostName),
    Address(IpAddr),
}

impl Whom {
    fn text(&self) -> String {
        match self {
            Self::Name(name) => name.to_string(),
            Self::Address(address) => Host::Address(*address).to_string(),
        }
    }
}

/// What is known of a connection while it lasts.
struct Course {
    whom: Whom,
    port: u16,
    address: Option<IpAddr>,
    rule: Option<String>,
    sent: AtomicU64,
    received: AtomicU64,
}

/// How it ended.
enum End {
    Fine,
    Refused(Denial),
    Failed(String),
}

/// Serves one connection to its end, and says what came of it.
pub(super) async fn serve(shared: &Arc<Shared>, guest: TcpStream) {
    let Ok(local) = guest.local_addr() else { return };
    let (address, port) = (local.ip().to_canonical(), local.port());
    let (started_at, began) = (now(), Instant::now());
    let name = shared.names().name(address).cloned();
    let mut course = Course {
        whom: name.map_or(Whom::Address(address), Whom::Name),
        port,
        address: None,
        rule: None,
        sent: AtomicU64::new(0),
        received: AtomicU64::new(0),
    };
    shared.open.send_modify(|count| *count += 1);
    let end = if let Some(place) = shared.take_place() {
        let mut closing = shared.closing.subscribe();
        let end = tokio::select! {
            end = course.run(shared, guest) => end,
            _ = closing.wait_for(|closing| *closing) => End::Fine,
        };
        drop(place);
        end
    } else {
        refuse(guest);
        let most = shared.egress.limits.connections;
        let message = format!("at most {most} connections may be open at once");
        End::Refused(limit("max_connections", &course.whom, &message))
    };
    let (denial, error) = match end {
        End::Fine => (None, None),
        End::Refused(denial) => (Some(denial), None),
        End::Failed(error) => (None, Some(error)),
    };
    shared.log().push(Event {
        kind: Met::Connection,
        allowed: denial.is_none(),
        name: match &course.whom {
            Whom::Name(name) => Some(name.to_string()),
            Whom::Address(_) => None,
        },
        address: match (&course.whom, course.address) {
            (_, Some(address)) => Some(address),
            (Whom::Address(address), None) => Some(*address),
            _ => None,
        },
        port: Some(port),
        rule: course.rule,
        bytes_in: course.received.into_inner(),
        bytes_out: course.sent.into_inner(),
        started_at,
        duration: began.elapsed().into(),
        denial,
        error,
    });
    shared.open.send_modify(|count| *count -= 1);
}

/// Ends a connection as one that nobody took.
fn refuse(guest: TcpStream) {
    let _ = guest.set_zero_linger();
}

fn limit(field: &str, whom: &Whom, message: &str) -> Denial {
    let mut denial = refusal(whom.text(), message, "");
    field.clone_into(&mut denial.rule);
    denial.fix = format!("set {field} to more in the policy");
    denial
}

impl Course {
    async fn run(&mut self, shared: &Arc<Shared>, guest: TcpStream) -> End {
        let egress = &shared.egress;
        let rules: Vec<&Rule> = match &self.whom {
            Whom::Name(name) => egress.rules_of(name, self.port).collect(),
            Whom::Address(address) => egress.rules_of_address(*address, self.port).collect(),
        };
        let anybody = egress.everything
            && match &self.whom {
                Whom::Name(_) => true,
                Whom::Address(address) => is_public(*address),
            };
        if rules.is_empty() && !anybody {
            refuse(guest);
            return End::Refused(self.unknown());
        }
        let dialled = match &self.whom {
            Whom::Name(name) => shared.dialler.dial(egress, &rules, name, self.port).await,
            Whom::Address(address) => {
                let stream = connect(&[*address], self.port).await;
                stream
                    .map(|stream| Dialled {
                        stream,
                        rule: rules.first().copied(),
                        addresses: vec![*address],
                    })
                    .map_err(NotDialled::Failed)
            }
        };
        let Dialled {
            stream: server,
            rule,
            addresses,
        } = match dialled {
            Ok(dialled) => dialled,
            Err(NotDialled::Private(address)) => {
                refuse(guest);
                let text = self.whom.text();
                return End::Refused(refusal(
                    address.to_string(),
                    format!("`{text}` has the address {address}, which is not the world's"),
                    &format!(
                        "{{ host = \"{text}:{}\", addresses = [\"{address}\"] }}",
                        self.port
                    ),
                ));
            }
            Err(NotDialled::Failed(error)) => {
                refuse(guest);
                return End::Failed(error.to_string());
            }
        };
        self.address = server.peer_addr().ok().map(|address: SocketAddr| address.ip());
        self.rule = Some(rule.map_or_else(|| "network full".to_owned(), ToString::to_string));
        let _ = guest.set_nodelay(true);
        let rules: Vec<&Rule> = match (rule, self.address) {
            (None, Some(_)) => Vec::new(),
            // Those that would not have been dialled for have no say in what is asked.
            (Some(_), Some(_)) => {
                let fits = |rule: &&Rule| addresses.iter().all(|address| rule.permits_address(*address));
                rules.into_iter().filter(fits).collect()
            }
            (_, None) => {
                refuse(guest);
                return End::Failed("it was gone again at once".to_owned());
            }
        };
        self.converse(shared, &rules, guest, server).await
    }

    /// Nothing permits it.
    fn unknown(&self) -> Denial {
        let (text, port) = (self.whom.text(), self.port);
        let message = match &self.whom {
            Whom::Name(_) => format!("`{text}` may not be reached on port {port}"),
            Whom::Address(_) => format!(
                "{text} on port {port} was asked for by its address, and not by a name that is allowed"
            ),
        };
        refusal(format!("{text}:{port}"), message, &format!("\"{text}:{port}\""))
    }

    async fn converse(
        &self,
        shared: &Arc<Shared>,
        rules: &[&Rule],
        guest: TcpStream,
        server: TcpStream,
    ) -> End {
        let (mut guest_reads, mut guest_writes) = guest.into_split();
        let (mut server_reads, mut server_writes) = server.into_split();
        // Answers go back whatever is asked; only where another protocol is asked for is the first line of one looked at.
        let upgrade = Upgrade::default();
        let up = async {
            let ended = self
                .up(shared, rules, &mut guest_reads, &mut server_writes, &upgrade)
                .await;
            if !matches!(ended, Ended::Done) {
                return Err(ended);
            }
            Ok(())
        };
        let down = async {
            let ended = upgrade
                .down(&mut server_reads, &mut guest_writes, shared, &self.received)
                .await;
            if matches!(ended, Ended::Done) {
                Ok(())
            } else {
                Err(ended)
            }
        };
        let end = tokio::try_join!(up, down).err();
        let (end, rude) = match end {
            None => (End::Fine, false),
            Some(Ended::Done) => (End::Fine, false),
            Some(Ended::Exhausted(way)) => {
                let limits = &shared.egress.limits;
                let (field, message) = match way {
                    Way::In => ("max_receive_mb", format!("a run may receive {}", limits.incoming)),
                    Way::Out => ("max_send_mb", format!("a run may send {}", limits.outgoing)),
                };
                (End::Refused(limit(field, &self.whom, &message)), true)
            }
            Some(Ended::Refused(why)) => (End::Refused(self.said_something_else(&why)), true),
            Some(Ended::Failed(error)) => (End::Failed(error.to_string()), true),
        };
        if rude && let Ok(guest) = guest_reads.reunite(guest_writes) {
            refuse(guest);
        }
        end
    }

    fn said_something_else(&self, why: &str) -> Denial {
        let mut denial = refusal(
            self.whom.text(),
            format!(
                "on a connection to `{}`, port {}: {why}",
                self.whom.text(),
                self.port
            ),
            "",
        );
        denial.fix = format!(
            "say what it was opened for; or, for what is neither HTTP nor TLS, add {{ host = \"{}:{}\", protocol = \"tcp\" }} to \
             allowed_hosts in the policy",
            self.whom.text(),
            self.port
        );
        denial
    }

    /// What the guest sends, looked at as its rules demand.
    async fn up(
        &self,
        shared: &Shared,
        rules: &[&Rule],
        from: &mut OwnedReadHalf,
        to: &mut OwnedWriteHalf,
        upgrade: &Upgrade,
    ) -> Ended {
        let opaque = rules.is_empty() || rules.iter().any(|rule| rule.protocol == Protocol::Tcp);
        if opaque {
            return pass(from, to, &shared.outgoing, &self.sent).await;
        }
        let mut beginning = Vec::new();
        let kind = match self.kind(rules, from, &mut beginning).await {
            Ok(kind) => kind,
            Err(ended) => return ended,
        };
        match kind {
            Kind::Nothing => {
                let _ = to.shutdown().await;
                Ended::Done
            }
            Kind::Http => self.requests(shared, rules, (from, to), beginning, upgrade).await,
            Kind::Tls | Kind::Other => {
                if let Err(ended) = self.send(shared, to, &beginning).await {
                    return ended;
                }
                drop(beginning);
                pass(from, to, &shared.outgoing, &self.sent).await
            }
        }
    }

    async fn send(&self, shared: &Shared, to: &mut OwnedWriteHalf, bytes: &[u8]) -> Result<(), Ended> {
        if !shared.outgoing.take(bytes.len() as u64) {
            return Err(Ended::Exhausted(Way::Out));
        }
        to.write_all(bytes).await.map_err(Ended::Failed)?;
        self.sent.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// What the guest begins to speak, checked as far as a beginning can be.
    async fn kind(
        &self,
        rules: &[&Rule],
        from: &mut OwnedReadHalf,
        beginning: &mut Vec<u8>,
    ) -> Result<Kind, Ended> {
        let any = |protocol| rules.iter().any(|rule| rule.protocol == protocol);
        let auto = any(Protocol::Auto);
        let speaks = Speaks {
            http: any(Protocol::Http) || (auto && self.port != 443),
            tls: any(Protocol::Tls) || (auto && self.port != 80),
            anything: auto && !matches!(self.port, 80 | 443),
        };
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
                        return Err(Ended::Refused(
                            "nothing was said that could be looked at".to_owned(),
                        ));
                    }
                }
            };
            reads += 1;
            if reads > MOST_READS {
                return Err(Ended::Refused("its beginning came in too many pieces".to_owned()));
            }
            match read {
                Ok(0) if beginning.is_empty() => return Ok(Kind::Nothing),
                Ok(0) if speaks.anything => return Ok(Kind::Other),
                Ok(0) => return Err(Ended::Refused("it broke off in its beginning".to_owned())),
                Ok(_) => {}
                Err(error) => return Err(Ended::Failed(error)),
            }
            if let Some(kind) = self.judge(beginning, speaks)? {
                return Ok(kind);
            }
            if beginning.len() > LONGEST_BEGINNING {
                return Err(Ended::Refused(
                    "its beginning is too long to be looked at".to_owned(),
                ));
            }
        }
    }

    /// What these first bytes are; nothing while that cannot be told.
    fn judge(&self, beginning: &[u8], speaks: Speaks) -> Result<Option<Kind>, Ended> {
        let refused = |why: &str| Err(Ended::Refused(why.to_owned()));
        if beginning.first().is_some_and(|first| hello::could_be(*first)) {
            if !speaks.tls {
                return refused("it is TLS, and HTTP in the clear was expected");
            }
            return match (hello::read(beginning), &self.whom) {
                (Hello::Unfinished, _) => Ok(None),
                (Hello::Nonsense, _) => refused("it begins like TLS and is none"),
                // Whoever is named by an address may call it what they like.
                (Hello::Named(_) | Hello::Unnamed, Whom::Address(_)) => Ok(Some(Kind::Tls)),
                (Hello::Named(said), Whom::Name(name))
                    if HostName::new(&said).is_ok_and(|said| said == *name) =>
                {
                    Ok(Some(Kind::Tls))
                }
                (Hello::Named(said), _) => refused(&format!("TLS asks for `{}` there", cut(&said))),
                (Hello::Unnamed, _) => refused("TLS does not say whom it asks for"),
            };
        }
        match speaks {
            Speaks { anything: true, .. } => {
                let kind = |is_http| if is_http { Kind::Http } else { Kind::Other };
                Ok(http::begins(beginning).map(kind))
            }
            Speaks { http: true, .. } => Ok(Some(Kind::Http)),
            _ => refused("it is no TLS"),
        }
    }

    /// Requests, each of them looked at.
    async fn requests(
        &self,
        shared: &Shared,
        rules: &[&Rule],
        (from, to): (&mut OwnedReadHalf, &mut OwnedWriteHalf),
        mut came: Vec<u8>,
        upgrade: &Upgrade,
    ) -> Ended {
        let mut requests = Requests::default();
        let mut pass_on = Vec::new();
        let mut permit = |head: &Head| self.permit(rules, head);
        loop {
            pass_on.clear();
            let taken = requests.take(&came, &mut permit, &mut pass_on);
            if requests.waits() {
                upgrade.expect();
            }
            if let Err(ended) = self.send(shared, to, &pass_on).await {
                return ended;
            }
            if let Err(refused) = taken {
                return Ended::Refused(refused.to_string());
            }
            if requests.waits() {
                requests.answered(upgrade.agreed().await);
            }
            came.clear();
            match read_some(from, &mut came).await {
                Ok(0) if requests.is_between() => {
                    let _ = to.shutdown().await;
                    return Ended::Done;
                }
                // Half a request has no answer.
                Ok(0) => return Ended::Failed(std::io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) => return Ended::Failed(error),
            }
        }
    }

    fn permit(&self, rules: &[&Rule], head: &Head) -> Result<(), String> {
        for host in &head.hosts {
            if !self.is_called(host) {
                return Err(format!("a request is for `{}`", cut(host)));
            }
        }
        let speaks_http = |rule: &&&Rule| match rule.protocol {
            Protocol::Http => true,
            Protocol::Auto => self.port != 443,
            Protocol::Tls | Protocol::Tcp => false,
        };
        let mut rules = rules.iter().filter(speaks_http);
        if rules.any(|rule| rule.permits_request(&head.method, &head.path)) {
            Ok(())
        } else {
            let path = cut(&head.path);
            Err(format!(
                "{} {path} is not among what may be asked for",
                head.method
            ))
        }
    }

    /// Whether a request for `host` is one for whom this connection is for.
    fn is_called(&self, host: &str) -> bool {
        let (bare, port) = match host.rsplit_once(':') {
            // Within brackets colons are an address's own.
            Some((bare, port)) if !port.ends_with(']') => (bare, Some(port)),
            _ => (host, None),
        };
        let bare = bare.strip_suffix('.').unwrap_or(bare);
        bare.eq_ignore_ascii_case(&self.whom.text()) && port.is_none_or(|port| port == self.port.to_string())
    }
}

/// What may be spoken on a connection.
#[derive(Clone, Copy)]
struct Speaks {
    http: bool,
    tls: bool,
    /// What is neither as well.
    anything: bool,
}

/// What a guest speaks.
enum Kind {
    /// It said nothing and left.
    Nothing,
    Http,
    Tls,
    Other,
}

/// Whether another protocol is asked for, and what the answer was.
#[derive(Debug, Default)]
struct Upgrade {
    expected: AtomicBool,
    answer: std::sync::OnceLock<bool>,
    known: Notify,
}

impl Upgrade {
    /// The next thing that comes back is the answer.
    fn expect(&self) {
        self.expected.store(true, Ordering::Release);
    }

    /// Waits for it.
    async fn agreed(&self) -> bool {
        loop {
            let heard = self.known.notified();
            if let Some(answer) = self.answer.get() {
                return *answer;
            }
            heard.await;
        }
    }

    fn hear(&self, answer: bool) {
        let _ = self.answer.set(answer);
        self.known.notify_waiters();
    }

    /// Passes on what comes back. The first line is looked at where that is the answer.
    async fn down(
        &self,
        from: &mut OwnedReadHalf,
        to: &mut OwnedWriteHalf,
        shared: &Shared,
        count: &AtomicU64,
    ) -> Ended {
        let mut first = Vec::new();
        loop {
            match read_some(from, &mut first).await {
                Ok(0) => {
                    self.hear(false);
                    let _ = to.write_all(&first).await;
                    let _ = to.shutdown().await;
                    return Ended::Done;
                }
                Ok(_) => {}
                Err(error) => return Ended::Failed(error),
            }
            // What comes before anything was asked for is no answer; it is not held back either.
            let answer = if self.expected.load(Ordering::Acquire) {
                http::agreed(&first)
            } else {
                Some(false)
            };
            if let Some(answer) = answer {
                self.hear(answer);
                break;
            }
        }
        if !shared.incoming.take(first.len() as u64) {
            return Ended::Exhausted(Way::In);
        }
        if let Err(error) = to.write_all(&first).await {
            return Ended::Failed(error);
        }
        count.fetch_add(first.len() as u64, Ordering::Relaxed);
        drop(first);
        pass(from, to, &shared.incoming, count).await
    }
}
