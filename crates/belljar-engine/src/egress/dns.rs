//! What a guest asks a resolver, and what it is told. The bytes are the guest's.

use std::net::IpAddr;

use belljar_core::egress::HostName;

const HEAD: usize = 12;
/// As it is sent, with its lengths and its end.
const LONGEST_NAME: usize = 255;
/// For how long an answer is good: addresses are the sandbox's own and stay.
const TIME_TO_LIVE: u32 = 60;
const INTERNET: u16 = 1;
const A: u16 = 1;
const AAAA: u16 = 28;

/// One question.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Question {
    id: [u8; 2],
    /// Whether the guest wants us to find out, which is all that we do.
    recursion_desired: bool,
    /// As it was sent: it is sent back.
    sent: Vec<u8>,
    /// What it asks for, as text that can be shown.
    pub text: String,
    /// The same, where it is a host's name.
    pub name: Option<HostName>,
    pub wants: Wants,
}

/// What is wanted of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wants {
    V4,
    V6,
    /// Something that hosts have no need of here.
    Other,
}

/// What a guest is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Address(IpAddr),
    /// The name is there, and has nothing of what is wanted.
    Nothing,
    NoSuchName,
    Refused,
}

/// Reads a message that asks one question; nothing for what is no such message.
pub(super) fn read(message: &[u8]) -> Option<Question> {
    let (head, rest) = message.split_first_chunk::<HEAD>()?;
    let [id0, id1, flags, _, 0, 1, 0, 0, ..] = *head else {
        return None;
    };
    // A question, of the usual kind.
    if flags & 0b1111_1000 != 0 {
        return None;
    }
    let (mut text, mut at) = (String::new(), 0);
    loop {
        let length = usize::from(*rest.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        // Nothing stands before a question that it could point at.
        if length > 63 || at + length + 1 > LONGEST_NAME {
            return None;
        }
        let label = rest.get(at..at + length)?;
        at += length;
        if !text.is_empty() {
            text.push('.');
        }
        // A dot within a label is not one between labels.
        let shown = label.iter().map(|byte| match byte {
            b'.' => "\\.".to_owned(),
            byte => byte.escape_ascii().to_string(),
        });
        text.extend(shown);
    }
    let &[kind0, kind1, class0, class1] = rest.get(at..at + 4)?.first_chunk()?;
    let wants = match (
        u16::from_be_bytes([kind0, kind1]),
        u16::from_be_bytes([class0, class1]),
    ) {
        (A, INTERNET) => Wants::V4,
        (AAAA, INTERNET) => Wants::V6,
        _ => Wants::Other,
    };
    Some(Question {
        id: [id0, id1],
        recursion_desired: flags & 1 != 0,
        sent: rest[..at + 4].to_vec(),
        name: HostName::new(&text).ok(),
        text,
        wants,
    })
}

impl Question {
    /// The message that answers it.
    pub(super) fn answer(&self, answer: &Answer) -> Vec<u8> {
        let code = match answer {
            Answer::Address(_) | Answer::Nothing => 0,
            Answer::NoSuchName => 3,
            Answer::Refused => 5,
        };
        let count = u8::from(matches!(answer, Answer::Address(_)));
        let mut message = Vec::with_capacity(HEAD + self.sent.len() + 28);
        message.extend(self.id);
        message.push(0x80 | u8::from(self.recursion_desired));
        message.push(0x80 | code);
        message.extend([0, 1, 0, count, 0, 0, 0, 0]);
        message.extend(&self.sent);
        if let Answer::Address(address) = answer {
            let (kind, bytes) = match address {
                IpAddr::V4(address) => (A, address.octets().to_vec()),
                IpAddr::V6(address) => (AAAA, address.octets().to_vec()),
            };
            // Of the name in the question.
            message.extend([0xc0, HEAD as u8]);
            message.extend(kind.to_be_bytes());
            message.extend(INTERNET.to_be_bytes());
            message.extend(TIME_TO_LIVE.to_be_bytes());
            message.extend((bytes.len() as u16).to_be_bytes());
            message.extend(bytes);
        }
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(labels: &[&[u8]], kind: u16) -> Vec<u8> {
        let mut message = vec![0xab, 0xcd, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in labels {
            message.push(label.len() as u8);
            message.extend(*label);
        }
        message.push(0);
        message.extend(kind.to_be_bytes());
        message.extend(INTERNET.to_be_bytes());
        message
    }

    #[test]
    fn a_question_is_read_and_answered() {
        let message = query(&[b"ExAmple", b"com"], A);
        let question = read(&message).unwrap();
        assert_eq!(question.name, Some(HostName::new("example.com").unwrap()));
        assert_eq!(question.wants, Wants::V4);
        let answer = question.answer(&Answer::Address("198.18.1.0".parse().unwrap()));
        assert_eq!(&answer[..12], &[0xab, 0xcd, 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
        // The name comes back as it was spelt.
        assert_eq!(&answer[12..message.len()], &message[12..]);
        assert_eq!(
            &answer[message.len()..],
            &[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 198, 18, 1, 0]
        );
        assert_eq!(question.answer(&Answer::Refused)[3], 0x85);
        assert_eq!(read(&query(&[b"a"], AAAA)).unwrap().wants, Wants::V6);
        assert_eq!(read(&query(&[b"a"], 65)).unwrap().wants, Wants::Other);
        assert_eq!(read(&query(&[b"a"], 255)).unwrap().wants, Wants::Other);
    }

    #[test]
    fn names_that_no_host_has_are_none() {
        for labels in [
            &[&b"a.b"[..]][..],
            &[b"a\0b", b"com"],
            &[b"a%00", b"com"],
            &[b"127", b"1"],
            &[b"\xff"],
            &[],
        ] {
            let question = read(&query(labels, A)).unwrap();
            assert_eq!(question.name, None, "{}", question.text);
        }
        assert_eq!(read(&query(&[b"a.b", b"com"], A)).unwrap().text, "a\\.b.com");
    }

    #[test]
    fn what_is_no_question_is_nothing() {
        let good = query(&[b"example", b"com"], A);
        for length in 0..good.len() {
            assert_eq!(read(&good[..length]), None, "{length}");
        }
        let mut pointer = good.clone();
        pointer[12] = 0xc0;
        let mut answer = good.clone();
        answer[2] |= 0x80;
        let mut two = good.clone();
        two[5] = 2;
        for message in [pointer, answer, two] {
            assert_eq!(read(&message), None);
        }
        assert_eq!(read(&query(&[&[b'a'; 63][..]; 4], A)), None);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_a_question_or_none(bytes in proptest::collection::vec(0u8..=255, 0..80)) {
            if let Some(question) = read(&bytes) {
                question.answer(&Answer::Nothing);
            }
        }
    }
}
