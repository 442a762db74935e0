//! A zygote's client: has it fork guests into shells, and hears when they end.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::json;
use tokio::sync::oneshot;

use super::listener::Listener;
use super::nursery::Nursery;
use crate::init::calls::{self, Arg, Call};
use crate::init::steps::GUEST_ID;
use crate::wire::{self, HostIds, NAMESPACE_NAMES, ZygoteSpec};

/// A warm interpreter. It ends when the last handle is dropped.
#[derive(Debug)]
pub(crate) struct Zygote {
    listener: Listener,
    /// Held while sending: frames of two callers must not mix.
    sending: Mutex<()>,
    shared: Arc<Shared>,
    host_ids: HostIds,
    _nursery: Arc<Nursery>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    life: Life,
    next: u64,
    guests: HashMap<u64, oneshot::Sender<GuestEnd>>,
}

/// Where a zygote is in its life.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Life {
    #[default]
    Starting,
    Ready,
    /// It cannot fork, and why.
    Unfit(String),
    Lost,
}

/// What a guest is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Purpose {
    /// One program, from its start to its end.
    Program,
    /// The cells of a session.
    Cells,
}

/// What a fork is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Errand {
    pub purpose: Purpose,
    /// Whether it touches beforehand what it will need: a fork's first write to a page takes the kernel a copy, and
    /// nobody needs to wait for that.
    pub rehearse: bool,
    /// Whether its end is to be told before its memory is taken down.
    pub hold: bool,
}

impl Errand {
    /// As the zygote reads it.
    const fn flags(self) -> i32 {
        let program = matches!(self.purpose, Purpose::Program);
        program as i32 | (self.rehearse as i32) << 1 | (self.hold as i32) << 2
    }
}

/// How a guest ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GuestEnd {
    /// The kernel's wait status.
    pub status: i32,
    pub cpu: Duration,
}

/// A guest that was asked for. Reports `RecvError` if it could not be forked or the zygote is lost.
pub(crate) type Ended = oneshot::Receiver<GuestEnd>;

#[derive(Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event {
    Ready,
    Unfit {
        why: String,
    },
    NotForked {
        guest: u64,
    },
    Ended {
        guest: u64,
        status: i32,
        cpu_micros: u64,
    },
}

impl Zygote {
    /// Starts a zygote that imports `modules` before it forks.
    pub(crate) fn start(
        nursery: Arc<Nursery>,
        host_ids: HostIds,
        spec: ZygoteSpec,
        modules: &[String],
    ) -> io::Result<Arc<Self>> {
        let (socket, theirs) = wire::pair()?;
        nursery.start_zygote(spec, theirs)?;
        wire::send_json(&socket, &json!({ "op": "import", "modules": modules }), &[])?;
        let shared = Arc::new(Shared::default());
        let told = Arc::clone(&shared);
        let listener = Listener::start("belljar-zygote", socket, move |socket| listen(socket, &told))?;
        Ok(Arc::new(Self {
            listener,
            sending: Mutex::new(()),
            shared,
            host_ids,
            _nursery: nursery,
        }))
    }

    pub(crate) fn life(&self) -> Life {
        lock(&self.shared.state).life.clone()
    }

    /// Waits until it can fork or never will, at most so long.
    pub(crate) fn wait(&self, most: Duration) -> Life {
        let until = Instant::now() + most;
        let mut state = lock(&self.shared.state);
        while state.life == Life::Starting {
            let Some(left) = until.checked_duration_since(Instant::now()) else {
                break;
            };
            state = self
                .shared
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        state.life.clone()
    }

    /// Has a guest forked into the shell of `namespaces` (see [`NAMESPACE_NAMES`]) and its groups; it then
    /// reads what it has to do from `channel`.
    pub(crate) fn fork(
        &self,
        namespaces: &[OwnedFd],
        channel: BorrowedFd<'_>,
        groups: &[OwnedFd],
        errand: Errand,
    ) -> io::Result<Ended> {
        let (sender, ended) = oneshot::channel();
        let guest = {
            let mut state = lock(&self.shared.state);
            if state.life != Life::Ready {
                return Err(io::ErrorKind::NotConnected.into());
            }
            let guest = state.next;
            state.next += 1;
            state.guests.insert(guest, sender);
            guest
        };
        let message = request(guest, errand, &entering(self.host_ids, groups.len()));
        let fds: Vec<BorrowedFd<'_>> = namespaces
            .iter()
            .map(AsFd::as_fd)
            .chain([channel])
            .chain(groups.iter().map(AsFd::as_fd))
            .collect();
        let sent = {
            let _sending = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
            wire::send_bytes(self.listener.socket(), &message, &fds)
        };
        if let Err(error) = sent {
            lock(&self.shared.state).guests.remove(&guest);
            return Err(error);
        }
        Ok(ended)
    }
}

/// What a zygote is asked (see guest/PROTOCOL.md).
fn request(guest: u64, errand: Errand, calls: &[Call]) -> Vec<u8> {
    let (channel, pid_namespace) = (NAMESPACE_NAMES.len() as i32, 0i32);
    let mut bytes = guest.to_le_bytes().to_vec();
    for word in [channel, pid_namespace, errand.flags(), 0] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(calls::encode(calls));
    bytes
}

/// What takes a fork into a shell: its groups, its namespaces, its one user.
fn entering(host_ids: HostIds, groups: usize) -> Vec<Call> {
    let first_group = NAMESPACE_NAMES.len() + 1;
    let id = i64::from(GUEST_ID);
    let three = || [id.into(), id.into(), id.into()];
    let mut calls = Vec::new();
    // Before it uses anything there.
    for group in first_group..first_group + groups {
        let args = [Arg::Fd(group), Arg::bytes(*b"0"), 1.into()];
        calls.push(Call::new("JoinCgroups", libc::SYS_write, args).expect(1));
    }
    // The pid namespace comes first in the list; it was born into that.
    for (index, (_, kind)) in NAMESPACE_NAMES.iter().enumerate().skip(1) {
        let args = [Arg::Fd(index), i64::from(*kind).into()];
        calls.push(Call::new("EnterShell", libc::SYS_setns, args).expect(0));
    }
    if host_ids == HostIds::Fresh {
        calls.push(Call::new("BecomeGuestUser", libc::SYS_setgroups, [0.into(), 0.into()]).expect(0));
    }
    calls.push(Call::new("BecomeGuestUser", libc::SYS_setresgid, three()).expect(0));
    calls.push(Call::new("BecomeGuestUser", libc::SYS_setresuid, three()).expect(0));
    calls
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn listen(socket: &OwnedFd, shared: &Shared) {
    while let Ok((event, _)) = wire::receive_json::<Event>(socket) {
        let mut state = lock(&shared.state);
        match event {
            Event::Ready => state.life = Life::Ready,
            Event::Unfit { why } => state.life = Life::Unfit(why),
            Event::NotForked { guest } => drop(state.guests.remove(&guest)),
            Event::Ended {
                guest,
                status,
                cpu_micros,
            } => {
                if let Some(sender) = state.guests.remove(&guest) {
                    let _ = sender.send(GuestEnd {
                        status,
                        cpu: Duration::from_micros(cpu_micros),
                    });
                }
            }
        }
        drop(state);
        shared.changed.notify_all();
    }
    let mut state = lock(&shared.state);
    if !matches!(state.life, Life::Unfit(_)) {
        state.life = Life::Lost;
    }
    // Dropping the senders tells everyone who waits.
    state.guests.clear();
    drop(state);
    shared.changed.notify_all();
}
