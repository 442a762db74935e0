"""Values of Python as the plain data of PROTOCOL.md.

Nothing here trusts a value: it may be endless in depth, hold itself, or raise from any of its methods. What is too
deep or holds itself is cut where that begins; what is too large is cut as a whole, since a part of a list looks like a list.
"""

import sys
from binascii import b2a_base64

_NESTING = 180  # levels of JSON; the engine takes 200
_DIGITS = 100_000  # of a whole number: turning one into text takes quadratic time
_TEXT = 256 << 10  # characters of a repr
_WHOLE = (1 << 63) - 1
_PLAIN_CONTAINERS = frozenset((dict, list, tuple))


class NotData(Exception):
    """A value that can only be shown, not sent."""


class _Full(Exception):
    """The value is larger than allowed."""


def value(thing, limits):
    """The value, or a `cut` in its place."""
    fits, plain = _encode(thing, limits, False)
    return plain if fits else _cut("size", thing, limits["value_bytes"])


def data(thing, limits):
    """The value; raises NotData for what is not data as a whole."""
    fits, plain = _encode(thing, limits, True)
    if not fits:
        raise NotData("it is larger than %d bytes, or has more than %d values" % (limits["value_bytes"], limits["values"]))
    return plain


def _encode(thing, limits, strict):
    """Whether it is small enough, and it."""
    limit = limits["value_bytes"]
    encoder = _Encoder(limit, limits["depth"], strict)
    try:
        plain = encoder.one(thing, 0, 0)
    except _Full:
        return False, None
    # Nothing is counted as less than the values it has, and only what has many is worth counting.
    if encoder.used > limits["values"] and count(plain) > limits["values"]:
        return False, None
    # A character may take six bytes as JSON; only a value that comes near the limit is worth a second look.
    return encoder.used * 6 <= limit or len(belljar.channel.dumps(plain)) <= limit, plain


def count(plain):
    """The values in plain data, all levels together, as the engine counts them: brackets, commas and colons."""
    total = 1
    level = [plain]
    while level:
        below = []
        for thing in level:
            if type(thing) is dict:
                total += 2 * len(thing) + 1
                below += [item for item in thing.values() if type(item) in _PLAIN_CONTAINERS]
            elif type(thing) in _PLAIN_CONTAINERS:
                total += len(thing) + 1
                below += [item for item in thing if type(item) in _PLAIN_CONTAINERS]
        level = below
    return total


def _cut(why, thing, limit):
    return {"$": "cut", "why": why, "v": brief(thing, min(limit // 8, 2000))}


def brief(thing, limit):
    """A short text that stands for a value of any size."""
    try:
        if issubclass(type(thing), str):
            return _text(str.__str__(thing[:limit]))
        if issubclass(type(thing), (list, tuple, dict, set, frozenset, bytes, bytearray, int)):
            import reprlib

            if issubclass(type(thing), int) and thing.bit_length() > 10_000:
                return "<a number of %d bits>" % thing.bit_length()
            if issubclass(type(thing), (bytes, bytearray)):
                thing = thing[:limit]
            shown = reprlib.Repr()
            shown.maxlevel = 2
            return _text(shown.repr(thing)[:limit])
        return _text(repr(thing)[:limit])
    except KeyboardInterrupt:
        raise
    except BaseException:
        return "<%s>" % _name(thing)


def _name(thing):
    return type.__dict__["__name__"].__get__(type(thing))


def _text(text):
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def base64(octets):
    return str(b2a_base64(octets, newline=False), "ascii")


class _Encoder:
    def __init__(self, limit, depth, strict):
        self.limit = limit
        self.depth = depth
        self.strict = strict
        self.used = 0
        self._above = set()  # the containers around the one at hand

    def one(self, thing, depth, nesting):
        """Encode one value. `depth` counts containers, `nesting` levels of JSON."""
        method = _EXACT.get(type(thing)) or _kind(thing)
        if method not in _CONTAINERS:
            return method(self, thing)
        if depth >= self.depth or nesting > _NESTING - 3:
            return self._cut("depth", thing)
        if id(thing) in self._above:
            return self._cut("cycle", thing)
        self._above.add(id(thing))
        try:
            return method(self, thing, depth + 1, nesting)
        finally:
            self._above.discard(id(thing))

    def _spend(self, size):
        self.used += size
        if self.used > self.limit:
            raise _Full

    def _cut(self, why, thing):
        if self.strict:
            raise NotData("it is nested too deeply" if why == "depth" else "it holds itself")
        cut = _cut(why, thing, 1600)
        self._spend(len(cut["v"]) + 30)
        return cut

    def constant(self, thing):
        self._spend(5)
        return thing

    def whole(self, thing):
        if type(thing) is not int:
            thing = int.__int__(thing)
        if -_WHOLE <= thing <= _WHOLE:
            self._spend(8)
            return thing
        digits = int(thing.bit_length() * 0.30103) + 1
        self._spend(digits + 20)
        if digits > _DIGITS:
            raise _Full
        return {"$": "int", "v": _digits(thing)}

    def real(self, thing):
        self._spend(12)
        if type(thing) is not float:
            thing = float.__float__(thing)
        if thing - thing == 0:
            return thing
        return {"$": "float", "v": repr(thing)}

    def complex(self, thing):
        self._spend(30)
        return {"$": "complex", "v": [self.real(thing.real), self.real(thing.imag)]}

    def text(self, thing):
        if type(thing) is not str:
            thing = str.__str__(thing)
        self._spend(len(thing) + 2)
        if not thing.isascii():
            try:
                self._spend(len(thing.encode("utf-8")) - len(thing))
            except UnicodeEncodeError:  # half a character: UTF-8 has no place for it
                return self._shown("str", ascii(thing))
        return thing

    def octets(self, thing):
        size = thing.nbytes if issubclass(type(thing), memoryview) else len(thing)
        self._spend(size * 4 // 3 + 20)
        return {"$": "bytes", "v": base64(bytes(thing))}

    def items(self, things, depth, nesting):
        self._spend(len(things) + 2)
        one = self.one
        return [one(thing, depth, nesting) for thing in things]

    def list(self, thing, depth, nesting):
        return self.items(thing if type(thing) is list else list.copy(thing), depth, nesting + 1)

    def tuple(self, thing, depth, nesting):
        fields = getattr(type(thing), "_fields", None)
        if type(fields) is tuple and len(fields) == len(thing) and all(type(f) is str for f in fields):
            self._spend(sum(map(len, fields)) + 30)
            values = self.items(thing, depth, nesting + 2)
            return {"$": "namedtuple", "name": _name(thing), "v": dict(zip(fields, values))}
        self._spend(20)
        return {"$": "tuple", "v": self.items(tuple.__add__(thing, ()), depth, nesting + 2)}

    def set(self, thing, depth, nesting):
        kind = "frozenset" if issubclass(type(thing), frozenset) else "set"
        self._spend(20 + len(thing))
        things = list((frozenset if kind == "frozenset" else set).__iter__(thing))
        try:
            things.sort()  # so that the same set gives the same data
        except Exception:
            pass
        return {"$": kind, "v": self.items(things, depth, nesting + 2)}

    def dict(self, thing, depth, nesting):
        items = list(dict.items(thing))
        self._spend(len(items) * 2 + 2)
        if all(type(key) is str and key.isascii() and key != "$" for key, _ in items):
            self._spend(sum(len(key) + 3 for key, _ in items))
            return {key: self.one(item, depth, nesting + 1) for key, item in items}
        plain = [(self.one(key, depth, nesting + 3), self.one(item, depth, nesting + 3)) for key, item in items]
        if all(type(key) is str and key != "$" for key, _ in plain) and all(isinstance(key, str) for key, _ in items):
            return dict(plain)
        return {"$": "dict", "v": [list(pair) for pair in plain]}

    def iso(self, thing):
        self._spend(50)
        kind = next(k.__name__ for k in type(thing).__mro__ if k.__module__ == "datetime")
        if hasattr(thing, "to_pydatetime"):  # of pandas
            if thing != thing:  # not a time
                return None
            thing = thing.to_pydatetime(warn=False)
        return {"$": kind, "v": self._plain_text(thing.isoformat())}

    def duration(self, thing):
        self._spend(50)
        if thing != thing:
            return None
        return {"$": "timedelta", "v": [int(thing.days), int(thing.seconds), int(thing.microseconds)]}

    def _plain_text(self, thing):
        thing = _text(str.__str__(thing))
        self._spend(len(thing) + 10)
        return thing

    def decimal(self, thing):
        return {"$": "decimal", "v": self._plain_text(str(thing))}

    def fraction(self, thing):
        for part in (thing.numerator, thing.denominator):
            if part.bit_length() > _DIGITS:
                raise _Full
        return {"$": "fraction", "v": self._plain_text("%s/%s" % (_digits(thing.numerator), _digits(thing.denominator)))}

    def uuid(self, thing):
        return {"$": "uuid", "v": self._plain_text(str(thing))}

    def path(self, thing):
        return {"$": "path", "v": self._plain_text(str(thing))}

    def enum(self, thing, depth, nesting):
        name = thing.name
        name = "%s.%s" % (_name(thing), name) if isinstance(name, str) else str(thing)
        return {"$": "enum", "name": self._plain_text(name), "v": self.one(thing.value, depth, nesting + 1)}

    def dataclass(self, thing, depth, nesting):
        names = [name for name, field in type(thing).__dataclass_fields__.items() if field._field_type.name == "_FIELD"]
        self._spend(sum(map(len, names)) + 30)
        found = {name: self.one(getattr(thing, name), depth, nesting + 2) for name in names if hasattr(thing, name)}
        return {"$": "dataclass", "name": _name(thing), "v": found}

    def error(self, thing):
        message = belljar.tracebacks.text_of(thing)
        self._spend(len(message) + 50)
        return {"$": "error", "type": _name(thing), "message": message}

    def scalar(self, thing):
        return belljar.tables.scalar(self, thing)

    def array(self, thing):
        return belljar.tables.array(self, thing)

    def series(self, thing, depth, nesting):
        return belljar.tables.series(self, thing, depth, nesting)

    def dataframe(self, thing, depth, nesting):
        return belljar.tables.dataframe(self, thing, depth, nesting)

    def nothing(self, thing):
        self._spend(5)
        return None

    def other(self, thing):
        if self.strict:
            raise NotData("%s is not data" % _name(thing))
        try:
            text = repr(thing)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            text = "<%s, whose repr raised %s>" % (_name(thing), _name(error))
        return self._shown(_name(thing), text)

    def _shown(self, kind, text):
        if self.strict:
            raise NotData("%s is not data" % kind)
        room = max(0, min(self.limit - self.used, _TEXT) // 2 - 100)
        if len(text) > room:
            text = text[:room] + "..."
        text = _text(str.__str__(text))
        self._spend(len(text) + 40)
        return {"$": "repr", "type": _text(kind), "v": text}


def _digits(number):
    """Decimal text of a whole number, also where the interpreter has a limit for that."""
    try:
        return str(number)
    except ValueError:
        limit = sys.get_int_max_str_digits()
        sys.set_int_max_str_digits(0)
        try:
            return str(number)
        finally:
            sys.set_int_max_str_digits(limit)


_EXACT = {
    type(None): _Encoder.constant,
    bool: _Encoder.constant,
    int: _Encoder.whole,
    float: _Encoder.real,
    complex: _Encoder.complex,
    str: _Encoder.text,
    bytes: _Encoder.octets,
    bytearray: _Encoder.octets,
    memoryview: _Encoder.octets,
    list: _Encoder.list,
    tuple: _Encoder.tuple,
    set: _Encoder.set,
    frozenset: _Encoder.set,
    dict: _Encoder.dict,
}

# Types of modules that are looked at only if somebody has imported them. The first that fits counts.
_BY_MODULE = (
    ("enum", "Enum", _Encoder.enum),
    ("numpy", "generic", _Encoder.scalar),
    ("numpy", "ndarray", _Encoder.array),
    ("pandas", "Series", _Encoder.series),
    ("pandas", "DataFrame", _Encoder.dataframe),
    ("datetime", "datetime", _Encoder.iso),
    ("datetime", "date", _Encoder.iso),
    ("datetime", "time", _Encoder.iso),
    ("datetime", "timedelta", _Encoder.duration),
    ("decimal", "Decimal", _Encoder.decimal),
    ("fractions", "Fraction", _Encoder.fraction),
    ("uuid", "UUID", _Encoder.uuid),
    ("pathlib", "PurePath", _Encoder.path),
)

_BY_BASE = (
    (int, _Encoder.whole),
    (float, _Encoder.real),
    (complex, _Encoder.complex),
    (str, _Encoder.text),
    ((bytes, bytearray), _Encoder.octets),
    (list, _Encoder.list),
    (tuple, _Encoder.tuple),
    ((set, frozenset), _Encoder.set),
    (dict, _Encoder.dict),
    (BaseException, _Encoder.error),
)

_CONTAINERS = {
    _Encoder.list,
    _Encoder.tuple,
    _Encoder.set,
    _Encoder.dict,
    _Encoder.enum,
    _Encoder.dataclass,
    _Encoder.series,
    _Encoder.dataframe,
}


def _kind(thing):
    mine = type(thing)
    for module, name, method in _BY_MODULE:
        module = sys.modules.get(module)
        if module is not None:
            kind = getattr(module, name, None)
            if isinstance(kind, type) and issubclass(mine, kind):
                return method
    if type(mine.__dict__.get("__dataclass_fields__")) is dict:
        return _Encoder.dataclass
    for kind, method in _BY_BASE:
        if issubclass(mine, kind):
            return method
    pandas = sys.modules.get("pandas")
    if pandas is not None and (thing is getattr(pandas, "NA", mine) or thing is getattr(pandas, "NaT", mine)):
        return _Encoder.nothing
    return _Encoder.other
