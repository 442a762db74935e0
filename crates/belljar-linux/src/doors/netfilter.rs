//! Has connections to all ports of all addresses arrive at one, in the network that this process is in.
//!
//! One rule for each version of addresses, told to the kernel in its own words: what leaves for an address that is neither
//! loopback nor the resolver's, by TCP, is redirected. The kernel remembers where it was going.

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
const BEFORE_ROUTING: u32 = -100_i32 as u32;
const NETWORK_HEADER: u32 = 1;
const L4_PROTOCOL: u32 = 16;
const EQUAL: u32 = 0;
const NOT_EQUAL: u32 = 1;
const TCP: u8 = 6;
const REGISTER: u32 = 1;

const NAME: &str = "belljar";

/// Redirects everything to that port.
pub(super) fn redirect(port: u16) -> io::Result<()> {
    let netlink = Netlink::open(libc::NETLINK_NETFILTER)?;
    let four = [
        // Loopback is the guest's own.
        not_to(16, &[127]),
        not_to(16, &RESOLVER.octets()),
    ];
    netlink.ask_all(&batch(libc::AF_INET as u8, &four.concat(), port))?;
    let six = not_to(24, &std::net::Ipv6Addr::LOCALHOST.octets());
    match netlink.ask_all(&batch(libc::AF_INET6 as u8, &six, port)) {
        Err(error) if is_without(&error) => Ok(()),
        result => result,
    }
}

/// A table with one chain with one rule.
fn batch(family: u8, conditions: &[u8], port: u16) -> Vec<Vec<u8>> {
    let hook = [
        attribute(1, &LOCAL_OUT.to_be_bytes()),
        attribute(2, &BEFORE_ROUTING.to_be_bytes()),
    ];
    let chain = [
        attribute(1, &text(NAME)),
        attribute(3, &text(NAME)),
        attribute(4 | NESTED, &hook.concat()),
        attribute(7, &text("nat")),
    ];
    let expressions = [
        conditions.to_vec(),
        expression("meta", &[number(1, REGISTER), number(2, L4_PROTOCOL)]),
        compare(EQUAL, &[TCP]),
        expression("immediate", &[number(1, REGISTER), value(2, &port.to_be_bytes())]),
        expression("redir", &[number(1, REGISTER)]),
    ];
    let rule = [
        attribute(1, &text(NAME)),
        attribute(2, &text(NAME)),
        attribute(4 | NESTED, &expressions.concat()),
    ];
    vec![
        message(0, BATCH_BEGIN, SUBSYSTEM, &[]),
        message(family, NEW_TABLE, 0, &attribute(1, &text(NAME))),
        message(family, NEW_CHAIN, 0, &chain.concat()),
        message(family, NEW_RULE, 0, &rule.concat()),
        message(0, BATCH_END, SUBSYSTEM, &[]),
    ]
}

/// Goes on unless the destination, which stands at that place of a packet, begins with these.
fn not_to(offset: u32, beginning: &[u8]) -> Vec<u8> {
    let load = [
        number(1, REGISTER),
        number(2, NETWORK_HEADER),
        number(3, offset),
        number(4, beginning.len() as u32),
    ];
    [expression("payload", &load), compare(NOT_EQUAL, beginning)].concat()
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
