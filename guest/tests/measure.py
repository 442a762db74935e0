"""Numbers about the runner, for people: python3 guest/tests/measure.py [MODULE]..."""

import os
import statistics
import subprocess
import sys
import time

import fake
from fake import Runner
from fakezygote import Zygote


def middle(function, count):
    times = []
    for _ in range(count):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


def main():
    environment = {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1", "PATH": os.environ["PATH"]}
    print("python3 -c pass              %8.0f us" % middle(lambda: subprocess.run([sys.executable, "-c", "pass"], env=environment), 20))

    def start():
        import socket

        ours, theirs = socket.socketpair()
        descriptor = theirs.fileno()
        process = subprocess.Popen(
            ["/bin/sh", "-c", 'exec "$0" "$1" 3<&%d' % descriptor, sys.executable, fake.RUNNER],
            env=environment, pass_fds=[descriptor], stdin=subprocess.DEVNULL,
        )
        theirs.close()
        fake.Channel(ours).receive()
        times.append(time.perf_counter())
        ours.close()
        process.wait()

    times = []
    spans = []
    for _ in range(20):
        begun = time.perf_counter()
        start()
        spans.append(times.pop() - begun)
    print("fresh runner to ready        %8.0f us (with a shell to place descriptors)" % (statistics.median(spans) * 1e6))

    with Runner(tools={"add": lambda a, b: a + b}) as runner:
        for _ in range(200):
            runner.value("1 + 1")
        print("execute of 1 + 1             %8.0f us" % middle(lambda: runner.value("1 + 1"), 2000))
        runner.start("import time\nstart = time.perf_counter()\nfor _ in range(2000): add(1, 2)\n(time.perf_counter() - start) / 2000 * 1e6")
        print("tool call, round trip        %8.0f us" % runner.finish()["value"])

    zygote = Zygote(sys.argv[1:])
    spans, idle, used = [], [], []
    for number in range(40):
        fork = zygote.fork()
        spans.append(fork.seconds)
        time.sleep(0.01)
        idle.append(fake.private_dirty(fork.answer.pid))
        fork.setup()
        fork.value("1 + 1")
        used.append(fake.private_dirty(fork.answer.pid))
        fork.close()
        zygote.channel.receive()
    print("fork to ready                %8.0f us (least %.0f)" % (statistics.median(spans) * 1e6, min(spans) * 1e6))
    print("private dirty, idle fork     %8d KiB; after one cell %d KiB" % (statistics.median(idle), statistics.median(used)))
    zygote.close()


if __name__ == "__main__":
    main()
