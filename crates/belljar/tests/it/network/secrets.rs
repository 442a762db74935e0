//! Secrets that hosts are told and guests never see.

use super::World;

const VALUE: &str = "s3cr3t-of-the-engine-0042";

const POLICY: &str = r#"
extends = "standard"
providers = ["native", "gvisor", "docker"]
network_policy = "restricted"
allow_network = true
allowed_hosts = ["vault.test", "clear.test", "stranger.test", "api.test"]

[[secrets]]
name = "VAULT_TOKEN"
host = "vault.test"
header = "Authorization"
format = "Bearer {}"
from_env = "OF_THE_ENGINE"
terminate_tls = true

[[secrets]]
name = "CLEAR_KEY"
host = "clear.test"
header = "X-Key"
from_env = "OF_THE_ENGINE"
in_the_clear = true

[[secrets]]
name = "STRANGERS"
host = "stranger.test"
header = "X-Key"
from_env = "OF_THE_ENGINE"
"#;

#[test]
fn hosts_are_told_and_guests_are_not() {
    for world in World::behind_every_wall() {
        world.dir.file("told.toml", POLICY);
        let code = format!(
            "import http.client, os, urllib.request\n\
             def fetch(url, **headers):\n    \
                 with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as answer: return answer.status\n\
             print(os.environ['VAULT_TOKEN'])\n\
             attempt('tls', lambda: fetch('https://vault.test/1', **{{'Accept-Encoding': 'gzip', 'Accept_Encoding': 'gzip', 'TE': 'gzip', 'A-IM': 'gzip',\n    \
                     'Sec-WebSocket-Extensions': 'permessage-deflate'}}))\n\
             attempt('clear', lambda: fetch('http://vault.test/2'))\n\
             attempt('own', lambda: fetch('https://vault.test/3', Authorization='Bearer mine', authorization='x'))\n\
             def twice():\n    \
                 peer = http.client.HTTPSConnection('vault.test', timeout=10)\n    \
                 for at in (4, 5):\n        \
                     peer.request('POST', f'/{{at}}', b'body', {{'AUTHORIZATION': 'mine'}}); peer.getresponse().read()\n    \
                 return peer.sock is not None\n\
             attempt('kept', twice)\n\
             attempt('in the clear', lambda: fetch('http://clear.test/6'))\n\
             attempt('stranger', lambda: fetch('http://stranger.test/7'))\n\
             attempt('echo', lambda: fetch('https://vault.test/echo'))\n\
             attempt('trace', lambda: say('vault.test', 80, 'TRACE / HTTP/1.1\\r\\nHost: vault.test\\r\\n\\r\\n'))\n\
             attempt('other host', lambda: say('vault.test', 80, 'GET / HTTP/1.1\\r\\nHost: api.test\\r\\n\\r\\n'))\n\
             attempt('not HTTP', lambda: say('vault.test', 80, '\\x00\\x01\\r\\n\\r\\n'))\n\
             attempt('another', lambda: fetch('http://api.test/8'))\n\
             def ends(text):\n    \
                 with dial('vault.test', 80) as s:\n        \
                     s.sendall(f'POST /say HTTP/1.1\\r\\nHost: vault.test\\r\\nContent-Length: {{len(text)}}\\r\\n\\r\\n{{text}}'.encode())\n        \
                     got = b''\n        \
                     while not got.endswith(text.encode()): got += s.recv(100)\n        \
                     return 'whole'\n\
             attempt('like it', lambda: ends({VALUE:?}[:-1]))\n\
             attempt('for the next alone', lambda: say('vault.test', 80, 'GET / HTTP/1.1\\r\\nHost: vault.test\\r\\nConnection: authorization\\r\\n\\r\\n'))\n\
             seen = open('/proc/self/environ', 'rb').read() + repr(os.environ).encode()\n\
             print({VALUE:?}.encode()[:6] in seen, os.environ['SSL_CERT_FILE'])"
        );
        let done = world.run_knowing("told.toml", &code, &[("OF_THE_ENGINE", VALUE)]);
        let done = done.expect_code(0);
        let said = done.guest_stdout();
        let lines: Vec<_> = said.lines().collect();
        assert_eq!(
            lines[..6],
            [
                "belljar-keeps-VAULT_TOKEN",
                "tls 200",
                "clear 200",
                "own 200",
                "kept True",
                "in the clear 200"
            ],
            "{done:#?}"
        );
        for (line, what) in lines[6..11]
            .iter()
            .zip(["stranger", "echo", "trace", "other host", "not HTTP"])
        {
            assert!(
                line.starts_with(what) && (line.ends_with("Error") || line.ends_with("Disconnected")),
                "{line}\n{done:#?}"
            );
        }
        assert_eq!(
            lines[11..],
            [
                "another 200",
                "like it whole",
                "for the next alone ConnectionResetError",
                "False /.belljar/trust.pem"
            ],
            "{done:#?}"
        );
        let seen = world.seen();
        let told: Vec<_> = seen
            .iter()
            .filter(|seen| seen["target"].is_string())
            .map(|seen| {
                let word = |field: &str| seen[field].as_str().unwrap_or("-").to_owned();
                format!(
                    "{} {} {} {} {}",
                    word("target"),
                    seen["port"],
                    word("authorization"),
                    word("key"),
                    word("body")
                )
            })
            .collect();
        let first = seen
            .iter()
            .find(|seen| seen["target"] == "/1")
            .expect("a request");
        assert_eq!(
            first["form"],
            serde_json::json!(["identity", null, null, null, null])
        );
        let bearer = format!("Bearer {VALUE}");
        assert_eq!(
            told,
            [
                format!("/1 443 {bearer} - "),
                format!("/2 443 {bearer} - "),
                format!("/3 443 {bearer} - "),
                format!("/4 443 {bearer} - body"),
                format!("/5 443 {bearer} - body"),
                format!("/6 80 - {VALUE} "),
                format!("/echo 443 {bearer} - "),
                "/8 80 - - ".to_owned(),
                format!("/say 443 {bearer} - {}", &VALUE[..VALUE.len() - 1]),
            ],
            "{done:#?}"
        );
        // Neither the result nor the record holds it, and a refusal does not either.
        assert!(!done.stdout.contains(VALUE) && !done.stderr.contains(VALUE));
        assert!(done.stdout.contains("it sent the secret `VAULT_TOKEN` back"));
    }
}

#[test]
fn without_its_value_nothing_runs() {
    for world in World::behind_every_wall() {
        world.dir.file("told.toml", POLICY);
        let done = world.run_with("told.toml", "print('ran')").expect_code(126);
        let denial = done.json()["denial"].clone();
        assert_eq!(denial["code"], "secret_unavailable");
        assert_eq!(denial["value"], "VAULT_TOKEN");
        assert_eq!(denial["fix"], "set OF_THE_ENGINE where belljar runs");
    }
}

/// Without looking at what comes back, a host that says everything again gives the secret away.
#[cfg(feature = "weaken")]
#[test]
fn secrets_come_back_where_nobody_looks() {
    use super::Wall;
    use crate::harness::{Who, is_root, run_code};
    if !is_root() {
        return;
    }
    let world = World::behind(Wall::Native);
    world.dir.file("told.toml", POLICY);
    let path = world.path("told.toml");
    let code =
        "import urllib.request; print(urllib.request.urlopen('https://vault.test/echo').read().decode())";
    let run = run_code(Who::Root, "python", code, &["--policy", &path]).env("OF_THE_ENGINE", VALUE);
    let done = world.stage(run.without("lookout")).go().expect_code(0);
    assert!(done.guest_stdout().contains(VALUE), "{done:#?}");
}
