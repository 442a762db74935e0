//! The walls around a zygote, seen by a package that is imported there before anybody's run.

use std::path::Path;

use super::Place;
use super::wheel::Wheel;
use crate::harness::{TempDir, Who, is_root};

/// Writes down what it can do where it is imported. A run's fork has what was written.
const SPY: &str = "
import ctypes, os, socket
libc = ctypes.CDLL(None, use_errno=True)
def tried(name, *args):
    ctypes.set_errno(0)
    return 'done' if getattr(libc, name)(*args) == 0 else os.strerror(ctypes.get_errno())
def reaches(path):
    try: return bool(os.listdir(path)) if os.path.isdir(path) else bool(open(path).read())
    except OSError: return False
def interfaces():
    try: return [name for _, name in socket.if_nameindex()]
    except OSError as error: return error.strerror
sets = (ctypes.c_uint32 * 6)()
libc.capget((ctypes.c_uint32 * 2)(0x20080522, 0), sets)
SAW = {
    'other processes': reaches('/proc'),
    'passwords': reaches('/etc/shadow'),
    'host': [path for path in ('/var/lib/dpkg', '/var/log', '/home') if reaches(path)],
    'interfaces': interfaces(),
    'capabilities': sets[0] | sets[1] | sets[3] << 32 | sets[4] << 32,
    'bounding set': [number for number in range(64) if libc.prctl(23, number, 0, 0, 0) == 1],
    'root': os.getuid() == 0 or os.getgid() == 0,
    'unshare': tried('unshare', 0x04000000),
    'mount': tried('mount', b'x', b'/tmp', b'tmpfs', 0, None),
    'kill': tried('kill', 1, 0),
    'write': os.access('/usr', os.W_OK) or os.access('/etc', os.W_OK),
}
";

/// What the spy saw in a zygote's process, and not in the process that runs the code.
fn seen(weaken: &str) -> serde_json::Value {
    let place = Place::with(Who::Root, TempDir::below(Path::new("/var/lib")));
    let wheel = place.put(&Wheel::new("spy", "1.0").module("spy", SPY));
    place.create(&["x", "--packages", &wheel, "--preload", "spy"]);
    let code =
        "import sys, json; warm = 'spy' in sys.modules; import spy; print(json.dumps([warm, spy.SAW]))";
    let done = place
        .belljar(&["run", "-E", "x", "-c", code])
        .env("BELLJAR_PATH", "ahead")
        .env("BELLJAR_WEAKEN", weaken)
        .go()
        .expect_code(0);
    let mut saw: serde_json::Value = serde_json::from_str(&done.stdout).expect("what it saw");
    assert_eq!(saw[0], true, "it was not imported beforehand: {saw}");
    saw[1].take()
}

#[cfg(feature = "weaken")]
#[test]
fn an_import_ahead_of_time_stands_behind_walls() {
    assert!(is_root(), "a store where environments are shared is root's");
    let saw = seen("");
    assert_eq!(
        saw,
        serde_json::json!({
            "other processes": false,
            "passwords": false,
            "host": [],
            "interfaces": "Operation not permitted",
            "capabilities": 1 << 21,
            "bounding set": [21],
            "root": false,
            "unshare": "Operation not permitted",
            "mount": "Operation not permitted",
            "kill": "Operation not permitted",
            "write": false,
        })
    );
    // The one capability is worth something: it is the filter that makes it worthless for anything else.
    let saw = seen("seccomp");
    assert_eq!(saw["unshare"], "done", "{saw}");
    assert_eq!(saw["mount"], "done", "{saw}");
    // Even so there is no network to see.
    assert_eq!(saw["interfaces"], serde_json::json!(["lo"]), "{saw}");
}
