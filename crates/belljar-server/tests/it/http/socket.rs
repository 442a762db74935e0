//! A session's WebSocket.

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use super::sessions::open;
use super::{Server, problem};
use crate::databases::on_each;

struct Socket(WebSocketStream<MaybeTlsStream<TcpStream>>);

impl Socket {
    async fn connect(server: &Server, session: &str) -> Self {
        Self::with_key(server, session, &server.key).await
    }

    async fn with_key(server: &Server, session: &str, key: &str) -> Self {
        let url = format!(
            "{}/v1/sessions/{session}/socket",
            server.url.replace("http", "ws")
        );
        let mut request = url.into_client_request().unwrap();
        let key = format!("Bearer {key}").parse().unwrap();
        request.headers_mut().insert("authorization", key);
        Self(tokio_tungstenite::connect_async(request).await.unwrap().0)
    }

    async fn say(&mut self, message: Value) {
        self.0.send(Message::text(message.to_string())).await.unwrap();
    }

    async fn hear(&mut self) -> Value {
        let heard = tokio::time::timeout(Duration::from_secs(20), self.0.next())
            .await
            .expect("something in time");
        let Message::Text(text) = heard.unwrap().unwrap() else {
            panic!("not text");
        };
        serde_json::from_str(&text).unwrap()
    }

    /// Everything up to a message of that type.
    async fn until(&mut self, kind: &str) -> Vec<Value> {
        let mut heard = Vec::new();
        loop {
            let message = self.hear().await;
            let found = message["type"] == kind;
            heard.push(message);
            if found {
                return heard;
            }
        }
    }
}

#[test]
fn code_goes_in_and_output_comes_out() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        let session = open(&server.admin, json!({})).await.unwrap();
        let mut socket = Socket::connect(&server, &session).await;
        socket
            .say(json!({"type": "execute", "id": "a", "code": "print(input()); 6 * 7", "stdin": "typed"}))
            .await;
        let heard = socket.until("result").await;
        assert_eq!(heard[0]["type"], "started");
        assert!(heard.iter().all(|message| message["id"] == "a"));
        let text: String = heard
            .iter()
            .filter_map(|message| message["text"].as_str())
            .collect();
        assert_eq!(text, "typed\n");
        assert_eq!(heard.last().unwrap()["execution"]["outcome"]["value"], 42);
        // Two at once are executed one after the other.
        for id in [1, 2] {
            socket
                .say(json!({"type": "execute", "id": id, "code": format!("print({id})")}))
                .await;
        }
        let mut ids = Vec::new();
        for _ in 0..2 {
            ids.push(socket.until("result").await.pop().unwrap()["id"].clone());
        }
        assert_eq!(ids, [1, 2]);
        socket.say(json!({"type": "execute", "id": 3, "code": "import time; print('up', flush=True); time.sleep(60)"})).await;
        socket.until("output").await;
        socket.say(json!({"type": "interrupt"})).await;
        let result = socket.until("result").await.pop().unwrap();
        assert_eq!(result["execution"]["outcome"]["error"]["type"], "interrupted");
        socket.say(json!({"type": "reset", "id": 4})).await;
        assert_eq!(socket.until("reset_done").await.pop().unwrap()["id"], 4);
        server.stop().await;
    });
}

/// Host tools at the client: calls go out, answers and errors come back.
#[test]
fn tools_at_the_client_are_called() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        let session = open(&server.admin, json!({"tools": ["price", "sell"]}))
            .await
            .unwrap();
        let mut socket = Socket::connect(&server, &session).await;
        socket
            .say(json!({"type": "execute", "id": 1, "code": "price('tea', unit='kg') * 2"}))
            .await;
        let call = socket.until("tool_call").await.pop().unwrap();
        assert_eq!(
            (&call["name"], &call["args"], &call["kwargs"]),
            (&json!("price"), &json!(["tea"]), &json!({"unit": "kg"}))
        );
        socket
            .say(json!({"type": "tool_result", "call": call["call"], "value": 3.5}))
            .await;
        let result = socket.until("result").await.pop().unwrap();
        assert_eq!(result["execution"]["outcome"]["value"], 7.0);
        assert_eq!(result["execution"]["outcome"]["tool_calls"][0]["name"], "price");
        socket.say(json!({"type": "execute", "id": 2, "code": "try:\n    sell()\nexcept KeyError as e:\n    x = str(e)\nx"})).await;
        let call = socket.until("tool_call").await.pop().unwrap();
        socket.say(json!({"type": "tool_error", "call": call["call"], "kind": "KeyError", "message": "none left"})).await;
        let result = socket.until("result").await.pop().unwrap();
        assert_eq!(result["execution"]["outcome"]["value"], "'none left'");
        // An answer that nobody waits for harms nobody.
        socket
            .say(json!({"type": "tool_result", "call": 99, "value": 1}))
            .await;
        assert!(
            socket.until("problem").await.pop().unwrap()["problem"]["detail"]
                .as_str()
                .unwrap()
                .contains("99")
        );
        // Whoever goes takes the tools along.
        socket
            .say(json!({"type": "execute", "id": 3, "code": "print('up', flush=True)"}))
            .await;
        socket.until("result").await;
        drop(socket);
        tokio::time::sleep(Duration::from_millis(200)).await;
        let path = format!("/v1/sessions/{session}/execute");
        let done: Value = server
            .admin
            .call(
                axum::http::Method::POST,
                &path,
                Some(&json!({"code": "price('tea')"})),
            )
            .await
            .unwrap();
        assert!(
            done["outcome"]["exception"]["message"]
                .as_str()
                .unwrap()
                .contains("not connected"),
            "{done}"
        );
        server.stop().await;
    });
}

/// A call of a tool may need approval: the guest waits, and the run's clock stands still.
#[test]
fn a_tool_call_waits_for_approval_while_the_clock_stands_still() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        server
            .define(json!({
                "policy_id": "careful", "extends": "standard", "approve_tools": ["send"], "max_wall_time_seconds": 2,
            }))
            .await;
        let wishes = json!({"tools": ["send", "look"], "policy_id": "careful"});
        let session = open(&server.admin, wishes).await.unwrap();
        let mut socket = Socket::connect(&server, &session).await;
        let code = "x = look()\ntry:\n    y = send('all', to='them')\nexcept PermissionError as e:\n    y = str(e)\n(x, y)";
        let pending = async || {
            let list = super::get(&server.admin, "/v1/approvals?state=pending")
                .await
                .unwrap();
            list["approvals"][0].clone()
        };
        for (verb, longer) in [("grant", true), ("deny", false)] {
            socket
                .say(json!({"type": "execute", "id": verb, "code": code}))
                .await;
            let look = socket.until("tool_call").await.pop().unwrap();
            assert_eq!(look["name"], "look");
            socket
                .say(json!({"type": "tool_result", "call": look["call"], "value": 1}))
                .await;
            super::until("a question", async || pending().await.is_object()).await;
            let approval = pending().await;
            assert_eq!(
                (&approval["kind"], &approval["tool"]["tool"]),
                (&json!("tool"), &json!("send"))
            );
            assert_eq!(approval["tool"]["kwargs"], json!({"to": "them"}));
            if longer {
                // Longer than the execution may take.
                tokio::time::sleep(Duration::from_millis(2600)).await;
            }
            let path = format!(
                "/v1/approvals/{}/{verb}",
                approval["approval_id"].as_str().unwrap()
            );
            let word = json!({"reason": "because"});
            let _: Value = server
                .admin
                .call(axum::http::Method::POST, &path, Some(&word))
                .await
                .unwrap();
            if verb == "grant" {
                let call = socket.until("tool_call").await.pop().unwrap();
                socket
                    .say(json!({"type": "tool_result", "call": call["call"], "value": "sent"}))
                    .await;
            }
            let result = socket.until("result").await.pop().unwrap();
            let outcome = &result["execution"]["outcome"];
            assert_eq!(outcome["status"], "completed", "{outcome}");
            match verb {
                "grant" => {
                    assert!(outcome["value"].to_string().contains("sent"), "{outcome}");
                    assert!(outcome["duration"].as_f64().unwrap() < 2.0, "{outcome}");
                }
                _ => assert!(outcome["value"].to_string().contains("because"), "{outcome}"),
            }
        }
        // What is interrupted withdraws its question; and the clock goes on where nobody is asked.
        socket
            .say(json!({"type": "execute", "id": 3, "code": "send()"}))
            .await;
        super::until("a question", async || pending().await.is_object()).await;
        socket.say(json!({"type": "interrupt"})).await;
        socket.until("result").await;
        super::until("a withdrawal", async || pending().await.is_null()).await;
        socket
            .say(json!({"type": "execute", "id": 4, "code": "while True: pass"}))
            .await;
        let result = socket.until("result").await.pop().unwrap();
        assert_eq!(result["execution"]["status"], "timeout");
        server.stop().await;
    });
}

#[test]
fn what_is_no_message_is_a_problem_and_the_conversation_goes_on() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        let session = open(&server.admin, json!({})).await.unwrap();
        let mut socket = Socket::connect(&server, &session).await;
        for text in [
            "",
            "{",
            "[]",
            "{}",
            "{\"type\": \"nope\"}",
            "{\"type\": \"execute\"}",
            "{\"type\": \"interrupt\", \"x\": 1}",
        ] {
            socket.0.send(Message::text(text)).await.unwrap();
            let told = socket.hear().await;
            assert_eq!(
                (&told["type"], &told["problem"]["status"]),
                (&json!("problem"), &json!(400)),
                "{text}"
            );
        }
        socket.0.send(Message::binary(vec![0xff])).await.unwrap();
        assert_eq!(socket.hear().await["type"], "problem");
        socket
            .say(json!({"type": "execute", "id": null, "code": "1", "limits": {"memory": "lots"}}))
            .await;
        assert_eq!(socket.hear().await["problem"]["field"], "limits.memory");
        socket.say(json!({"type": "execute", "id": 1, "code": "2"})).await;
        assert_eq!(
            socket.until("result").await.pop().unwrap()["execution"]["outcome"]["value"],
            2
        );
        // Without a key, or as an ordinary request, there is no socket.
        let path = format!("/v1/sessions/{session}/socket");
        assert_eq!(problem(super::get(&server.admin, &path).await).status, 400);
        let url = format!("{}{path}", server.url.replace("http", "ws"));
        assert!(tokio_tungstenite::connect_async(url).await.is_err());
        server.stop().await;
    });
}

/// A key that is revoked opens nothing any more, not even what it opened before.
#[test]
fn a_revoked_key_ends_the_conversation() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        let key = server.new_key(json!({"roles": ["run"]})).await;
        let session = open(&server.admin, json!({})).await.unwrap();
        let mut busy = Socket::with_key(&server, &session, &key).await;
        let mut silent = Socket::with_key(&server, &session, &key).await;
        busy.say(json!({"type": "execute", "id": 1, "code": "1"})).await;
        busy.until("result").await;
        let path = format!("/v1/keys/{}", key.split('_').nth(1).unwrap());
        let _: Value = server
            .admin
            .call(axum::http::Method::DELETE, &path, super::NOTHING)
            .await
            .unwrap();
        busy.say(json!({"type": "execute", "id": 2, "code": "2"})).await;
        assert_eq!(busy.hear().await["problem"]["status"], 401);
        // One who says nothing is hung up on as well.
        let ended = tokio::time::timeout(Duration::from_secs(10), async {
            while let Some(Ok(message)) = silent.0.next().await {
                assert!(!message.is_text(), "{message}");
            }
        });
        ended.await.expect("it is hung up");
        server.stop().await;
    });
}

/// What stands in every message about an execution is short.
#[test]
fn a_name_is_short() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        let session = open(&server.admin, json!({})).await.unwrap();
        let mut socket = Socket::connect(&server, &session).await;
        for id in [json!("x".repeat(257)), json!([1]), json!({"a": 1}), json!(true)] {
            socket
                .say(json!({"type": "execute", "id": id, "code": "1"}))
                .await;
            assert_eq!(socket.hear().await["problem"]["status"], 400, "{id}");
        }
        for id in [json!("x".repeat(256)), json!(1.5), Value::Null] {
            socket
                .say(json!({"type": "execute", "id": id, "code": "1"}))
                .await;
            assert_eq!(socket.until("result").await.last().unwrap()["id"], id);
        }
        server.stop().await;
    });
}

/// An execution may bring tools and data of its own.
#[test]
fn an_execution_brings_tools() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        let session = open(&server.admin, json!({})).await.unwrap();
        let mut socket = Socket::connect(&server, &session).await;
        let wish =
            json!({"type": "execute", "id": 1, "code": "add(x, 2)", "globals": {"x": 1}, "tools": ["add"]});
        socket.say(wish).await;
        let call = socket.until("tool_call").await.pop().unwrap();
        assert_eq!(call["args"], json!([1, 2]));
        socket
            .say(json!({"type": "tool_result", "call": call["call"], "value": 3}))
            .await;
        let result = socket.until("result").await.pop().unwrap();
        assert_eq!(result["execution"]["outcome"]["value"], 3);
        socket
            .say(json!({"type": "execute", "id": 2, "command": "echo hi"}))
            .await;
        let result = socket.until("result").await.pop().unwrap();
        assert_eq!(result["execution"]["outcome"]["stdout"], "hi\n");
        socket.say(json!({"type": "execute", "id": 3, "cod": "1"})).await;
        assert_eq!(
            socket.until("problem").await.pop().unwrap()["problem"]["status"],
            400
        );
        server.stop().await;
    });
}
