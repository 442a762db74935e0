"""Values in both directions, and what does not fit."""

import json
import time
import unittest

from fake import Runner


def depth(value):
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth, value), default=0)
    return 0


class Values(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.runner = Runner(tools={"echo": lambda value: value})

    @classmethod
    def tearDownClass(cls):
        cls.runner.close()

    def check(self, code, wanted):
        self.assertEqual(self.runner.value(code), wanted, code)

    def test_plain(self):
        for code, wanted in (
            ("True", True),
            ("-5", -5),
            ("2.5", 2.5),
            ("'é\\0\\n'", "é\0\n"),
            ("[1, [None]]", [1, [None]]),
            ("{'a': {'b': 1}}", {"a": {"b": 1}}),
            ("2**63 - 1", 2**63 - 1),
            ("1e300", 1e300),
            ("{'é': 1}", {"é": 1}),
        ):
            self.check(code, wanted)

    def test_floats_look_like_floats(self):
        self.runner.start("[1.0, 1e22, -0.0]")
        while b'"done"' not in self.runner.channel.received:
            self.runner.channel.received += self.runner.channel.sock.recv(4096)
        self.assertIn(b"[1.0,1e+22,-0.0]", self.runner.channel.received)
        self.runner.finish()

    def test_tagged(self):
        for code, wanted in (
            ("2**63", {"$": "int", "v": str(2**63)}),
            ("-2**63", {"$": "int", "v": str(-(2**63))}),
            ("float('nan')", {"$": "float", "v": "nan"}),
            ("-float('inf')", {"$": "float", "v": "-inf"}),
            ("1 + 2j", {"$": "complex", "v": [1.0, 2.0]}),
            ("b'\\0\\1'", {"$": "bytes", "v": "AAE="}),
            ("memoryview(bytearray(b'ab'))", {"$": "bytes", "v": "YWI="}),
            ("(1, ())", {"$": "tuple", "v": [1, {"$": "tuple", "v": []}]}),
            ("{3, 1, 2}", {"$": "set", "v": [1, 2, 3]}),
            ("frozenset([1])", {"$": "frozenset", "v": [1]}),
            ("{1: 2, (3,): 'x'}", {"$": "dict", "v": [[1, 2], [{"$": "tuple", "v": [3]}, "x"]]}),
            ("{'$': 1}", {"$": "dict", "v": [["$", 1]]}),
            ("import datetime as d\nd.datetime(2020, 1, 2, 3, 4, 5, 6)", {"$": "datetime", "v": "2020-01-02T03:04:05.000006"}),
            ("d.datetime(2020, 1, 2, tzinfo=d.timezone.utc)", {"$": "datetime", "v": "2020-01-02T00:00:00+00:00"}),
            ("d.date(2020, 1, 2)", {"$": "date", "v": "2020-01-02"}),
            ("d.time(1, 2)", {"$": "time", "v": "01:02:00"}),
            ("d.timedelta(1, 2, 3)", {"$": "timedelta", "v": [1, 2, 3]}),
            ("from decimal import Decimal\nDecimal('1.10')", {"$": "decimal", "v": "1.10"}),
            ("from fractions import Fraction\nFraction(1, 3)", {"$": "fraction", "v": "1/3"}),
            ("import uuid\nuuid.UUID(int=1)", {"$": "uuid", "v": "00000000-0000-0000-0000-000000000001"}),
            ("import pathlib\npathlib.Path('/a/b')", {"$": "path", "v": "/a/b"}),
            ("import enum\nclass Color(enum.Enum):\n  RED = 1\nColor.RED", {"$": "enum", "name": "Color.RED", "v": 1}),
            ("class I(enum.IntEnum):\n  A = 5\nI.A", {"$": "enum", "name": "I.A", "v": 5}),
            ("from collections import namedtuple\nP = namedtuple('P', 'x y')\nP(1, [2])", {"$": "namedtuple", "name": "P", "v": {"x": 1, "y": [2]}}),
            ("from dataclasses import dataclass\n@dataclass\nclass D:\n  a: int\n  b: str = 'x'\nD(1)", {"$": "dataclass", "name": "D", "v": {"a": 1, "b": "x"}}),
            ("ValueError('m')", {"$": "error", "type": "ValueError", "message": "m"}),
            ("class L(list): pass\nL([1])", [1]),
            ("class S(str): pass\nS('a')", "a"),
            ("class N(int):\n  def __repr__(self): return 'no'\nN(5)", 5),
            ("from collections import OrderedDict\nOrderedDict(a=1)", {"a": 1}),
            ("range(3)", {"$": "repr", "type": "range", "v": "range(0, 3)"}),
            ("'\\udc80'", {"$": "repr", "type": "str", "v": "'\\udc80'"}),
        ):
            self.check(code, wanted)

    def test_there_and_back(self):
        """What goes to a tool comes back as the same thing, of the same type."""
        for code in (
            "2**70", "1.5", "1 + 2j", "b'ab'", "(1, (2,))", "{1, 2}", "frozenset([1])", "{1: 2, (3, (4,)): 'x', None: 1}", "{'$': [1]}",
            "d.datetime(2020, 1, 2, 3, 4, 5, 6, d.timezone.utc)", "d.date(2020, 1, 2)", "d.time(1, 2, 3)", "d.timedelta(-1, 2, 3)",
            "Decimal('1.10')", "Fraction(-1, 3)", "uuid.UUID(int=7)", "pathlib.Path('a')", "P(1, 2)", "10**5000", "{frozenset([1]): 2}",
        ):
            setup = ("import datetime as d, uuid, pathlib\nfrom decimal import Decimal\nfrom fractions import Fraction\n"
                     "from collections import namedtuple\nP = namedtuple('P', 'x y')\n")
            self.check(setup + "v = %s\nw = echo(v)\n[w == v, type(w).__name__ == type(v).__name__]" % code, [True, True])
        self.check("import math\nmath.isnan(echo(float('nan')))", True)

    def test_decoding_of_what_is_not_native(self):
        values = {
            "dc": {"$": "dataclass", "name": "D", "v": {"a": {"$": "tuple", "v": []}}},
            "en": {"$": "enum", "name": "C.R", "v": 3},
            "re": {"$": "repr", "type": "X", "v": "<X>"},
            "cu": {"$": "cut", "why": "size", "v": "abc"},
            "er": {"$": "error", "type": "KeyError", "message": "k"},
            "un": {"$": "undefined"},
            "js": {"$": "datetime", "v": "2020-01-02T03:04:05.678Z"},
            "nt": {"$": "namedtuple", "name": "not a name", "v": {"class": 1}},
        }
        with Runner(globals=values) as runner:
            self.assertEqual(runner.value("[dc == {'a': ()}, en, re, cu, type(er).__name__, un, js.microsecond, nt]"),
                             [True, 3, "<X>", "abc", "KeyError", None, 678000, {"class": 1}])

    def test_cycles_and_depth(self):
        self.check("a = []\na.append(a)\na", [{"$": "cut", "why": "cycle", "v": "[[[...]]]"}])
        self.check("b = [1]\n[b, b]", [[1], [1]])
        for code in (
            "x = []\nfor _ in range(10_000): x = [x]\nx",
            "x = ()\nfor _ in range(10_000): x = (x,)\nx",
            "x = {}\nfor _ in range(10_000): x = {1: x}\nx",
            "x = {}\nfor _ in range(10_000): x = {'a': x}\nx",
        ):
            value = self.runner.value(code)
            self.assertIn('"depth"', json.dumps(value))
            self.assertLessEqual(depth(value), 190)
        with Runner(limits={"depth": 500}) as runner:
            self.assertLessEqual(depth(runner.value("x = {}\nfor _ in range(10_000): x = {1: x}\nx")), 190)

    def test_size(self):
        for code in (
            "'x' * 50_000_000",
            "list(range(5_000_000))",
            "['x' * 100_000] * 100",
            "b'x' * 50_000_000",
            "{i: i for i in range(1_000_000)}",
            "'\\0' * 500_000",
            "10 ** 2_000_000",
            "{'k' * 2_000_000: 1}",
        ):
            done = self.runner.run(code)
            self.assertEqual((done["value"]["$"], done["value"]["why"]), ("cut", "size"), code)
            self.assertLess(len(json.dumps(done)), 1 << 20)
        self.check("'x' * 1000", "x" * 1000)

    def test_spiteful_values(self):
        self.assertIn("raised", self.runner.value("class R:\n  def __repr__(self): 1 / 0\nR()")["v"])
        self.assertIn("raised", self.runner.value("class R:\n  def __repr__(self): return 5\nR()")["v"])
        self.assertIn("raised", self.runner.value("class R:\n  def __repr__(self): raise SystemExit\nR()")["v"])
        value = self.runner.value("class R:\n  def __repr__(self): return 'x' * 100_000_000\nR()")
        self.assertEqual(value["$"], "repr")
        self.assertLess(len(value["v"]), 1 << 20)
        self.assertEqual(self.runner.value("class R:\n  def __getattribute__(self, n): raise OSError\nR()")["$"], "repr")
        self.assertEqual(self.runner.value("class R:\n  __class__ = property(lambda s: 1 / 0)\nR()")["$"], "repr")
        self.assertEqual(self.runner.value("from unittest.mock import MagicMock\nMagicMock()")["type"], "MagicMock")
        self.assertEqual(self.runner.value("class D(dict):\n  def items(self): 1 / 0\n  def __iter__(self): 1 / 0\nD(a=1)"), {"a": 1})
        self.assertEqual(self.runner.value("class M(type):\n  __name__ = property(lambda s: 1 / 0)\nclass X(metaclass=M): pass\nX()")["$"], "repr")
        self.assertEqual(self.runner.value("1"), 1)

    def test_changing_while_encoded(self):
        """A thread that changes a container does not break the answer."""
        code = """
import threading, time
box = {str(i): i for i in range(1000)}
stop = False
def change():
    n = 0
    while not stop:
        n += 1
        box[str(n % 5000)] = n
        box.pop(str((n + 2500) % 5000), None)
thread = threading.Thread(target=change, daemon=True)
thread.start()
"""
        self.runner.run(code)
        for _ in range(20):
            self.assertEqual(self.runner.run("box")["status"], "ok")
        self.runner.run("stop = True")


if __name__ == "__main__":
    unittest.main()
