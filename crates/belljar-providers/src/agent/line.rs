//! A line to an agent: what is asked is answered in order, and what guests do comes beside it.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use belljar_linux::agent::wire::{GRANTED, HEAD, LARGEST, LIMITS, ask};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::told::{Frames, Told};

/// How long an agent may take to say that it is there.
const HELLO: Duration = Duration::from_secs(60);

/// The most that waits to be listened to: what is granted, and what a guest's pipes held at its end.
const UNHEARD: usize = GRANTED + (16 << 20);

/// What an agent writes, in pieces.
pub(crate) type Incoming = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;
/// Where it reads.
pub(crate) type Outgoing = Pin<Box<dyn AsyncWrite + Send>>;

/// Our end. Once the last who holds it lets go, the agent's input ends, and so does everything that it started.
#[derive(Debug)]
pub(crate) struct Line {
    outgoing: Mutex<Option<UnboundedSender<Vec<u8>>>>,
    /// Who waits for an answer, first come first.
    waiting: Arc<Mutex<VecDeque<UnboundedSender<Told>>>>,
    runtime: Handle,
}

/// An agent that said that it is there.
#[derive(Debug)]
pub(crate) struct Connected {
    pub line: Arc<Line>,
    /// What guests do.
    pub guests: Guests,
    pub pid: u32,
    pub uid: u32,
    pub landlock: u32,
    pub ceilings: [u64; LIMITS],
}

/// What guests do, and how much of it nobody has listened to yet.
#[derive(Debug)]
pub(crate) struct Guests {
    told: UnboundedReceiver<Told>,
    unheard: Arc<AtomicUsize>,
}

impl Guests {
    /// What is done next; nothing once the agent has gone. Cancel-safe.
    pub(crate) async fn recv(&mut self) -> Option<Told> {
        let told = self.told.recv().await?;
        self.unheard.fetch_sub(told.weight(), Ordering::Relaxed);
        Some(told)
    }

    /// The same, if it is there already.
    pub(crate) fn try_recv(&mut self) -> Option<Told> {
        let told = self.told.try_recv().ok()?;
        self.unheard.fetch_sub(told.weight(), Ordering::Relaxed);
        Some(told)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.told.is_closed()
    }
}

impl Line {
    /// Has `runtime` read and write, and waits for the agent's first word.
    pub(crate) async fn connect(
        runtime: &Handle,
        incoming: Incoming,
        outgoing: Outgoing,
    ) -> io::Result<Connected> {
        let waiting = Arc::new(Mutex::new(VecDeque::new()));
        let (say, said) = unbounded_channel();
        let (told, guests) = unbounded_channel();
        let unheard = Arc::new(AtomicUsize::new(0));
        runtime.spawn(write(outgoing, said));
        runtime.spawn(read(incoming, told, Arc::clone(&unheard), Arc::clone(&waiting)));
        let mut guests = Guests {
            told: guests,
            unheard,
        };
        let line = Arc::new(Self {
            outgoing: Mutex::new(Some(say)),
            waiting,
            runtime: runtime.clone(),
        });
        match tokio::time::timeout(HELLO, guests.recv()).await {
            Ok(Some(Told::Hello {
                pid,
                uid,
                landlock,
                ceilings,
            })) => Ok(Connected {
                line,
                guests,
                pid,
                uid,
                landlock,
                ceilings,
            }),
            Ok(Some(_)) => Err(io::Error::other("the agent did not say that it is there")),
            Ok(None) => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the agent ended before it said a word",
            )),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    /// What reads and writes for it.
    pub(crate) const fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Says something that has no answer.
    pub(crate) fn tell(&self, kind: u8, body: &[u8]) {
        // Who is gone needs no telling; that it is gone is heard.
        self.send(frame(kind, body));
    }

    /// Asks, in one or more frames, for something that is answered.
    pub(crate) fn ask(&self, frames: &[(u8, &[u8])]) -> UnboundedReceiver<Told> {
        let (answer, answered) = unbounded_channel();
        let bytes = frames
            .iter()
            .flat_map(|(kind, body)| frame(*kind, body))
            .collect();
        // Together, or another question could come between.
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push_back(answer);
        if !self.send(bytes) {
            waiting.pop_back();
        }
        answered
    }

    fn send(&self, bytes: Vec<u8>) -> bool {
        let outgoing = self.outgoing.lock().unwrap_or_else(PoisonError::into_inner);
        outgoing
            .as_ref()
            .is_some_and(|outgoing| outgoing.send(bytes).is_ok())
    }

    /// Whether the agent is still there.
    pub(crate) fn is_open(&self) -> bool {
        let outgoing = self.outgoing.lock().unwrap_or_else(PoisonError::into_inner);
        outgoing.as_ref().is_some_and(|outgoing| !outgoing.is_closed())
    }

    /// Says nothing more: the agent ends everything and goes.
    pub(crate) fn hang_up(&self) {
        self.outgoing
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
    }

    /// Asks how much has been used; the paths are files of counters.
    pub(crate) fn ask_usage(&self, paths: [&str; 3]) -> UnboundedReceiver<Told> {
        let mut body = Vec::new();
        for path in paths {
            body.extend((path.len() as u32 + 1).to_le_bytes());
            body.extend(path.as_bytes());
            body.push(0);
        }
        self.ask(&[(ask::USAGE, &body)])
    }
}

fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    debug_assert!(body.len() <= LARGEST);
    let mut frame = Vec::with_capacity(HEAD + body.len());
    frame.extend((body.len() as u32).to_le_bytes());
    frame.push(kind);
    frame.extend(body);
    frame
}

async fn write(mut outgoing: Outgoing, mut said: UnboundedReceiver<Vec<u8>>) {
    while let Some(bytes) = said.recv().await {
        if outgoing.write_all(&bytes).await.is_err() || outgoing.flush().await.is_err() {
            return;
        }
    }
    let _ = outgoing.shutdown().await;
}

/// Passes on what comes, until that ends or is no longer understood. Never waits for whoever listens: the agent says no more than it
/// was granted.
async fn read(
    mut incoming: Incoming,
    guests: UnboundedSender<Told>,
    unheard: Arc<AtomicUsize>,
    waiting: Arc<Mutex<VecDeque<UnboundedSender<Told>>>>,
) {
    let mut frames = Frames::default();
    'all: while let Some(Ok(bytes)) = incoming.next().await {
        frames.push(&bytes);
        loop {
            let told = match frames.next() {
                Ok(Some(told)) => told,
                Ok(None) => break,
                Err(_) => break 'all,
            };
            let Some(is_last) = told.answers() else {
                let weight = told.weight();
                // More than any agent says: this is none of ours any more.
                if unheard.fetch_add(weight, Ordering::Relaxed) > UNHEARD {
                    break 'all;
                }
                // Nobody may listen any more.
                let _ = guests.send(told);
                continue;
            };
            let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(answer) = waiting.front() else { break 'all };
            let _ = answer.send(told);
            if is_last {
                waiting.pop_front();
            }
        }
    }
    // Whoever waits for an answer hears that there will be none.
    waiting.lock().unwrap_or_else(PoisonError::into_inner).clear();
}
