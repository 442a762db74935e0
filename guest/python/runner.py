"""A runner's life: it says that it is ready, then does what the engine asks until the channel closes."""

import sys
from posix import _exit, write

CHANNEL = 3

channel = None
ready = None  # what it says first


def prepare():
    """Do what can be done before there is a channel."""
    global channel, ready
    channel = belljar.channel.Channel(CHANNEL)
    ready = belljar.channel.frame({"event": "ready", "language": "python", "version": sys.version.split()[0]})
    belljar.interrupts.install()


def serve(heard=None):
    """Run cells until the channel closes, which ends the process; return only if a program is to be run.

    `heard` is what was read of the channel already, by somebody who has also said that it is ready."""
    if channel is None:
        prepare()
        _set_private(CHANNEL)
    if heard is None:
        channel.write(ready)
    else:
        channel.received(heard)
    session = None
    while True:
        message = channel.next()
        operation = message["op"]
        if operation == "program":
            return belljar.program.of(message)
        if operation == "setup":
            session = belljar.session.Session(channel, message)
        elif operation == "execute" or operation == "command":
            if session is None:
                session = belljar.session.Session(channel, {})
            if operation == "execute":
                session.execute(message)
            else:
                session.command(message)


def closed(complaint=None):
    """The engine has gone: end, in the way that a program ends."""
    if complaint:
        write(2, ("runner: %s\n" % complaint).encode())
        _exit(70)
    belljar.interrupts.stop()
    belljar.ending.finish(join=False)
    _exit(0)


def _set_private(descriptor):
    from posix import set_inheritable

    set_inheritable(descriptor, False)  # programs that the guest starts have no use for it
