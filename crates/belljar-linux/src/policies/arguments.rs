//! Allowlists of the requests that four system calls take by number: `ioctl`, `fcntl`, `prctl` and `setsockopt`.
//!
//! Each of these calls is an interface of its own with hundreds of requests, and drivers, file systems and protocols add more
//! with every kernel. So a guest gets the requests that programs are known to use, and every other number fails as it does
//! on a kernel that does not have it. `docs/reference/syscalls.md` prints these tables.

/// One allowed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub name: &'static str,
    pub number: u32,
}

/// The allowed options of one `setsockopt` level.
#[derive(Clone, Copy, Debug)]
pub struct SocketLevel {
    pub name: &'static str,
    pub level: u32,
    pub options: &'static [Request],
}

macro_rules! requests {
    ($($name:ident = $number:expr),+ $(,)?) => {
        &[$(Request { name: stringify!($name), number: $number as u32 }),+]
    };
}

/// Terminals, descriptor flags, and questions about network interfaces. Not in it: typing into a terminal (`TIOCSTI`), the
/// console (`TIOCLINUX`), file-system requests such as encryption keys (`FS_IOC_ADD_ENCRYPTION_KEY`), flags and extents, and
/// every device driver's own requests. Typing into a terminal fails with EPERM, every other request with ENOTTY.
pub const IOCTL: &[Request] = requests![
    TCGETS = libc::TCGETS,
    TCSETS = libc::TCSETS,
    TCSETSW = libc::TCSETSW,
    TCSETSF = libc::TCSETSF,
    TCGETS2 = 0x802c_542a_u32,
    TCSETS2 = 0x402c_542b,
    TCSETSW2 = 0x402c_542c,
    TCSETSF2 = 0x402c_542d,
    TCSBRK = libc::TCSBRK,
    TCXONC = libc::TCXONC,
    TCFLSH = libc::TCFLSH,
    TCSBRKP = 0x5425,
    TIOCSCTTY = libc::TIOCSCTTY,
    TIOCNOTTY = 0x5422,
    TIOCGPGRP = libc::TIOCGPGRP,
    TIOCSPGRP = libc::TIOCSPGRP,
    TIOCGSID = 0x5429,
    TIOCOUTQ = libc::TIOCOUTQ,
    TIOCGWINSZ = libc::TIOCGWINSZ,
    TIOCSWINSZ = libc::TIOCSWINSZ,
    TIOCGPTN = 0x8004_5430_u32,
    TIOCSPTLCK = 0x4004_5431,
    TIOCGPTLCK = 0x8004_5439_u32,
    TIOCGPTPEER = 0x5441,
    FIONREAD = libc::FIONREAD,
    FIONBIO = libc::FIONBIO,
    FIONCLEX = libc::FIONCLEX,
    FIOCLEX = libc::FIOCLEX,
    FIOASYNC = 0x5452,
    SIOCATMARK = 0x8905,
    SIOCGIFNAME = 0x8910,
    SIOCGIFCONF = 0x8912,
    SIOCGIFFLAGS = 0x8913,
    SIOCGIFADDR = 0x8915,
    SIOCGIFDSTADDR = 0x8917,
    SIOCGIFBRDADDR = 0x8919,
    SIOCGIFNETMASK = 0x891b,
    SIOCGIFMTU = 0x8921,
    SIOCGIFHWADDR = 0x8927,
    SIOCGIFINDEX = 0x8933,
];

/// Descriptors, flags, signals, sizes and seals. Record locks are in `RECORD_LOCKS`. Not in it: leases and directory notices,
/// which reach other openers of the file (`F_SETLEASE`, `F_NOTIFY`); larger pipes, whose pages are counted for all sandboxes of a
/// uid together (`F_SETPIPE_SZ`); locks of an open file description, which no counter covers (`F_OFD_SETLK`). Others fail with EINVAL.
pub const FCNTL: &[Request] = requests![
    F_DUPFD = libc::F_DUPFD,
    F_GETFD = libc::F_GETFD,
    F_SETFD = libc::F_SETFD,
    F_GETFL = libc::F_GETFL,
    F_SETFL = libc::F_SETFL,
    F_GETLK = libc::F_GETLK,
    F_SETOWN = libc::F_SETOWN,
    F_GETOWN = libc::F_GETOWN,
    F_SETSIG = 10,
    F_GETSIG = 11,
    F_SETOWN_EX = 15,
    F_GETOWN_EX = 16,
    F_GETLEASE = libc::F_GETLEASE,
    F_DUPFD_QUERY = 1027,
    F_DUPFD_CLOEXEC = libc::F_DUPFD_CLOEXEC,
    F_GETPIPE_SZ = libc::F_GETPIPE_SZ,
    F_ADD_SEALS = libc::F_ADD_SEALS,
    F_GET_SEALS = libc::F_GET_SEALS,
];

/// Byte-range locks of a process. The kernel charges them to no cgroup, so init counts them: see `init/locks.rs`.
pub const RECORD_LOCKS: &[Request] = requests![F_SETLK = libc::F_SETLK, F_SETLKW = libc::F_SETLKW];

/// Pipe sizes that fail with EPERM, as they do for an unprivileged process beyond `fs.pipe-max-size`.
pub const PIPE_SIZE: u32 = libc::F_SETPIPE_SZ as u32;

/// A process's own name, signals, timers, memory settings, and the loss of privileges. Not in it: filters of its own
/// (`PR_SET_SECCOMP`), the layout of its memory (`PR_SET_MM`), names of mappings, which the kernel does not charge
/// (`PR_SET_VMA`), core scheduling, machine checks, user dispatch. Others fail with EINVAL.
pub const PRCTL: &[Request] = requests![
    PR_SET_PDEATHSIG = libc::PR_SET_PDEATHSIG,
    PR_GET_PDEATHSIG = libc::PR_GET_PDEATHSIG,
    PR_GET_DUMPABLE = libc::PR_GET_DUMPABLE,
    PR_SET_DUMPABLE = libc::PR_SET_DUMPABLE,
    PR_GET_KEEPCAPS = libc::PR_GET_KEEPCAPS,
    PR_SET_KEEPCAPS = libc::PR_SET_KEEPCAPS,
    PR_SET_NAME = libc::PR_SET_NAME,
    PR_GET_NAME = libc::PR_GET_NAME,
    PR_GET_SECCOMP = libc::PR_GET_SECCOMP,
    PR_CAPBSET_READ = libc::PR_CAPBSET_READ,
    PR_CAPBSET_DROP = libc::PR_CAPBSET_DROP,
    PR_GET_TSC = libc::PR_GET_TSC,
    PR_SET_TSC = libc::PR_SET_TSC,
    PR_GET_SECUREBITS = libc::PR_GET_SECUREBITS,
    PR_SET_TIMERSLACK = libc::PR_SET_TIMERSLACK,
    PR_GET_TIMERSLACK = libc::PR_GET_TIMERSLACK,
    PR_SET_CHILD_SUBREAPER = libc::PR_SET_CHILD_SUBREAPER,
    PR_GET_CHILD_SUBREAPER = libc::PR_GET_CHILD_SUBREAPER,
    PR_SET_NO_NEW_PRIVS = libc::PR_SET_NO_NEW_PRIVS,
    PR_GET_NO_NEW_PRIVS = libc::PR_GET_NO_NEW_PRIVS,
    PR_GET_TID_ADDRESS = libc::PR_GET_TID_ADDRESS,
    PR_SET_THP_DISABLE = libc::PR_SET_THP_DISABLE,
    PR_GET_THP_DISABLE = libc::PR_GET_THP_DISABLE,
    PR_CAP_AMBIENT = libc::PR_CAP_AMBIENT,
    PR_SVE_SET_VL = 50,
    PR_SVE_GET_VL = 51,
    PR_GET_SPECULATION_CTRL = 52,
    PR_SET_SPECULATION_CTRL = 53,
    PR_PAC_RESET_KEYS = 54,
    PR_SET_TAGGED_ADDR_CTRL = 55,
    PR_GET_TAGGED_ADDR_CTRL = 56,
    PR_SET_MDWE = 65,
    PR_GET_MDWE = 66,
    PR_GET_AUXV = 0x4155_5856,
];

/// Options of sockets. Not in it: filters, whose programs use up a budget of the whole machine and are freed by its shared
/// work queues (`SO_ATTACH_FILTER`, `SO_ATTACH_BPF` and the reuseport variants); pages pinned for sending (`SO_ZEROCOPY`);
/// protocols stacked on others (`TCP_ULP`); IPv6 multicast groups, of which a socket has thousands that nobody is charged for; keys, repair, and firewall tables. Others fail with ENOPROTOOPT.
pub const SETSOCKOPT: &[SocketLevel] = &[
    SocketLevel {
        name: "IPPROTO_IP",
        level: 0,
        options: requests![
            IP_TOS = 1,
            IP_TTL = 2,
            IP_PKTINFO = 8,
            IP_MTU_DISCOVER = 10,
            IP_RECVERR = 11,
            IP_RECVTTL = 12,
            IP_RECVTOS = 13,
            IP_FREEBIND = 15,
            IP_BIND_ADDRESS_NO_PORT = 24,
            IP_MULTICAST_IF = 32,
            IP_MULTICAST_TTL = 33,
            IP_MULTICAST_LOOP = 34,
            IP_ADD_MEMBERSHIP = 35,
            IP_DROP_MEMBERSHIP = 36,
            IP_MULTICAST_ALL = 49,
            IP_LOCAL_PORT_RANGE = 51,
        ],
    },
    SocketLevel {
        name: "SOL_SOCKET",
        level: 1,
        options: requests![
            SO_DEBUG = 1,
            SO_REUSEADDR = 2,
            SO_DONTROUTE = 5,
            SO_BROADCAST = 6,
            SO_SNDBUF = 7,
            SO_RCVBUF = 8,
            SO_KEEPALIVE = 9,
            SO_OOBINLINE = 10,
            SO_PRIORITY = 12,
            SO_LINGER = 13,
            SO_BSDCOMPAT = 14,
            SO_REUSEPORT = 15,
            SO_PASSCRED = 16,
            SO_RCVLOWAT = 18,
            SO_SNDLOWAT = 19,
            SO_RCVTIMEO = 20,
            SO_SNDTIMEO = 21,
            SO_TIMESTAMP = 29,
            SO_TIMESTAMPNS = 35,
            SO_RXQ_OVFL = 40,
            SO_PEEK_OFF = 42,
            SO_INCOMING_CPU = 49,
            SO_RCVTIMEO_NEW = 66,
            SO_SNDTIMEO_NEW = 67,
            SO_PASSPIDFD = 76,
        ],
    },
    SocketLevel {
        name: "IPPROTO_TCP",
        level: 6,
        options: requests![
            TCP_NODELAY = 1,
            TCP_MAXSEG = 2,
            TCP_CORK = 3,
            TCP_KEEPIDLE = 4,
            TCP_KEEPINTVL = 5,
            TCP_KEEPCNT = 6,
            TCP_SYNCNT = 7,
            TCP_LINGER2 = 8,
            TCP_DEFER_ACCEPT = 9,
            TCP_WINDOW_CLAMP = 10,
            TCP_QUICKACK = 12,
            TCP_CONGESTION = 13,
            TCP_USER_TIMEOUT = 18,
            TCP_FASTOPEN = 23,
            TCP_NOTSENT_LOWAT = 25,
            TCP_FASTOPEN_CONNECT = 30,
        ],
    },
    SocketLevel {
        name: "IPPROTO_UDP",
        level: 17,
        options: requests![UDP_CORK = 1, UDP_SEGMENT = 103, UDP_GRO = 104],
    },
    SocketLevel {
        name: "IPPROTO_IPV6",
        level: 41,
        options: requests![
            IPV6_UNICAST_HOPS = 16,
            IPV6_MULTICAST_IF = 17,
            IPV6_MULTICAST_HOPS = 18,
            IPV6_MULTICAST_LOOP = 19,
            IPV6_MTU_DISCOVER = 23,
            IPV6_MTU = 24,
            IPV6_RECVERR = 25,
            IPV6_V6ONLY = 26,
            IPV6_MULTICAST_ALL = 29,
            IPV6_RECVPKTINFO = 49,
            IPV6_RECVHOPLIMIT = 51,
            IPV6_DONTFRAG = 62,
            IPV6_RECVTCLASS = 66,
            IPV6_TCLASS = 67,
            IPV6_AUTOFLOWLABEL = 70,
            IPV6_ADDR_PREFERENCES = 72,
            IPV6_FREEBIND = 78,
        ],
    },
];

/// What `seccomp` may be asked, besides the strict mode: whether an action exists and how large notifications are. A filter of the
/// guest's own (`SECCOMP_SET_MODE_FILTER`) fails with EINVAL, for the same reason as filters on sockets.
pub const SECCOMP: &[Request] = requests![
    SECCOMP_SET_MODE_STRICT = libc::SECCOMP_SET_MODE_STRICT,
    SECCOMP_GET_ACTION_AVAIL = libc::SECCOMP_GET_ACTION_AVAIL,
    SECCOMP_GET_NOTIF_SIZES = libc::SECCOMP_GET_NOTIF_SIZES,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_is_listed_once() {
        let lists = [IOCTL, FCNTL, RECORD_LOCKS, PRCTL, SECCOMP].into_iter();
        for list in lists.chain(SETSOCKOPT.iter().map(|level| level.options)) {
            let mut numbers: Vec<_> = list.iter().map(|request| request.number).collect();
            numbers.sort_unstable();
            numbers.dedup();
            assert_eq!(numbers.len(), list.len(), "{list:?}");
        }
    }

    /// P55, P63: numbers that must never come in by mistake.
    #[test]
    fn p63_dangerous_requests_are_not_listed() {
        let has = |list: &[Request], number: u32| list.iter().any(|request| request.number == number);
        let fscrypt_add_key = 0xc050_6617;
        for number in [libc::TIOCSTI as u32, libc::TIOCLINUX as u32, fscrypt_add_key] {
            assert!(!has(IOCTL, number), "{number:#x}");
        }
        for number in [libc::F_SETLEASE as u32, 1026, 37, 38, PIPE_SIZE] {
            assert!(!has(FCNTL, number), "{number}");
        }
        assert!(!has(PRCTL, libc::PR_SET_SECCOMP as u32));
        assert!(!has(SECCOMP, libc::SECCOMP_SET_MODE_FILTER));
        let sockets = SETSOCKOPT.iter().find(|level| level.name == "SOL_SOCKET");
        // SO_ATTACH_FILTER, SO_ATTACH_BPF, SO_ATTACH_REUSEPORT_CBPF and _EBPF, SO_ZEROCOPY.
        for number in [26, 50, 51, 52, 60] {
            assert!(
                sockets.is_some_and(|level| !has(level.options, number)),
                "{number}"
            );
        }
    }
}
