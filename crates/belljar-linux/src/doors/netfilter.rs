//! Has connections to all ports of all addresses arrive at one, in the network that this process is in.
//!
//! Rules for each version of addresses, told to the kernel in its own words: what leaves for an address that is neither
//! loopback nor the resolver's, by TCP, is redirected. The kernel remembers where it was going. What it remembers is nobody's of
//! whom there is a limit, so it does not for anything else, and not for too many in a second.

use std::io;

use belljar_core::egress::RESOLVER;

use crate::sys::net::{Netlink, is_without};

// What the kernel's <linux/netfilter/nf_tables.h> and its neighbours call these.
const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;
const SUBSYSTEM: u16 = 10;
const NEW_TABLE: u16 = SUBSYSTEM << 8;
const NEW_CHAIN: u16 = (SUBSYSTEM << 8) | 3;
const NEW_RULE: u16 = (SUBSYSTEM << 8) | 6;
const NESTED: u16 = 0x8000;
const LOCAL_OUT: u32 = 3;
/// Priorities: where addresses are changed, and before anything is remembered.
const CHANGING: i32 = -100;
const FIRST: i32 = -300;
const NETWORK_HEADER: u32 = 1;
const TRANSPORT_HEADER: u32 = 2;
const L4_PROTOCOL: u32 = 16;
const EQUAL: u32 = 0;
const NOT_EQUAL: u32 = 1;
const TCP: u8 = 6;
const REGISTER: u32 = 1;
const VERDICT: u32 = 0;
const DROP: u32 = 0;
const OVER: u32 = 1;

const NAME: &str = "belljar";
const UNREMEMBERED: &str = "unremembered";

/// New connections in a second, and how many more at once.
const RATE: u64 = 500;
const BURST: u32 = 2000;

/// Redirects everything to that port.
pub(super) fn redirect(port: u16) -> io::Result<()> {
    let netlink = Netlink::open(libc::NETLINK_NETFILTER)?;
    let four = Family {
        number: libc::AF_INET as u8,
        destination: 16,
        // Loopback is the guest's own.
        loopback: vec![127],
        resolver: Some(RESOLVER.octets().to_vec()),
    };
    netlink.ask_all(&four.batch(port))?;
    let six = Family {
        number: libc::AF_INET6 as u8,
        destination: 24,
        loopback: std::net::Ipv6Addr::LOCALHOST.octets().to_vec(),
        resolver: None,
    };
    match netlink.ask_all(&six.batch(port)) {
        Err(error) if is_without(&error) => Ok(()),
        result => result,
    }
}

/// A version of addresses.
struct Family {
    number: u8,
    /// Where in a packet the destination stands.
    destination: u32,
    /// How the guest's own addresses begin.
    loopback: Vec<u8>,
    resolver: Option<Vec<u8>>,
}

impl Family {
    /// A table with two chains.
    fn batch(&self, port: u16) -> Vec<Vec<u8>> {
        let port = port.to_be_bytes();
        let is_tcp = [
            expression("meta", &[number(1, REGISTER), number(2, L4_PROTOCOL)]),
            compare(EQUAL, &[TCP]),
        ];
        let is_not_tcp = [
            expression("meta", &[number(1, REGISTER), number(2, L4_PROTOCOL)]),
            compare(NOT_EQUAL, &[TCP]),
        ];
        let not_remembered = || expression("notrack", &[]);
        // What is redirected comes back from that port, to an address of the guest's own.
        let within = [
            is_tcp.concat(),
            load(NETWORK_HEADER, self.destination, self.loopback.len()),
            compare(EQUAL, &self.loopback),
            load(TRANSPORT_HEADER, 0, port.len()),
            compare(NOT_EQUAL, &port),
            load(TRANSPORT_HEADER, 2, port.len()),
            compare(NOT_EQUAL, &port),
        ];
        let limit = [
            attribute(1, &RATE.to_be_bytes()),
            attribute(2, &1u64.to_be_bytes()),
            number(3, BURST),
            number(5, OVER),
        ];
        let too_many = [
            is_tcp.concat(),
            expression("limit", &limit),
            expression("immediate", &[number(1, VERDICT), verdict(2, DROP)]),
        ];
        let mut elsewhere = is_tcp.concat();
        for own in self.resolver.iter().chain([&self.loopback]) {
            elsewhere.extend(load(NETWORK_HEADER, self.destination, own.len()));
            elsewhere.extend(compare(NOT_EQUAL, own));
        }
        elsewhere.extend(expression("immediate", &[number(1, REGISTER), value(2, &port)]));
        elsewhere.extend(expression("redir", &[number(1, REGISTER)]));
        vec![
            message(0, BATCH_BEGIN, SUBSYSTEM, &[]),
            message(self.number, NEW_TABLE, 0, &attribute(1, &text(NAME))),
            self.chain(UNREMEMBERED, "filter", FIRST),
            self.rule(UNREMEMBERED, &[is_not_tcp.concat(), not_remembered()].concat()),
            self.rule(UNREMEMBERED, &[within.concat(), not_remembered()].concat()),
            self.chain(NAME, "nat", CHANGING),
            self.rule(NAME, &too_many.concat()),
            self.rule(NAME, &elsewhere),
            message(0, BATCH_END, SUBSYSTEM, &[]),
        ]
    }

    /// A chain for what leaves.
    fn chain(&self, name: &str, kind: &str, priority: i32) -> Vec<u8> {
        let hook = [number(1, LOCAL_OUT), attribute(2, &priority.to_be_bytes())];
        let parts = [
            attribute(1, &text(NAME)),
            attribute(3, &text(name)),
            attribute(4 | NESTED, &hook.concat()),
            attribute(7, &text(kind)),
        ];
        message(self.number, NEW_CHAIN, 0, &parts.concat())
    }

    fn rule(&self, chain: &str, expressions: &[u8]) -> Vec<u8> {
        let parts = [
            attribute(1, &text(NAME)),
            attribute(2, &text(chain)),
            attribute(4 | NESTED, expressions),
        ];
        let mut message = message(self.number, NEW_RULE, 0, &parts.concat());
        // After those that are there.
        let flags = u16::from_ne_bytes([message[6], message[7]]) | libc::NLM_F_APPEND as u16;
        message[6..8].copy_from_slice(&flags.to_ne_bytes());
        message
    }
}

/// Takes a part of a packet.
fn load(header: u32, offset: u32, length: usize) -> Vec<u8> {
    let parts = [
        number(1, REGISTER),
        number(2, header),
        number(3, offset),
        number(4, length as u32),
    ];
    expression("payload", &parts)
}

fn verdict(kind: u16, verdict: u32) -> Vec<u8> {
    let code = attribute(2 | NESTED, &number(1, verdict));
    attribute(kind | NESTED, &code)
}

fn compare(how: u32, with: &[u8]) -> Vec<u8> {
    expression("cmp", &[number(1, REGISTER), number(2, how), value(3, with)])
}

fn expression(name: &str, parts: &[Vec<u8>]) -> Vec<u8> {
    let inner = [attribute(1, &text(name)), attribute(2 | NESTED, &parts.concat())];
    attribute(1 | NESTED, &inner.concat())
}

fn number(kind: u16, number: u32) -> Vec<u8> {
    attribute(kind, &number.to_be_bytes())
}

fn value(kind: u16, bytes: &[u8]) -> Vec<u8> {
    attribute(kind | NESTED, &attribute(1, bytes))
}

fn text(text: &str) -> Vec<u8> {
    [text.as_bytes(), &[0]].concat()
}

fn attribute(kind: u16, content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(4 + content.len() + 3);
    bytes.extend(((4 + content.len()) as u16).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(content);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// A message of this family; those that frame a batch are not answered.
fn message(family: u8, kind: u16, resource: u16, attributes: &[u8]) -> Vec<u8> {
    let frames = matches!(kind, BATCH_BEGIN | BATCH_END);
    let answered = if frames { 0 } else { libc::NLM_F_ACK };
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_CREATE | answered) as u16;
    let mut bytes = Vec::with_capacity(20 + attributes.len());
    bytes.extend(((20 + attributes.len()) as u32).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend([family, 0]);
    bytes.extend(resource.to_be_bytes());
    bytes.extend(attributes);
    bytes
}
