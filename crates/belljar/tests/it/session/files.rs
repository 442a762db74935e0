//! Files of a live session: put, read, listed and deleted, while its guest may be at work on them.

use std::io::Read;

use belljar::{Bytes, EntryKind, ErrorKind, LimitOverrides, Session};

use super::{good, run, value, with};
use crate::again::{alone, test_name};
use crate::harness::{TempDir, own_memory};

#[test]
fn files_are_put_read_listed_and_deleted() {
    alone(test_name!(), || {
        let dir = TempDir::new();
        let host = dir.file("host.bin", [7u8; 5000]);
        with(Session::builder().file("first", "1"), async |session| {
            session.put("in/data.txt", "hello").await.expect("a put");
            session.put_host_file("in/host.bin", &host).await.expect("a put");
            let code = "import os\nopen('out.txt', 'w').write(open('in/data.txt').read().upper())\nos.chmod('out.txt', 0o755)\nos.mkfifo('pipe')\nos.symlink('/etc/passwd', 'link')\n[os.path.getsize('in/host.bin'), open('first').read()]";
            assert_eq!(
                value(session, code).await,
                belljar::Value::List(vec![5000.into(), "1".into()])
            );
            let reader = session.get("out.txt").expect("a reader");
            assert_eq!((reader.size(), reader.executable()), (5, true));
            assert_eq!(reader.bytes(100).expect("bytes"), b"HELLO");
            let listed: Vec<_> = session
                .list()
                .expect("a list")
                .into_iter()
                .map(|entry| (entry.path, entry.kind, entry.size))
                .collect();
            let expected = [
                ("first", EntryKind::File, 1),
                ("in", EntryKind::Directory, 0),
                ("in/data.txt", EntryKind::File, 5),
                ("in/host.bin", EntryKind::File, 5000),
                ("link", EntryKind::Other, 0),
                ("out.txt", EntryKind::File, 5),
                ("pipe", EntryKind::Other, 0),
            ];
            assert_eq!(
                listed,
                expected.map(|(path, kind, size)| (path.to_owned(), kind, size))
            );
            assert_eq!(session.list_below("in").expect("a list").len(), 2);
            session.delete("out.txt").expect("a delete");
            session.delete("in").expect("a delete");
            session.delete("link").expect("a delete");
            assert_eq!(
                value(session, "sorted(os.listdir('.'))").await,
                vec!["first", "pipe"].into()
            );
            let error = session.delete("out.txt").expect_err("gone");
            assert_eq!(error.to_string(), "cannot delete `out.txt`: it is not there");
            assert_eq!(error.kind(), ErrorKind::Usage);
            // What is put again replaces.
            session.put("first", "2").await.expect("a put");
            assert_eq!(value(session, "open('first').read()").await, "2".into());
        });
    });
}

/// P36, P40, R19: links, FIFOs, directories and names that leave are refused, and nothing hangs. Seen failing
/// with a plain `openat` in `session/files.rs`: it gave out the host's /etc/passwd.
#[test]
fn p36_p40_hostile_names_are_refused() {
    alone(test_name!(), || {
        with(Session::builder(), async |session| {
            let code = "import os, socket\nos.symlink('/etc/passwd', 'link')\nos.symlink('/etc', 'dir')\nos.symlink('/proc/self/root', 'magic')\nos.mkfifo('pipe')\nos.mkdir('empty')\ns = socket.socket(socket.AF_UNIX)\ns.bind('socket')\nopen('shut', 'w').write('x')\nos.mkdir('deep')\nopen('odd\\n\\x1b[2J', 'w').write('x')";
            good(session.execute(code).await);
            for (path, why) in [
                ("link", "symbolic link"),
                ("dir/passwd", "symbolic link"),
                ("magic/etc/passwd", "symbolic link"),
                ("pipe", "no regular file"),
                ("socket", "no regular file"),
                ("empty", "a directory"),
                ("absent", "not there"),
                ("shut/x", "no directory"),
            ] {
                let error = session.get(path).expect_err(path).to_string();
                assert!(error.contains(why), "{path}: {error}");
            }
            for path in ["../x", "/etc/passwd", "a/../../x", "~/x"] {
                assert!(
                    session.get(path).is_err()
                        && session.delete(path).is_err()
                        && session.put(path, "").await.is_err()
                );
            }
            // A file is never written or deleted through a link.
            assert!(session.put("dir/x", "").await.is_err());
            assert!(session.delete("dir/passwd").is_err());
            session.put("link", "mine").await.expect("the link is replaced");
            assert_eq!(
                value(session, "[os.path.islink('link'), open('link').read()]").await,
                belljar::Value::List(vec![false.into(), "mine".into()])
            );
            let names: Vec<_> = session
                .list()
                .expect("a list")
                .into_iter()
                .map(|entry| entry.path)
                .collect();
            assert!(names.contains(&"odd\\x0a\\x1b[2J".to_owned()), "{names:?}");
            assert!(
                !names.iter().any(|name| name.contains("passwd")),
                "no link is listed through: {names:?}"
            );
        });
    });
}

/// P37: a guest that exchanges a file and a link all the time never gets a host file read. Seen failing with
/// a plain `openat` in `session/files.rs`.
#[test]
fn p37_a_race_between_file_and_link_reads_nothing_else() {
    alone(test_name!(), || {
        run(async {
            let session = Session::builder().build().await.expect("a session");
            good(
                session
                    .execute("import ctypes, os, time\nlibc = ctypes.CDLL(None)\nopen('file', 'w').write('mine')\nos.symlink('/usr/bin/env', 'link')")
                    .await,
            );
            let code = "end = time.time() + 1.5\nn = 0\nwhile time.time() < end:\n    libc.syscall(316, -100, b'file', -100, b'link', 2)\n    n += 1\nn";
            let race = session.execute(code);
            let read = async {
                let (mut read, mut refused) = (0u32, 0u32);
                let end = tokio::time::Instant::now() + std::time::Duration::from_millis(1300);
                while tokio::time::Instant::now() < end {
                    match session.get("file") {
                        Ok(reader) => {
                            assert_eq!(reader.bytes(1 << 20).expect("bytes"), b"mine");
                            read += 1;
                        }
                        Err(_) => refused += 1,
                    }
                    tokio::task::yield_now().await;
                }
                (read, refused)
            };
            let (raced, (_, refused)) = tokio::join!(race, read);
            let swaps = good(raced).outcome.value.expect("a number").as_int();
            assert!(swaps.is_some_and(|swaps| swaps > 100), "{swaps:?}");
            assert!(refused > 0, "the link was never met");
            session.close().await.expect("a close");
        });
    });
}

/// Large files go in and out in bounded memory.
#[test]
fn large_files_go_in_and_out_in_pieces() {
    const SIZE: u64 = 200 << 20;
    alone(test_name!(), || {
        let dir = TempDir::new();
        let host = dir.path().join("large");
        std::fs::File::create(&host)
            .expect("a file")
            .set_len(SIZE)
            .expect("a size");
        let builder = Session::builder()
            .memory(Bytes::from_mib(600))
            .limits(LimitOverrides {
                memory: Some(Bytes::from_mib(700)),
                disk: Some(Bytes::from_mib(500)),
                file_size: Some(Bytes::from_mib(300)),
                ..LimitOverrides::default()
            });
        with(builder, async |session| {
            let before = own_memory("VmHWM");
            session.put_host_file("large", &host).await.expect("a put");
            let code = "with open('large', 'r+b') as f:\n    f.seek(-3, 2)\n    f.write(b'end')\nimport os\nos.path.getsize('large')";
            assert_eq!(
                value(session, code).await,
                i64::try_from(SIZE).expect("a size").into()
            );
            let mut reader = session.get("large").expect("a reader");
            let (mut total, mut last, mut chunk) = (0u64, Vec::new(), vec![0u8; 1 << 20]);
            loop {
                let count = reader.read(&mut chunk).expect("bytes");
                if count == 0 {
                    break;
                }
                total += count as u64;
                last = chunk[..count].to_vec();
            }
            assert_eq!(total, SIZE);
            assert!(last.ends_with(b"end"));
            let grown = own_memory("VmHWM").saturating_sub(before);
            assert!(grown < 50 << 20, "the engine grew by {grown} bytes");
            // What does not fit is an error, and the session goes on.
            std::fs::OpenOptions::new()
                .write(true)
                .open(&host)
                .expect("a file")
                .set_len(600 << 20)
                .expect("a size");
            let error = session.put_host_file("larger", &host).await.expect_err("no room");
            assert!(error.to_string().contains("No space left"), "{error}");
            session.delete("large").expect("a delete");
            assert_eq!(value(session, "1").await, 1.into());
        });
    });
}
