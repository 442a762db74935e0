//! The table itself. Read it as a list of decisions.

use libc::c_long;

/// All processes of a user, for `setpriority` and for `ioprio_set`.
const PRIO_WHO_USER: u32 = 2;
const IOPRIO_WHO_USER: u32 = 3;

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleAction {
    Allow,
    /// Refused with EPERM.
    Deny,
    /// Refused with EOPNOTSUPP, as on a file system that does not have it.
    Unsupported,
    /// Does nothing and succeeds.
    Ignored,
    /// Allowed unless its arguments ask for what the reason names.
    Check(Check),
}

/// Conditions on arguments that a filter can see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// No new namespaces, no siblings, and no thread that the kernel would refuse after init has made room for it.
    CloneFlags,
    /// Families UNIX, INET, INET6; streams and datagrams; TCP and UDP.
    Socket,
    /// The requests of `arguments::FCNTL` and `arguments::RECORD_LOCKS`.
    FileControl,
    /// The requests of `arguments::IOCTL`.
    Ioctl,
    /// The requests of `arguments::PRCTL`.
    ProcessControl,
    /// The options of `arguments::SETSOCKOPT`.
    SocketOption,
    /// The operations of `arguments::SECCOMP`.
    FilterOperation,
    /// Init takes the lock, where there is a listener.
    FileLock,
    /// Advice about a file does nothing where it would drop pages that others use.
    FileAdvice,
    /// No setuid or setgid bit in the mode, which is this argument.
    Mode(u8),
    /// The same, where a flag argument asks for a new file.
    CreateMode { flags: u8, mode: u8 },
    /// Only the default personality, or switching address randomisation off.
    Personality,
    /// Only its own limits, and not the one on tasks, which init sets as threads come and go.
    OwnLimits,
    /// Not the limit on tasks, where this argument names one.
    LimitOf(u8),
    /// The process in this argument is not the first.
    PriorityOf(u8),
    /// Processes by the kind in the first argument and the number in the second: neither the first one nor all of a user.
    PriorityOfSome { user: u32 },
    /// Only where memory is accounted for the sandbox as a whole.
    AccountedMemory,
}

/// One row.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    pub name: &'static str,
    pub number: c_long,
    pub action: RuleAction,
    pub reason: &'static str,
}

macro_rules! group {
    ($rows:ident, $action:expr, $reason:literal, $($number:ident)+) => {
        $($rows.push(Rule {
            name: stringify!($number).trim_start_matches("SYS_"),
            number: numbers::$number,
            action: $action,
            reason: $reason,
        });)+
    };
}

/// libc's numbers, and the newest ones, which it lacks; these are the same on every architecture.
#[expect(non_upper_case_globals, reason = "these are the kernel's own names")]
mod numbers {
    use libc::c_long;
    pub(super) use libc::*;

    pub(super) const SYS_cachestat: c_long = 451;
    pub(super) const SYS_fchmodat2: c_long = 452;
    pub(super) const SYS_map_shadow_stack: c_long = 453;
    pub(super) const SYS_futex_wake: c_long = 454;
    pub(super) const SYS_futex_wait: c_long = 455;
    pub(super) const SYS_futex_requeue: c_long = 456;
    pub(super) const SYS_statmount: c_long = 457;
    pub(super) const SYS_listmount: c_long = 458;
    pub(super) const SYS_mseal: c_long = 462;
    pub(super) const SYS_setxattrat: c_long = 463;
    pub(super) const SYS_getxattrat: c_long = 464;
    pub(super) const SYS_listxattrat: c_long = 465;
    pub(super) const SYS_removexattrat: c_long = 466;
    pub(super) const SYS_open_tree_attr: c_long = 467;
}

/// Every rule, in the order of the reasons.
pub fn rules() -> Vec<Rule> {
    use RuleAction::{Allow, Check as If, Deny, Ignored, Unsupported};
    let mut rows = Vec::with_capacity(400);

    group!(rows, Allow, "reading and writing descriptors it already has",
        SYS_read SYS_write SYS_pread64 SYS_pwrite64 SYS_readv SYS_writev SYS_preadv SYS_pwritev SYS_preadv2 SYS_pwritev2 SYS_lseek SYS_close SYS_close_range
        SYS_dup SYS_dup3 SYS_fsync SYS_fdatasync SYS_sync_file_range SYS_sendfile SYS_splice SYS_tee SYS_copy_file_range
        SYS_readahead SYS_pipe2);
    group!(
        rows,
        If(Check::FileLock),
        "locks on files of its own, which init takes; not on those that it shares with others",
        SYS_flock
    );
    group!(rows, Ignored, "writing back what the whole machine has changed, or a whole file system; a file has `fsync`", SYS_sync SYS_syncfs);
    group!(
        rows,
        If(Check::FileAdvice),
        "advice about files; dropping cached pages does nothing, since others use the same files",
        SYS_fadvise64
    );
    group!(rows, Allow, "files within what the mounts and Landlock show",
        SYS_faccessat SYS_faccessat2 SYS_fstat SYS_newfstatat SYS_statx SYS_statfs SYS_fstatfs SYS_getdents64 SYS_readlinkat
        SYS_getcwd SYS_chdir SYS_fchdir SYS_truncate SYS_ftruncate SYS_fallocate SYS_renameat SYS_renameat2 SYS_linkat SYS_symlinkat SYS_unlinkat SYS_mkdirat
        SYS_fchown SYS_fchownat SYS_utimensat SYS_umask SYS_getxattr SYS_lgetxattr SYS_fgetxattr SYS_listxattr SYS_llistxattr SYS_flistxattr
        SYS_removexattr SYS_lremovexattr SYS_fremovexattr SYS_getxattrat SYS_listxattrat SYS_removexattrat SYS_cachestat);
    group!(rows, Unsupported, "extended attributes: the kernel charges POSIX ACLs to nobody, and a filter cannot see an attribute's name",
        SYS_setxattr SYS_lsetxattr SYS_fsetxattr SYS_setxattrat);
    group!(
        rows,
        If(Check::CreateMode { flags: 2, mode: 3 }),
        "new files, but never setuid ones: a writable mount would carry them to the host",
        SYS_openat
    );
    group!(rows, If(Check::Mode(2)), "modes, but never setuid: a writable mount would carry it to the host",
        SYS_fchmodat SYS_fchmodat2 SYS_mknodat);
    group!(
        rows,
        If(Check::Mode(1)),
        "modes, but never setuid: a writable mount would carry it to the host",
        SYS_fchmod
    );

    group!(rows, Allow, "memory of its own, bounded by the cgroup",
        SYS_mmap SYS_munmap SYS_mprotect SYS_mremap SYS_madvise SYS_brk SYS_msync SYS_mincore SYS_mlock SYS_mlock2 SYS_munlock SYS_mlockall SYS_munlockall
        SYS_pkey_alloc SYS_pkey_free SYS_pkey_mprotect SYS_membarrier SYS_get_mempolicy SYS_map_shadow_stack SYS_mseal);
    group!(rows, If(Check::AccountedMemory), "memory behind a descriptor or key shows in no process, so it needs a cgroup to count it",
        SYS_memfd_create SYS_shmget SYS_semget SYS_msgget);
    group!(rows, Allow, "System V and POSIX queues in a namespace of its own",
        SYS_shmat SYS_shmdt SYS_shmctl SYS_semop SYS_semtimedop SYS_semctl SYS_msgsnd SYS_msgrcv SYS_msgctl
        SYS_mq_open SYS_mq_unlink SYS_mq_timedsend SYS_mq_timedreceive SYS_mq_notify SYS_mq_getsetattr);

    group!(rows, Allow, "processes and threads, bounded in number",
        SYS_execve SYS_execveat SYS_exit SYS_exit_group SYS_wait4 SYS_waitid SYS_set_tid_address SYS_set_robust_list SYS_get_robust_list
        SYS_futex SYS_futex_waitv SYS_futex_wake SYS_futex_wait SYS_futex_requeue SYS_rseq SYS_gettid SYS_getpid SYS_getppid SYS_getpgid SYS_setpgid SYS_getsid
        SYS_setsid SYS_kill SYS_tkill SYS_tgkill SYS_pidfd_open SYS_pidfd_send_signal SYS_rt_sigaction SYS_rt_sigprocmask SYS_rt_sigreturn
        SYS_rt_sigpending SYS_rt_sigtimedwait SYS_rt_sigqueueinfo SYS_rt_tgsigqueueinfo SYS_rt_sigsuspend SYS_sigaltstack
        SYS_restart_syscall SYS_signalfd4 SYS_getrusage SYS_times);
    group!(
        rows,
        If(Check::CloneFlags),
        "new threads and processes, but no new namespaces, and no siblings, which nobody would watch",
        SYS_clone
    );
    group!(
        rows,
        If(Check::ProcessControl),
        "settings of its own processes, by an allowlist of requests",
        SYS_prctl
    );
    group!(
        rows,
        If(Check::FilterOperation),
        "questions about filters; filters of its own would use up a budget of the whole machine",
        SYS_seccomp
    );
    group!(
        rows,
        If(Check::OwnLimits),
        "its own limits, which it can only lower; not another process's, nor the one on tasks, which init keeps",
        SYS_prlimit64
    );
    group!(
        rows,
        If(Check::LimitOf(0)),
        "its own limits, which it can only lower; not another process's, nor the one on tasks, which init keeps",
        SYS_setrlimit
    );
    group!(rows, Allow, "its own limits and priorities",
        SYS_getrlimit SYS_getpriority SYS_sched_yield SYS_sched_getaffinity
        SYS_sched_getparam SYS_sched_getscheduler SYS_sched_getattr
        SYS_sched_get_priority_max SYS_sched_get_priority_min SYS_sched_rr_get_interval SYS_ioprio_get SYS_getcpu);
    group!(rows, If(Check::PriorityOf(0)), "when and where its processes run; not the one that keeps them",
        SYS_sched_setaffinity SYS_sched_setparam SYS_sched_setscheduler SYS_sched_setattr);
    group!(
        rows,
        If(Check::PriorityOfSome { user: PRIO_WHO_USER }),
        "the priority of its processes; not of the one that keeps them",
        SYS_setpriority
    );
    group!(
        rows,
        If(Check::PriorityOfSome {
            user: IOPRIO_WHO_USER
        }),
        "the same for what they read and write",
        SYS_ioprio_set
    );
    group!(rows, Allow, "who it is; without capabilities it cannot become another",
        SYS_getuid SYS_geteuid SYS_getgid SYS_getegid SYS_getresuid SYS_getresgid SYS_getgroups SYS_setuid SYS_setgid SYS_setreuid SYS_setregid SYS_setresuid
        SYS_setresgid SYS_setfsuid SYS_setfsgid SYS_setgroups SYS_capget SYS_capset);
    group!(rows, Allow, "Landlock rules of its own on top of ours",
        SYS_landlock_create_ruleset SYS_landlock_add_rule SYS_landlock_restrict_self);
    group!(
        rows,
        If(Check::Personality),
        "switching address randomisation off, for debuggers and sanitizers",
        SYS_personality
    );

    group!(rows, Allow, "time and randomness",
        SYS_clock_gettime SYS_clock_getres SYS_clock_nanosleep SYS_nanosleep SYS_gettimeofday SYS_getitimer SYS_setitimer SYS_timer_create
        SYS_timer_settime SYS_timer_gettime SYS_timer_getoverrun SYS_timer_delete SYS_timerfd_create SYS_timerfd_settime
        SYS_timerfd_gettime SYS_getrandom);
    group!(rows, Allow, "waiting for events",
        SYS_ppoll SYS_pselect6 SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait SYS_epoll_pwait2 SYS_eventfd2);
    group!(rows, Allow, "what the machine is called and how busy it is",
        SYS_uname SYS_sysinfo);

    group!(rows, If(Check::Socket), "local and internet sockets; the network namespace decides what they reach",
        SYS_socket SYS_socketpair);
    group!(rows, Allow, "work on sockets it has",
        SYS_bind SYS_listen SYS_accept SYS_accept4 SYS_connect SYS_getsockname SYS_getpeername SYS_sendto SYS_recvfrom SYS_sendmsg SYS_recvmsg SYS_sendmmsg
        SYS_recvmmsg SYS_getsockopt SYS_shutdown);
    group!(
        rows,
        If(Check::SocketOption),
        "options of sockets, by an allowlist; no filters, which would use up a budget of the whole machine",
        SYS_setsockopt
    );
    group!(
        rows,
        If(Check::Ioctl),
        "terminals, descriptor flags and network interfaces, by an allowlist of requests",
        SYS_ioctl
    );

    #[cfg(target_arch = "x86_64")]
    {
        group!(rows, Allow, "older forms of the same calls",
            SYS_stat SYS_lstat SYS_access SYS_readlink SYS_dup2 SYS_pipe SYS_poll SYS_select SYS_epoll_create SYS_epoll_wait SYS_epoll_wait_old SYS_epoll_ctl_old
            SYS_eventfd SYS_signalfd SYS_getdents SYS_rename SYS_link SYS_symlink SYS_unlink SYS_mkdir SYS_rmdir SYS_chown SYS_lchown SYS_utime SYS_utimes
            SYS_futimesat SYS_getpgrp SYS_pause SYS_alarm SYS_time SYS_arch_prctl SYS_fork SYS_vfork);
        group!(
            rows,
            If(Check::CreateMode { flags: 1, mode: 2 }),
            "older form of openat",
            SYS_open
        );
        group!(rows, If(Check::Mode(1)), "older forms of modes", SYS_chmod SYS_creat SYS_mknod);
        group!(rows, Deny, "I/O ports and descriptor tables of the processor", SYS_iopl SYS_ioperm SYS_modify_ldt);
    }

    group!(rows, Deny, "reading or steering other processes",
        SYS_ptrace SYS_process_vm_readv SYS_process_vm_writev SYS_process_madvise SYS_pidfd_getfd SYS_kcmp);
    group!(rows, Deny, "kernel interfaces with a long history of escapes",
        SYS_bpf SYS_perf_event_open SYS_userfaultfd SYS_io_uring_setup SYS_io_uring_enter SYS_io_uring_register SYS_vmsplice SYS_memfd_secret);
    group!(rows, Deny, "key rings are not namespaced by what is stored in them",
        SYS_add_key SYS_request_key SYS_keyctl);
    group!(rows, Deny, "changing the file system's shape",
        SYS_mount SYS_umount2 SYS_pivot_root SYS_chroot SYS_fsopen SYS_fsconfig SYS_fsmount SYS_fspick SYS_open_tree SYS_move_mount SYS_mount_setattr
        SYS_open_tree_attr SYS_swapon SYS_swapoff SYS_quotactl SYS_quotactl_fd SYS_statmount SYS_listmount);
    group!(rows, Deny, "new or other namespaces", SYS_unshare SYS_setns);
    group!(rows, Deny, "opening files around the mounts", SYS_name_to_handle_at SYS_open_by_handle_at);
    group!(rows, Deny, "changing the machine",
        SYS_init_module SYS_finit_module SYS_delete_module SYS_kexec_load SYS_kexec_file_load SYS_reboot SYS_settimeofday SYS_clock_settime
        SYS_clock_adjtime SYS_adjtimex SYS_sethostname SYS_setdomainname SYS_acct SYS_syslog SYS_vhangup SYS_lookup_dcookie);
    group!(rows, Deny, "watching files shows what the host and other guests do, and takes from the instances that the host's own user has",
        SYS_inotify_init1 SYS_inotify_add_watch SYS_inotify_rm_watch);
    #[cfg(target_arch = "x86_64")]
    group!(rows, Deny, "older form of inotify_init1", SYS_inotify_init);
    group!(
        rows,
        If(Check::FileControl),
        "work on descriptors it has, by an allowlist of requests; record locks are counted by init",
        SYS_fcntl
    );
    group!(rows, Deny, "watching or placing what is not its own",
        SYS_fanotify_init SYS_fanotify_mark SYS_mbind SYS_set_mempolicy SYS_set_mempolicy_home_node SYS_migrate_pages SYS_move_pages);
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_has_one_rule_and_a_reason() {
        let mut rows = rules();
        assert!(rows.iter().all(|rule| !rule.reason.is_empty()));
        rows.sort_by_key(|rule| rule.number);
        for pair in rows.windows(2) {
            assert_ne!(
                pair[0].number, pair[1].number,
                "{} and {}",
                pair[0].name, pair[1].name
            );
        }
    }

    /// A filter cannot look behind pointers: calls whose arguments hide there must stay unknown.
    #[test]
    fn calls_that_hide_their_arguments_are_not_in_the_table() {
        let hidden = [libc::SYS_clone3, libc::SYS_openat2];
        assert!(rules().iter().all(|rule| !hidden.contains(&rule.number)));
    }
}
