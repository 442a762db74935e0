//! One connection of a guest: whom it is for, whether that may be, and everything that is said on it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use belljar_core::egress::{Event, Host, HostName, Met, Protocol, Rule, cut, refusal};
use belljar_core::{Denial, DenialCode};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Notify;

use super::dial::{Dialled, Dialler, NotDialled, connect};
use super::http::{Head, Requests};
use super::presence::{Asking, listen};
use super::pump::{Stopped, Way, pass, read_some, send};
use super::speech::{Beginning, Kind, Speaks};
use super::told::Confidant;
use super::upgrade::Upgrade;
use super::{Full, Shared};
use crate::execute::now;
use crate::weaken;

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
#[derive(Debug)]
pub(super) struct Course {
    whom: Whom,
    pub port: u16,
    address: OnceLock<IpAddr>,
    rule: OnceLock<String>,
    pub sent: AtomicU64,
    pub received: AtomicU64,
    started_at: f64,
    began: Instant,
    /// Whether somebody was told of it while it was open.
    told: AtomicBool,
}

/// How it ended.
pub(super) enum End {
    Fine,
    Refused(Denial),
    Failed(String),
}

/// Serves one connection to its end, for whom it was asked, and says what came of it.
pub(super) async fn serve(shared: &Arc<Shared>, guest: TcpStream, asked: io::Result<SocketAddr>) {
    let Ok(asked) = asked else {
        refuse(guest);
        return;
    };
    let (address, port) = (asked.ip().to_canonical(), asked.port());
    let name = shared.names().name(address).cloned();
    let course = Arc::new(Course {
        whom: name.map_or(Whom::Address(address), Whom::Name),
        port,
        address: OnceLock::new(),
        rule: OnceLock::new(),
        sent: AtomicU64::new(0),
        received: AtomicU64::new(0),
        started_at: now(),
        began: Instant::now(),
        told: AtomicBool::new(false),
    });
    shared.courses().push(Arc::clone(&course));
    shared.open.send_modify(|count| *count += 1);
    let end = match shared.take_place() {
        Ok(place) => {
            let _ = shared.room().bound(&guest);
            let _ = Asking::NEAR.begin(&guest);
            let mut closing = shared.closing.subscribe();
            let end = tokio::select! {
                end = course.run(shared, guest) => end,
                _ = closing.wait_for(|closing| *closing) => End::Fine,
            };
            drop(place);
            end
        }
        Err(full) => {
            refuse(guest);
            let most = shared.most;
            match full {
                Full::Sandbox => {
                    let message = format!("at most {most} connections may be open at once");
                    End::Refused(limit("max_connections", &course.whom, message))
                }
                Full::Engine => End::Failed("this engine has no room for more connections".to_owned()),
            }
        }
    };
    shared.courses().retain(|other| !Arc::ptr_eq(other, &course));
    shared.log().push(course.event(Some(end)));
    shared.open.send_modify(|count| *count -= 1);
}

/// A name whose addresses nobody may reach, and nobody is told.
pub(super) fn hidden(name: &str, port: u16) -> Denial {
    refusal(
        name,
        format!("`{name}` has no address in the world"),
        &format!("{{ host = \"{name}:{port}\", addresses = [\"…\"] }}"),
    )
}

/// Ends a connection as one that nobody took.
fn refuse(guest: TcpStream) {
    let _ = guest.set_zero_linger();
}

fn limit(field: &str, whom: &Whom, message: String) -> Denial {
    let fix = format!("set {field} to more in the policy");
    Denial::new(DenialCode::HostNotAllowed, field, whom.text(), message, fix)
}

impl Course {
    /// What is told of it once it has ended, or as long as it has not.
    fn event(&self, end: Option<End>) -> Event {
        let open = end.is_none();
        let (denial, error) = match end {
            None | Some(End::Fine) => (None, None),
            Some(End::Refused(denial)) => (Some(denial), None),
            Some(End::Failed(error)) => (None, Some(error)),
        };
        Event {
            kind: Met::Connection,
            allowed: denial.is_none(),
            name: match &self.whom {
                Whom::Name(name) => Some(name.to_string()),
                Whom::Address(_) => None,
            },
            address: match (&self.whom, self.address.get()) {
                (_, Some(address)) | (Whom::Address(address), None) => Some(*address),
                (Whom::Name(_), None) => None,
            },
            port: Some(self.port),
            rule: self.rule.get().cloned(),
            bytes_in: self.received.load(Ordering::Relaxed),
            bytes_out: self.sent.load(Ordering::Relaxed),
            started_at: self.started_at,
            duration: self.began.elapsed().into(),
            open,
            denial,
            error,
        }
    }

    /// The same while it is open, the first time that somebody is told.
    pub(super) fn first_told(&self) -> Option<Event> {
        let is_news = !self.told.swap(true, Ordering::Relaxed);
        is_news.then(|| self.event(None))
    }

    async fn run(&self, shared: &Arc<Shared>, guest: TcpStream) -> End {
        let egress = &shared.egress;
        let rules: Vec<&Rule> = match &self.whom {
            Whom::Name(name) => egress.rules_of(name, self.port).collect(),
            Whom::Address(address) => egress.rules_of_address(*address, self.port).collect(),
        };
        let rules = if rules.is_empty() && weaken::is_off("hostrules") {
            egress.rules.iter().collect()
        } else {
            rules
        };
        if rules.is_empty() {
            refuse(guest);
            return End::Refused(self.unknown());
        }
        if let Whom::Name(name) = &self.whom
            && let Some((told, authority)) = shared.secrets.of(name)
        {
            let host = Confidant {
                name,
                rules: &rules,
                told,
                authority,
            };
            return host.serve(self, shared, guest).await;
        }
        let dialled = match self.dial(shared, &rules, self.port).await {
            Ok(dialled) => dialled,
            Err(end) => {
                refuse(guest);
                return end;
            }
        };
        let _ = guest.set_nodelay(true);
        self.converse(shared, &dialled.rules, guest, dialled.stream).await
    }

    /// Connects to whom it is for, on that port, for those of the rules that permit it.
    pub(super) async fn dial<'a>(
        &self,
        shared: &Shared,
        rules: &[&'a Rule],
        port: u16,
    ) -> Result<Dialled<'a>, End> {
        let dialled = match &self.whom {
            Whom::Name(name) => shared.dialler.dial(rules, name, port, shared.room()).await,
            Whom::Address(address) => {
                let rules = Dialler::fitting(rules, &[*address]);
                if rules.is_empty() {
                    Err(NotDialled::Private(*address))
                } else {
                    let stream = connect(&[*address], port, shared.room()).await;
                    stream
                        .map(|stream| Dialled { stream, rules })
                        .map_err(NotDialled::Failed)
                }
            }
        };
        let dialled = dialled.map_err(|error| match error {
            NotDialled::Private(address) => End::Refused(self.private(rules, address)),
            NotDialled::Failed(error) => {
                self.permitted_by(rules);
                End::Failed(error.to_string())
            }
        })?;
        self.permitted_by(&dialled.rules);
        let gone = |_| End::Failed("it was gone again at once".to_owned());
        let _ = self.address.set(dialled.stream.peer_addr().map_err(gone)?.ip());
        Ok(dialled)
    }

    fn permitted_by(&self, rules: &[&Rule]) {
        if let Some(rule) = rules.first() {
            let _ = self.rule.set(rule.to_string());
        }
    }

    /// It has an address that is not for guests. Whoever may ask for any name is not told which: names and addresses of an inner
    /// network are its own.
    fn private(&self, rules: &[&Rule], address: IpAddr) -> Denial {
        let text = self.whom.text();
        match &self.whom {
            Whom::Name(_) if rules.iter().any(|rule| matches!(rule.host, Host::Name(_))) => refusal(
                address.to_string(),
                format!(
                    "`{text}` has the address {address}, which is not the world's, or this machine's own"
                ),
                &format!(
                    "{{ host = \"{text}:{}\", addresses = [\"{address}\"] }}",
                    self.port
                ),
            ),
            Whom::Name(_) => hidden(&text, self.port),
            Whom::Address(_) => self.unknown(),
        }
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
        let over = Notify::new();
        let up = async {
            self.up(shared, rules, &mut guest_reads, &mut server_writes, &upgrade)
                .await?;
            listen(guest_reads.as_ref(), &over).await
        };
        let down = async {
            let (from, to) = (&mut server_reads, &mut guest_writes);
            upgrade.down(from, to, &shared.incoming, &self.received).await?;
            over.notify_one();
            Ok(())
        };
        let Err(stopped) = tokio::try_join!(up, down) else {
            return End::Fine;
        };
        let end = self.stopped(shared, stopped);
        if let Ok(guest) = guest_reads.reunite(guest_writes) {
            refuse(guest);
        }
        end
    }

    /// What it means that nothing more is passed on.
    pub(super) fn stopped(&self, shared: &Shared, stopped: Stopped) -> End {
        let limits = &shared.egress.limits;
        match stopped {
            Stopped::Exhausted(Way::In) => {
                let message = format!("a run may receive {}", limits.incoming);
                End::Refused(limit("max_receive_mb", &self.whom, message))
            }
            Stopped::Exhausted(Way::Out) => {
                let message = format!("a run may send {}", limits.outgoing);
                End::Refused(limit("max_send_mb", &self.whom, message))
            }
            Stopped::Refused(why) => End::Refused(self.said_something_else(&why)),
            Stopped::Left => End::Fine,
            Stopped::Failed(error) => End::Failed(error.to_string()),
        }
    }

    fn said_something_else(&self, why: &str) -> Denial {
        let (text, port) = (self.whom.text(), self.port);
        Denial::new(
            DenialCode::HostNotAllowed,
            "allowed_hosts",
            &text,
            format!("on a connection to `{text}`, port {port}: {why}"),
            format!(
                "say what it was opened for; or, for what is neither HTTP nor TLS, add {{ host = \"{text}:{port}\", protocol = \"tcp\" }} \
                 to allowed_hosts in the policy"
            ),
        )
    }

    /// What the guest sends, looked at as its rules demand.
    async fn up(
        &self,
        shared: &Shared,
        rules: &[&Rule],
        from: &mut OwnedReadHalf,
        to: &mut OwnedWriteHalf,
        upgrade: &Upgrade,
    ) -> Result<(), Stopped> {
        if rules.iter().any(|rule| rule.protocol == Protocol::Tcp) {
            return pass(from, to, &shared.outgoing, &self.sent).await;
        }
        let beginning = Beginning {
            speaks: Speaks::of(rules, self.port),
            name: match &self.whom {
                Whom::Name(name) => Some(name),
                Whom::Address(_) => None,
            },
        };
        let mut came = Vec::new();
        match beginning.begin(from, &mut came).await? {
            Kind::Nothing => {
                let _ = to.shutdown().await;
                Ok(())
            }
            Kind::Http => self.requests(shared, rules, (from, to), came, upgrade).await,
            Kind::Tls | Kind::Other => {
                send(to, &came, &shared.outgoing, &self.sent).await?;
                drop(came);
                pass(from, to, &shared.outgoing, &self.sent).await
            }
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
    ) -> Result<(), Stopped> {
        let mut requests = Requests::default().ending_after_body();
        let mut pass_on = Vec::new();
        let mut permit = |head: &Head| self.permit(rules, Rule::speaks_http, head);
        loop {
            pass_on.clear();
            let taken = requests.take(&came, &mut permit, &mut pass_on);
            if requests.waits() {
                upgrade.expect();
            }
            send(to, &pass_on, &shared.outgoing, &self.sent).await?;
            taken.map_err(|refused| Stopped::Refused(refused.to_string()))?;
            if requests.continues() {
                upgrade.go_on();
            }
            if requests.waits() {
                requests.answered(upgrade.agreed().await);
            }
            came.clear();
            if read_some(from, &mut came).await? > 0 {
                continue;
            }
            if !requests.is_between() {
                // Half a request has no answer.
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            let _ = to.shutdown().await;
            return Ok(());
        }
    }

    /// Whether a request may go on, by those of the rules that have it spoken that way.
    pub(super) fn permit(
        &self,
        rules: &[&Rule],
        speaks: fn(&Rule, u16) -> bool,
        head: &Head,
    ) -> Result<(), String> {
        for host in &head.hosts {
            if !self.is_called(host) && !weaken::is_off("requesthost") {
                return Err(format!("a request is for `{}`", cut(host)));
            }
        }
        let mut rules = rules
            .iter()
            .filter(|rule| rule.protocol == Protocol::Tcp || speaks(rule, self.port));
        let unclear = |rule: &&&Rule| head.overrides && rule.looks_into_requests();
        if rules.any(|rule| rule.permits_request(&head.method, &head.path) && !unclear(&rule)) {
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
