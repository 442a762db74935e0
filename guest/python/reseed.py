"""After a fork from the zygote: no two guests may draw the same random numbers.

Libraries notice a fork by its pid. In a pid namespace of its own every guest may have the same one, so nothing here relies
on that. Also forgotten is what the zygote's modules remember about the machine around it.
"""

import sys
from posix import urandom


_needed = None  # what the zygote found to do for its forks


def prepare():
    """In the zygote, once everything is imported: see what its forks will have to do."""
    global _needed
    _needed = [(function, sys.modules[name]) for name, function in _MODULES if sys.modules.get(name) is not None]


def reseed():
    for function, module in _needed:
        function(module)


def _random(random):
    random.seed()  # CPython does it too, but not for a module that was imported in an unusual way


def _numpy(mtrand):
    mtrand.seed()  # the old global generator; new ones take fresh entropy


def _tempfile(tempfile):
    tempfile._name_sequence = None
    tempfile.tempdir = None


def _uuid(uuid):
    uuid._node = None
    uuid._last_timestamp = None


def _ssl(ssl):
    ssl.RAND_add(urandom(32), 32.0)


def _torch(torch):
    torch.seed()


def _process(process):
    process.current_process().authkey = urandom(32)


def _platform(platform):
    platform._uname_cache = None
    cache = getattr(platform, "_platform_cache", None)
    if isinstance(cache, dict):
        cache.clear()


_MODULES = (
    ("random", _random),
    ("numpy.random.mtrand", _numpy),
    ("tempfile", _tempfile),
    ("uuid", _uuid),
    ("_ssl", _ssl),
    ("torch", _torch),
    ("multiprocessing.process", _process),
    ("platform", _platform),
)
