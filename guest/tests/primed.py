"""Imported by the zygote of the tests: draws from every generator, so that all of them have a state to share, and wants to
be told of forks."""

import multiprocessing.process
import os
import random
import ssl
import tempfile
import uuid

told = []
os.register_at_fork(before=lambda: told.append("before"), after_in_child=lambda: told.append(os.getpid()))
random.random()
tempfile.mktemp()
uuid.uuid1()
uuid.getnode()
ssl.RAND_bytes(16)
multiprocessing.process.current_process().authkey
try:
    import numpy.random
except ImportError:
    pass
else:
    numpy.random.rand()
