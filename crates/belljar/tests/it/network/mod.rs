//! R27, P42 to P48: hosts by name. The servers, their names and the network that they are in are the test's own.

mod limits;
mod packages;
mod requests;
mod secrets;
#[cfg(feature = "weaken")]
mod weakened;
mod whole;

use std::path::Path;

use serde_json::Value;

use crate::engines;
use crate::harness::{Done, Run, TempDir, Who, belljar, everyone, is_root, run_code, spawn};
use crate::machine::absent;

/// What code in a sandbox needs to try things.
const TRY: &str = r"
import socket, ssl, sys
def attempt(what, work):
    try: print(what, work())
    except (OSError, ValueError) as error: print(what, type(error).__name__)
def dial(host, port, timeout=10):
    return socket.create_connection((host, port), timeout)
def say(host, port, text, count=1, over=None):
    with dial(host, port) as s:
        if over: s = over(s)
        s.sendall(text.encode('latin-1'))
        got = b''
        while got.count(b'HTTP/1.1 ') < count or not got.endswith(b'}'):
            more = s.recv(65536)
            if not more: break
            got += more
        return got.count(b'HTTP/1.1 200')
def get(host, name=None, port=80, path='/'):
    return say(host, port, f'GET {path} HTTP/1.1\r\nHost: {name or host}\r\n\r\n')
def tls(name):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return lambda s: context.wrap_socket(s, server_hostname=name)
";

/// The policy of most of these tests.
const POLICY: &str = r#"
extends = "standard"
providers = ["native", "gvisor", "docker"]
network_policy = "restricted"
allow_network = true
allowed_hosts = [
    "api.test",
    "*.wild.test:80",
    "six.test:80",
    "private.test", "meta.test", "meta6.test", "loop.test", "nat64.test", "mixed.test", "rebind.test", "alias.test", "gone.test",
    { host = "inside.test:80", addresses = ["10.0.0.0/8"] },
    { host = "api.test", ports = [7], protocol = "tcp" },
    { host = "api.test", ports = [8080], methods = ["GET"], paths = ["/v1"] },
    "api.test:5000",
    "api.test:5001",
    "10.9.9.9:80", "203.0.114.5:80", "own.test:80",
]
"#;

/// A wall that has the same doors.
#[derive(Clone, Copy, Debug)]
enum Wall {
    Native,
    Gvisor,
    /// The socket of an engine.
    Docker(&'static Path),
}

impl Wall {
    /// Those that somebody has on this machine; those that are lacking are told.
    fn all_of(who: Who) -> Vec<Self> {
        let mut walls = Self::without_engines(who);
        let engines = match who {
            Who::Root => [engines::docker(spawn), engines::podman(spawn)],
            Who::User => [engines::podman_rootless("belljar-test", spawn), None],
        };
        walls.extend(
            engines
                .into_iter()
                .flatten()
                .map(|engine| Self::Docker(&engine.socket)),
        );
        walls
    }

    fn without_engines(who: Who) -> Vec<Self> {
        let mut walls = vec![Self::Native];
        let there = belljar(who, ["providers", "--json", "--no-measure"]).go().json();
        let there = there.as_array().cloned().unwrap_or_default();
        if there
            .iter()
            .any(|one| one["provider"] == "gvisor" && one["state"] == "present")
        {
            walls.push(Self::Gvisor);
        } else {
            absent("hosts by name behind gVisor", &format!("{there:?}"));
        }
        walls
    }

    fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Native => &["--provider", "native"],
            Self::Gvisor => &["--provider", "gvisor"],
            Self::Docker(_) => &["--provider", "docker", "--image", engines::IMAGE],
        }
    }

    fn apply(self, run: Run) -> Run {
        match self {
            Self::Native | Self::Gvisor => run,
            Self::Docker(socket) => run.env("DOCKER_HOST", &format!("unix://{}", socket.display())),
        }
    }
}

/// A world with servers, a policy, and a wall around the guest.
struct World {
    dir: TempDir,
    wall: Wall,
}

impl World {
    /// One for each wall. Where it cannot be had, that is said.
    fn behind_every_wall() -> impl Iterator<Item = Self> {
        let walls = if is_root() {
            let mut walls = Wall::without_engines(Who::Root);
            walls.extend(engines::docker(spawn).map(|engine| Wall::Docker(&engine.socket)));
            walls
        } else {
            absent("hosts by name", "only root can have servers on every address");
            Vec::new()
        };
        walls.into_iter().map(Self::behind)
    }

    fn behind(wall: Wall) -> Self {
        println!("behind {wall:?}");
        let world = Self {
            dir: TempDir::new(),
            wall,
        };
        world.dir.file("stage.py", include_str!("stage.py"));
        world.dir.file("world.toml", POLICY);
        world
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    /// A command in the world.
    fn stage(&self, run: Run) -> Run {
        let (stage, seen) = (self.path("stage.py"), self.path("seen"));
        run.within(&["unshare", "-nm", "python3", "-I", &stage, &seen, "--"])
    }

    fn run(&self, code: &str) -> Done {
        self.run_with("world.toml", code)
    }

    fn run_with(&self, policy: &str, code: &str) -> Done {
        self.run_knowing(policy, code, &[])
    }

    /// The same with variables of the engine's own.
    fn run_knowing(&self, policy: &str, code: &str, variables: &[(&str, &str)]) -> Done {
        let code = format!("{TRY}\n{code}");
        let policy = self.path(policy);
        let mut arguments = vec!["--policy", &policy];
        arguments.extend(self.wall.arguments());
        let mut run = run_code(Who::Root, "python", &code, &arguments);
        for (name, value) in variables {
            run = run.env(name, value);
        }
        self.stage(self.wall.apply(run)).go()
    }

    /// What reached the servers since this was asked last; the resolver apart.
    fn seen(&self) -> Vec<Value> {
        let mut seen = self.all_seen();
        seen.retain(|seen| seen["asked"].is_null() && seen["peak"].is_null());
        seen
    }

    fn all_seen(&self) -> Vec<Value> {
        let path = self.dir.path().join("seen");
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let _ = std::fs::remove_file(&path);
        text.lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect()
    }
}

/// Lookups and connections of an outcome: what, allowed or not, and whom.
fn events(done: &Done) -> Vec<String> {
    let network = done.json()["outcome"]["network"].clone();
    let events = network["events"].as_array().cloned().unwrap_or_default();
    let words = events.iter().map(|event| {
        let word = |field: &str| event[field].as_str().unwrap_or("-").to_owned();
        let allowed = if event["allowed"] == true {
            "allowed"
        } else {
            "refused"
        };
        format!(
            "{} {allowed} {} {} {}",
            word("kind"),
            word("name"),
            word("address"),
            event["port"]
        )
    });
    words.collect()
}

#[test]
fn r27_only_allowed_hosts_are_reached_and_others_do_not_exist() {
    for world in World::behind_every_wall() {
        let done = world.run(
            "attempt('allowed', lambda: get('api.test'))\n\
         attempt('spelling', lambda: get('API.Test.', 'api.test'))\n\
         attempt('below', lambda: get('a.wild.test'))\n\
         attempt('six', lambda: get('six.test'))\n\
         attempt('not allowed', lambda: get('other.test'))\n\
         attempt('above', lambda: socket.getaddrinfo('wild.test', 80))\n\
         attempt('unknown', lambda: socket.getaddrinfo('gone.test', 80))\n\
         attempt('port', lambda: dial('api.test', 81))\n\
         attempt('port of another', lambda: dial('a.wild.test', 443, 2).recv(1))\n\
         attempt('address', lambda: get('203.0.114.10'))\n\
         attempt('address of another', lambda: get('203.0.114.20'))\n\
         attempt('speaks first', lambda: dial('api.test', 7).recv(6))\n\
         attempt('named address', lambda: get('10.9.9.9'))\n\
         attempt('own address', lambda: get('203.0.114.5'))\n\
         attempt('name of it', lambda: get('own.test'))",
        );
        let done = done.expect_code(0);
        assert_eq!(
            done.guest_stdout(),
            "allowed 1\nspelling 1\nbelow 1\nsix 1\nnot allowed gaierror\nabove gaierror\nunknown gaierror\n\
         port ConnectionRefusedError\nport of another ConnectionResetError\naddress ConnectionResetError\n\
         address of another ConnectionResetError\nspeaks first b'hello\\n'\nnamed address 1\n\
         own address 1\nname of it ConnectionResetError\n",
            "{done:#?}"
        );
        let addresses: Vec<_> = world
            .seen()
            .iter()
            .map(|seen| seen["address"].as_str().unwrap_or("").to_owned())
            .collect();
        assert_eq!(
            addresses,
            [
                "203.0.114.10",
                "203.0.114.10",
                "203.0.114.30",
                "2a00:1450::10",
                "203.0.114.10",
                "10.9.9.9",
                "203.0.114.5"
            ]
        );
        let events = events(&done);
        for expected in [
            "lookup allowed api.test - null",
            "connection allowed api.test 203.0.114.10 80",
            "lookup refused other.test - null",
            "lookup refused wild.test - null",
            "lookup allowed gone.test - null",
            "connection refused a.wild.test - 443",
            "connection refused - 203.0.114.20 80",
            "connection allowed - 10.9.9.9 80",
        ] {
            assert!(
                events.iter().any(|event| event == expected),
                "{expected}: {events:#?}"
            );
        }
        let json = done.json();
        assert_eq!(json["outcome"]["network"], json["record"]["network"]);
        let refused = json["outcome"]["network"]["events"]
            .as_array()
            .expect("a list")
            .iter();
        let fixes: Vec<_> = refused
            .filter_map(|event| event["denial"]["fix"].as_str())
            .collect();
        assert!(
            fixes.contains(&"add \"other.test\" to allowed_hosts in the policy"),
            "{fixes:?}"
        );
        assert!(
            fixes.contains(&"add \"a.wild.test:443\" to allowed_hosts in the policy"),
            "{fixes:?}"
        );
    }
}

/// P43 to P45: names whose addresses are not the world's, whichever way they came by them.
#[test]
fn p43_p44_p45_no_name_leads_to_private_addresses() {
    for world in World::behind_every_wall() {
        let done = world.run(
        "for name in ('private', 'meta', 'meta6', 'loop', 'nat64', 'mixed', 'alias'):\n    \
             attempt(name, lambda: get(name + '.test'))\n\
         attempt('named', lambda: get('inside.test'))\n\
         attempt('before', lambda: get('rebind.test'))\n\
         import time; time.sleep(5.5)\n\
         attempt('after', lambda: get('rebind.test'))\n\
         for text in ('127.0.0.1', '0177.0.0.1', '2130706433', '127.1', '0x7f.1', '169.254.169.254', '::ffff:127.0.0.1', '::1',\n            \
                      '64:ff9b::7f00:1', 'fd00:ec2::254', 'api.test@10.1.2.3', '10.1.2.3'):\n    \
             attempt(text, lambda: get(text))",
    );
        let done = done.expect_code(0);
        let said = done.guest_stdout();
        let lines: Vec<&str> = said.lines().collect();
        for line in &lines {
            let fine = ["named 1", "before 1"].contains(line);
            let refused = [
                "ConnectionResetError",
                "gaierror",
                "ConnectionRefusedError",
                "OSError",
            ];
            assert!(
                fine || refused.iter().any(|word| line.ends_with(word)),
                "{line}\n{done:#?}"
            );
        }
        assert_eq!(lines.len(), 22, "{said}");
        let addresses: Vec<_> = world
            .seen()
            .iter()
            .map(|seen| seen["address"].as_str().unwrap_or("").to_owned())
            .collect();
        assert_eq!(addresses, ["10.1.2.3", "203.0.114.10"], "{done:#?}");
    }
}

/// P46: an allowed host sends the guest elsewhere.
#[test]
fn p46_a_redirect_leads_nowhere_else() {
    for world in World::behind_every_wall() {
        let done = world.run(
            "import urllib.request\n\
         for to in ('169.254.169.254', 'other.test', '10.1.2.3', 'api.test'):\n    \
             attempt(to, lambda: urllib.request.urlopen('http://api.test/to/' + to, timeout=5).status)",
        );
        let done = done.expect_code(0);
        let said = done.guest_stdout();
        let lines: Vec<_> = said.lines().collect();
        assert!(
            lines.len() == 4 && lines[..3].iter().all(|line| line.ends_with("Error")),
            "{done:#?}"
        );
        assert_eq!(lines[3], "api.test 200", "{done:#?}");
        assert!(world.seen().iter().all(|seen| seen["address"] == "203.0.114.10"));
    }
}

/// P48: nothing but names goes to a resolver, and nothing else goes out by datagrams.
#[test]
fn p48_datagrams_reach_the_resolver_alone() {
    for world in World::behind_every_wall() {
        let done = world.run(
        "def ask(whom, message, kind=socket.SOCK_DGRAM):\n    \
             with socket.socket(type=kind) as s:\n        \
                 s.settimeout(2); s.connect((whom, 53)); s.send(message); return s.recv(512)\n\
         name = lambda text: b''.join(bytes([len(part)]) + part.encode() for part in text.split('.')) + b'\\0'\n\
         query = lambda text, kind: b'ab\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0' + name(text) + bytes([0, kind, 0, 1])\n\
         attempt('elsewhere', lambda: ask('203.0.114.10', query('api.test', 1)))\n\
         attempt('address', lambda: len(ask('198.18.0.1', query('api.test', 1))))\n\
         attempt('text', lambda: ask('198.18.0.1', query('api.test', 16))[3] & 15)\n\
         attempt('tunnel', lambda: ask('198.18.0.1', query('c2VjcmV0.api.test', 16))[3] & 15)\n\
         stream = query('api.test', 1); stream = bytes([0, len(stream)]) + stream\n\
         attempt('stream', lambda: len(ask('198.18.0.1', stream, socket.SOCK_STREAM)))\n\
         attempt('nonsense', lambda: ask('198.18.0.1', b'x' * 400))\n\
         def tell(port):\n    \
             with socket.socket(type=socket.SOCK_DGRAM) as s: s.settimeout(2); s.connect(('203.0.114.10', port)); s.send(b'x'); s.recv(1)\n\
         attempt('datagram', lambda: tell(80))",
    );
        let done = done.expect_code(0);
        assert_eq!(
            done.guest_stdout(),
            "elsewhere ConnectionRefusedError\naddress 42\ntext 0\ntunnel 3\nstream 44\nnonsense TimeoutError\n\
         datagram ConnectionRefusedError\n",
            "{done:#?}"
        );
        // Of all that, the world heard of one name, and of no secret before it.
        let heard = world.all_seen();
        assert!(
            !heard.is_empty()
                && heard
                    .iter()
                    .all(|heard| heard["asked"] == "api.test" || heard["peak"].is_u64()),
            "{heard:?}"
        );
    }
}

/// An ordinary user has the same wall: no privileges are needed for it.
#[test]
fn r27_everyone_has_the_same_wall() {
    let server = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = server.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for mut stream in server.incoming().flatten() {
            let _ = std::io::Read::read(&mut stream, &mut [0; 1000]);
            let _ = std::io::Write::write_all(&mut stream, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
        }
    });
    let other = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let closed = other.local_addr().expect("an address").port();
    for who in everyone() {
        let code = format!(
            "{TRY}\nattempt('named', lambda: get('127.0.0.1', '127.0.0.1:{port}', {port}))\n\
             attempt('other port', lambda: dial('127.0.0.1', {closed}))\n\
             attempt('other address', lambda: get('127.0.0.2', port={port}))"
        );
        let host = format!("127.0.0.1:{port}");
        for wall in Wall::all_of(who) {
            let mut arguments = vec!["--allow-host", &host];
            arguments.extend(wall.arguments());
            let done = wall.apply(run_code(who, "python", &code, &arguments));
            let done = done.go().expect_code(0);
            assert_eq!(
                done.guest_stdout(),
                "named 1\nother port ConnectionRefusedError\nother address ConnectionResetError\n",
                "{wall:?} {done:#?}"
            );
            assert_eq!(done.json()["outcome"]["receipt"]["network"], "restricted");
        }
        // Without a wall nobody holds it to anything.
        let done = run_code(
            who,
            "python",
            "1",
            &["--provider", "venv", "--trust", "--allow-host", &host],
        )
        .go();
        assert_eq!(
            done.expect_code(126).json()["denial"]["code"],
            "network_unavailable"
        );
        let done = run_code(
            who,
            "python",
            &code,
            &["--policy", "standard", "--allow-host", &host],
        )
        .go();
        assert_eq!(done.expect_code(126).json()["denial"]["code"], "host_not_allowed");
    }
}

#[test]
fn bad_rules_are_named_with_their_line() {
    let dir = TempDir::new();
    let ports: Vec<_> = (100..160).map(|port| port.to_string()).collect();
    let many = format!("allowed_hosts = [\"a.test:{}\"]", ports.join(","));
    for (line, word) in [
        ("allowed_hosts = [\"https://a.test\"]", "leave out the scheme"),
        ("allowed_hosts = [\"a.test:0\"]", "no port"),
        ("allowed_hosts = [\"127.1\"]", "disguise"),
        (
            "allowed_hosts = [{ host = \"a.test\", methods = [\"get\"] }]",
            "no method",
        ),
        (
            "allowed_hosts = [{ host = \"a.test\", addresses = [\"10.0.0.0/40\"] }]",
            "range",
        ),
        ("allowed_hosts = [7]", "expected a host"),
        ("max_connections = -1", "must be 0 or more"),
        ("allowed_hosts = [\"a.test:53\"]", "resolver"),
        (&many, "at most 48 different ports"),
        (
            "secrets = [{ name = \"A\", host = \"a.test\", header = \"Host\", from_env = \"A\" }]",
            "no header",
        ),
        (
            "secrets = [{ name = \"A\", host = \"a.test\", header = \"X-Key\", from_env = \"A\" }]",
            "not in allowed_hosts",
        ),
        (
            "secrets = [{ name = \"A\", host = \"a.test\", header = \"X-Key\", value = \"A\" }]",
            "unknown field `value`",
        ),
    ] {
        let path = dir.file("bad.toml", format!("extends = \"standard\"\n\n{line}\n"));
        let path = path.display().to_string();
        let done = belljar(Who::Root, ["run", "--policy", &path, "-c", "1"])
            .go()
            .expect_code(2);
        assert!(
            done.stderr.contains(":3: ") && done.stderr.contains(word),
            "{line}: {}",
            done.stderr
        );
    }
    let done = belljar(Who::Root, ["run", "--allow-host", "http://a.test", "-c", "1"])
        .go()
        .expect_code(2);
    assert!(
        done.stderr.contains("--allow-host") && done.stderr.contains("hint: "),
        "{}",
        done.stderr
    );
}
