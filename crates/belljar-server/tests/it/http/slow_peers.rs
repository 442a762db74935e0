//! S12: peers that send slowly, never finish or open very many connections hold a bounded part of the service.

use std::time::Duration;

use belljar_server::http::Limits;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use super::sessions::open;
use super::{Network, Server, get, settings, until};
use crate::databases::on_each;

async fn read_all(socket: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    let reading = socket.read_to_end(&mut answer);
    let _ = tokio::time::timeout(Duration::from_secs(60), reading)
        .await
        .expect("an end in time");
    String::from_utf8_lossy(&answer).into_owned()
}

/// Connects from one address of loopback, which is what a peer is known by.
async fn connect_from(server: &Server, peer: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(format!("{peer}:0").parse().unwrap()).unwrap();
    let address = server.url.trim_start_matches("http://").parse().unwrap();
    socket.connect(address).await.unwrap()
}

/// Seen failing without the timeout in `read::bytes`.
#[test]
fn s12_a_body_that_does_not_arrive_in_time_is_given_up() {
    on_each(|database| async move {
        let network = Network {
            body_timeout: Duration::from_millis(300),
            ..Network::default()
        };
        let server = Server::with_network(settings(&database), network).await;
        let session = open(&server.admin, json!({})).await.unwrap();
        let file = format!("PUT /v1/sessions/{session}/file?path=a");
        let json = "POST /v1/executions";
        for (line, kind, framing, start) in [
            (json, "json", "Content-Length: 100", "{"),
            (json, "json", "Transfer-Encoding: chunked", "1\r\n{\r\n"),
            (json, "json", "Content-Length: 100\r\nExpect: 100-continue", ""),
            ("POST /v1/batches", "x-ndjson", "Content-Length: 100", "{"),
            (&file, "octet-stream", "Content-Length: 100", "x"),
        ] {
            let mut socket = connect_from(&server, "127.0.0.1").await;
            let head = format!(
                "{line} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\nContent-Type: application/{kind}\r\n\
                 {framing}\r\n\r\n{start}",
                server.key
            );
            socket.write_all(head.as_bytes()).await.unwrap();
            // The other half stays open and nothing comes.
            let answer = read_all(&mut socket).await;
            assert!(answer.contains("HTTP/1.1 408"), "{line} {framing}: {answer}");
            assert!(answer.contains("the body did not arrive in time"), "{answer}");
        }
        server.stop().await;
    });
}

/// Seen failing without `Connections::admit`: the silent peer takes every place and the other one is not answered.
#[test]
fn s12_one_peer_does_not_take_every_connection() {
    on_each(|database| async move {
        let network = Network {
            limits: Limits {
                connections: 8,
                connections_per_peer: 4,
                // So that none of the silent ones ends by itself.
                head: Duration::from_secs(600),
                ending: Duration::from_secs(1),
                ..Limits::default()
            },
            ..Network::default()
        };
        let server = Server::with_network(settings(&database), network).await;
        let mut silent = Vec::new();
        for _ in 0..30 {
            silent.push(connect_from(&server, "127.0.0.2").await);
        }
        // Of 30, four stay. The others are told why and closed.
        let mut closed = 0;
        while closed < 26 {
            let socket = &mut silent[4 + closed];
            let answer = read_all(socket).await;
            assert!(
                answer.contains("HTTP/1.1 429") && answer.contains("too many connections"),
                "{answer}"
            );
            closed += 1;
        }
        let mut other = connect_from(&server, "127.0.0.3").await;
        other
            .write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .await
            .unwrap();
        assert!(read_all(&mut other).await.starts_with("HTTP/1.1 200"));
        // What is closed is free again.
        drop(silent);
        until("a free place", async || {
            let mut again = connect_from(&server, "127.0.0.2").await;
            let asked = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
            again.write_all(asked).await.is_ok() && read_all(&mut again).await.starts_with("HTTP/1.1 200")
        })
        .await;
        server.stop().await;
    });
}

/// A WebSocket is a connection of its peer for as long as it is open. Seen failing without the slot in `socket::Upgrade`.
#[test]
fn s12_websockets_count_among_the_connections_of_a_peer() {
    on_each(|database| async move {
        let network = Network {
            limits: Limits {
                connections_per_peer: 4,
                ending: Duration::from_secs(1),
                ..Limits::default()
            },
            ..Network::default()
        };
        let server = Server::with_network(settings(&database), network).await;
        let session = open(&server.admin, json!({})).await.unwrap();
        let upgrade = async || {
            let mut socket = connect_from(&server, "127.0.0.2").await;
            let head = format!(
                "GET /v1/sessions/{session}/socket HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\
                 Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                 Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
                server.key
            );
            // A peer that has too many is not read.
            let _ = socket.write_all(head.as_bytes()).await;
            let mut start = [0; 12];
            match socket.read_exact(&mut start).await {
                Ok(_) => (String::from_utf8_lossy(&start).into_owned(), socket),
                Err(_) => ("closed".to_owned(), socket),
            }
        };
        let mut open = Vec::new();
        for _ in 0..4 {
            let (start, socket) = upgrade().await;
            assert_eq!(start, "HTTP/1.1 101");
            open.push(socket);
        }
        for _ in 0..4 {
            let (start, _) = upgrade().await;
            assert!(start == "HTTP/1.1 429" || start == "closed", "{start}");
        }
        assert!(get(&server.admin, "/v1/sessions").await.is_ok());
        drop(open);
        until("a free place", async || upgrade().await.0 == "HTTP/1.1 101").await;
        server.stop().await;
    });
}
