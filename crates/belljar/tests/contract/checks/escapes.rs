//! Programs that try to get out, as far as they make sense behind every wall.

use super::{Outcome, Subject, ensure, printed};

/// R29, P1.
pub(super) async fn host_files(subject: &Subject) -> Outcome {
    let secret = std::env::temp_dir().join(format!("belljar-contract-secret-{}", std::process::id()));
    std::fs::write(&secret, "the secret").map_err(|error| error.to_string())?;
    let code = format!(
        "import os\n\
         def tried(path):\n    try:\n        return open(path).read()[:20]\n    except OSError:\n        return 'refused'\n\
         print(tried({secret:?}), tried('/proc/1/root' + {secret:?}), tried('/etc/shadow'), tried('/proc/self/root/etc/shadow'))\n\
         print([name for name in ('/home', '/sys/firmware', '/boot') if os.path.isdir(name) and os.access(name, os.R_OK) and os.listdir(name)])",
    );
    let said = printed(subject, &code).await;
    let _ = std::fs::remove_file(&secret);
    let said = said?;
    ensure!(said == "refused refused refused refused\n[]\n", "{said}");
    Ok(())
}

pub(super) async fn host_processes(subject: &Subject) -> Outcome {
    let own = std::process::id();
    let code = format!(
        "import os\npids = [int(name) for name in os.listdir('/proc') if name.isdigit()]\n\
         print(len(pids) < 12)\n\
         try:\n    os.kill({own}, 0)\n    print('seen')\nexcept OSError:\n    print('refused')",
    );
    let said = printed(subject, &code).await?;
    ensure!(said == "True\nrefused\n", "{said}");
    Ok(())
}

/// Whatever is pid 1 inside tells the engine how the guest ended: it must outlast the guest, unread and unchanged.
pub(super) async fn keeper(subject: &Subject) -> Outcome {
    let code = "import os, signal, ctypes\n\
         for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGSEGV):\n    try:\n        os.kill(1, number)\n    except OSError:\n        pass\n\
         def tried(path, mode):\n    try:\n        with open(path, mode) as file:\n            got = file.read(1) if 'r' in mode else file.write(b'x')\n        return 'reached' if got else 'refused'\n    except OSError:\n        return 'refused'\n\
         paths = ['/proc/1/mem', '/proc/1/stack', '/proc/1/clear_refs']\n\
         print(*[tried(path, 'rb') for path in paths], tried('/proc/1/mem', 'wb'))\n\
         def fds():\n    try:\n        return [fd for fd in os.listdir('/proc/1/fd') if tried('/proc/1/fd/' + fd, 'wb') == 'reached']\n    except OSError:\n        return []\n\
         print(fds())\n\
         libc = ctypes.CDLL(None, use_errno=True)\nprint(libc.ptrace(16, 1, 0, 0))";
    let said = printed(subject, code).await?;
    ensure!(said == "refused refused refused refused\n[]\n-1\n", "{said}");
    Ok(())
}

pub(super) async fn privileges(subject: &Subject) -> Outcome {
    let code = "import os\n\
         sets = [line.split()[1] for line in open('/proc/self/status') if line.startswith('Cap')]\n\
         print(os.getuid() != 0, os.geteuid() != 0, set(sets) <= {'0000000000000000'})\n\
         def tried(call):\n    try:\n        call()\n        return 'done'\n    except OSError:\n        return 'refused'\n\
         print(tried(lambda: os.setuid(0)), tried(lambda: os.setgid(0)), tried(lambda: os.chroot('/tmp')))";
    let said = printed(subject, code).await?;
    ensure!(said == "True True True\nrefused refused refused\n", "{said}");
    Ok(())
}

pub(super) async fn root(subject: &Subject) -> Outcome {
    let code = "import os, glob\n\
         def tried(path):\n    try:\n        open(path, 'w').write('x')\n        return 'written'\n    except OSError:\n        return 'refused'\n\
         print(*[tried(path) for path in ('/new', '/usr/new', '/etc/passwd', '/.belljar/python/new.py', '/.belljar/python/runner.py', '/proc/sys/kernel/core_pattern')])\n\
         print([path for path in glob.glob('/.belljar/*') if os.access(path, os.W_OK)])";
    let said = printed(subject, code).await?;
    ensure!(
        said == "refused refused refused refused refused refused\n[]\n",
        "{said}"
    );
    Ok(())
}

pub(super) async fn kernel(subject: &Subject) -> Outcome {
    let code = "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n\
         def call(name, *args):\n    return getattr(libc, name)(*args)\n\
         flags = {'NEWUSER': 0x10000000, 'NEWNS': 0x20000, 'NEWNET': 0x40000000, 'NEWPID': 0x20000000}\n\
         print(*[call('unshare', flag) for flag in flags.values()])\n\
         print(call('mount', b'none', b'/tmp', b'tmpfs', 0, None), call('umount', b'/proc'))\n\
         print(libc.syscall(321, 0, 0, 0), libc.syscall(250, 0, 0, 0), libc.syscall(425, 8, 0))\n\
         print([path for path in ('/dev/mem', '/dev/kmsg', '/dev/sda', '/dev/kvm') if os.access(path, os.R_OK)])";
    let said = printed(subject, code).await?;
    ensure!(said == "-1 -1 -1 -1\n-1 -1\n-1 -1 -1\n[]\n", "{said}");
    Ok(())
}
