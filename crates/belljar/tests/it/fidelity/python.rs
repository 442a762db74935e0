//! Python's standard library, for real.

use super::{expect, standard};
use crate::harness::everyone;

#[test]
fn asyncio_with_subprocesses_and_threads() {
    let code = "
import asyncio, time
async def double(n):
    await asyncio.sleep(0.01)
    return 2 * n
async def main():
    print(sum(await asyncio.gather(*map(double, range(100)))))
    child = await asyncio.create_subprocess_exec('cat', stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
    print((await child.communicate(b'through a pipe'))[0].decode(), child.returncode)
    print(await asyncio.to_thread(lambda: 'in a thread'))
    reader, writer = await asyncio.open_unix_connection(sock=(pair := __import__('socket').socketpair())[0])
    pair[1].sendall(b'over a socket\\n')
    print((await reader.readline()).decode().strip())
    writer.close()
    try: await asyncio.wait_for(asyncio.sleep(60), 0.05)
    except TimeoutError: print('timed out')
    except asyncio.TimeoutError: print('timed out')
asyncio.run(main())
";
    for who in everyone() {
        expect(
            who,
            "python",
            code,
            "9900\nthrough a pipe 0\nin a thread\nover a socket\ntimed out\n",
        );
    }
}

#[test]
fn threads_and_processes() {
    let code = "
import concurrent.futures, multiprocessing, os, threading
from multiprocessing import shared_memory
def square(n): return n * n
if __name__ == '__main__':
    with concurrent.futures.ThreadPoolExecutor(32) as pool: print(sum(pool.map(square, range(1000))))
    local, lock, seen = threading.local(), threading.Lock(), []
    def work(n):
        local.n = n
        with lock: seen.append(local.n)
    threads = [threading.Thread(target=work, args=(n,)) for n in range(50)]
    for t in threads: t.start()
    for t in threads: t.join()
    print(sorted(seen) == list(range(50)))
    for method in ('fork', 'spawn', 'forkserver'):
        context = multiprocessing.get_context(method)
        with context.Pool(2) as pool: print(method, pool.map(square, range(6)))
        queue = context.Queue()
        child = context.Process(target=queue.put, args=('hello',))
        child.start(); print(queue.get()); child.join()
    with concurrent.futures.ProcessPoolExecutor(2) as pool: print(list(pool.map(square, range(4))))
    block = shared_memory.SharedMemory(create=True, size=4096)
    block.buf[:5] = b'bytes'
    if os.fork() == 0: block.buf[:5] = b'BYTES'; os._exit(0)
    os.wait(); print(bytes(block.buf[:5])); block.close(); block.unlink()
";
    let methods: String = ["fork", "spawn", "forkserver"]
        .iter()
        .map(|method| format!("{method} [0, 1, 4, 9, 16, 25]\nhello\n"))
        .collect();
    for who in everyone() {
        let shown = format!("332833500\nTrue\n{methods}[0, 1, 4, 9]\nb'BYTES'\n");
        expect(who, "python", code, &shown);
    }
}

#[test]
fn processes_come_and_go_without_end() {
    // A pipeline of a plain shell forks while its children end: no fork may be interrupted by that.
    let code = "
import collections, os, subprocess
seen = collections.Counter()
for _ in range(60):
    done = subprocess.run('echo a | tr a b | cat', shell=True, capture_output=True, text=True)
    seen[done.stdout, done.stderr] += 1
for _ in range(200):
    if os.fork() == 0: os._exit(0)
    os.wait()
print(dict(seen))
";
    for who in everyone() {
        expect(who, "python", code, "{('b\\n', ''): 60}\n");
    }
}

#[test]
fn databases_hashes_and_certificates() {
    let code = "
import hashlib, hmac, json, secrets, sqlite3, ssl, uuid, zlib
database = sqlite3.connect('data.db')
print(database.execute('pragma journal_mode = wal').fetchone()[0])
database.execute('create table t (n integer primary key, s text)')
database.executemany('insert into t (s) values (?)', ((str(n),) for n in range(5000)))
database.commit()
print(database.execute('select count(*), max(n) from t').fetchone())
print(sqlite3.connect(':memory:').execute('select sqlite_version() is not null').fetchone()[0])
print(len(ssl.create_default_context().get_ca_certs()) > 0 or ssl.OPENSSL_VERSION != '')
print(hashlib.sha256(b'x').hexdigest()[:8], hashlib.blake2b(b'x').hexdigest()[:8])
print(len(hashlib.scrypt(b'x', salt=b'y', n=1024, r=8, p=1)), len(hashlib.pbkdf2_hmac('sha256', b'x', b'y', 1000)))
print(len(secrets.token_bytes(16)), len({uuid.uuid4() for _ in range(100)}), zlib.crc32(b'x'))
";
    for who in everyone() {
        expect(
            who,
            "python",
            code,
            "wal\n(5000, 5000)\n1\nTrue\n2d711642 0909377a\n64 32\n16 100 2363233923\n",
        );
    }
}

#[test]
fn files_names_and_places() {
    let code = "
import glob, locale, mmap, os, pathlib, shutil, sys, tempfile
with tempfile.NamedTemporaryFile(dir=None) as f, tempfile.TemporaryDirectory() as d:
    f.write(b'x'); f.flush(); print(os.path.dirname(f.name), os.path.dirname(d), os.path.getsize(f.name))
pathlib.Path('/dev/shm/block').write_bytes(b'y' * 4096); print(os.listdir('/dev/shm'))
os.makedirs('größe/日本'); pathlib.Path('größe/日本/naïve 🙂.txt').write_text('ünïcode')
print(glob.glob('**/*.txt', recursive=True), pathlib.Path('größe/日本/naïve 🙂.txt').read_text())
print(locale.setlocale(locale.LC_ALL, ''), sys.getfilesystemencoding(), sys.stdout.encoding)
with open('mapped', 'w+b') as f:
    f.truncate(8192)
    with mmap.mmap(f.fileno(), 0) as m: m[:4] = b'page'; m.flush()
    print(f.read(4))
os.symlink('mapped', 'link'); os.link('mapped', 'hard'); print(os.readlink('link'), os.stat('hard').st_nlink)
os.chmod('mapped', 0o640); os.utime('mapped', (1, 2)); print(oct(os.stat('mapped').st_mode), os.stat('mapped').st_mtime)
shutil.copytree('größe', 'copy'); shutil.rmtree('größe'); print(os.listdir('copy'))
shutil.make_archive('packed', 'gztar', 'copy'); shutil.unpack_archive('packed.tar.gz', 'unpacked'); print(os.listdir('unpacked'))
print(os.getcwd(), pathlib.Path.home(), os.environ['USER'], os.getuid(), os.access('/usr', os.W_OK))
";
    let shown = "/tmp /tmp 1\n['block']\n['größe/日本/naïve 🙂.txt'] ünïcode\nC.UTF-8 utf-8 utf-8\nb'page'\nmapped 2\n\
                 0o100640 2.0\n['日本']\n['日本']\n/workspace /workspace guest 1000 False\n";
    for who in everyone() {
        expect(who, "python", code, shown);
    }
}

#[test]
fn signals_clocks_and_foreign_functions() {
    let code = "
import ctypes, datetime, os, resource, select, signal, socket, subprocess, sys, time, zoneinfo
got = []
signal.signal(signal.SIGALRM, lambda *_: got.append('alarm'))
signal.signal(signal.SIGUSR1, lambda *_: got.append('user'))
signal.setitimer(signal.ITIMER_REAL, 0.02); os.kill(os.getpid(), signal.SIGUSR1)
while len(got) < 2: time.sleep(0.01)
print(sorted(got))
child = subprocess.Popen(['sleep', '60']); child.send_signal(signal.SIGTERM); print(child.wait())
try: subprocess.run(['sleep', '60'], timeout=0.05)
except subprocess.TimeoutExpired: print('expired')
print(datetime.datetime(2024, 7, 1, tzinfo=zoneinfo.ZoneInfo('Europe/Paris')).utcoffset())
print(len(zoneinfo.available_timezones()) > 400, time.monotonic() > 0, time.time() > 1.7e9)
libc = ctypes.CDLL(None)
callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(lambda n: n + 1)
print(libc.strlen(b'four'), callback(41))
a, b = socket.socketpair(); a.send(b'x'); print(select.select([b], [], [], 1)[0] == [b])
poll = select.epoll(); poll.register(b, select.EPOLLIN); print(len(poll.poll(1)))
print(socket.gethostname(), resource.getrlimit(resource.RLIMIT_NOFILE), len(os.sched_getaffinity(0)) > 0)
end, _ = os.pipe(); os.set_blocking(end, False)
try: os.read(end, 1)
except BlockingIOError: print('would block')
sys.setrecursionlimit(20000)
def deep(n): return 0 if n == 0 else 1 + deep(n - 1)
print(deep(15000))
";
    let shown = "['alarm', 'user']\n-15\nexpired\n2:00:00\nTrue True True\n4 42\nTrue\n1\nbelljar (256, 256) True\nwould block\n15000\n";
    for who in everyone() {
        expect(who, "python", code, shown);
    }
}

#[test]
fn large_input_and_output() {
    let code = "import hashlib, sys\ndata = sys.stdin.buffer.read()\nprint(len(data), hashlib.md5(data).hexdigest())\nsys.stdout.write('y' * (4 << 20))";
    let input = vec![b'z'; 24 << 20];
    for who in everyone() {
        let done = standard(who, "python", code).stdin(&input).go().expect_code(0);
        assert!(done.stdout.starts_with("25165824 "), "{}", &done.stdout[..60]);
        assert_eq!(done.stdout.len(), (4 << 20) + "25165824 \n".len() + 32);
    }
}
