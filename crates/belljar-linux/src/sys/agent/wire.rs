//! What the engine and the agent say to each other: frames on two streams, one for each direction.
//!
//! A frame is a length of four bytes, a kind, and as many bytes as the length says. Numbers are little-endian. The engine asks
//! one thing at a time, apart from what a running guest is given; the agent answers in order.

pub const VERSION: u32 = 2;
/// The length and the kind.
pub const HEAD: usize = 5;
/// How many resource limits there are.
pub const LIMITS: usize = 16;
/// The longest frame that the agent takes.
pub const LARGEST: usize = 4 << 20;
/// The most bytes of a file or a stream in one frame.
pub const PIECE: usize = 64 << 10;
/// How much of a guest's input, and of what is said to it, may be on its way.
pub const WINDOW: usize = 256 << 10;
/// How much of what a guest writes and says may be told before the engine asks for more: then a guest that is not listened to
/// fills its own pipes and nothing else.
pub const GRANTED: usize = 1 << 20;

/// Kinds of what the engine says.
pub mod ask {
    /// `how` (a byte), a limit (8 bytes), a path: what stands there, and its content where it is a regular file.
    pub const READ: u8 = 1;
    /// A mode (4 bytes), a path below the work directory: a new file there.
    pub const WRITE: u8 = 2;
    /// A piece of that file.
    pub const CONTENT: u8 = 3;
    /// The end of that file.
    pub const CLOSE: u8 = 4;
    /// A path below the work directory, or nothing for that itself: what is in it.
    pub const LIST: u8 = 5;
    /// A path below the work directory: it and everything below it goes.
    pub const REMOVE: u8 = 6;
    /// A guest: see [`super::WITH_CHANNEL`].
    pub const START: u8 = 7;
    /// A piece of its standard input.
    pub const INPUT: u8 = 8;
    pub const INPUT_END: u8 = 9;
    /// A piece of what is said to it on its channel.
    pub const SAY: u8 = 10;
    /// A signal's number (4 bytes) for it.
    pub const SIGNAL: u8 = 11;
    /// It and everything else is to end.
    pub const END: u8 = 12;
    /// Three paths, each a length (4 bytes) and a NUL-terminated text: files of counters. What has been used so far.
    pub const USAGE: u8 = 13;
    /// So many more bytes (4 bytes) of what the guest writes and says may be told.
    pub const GRANT: u8 = 14;
}

/// Kinds of what the agent says.
pub mod tell {
    /// The version, its pid, its uid, Landlock's version or 0: 4 bytes each. Then the most that each of its resource limits can be
    /// raised to, by their numbers: 8 bytes each.
    pub const HELLO: u8 = 64;
    /// Mode (4 bytes), size, device and inode (8 bytes each) of what stands there.
    pub const FOUND: u8 = 65;
    pub const CONTENT: u8 = 66;
    /// An errno (4 bytes), 0 where all went well. The last of every answer.
    pub const DONE: u8 = 67;
    /// Mode (4 bytes), size (8 bytes), name.
    pub const ENTRY: u8 = 68;
    pub const STARTED: u8 = 69;
    /// The call that failed (4 bytes; see `STEP_`), an errno (4 bytes).
    pub const NOT_STARTED: u8 = 70;
    pub const STDOUT: u8 = 71;
    pub const STDERR: u8 = 72;
    /// A piece of what the guest says on its channel.
    pub const SAID: u8 = 73;
    /// It has closed its channel.
    pub const SILENT: u8 = 74;
    /// Its wait status (4 bytes), the processor time of everything that has ended (8 bytes, in microseconds), the largest
    /// memory of one process (8 bytes, in KiB). Nothing else is alive, and all it wrote has been told.
    pub const ENDED: u8 = 75;
    /// `ask::INPUT` or `ask::SAY` (a byte), and how many bytes of it were taken (4 bytes).
    pub const TAKEN: u8 = 76;
    /// Processor time (8 bytes, in microseconds), memory (8 bytes), processes (4 bytes), then the three files, each a
    /// length (4 bytes) and its bytes.
    pub const USAGE: u8 = 77;
}

/// `how` of [`ask::READ`]: any path, and links are followed. Otherwise below the work directory, and they are not.
pub const ANYWHERE: u8 = 1;
/// `how` of [`ask::READ`]: any path that is a link, and its content is where it points to.
pub const LINK: u8 = 2;

/// A guest that has a channel; of the first byte of [`ask::START`]. After it, each with a length of four bytes before it:
/// Landlock's rules (none: empty), the list of calls, then the words, the variables and the programs to try. Those three are a count
/// of four bytes, then as many texts with a length before and a NUL at the end.
pub const WITH_CHANNEL: u8 = 1;

/// Steps that are no calls of the list.
pub const STEP_FORK: u32 = 1000;
pub const STEP_LANDLOCK: u32 = 1001;
pub const STEP_EXEC: u32 = 1002;
pub const STEP_STREAMS: u32 = 1003;
