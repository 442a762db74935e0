//! For the tests: runs a program as the kernel would, one call at a time.

use super::assemble::{Program, code};

/// What the kernel tells a program about a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub number: u32,
    pub architecture: u32,
    pub arguments: [u64; 6],
}

impl Call {
    /// `struct seccomp_data`. The address of the instruction is one that nothing should look at.
    fn bytes(&self) -> [u8; 64] {
        let mut bytes = [0; 64];
        bytes[..4].copy_from_slice(&self.number.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.architecture.to_ne_bytes());
        bytes[8..16].copy_from_slice(&u64::MAX.to_ne_bytes());
        for (place, argument) in bytes[16..].chunks_exact_mut(8).zip(self.arguments) {
            place.copy_from_slice(&argument.to_ne_bytes());
        }
        bytes
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Instruction {
    pub code: u16,
    pub if_true: u8,
    pub if_false: u8,
    pub value: u32,
}

pub(super) fn instructions(program: &[u8]) -> impl Iterator<Item = Instruction> {
    let chunks = program.chunks_exact(8);
    assert!(chunks.remainder().is_empty(), "half an instruction");
    chunks.map(|bytes| Instruction {
        code: u16::from_ne_bytes([bytes[0], bytes[1]]),
        if_true: bytes[2],
        if_false: bytes[3],
        value: u32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
    })
}

/// What the program answers. Panics where the kernel would not have taken it.
pub(super) fn answer(program: &Program, call: &Call) -> u32 {
    run(&instructions(program.bytes()).collect::<Vec<_>>(), call)
}

/// What a program answers that was taken apart before.
pub(super) fn run(program: &[Instruction], call: &Call) -> u32 {
    let call = call.bytes();
    let (mut at, mut accumulator) = (0, 0u32);
    loop {
        let Instruction {
            code,
            if_true,
            if_false,
            value,
        } = program[at];
        let holds = match code {
            code::RETURN => return value,
            code::LOAD_WORD => {
                let offset = value as usize;
                assert_eq!(offset % 4, 0, "the kernel wants whole words");
                accumulator = u32::from_ne_bytes(call[offset..offset + 4].try_into().unwrap());
                false
            }
            code::AND => {
                accumulator &= value;
                false
            }
            code::JUMP => {
                at += value as usize;
                false
            }
            code::JUMP_EQUAL => accumulator == value,
            code::JUMP_AT_LEAST => accumulator >= value,
            code::JUMP_ANY_BIT => accumulator & value != 0,
            _ => panic!("code {code:#x} is not ours"),
        };
        at += 1 + usize::from(if holds { if_true } else { if_false });
    }
}
