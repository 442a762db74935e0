// The few things that must be made in the cells' own realm, so that `instanceof` and prototypes are what
// the cells expect: values that come in, tools, and errors. Uses only what it took at the start.
'use strict';

const { Map, Set, Date, Promise, BigInt, Number, Error, Symbol, Uint8Array } = globalThis;
const builtin = Object.create(null);
for (const name of ['Error', 'EvalError', 'RangeError', 'ReferenceError', 'SyntaxError', 'TypeError', 'URIError', 'AggregateError']) {
  builtin[name] = globalThis[name];
}
const call = Function.prototype.call.bind.bind(Function.prototype.call);
const mapSet = call(Map.prototype.set);
const setAdd = call(Set.prototype.add);
const { defineProperty } = Object;
const bufferFrom = Buffer.from;

const ARRAYS = {
  int8: Int8Array, int16: Int16Array, int32: Int32Array, int64: BigInt64Array,
  uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array, uint64: BigUint64Array,
  float32: Float32Array, float64: Float64Array,
};
const SHORT = { i1: 'int8', i2: 'int16', i4: 'int32', i8: 'int64', u1: 'uint8', u2: 'uint16', u4: 'uint32', u8: 'uint64', f4: 'float32', f8: 'float64' };

function put(object, name, value) {
  // A plain assignment to `__proto__` would do something else.
  defineProperty(object, name, { value, writable: true, enumerable: true, configurable: true });
}

function list(items, from) {
  const out = [];
  for (let i = 0; i < items.length; i++) put(out, i, from(items[i]));
  return out;
}

function record(object) {
  const out = {};
  for (const name in object) put(out, name, decode(object[name]));
  return out;
}

function bytes(text) {
  const buffer = bufferFrom(text, 'base64');
  const own = new Uint8Array(buffer.length);
  for (let i = 0; i < own.length; i++) own[i] = buffer[i];
  return own;
}

// A typed array; one inside plain arrays where there is more than one dimension.
function ndarray(value) {
  const name = SHORT[value.dtype.replace(/^[<|=]/, '')] || value.dtype;
  const Kind = ARRAYS[name];
  const raw = bytes(value.v);
  if (!Kind && name !== 'bool' && name !== 'b1') return record(value);
  const flat = Kind ? new Kind(raw.buffer) : list(raw, (byte) => byte !== 0);
  const { shape } = value;
  if (shape.length === 0) return flat[0];
  let at = 0;
  const build = (level) => {
    if (level === shape.length - 1) {
      at += shape[level];
      return flat.slice(at - shape[level], at);
    }
    const out = [];
    for (let i = 0; i < shape[level]; i++) out[i] = build(level + 1);
    return out;
  };
  return build(0);
}

// Turns what a message holds into values. What JavaScript has no type for becomes the nearest plain data.
function decode(value) {
  if (value === null || typeof value !== 'object') return value;
  if (typeof value.length === 'number' && value.$ === undefined && value[isList]) return list(value, decode);
  switch (value.$) {
    case undefined: return record(value);
    case 'int': return BigInt(value.v);
    case 'float': return value.v === 'inf' ? Infinity : value.v === '-inf' ? -Infinity : NaN;
    case 'bytes': return bufferFrom(value.v, 'base64');
    case 'tuple': return list(value.v, decode);
    case 'namedtuple':
    case 'dataclass': return record(value.v);
    case 'set':
    case 'frozenset': {
      const out = new Set();
      for (let i = 0; i < value.v.length; i++) setAdd(out, decode(value.v[i]));
      return out;
    }
    case 'dict': {
      const out = new Map();
      for (let i = 0; i < value.v.length; i++) mapSet(out, decode(value.v[i][0]), decode(value.v[i][1]));
      return out;
    }
    case 'datetime': return new Date(value.v);
    case 'date':
    case 'time':
    case 'decimal':
    case 'fraction':
    case 'uuid':
    case 'path':
    case 'repr':
    case 'cut': return value.v;
    case 'enum':
    case 'scalar': return decode(value.v);
    case 'complex': return { re: decode(value.v[0]), im: decode(value.v[1]) };
    case 'timedelta': return { days: value.v[0], seconds: value.v[1], microseconds: value.v[2] };
    case 'ndarray': return ndarray(value);
    case 'series': return { name: decode(value.name), index: list(value.index, decode), values: list(value.v, decode) };
    case 'dataframe':
      return { columns: list(value.columns, decode), index: list(value.index, decode), rows: list(value.v, (row) => list(row, decode)) };
    case 'error': return error(value.type, value.message);
    case 'undefined': return undefined;
    default: return record(value);
  }
}

// Set on the array prototype of the realm that parses messages: tells its lists from its objects.
const isList = Symbol('list');

// One class for each name, so that errors of one type are of one class.
const classes = Object.create(null);
function error(type, message) {
  if (builtin[type] && type !== 'AggregateError') return new builtin[type](message);
  if (!classes[type]) {
    const Kind = class extends Error {};
    defineProperty(Kind, 'name', { value: type });
    defineProperty(Kind.prototype, 'name', { value: type, writable: true, configurable: true });
    classes[type] = Kind;
  }
  return new classes[type](message);
}

// `send` gets the arguments and the two ends of the promise.
function tool(name, send) {
  const stub = function (...args) {
    return new Promise((resolve, reject) => send(args, resolve, reject));
  };
  defineProperty(stub, 'name', { value: name });
  return stub;
}

// A function of this realm that hands its arguments over as a list.
function plain(handle, name) {
  const stub = function (...args) {
    return handle(args);
  };
  defineProperty(stub, 'name', { value: name });
  return stub;
}

// A function that throws only through the promise that it returns.
function rejecting(handle) {
  return async (...args) => handle(...args);
}

module.exports = { plain, rejecting, decode, error, tool, put, isList, Number };
