//! Frames on a socket: a length of four bytes, then as many, with descriptors beside the first byte.

use core::cell::UnsafeCell;

use super::syscall::{self, number};

/// The kernel's limit for one message.
pub const MOST_FDS: usize = 253;

/// The other side has gone, or says what it must not say.
#[derive(Clone, Copy, Debug)]
pub struct Gone;

#[repr(C)]
struct Vector {
    base: *mut u8,
    size: usize,
}

#[repr(C)]
struct Message {
    name: usize,
    name_size: usize,
    vectors: *mut Vector,
    vector_count: usize,
    control: *mut u8,
    control_size: usize,
    flags: usize,
}

#[repr(C, align(8))]
struct Control {
    size: usize,
    level: i32,
    kind: i32,
    fds: [i32; MOST_FDS + 1],
}

impl Control {
    const HEAD: usize = 16;

    const fn new() -> Self {
        Self {
            size: 0,
            level: 0,
            kind: 0,
            fds: [-1; MOST_FDS + 1],
        }
    }
}

const SOCKET: i32 = 1;
const RIGHTS: i32 = 1;
const EINTR: i64 = -4;
const ETOOMANYREFS: i64 = -109;
const CLOSE_ON_EXEC: i64 = 0x4000_0000;
const NO_SIGNAL: i64 = 0x4000;

/// Memory of which nothing is touched but what is used: the rest costs a fork nothing.
#[repr(align(16))]
pub struct Buffer<const N: usize>(UnsafeCell<[u8; N]>);

// SAFETY: whoever takes it answers for being alone.
unsafe impl<const N: usize> Sync for Buffer<N> {}

impl<const N: usize> Buffer<N> {
    pub const fn new() -> Self {
        Self(UnsafeCell::new([0; N]))
    }

    /// # Safety
    /// There must be no other user of it.
    #[expect(clippy::mut_from_ref, reason = "it is what the caller promises")]
    pub unsafe fn get(&self) -> &mut [u8; N] {
        // SAFETY: the caller has it alone.
        unsafe { &mut *self.0.get() }
    }
}

/// Descriptors that came with a frame.
pub struct Fds {
    pub all: [i32; MOST_FDS],
    pub count: usize,
}

impl Fds {
    pub fn as_slice(&self) -> &[i32] {
        self.all.get(..self.count).unwrap_or(&[])
    }

    pub fn close(&self) {
        self.as_slice().iter().copied().for_each(syscall::close);
    }
}

/// Takes one frame, which must fit into `memory`. Returns its body and its descriptors.
pub fn receive(socket: i32, memory: &mut [u8]) -> Result<(&mut [u8], Fds), Gone> {
    let mut head = [0u8; 4];
    let mut control = Control::new();
    let mut vector = Vector {
        base: head.as_mut_ptr(),
        size: head.len(),
    };
    let mut message = Message {
        name: 0,
        name_size: 0,
        vectors: &raw mut vector,
        vector_count: 1,
        control: (&raw mut control).cast(),
        control_size: size_of::<Control>(),
        flags: 0,
    };
    let got = loop {
        let args = [i64::from(socket), &raw mut message as i64, CLOSE_ON_EXEC, 0, 0, 0];
        // SAFETY: the message points to live memory of the sizes that it says.
        match unsafe { syscall::call(number::RECVMSG, args) } {
            EINTR => {}
            got => break got,
        }
    };
    let mut fds = Fds {
        all: [-1; MOST_FDS],
        count: 0,
    };
    if message.control_size >= Control::HEAD && control.level == SOCKET && control.kind == RIGHTS {
        fds.count = (control.size.saturating_sub(Control::HEAD) / 4).min(MOST_FDS);
        fds.all.copy_from_slice(&control.fds[..MOST_FDS]);
    }
    let whole = (1..=4)
        .contains(&got)
        .then_some(got as usize)
        .and_then(|got| head.get_mut(got..))
        .is_some_and(|rest| exactly(socket, rest));
    let body = memory.get_mut(..u32::from_le_bytes(head) as usize);
    if whole
        && let Some(body) = body
        && exactly(socket, body)
    {
        return Ok((body, fds));
    }
    fds.close();
    Err(Gone)
}

fn exactly(socket: i32, mut bytes: &mut [u8]) -> bool {
    while !bytes.is_empty() {
        match syscall::read(socket, bytes) {
            EINTR => {}
            got if got > 0 => bytes = bytes.split_at_mut((got as usize).min(bytes.len())).1,
            _ => return false,
        }
    }
    true
}

/// Sends one frame, and a descriptor with it.
pub fn send(socket: i32, body: &[u8], fd: Option<i32>) -> Result<(), Gone> {
    let mut frame = [0u8; 256];
    let size = 4 + body.len();
    let frame = frame.get_mut(..size).ok_or(Gone)?;
    let (head, rest) = frame.split_at_mut(4);
    head.copy_from_slice(&(body.len() as u32).to_le_bytes());
    rest.copy_from_slice(body);
    let mut control = Control::new();
    (control.size, control.level, control.kind) = (Control::HEAD + 4, SOCKET, RIGHTS);
    control.fds[0] = fd.unwrap_or(-1);
    let (mut sent, mut tries) = (0usize, 0);
    while sent < size {
        let rest = frame.get_mut(sent..).ok_or(Gone)?;
        let mut vector = Vector {
            base: rest.as_mut_ptr(),
            size: rest.len(),
        };
        let message = Message {
            name: 0,
            name_size: 0,
            vectors: &raw mut vector,
            vector_count: 1,
            control: (&raw mut control).cast(),
            control_size: if fd.is_some() && sent == 0 {
                Control::HEAD + 8
            } else {
                0
            },
            flags: 0,
        };
        let args = [i64::from(socket), &raw const message as i64, NO_SIGNAL, 0, 0, 0];
        // SAFETY: the message points to live memory of the sizes that it says.
        match unsafe { syscall::call(number::SENDMSG, args) } {
            EINTR => {}
            // The kernel counts descriptors that are under way for all of a user's processes together: a matter of time.
            ETOOMANYREFS if tries < 1000 => {
                tries += 1;
                syscall::poll([], Some(2));
            }
            count if count > 0 => sent += count as usize,
            _ => return Err(Gone),
        }
    }
    Ok(())
}
