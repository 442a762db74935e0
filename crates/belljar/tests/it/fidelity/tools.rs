//! Tools beside Python: shells, git, compilers, node, cargo.

use std::path::{Path, PathBuf};

use super::expect;
use crate::harness::{TempDir, Who, belljar, everyone};
use crate::machine::{absent, has};

/// Whether `who` can start `program` on the PATH of the tests; tells it where not.
fn can_start(who: Who, program: &str) -> bool {
    let found = belljar(who, ["exec", "--", program, "--version"]).go().code == Some(0);
    if !found {
        absent(program, &format!("{who:?} has none that a sandbox shows"));
    }
    found
}

#[test]
fn bash_scripts() {
    let code = r#"
set -euo pipefail
declare -A count
while read -r word; do count[$word]=$(( ${count[$word]:-0} + 1 )); done < <(printf '%s\n' a b a c a)
echo "${count[a]} ${!count[*]}" | tr ' ' '\n' | sort | paste -sd,
seq 1 1000 | awk '{ s += $1 } END { print s }'
diff <(echo same) <(echo same) && echo same
find . -name 'main.*' -printf '%f\n'
for i in 1 2 3; do (sleep 0.0$i; echo "job $i" >> jobs) & done; wait; wc -l < jobs
trap 'echo cleaned up' EXIT
tar czf - main.bash | tar tzf -
mapfile -t lines < <(yes | head -n 3); echo "${#lines[@]}"
timeout 0.1 sleep 60 || echo "timeout $?"
printf '%s\n' "$(date -u -d @0 +%F)" "${RANDOM:+random}" "$(stat -c %U main.bash)" "$(id -un)"
cat <<< "here string" | sha256sum | cut -c1-8
"#;
    for who in everyone() {
        expect(
            who,
            "bash",
            code,
            "3,a,b,c\n500500\nsame\nmain.bash\n3\nmain.bash\n3\ntimeout 124\n1970-01-01\nrandom\nguest\nguest\n54d08b13\ncleaned up\n",
        );
    }
}

#[test]
fn git_init_commit_branch_merge() {
    let code = r#"
set -e
git init -q -b main repo && cd repo
git config user.email guest@example.com && git config user.name Guest
echo one > file && git add . && git commit -q -m first
git checkout -q -b topic && echo two >> file && git commit -q -am second
git checkout -q main && git merge -q topic
git log --format=%s | paste -sd,
git clone -q . ../clone && git -C ../clone status --short --branch
git gc -q && git fsck 2>/dev/null && git diff --stat HEAD~1 | tail -n 1
"#;
    for who in everyone() {
        if can_start(who, "git") {
            expect(
                who,
                "bash",
                code,
                "second,first\n## main...origin/main\n 1 file changed, 1 insertion(+)\n",
            );
        }
    }
}

#[test]
fn gcc_compiles_and_runs_by_hand() {
    let code = r#"
set -e
cat > add.c <<'END'
int add(int a, int b) { return a + b; }
END
cat > main.c <<'END'
#include <pthread.h>
#include <stdio.h>
int add(int, int);
static void *work(void *n) { *(int *)n = add(*(int *)n, 1); return n; }
int main(void) { int n = 41; pthread_t t; pthread_create(&t, 0, work, &n); pthread_join(t, 0); printf("%d\n", n); }
END
gcc -O2 -Wall -c add.c && gcc -O2 -Wall -pthread main.c add.o -o program && ./program
ar rcs libadd.a add.o && gcc -pthread main.c -L. -ladd -o static && ./static
gcc -shared -fPIC add.c -o libshared.so && gcc -pthread main.c ./libshared.so -o shared && ./shared
gcc -g -fsanitize=address,undefined main.c add.c -o checked && ASAN_OPTIONS=detect_leaks=0 ./checked
"#;
    for who in everyone() {
        if has(who, "c", "gcc by hand") {
            // The sanitizers map 20 TB of addresses, which is no memory. The one for leaks traces its
            // own process, which no guest may.
            expect(who, "bash", code, "42\n42\n42\n42\n");
        }
    }
}

#[test]
fn node_with_timers_workers_and_children() {
    let code = r#"
const { Worker } = require('worker_threads');
const { execFile } = require('child_process');
const { once } = require('events');
const crypto = require('crypto'), fs = require('fs'), http = require('http'), zlib = require('zlib');
(async () => {
  let ticks = 0;
  await new Promise(done => { const timer = setInterval(() => { if (++ticks === 3) { clearInterval(timer); done(); } }, 5); });
  console.log('ticks', ticks);
  const workers = [1, 2, 3].map(n => new Worker('const { parentPort, workerData } = require("worker_threads"); parentPort.postMessage(workerData * 2)', { eval: true, workerData: n }));
  console.log('workers', (await Promise.all(workers.map(w => once(w, 'message')))).flat().join());
  console.log('child', await new Promise(done => execFile('echo', ['hello'], (error, out) => done(error ? error.message : out.trim()))));
  await fs.promises.writeFile('x.json', JSON.stringify({ größe: 1 })); console.log(require('./x.json'));
  console.log(crypto.createHash('sha256').update('x').digest('hex').slice(0, 8), crypto.randomBytes(8).length);
  console.log(zlib.gunzipSync(zlib.gzipSync('zipped')).toString());
  console.log((await new Promise((y, n) => crypto.pbkdf2('x', 'y', 1000, 16, 'sha256', (e, k) => e ? n(e) : y(k)))).length);
  const server = http.createServer((_, answer) => answer.end('over a socket')).listen('/tmp/socket');
  await once(server, 'listening');
  console.log(await new Promise(done => http.get({ socketPath: '/tmp/socket' }, r => r.on('data', d => done(d.toString())))));
  server.close();
  console.log(new Intl.DateTimeFormat('en-GB', { timeZone: 'Europe/Paris', hour: 'numeric' }).format(0), require('os').hostname());
})();
"#;
    let shown = "ticks 3\nworkers 2,4,6\nchild hello\n{ 'größe': 1 }\n2d711642 8\nzipped\n16\nover a socket\n01 belljar\n";
    for who in everyone() {
        if has(who, "javascript", "node") {
            expect(who, "javascript", code, shown);
        }
    }
}

/// cargo builds a crate without dependencies. rustc needs more than `standard` gives: 1 GB, 32
/// processes, 512 MB of disk and files of up to 64 MB.
#[test]
fn cargo_builds_a_crate_without_dependencies() {
    let dir = TempDir::new();
    let manifest = dir.file(
        "Cargo.toml",
        "[package]\nname = \"glass\"\nversion = \"0.1.0\"\nedition = \"2021\"\n",
    );
    let main = dir.file("main.rs", "fn main() { println!(\"{}\", glass::double(21)); }\n");
    let lib = dir.file(
        "lib.rs",
        "pub fn double(n: i32) -> i32 { 2 * n }\n#[test]\nfn doubles() { assert_eq!(double(2), 4); }\n",
    );
    for who in everyone() {
        let Some(toolchain) = rust_toolchain(who) else {
            absent(
                "cargo",
                &format!("{who:?} has no Rust toolchain that can be mounted"),
            );
            continue;
        };
        let mount = format!("{}:/toolchain", toolchain.display());
        let file = |name: &str, path: &Path| format!("{name}={}", path.display());
        let done = belljar(
            who,
            [
                "run", "--lang", "bash", "--mount", &mount, "--env", "PATH=/toolchain/bin:/usr/bin:/bin",
                "--memory", "1G", "--processes", "32", "--disk", "512M", "--file-size", "64M", "--timeout", "120s",
                "--file", &file("Cargo.toml", &manifest), "--file", &file("src/main.rs", &main),
                "--file", &file("src/lib.rs", &lib),
                "-c", "cargo --offline build --quiet && target/debug/glass && cargo --offline test --quiet | grep -c 'test result: ok'",
            ],
        )
        .go()
        .expect_code(0);
        assert_eq!(done.stdout, "42\n3\n", "{}", done.stderr);
    }
}

/// The toolchain behind `rustc`, if `who` can read it.
fn rust_toolchain(who: Who) -> Option<PathBuf> {
    let json = belljar(who, ["languages", "--json"]).go().json();
    let rust = json.as_array()?.iter().find(|row| row["language"] == "rust")?;
    let rustc = Path::new(rust["programs"][0].as_str()?);
    let prefix = rustc.parent()?.parent()?;
    prefix.join("bin/cargo").exists().then(|| prefix.to_owned())
}
