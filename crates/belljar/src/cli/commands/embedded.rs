//! `belljar embedded`: the engine of one other program, for as long as that lives.
//!
//! Its standard input is a socket of packets, the other end of which only that program has. Each packet brings one
//! descriptor, which is a connection to serve. So there is no port, no file and no key, and nobody else can come.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::thread;
use std::time::Duration;

use belljar::native_engine;
use belljar_server::http::{self, Listen};
use belljar_server::service::{Callers, GateSettings, Opened, Service, Settings};
use belljar_server::store::Place;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketType, sockopt};
use rustix::process::{Pid, PidfdFlags, getppid, pidfd_open};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};

use super::super::args::EmbeddedArgs;
use super::super::interrupts::Interrupts;
use super::super::problem::Problem;
use super::serve::{of_store, start_log};
use crate::cli::settings::LogForm;

/// What both sides must agree about.
const PROTOCOL: u32 = 1;
/// The largest body of a request: files travel in it.
const LARGEST_BODY: usize = 256 << 20;
/// How long the rest may take at the end, when nobody waits for it any more.
const ENDING: Duration = Duration::from_secs(5);
/// Nobody but the owner comes, and may be silent for as long as it likes.
const FOR_EVER: Duration = Duration::from_secs(86_400 * 365);

pub(crate) fn embedded(args: &EmbeddedArgs) -> Result<u8, Problem> {
    // One caller's run is handed from task to task several times. Between threads each of these would take longer than
    // what is done in between; what takes long is done elsewhere anyway.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Problem::engine(format!("cannot start an asynchronous runtime: {error}")))?;
    start_log(LogForm::Text, "error", None);
    runtime.block_on(run(args.parent))
}

async fn run(parent: u32) -> Result<u8, Problem> {
    let control = control()?;
    let owner = owner(parent)?;
    let mut interrupts = Interrupts::listen()?;
    let settings = Settings {
        store: Place::memory(),
        gate: gate(),
        callers: Callers::Owner,
        policies: Vec::new(),
        keep_results: Duration::from_secs(3600),
        retention: None,
        sessions: usize::MAX,
        approval_time: Duration::from_secs(3600),
        webhook: None,
    };
    let Opened { service, .. } = Service::open(native_engine(), settings)
        .await
        .map_err(|error| of_store(&error))?;
    greet(&control)?;
    let (sender, receiver) = mpsc::channel(64);
    let (tell, gone) = oneshot::channel();
    let hand_over = move || {
        // Whatever the reason is, nobody comes any more.
        let _ = hand_over(&control, &owner, &sender);
        let _ = tell.send(());
    };
    thread::Builder::new()
        .name("connections".to_owned())
        .spawn(hand_over)
        .map_err(|error| Problem::engine(format!("cannot start a thread: {error}")))?;
    let end = async move {
        tokio::select! {
            _ = gone => {}
            _ = interrupts.next() => {}
        }
    };
    let limits = http::Limits {
        head: FOR_EVER,
        ending: Duration::ZERO,
        ..http::Limits::default()
    };
    // Nobody but the owner has the socket, and the owner may call it what it likes.
    let router = http::router(
        service.clone(),
        http::RouterOptions::new(LARGEST_BODY, http::Hosts::any()),
    );
    let served = http::serve(Handed(receiver), router, limits, end).await;
    let ended = tokio::time::timeout(ENDING, service.shut_down(Duration::ZERO)).await;
    served.map_err(|error| Problem::engine(format!("cannot go on serving: {error}")))?;
    ended.map_err(|_| Problem::engine("sandboxes did not end in time"))?;
    Ok(0)
}

/// The places are all for one.
fn gate() -> GateSettings {
    let ordinary = GateSettings::default();
    GateSettings {
        share: ordinary.places,
        queue: 1 << 20,
        ..ordinary
    }
}

fn control() -> Result<OwnedFd, Problem> {
    let stdin = io::stdin();
    let is_ours = sockopt::socket_type(stdin.as_fd()).is_ok_and(|kind| kind == SocketType::SEQPACKET);
    if !is_ours {
        return Err(Problem::usage("standard input is not the socket of a program")
            .hint("SDKs start this command; to serve others, use belljar serve"));
    }
    stdin
        .as_fd()
        .try_clone_to_owned()
        .map_err(|error| Problem::engine(format!("cannot take the program's socket: {error}")))
}

/// A handle of the process that this one belongs to. Its forks may keep the socket open, so that alone says nothing.
fn owner(parent: u32) -> Result<OwnedFd, Problem> {
    let gone = || Problem::engine("the program that started this is gone");
    let pid = i32::try_from(parent)
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(gone)?;
    let handle = pidfd_open(pid, PidfdFlags::empty()).map_err(|_| gone())?;
    // Only now is it sure that the handle is the parent's and not of one that has got its number since.
    if getppid() != Some(pid) {
        return Err(gone());
    }
    Ok(handle)
}

/// Says that connections can come.
fn greet(control: &OwnedFd) -> Result<(), Problem> {
    let greeting = serde_json::json!({ "belljar": env!("CARGO_PKG_VERSION"), "protocol": PROTOCOL });
    rustix::net::send(control, greeting.to_string().as_bytes(), SendFlags::NOSIGNAL)
        .map(drop)
        .map_err(|_| Problem::engine("the program that started this is gone"))
}

/// Hands connections over until the program lets go of its socket, or is gone.
fn hand_over(control: &OwnedFd, owner: &OwnedFd, connections: &mpsc::Sender<StdStream>) -> io::Result<()> {
    loop {
        let mut watched = [
            PollFd::new(owner, PollFlags::IN),
            PollFd::new(control, PollFlags::IN),
        ];
        match poll(&mut watched, None) {
            Err(Errno::INTR) => continue,
            polled => polled?,
        };
        if !watched[0].revents().is_empty() {
            return Ok(());
        }
        match receive(control)? {
            None => return Ok(()),
            Some(None) => {}
            Some(Some(connection)) => {
                let connection = StdStream::from(connection);
                connection.set_nonblocking(true)?;
                if connections.blocking_send(connection).is_err() {
                    return Ok(());
                }
            }
        }
    }
}

/// One packet and the descriptor that it brings; none at the end.
fn receive(control: &OwnedFd) -> Result<Option<Option<OwnedFd>>, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0; 1];
    let received = rustix::net::recvmsg(
        control,
        &mut [io::IoSliceMut::new(&mut byte)],
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let brought = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    match (received.bytes, brought) {
        (0, None) => Ok(None),
        (_, brought) => Ok(Some(brought)),
    }
}

/// Connections that were handed over.
struct Handed(mpsc::Receiver<StdStream>);

impl Listen for Handed {
    type Connection = UnixStream;

    async fn accept(&mut self, _: &http::Limits) -> io::Result<UnixStream> {
        match self.0.recv().await {
            Some(connection) => UnixStream::from_std(connection),
            // The end is told elsewhere.
            None => std::future::pending().await,
        }
    }
}
