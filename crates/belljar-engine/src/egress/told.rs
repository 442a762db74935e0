//! A connection to a host that is told a secret: requests are looked at, the secret is put into each, and it does not come back.
//!
//! What the guest speaks ends here: HTTP in the clear, or TLS under the engine's own authority. With the host TLS is spoken, unless
//! the policy lets the secret be sent in the clear.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use belljar_core::egress::{HostName, Rule};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, join, split};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::Shared;
use super::authority::Authority;
use super::connection::{Course, End};
use super::dial::Dialled;
use super::http::{Head, Requests};
use super::presence::{gone, listen};
use super::pump::{Stopped, pass, read_some, send, take};
use super::secrets::{Lookout, Told};
use super::speech::{Beginning, Kind, Speaks};
use super::upgrade::Upgrade;

/// How long either side may take to agree on TLS.
const PATIENCE: Duration = Duration::from_secs(10);
/// Where TLS is spoken with those whom guests ask in the clear on the usual port.
const USUAL_TLS: (u16, u16) = (80, 443);

/// What every request says of the form that its answer may have, and does not say: it has to be legible.
const LEGIBLE: [(&str, &[u8]); 4] = [
    ("accept-encoding", b"Accept-Encoding: identity\r\n"),
    ("te", b""),
    ("a-im", b""),
    ("sec-websocket-extensions", b""),
];

type Reads = Box<dyn AsyncRead + Send + Unpin>;
type Writes = Box<dyn AsyncWrite + Send + Unpin>;

/// A host that is told something.
pub(super) struct Confidant<'a> {
    pub name: &'a HostName,
    pub rules: &'a [&'a Rule],
    pub told: Vec<Arc<Told>>,
    pub authority: Arc<Authority>,
}

impl Confidant<'_> {
    /// Serves a guest's connection to it, to its end.
    pub(super) async fn serve(&self, course: &Course, shared: &Arc<Shared>, mut guest: TcpStream) -> End {
        // To end it as one that nobody took, whatever has become of it by then.
        let handle = guest.as_fd().try_clone_to_owned();
        let handle = match handle.and_then(|handle| TcpStream::from_std(handle.into())) {
            Ok(handle) => handle,
            Err(error) => return End::Failed(error.to_string()),
        };
        let _ = guest.set_nodelay(true);
        let mut came = Vec::new();
        let beginning = Beginning {
            speaks: Speaks::of(self.rules, course.port),
            name: Some(self.name),
        };
        let end = match beginning.begin(&mut guest, &mut came).await {
            Ok(Kind::Nothing) => return End::Fine,
            Ok(Kind::Other) => course.stopped(
                shared,
                Stopped::Refused("it is neither HTTP nor TLS, and that host is told a secret".to_owned()),
            ),
            Ok(Kind::Tls) if !self.told.iter().any(|told| told.secret.terminate_tls) => {
                self.pass_by(course, shared, guest, came).await
            }
            Ok(kind) => self.tell(course, shared, kind, (guest, &handle), came).await,
            Err(stopped) => course.stopped(shared, stopped),
        };
        if !matches!(end, End::Fine) {
            let _ = handle.set_zero_linger();
        }
        end
    }

    /// TLS that is none of the engine's business: nothing can be said in it.
    async fn pass_by(&self, course: &Course, shared: &Arc<Shared>, guest: TcpStream, came: Vec<u8>) -> End {
        let server = match course.dial(shared, self.rules, course.port).await {
            Ok(dialled) => dialled.stream,
            Err(end) => return end,
        };
        let (mut reads, mut writes) = guest.into_split();
        let (mut from, mut to) = server.into_split();
        let over = Notify::new();
        let up = async {
            send(&mut to, &came, &shared.outgoing, &course.sent).await?;
            pass(&mut reads, &mut to, &shared.outgoing, &course.sent).await?;
            listen(reads.as_ref(), &over).await
        };
        let down = async {
            pass(&mut from, &mut writes, &shared.incoming, &course.received).await?;
            over.notify_one();
            Ok(())
        };
        let Err(stopped) = tokio::try_join!(up, down) else {
            return End::Fine;
        };
        // Nothing more is said on it, not even that it has ended.
        writes.forget();
        course.stopped(shared, stopped)
    }

    async fn tell(
        &self,
        course: &Course,
        shared: &Arc<Shared>,
        kind: Kind,
        (guest, handle): (TcpStream, &TcpStream),
        came: Vec<u8>,
    ) -> End {
        let is_tls = matches!(kind, Kind::Tls);
        let in_the_clear = !is_tls && self.told.iter().all(|told| told.secret.in_the_clear);
        let port = match course.port {
            port if !in_the_clear && !is_tls && port == USUAL_TLS.0 => USUAL_TLS.1,
            port => port,
        };
        let Dialled {
            stream: server,
            rules,
        } = match course.dial(shared, self.rules, port).await {
            Ok(dialled) => dialled,
            Err(end) => return end,
        };
        let (from, to): (Reads, Writes) = if in_the_clear {
            let (from, to) = split(server);
            (Box::new(from), Box::new(to))
        } else {
            match within(self.speak_with_host(server)).await {
                Ok(stream) => {
                    let (from, to) = split(stream);
                    (Box::new(from), Box::new(to))
                }
                Err(error) => return End::Failed(format!("no TLS with it: {error}")),
            }
        };
        let (reads, writes) = split(guest);
        let (reads, writes, came): (Reads, Writes, Vec<u8>) = if is_tls {
            let began = join(io::Cursor::new(came).chain(reads), writes);
            let accepted = async {
                let acceptor = TlsAcceptor::from(self.authority.server(self.name)?);
                acceptor.accept(began).await
            };
            match within(accepted).await {
                Ok(stream) => {
                    let (reads, writes) = split(stream);
                    (Box::new(reads), Box::new(writes), Vec::new())
                }
                Err(error) => return End::Failed(format!("no TLS with the guest: {error}")),
            }
        } else {
            (Box::new(reads), Box::new(writes), came)
        };
        let upgrade = Upgrade::default();
        let speaks = if is_tls {
            Rule::speaks_tls
        } else {
            Rule::speaks_http
        };
        let permit = |head: &Head| match head.method.as_str() {
            "TRACE" => Err("TRACE has everything sent back, and that host is told a secret".to_owned()),
            _ if head.drops_headers => {
                Err("a header is for the next in line alone, and that host is told a secret".to_owned())
            }
            _ => course.permit(&rules, speaks, head),
        };
        let up = self.requests(course, shared, (reads, to), came, permit, &upgrade);
        let down = self.answers(course, shared, (from, writes), &upgrade);
        // Once the host has ended there is nothing more to say; once the guest has, there is more to hear.
        let up = async {
            up.await?;
            Err(gone(handle).await)
        };
        let ended = tokio::select! {
            ended = down => ended,
            ended = up => ended,
        };
        ended.map_or_else(|stopped| course.stopped(shared, stopped), |()| End::Fine)
    }

    async fn speak_with_host(
        &self,
        server: TcpStream,
    ) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
        let name = ServerName::try_from(self.name.to_string()).map_err(io::Error::other)?;
        TlsConnector::from(self.authority.client())
            .connect(name, server)
            .await
    }

    /// Requests, each of them looked at, with the secrets in it.
    async fn requests(
        &self,
        course: &Course,
        shared: &Shared,
        (mut from, mut to): (Reads, Writes),
        mut came: Vec<u8>,
        mut permit: impl FnMut(&Head) -> Result<(), String>,
        upgrade: &Upgrade,
    ) -> Result<(), Stopped> {
        let mut headers: Vec<_> = self.told.iter().map(|told| told.header()).collect();
        headers.extend(LEGIBLE.map(|(name, line)| (name.to_owned(), line.to_vec())));
        let mut requests = Requests::telling(headers).ending_after_body();
        let mut pass_on = Vec::new();
        loop {
            pass_on.clear();
            let taken = requests.take(&came, &mut permit, &mut pass_on);
            if requests.waits() {
                upgrade.expect();
            }
            // What was put in counts against the limit, and is not told: it would say how long the secret is.
            take(&shared.outgoing, pass_on.len(), &AtomicU64::new(0))?;
            course.sent.fetch_add(came.len() as u64, Ordering::Relaxed);
            to.write_all(&pass_on).await?;
            to.flush().await?;
            taken.map_err(|refused| Stopped::Refused(refused.to_string()))?;
            if requests.continues() {
                upgrade.go_on();
            }
            if requests.waits() {
                requests.answered(upgrade.agreed().await);
            }
            came.clear();
            match read_some(&mut from, &mut came).await {
                Ok(0) => {}
                Ok(_) => continue,
                // Many close TLS without a word.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && requests.is_between() => {}
                Err(error) => return Err(error.into()),
            }
            if !requests.is_between() {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            let _ = to.shutdown().await;
            return Ok(());
        }
    }

    /// What comes back, without the secrets.
    async fn answers(
        &self,
        course: &Course,
        shared: &Shared,
        (mut from, mut to): (Reads, Writes),
        upgrade: &Upgrade,
    ) -> Result<(), Stopped> {
        let mut lookout = Lookout::new(&self.told);
        let mut came = Vec::new();
        let mut more = upgrade.first(&mut from, &mut to, &mut came).await?;
        loop {
            lookout.look(&came).map_err(|name| {
                Stopped::Refused(format!(
                    "it sent the secret `{name}` back, which is not for guests"
                ))
            })?;
            send(&mut to, &came, &shared.incoming, &course.received).await?;
            to.flush().await?;
            if !more {
                let _ = to.shutdown().await;
                return Ok(());
            }
            came.clear();
            more = match read_some(&mut from, &mut came).await {
                Ok(count) => count > 0,
                // Many end TLS without a word. So is it ended with the guest, who knows whether that was all.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                Err(error) => return Err(error.into()),
            };
        }
    }
}

async fn within<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(PATIENCE, work)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}
