//! Traces by OTLP.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use super::Serving;
use crate::harness::{TempDir, Who, belljar};

/// Heads and bodies.
type Posted = Mutex<Vec<(String, Vec<u8>)>>;

/// Takes what is posted, and keeps it.
fn collector() -> (String, Arc<Posted>) {
    answering("200 OK\r\nContent-Length: 0")
}

/// Takes what is posted, keeps it, and answers with this head.
fn answering(answer: &str) -> (String, Arc<Posted>) {
    let answer = format!("HTTP/1.1 {answer}\r\n\r\n");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = format!("http://{}", listener.local_addr().expect("an address"));
    let posted = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&posted);
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let (Ok(socket), kept) = (socket, Arc::clone(&kept)) else {
                return;
            };
            let answer = answer.clone();
            std::thread::spawn(move || while take(&socket, &kept, &answer).is_some() {});
        }
    });
    (address, posted)
}

fn take(mut socket: &TcpStream, kept: &Posted, answer: &str) -> Option<()> {
    let mut reader = BufReader::new(socket);
    let (mut head, mut size) = (String::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        let lower = line.to_lowercase();
        if let Some(length) = lower.strip_prefix("content-length:") {
            size = length.trim().parse().ok()?;
        }
        if line == "\r\n" {
            break;
        }
        head += &lower;
    }
    let mut body = vec![0; size];
    reader.read_exact(&mut body).ok()?;
    kept.lock().expect("what was posted").push((head, body));
    socket.write_all(answer.as_bytes()).ok()
}

fn holds(body: &[u8], part: &[u8]) -> bool {
    body.windows(part.len()).any(|window| window == part)
}

/// A request is a span in the caller's own trace, and what it waited for are spans below it. What ran is not told.
#[test]
fn a_collector_gets_spans_of_a_request_and_what_it_waited_for() {
    let (collector, posted) = collector();
    let home = TempDir::new();
    let server = Serving::start(Who::User, &home, &["--otlp", &collector]);
    let key = server.key.clone().expect("a key");
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let mut socket = TcpStream::connect(&server.address).expect("a connection");
    let body = r#"{"code": "print('s3cret code')"}"#;
    let request = format!(
        "POST /v1/executions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {key}\r\n\
         Content-Type: application/json\r\n\
         traceparent: 00-{trace}-b7ad6b7169203331-01\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    socket.write_all(request.as_bytes()).expect("it is sent");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    // What is not sent yet is sent at the end.
    let (log, code) = server.end();
    assert_eq!(code, Some(0), "{log}");
    let posted = posted.lock().expect("what was posted");
    assert!(!posted.is_empty(), "{log}");
    let all: Vec<u8> = posted.iter().flat_map(|(_, body)| body.clone()).collect();
    assert!(
        posted
            .iter()
            .all(|(head, _)| head.starts_with("post /v1/traces "))
    );
    let wanted = [
        "belljar",
        "POST /v1/executions",
        "execution",
        "admit",
        "wait",
        "run",
        "record",
        "http.response.status_code",
    ];
    for name in wanted {
        assert!(holds(&all, name.as_bytes()), "{name} is not there");
    }
    let id: Vec<u8> = (0..16)
        .map(|at| u8::from_str_radix(&trace[at * 2..at * 2 + 2], 16).expect("hex"))
        .collect();
    let spans = all.windows(16).filter(|window| *window == id).count();
    assert!(spans >= 5, "{spans} spans are of the caller's trace");
    for secret in ["s3cret", &key] {
        assert!(!holds(&all, secret.as_bytes()), "{secret} is told");
    }
}

/// S11: a collector cannot send the service on to an address that only the service reaches.
#[test]
fn s11_a_collector_does_not_redirect_the_service() {
    let (inside, reached) = collector();
    let redirect = format!("307 Temporary Redirect\r\nLocation: {inside}/v1/traces\r\nContent-Length: 0");
    let (collector, posted) = answering(&redirect);
    let home = TempDir::new();
    let server = Serving::start(Who::User, &home, &["--dev", "--otlp", &collector]);
    let asked = server.ask("POST", "/v1/executions", None, r#"{"code": "print(1)"}"#);
    assert_eq!(asked.expect("an answer").0, 200);
    // What is not sent yet is sent at the end.
    assert_eq!(server.end().1, Some(0));
    assert!(!posted.lock().expect("what was posted").is_empty());
    assert!(reached.lock().expect("what was posted").is_empty());
}

/// A collector that is not there keeps nobody waiting.
#[test]
fn nobody_waits_for_a_collector_that_is_gone() {
    let home = TempDir::new();
    let server = Serving::start(Who::User, &home, &["--otlp", "http://127.0.0.1:9"]);
    let key = server.key.clone().expect("a key");
    for _ in 0..3 {
        let asked = server.ask("POST", "/v1/executions", Some(&key), r#"{"code": "print(1)"}"#);
        assert_eq!(asked.expect("an answer").0, 200);
    }
    assert_eq!(server.end().1, Some(0));
    for bad in ["localhost:4318", "ftp://x", ""] {
        let refused = belljar(Who::User, ["serve", "--otlp", bad])
            .env("BELLJAR_HOME", &home.path().to_string_lossy())
            .go()
            .expect_code(2);
        assert!(refused.stderr.contains("hint:"), "{refused:#?}");
    }
}
