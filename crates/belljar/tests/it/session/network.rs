//! Connections that outlive the execution that opened them.

use std::io::{Read, Write};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use belljar::Session;
use belljar_core::egress::Event;

use super::{good, with};
use crate::again::{alone, test_name};

#[test]
fn a_connection_is_told_of_when_it_is_opened_and_when_it_ends() {
    alone(test_name!(), told_twice);
}

fn told_twice() {
    let server = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = server.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for mut stream in server.incoming().flatten() {
            let _ = stream.write_all(b"hello");
            let _ = stream.read_to_end(&mut Vec::new());
        }
    });
    let host = format!("127.0.0.1:{port}").parse().expect("a rule");
    let nobody = "127.0.0.1:1".parse().expect("a rule");
    let builder = Session::builder().allow_host(host).allow_host(nobody);
    with(builder, async |session| {
        // One that nobody takes is told of with the rule that lets it through, and with why.
        let nobody =
            "import socket\ntry: socket.create_connection(('127.0.0.1', 1)).recv(1)\nexcept OSError: pass";
        let failed = ended(session, nobody).await;
        assert_eq!(failed.rule.as_deref(), Some("127.0.0.1:1"));
        assert!(failed.allowed && failed.error.is_some(), "{failed:?}");
        let open = format!("import socket; s = socket.create_connection(('127.0.0.1', {port})); s.recv(5)");
        let first = good(session.execute(&open).await).outcome.network.events;
        assert_eq!(first.len(), 1, "{first:?}");
        assert!(
            first[0].open && first[0].allowed && first[0].port == Some(port),
            "{first:?}"
        );
        assert_eq!(first[0].bytes_in, 5);
        assert_eq!(first[0].rule, Some(format!("127.0.0.1:{port}")));
        // It is told of once while it is open.
        let idle = good(session.execute("1").await).outcome.network.events;
        assert!(idle.is_empty(), "{idle:?}");
        let last = ended(session, "s.sendall(b'bye'); s.close()").await;
        assert!(
            last.bytes_out == 3 && last.started_at.to_bits() == first[0].started_at.to_bits(),
            "{last:?}"
        );
    });
}

/// The first connection that is told of as ended: with the execution of this code, or with one after it.
async fn ended(session: &Session, mut code: &str) -> Event {
    let began = Instant::now();
    loop {
        let events = good(session.execute(code).await).outcome.network.events;
        if let Some(event) = events.into_iter().find(|event| !event.open) {
            return event;
        }
        assert!(
            began.elapsed() < Duration::from_secs(120),
            "nobody was told of its end"
        );
        code = "import time; time.sleep(0.1)";
    }
}

#[test]
fn a_guest_that_is_gone_is_told_from_one_that_listens() {
    alone(test_name!(), gone_or_listening);
}

/// To a host that says nothing: one connection is closed altogether, on the other the guest waits for an answer. The kernel forgets
/// what was closed after a minute; here it is asked to do so sooner.
fn gone_or_listening() {
    let server = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = server.local_addr().expect("an address").port();
    let (answer, wanted) = channel::<()>();
    std::thread::spawn(move || {
        let mut silent = Vec::new();
        for mut stream in server.incoming().flatten().take(2) {
            let _ = stream.write_all(b"hello");
            silent.push(stream);
        }
        let _ = wanted.recv();
        let _ = silent[1].write_all(b"late");
    });
    let host = format!("127.0.0.1:{port}").parse().expect("a rule");
    with(Session::builder().allow_host(host), async |session| {
        let open = format!(
            "import socket\ndef dial():\n    \
                 s = socket.create_connection(('127.0.0.1', {port})); s.recv(5); s.sendall(b'?'); return s\n\
             closed, listening = dial(), dial()\n\
             closed.setsockopt(socket.IPPROTO_TCP, socket.TCP_LINGER2, 3)\n\
             closed.close(); listening.shutdown(socket.SHUT_WR)"
        );
        let mut events = good(session.execute(&open).await).outcome.network.events;
        assert!(
            events.len() == 2 && events.iter().all(|one| one.open),
            "{events:?}"
        );
        let first = events.swap_remove(0);
        let ended = ended(session, "1").await;
        assert!(ended.error.is_none() && ended.bytes_out == 1, "{ended:?}");
        assert_eq!(ended.started_at.to_bits(), first.started_at.to_bits());
        answer.send(()).expect("a server");
        let heard = good(session.execute("listening.recv(9).decode()").await);
        assert_eq!(heard.outcome.value, Some("late".into()));
    });
}
