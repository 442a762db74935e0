//! The resolver of a sandbox: names that are allowed have an address, others do not exist.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use belljar_core::egress::{Event, Host, HostName, Met, cut, refusal};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::task::JoinSet;

use super::Shared;
use super::connection::hidden;
use super::dial::Dialler;
use super::dns::{self, Answer, Question, Wants};
use crate::execute::now;
use crate::weaken;

/// The longest question that comes as a datagram; all that is asked for fits.
const LONGEST: usize = 512;
/// How many are answered at once.
const AT_ONCE: usize = 64;
/// How long somebody may hold a stream without asking.
const PATIENCE: Duration = Duration::from_secs(10);

/// Answers what comes as datagrams.
pub(super) async fn datagrams(shared: Arc<Shared>, socket: UdpSocket) {
    let socket = Arc::new(socket);
    let mut message = [0; LONGEST];
    // Whoever is being answered when this is dropped is dropped as well.
    let mut answered = JoinSet::new();
    loop {
        let received = tokio::select! {
            received = socket.recv_from(&mut message), if answered.len() < AT_ONCE => received,
            Some(_) = answered.join_next(), if !answered.is_empty() => continue,
        };
        let Ok((size, from)) = received else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let Some(question) = dns::read(&message[..size]) else {
            continue;
        };
        let (shared, socket) = (Arc::clone(&shared), Arc::clone(&socket));
        answered.spawn(async move {
            let answer = answer(&shared, &question).await;
            let _ = socket.send_to(&question.answer(&answer), from).await;
        });
    }
}

/// Answers what comes on a stream, one after the other.
pub(super) async fn stream(shared: &Shared, mut stream: TcpStream) {
    while let Ok(Some(message)) = tokio::time::timeout(PATIENCE, next(&mut stream)).await {
        let Some(question) = dns::read(&message) else {
            return;
        };
        let message = question.answer(&answer(shared, &question).await);
        let length = (message.len() as u16).to_be_bytes();
        let message = [&length[..], &message].concat();
        let writing = tokio::time::timeout(PATIENCE, stream.write_all(&message));
        if !matches!(writing.await, Ok(Ok(()))) {
            return;
        }
    }
}

async fn next(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let size = usize::from(stream.read_u16().await.ok()?);
    if size > LONGEST {
        return None;
    }
    let mut message = vec![0; size];
    stream.read_exact(&mut message).await.ok()?;
    Some(message)
}

/// Whether nobody may reach these addresses of a name that no rule has by itself: then it does not exist either. Of a name that a
/// policy has, it is told when somebody connects to it.
fn is_hidden(shared: &Shared, name: &HostName, addresses: &[IpAddr]) -> bool {
    let mine: Vec<_> = shared
        .egress
        .rules
        .iter()
        .filter(|rule| rule.host.has_name(name))
        .collect();
    let named = mine.iter().any(|rule| matches!(rule.host, Host::Name(_)));
    !named && !mine.is_empty() && Dialler::fitting(&mine, addresses).is_empty()
}

async fn answer(shared: &Shared, question: &Question) -> Answer {
    let (started_at, began) = (now(), Instant::now());
    let name = question.name.as_ref();
    let known = name.filter(|name| shared.egress.knows(name) || weaken::is_off("hostrules"));
    let mut event = Event {
        kind: Met::Lookup,
        allowed: known.is_some(),
        name: Some(cut(&question.text)),
        address: None,
        port: None,
        rule: None,
        bytes_in: 0,
        bytes_out: 0,
        started_at,
        duration: Duration::ZERO.into(),
        open: false,
        denial: None,
        error: None,
    };
    let answer = match known {
        None => {
            let text = &cut(&question.text);
            event.denial = Some(refusal(
                text,
                format!("`{text}` is not among the hosts that may be reached"),
                &format!("\"{text}\""),
            ));
            Answer::NoSuchName
        }
        Some(name) => {
            let rule = shared.egress.rules.iter().find(|rule| rule.host.has_name(name));
            event.rule = rule.map(ToString::to_string);
            match shared.dialler.look_up(name).await {
                // What is not there has no address here either.
                Err(error) => {
                    event.error = Some(error.to_string());
                    Answer::NoSuchName
                }
                Ok(addresses) if is_hidden(shared, name, &addresses) => {
                    event.allowed = false;
                    event.denial = Some(hidden(name.as_str(), 443));
                    Answer::NoSuchName
                }
                Ok(_) => {
                    let mut names = shared.names();
                    let own = match question.wants {
                        Wants::V4 => names.v4(name),
                        Wants::V6 => names.v6(name),
                        Wants::Other => None,
                    };
                    match (own, question.wants) {
                        (Some(own), _) => Answer::Address(own),
                        (None, Wants::Other) => Answer::Nothing,
                        (None, _) => {
                            event.error = Some("too many names were asked for".to_owned());
                            Answer::Refused
                        }
                    }
                }
            }
        }
    };
    event.duration = began.elapsed().into();
    shared.log().push(event);
    answer
}
