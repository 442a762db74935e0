//! A guest's standard input, on its way to an agent.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use belljar_core::provider::StageStdin;
use belljar_linux::Pump;
use belljar_linux::agent::wire::{PIECE, WINDOW};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

/// What is still to be sent, and how much of what was sent has not arrived.
#[derive(Debug)]
pub(crate) struct Feed {
    source: Source,
    on_its_way: usize,
}

#[derive(Debug)]
enum Source {
    Bytes(Arc<[u8]>, usize),
    Pipe {
        pipe: pipe::Receiver,
        chunk: Vec<u8>,
        /// Kept while it is read.
        _pump: Pump,
    },
    /// Nothing more will come, which has to be told.
    Ends,
    Ended,
}

impl Feed {
    pub(crate) fn new(stdin: StageStdin) -> io::Result<Self> {
        let source = match stdin {
            StageStdin::Empty => Source::Ends,
            StageStdin::Bytes(bytes) => Source::Bytes(bytes, 0),
            StageStdin::Descriptor(source) => pumped(source)?,
        };
        Ok(Self {
            source,
            on_its_way: 0,
        })
    }

    /// The guest has taken so much.
    pub(crate) fn taken(&mut self, count: usize) {
        self.on_its_way = self.on_its_way.saturating_sub(count);
    }

    /// The next piece that may be sent; empty once, at its end. Cancel-safe. Pending where nothing may be sent.
    pub(crate) async fn next(&mut self) -> Vec<u8> {
        let room = (WINDOW - self.on_its_way.min(WINDOW)).min(PIECE);
        let piece = match &mut self.source {
            Source::Ended => return std::future::pending().await,
            Source::Ends => Vec::new(),
            _ if room == 0 => return std::future::pending().await,
            Source::Bytes(bytes, at) => {
                let end = (*at + room).min(bytes.len());
                let piece = bytes.get(*at..end).unwrap_or_default().to_vec();
                *at = end;
                piece
            }
            Source::Pipe { pipe, chunk, .. } => {
                chunk.resize(room, 0);
                // What cannot be read any more has ended.
                let count = pipe.read(chunk).await.unwrap_or(0);
                chunk[..count].to_vec()
            }
        };
        if piece.is_empty() {
            self.source = Source::Ended;
        }
        self.on_its_way += piece.len();
        piece
    }
}

/// The guest never gets a descriptor of the host's, and a terminal or a file is no pipe.
fn pumped(source: OwnedFd) -> io::Result<Source> {
    let (read, pump) = belljar_linux::pump(source)?;
    rustix::io::ioctl_fionbio(&read, true)?;
    Ok(Source::Pipe {
        pipe: pipe::Receiver::from_owned_fd(read)?,
        chunk: Vec::new(),
        _pump: pump,
    })
}
