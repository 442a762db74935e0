//! Requests as servers and guests write them, in pieces of any size.

use super::*;

/// What goes on of all this, and whether it was refused, however it is cut into pieces.
fn passes(text: &str) -> Result<Vec<(String, String)>, Refused> {
    let mut all = Vec::new();
    for size in [1, 2, 3, 7, 1000] {
        let (mut requests, mut seen, mut pass) = (Requests::default(), Vec::new(), Vec::new());
        let mut permit = |head: &Head| {
            seen.push((
                head.method.clone(),
                format!("{}{}", head.hosts.join("|"), head.path),
            ));
            Ok(())
        };
        let taken = text
            .as_bytes()
            .chunks(size)
            .try_for_each(|piece| requests.take(piece, &mut permit, &mut pass));
        if taken.is_ok() {
            assert!(text.as_bytes().starts_with(&pass), "in pieces of {size}");
            assert!(requests.is_between() || pass.len() < text.len() || requests.waits());
        }
        all.push(taken.map(|()| seen));
    }
    let first = all[0].clone();
    assert!(all.iter().all(|other| *other == first), "{all:?}");
    first
}

#[test]
fn every_request_says_what_it_is_told_to_say_and_nothing_else_there() {
    let text = "GET /a HTTP/1.1\r\nHost: a.b\r\nauthorization: mine\r\nX: y\r\nAUTHORIZATION:\r\n\r\n\
                POST /b HTTP/1.1\r\nHost: a.b\r\nContent-Length: 23\r\n\r\nAuthorization: body\r\n\r\n";
    let expected = "GET /a HTTP/1.1\r\nAuthorization: T\r\nHost: a.b\r\nX: y\r\n\r\n\
                    POST /b HTTP/1.1\r\nAuthorization: T\r\nHost: a.b\r\nContent-Length: 23\r\n\r\nAuthorization: body\r\n\r\n";
    let told = || {
        Requests::telling(vec![(
            "authorization".to_owned(),
            b"Authorization: T\r\n".to_vec(),
        )])
    };
    for size in [1, 2, 7, 1000] {
        let (mut requests, mut pass) = (told(), Vec::new());
        for piece in text.as_bytes().chunks(size) {
            requests.take(piece, &mut |_| Ok(()), &mut pass).unwrap();
        }
        assert_eq!(String::from_utf8(pass).unwrap(), expected, "in pieces of {size}");
    }
    let trailer =
        "POST / HTTP/1.1\r\nHost: a.b\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nAuthorization: x\r\n\r\n";
    let taken = told().take(trailer.as_bytes(), &mut |_| Ok(()), &mut Vec::new());
    assert!(matches!(taken, Err(Refused::Ambiguous(_))), "{taken:?}");
}

fn seen(of: &[(&str, &str)]) -> Result<Vec<(String, String)>, Refused> {
    Ok(of
        .iter()
        .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
        .collect())
}

#[test]
fn every_request_of_a_connection_is_seen() {
    let text = "GET /a?x=1 HTTP/1.1\r\nHost: a.b\r\n\r\n\
                POST /c HTTP/1.1\r\nhost:a.b:80\r\nContent-Length: 5\r\n\r\nhello\
                PUT /d HTTP/1.1\r\nHost: a.b\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1f\r\n0123456789012345678901234567890\r\n0\r\nX: y\r\n\r\n\
                OPTIONS * HTTP/1.1\r\nHost: evil\r\n\r\n\
                GET http://c.d/e HTTP/1.0\r\nHost: a.b\r\n\r\n";
    let expected = [
        ("GET", "a.b/a"),
        ("POST", "a.b:80/c"),
        ("PUT", "a.b/d"),
        ("OPTIONS", "evil*"),
        ("GET", "c.d|a.b/e"),
    ];
    assert_eq!(passes(text), seen(&expected));
}

#[test]
fn nothing_of_a_refused_request_goes_on() {
    let (mut requests, mut pass) = (Requests::default(), Vec::new());
    let mut permit = |head: &Head| {
        if head.hosts == ["a.b"] {
            Ok(())
        } else {
            Err("no".to_owned())
        }
    };
    let text = b"GET / HTTP/1.1\r\nHost: a.b\r\n\r\nGET / HTTP/1.1\r\nHost: evil\r\n\r\n";
    let taken = requests.take(text, &mut permit, &mut pass);
    assert_eq!(taken, Err(Refused::ByRule("no".to_owned())));
    assert_eq!(pass, b"GET / HTTP/1.1\r\nHost: a.b\r\n\r\n");
}

/// Request smuggling: what two readers would read in two ways.
#[test]
fn what_could_be_read_in_two_ways_is_refused() {
    let with = |lines: &str| format!("POST / HTTP/1.1\r\nHost: a.b\r\n{lines}\r\n");
    for text in [
        with("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"),
        with("Content-Length: 5\r\nContent-Length: 5\r\n"),
        with("Content-Length: 5, 5\r\n"),
        with("Content-Length: +5\r\n"),
        with("Content-Length: 0x5\r\n"),
        with("Content-Length:\r\n"),
        with("Content-Length: 99999999999999999999\r\n"),
        with("Transfer-Encoding: xchunked\r\n"),
        with("Transfer-Encoding: chunked, identity\r\n"),
        with("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
        with("Transfer-Encoding : chunked\r\n"),
        with(" Transfer-Encoding: chunked\r\n"),
        with("X: a\r\n b\r\n"),
        with("X: a\nTransfer-Encoding: chunked\r\n"),
        with("X: a\rTransfer-Encoding: chunked\r\n"),
        with("X: a\0b\r\n"),
        with("nonsense\r\n"),
        with(": x\r\n"),
        with("Host: evil\r\n"),
        with("Upgrade: h2c\r\n"),
        with("Upgrade: websocket\r\nContent-Length: 3\r\n"),
        "GET / HTTP/1.1\r\nHost: a.b\r\nContent-Length: 3\r\n\r\nabc".to_owned(),
        "HEAD / HTTP/1.1\r\nHost: a.b\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(),
        "CONNECT /x HTTP/1.1\r\nHost: a.b\r\n\r\n".to_owned(),
        with("HTTP2-Settings: AAA\r\n"),
        with("Content_Length: 5\r\n"),
        with("Content-Length: 5\r\nTransfer_Encoding: chunked\r\n"),
        with("Content-Length: 010\r\n"),
        with("Connection: close, Content-Length\r\nContent-Length: 5\r\n"),
        with("Connection: host\r\n"),
        with("Expect: 200-ok\r\n"),
        with("Expect: 100-continue\r\nExpect: 100-continue\r\n"),
        with("Expect: 100-continue, 100-continue\r\n"),
        with("Transfer-Encoding: chunked\r\n") + "100000005\r\nhello\r\n0\r\n\r\n",
        with("Transfer-Encoding: chunked\r\n") + "0\r\nContent-Length: 5\r\n\r\n",
        with("Transfer-Encoding: chunked\r\n") + "0\r\nHost: evil\r\n\r\n",
        with("Transfer-Encoding: chunked\r\n") + "0\r\nTransfer_Encoding: chunked\r\n\r\n",
        "POST / HTTP/1.0\r\nHost: a.b\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\n\r\n".to_owned(),
        "GET / HTTP/1.0\r\n\r\n".to_owned(),
        "GET /\r\n\r\n".to_owned(),
        "GET  / HTTP/1.1\r\nHost: a.b\r\n\r\n".to_owned(),
        "GET / HTTP/1.1 \r\nHost: a.b\r\n\r\n".to_owned(),
        "GET / HTTP/2.0\r\nHost: a.b\r\n\r\n".to_owned(),
        "get / HTTP/1.1\r\nHost: a.b\r\n\r\n".to_owned(),
        "CONNECT a.b:443 HTTP/1.1\r\nHost: a.b\r\n\r\n".to_owned(),
        "GET https://a.b/ HTTP/1.1\r\nHost: a.b\r\n\r\n".to_owned(),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
        "\r\nGET / HTTP/1.1\r\nHost: a.b\r\n\r\n".to_owned(),
        "\nGET / HTTP/1.1\r\nHost: a.b\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\nHost: a.b\n\r\n\r\n".to_owned(),
        with("Transfer-Encoding: chunked\r\n") + "5;x=\"\n\"\r\nhello\r\n0\r\n\r\n",
        with("Transfer-Encoding: chunked\r\n") + "5\nhello\r\n0\r\n\r\n",
        with("Transfer-Encoding: chunked\r\n") + "0x5\r\nhello\r\n0\r\n\r\n",
        with("Transfer-Encoding: chunked\r\n") + "\r\nhello\r\n0\r\n\r\n",
        with("Transfer-Encoding: chunked\r\n") + "ffffffffffffffff\r\n",
        with("Transfer-Encoding: chunked\r\n") + "5\r\nhelloX\r\n0\r\n\r\n",
        with("Transfer-Encoding: chunked\r\n") + "0\r\nnonsense\r\n\r\n",
    ] {
        assert!(
            matches!(passes(&text), Err(Refused::Ambiguous(_))),
            "{text:?}: {:?}",
            passes(&text)
        );
    }
}

/// S10: a request with a body carries `Connection: close`, so that no server reads the body as another request.
#[test]
fn s10_a_request_that_brings_something_closes_its_connection() {
    let next = "GET /b HTTP/1.1\r\nHost: a.b\r\n\r\n";
    for (body, rest) in [
        ("Content-Length: 5\r\n", "hello"),
        (
            "Transfer-Encoding: chunked\r\n",
            "5\r\nhello\r\n0\r\nX: y\r\n\r\n",
        ),
    ] {
        let text = format!(
            "GET /a HTTP/1.1\r\nHost: a.b\r\nConnection: keep-alive\r\nexpect: 100-continue\r\n\r\n\
             POST / HTTP/1.1\r\nHost: a.b\r\nCONNECTION: keep-alive\r\nKeep-Alive: 5\r\nProxy-Connection: keep-alive\r\n\
             Expect: 100-Continue\r\nX: y\r\n{body}\r\n{rest}"
        );
        let expected = format!(
            "GET /a HTTP/1.1\r\nHost: a.b\r\nConnection: keep-alive\r\n\r\n\
             POST / HTTP/1.1\r\nConnection: close\r\nHost: a.b\r\nX: y\r\n{body}\r\n{rest}"
        );
        for size in [1, 2, 7, 1000] {
            let (mut requests, mut pass) = (Requests::default().ending_after_body(), Vec::new());
            for piece in text.as_bytes().chunks(size) {
                requests.take(piece, &mut |_| Ok(()), &mut pass).unwrap();
            }
            assert!(requests.is_between());
            assert!(!requests.continues(), "an answer to the first may be on its way");
            assert_eq!(
                String::from_utf8(pass.clone()).unwrap(),
                expected,
                "in pieces of {size}"
            );
            // What a server reads in spite of that is looked at like any other.
            let no = requests.take(next.as_bytes(), &mut |_| Err("no".to_owned()), &mut pass);
            assert_eq!(no, Err(Refused::ByRule("no".to_owned())));
        }
    }
    // One that brings nothing ends nothing.
    let (mut requests, mut pass) = (Requests::default().ending_after_body(), Vec::new());
    let empty = "POST / HTTP/1.1\r\nHost: a.b\r\nContent-Length: 0\r\n\r\n";
    let all = format!("{empty}{next}");
    requests.take(all.as_bytes(), &mut |_| Ok(()), &mut pass).unwrap();
    assert_eq!(pass, all.as_bytes());
}

/// S10: the engine itself says that the rest may come, once, and only where no answer can be on its way.
#[test]
fn s10_who_expects_to_continue_is_told_so() {
    let (mut requests, mut pass) = (Requests::default().ending_after_body(), Vec::new());
    let head = b"POST / HTTP/1.1\r\nHost: a.b\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
    requests.take(head, &mut |_| Ok(()), &mut pass).unwrap();
    assert!(requests.continues() && !requests.continues());
    assert!(!String::from_utf8(pass).unwrap().to_lowercase().contains("expect"));
}

#[test]
fn heads_and_lines_have_an_end() {
    let long = format!("GET / HTTP/1.1\r\nHost: a.b\r\nX: {}", "a".repeat(LONGEST_HEAD));
    assert!(passes(&long).is_err());
    let lines = "GET / HTTP/1.1\r\nHost: a.b\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned()
        + &"0".repeat(LONGEST_LINE + 1);
    assert!(passes(&lines).is_err());
}

#[test]
fn another_protocol_waits_for_its_answer() {
    let (mut requests, mut pass) = (Requests::default(), Vec::new());
    let ask = b"GET /chat HTTP/1.1\r\nHost: a.b\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    requests.take(ask, &mut |_| Ok(()), &mut pass).unwrap();
    assert!(requests.waits());
    assert_eq!(
        (
            agreed(b"HTT"),
            agreed(b"HTTP/1.1 101 Switching"),
            agreed(b"HTTP/1.1 200 OK")
        ),
        (None, Some(true), Some(false))
    );
    // A server that did not agree reads on.
    requests.answered(false);
    let evil = b"GET / HTTP/1.1\r\nHost: evil\r\n\r\n";
    let mut permit = |head: &Head| {
        if head.hosts == ["a.b"] {
            Ok(())
        } else {
            Err("no".to_owned())
        }
    };
    assert!(requests.take(evil, &mut permit, &mut pass).is_err());
    let (mut requests, mut pass) = (Requests::default(), Vec::new());
    requests.take(ask, &mut |_| Ok(()), &mut pass).unwrap();
    assert!(requests.take(b"x", &mut |_| Ok(()), &mut pass).is_err());
    requests.answered(true);
    pass.clear();
    requests
        .take(b"\x81\x05hello", &mut |_| Ok(()), &mut pass)
        .unwrap();
    assert_eq!(pass, b"\x81\x05hello");
}

#[test]
fn what_a_server_would_take_for_a_request_is_one() {
    let long = format!("PURGE /{}", "a".repeat(LONGEST_LINE));
    for text in [
        "GET / HTTP/1.1",
        "get / x",
        "\r\nGET /",
        "PRI * HTTP/2.0\r\n",
        "purge /x HTTP/1.1\n",
        "POST \n",
        "A-B / HTTP/1.1",
        "\x0bGET /a HTTP/1.1",
        "GET\x0b/b HTTP/1.1",
        "GÉT /f HTTP/1.1",
        "PURGE /g\n",
        &long,
    ] {
        assert_eq!(begins(text.as_bytes()), Some(true), "{text:?}");
    }
    for text in ["", "\r\n", "GE", "GET", "EHLO me"] {
        assert_eq!(begins(text.as_bytes()), None, "{text:?}");
    }
    for bytes in [
        &b"SSH-2.0-x\r\n"[..],
        b"\x16\x03\x01",
        b"\0\0\0\x08",
        b"AMQP\0\0\x09\x01",
        b"EHLO me\r\n",
        b"PING\r\n",
    ] {
        assert_eq!(begins(bytes), Some(false), "{bytes:?}");
    }
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_taken_or_refused(text in "[ -~\r\n]{0,300}", size in 1usize..40) {
        let (mut requests, mut pass) = (Requests::default(), Vec::new());
        let all = format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{text}");
        for piece in all.as_bytes().chunks(size) {
            if requests.take(piece, &mut |_| Ok(()), &mut pass).is_err() {
                break;
            }
        }
        proptest::prop_assert!(all.as_bytes().starts_with(&pass));
    }
}
