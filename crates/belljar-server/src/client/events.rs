//! Server-sent events, as they come.

use std::time::Duration;

use axum::body::Body;
use http_body_util::BodyExt;

use super::error::ClientError;

/// How long nothing may come: a service says now and then that it is still there.
const SILENCE: Duration = Duration::from_secs(90);
/// The longest event that is taken.
const LONGEST: usize = 256 << 20;

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub name: String,
    pub data: String,
}

/// Events of one answer. Dropping it hangs up.
#[derive(Debug)]
pub struct Events {
    body: Body,
    read: Vec<u8>,
    /// How much of it was searched for an end.
    searched: usize,
}

impl Events {
    pub(super) const fn new(body: Body) -> Self {
        Self {
            body,
            read: Vec::new(),
            searched: 0,
        }
    }

    /// The next event; none at the end.
    pub async fn next(&mut self) -> Result<Option<Event>, ClientError> {
        loop {
            let unseen = self.read.get(self.searched..).unwrap_or_default();
            if let Some(end) = unseen.windows(2).position(|pair| pair == b"\n\n") {
                let end = self.searched + end;
                self.searched = 0;
                let text: Vec<u8> = self.read.drain(..end + 2).collect();
                if let Some(event) = parse(&String::from_utf8_lossy(&text)) {
                    return Ok(Some(event));
                }
                continue;
            }
            self.searched = self.read.len().saturating_sub(1);
            if self.read.len() > LONGEST {
                return Err(ClientError::Answer("an event does not end".to_owned()));
            }
            let Ok(frame) = tokio::time::timeout(SILENCE, self.body.frame()).await else {
                return Err(ClientError::Broken("nothing came for a long time".to_owned()));
            };
            match frame {
                None => return Ok(None),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.read.extend_from_slice(&data);
                    }
                }
                Some(Err(error)) => return Err(ClientError::Broken(error.to_string())),
            }
        }
    }
}

/// An event out of its lines; a comment is none.
fn parse(text: &str) -> Option<Event> {
    let (mut name, mut data) = (String::new(), Vec::new());
    for line in text.lines() {
        match line.split_once(':') {
            Some(("event", value)) => name = value.trim_start().to_owned(),
            Some(("data", value)) => data.push(value.strip_prefix(' ').unwrap_or(value)),
            _ => {}
        }
    }
    (!name.is_empty()).then(|| Event {
        name,
        data: data.join("\n"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_and_comments_left_out() {
        let event = parse("event: output\ndata: {\"a\":1}\n\n").unwrap();
        assert_eq!((&*event.name, &*event.data), ("output", "{\"a\":1}"));
        assert_eq!(parse(":\n\n"), None);
    }
}
