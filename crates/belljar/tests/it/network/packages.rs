//! Document 004's last example: with the index allowed, `pip install` and `npm install` work inside.

use super::World;
use crate::harness::{Who, output_of, run_code};
use crate::machine::absent;

const POLICY: &str = r#"
extends = "standard"
providers = ["native", "gvisor", "docker"]
network_policy = "restricted"
allow_network = true
max_memory_mb = 2048
max_processes = 64
max_open_files = 1024
max_disk_mb = 256
max_file_size_mb = 64
max_wall_time_seconds = 120
max_cpu_seconds = 120
"#;

/// Installs with whatever is there, and says what came of it.
const INSTALL: &str = r"
import importlib.util, os, shutil, subprocess, sys
def install(what, *words):
    done = subprocess.run(words, capture_output=True, text=True, cwd='/workspace', env=dict(os.environ, HOME='/workspace'))
    if done.returncode: print(what, 'failed:', done.stdout, done.stderr)
    return not done.returncode
def pip(*words):
    if not importlib.util.find_spec('pip'): return print('pip absent')
    if install('pip', sys.executable, '-m', 'pip', 'install', '--no-cache-dir', '--no-deps', '--disable-pip-version-check',
               '--target', '/workspace/lib', *words):
        sys.path.insert(0, '/workspace/lib')
        return True
def npm(*words):
    if not shutil.which('npm'): return print('npm absent')
    return install('npm', 'npm', 'install', '--no-audit', '--no-fund', '--no-update-notifier', '--cache', '/tmp/npm', *words)
";

#[test]
fn packages_are_installed_from_an_allowed_index() {
    for world in World::behind_every_wall() {
        world.dir.file(
            "index.toml",
            format!("{POLICY}allowed_hosts = [\"index.test\"]\n"),
        );
        let code = format!(
            "{INSTALL}\n\
             if pip('--index-url', 'http://index.test/simple', '--trusted-host', 'index.test', 'tiny-thing'):\n    \
                 import tiny_thing; print('pip', tiny_thing.WORD)\n\
             if npm('--registry', 'http://index.test/', 'tiny-thing'):\n    \
                 print('npm', subprocess.run(['node', '-p', 'require(\"tiny-thing\")'], capture_output=True, text=True).stdout.strip())"
        );
        let done = world.run_with("index.toml", &code).expect_code(0);
        let said = done.guest_stdout();
        for what in ["pip", "npm"] {
            if said.contains(&format!("{what} absent")) {
                absent(
                    &format!("{what} install behind {:?}", world.wall),
                    "it is not there",
                );
            } else {
                assert!(
                    said.contains(&format!("{what} from the index\n")),
                    "{said}\n{done:#?}"
                );
            }
        }
    }
}

/// The same with the index that this machine's own pip uses, wherever that is. It is asked for a real package, so only where that is
/// wanted.
#[test]
fn packages_are_installed_from_the_index_of_this_machine() {
    if std::env::var_os("BELLJAR_TEST_MIRROR").is_none() {
        absent(
            "pip install from this machine's index",
            "set BELLJAR_TEST_MIRROR=1 to have it asked",
        );
        return;
    }
    let mut asked = std::process::Command::new("python3");
    asked.args(["-c", FIND]);
    let found = output_of(&mut asked);
    let found = String::from_utf8_lossy(&found.stdout).into_owned();
    let (rules, certificate) = found.trim().split_once('\n').expect("rules and a file");
    let dir = crate::harness::TempDir::new();
    let policy = dir.file("mirror.toml", format!("{POLICY}allowed_hosts = {rules}\n"));
    let words = if certificate == "-" {
        String::new()
    } else {
        format!("'--cert', {certificate:?}, ")
    };
    let code =
        format!("{INSTALL}\nif pip({words}'six==1.16.0'): import six; print(six.__version__, six.__file__)");
    let done = run_code(
        Who::Root,
        "python",
        &code,
        &["--policy", &policy.display().to_string()],
    )
    .go()
    .expect_code(0);
    assert_eq!(done.guest_stdout(), "1.16.0 /workspace/lib/six.py\n", "{done:#?}");
}

/// Whom pip asks here, with their addresses where those are private, and whose certificates it takes.
const FIND: &str = r"
import ipaddress, json, socket, subprocess, sys
from urllib.parse import urlsplit
from pip._internal.models.index import PyPI
def config(key):
    asked = subprocess.run([sys.executable, '-m', 'pip', 'config', 'get', key], capture_output=True, text=True)
    return asked.stdout.strip() if not asked.returncode else None
index = config('global.index-url')
rules = []
for url in [index] if index else [PyPI.simple_url, 'https://' + PyPI.file_storage_domain]:
    parts = urlsplit(url)
    port = parts.port or {'http': 80, 'https': 443}[parts.scheme]
    found = {entry[4][0] for entry in socket.getaddrinfo(parts.hostname, port)}
    private = json.dumps([address for address in found if not ipaddress.ip_address(address).is_global])
    rules.append(f'{{ host = {json.dumps(parts.hostname)}, ports = [{port}], addresses = {private} }}')
print('[' + ', '.join(rules) + ']')
print(config('global.cert') or '-')
";
