//! How much may be sent, received and open at once.

use super::{POLICY, World};

#[test]
fn connections_and_bytes_are_bounded() {
    for world in World::behind_every_wall() {
        let policy = format!("{POLICY}\nmax_connections = 3\nmax_receive_mb = 2\nmax_send_mb = 1\n");
        world.dir.file("bounded.toml", policy);
        let done = world.run_with(
        "bounded.toml",
        "held = [dial('api.test', 7) for _ in range(3)]\n\
         for one in held: one.recv(6)\n\
         attempt('one more', lambda: dial('api.test', 7).recv(6))\n\
         for one in held: one.close()\n\
         def again():\n    \
             try: return dial('api.test', 7).recv(6)\n    \
             except OSError: return None\n\
         while not again(): pass\n\
         def much(path, data=b''):\n    \
             with dial('api.test', 80) as s:\n        \
                 s.sendall(b'POST %s HTTP/1.1\\r\\nHost: api.test\\r\\nContent-Length: %d\\r\\n\\r\\n' % (path, len(data)) + data)\n        \
                 got = 0\n        \
                 while piece := s.recv(1 << 20): got += len(piece)\n        \
                 return got\n\
         attempt('received', lambda: much(b'/bytes/8000000'))\n\
         attempt('sent', lambda: much(b'/', bytes(2 << 20)))",
    );
        let done = done.expect_code(0);
        let said = done.guest_stdout();
        let lines: Vec<_> = said.lines().collect();
        assert!(
            lines.len() == 3 && lines.iter().all(|line| line.ends_with("Error")),
            "{done:#?}"
        );
        let json = done.json();
        let events = json["outcome"]["network"]["events"]
            .as_array()
            .expect("a list")
            .clone();
        let rules: Vec<_> = events
            .iter()
            .filter_map(|event| event["denial"]["rule"].as_str())
            .collect();
        assert!(
            rules.contains(&"max_connections") && rules.contains(&"max_send_mb"),
            "{rules:?}"
        );
        assert!(rules.contains(&"max_receive_mb"), "{rules:?}");
    }
}

#[test]
fn five_hundred_connections_at_once_are_served() {
    for world in World::behind_every_wall() {
        world
            .dir
            .file("wide.toml", format!("{POLICY}\nmax_open_files = 2000\n"));
        let done = world.run_with(
            "wide.toml",
            "held = [dial('api.test', 7) for _ in range(500)]\n\
         print(sum(one.recv(6) == b'hello\\n' for one in held))\n\
         for number, one in enumerate(held): one.sendall(str(number).encode())\n\
         print(sum(one.recv(10) == str(number).encode() for number, one in enumerate(held)))",
        );
        assert_eq!(done.expect_code(0).guest_stdout(), "500\n500\n");
    }
}

/// A gigabyte comes through, and little of it is held at a time.
#[test]
fn a_gigabyte_comes_through() {
    for world in World::behind_every_wall() {
        let done = world.run(
        "with dial('api.test', 80) as s:\n    \
             s.sendall(b'GET /bytes/1000000000 HTTP/1.1\\r\\nHost: api.test\\r\\nConnection: close\\r\\n\\r\\n')\n    \
             got = 0\n    \
             while got < 1000000000 and (piece := s.recv(1 << 20)): got += len(piece)\n    \
             print(got >= 1000000000)",
    );
        assert_eq!(done.expect_code(0).guest_stdout(), "True\n");
        let peak = world.all_seen().iter().find_map(|seen| seen["peak"].as_u64());
        let peak = peak.expect("a peak") >> 10;
        assert!(peak < 300, "{peak} MiB were held at once");
    }
}
