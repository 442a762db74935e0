//! A small assembler for the kernel's classic packet filters, which seccomp takes.
//!
//! A program is written as a tree of decisions. It is laid out from its end, since a jump only leads
//! forward: what a decision leads to has its place before the decision itself gets one. So there is
//! no label that nobody has set and no jump back, and a jump too far for its eight bits is seen at
//! once. Equal decisions are laid out once. What is decided is not for here: see `compile.rs`.

use std::collections::HashMap;

/// What to do next with a call. A comparison looks at what was loaded last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Answer(Answer),
    Load(Word, Box<Decision>),
    /// Keeps these bits of what was loaded.
    Mask(u32, Box<Decision>),
    When {
        is: Comparison,
        yes: Box<Decision>,
        no: Box<Decision>,
    },
}

impl Decision {
    pub(super) const ALLOW: Self = Self::Answer(Answer::Allow);
    /// EPERM.
    pub(super) const REFUSE: Self = Self::errno(libc::EPERM);
    /// ENOSYS, as on a kernel that does not have the call.
    pub(super) const UNKNOWN: Self = Self::errno(libc::ENOSYS);
    /// The call succeeds without being carried out.
    pub(super) const IGNORE: Self = Self::errno(0);
    pub(super) const HAND_OVER: Self = Self::Answer(Answer::HandOver);
    pub(super) const KILL: Self = Self::Answer(Answer::Kill);

    /// The call fails with this error.
    pub(super) const fn errno(errno: i32) -> Self {
        Self::Answer(Answer::Errno(errno as u16))
    }
}

pub(super) fn load(word: Word, then: Decision) -> Decision {
    Decision::Load(word, then.into())
}

pub(super) fn when(is: Comparison, yes: Decision, no: Decision) -> Decision {
    Decision::When {
        is,
        yes: yes.into(),
        no: no.into(),
    }
}

/// What the filter returns for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Answer {
    Allow,
    /// The call fails with this error.
    Errno(u16),
    /// The call waits until the process that holds the listener answers it.
    HandOver,
    /// The kernel kills the process.
    Kill,
}

/// A word of what the kernel says about a call. Arguments have two: low and high.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Word {
    Number,
    Architecture,
    Low(u8),
    High(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Comparison {
    Equal(u32),
    AtLeast(u32),
    /// At least one of these bits is set.
    AnyBit(u32),
}

/// A program as the kernel takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program(Vec<u8>);

impl Program {
    pub(super) fn assemble(decision: &Decision) -> Self {
        let mut layout = Layout::default();
        let start = layout.place(decision);
        layout.go_to(start);
        let instructions = layout.backwards.iter().rev();
        Self(instructions.flat_map(|instruction| instruction.bytes()).collect())
    }

    /// Instructions of eight bytes each: code (2), jump if true (1), jump if false (1), value (4),
    /// in the order of this machine.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Answer {
    pub(super) const fn value(self) -> u32 {
        match self {
            Self::Allow => libc::SECCOMP_RET_ALLOW,
            Self::Errno(errno) => libc::SECCOMP_RET_ERRNO | errno as u32,
            Self::HandOver => libc::SECCOMP_RET_USER_NOTIF,
            Self::Kill => libc::SECCOMP_RET_KILL_PROCESS,
        }
    }
}

impl Word {
    /// Where it is in `struct seccomp_data`.
    fn offset(self) -> u32 {
        const ARGUMENTS: u32 = 16;
        let (low, high) = if cfg!(target_endian = "little") {
            (0, 4)
        } else {
            (4, 0)
        };
        match self {
            Self::Number => 0,
            Self::Architecture => 4,
            Self::Low(argument) => ARGUMENTS + 8 * u32::from(argument) + low,
            Self::High(argument) => ARGUMENTS + 8 * u32::from(argument) + high,
        }
    }
}

/// The codes of linux/bpf_common.h that are used here.
pub(super) mod code {
    pub(crate) const LOAD_WORD: u16 = 0x20;
    pub(crate) const AND: u16 = 0x54;
    pub(crate) const JUMP: u16 = 0x05;
    pub(crate) const JUMP_EQUAL: u16 = 0x15;
    pub(crate) const JUMP_AT_LEAST: u16 = 0x35;
    pub(crate) const JUMP_ANY_BIT: u16 = 0x45;
    pub(crate) const RETURN: u16 = 0x06;
}

#[derive(Clone, Copy, Debug)]
struct Instruction {
    code: u16,
    if_true: u8,
    if_false: u8,
    value: u32,
}

impl Instruction {
    const fn plain(code: u16, value: u32) -> Self {
        Self {
            code,
            if_true: 0,
            if_false: 0,
            value,
        }
    }

    fn bytes(self) -> [u8; 8] {
        let [code0, code1] = self.code.to_ne_bytes();
        let [value0, value1, value2, value3] = self.value.to_ne_bytes();
        [
            code0,
            code1,
            self.if_true,
            self.if_false,
            value0,
            value1,
            value2,
            value3,
        ]
    }
}

/// An instruction, by how many come after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Place(usize);

/// A decision whose outcomes have their places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    Answer(Answer),
    Load(Word, Place),
    Mask(u32, Place),
    When(Comparison, Place, Place),
}

#[derive(Debug, Default)]
struct Layout {
    /// The last instruction first.
    backwards: Vec<Instruction>,
    placed: HashMap<Step, Place>,
    /// Nearer instructions that do the same as far ones.
    stand_ins: HashMap<Place, Place>,
}

impl Layout {
    fn place(&mut self, decision: &Decision) -> Place {
        let step = match decision {
            Decision::Answer(answer) => Step::Answer(*answer),
            Decision::Load(word, then) => Step::Load(*word, self.place(then)),
            Decision::Mask(mask, then) => Step::Mask(*mask, self.place(then)),
            Decision::When { is, yes, no } => {
                // The one for "no" comes last, which is nearest.
                let yes = self.place(yes);
                Step::When(*is, yes, self.place(no))
            }
        };
        if let Some(place) = self.placed.get(&step) {
            return *place;
        }
        let place = self.lay(step);
        self.placed.insert(step, place);
        place
    }

    fn lay(&mut self, step: Step) -> Place {
        match step {
            Step::Answer(answer) => self.push(Instruction::plain(code::RETURN, answer.value())),
            Step::Load(word, then) => {
                self.go_to(then);
                self.push(Instruction::plain(code::LOAD_WORD, word.offset()))
            }
            Step::Mask(mask, then) => {
                self.go_to(then);
                self.push(Instruction::plain(code::AND, mask))
            }
            Step::When(is, yes, no) => self.branch(is, yes, no),
        }
    }

    fn branch(&mut self, is: Comparison, yes: Place, no: Place) -> Place {
        let (code, value) = match is {
            Comparison::Equal(value) => (code::JUMP_EQUAL, value),
            Comparison::AtLeast(value) => (code::JUMP_AT_LEAST, value),
            Comparison::AnyBit(bits) => (code::JUMP_ANY_BIT, bits),
        };
        loop {
            // A stand-in for one moves the other a place further away, so look at both again.
            match (self.short(yes), self.short(no)) {
                (Ok(if_true), Ok(if_false)) => {
                    return self.push(Instruction {
                        code,
                        if_true,
                        if_false,
                        value,
                    });
                }
                (Err(far), _) | (_, Err(far)) => {
                    let near = self.stand_in(far);
                    self.stand_ins.insert(far, near);
                }
            }
        }
    }

    /// How many instructions the next one has to skip to get to a place or its stand-in; the place
    /// itself where a conditional jump does not reach that far.
    fn short(&self, place: Place) -> Result<u8, Place> {
        let near = self.stand_ins.get(&place).copied().unwrap_or(place);
        u8::try_from(self.distance(near)).map_err(|_| place)
    }

    fn distance(&self, place: Place) -> usize {
        self.backwards.len() - 1 - place.0
    }

    /// Makes sure that what is pushed next leads to that place.
    fn go_to(&mut self, place: Place) {
        if self.distance(place) > 0 {
            self.stand_in(place);
        }
    }

    /// An answer is given again, anything else is jumped to.
    fn stand_in(&mut self, place: Place) -> Place {
        let far = self.backwards[place.0];
        let near = if far.code == code::RETURN {
            far
        } else {
            Instruction::plain(code::JUMP, self.distance(place) as u32)
        };
        self.push(near)
    }

    fn push(&mut self, instruction: Instruction) -> Place {
        self.backwards.push(instruction);
        Place(self.backwards.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::interpret::{Call, answer, instructions};

    fn numbered(number: u32) -> Call {
        Call {
            number,
            architecture: 0,
            arguments: [0; 6],
        }
    }

    #[test]
    fn jumps_further_than_eight_bits_arrive() {
        // A thousand comparisons one after another, half of which lead to what lies at the very end.
        let far = Decision::Mask(0xff, Decision::REFUSE.into());
        let mut chain = Decision::UNKNOWN;
        for number in (0..1000).rev() {
            let yes = if number % 2 == 0 {
                far.clone()
            } else {
                Decision::ALLOW
            };
            chain = when(Comparison::Equal(number), yes, chain);
        }
        // Laid out first, so that it is the furthest away.
        let start = when(Comparison::AnyBit(1 << 31), far, chain);
        let program = Program::assemble(&Decision::Load(Word::Number, start.into()));
        assert!(instructions(program.bytes()).any(|instruction| instruction.code == code::JUMP));
        for number in 0..1100 {
            let expected = match number {
                1000.. => Answer::Errno(libc::ENOSYS as u16),
                _ if number % 2 == 0 => Answer::Errno(libc::EPERM as u16),
                _ => Answer::Allow,
            };
            assert_eq!(
                answer(&program, &numbered(number)),
                expected.value(),
                "number {number}"
            );
        }
        assert_eq!(
            answer(&program, &numbered(1 << 31)),
            Answer::Errno(libc::EPERM as u16).value(),
            "the longest jump"
        );
    }

    #[test]
    fn equal_decisions_are_laid_out_once() {
        let check = |argument| {
            Decision::Load(
                Word::Low(argument),
                when(Comparison::AnyBit(1), Decision::REFUSE, Decision::ALLOW).into(),
            )
        };
        let twice = when(
            Comparison::Equal(1),
            check(1),
            when(Comparison::Equal(2), check(1), check(1)),
        );
        let program = Program::assemble(&twice);
        // Two answers, one check of two instructions, two comparisons.
        assert_eq!(instructions(program.bytes()).count(), 6);
    }

    #[test]
    fn an_instruction_is_as_the_kernel_reads_it() {
        let start = when(Comparison::AtLeast(0x0102_0304), Decision::KILL, Decision::ALLOW);
        let program = Program::assemble(&start);
        let mut expected = code::JUMP_AT_LEAST.to_ne_bytes().to_vec();
        expected.extend([1, 0]);
        expected.extend(0x0102_0304_u32.to_ne_bytes());
        assert_eq!(program.bytes()[..8], expected);
        assert_eq!(program.bytes().len(), 3 * 8);
    }
}
