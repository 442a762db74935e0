"""Imported by the zygote of the tests: draws from every generator, so that all of them have a state to share."""

import multiprocessing.process
import random
import ssl
import tempfile
import uuid

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
