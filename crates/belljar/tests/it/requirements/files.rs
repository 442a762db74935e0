//! R13 and R28 to R30: which files and variables a guest has.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use crate::harness::{TempDir, Who, become_who, belljar, everyone, output_of, run_code};
use crate::machine;

/// A directory of `who` alone, with a file in it that nobody else can read.
fn private_directory(dir: &TempDir, who: Who) -> String {
    let path = dir.path().join(format!("private-{who:?}"));
    let mut command = std::process::Command::new("sh");
    command.args([
        "-c",
        "umask 077; mkdir \"$0\"; echo secret > \"$0/in.txt\"",
        path.to_str().expect("plain"),
    ]);
    become_who(&mut command, who);
    assert!(output_of(&mut command).status.success());
    path.to_str().expect("plain").to_owned()
}

/// R28: read-only unless `rw` is asked for, both for a directory that is its owner's alone. What a
/// guest writes belongs to the directory's owner, and is never a setuid program.
#[test]
fn r28_mounts_are_read_only_or_read_write_as_asked() {
    let write = "cat /data/in.txt; echo made > /data/out.txt && mkdir /data/dir && echo deep > /data/dir/f; \
                 ls -A /data; chmod 4755 /data/out.txt 2>/dev/null && echo SETUID; \
                 install -m 2755 /bin/true /data/planted 2>/dev/null; stat -c %u:%a /data/in.txt";
    for who in everyone() {
        let dir = TempDir::new();
        let host = private_directory(&dir, who);
        for access in ["", ":ro"] {
            let done = belljar(
                who,
                [
                    "run",
                    "--lang",
                    "bash",
                    "--mount",
                    &format!("{host}:/data{access}"),
                    "-c",
                    write,
                ],
            )
            .go()
            .expect_code(0);
            assert_eq!(
                done.stdout, "secret\nin.txt\n1000:600\n",
                "{access} as {who:?}\n{}",
                done.stderr
            );
            assert!(done.stderr.contains("Read-only file system"), "{}", done.stderr);
        }
        let done = belljar(
            who,
            [
                "run",
                "--lang",
                "bash",
                "--mount",
                &format!("{host}:/data:rw"),
                "-c",
                write,
            ],
        )
        .go()
        .expect_code(0);
        assert_eq!(
            done.stdout, "secret\ndir\nin.txt\nout.txt\n1000:600\n",
            "{}",
            done.stderr
        );
        let owner = fs::metadata(&host).expect("the directory").uid();
        for (name, content) in [("out.txt", "made\n"), ("dir/f", "deep\n")] {
            let path = Path::new(&host).join(name);
            assert_eq!(fs::read_to_string(&path).expect("what the guest wrote"), content);
            let found = fs::metadata(&path).expect("its owner");
            assert_eq!(
                (found.uid(), found.mode() & 0o6000),
                (owner, 0),
                "{name} as {who:?}"
            );
        }
        if let Ok(planted) = fs::metadata(Path::new(&host).join("planted")) {
            assert_eq!(planted.mode() & 0o6000, 0);
        }
    }
}

/// R28: a single file can be mounted, and mounts may lie within each other and below the work directory.
#[test]
fn r28_files_and_nested_mounts() {
    for who in everyone() {
        let dir = TempDir::new();
        let file = dir.file("config.ini", "one\n");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("readable");
        for name in ["outer", "inner"] {
            fs::create_dir(dir.path().join(name)).expect("a directory");
        }
        dir.file("outer/o", "o");
        dir.file("inner/i", "i");
        fs::create_dir(dir.path().join("outer/inner")).expect("a place");
        let mount = |host: &str, guest: &str| format!("{}:{guest}", dir.path().join(host).display());
        let code = "cat config.ini; cat /srv/o /srv/inner/i; echo two > config.ini || echo kept";
        let done = belljar(
            who,
            [
                "run",
                "--lang",
                "bash",
                "--mount",
                &mount("inner", "/srv/inner"),
                "--mount",
                &mount("outer", "/srv"),
                "--mount",
                &mount("config.ini", "/workspace/config.ini"),
                "-c",
                code,
            ],
        )
        .go()
        .expect_code(0);
        assert_eq!(done.stdout, "one\noikept\n", "{}", done.stderr);
        assert_eq!(fs::read_to_string(&file).expect("the file"), "one\n");
    }
}

/// R29: what was not mounted is not there, for root least of all.
#[test]
fn r29_host_files_cannot_be_read() {
    let dir = TempDir::new();
    let canary = dir.file("canary", "belljar canary");
    let canary = canary.to_str().expect("plain");
    let home = std::env::var("HOME").unwrap_or_else(|_| "/root".to_owned());
    let tree = env!("CARGO_MANIFEST_DIR");
    let places = [
        canary,
        "/etc/shadow",
        "/etc/sudoers",
        "/etc/ssh",
        "/etc/machine-id",
        "/root/.bashrc",
        "/root/.ssh",
        "/home",
        "/sys/kernel",
        "/sys/fs/cgroup",
        "/proc/kcore",
        "/proc/kallsyms",
        "/proc/sys/kernel/hostname",
        "/proc/1/environ",
        "/proc/1/root/etc/shadow",
        "/proc/1/cwd",
        "/dev/sda",
        "/dev/vda",
        "/dev/mem",
        "/dev/kmsg",
        "/dev/tty",
        "/var/log",
        "/var/lib",
        "/run",
        "/boot",
        "/mnt",
        "/srv",
        "/opt",
        &home,
        tree,
    ];
    let code = format!(
        "import os\nfor place in {places:?}:\n    try:\n        \
             found = os.listdir(place) if os.path.isdir(place) else open(place, 'rb').read(64)\n        \
             print(place, found)\n    except OSError: pass"
    );
    for who in everyone() {
        let done = run_code(who, "python", &code, &[]).go().expect_code(0);
        let shown = done.guest_stdout();
        // The interpreter's own prefix may lie below a home directory; its way there shows nothing else.
        let home_is_way = format!("{home} ['.pyenv']\n");
        assert!(shown.is_empty() || shown == home_is_way, "{shown}");
        // Nor can its own view of the machine be walked to the host's.
        let code = "import os\nfor up in ('..', '../../..', '/proc/self/cwd/../..', '/proc/self/root'): print(sorted(os.listdir(up)))";
        let done = run_code(who, "python", code, &[]).go().expect_code(0);
        let roots: Vec<_> = done.guest_stdout().lines().map(str::to_owned).collect();
        assert!(
            roots
                .iter()
                .all(|root| root == &roots[0] && root.contains("workspace")),
            "{roots:?}"
        );
    }
}

/// R30: nothing of the caller's environment reaches a guest, unless it is named.
#[test]
fn r30_the_environment_is_clean() {
    for who in everyone() {
        let run = |args: &[&str]| {
            let code = "import os\nfor name in sorted(os.environ): print(name + '=' + os.environ[name])";
            let mut run = run_code(who, "python", code, args);
            for (name, value) in [
                ("LD_PRELOAD", "/tmp/evil.so"),
                ("LD_LIBRARY_PATH", "/tmp/evil"),
                ("LD_AUDIT", "/tmp/evil.so"),
                ("PYTHONPATH", "/tmp/evil"),
                ("PYTHONSTARTUP", "/tmp/evil.py"),
                ("NODE_OPTIONS", "--require=/tmp/evil.js"),
                ("BASH_ENV", "/tmp/evil.sh"),
                ("SECRET_TOKEN", "hunter2"),
                ("GREETING", "hello"),
            ] {
                run = run.env(name, value);
            }
            let stdout = run.go().expect_code(0).guest_stdout();
            stdout.lines().map(str::to_owned).collect::<Vec<_>>()
        };
        let plain = run(&[]);
        let names: Vec<_> = plain.iter().filter_map(|line| line.split('=').next()).collect();
        let known = [
            "HOME",
            "LANG",
            "LC_CTYPE",
            "LOGNAME",
            "PATH",
            "PYTHONDONTWRITEBYTECODE",
            "PYTHONUNBUFFERED",
            "TMPDIR",
            "USER",
        ];
        assert!(names.iter().all(|name| known.contains(name)), "{names:?}");
        assert!(plain.contains(&"HOME=/workspace".to_owned()), "{plain:?}");
        let named = run(&["--env", "GREETING", "--env", "ANSWER=4=2"]);
        assert!(named.contains(&"GREETING=hello".to_owned()) && named.contains(&"ANSWER=4=2".to_owned()));
        assert_eq!(named.len(), plain.len() + 2);
    }
}

/// R13: where a policy forbids writing, every write fails, of interpreted and of compiled programs.
#[test]
fn r13_without_allow_file_write_writes_fail() {
    let dir = TempDir::new();
    let policy = dir.file(
        "frozen.toml",
        "extends = \"permissive\"\nallow_file_write = false\nallowed_languages = [\"python\", \"bash\", \"c\", \"cpp\", \"rust\", \"go\", \"java\"]",
    );
    let policy = policy.to_str().expect("plain");
    let python = "import os\nfor path in ('x', '/tmp/x', '/dev/shm/x', '/var/tmp/x', 'main.py'):\n    \
                  try: open(path, 'w'); print('WROTE', path)\n    except OSError: pass\n\
                  for work in (lambda: os.mkdir('d'), lambda: os.unlink('main.py'), lambda: os.rename('main.py', 'y'),\n             \
                  lambda: os.symlink('a', 'b'), lambda: os.chmod('main.py', 0o777), lambda: os.mkfifo('f')):\n    \
                  try: work(); print('CHANGED')\n    except OSError: pass\n\
                  open('/dev/null', 'w').write('fine')\nprint('tried')";
    let c = "#include <stdio.h>\n#include <fcntl.h>\nint main(void) { const char *p[] = {\"x\", \"/tmp/x\", \"/dev/shm/x\", \"/workspace/.build\"};\n\
             for (int i = 0; i < 4; i++) if (open(p[i], O_CREAT | O_WRONLY, 0644) >= 0) puts(p[i]); puts(\"tried\"); }";
    let rust = "fn main() { for p in [\"x\", \"/tmp/x\"] { if std::fs::write(p, \"x\").is_ok() { println!(\"{p}\"); } } println!(\"tried\"); }";
    for who in everyone() {
        for (language, code) in [("python", python), ("c", c), ("rust", rust)] {
            if machine::has(who, language, "R13 for a compiled language") {
                let done = run_code(who, language, code, &["--policy", policy])
                    .go()
                    .expect_code(0);
                assert_eq!(done.guest_stdout(), "tried\n", "{language} as {who:?}");
            }
        }
        let denied = belljar(
            who,
            ["run", "--policy", policy, "--mount", "/usr:/data:rw", "-c", "1"],
        )
        .go();
        denied.expect_code(126);
    }
}
