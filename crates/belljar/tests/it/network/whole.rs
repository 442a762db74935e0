//! The network `full`: everyone whose address is the world's, on any port, and nobody else.

use super::{TRY, World, events};
use crate::harness::{everyone, run_code};

const FULL: &str = r#"
extends = "standard"
providers = ["native", "gvisor", "docker"]
network_policy = "full"
allow_network = true
allowed_hosts = [{ host = "inside.test:80", addresses = ["10.0.0.0/8"] }]
"#;

#[test]
fn the_whole_world_is_reached_and_nothing_private() {
    for world in World::behind_every_wall() {
        world.dir.file("full.toml", FULL);
        let done = world.run_with(
            "full.toml",
            "attempt('any name', lambda: get('other.test'))\n\
             attempt('any address', lambda: dial('203.0.114.77', 7).recv(6))\n\
             attempt('six', lambda: dial('2a00:1450::77', 7).recv(6))\n\
             attempt('any host asked for', lambda: get('other.test', 'api.test', 5000))\n\
             attempt('nobody listens', lambda: dial('api.test', 4321).recv(1))\n\
             attempt('named', lambda: get('inside.test'))\n\
             for name in ('private.test', 'meta.test', 'meta6.test', 'loop.test', 'nat64.test', 'mixed.test', 'alias.test', '10.1.2.3',\n    \
                          '169.254.169.254', '192.168.0.1', '100.64.0.1', 'fd00:ec2::254', '64:ff9b::7f00:1', '198.18.0.1', '198.18.1.200', '203.0.114.5', 'own.test'):\n    \
                 attempt('private', lambda: get(name))\n\
             attempt('unknown', lambda: dial('gone.test', 80))\n\
             attempt('door', lambda: dial('127.0.0.1', 65535).recv(1))\n\
             server = socket.create_server(('127.0.0.1', 8123))\n\
             peer = dial('127.0.0.1', 8123); server.accept()[0].send(b'own')\n\
             attempt('own server', lambda: peer.recv(3))\n\
             def tell(port):\n    \
                 with socket.socket(type=socket.SOCK_DGRAM) as s: s.settimeout(2); s.connect(('203.0.114.10', port)); s.send(b'x'); s.recv(1)\n\
             attempt('datagram', lambda: tell(443))",
        );
        let done = done.expect_code(0);
        let said = done.guest_stdout();
        let (before, after) = said.split_once("private").expect("lines");
        assert_eq!(
            before,
            "any name 1\nany address b'hello\\n'\nsix b'hello\\n'\nany host asked for 1\nnobody listens ConnectionResetError\nnamed 1\n",
            "{done:#?}"
        );
        let private: Vec<_> = said.lines().filter(|line| line.starts_with("private")).collect();
        assert_eq!(private.len(), 17, "{said}");
        assert!(
            private.iter().all(|line| line.to_lowercase().ends_with("error")),
            "{said}"
        );
        assert!(
            after.ends_with(
                "unknown gaierror\ndoor ConnectionResetError\nown server b'own'\ndatagram ConnectionRefusedError\n"
            ),
            "{done:#?}"
        );
        let seen = world.seen();
        let reached: Vec<_> = seen.iter().filter_map(|seen| seen["address"].as_str()).collect();
        assert_eq!(
            reached,
            [
                "203.0.114.20",
                "203.0.114.77",
                "2a00:1450::77",
                "203.0.114.20",
                "10.1.2.3"
            ],
            "{done:#?}"
        );
        // Nobody learns what addresses an inner network has.
        let all = done.json()["outcome"]["network"]["events"].to_string();
        assert!(!all.contains("has the address"), "{all}");
        let events = events(&done);
        for expected in [
            "connection allowed other.test 203.0.114.20 5000",
            "connection allowed - 203.0.114.77 7",
            "connection allowed api.test - 4321",
            "lookup refused private.test - null",
            "connection refused - 169.254.169.254 80",
            // What is public and yet this machine's own.
            "connection refused - 203.0.114.5 80",
            "lookup refused own.test - null",
        ] {
            assert!(
                events.iter().any(|event| event == expected),
                "{expected}: {events:#?}"
            );
        }
    }
}

/// Nobody needs privileges for it.
#[test]
fn everyone_is_held_to_the_world() {
    let server = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = server.local_addr().expect("an address").port();
    for who in everyone() {
        let code = format!(
            "{TRY}\nattempt('private', lambda: dial('10.1.2.3', 4321).recv(1))\nattempt('host', lambda: dial('127.0.0.1', {port}))"
        );
        let done = run_code(who, "python", &code, &["--network", "full"])
            .go()
            .expect_code(0);
        assert_eq!(
            done.guest_stdout(),
            "private ConnectionResetError\nhost ConnectionRefusedError\n",
            "{done:#?}"
        );
        assert_eq!(events(&done), ["connection refused - 10.1.2.3 4321"]);
        assert_eq!(done.json()["outcome"]["receipt"]["network"], "full");
    }
    server.set_nonblocking(true).expect("a socket");
    assert!(server.accept().is_err(), "somebody got through");
}
