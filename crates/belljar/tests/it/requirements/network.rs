//! R26 and R27: what of the network can be reached.

use std::net::{TcpListener, UdpSocket};

use crate::harness::{everyone, run_code};

/// Tries to reach a port of the host in every way, and says what came of it.
const REACH_OUT: &str = "
import socket, sys
tcp, udp, name = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
def attempt(what, work):
    try: work(); print(what, 'REACHED')
    except OSError as error: print(what, 'refused')
def dial(address, family=socket.AF_INET):
    with socket.socket(family) as s: s.settimeout(2); s.connect(address)
def tell(address):
    with socket.socket(type=socket.SOCK_DGRAM) as s: s.sendto(b'canary', address)
def abstract():
    with socket.socket(socket.AF_UNIX) as s: s.connect('\\0' + name)
attempt('loopback', lambda: dial(('127.0.0.1', tcp)))
attempt('loopback6', lambda: dial(('::1', tcp), socket.AF_INET6))
attempt('outside', lambda: dial(('192.0.2.1', 80)))
attempt('metadata', lambda: dial(('169.254.169.254', 80)))
attempt('name', lambda: socket.getaddrinfo('example.com', 80))
attempt('abstract', abstract)
try: tell(('127.0.0.1', udp))
except OSError: pass
";

const REFUSED: &str = "loopback refused\nloopback6 refused\noutside refused\nmetadata refused\nname refused\nabstract refused\n";

/// R26: nothing is reached by default; with `local`, the sandbox's own loopback and no more.
#[test]
fn r26_the_network_is_blocked_by_default() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};

    let tcp = TcpListener::bind("127.0.0.1:0").expect("a port");
    let udp = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let name = format!("belljar-it-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("an address");
    let _abstract_socket = UnixListener::bind_addr(&address).expect("an abstract socket");
    tcp.set_nonblocking(true).expect("nonblocking");
    udp.set_nonblocking(true).expect("nonblocking");
    let port = |address: std::io::Result<std::net::SocketAddr>| address.expect("bound").port().to_string();
    let (tcp_port, udp_port) = (port(tcp.local_addr()), port(udp.local_addr()));
    for who in everyone() {
        for network in ["none", "local"] {
            let mut run = vec!["--network", network];
            if network == "none" {
                run.clear();
            }
            let code =
                format!("import sys\nsys.argv = ['', '{tcp_port}', '{udp_port}', '{name}']\n{REACH_OUT}");
            let done = run_code(who, "python", &code, &run).go().expect_code(0);
            assert_eq!(done.guest_stdout(), REFUSED, "network {network} as {who:?}");
            assert_eq!(done.json()["outcome"]["receipt"]["network"], network);
        }
    }
    assert!(tcp.accept().is_err(), "somebody got through");
    assert!(udp.recv(&mut [0; 16]).is_err(), "a datagram got through");
}

/// R26: `--network local` is a loopback that works, over both families; without it there is none.
#[test]
fn r26_local_is_a_loopback_of_its_own() {
    let code = "
import socket, threading
for family, host in ((socket.AF_INET, '127.0.0.1'), (socket.AF_INET6, '::1')):
    try:
        with socket.create_server((host, 0), family=family) as server:
            def serve():
                with server.accept()[0] as peer: peer.sendall(b'hello from ' + host.encode())
            threading.Thread(target=serve, daemon=True).start()
            with socket.create_connection(server.getsockname()[:2], timeout=5) as s: print(s.recv(64).decode())
    except OSError as error: print('no', host)
print(socket.gethostbyname('localhost'))
";
    for who in everyone() {
        let done = run_code(who, "python", code, &["--network", "local"])
            .go()
            .expect_code(0);
        assert_eq!(
            done.guest_stdout(),
            "hello from 127.0.0.1\nhello from ::1\n127.0.0.1\n"
        );
        let done = run_code(who, "python", code, &["--network", "none"])
            .go()
            .expect_code(0);
        assert_eq!(done.guest_stdout(), "no 127.0.0.1\nno ::1\n127.0.0.1\n");
    }
}

/// A policy that permits none is not widened by asking.
#[test]
fn r27_asking_widens_nothing() {
    for who in everyone() {
        for network in ["local", "restricted", "full"] {
            let args = ["--policy", "standard", "--network", network];
            let done = run_code(who, "python", "print('ran')", &args)
                .go()
                .expect_code(126);
            assert_eq!(done.json()["denial"]["code"], "network_not_allowed");
        }
    }
}
