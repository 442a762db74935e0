//! S10: a request has one reading, or none. What a proxy in front could read as the body of one request never becomes
//! another request here.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::Server;
use crate::databases::on_each;

/// What must not be answered where it is hidden in a body.
const HIDDEN: &str = "GET /openapi.json HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: smuggled\r\n\r\n";

/// Sends bytes, and gives the status of each answer and all that came until the connection was closed.
async fn exchange(server: &Server, bytes: &[u8]) -> (Vec<u16>, String) {
    let mut socket = TcpStream::connect(server.url.trim_start_matches("http://"))
        .await
        .unwrap();
    let _ = socket.write_all(bytes).await;
    let mut answer = Vec::new();
    // A connection that is kept open is closed by the service after its time for a head.
    let reading = socket.read_to_end(&mut answer);
    let _ = tokio::time::timeout(Duration::from_secs(30), reading)
        .await
        .expect("an end in time");
    let text = String::from_utf8_lossy(&answer).into_owned();
    let statuses = text
        .split("HTTP/1.1 ")
        .skip(1)
        .filter_map(|rest| rest.get(..3)?.parse().ok())
        .filter(|status| *status != 100)
        .collect();
    (statuses, text)
}

/// A request without a key, so that the answer comes before the body is read.
fn request(lines: &str, body: &str) -> Vec<u8> {
    format!(
        "POST /v1/executions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{lines}\r\n\r\n{body}"
    )
    .into_bytes()
}

#[test]
fn s10_two_lengths_and_chunk_tricks_hide_no_request() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        let hidden = HIDDEN.len();
        let chunked = "Transfer-Encoding: chunked";
        let end = format!("0\r\n\r\n{HIDDEN}");
        let cases: Vec<(&str, Vec<u8>)> = vec![
            (
                "length and chunks",
                request(&format!("Content-Length: {}\r\n{chunked}", end.len()), &end),
            ),
            (
                "chunks and length",
                request(&format!("{chunked}\r\nContent-Length: {}", end.len()), &end),
            ),
            (
                "chunks and a short length",
                request(&format!("{chunked}\r\nContent-Length: 0"), &end),
            ),
            (
                "two lengths",
                request(&format!("Content-Length: 0\r\nContent-Length: {hidden}"), HIDDEN),
            ),
            (
                "two lengths, the other way",
                request(&format!("Content-Length: {hidden}\r\nContent-Length: 0"), HIDDEN),
            ),
            (
                "two lengths in one line",
                request(&format!("Content-Length: 0, {hidden}"), HIDDEN),
            ),
            ("a length with a sign", request("Content-Length: +0", HIDDEN)),
            ("a negative length", request("Content-Length: -1", HIDDEN)),
            ("a length in hex", request("Content-Length: 0x0", HIDDEN)),
            (
                "a length that overflows",
                request("Content-Length: 18446744073709551616", HIDDEN),
            ),
            ("an empty length", request("Content-Length: ", HIDDEN)),
            (
                "a space before the colon",
                request(
                    &format!("Transfer-Encoding : chunked\r\nContent-Length: {}", end.len()),
                    &end,
                ),
            ),
            (
                "a folded line",
                request(
                    &format!("Transfer-Encoding:\r\n chunked\r\nContent-Length: {}", end.len()),
                    &end,
                ),
            ),
            (
                "chunked is not the last",
                request("Transfer-Encoding: chunked, identity", &end),
            ),
            ("an unknown coding", request("Transfer-Encoding: xchunked", &end)),
            ("a quoted coding", request("Transfer-Encoding: \"chunked\"", &end)),
            (
                "a coding with a tab",
                request("Transfer-Encoding: chunked\u{b}", &end),
            ),
            (
                "a chunk size with a sign",
                request(chunked, &format!("+0\r\n\r\n{HIDDEN}")),
            ),
            (
                "a chunk size in hex",
                request(chunked, &format!("0x0\r\n\r\n{HIDDEN}")),
            ),
            (
                "a chunk size that overflows",
                request(chunked, &format!("10000000000000000\r\n{HIDDEN}")),
            ),
            (
                "a chunk size that is none",
                request(chunked, &format!("x\r\n\r\n{HIDDEN}")),
            ),
            (
                "a chunk without its end",
                request(chunked, &format!("1\r\nxx0\r\n\r\n{HIDDEN}")),
            ),
            (
                "chunks of HTTP/1.0",
                format!("POST /v1/executions HTTP/1.0\r\nHost: localhost\r\n{chunked}\r\n\r\n{end}")
                    .into_bytes(),
            ),
            (
                "a NUL in a header",
                request(&format!("X: a\0b\r\nContent-Length: {hidden}"), HIDDEN),
            ),
            (
                "a carriage return in a header",
                request(
                    &format!("X: a\rContent-Length: 0\r\nContent-Length: {hidden}"),
                    HIDDEN,
                ),
            ),
        ];
        for (name, bytes) in cases {
            let (statuses, text) = exchange(&server, &bytes).await;
            assert!(statuses.len() <= 1, "{name}: {statuses:?}");
            assert!(
                statuses.iter().all(|status| (400..500).contains(status)),
                "{name}: {statuses:?}"
            );
            assert!(!text.contains("smuggled"), "{name}: {text}");
        }
        server.stop().await;
    });
}

/// The control of the test above: what is a request of its own is answered, after the first one and by the same means.
#[test]
fn s10_pipelined_requests_are_answered_in_their_order_each_with_its_own_key() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        let key = format!("Authorization: Bearer {}\r\n", server.key);
        let get = |id: &str, key: &str| {
            format!("GET /v1/policies HTTP/1.1\r\nHost: localhost\r\n{key}X-Request-Id: {id}\r\n\r\n")
        };
        let all = [get("a", &key), get("b", ""), get("c", &key), HIDDEN.to_owned()].concat();
        let (statuses, text) = exchange(&server, all.as_bytes()).await;
        // Nobody has the rights of whoever came before on the same connection.
        assert_eq!(statuses, [200, 401, 200, 200]);
        let at = |id: &str| text.find(&format!("x-request-id: {id}\r\n")).expect(id);
        assert!(at("a") < at("b") && at("b") < at("c") && at("c") < at("smuggled"));
        // The same with bodies: each has exactly its length.
        let body = r#"{"code": ""}"#;
        let post = |lines: &str, body: &str| {
            let head =
                "POST /v1/executions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
            format!("{head}{key}{lines}\r\n\r\n{body}")
        };
        let length = format!("Content-Length: {}", body.len());
        let chunk = format!(
            "{:x};name=\"value\"\r\n{body}\r\n0\r\nX-Trailer: {HIDDEN}",
            body.len()
        );
        let chunk = chunk.replace(
            "GET /openapi.json HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: smuggled",
            "1",
        );
        let all = [
            post(&length, body),
            post("Transfer-Encoding: chunked", &chunk),
            post(&format!("{length}\r\n{length}"), body),
            HIDDEN.to_owned(),
        ];
        let (statuses, text) = exchange(&server, all.concat().as_bytes()).await;
        assert_eq!(statuses, [403, 403, 403, 200], "{text}");
        server.stop().await;
    });
}

#[test]
fn s10_a_body_that_waits_for_100_continue_is_no_request() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        let length = format!("Content-Length: {}\r\nExpect: 100-continue", HIDDEN.len());
        // The answer is final before the body, which comes nevertheless.
        let (statuses, text) = exchange(&server, &request(&length, HIDDEN)).await;
        assert_eq!(statuses, [401], "{text}");
        assert!(
            !text.contains("smuggled") && !text.contains("100 Continue"),
            "{text}"
        );
        // Whoever may send it is asked for it, once.
        let key = format!("Authorization: Bearer {}\r\n{length}", server.key);
        let (statuses, text) = exchange(&server, &request(&key, HIDDEN)).await;
        assert_eq!(statuses, [400], "{text}");
        assert!(!text.contains("smuggled"), "{text}");
        // The body comes later, when it was not asked for.
        let mut socket = TcpStream::connect(server.url.trim_start_matches("http://"))
            .await
            .unwrap();
        socket.write_all(&request(&length, "")).await.unwrap();
        let mut answer = [0; 12];
        socket.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 401");
        let _ = socket.write_all(HIDDEN.as_bytes()).await;
        let mut rest = Vec::new();
        let reading = socket.read_to_end(&mut rest);
        let _ = tokio::time::timeout(Duration::from_secs(30), reading)
            .await
            .expect("an end in time");
        let rest = String::from_utf8_lossy(&rest).into_owned();
        assert!(!rest.contains("smuggled") && !rest.contains("HTTP/1.1"), "{rest}");
        server.stop().await;
    });
}
