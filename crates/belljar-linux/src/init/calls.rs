//! System calls as data.
//!
//! What turns a process into a guest is a list of these. Init performs it in a fork of its own, a
//! warm interpreter in one of its forks; what performs it is the same code.

use crate::sys::calls::list;

/// One system call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    /// The step it belongs to.
    pub step: &'static str,
    pub number: i64,
    pub args: Vec<Arg>,
    /// What it must return; anything but an error where this is not said.
    pub expect: Option<i64>,
    /// Whether it may fail.
    pub optional: bool,
    /// Whether it returns a descriptor for init.
    pub send: bool,
    /// Whether it is made only after the process has reported that it is ready. Late calls end a list.
    pub late: bool,
    /// What must stand in the memory of an argument afterwards.
    pub out: Option<(usize, Vec<u8>)>,
}

/// One argument of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Arg {
    Number(i64),
    /// A descriptor of those that come with the list.
    Fd(usize),
    /// What an earlier call of the list returned.
    Result(usize),
    /// The address of memory with these bytes, in which further addresses stand.
    Bytes(Vec<u8>, Vec<(usize, Vec<u8>)>),
}

impl From<i64> for Arg {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl Arg {
    pub(crate) fn bytes(bytes: impl Into<Vec<u8>>) -> Self {
        Self::Bytes(bytes.into(), Vec::new())
    }

    /// A text for the kernel.
    pub(crate) fn text(text: &str) -> Self {
        Self::bytes([text.as_bytes(), b"\0"].concat())
    }
}

impl Call {
    pub(crate) fn new(step: &'static str, number: libc::c_long, args: impl IntoIterator<Item = Arg>) -> Self {
        Self {
            step,
            number,
            args: args.into_iter().collect(),
            expect: None,
            optional: false,
            send: false,
            late: false,
            out: None,
        }
    }

    pub(crate) const fn expect(mut self, result: i64) -> Self {
        self.expect = Some(result);
        self
    }

    pub(crate) const fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    pub(crate) const fn sent(mut self) -> Self {
        self.send = true;
        self
    }

    pub(crate) const fn late(mut self) -> Self {
        self.late = true;
        self
    }

    pub(crate) fn leaving(mut self, argument: usize, bytes: impl Into<Vec<u8>>) -> Self {
        self.out = Some((argument, bytes.into()));
        self
    }
}

/// A list as one piece of memory, ready to be performed (see sys/native/calls.rs).
pub(crate) fn encode(calls: &[Call]) -> Vec<u8> {
    let pointers = |arg: &Arg| match arg {
        Arg::Bytes(_, pointers) => pointers.len(),
        _ => 0,
    };
    let fixes = calls.iter().flat_map(|call| &call.args).map(pointers).sum();
    let head = size_of::<list::Head>() + fixes * size_of::<list::Fix>();
    let mut memory = Memory {
        start: head + calls.len() * size_of::<list::Call>(),
        bytes: Vec::new(),
        fixes: Vec::with_capacity(fixes),
    };
    let late = calls.iter().rev().take_while(|call| call.late).count();
    let calls: Vec<u8> = calls.iter().flat_map(|call| written(call, &mut memory)).collect();
    let count = |number: usize| (number as u32).to_ne_bytes();
    let mut all = Vec::with_capacity(memory.start + memory.bytes.len());
    all.extend(count(fixes));
    all.extend(count(calls.len() / size_of::<list::Call>()));
    all.extend(count(late));
    all.extend(count(0));
    for (place, target) in memory.fixes {
        all.extend(count(place));
        all.extend(count(target));
    }
    all.extend(calls);
    all.extend(memory.bytes);
    all
}

/// What the calls of a list point to.
struct Memory {
    /// Its offset in the list.
    start: usize,
    bytes: Vec<u8>,
    fixes: Vec<(usize, usize)>,
}

impl Memory {
    /// Puts these bytes there, where the kernel may take them for a struct of its own. Returns their offset.
    fn put(&mut self, bytes: &[u8]) -> usize {
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        let offset = self.start + self.bytes.len();
        self.bytes.extend(bytes);
        offset
    }
}

fn written(call: &Call, memory: &mut Memory) -> Vec<u8> {
    let mut kinds = [list::NUMBER; 6];
    let mut values = [0i64; 6];
    for ((arg, kind), value) in call.args.iter().zip(&mut kinds).zip(&mut values) {
        (*kind, *value) = match arg {
            Arg::Number(number) => (list::NUMBER, *number),
            Arg::Fd(index) => (list::FD, *index as i64),
            Arg::Result(index) => (list::RESULT, *index as i64),
            Arg::Bytes(bytes, pointers) => {
                let offset = memory.put(bytes);
                for (at, target) in pointers {
                    let target = memory.put(target);
                    memory.fixes.push((offset + at, target));
                }
                (list::MEMORY, offset as i64)
            }
        };
    }
    let (left, left_in, left_size) = call.out.as_ref().map_or((0, 0, 0), |(argument, bytes)| {
        (
            memory.put(bytes),
            values.get(*argument).map_or(0, |at| *at as usize),
            bytes.len(),
        )
    });
    let flag = |is: bool, flag: u8| if is { flag } else { 0 };
    let flags = flag(call.optional, list::OPTIONAL)
        | flag(call.send, list::SEND)
        | flag(call.expect.is_some(), list::EXPECT);
    let mut bytes = Vec::with_capacity(size_of::<list::Call>());
    bytes.extend((call.number as i32).to_ne_bytes());
    bytes.extend([flags, call.args.len() as u8]);
    bytes.extend(kinds);
    for number in [left, left_in, left_size] {
        bytes.extend((number as u32).to_ne_bytes());
    }
    bytes.extend(call.expect.unwrap_or(0).to_ne_bytes());
    bytes.extend(values.iter().flat_map(|value| value.to_ne_bytes()));
    bytes
}
