//! What is said on a connection that may be: whom TLS and HTTP ask for.

use super::World;

/// P47: connected to an allowed name, and asking for another.
#[test]
fn p47_tls_asks_for_whom_it_is_connected_to() {
    for world in World::behind_every_wall() {
        let done = world.run(
        "def secure(name, port=443): return say('api.test', port, 'GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n', over=tls(name))\n\
         attempt('same', lambda: secure('api.test'))\n\
         attempt('spelling', lambda: secure('API.test'))\n\
         attempt('other', lambda: secure('other.test'))\n\
         attempt('none', lambda: secure(None))\n\
         attempt('clear', lambda: get('api.test', port=443))\n\
         attempt('where HTTP is', lambda: secure('api.test', 80))",
    );
        let done = done.expect_code(0);
        let said = done.guest_stdout();
        let mut lines = said.lines();
        assert_eq!(
            (lines.next(), lines.next()),
            (Some("same 1"), Some("spelling 1")),
            "{done:#?}"
        );
        for line in lines {
            assert!(
                line.ends_with("Error") || line.ends_with(" 0"),
                "{line}\n{done:#?}"
            );
        }
        let seen = world.seen();
        let asked: Vec<_> = seen.iter().filter(|seen| seen["method"] == "GET").collect();
        let whom = |seen: &&serde_json::Value| {
            seen["name"].as_str().map(str::to_ascii_lowercase).as_deref() == Some("api.test")
        };
        assert!(asked.len() == 2 && asked.iter().all(whom), "{seen:?}");
    }
}

#[test]
fn every_request_of_a_connection_is_for_its_host() {
    for world in World::behind_every_wall() {
        let done = world.run(
        "line = 'GET /%s HTTP/1.1\\r\\nHost: %s\\r\\n\\r\\n'\n\
         attempt('two', lambda: say('api.test', 80, line % (1, 'api.test') + line % (2, 'api.test:80'), 2))\n\
         attempt('other host', lambda: say('api.test', 80, line % (3, 'other.test')))\n\
         attempt('kept alive', lambda: say('api.test', 80, line % (4, 'api.test') + line % (5, 'other.test'), 2))\n\
         attempt('absolute', lambda: say('api.test', 80, 'GET http://other.test/6 HTTP/1.1\\r\\nHost: api.test\\r\\n\\r\\n'))\n\
         attempt('no host', lambda: say('api.test', 80, 'GET /7 HTTP/1.1\\r\\n\\r\\n'))\n\
         attempt('two hosts', lambda: say('api.test', 80, 'GET /8 HTTP/1.1\\r\\nHost: api.test\\r\\nHost: other.test\\r\\n\\r\\n'))\n\
         hidden = 'GET /9 HTTP/1.1\\r\\nHost: other.test\\r\\n\\r\\n'\n\
         attempt('length and chunks', lambda: say('api.test', 80, 'POST / HTTP/1.1\\r\\nHost: api.test\\r\\nContent-Length: 5\\r\\n'\n    \
             'Transfer-Encoding: chunked\\r\\n\\r\\n0\\r\\n\\r\\n' + hidden, 2))\n\
         attempt('upgrade', lambda: say('api.test', 80, 'GET / HTTP/1.1\\r\\nHost: api.test\\r\\nUpgrade: h2c\\r\\n\\r\\n' + hidden, 2))\n\
         attempt('body of a GET', lambda: say('api.test', 80, 'GET / HTTP/1.1\\r\\nHost: api.test\\r\\nContent-Length: %d\\r\\n\\r\\n' % len(hidden) + hidden, 2))\n\
         attempt('method', lambda: say('api.test', 5000, 'A-B / HTTP/1.1\\r\\nHost: api.test\\r\\n\\r\\n' + hidden, 2))\n\
         attempt('elsewhere', lambda: say('api.test', 5000, line % (10, 'other.test')))\n\
         attempt('chunks', lambda: say('api.test', 80, 'POST /11 HTTP/1.1\\r\\nHost: api.test\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n'\n    \
             '5\\r\\nhello\\r\\n0\\r\\n\\r\\n'))",
    );
        let done = done.expect_code(0);
        let said = done.guest_stdout();
        let ways = [
            "two 2",
            "other host",
            "kept alive",
            "absolute",
            "no host",
            "two hosts",
            "length and chunks",
            "upgrade",
            "body of a GET",
            "method",
            "elsewhere",
            "chunks 1",
        ];
        assert_eq!(said.lines().count(), ways.len(), "{done:#?}");
        for (line, way) in said.lines().zip(ways) {
            assert!(line.starts_with(way), "{line}\n{done:#?}");
        }
        let seen = world.seen();
        let targets: Vec<_> = seen.iter().filter_map(|seen| seen["target"].as_str()).collect();
        assert_eq!(targets, ["/1", "/2", "/4", "/11"], "{done:#?}");
        assert!(seen.iter().all(|seen| seen["host"] != "other.test"), "{seen:?}");
    }
}

/// S10: a server that answers without reading what a request brings takes none of it for another request, here for another host of the
/// same address. Seen reaching `other.test` without the control `bodies` (`weakened.rs`).
#[test]
fn s10_what_a_request_brings_is_no_other_request() {
    for world in World::behind_every_wall() {
        let done = world.run(
            "hidden = 'GET /hidden HTTP/1.1\\r\\nHost: other.test\\r\\n\\r\\n'\n\
             def post(*lines): return 'POST /%s HTTP/1.1\\r\\nHost: api.test:5001\\r\\n' % len(lines) + ''.join(line + '\\r\\n' for line in lines) + '\\r\\n'\n\
             size = 'Content-Length: %d' % len(hidden)\n\
             chunk = '%x\\r\\n%s\\r\\n0\\r\\n\\r\\n' % (len(hidden), hidden)\n\
             attempt('plain', lambda: say('api.test', 5001, post(size) + hidden, 2))\n\
             attempt('kept alive', lambda: say('api.test', 5001, post(size, 'Connection: keep-alive') + hidden, 2))\n\
             attempt('expect', lambda: say('api.test', 5001, post(size, 'Expect: 100-continue') + hidden, 2))\n\
             attempt('chunks', lambda: say('api.test', 5001, post('Transfer-Encoding: chunked', 'Expect: 100-continue') + chunk, 2))\n\
             def late():\n    \
                 with dial('api.test', 5001) as s:\n        \
                     s.sendall(post(size, 'Expect: 100-continue').encode()); first = s.recv(12)\n        \
                     try: s.sendall(hidden.encode()); s.settimeout(3); s.recv(1000)\n        \
                     except OSError: pass\n        \
                     return first.startswith(b'HTTP/1.1')\n\
             attempt('late', late)\n\
             attempt('two', lambda: say('api.test', 5001, post(size, size) + hidden, 2))\n\
             attempt('odd', lambda: say('api.test', 5001, post('Content_Length: %d' % len(hidden)) + hidden, 2))\n\
             attempt('dropped', lambda: say('api.test', 5001, post(size, 'Connection: content-length') + hidden, 2))",
        );
        let done = done.expect_code(0);
        let said = done.guest_stdout();
        for line in ["plain 1", "kept alive 1", "expect 1", "chunks 1", "late True"] {
            assert!(said.lines().any(|said| said == line), "{line}: {done:#?}");
        }
        let seen = world.seen();
        assert!(seen.iter().any(|seen| seen["port"] == 5001), "{seen:?}");
        for seen in &seen {
            assert_eq!(seen["host"], "api.test:5001", "{seen}");
            assert!(seen["expect"].is_null() && seen["target"] != "/hidden", "{seen}");
        }
    }
}

/// S10: whoever expects to be told to continue is, and what it sends arrives.
#[test]
fn s10_large_requests_that_expect_to_continue_arrive() {
    for world in World::behind_every_wall() {
        let done = world.run(
            "import shutil, subprocess\n\
             def waits():\n    \
                 with dial('api.test', 80) as s:\n        \
                     s.sendall(b'POST /waits HTTP/1.1\\r\\nHost: api.test\\r\\nExpect: 100-continue\\r\\nContent-Length: 3000000\\r\\n\\r\\n')\n        \
                     first = s.recv(25); s.sendall(b'x' * 3000000); return first, s.recv(12)\n\
             attempt('waits', waits)\n\
             open('large', 'wb').write(b'x' * 3000000)\n\
             if shutil.which('curl'):\n    \
                 words = ['curl', '-sS', '-o', 'answer', '-w', '%{http_code} %{size_upload}', '-H', 'Expect: 100-continue', '--data-binary', '@large']\n    \
                 print('curl', subprocess.run([*words, 'http://api.test/curl'], capture_output=True, text=True).stdout)\n\
             else: print('curl 200 3000000')",
        );
        let done = done.expect_code(0);
        assert_eq!(
            done.guest_stdout(),
            "waits (b'HTTP/1.1 100 Continue\\r\\n\\r\\n', b'HTTP/1.1 200')\ncurl 200 3000000\n",
            "{done:#?}"
        );
        assert!(world.seen().iter().any(|seen| seen["target"] == "/waits"));
    }
}

#[test]
fn methods_and_paths_are_held_in_the_clear() {
    for world in World::behind_every_wall() {
        let done = world.run(
        "def ask(method, path): return say('api.test', 8080, f'{method} {path} HTTP/1.1\\r\\nHost: api.test:8080\\r\\nContent-Length: 0\\r\\n\\r\\n')\n\
         for method, path in (('GET', '/v1/a'), ('POST', '/v1/b'), ('GET', '/v2'), ('GET', '/v1/../c'), ('GET', '/v1/%2e%2e/d'), ('GET', '/v1?x=/../')):\n    \
             attempt(path, lambda: ask(method, path))\n\
         for name in ('X-Original-URL', 'x-rewrite-url', 'X-HTTP-Method-Override'):\n    \
             attempt(name, lambda: say('api.test', 8080, f'GET /v1/e HTTP/1.1\\r\\nHost: api.test:8080\\r\\n{name}: /v2\\r\\n\\r\\n'))",
    );
        let done = done.expect_code(0);
        let seen = world.seen();
        let targets: Vec<_> = seen.iter().filter_map(|seen| seen["target"].as_str()).collect();
        assert_eq!(targets, ["/v1/a", "/v1?x=/../"], "{done:#?}");
    }
}

#[test]
fn a_websocket_is_agreed_on_before_anything_is_said_on_it() {
    for world in World::behind_every_wall() {
        let done = world.run(
        "with dial('api.test', 80) as s:\n    \
             s.sendall(b'GET /chat HTTP/1.1\\r\\nHost: api.test\\r\\nConnection: Upgrade\\r\\nUpgrade: websocket\\r\\n\\r\\n')\n    \
             print(s.recv(100)[:12]); s.sendall(b'\\x81\\x05hello'); print(s.recv(100))",
    );
        let done = done.expect_code(0);
        assert_eq!(
            done.guest_stdout(),
            "b'HTTP/1.1 101'\nb'\\x81\\x05hello'\n",
            "{done:#?}"
        );
    }
}

/// Whoever takes his time is served, and a side that has said everything still hears the other.
#[test]
fn slow_and_half_open_connections_are_served() {
    for world in World::behind_every_wall() {
        let done = world.run(
            "import time\n\
             def slowly():\n    \
                 with dial('api.test', 80) as s:\n        \
                     for byte in b'GET /slow HTTP/1.1\\r\\nHost: api.test\\r\\n\\r\\n': s.send(bytes([byte])); time.sleep(0.01)\n        \
                     return s.recv(12)\n\
             attempt('slow', slowly)\n\
             def half(port):\n    \
                 with dial('api.test', port) as s:\n        \
                     if port == 7: s.recv(6); s.sendall(b'bye')\n        \
                     else: s.sendall(b'GET /half HTTP/1.1\\r\\nHost: api.test\\r\\n\\r\\n')\n        \
                     s.shutdown(socket.SHUT_WR); got = b''\n        \
                     while piece := s.recv(1000): got += piece\n        \
                     return got[:12]\n\
             attempt('half', lambda: half(80))\n\
             attempt('half of anything', lambda: half(7))\n\
             def broken():\n    \
                 with dial('api.test', 80) as s: s.sendall(b'GET /broken HTTP/1.1\\r\\nHost: api'); s.shutdown(socket.SHUT_WR); return s.recv(1)\n\
             attempt('broken off', broken)",
        );
        let done = done.expect_code(0);
        assert_eq!(
            done.guest_stdout(),
            "slow b'HTTP/1.1 200'\nhalf b'HTTP/1.1 200'\nhalf of anything b'bye'\nbroken off ConnectionResetError\n",
            "{done:#?}"
        );
        assert!(world.seen().iter().all(|seen| seen["target"] != "/broken"));
    }
}

/// P42: a name is what its bytes are, in whatever spelling a resolver is asked for it.
#[test]
fn p42_odd_names_are_nobody() {
    for world in World::behind_every_wall() {
        let done = world.run(
            "def ask(*labels):\n    \
                 with socket.socket(type=socket.SOCK_DGRAM) as s:\n        \
                     s.settimeout(2); s.connect(('198.18.0.1', 53))\n        \
                     name = b''.join(bytes([len(label)]) + label for label in labels) + b'\\0'\n        \
                     s.send(b'ab\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0' + name + b'\\0\\1\\0\\1')\n        \
                     answer = s.recv(512); return answer[3] & 15, int.from_bytes(answer[6:8], 'big')\n\
             for labels in ((b'api', b'test'), (b'API', b'tEsT'), (b'api\\0', b'test'), (b'api%2etest',), (b'api.test',), (b'api', b'test\\0', b'other'),\n    \
                            (b'xn--api-0ra', b'test'), (b'\\xc3\\xa4pi', b'test'), (b'api ', b'test'), (b'other', b'api', b'test'), (b'127', b'0', b'0', b'1'), (b'*', b'wild', b'test')):\n    \
                 attempt(labels, lambda: ask(*labels))",
        );
        let done = done.expect_code(0);
        let said = done.guest_stdout();
        let answers: Vec<_> = said.lines().filter_map(|line| line.rsplit_once(") ")).collect();
        let found = said.lines().filter(|line| line.ends_with("(0, 1)")).count();
        assert_eq!((said.lines().count(), found), (12, 2), "{answers:?}\n{done:#?}");
        let heard = world.all_seen();
        let asked = heard.iter().filter_map(|heard| heard["asked"].as_str());
        assert!(
            asked.clone().count() > 0 && asked.clone().all(|name| name == "api.test"),
            "{heard:?}"
        );
    }
}
