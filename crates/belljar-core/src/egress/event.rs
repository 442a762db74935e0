//! What a guest looked up and connected to, and what came of it.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::denial::Denial;
use crate::units::Seconds;

/// The most that is kept of one execution, in number and in text.
const MOST: usize = 1000;
const LARGEST: usize = 1 << 20;

/// What a guest did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Met {
    /// It asked for a name's address.
    Lookup,
    /// It connected to somebody.
    Connection,
}

/// One lookup or connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    pub kind: Met,
    /// Whether it was let through.
    pub allowed: bool,
    /// The name that was asked for, where it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whom it was really about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The rule that let it through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// Seconds since the epoch.
    pub started_at: f64,
    pub duration: Seconds,
    /// Whether it was still open when this was told. It is told of again when it ends, if somebody is told of that.
    #[serde(default, skip_serializing_if = "is_false")]
    pub open: bool,
    /// Why it was refused, and what would let it through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub denial: Option<Denial>,
    /// What went wrong where it was let through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Event {
    fn size(&self) -> usize {
        let denial = self.denial.as_ref().map_or(0, |denial| {
            denial.value.len() + denial.message.len() + denial.fix.len()
        });
        let texts = [&self.name, &self.rule, &self.error];
        denial
            + texts
                .iter()
                .map(|text| text.as_ref().map_or(0, String::len))
                .sum::<usize>()
    }
}

/// All of them, as far as they are kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Log {
    pub events: Vec<Event>,
    /// How many more there were.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: u64,
    /// How much text it holds: a guest chose some of it.
    #[serde(skip)]
    size: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
const fn is_false(value: &bool) -> bool {
    !*value
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Log {
    pub fn push(&mut self, event: Event) {
        let size = event.size();
        if self.events.len() < MOST && self.size + size <= LARGEST {
            self.size += size;
            self.events.push(event);
        } else {
            self.more += 1;
        }
    }

    /// Adds what happened elsewhere.
    pub fn append(&mut self, other: Self) {
        self.more += other.more;
        for event in other.events {
            self.push(event);
        }
    }

    pub const fn is_empty(&self) -> bool {
        self.events.is_empty()
    }
}
