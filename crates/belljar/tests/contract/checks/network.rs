//! The network.

use std::io::Write;
use std::net::TcpListener;

use belljar::NetworkPolicy;

use super::{Outcome, Subject, ensure, printed, printed_by, python};

/// R26. The host's own loopback is the nearest there is to reach.
pub(super) async fn none(subject: &Subject) -> Outcome {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    let port = listener.local_addr().map_err(|error| error.to_string())?.port();
    let code = format!(
        "import socket\n\
         def tried(kind, address):\n    try:\n        s = socket.socket(kind, socket.SOCK_STREAM)\n        s.settimeout(2)\n        s.connect(address)\n        return 'connected'\n    except OSError:\n        return 'refused'\n\
         print(tried(socket.AF_INET, ('127.0.0.1', {port})), tried(socket.AF_INET6, ('::1', {port})), tried(socket.AF_INET, ('192.0.2.1', 80)))\n\
         try:\n    print([name for _, name in socket.if_nameindex() if name == 'eth0'])\nexcept OSError:\n    print([])",
    );
    let said = printed(subject, &code).await?;
    ensure!(said == "refused refused refused\n[]\n", "{said}");
    Ok(())
}

pub(super) async fn local(subject: &Subject) -> Outcome {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    let port = listener.local_addr().map_err(|error| error.to_string())?.port();
    let mut request = python(&format!(
        "import socket, threading\nserver = socket.create_server(('127.0.0.1', 0))\n\
         def serve():\n    peer, _ = server.accept()\n    peer.sendall(b'hello')\n    peer.close()\n\
         threading.Thread(target=serve).start()\n\
         print(socket.create_connection(server.getsockname()).recv(5).decode())\n\
         try:\n    socket.create_connection(('127.0.0.1', {port}), 2)\n    print('reached the host')\nexcept OSError:\n    print('alone')",
    ));
    request.network = Some(NetworkPolicy::Local);
    let said = printed_by(subject, request).await?;
    ensure!(said == "hello\nalone\n", "{said}");
    Ok(())
}

/// R27. The host's own loopback again: one port of it is named.
pub(super) async fn hosts(subject: &Subject) -> Outcome {
    let named = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    let other = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    let port = |listener: &TcpListener| listener.local_addr().map(|address| address.port());
    let (allowed, forbidden) = (
        port(&named).map_err(|error| error.to_string())?,
        port(&other).map_err(|error| error.to_string())?,
    );
    std::thread::spawn(move || {
        for mut stream in named.incoming().flatten() {
            let _ = stream.write_all(b"hello");
        }
    });
    let mut request = python(&format!(
        "import socket\n\
         def tried(host, port):\n    try:\n        return socket.create_connection((host, port), 5).recv(5).decode()\n    except OSError as error:\n        return type(error).__name__\n\
         print(tried('127.0.0.1', {allowed}), tried('127.0.0.1', {forbidden}), tried('127.0.0.2', {allowed}), tried('nobody.invalid', 80))\n\
         print('nameserver 198.18.0.1' in open('/etc/resolv.conf').read())",
    ));
    let rule = format!("{{\"host\": \"127.0.0.1:{allowed}\", \"protocol\": \"tcp\"}}");
    let rule = serde_json::from_str(&rule).map_err(|error| error.to_string())?;
    request.hosts = Some(vec![rule]);
    let said = printed_by(subject, request).await?;
    let expected = "hello ConnectionRefusedError ConnectionResetError gaierror\nTrue\n";
    ensure!(said == expected, "{said}");
    Ok(())
}
