"""Runs a command in a fresh sandlock sandbox again and again, and says what each run took.

    python3 sandlock_server.py COMMAND...

Each line of standard input, `CONCURRENCY SECONDS`, is answered by a line of nanoseconds, one number for each run, or a
minus for one that failed; with no seconds, each of the concurrent ones runs once. Sandboxes are made in this process, as a program that uses sandlock
would, and given the limits that it has of those that belljar sets.
"""

import concurrent.futures
import sys
import time

import sandlock

SHOWN = ["/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache"]


def once(command):
    started = time.perf_counter_ns()
    sandbox = sandlock.Sandbox(fs_readable=SHOWN, max_memory="256M", max_processes=10, clean_env=True)
    done = sandbox.run(command, timeout=10)
    took = time.perf_counter_ns() - started
    if done.success and done.stdout == b"2\n":
        return took
    print(f"sandlock: a run failed: {done} {done.stdout} {done.stderr}", file=sys.stderr)
    return "-"


def until(command, end):
    taken = [once(command)]
    while time.perf_counter() < end:
        taken.append(once(command))
    return taken


def main():
    command = sys.argv[1:]
    for line in sys.stdin:
        level, seconds = line.split()
        end = time.perf_counter() + float(seconds)
        if level == "1":
            taken = until(command, end)
        else:
            with concurrent.futures.ThreadPoolExecutor(int(level)) as threads:
                runs = [threads.submit(until, command, end) for _ in range(int(level))]
                taken = [took for run in runs for took in run.result()]
        print(*taken, flush=True)


main()
