//! P01 to P11: taking more than its share.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{Done, answer, enforced, error_kind, number, program};
use crate::harness::{Who, everyone, expect_nothing_left, finish, is_root, run_code, spawn};

/// The memory limit of the programs that fill memory, in MiB, and how much they ask for: enough to
/// be far beyond it, little enough for any machine should a wall be missing.
const LIMIT: &str = "64M";
const WANTED: &str = "600";

/// Ran out of memory as the kernel or the watchdog saw it, or was refused the memory.
#[track_caller]
fn expect_memory_held(done: &Done) {
    let refused =
        || ["EPERM", "ENOMEM", "MemoryError", "OSError"].contains(&answer(done, "stopped by").as_str());
    // Without a memory controller some kinds of memory are refused instead of counted.
    let counted = enforced(done, "memory-cgroup");
    assert!(
        error_kind(done) == "out_of_memory" || (!counted && refused()),
        "{done:#?}"
    );
}

#[test]
fn p01_fork_bomb_is_contained() {
    for who in everyone() {
        let neighbour = std::thread::spawn(move || run_code(who, "python", "print(6 * 7)", &[]).go());
        let done = program!("p01_fork_bomb.bash")
            .run(who, &["--timeout", "1s"], &[])
            .go()
            .expect_code(124);
        assert!(
            done.stderr.is_empty() && done.stdout.contains("Resource temporarily unavailable"),
            "{done:#?}"
        );
        assert_eq!(neighbour.join().expect("a neighbour").guest_stdout(), "42\n");
    }
}

/// The limit is exact; the program counts as one.
#[test]
fn p01_children_are_counted() {
    for who in everyone() {
        for limit in [1, 4, 10] {
            let options = ["--processes", &limit.to_string()];
            let done = program!("p01_count_forks.py")
                .run(who, &options, &["40"])
                .go()
                .expect_code(0);
            assert_eq!(
                (number(&done, "children"), answer(&done, "stopped by").as_str()),
                (limit - 1, "EAGAIN")
            );
        }
    }
}

/// Seen failing without the count: 40 children, and no more, since the number of tasks is bounded
/// as well. The bomb itself is never let loose: the count stays bounded here.
#[cfg(feature = "weaken")]
#[test]
fn p01_children_get_through_without_countprocesses() {
    for who in everyone() {
        let done = program!("p01_count_forks.py")
            .run(who, &[], &["40"])
            .without("countprocesses")
            .go();
        assert_eq!(number(&done, "children"), 40);
        assert!(!enforced(&done, "process-count"));
    }
}

/// Short children one after the other never fill the limit: it is about how many live at once.
#[test]
fn p01_the_count_forgets_the_dead() {
    for who in everyone() {
        let code = "import os\nfor _ in range(60):\n    if os.fork() == 0: os._exit(0)\n    os.wait()\nprint('fine')";
        let done = run_code(who, "python", code, &["--processes", "2"])
            .go()
            .expect_code(0);
        assert_eq!(done.guest_stdout(), "fine\n");
    }
}

#[test]
fn p02_ten_thousand_threads_are_refused() {
    for who in everyone() {
        let done = program!("p02_threads.c")
            .run(who, &[], &["10000"])
            .go()
            .expect_code(0);
        assert!(
            number(&done, "threads") < 300 && answer(&done, "stopped by") == "EAGAIN",
            "{done:#?}"
        );
    }
}

/// Seen failing without the cgroup, the resource limits and init's own count. 400 threads, not ten
/// thousand.
#[cfg(feature = "weaken")]
#[test]
fn p02_threads_get_through_without_any_bound() {
    for who in everyone() {
        let done = program!("p02_threads.c")
            .run(who, &[], &["400"])
            .without("rlimits,cgroup,countprocesses")
            .go();
        assert_eq!(number(&done, "threads"), 400);
    }
}

#[test]
fn p03_memory_of_every_kind_runs_out() {
    for who in everyone() {
        for kind in ["private", "shared", "tables"] {
            let done = program!("p03_memory.py")
                .run(who, &["--memory", LIMIT], &[kind, WANTED])
                .go();
            expect_memory_held(&done);
        }
        let done = program!("p03_queues.py")
            .run(who, &["--memory", LIMIT], &[WANTED])
            .go();
        expect_memory_held(&done);
    }
}

/// Seen failing without the cgroup, the watchdog and the limit on data. Bounded by the program:
/// nothing else would end it.
#[cfg(feature = "weaken")]
#[test]
fn p03_memory_gets_through_without_cgroup_watchdog_and_rlimits() {
    for who in everyone() {
        for kind in ["private", "shared", "tables"] {
            let run = program!("p03_memory.py").run(who, &["--memory", LIMIT], &[kind, "150"]);
            let done = run.without("cgroup,watchdog,rlimits").go().expect_code(0);
            assert_eq!(answer(&done, "held"), "150 MiB");
        }
        // Where nothing counts it, only the filter refuses it.
        let run = program!("p03_queues.py").run(who, &["--memory", LIMIT], &["150"]);
        let done = run.without("cgroup,seccomp").go().expect_code(0);
        assert_eq!(answer(&done, "held"), "150 MiB");
        assert!(!enforced(&done, "memory-cgroup"));
    }
}

/// Without any control group there is the watchdog, for root too.
#[cfg(feature = "weaken")]
#[test]
fn p03_the_watchdog_holds_memory_without_cgroup() {
    for who in everyone() {
        for kind in ["private", "shared", "tables"] {
            let run = program!("p03_memory.py").run(who, &["--memory", LIMIT], &[kind, WANTED]);
            let done = run.without("cgroup").go();
            expect_memory_held(&done);
            assert!(!enforced(&done, "memory-cgroup"));
        }
    }
}

#[test]
fn p04_files_without_a_name_run_out_of_memory() {
    for who in everyone() {
        expect_memory_held(
            &program!("p04_memfd.py")
                .run(who, &["--memory", LIMIT], &[WANTED])
                .go(),
        );
    }
}

/// Seen failing without the cgroup and the filter that refuses such files in its place.
#[cfg(feature = "weaken")]
#[test]
fn p04_files_without_a_name_get_through_without_cgroup_and_seccomp() {
    for who in everyone() {
        let run = program!("p04_memfd.py").run(who, &["--memory", LIMIT], &["160"]);
        let done = run.without("cgroup,seccomp").go().expect_code(0);
        assert_eq!(answer(&done, "held"), "160 MiB");
    }
}

/// The limit is for all places together. Seen getting further with a wider one.
#[test]
fn p05_scratch_space_is_bounded() {
    for who in everyone() {
        for disk in [16, 96] {
            let options = ["--memory", "256M", "--disk", &format!("{disk}M")];
            let done = program!("p05_fill_disk.py")
                .run(who, &options, &[])
                .go()
                .expect_code(0);
            assert!((disk - 4..=disk).contains(&number(&done, "total")), "{done:#?}");
            for place in ["/tmp", "/dev/shm", "/workspace"] {
                assert_eq!(answer(&done, place), "ENOSPC");
            }
        }
    }
}

#[test]
fn p06_pipes_are_bounded() {
    for who in everyone() {
        let options = ["--memory", LIMIT, "--open-files", "1024"];
        let done = program!("p06_pipes.py").run(who, &options, &[]).go();
        let stopped = error_kind(&done) == "out_of_memory" || answer(&done, "stopped by") == "EPERM";
        assert!(stopped, "{done:#?}");
    }
    // Seen failing outside, with root's privileges: all 200. Bounded by the program.
    if is_root() {
        assert!(program!("p06_pipes.py").outside(&[]).contains("total: 200"));
    }
}

/// Where the kernel does not count it, descriptors bound it: a quarter of a MiB each at most.
#[test]
fn p07_socket_buffers_are_bounded() {
    for who in everyone() {
        let done = program!("p07_socketpairs.py")
            .run(who, &["--memory", LIMIT, "--open-files", "512"], &[])
            .go();
        if enforced(&done, "memory-cgroup") {
            assert_eq!(error_kind(&done), "out_of_memory", "{done:#?}");
        } else {
            assert!(
                number(&done, "total") <= 128 && answer(&done, "stopped by") == "EMFILE",
                "{done:#?}"
            );
        }
    }
}

/// Seen failing without the cgroup: more than the limit, up to the number of descriptors.
#[cfg(feature = "weaken")]
#[test]
fn p07_socket_buffers_get_through_without_cgroup() {
    for who in everyone() {
        let run = program!("p07_socketpairs.py").run(who, &["--memory", LIMIT, "--open-files", "512"], &[]);
        let done = run.without("cgroup").go().expect_code(0);
        assert!(number(&done, "total") > 64, "{done:#?}");
    }
}

/// Seen getting further on a larger disk, which may hold more files.
#[test]
fn p08_empty_files_are_bounded() {
    for who in everyone() {
        for (disk, most) in [("8M", 4096), ("32M", 16384)] {
            let done = program!("p08_empty_files.py")
                .run(who, &["--disk", disk], &["100000"])
                .go()
                .expect_code(0);
            assert_eq!(answer(&done, "stopped by"), "ENOSPC");
            assert!((most - 64..=most).contains(&number(&done, "made")), "{done:#?}");
        }
    }
}

#[test]
fn p09_a_sparse_output_is_refused() {
    for who in everyone() {
        let done = program!("p09_sparse_output.py")
            .run(who, &[], &[])
            .go()
            .expect_code(0);
        assert_eq!(answer(&done, "truncate"), "EFBIG");
    }
}

/// Seen failing without resource limits: the file is made. It is still not taken out.
#[cfg(feature = "weaken")]
#[test]
fn p09_a_sparse_output_gets_made_without_rlimits() {
    for who in everyone() {
        let place = crate::harness::TempDir::new();
        let out = format!("big={}/", place.path().display());
        let done = program!("p09_sparse_output.py")
            .run(who, &["--out", &out], &[])
            .without("rlimits")
            .go();
        assert_eq!(answer(&done, "truncate"), "ok");
        assert_eq!(done.json()["outcome"]["files"][0]["state"], "refused");
        assert_eq!(fs::read_dir(place.path()).expect("a place").count(), 0);
    }
}

/// Seen growing with a wider limit, so the measure works.
#[test]
fn p10_a_flood_of_output_leaves_the_engine_small() {
    for who in everyone() {
        let (done, small) = flood(who, "1M");
        for stream in ["stdout", "stderr"] {
            let text = done.json()["outcome"][stream]
                .as_str()
                .expect("a stream")
                .to_owned();
            assert!(text.len() < 2 << 20 && text.ends_with("more dropped]\n"));
        }
        assert!(small < 40 << 10, "the engine grew to {small} KiB");
        let (_, large) = flood(who, "32M");
        assert!(large > small + (8 << 10), "{small} KiB and {large} KiB");
    }
}

/// A guest that floods both streams, and the engine's largest size meanwhile, in KiB.
fn flood(who: Who, limit: &str) -> (Done, u64) {
    let options = ["--timeout", "700ms", "--output-limit", limit];
    let mut command = program!("p10_flood.bash").run(who, &options, &[]).command();
    let mut child = spawn(&mut command);
    let pid = child.id();
    drop(child.stdin.take());
    let over = AtomicBool::new(false);
    let (output, peak) = std::thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let mut peak = 0;
            while !over.load(Ordering::Relaxed) {
                peak = peak_kib(pid).unwrap_or(0).max(peak);
                std::thread::sleep(Duration::from_millis(10));
            }
            peak
        });
        let output = finish(child);
        over.store(true, Ordering::Relaxed);
        (output, watching.join().expect("the watcher"))
    });
    let done = Done {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::new(),
        took: Duration::ZERO,
    };
    expect_nothing_left(pid, &done);
    (done, peak)
}

pub(super) fn peak_kib(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

#[test]
fn p11_descriptors_run_out() {
    for who in everyone() {
        let done = program!("p11_descriptors.py")
            .run(who, &["--open-files", "64"], &["2000"])
            .go()
            .expect_code(0);
        assert!(
            number(&done, "held") <= 64 && answer(&done, "stopped by") == "EMFILE",
            "{done:#?}"
        );
    }
}

/// Seen failing without resource limits.
#[cfg(feature = "weaken")]
#[test]
fn p11_descriptors_get_through_without_rlimits() {
    for who in everyone() {
        let run = program!("p11_descriptors.py").run(who, &["--open-files", "64"], &["500"]);
        assert_eq!(answer(&run.without("rlimits").go(), "stopped by"), "none");
    }
}
