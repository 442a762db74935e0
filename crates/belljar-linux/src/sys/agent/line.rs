//! The two streams to the engine.

use super::kernel::{self, EAGAIN, EINTR, Wait};
use super::memory::{Buffer, Queue};
use super::syscall;
use super::wire::{HEAD, LARGEST, PIECE, tell};

const IN: i32 = 0;
const OUT: i32 = 1;
/// What is kept free for words of the agent's own.
const OWN: usize = 8 << 10;

static INCOMING: Buffer<{ LARGEST + HEAD }> = Buffer::new();
static OUTGOING: Buffer<{ 8 * PIECE }> = Buffer::new();

/// The engine has gone.
#[derive(Clone, Copy, Debug)]
pub struct Gone;

pub struct Line {
    incoming: Queue,
    outgoing: Queue,
}

impl Line {
    /// # Safety
    /// To be called once.
    pub unsafe fn new() -> Self {
        kernel::set_nonblocking(IN);
        kernel::set_nonblocking(OUT);
        // SAFETY: the caller calls this once, so nobody else has these.
        let (incoming, outgoing) = unsafe { (INCOMING.get(), OUTGOING.get()) };
        Self {
            incoming: Queue::new(incoming),
            outgoing: Queue::new(outgoing),
        }
    }

    /// What to wait for.
    pub const fn waits(&self) -> [Wait; 2] {
        let wanted = if self.outgoing.is_empty() {
            0
        } else {
            Wait::WRITABLE
        };
        [Wait::new(IN, Wait::READABLE), Wait::new(OUT, wanted)]
    }

    /// Takes in what has come.
    pub fn hear(&mut self) -> Result<(), Gone> {
        let place = self.incoming.free();
        let count = place.len().min(LARGEST / 8);
        match syscall::check(syscall::read(IN, &mut place[..count])) {
            Ok(0) => Err(Gone),
            Ok(count) => {
                self.incoming.grow(count as usize);
                Ok(())
            }
            Err(EAGAIN | EINTR) => Ok(()),
            Err(_) => Err(Gone),
        }
    }

    /// The first whole frame: its kind and its size. It stays until [`Line::done`].
    pub fn frame(&self) -> Result<Option<(u8, usize)>, Gone> {
        let Some(([a, b, c, d, kind], rest)) = self.incoming.bytes().split_first_chunk::<HEAD>() else {
            return Ok(None);
        };
        let size = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
        if size > LARGEST {
            return Err(Gone);
        }
        Ok((rest.len() >= size).then_some((*kind, size)))
    }

    /// The body of that frame.
    pub fn body(&mut self, size: usize) -> &mut [u8] {
        self.incoming
            .bytes_mut()
            .get_mut(HEAD..HEAD + size)
            .unwrap_or(&mut [])
    }

    pub fn done(&mut self, size: usize) {
        self.incoming.take(HEAD + size);
    }

    /// Whether there is room for a piece of output.
    pub const fn has_room(&self) -> bool {
        self.outgoing.room() > HEAD + PIECE + OWN
    }

    /// Sends as much as the engine takes now.
    pub fn flush(&mut self) -> Result<(), Gone> {
        while !self.outgoing.is_empty() {
            match syscall::check(syscall::write(OUT, self.outgoing.bytes())) {
                Ok(count) => self.outgoing.take(count as usize),
                Err(EINTR) => {}
                Err(EAGAIN) => return Ok(()),
                Err(_) => return Err(Gone),
            }
        }
        Ok(())
    }

    /// Sends until there is room for a piece of output.
    pub fn make_room(&mut self) -> Result<(), Gone> {
        self.flush()?;
        while !self.has_room() {
            kernel::poll(&mut [Wait::new(OUT, Wait::WRITABLE)]);
            self.flush()?;
        }
        Ok(())
    }

    /// Says something that consists of these parts.
    pub fn say(&mut self, kind: u8, parts: &[&[u8]]) -> Result<(), Gone> {
        let size: usize = parts.iter().map(|part| part.len()).sum();
        if self.outgoing.room() < HEAD + size {
            self.make_room()?;
        }
        let mut head = [0u8; HEAD];
        head[..4].copy_from_slice(&(size as u32).to_le_bytes());
        head[4] = kind;
        let mut fits = self.outgoing.push(&head);
        for part in parts {
            fits &= self.outgoing.push(part);
        }
        if fits { Ok(()) } else { Err(Gone) }
    }

    pub fn answer(&mut self, errno: i32) -> Result<(), Gone> {
        self.say(tell::DONE, &[&errno.to_le_bytes()])
    }

    /// Passes on what is there on `fd`, at most a piece. 0 at its end.
    pub fn pass(&mut self, kind: u8, fd: i32) -> Result<Passed, Gone> {
        if !self.has_room() {
            self.make_room()?;
        }
        let place = self.outgoing.free();
        let Some(piece) = place.get_mut(HEAD..HEAD + PIECE) else {
            return Err(Gone);
        };
        let count = match syscall::check(syscall::read(fd, piece)) {
            Ok(0) => return Ok(Passed::End),
            Ok(count) => count as usize,
            Err(EINTR) => return Ok(Passed::Some(0)),
            Err(EAGAIN) => return Ok(Passed::Nothing),
            Err(errno) => return Ok(Passed::Failed(errno)),
        };
        place[..4].copy_from_slice(&(count as u32).to_le_bytes());
        place[4] = kind;
        self.outgoing.grow(HEAD + count);
        Ok(Passed::Some(count))
    }
}

pub enum Passed {
    Some(usize),
    Nothing,
    End,
    Failed(i32),
}
