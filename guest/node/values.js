// Turns a value into the JSON of PROTOCOL.md, within limits, whatever the value does when it is looked at.
// The caller guards the call, so that a getter that never returns can be interrupted.
'use strict';

const { types, buffer } = host;
const TypedArray = Object.getPrototypeOf(Uint8Array).prototype;
const getter = (prototype, name) => {
  const { get } = Object.getOwnPropertyDescriptor(prototype, name);
  return (object) => Reflect.apply(get, object, []);
};
const kindOf = getter(TypedArray, Symbol.toStringTag);
const viewBuffer = getter(TypedArray, 'buffer');
const viewOffset = getter(TypedArray, 'byteOffset');
const viewLength = getter(TypedArray, 'byteLength');
const dataBuffer = getter(DataView.prototype, 'buffer');
const dataOffset = getter(DataView.prototype, 'byteOffset');
const dataLength = getter(DataView.prototype, 'byteLength');

const DTYPES = {
  Int8Array: 'int8', Int16Array: 'int16', Int32Array: 'int32', BigInt64Array: 'int64',
  Uint8ClampedArray: 'uint8', Uint16Array: 'uint16', Uint32Array: 'uint32', BigUint64Array: 'uint64',
  Float16Array: 'float16', Float32Array: 'float32', Float64Array: 'float64',
};
const TEXT_OF_REPR = 4096;
const DEEPEST = 180; // the engine drops what is nested deeper than 200, and the message around it counts

class NotData extends Error {}

function attempt(look, otherwise) {
  try {
    return look();
  } catch {
    return otherwise;
  }
}

function typeName(value) {
  const name = attempt(() => (value === null ? 'null' : typeof value === 'function' ? 'function' : value.constructor.name), '');
  return typeof name === 'string' && name !== '' ? name.slice(0, 200) : typeof value;
}

// What Node itself would print for it, cut.
function repr(value) {
  const text = attempt(() => host.inspect(value, { depth: 3, maxArrayLength: 100, maxStringLength: 1000 }), '');
  return typeof text === 'string' && text !== '' ? text.slice(0, TEXT_OF_REPR) : `[${typeName(value)}]`;
}

class Writer {
  constructor(limits, strict) {
    this.left = limits.value_bytes;
    // Brackets, commas and colons, as the engine counts them.
    this.values = limits.values;
    this.deepest = Math.min(limits.depth, DEEPEST);
    this.strict = strict;
    this.above = new Set();
    this.out = [];
  }

  put(text) {
    this.left -= text.length;
    this.out.push(text);
  }

  text(value) {
    if (value.length > this.left) return this.cut('size', value.slice(0, 200));
    const quoted = JSON.stringify(value);
    // Three bytes for each unit is the most that UTF-8 needs; only a long text is worth counting.
    const bytes = quoted.length * 3 < this.left ? quoted.length : buffer.byteLength(quoted);
    if (bytes > this.left) return this.cut('size', value.slice(0, 200));
    this.left -= bytes - quoted.length;
    return this.put(quoted);
  }

  tagged(tag, value) {
    this.values -= 4;
    this.put(`{"$":"${tag}","v":`);
    this.text(value);
    this.put('}');
  }

  cut(why, text) {
    if (this.strict) throw new NotData({ depth: 'nested too deeply', size: 'too large', cycle: 'part of a cycle' }[why]);
    this.values -= 6;
    this.put(`{"$":"cut","why":"${why}","v":${JSON.stringify(String(text).slice(0, 200))}}`);
  }

  other(value) {
    if (this.strict) throw new NotData(`not data: ${typeName(value)}`);
    const text = repr(value);
    if (text.length * 3 > this.left) return this.cut('size', text);
    this.values -= 6;
    return this.put(`{"$":"repr","type":${JSON.stringify(typeName(value))},"v":${JSON.stringify(text)}}`);
  }

  number(value) {
    if (Number.isSafeInteger(value)) return this.put(Object.is(value, -0) ? '-0.0' : String(value));
    if (!Number.isFinite(value)) this.values -= 4;
    if (Number.isNaN(value)) return this.put('{"$":"float","v":"nan"}');
    if (value === Infinity) return this.put('{"$":"float","v":"inf"}');
    if (value === -Infinity) return this.put('{"$":"float","v":"-inf"}');
    const text = String(value);
    return this.put(/[.e]/.test(text) ? text : `${text}.0`);
  }

  raw(store, offset, length, before) {
    if (Math.ceil(length / 3) * 4 + before.length > this.left) return this.cut('size', `${length} bytes`);
    // A buffer that was handed to somebody else has no bytes any more.
    const text = attempt(() => Reflect.apply(buffer.toString, buffer.from(store, offset, length), ['base64']), '');
    this.values -= 8;
    return this.put(`${before}"v":"${text}"}`);
  }

  view(value) {
    const kind = kindOf(value);
    const length = viewLength(value);
    const dtype = DTYPES[kind];
    const before = dtype
      ? `{"$":"ndarray","dtype":"${dtype}","shape":[${length / host.global[kind].BYTES_PER_ELEMENT}],`
      : '{"$":"bytes",';
    return this.raw(viewBuffer(value), viewOffset(value), length, before);
  }

  // Writes `items` between commas until they end or there is no room.
  each(items, write) {
    let first = true;
    for (const item of items) {
      if (!first) this.put(',');
      first = false;
      if (this.left <= 0 || this.values <= 0) return this.cut('size', 'the rest');
      write(item);
    }
    return undefined;
  }

  *indexes(value) {
    const { length } = value;
    for (let i = 0; i < length; i++) yield i;
  }

  // A property that throws when it is read is the error that it throws.
  property(object, name, depth) {
    let value;
    try {
      value = object[name];
    } catch (error) {
      value = types.isNativeError(error) ? error : undefined;
    }
    return this.value(value, depth);
  }

  list(value, depth) {
    this.values -= 1;
    this.put('[');
    this.each(this.indexes(value), (i) => this.property(value, i, depth));
    this.put(']');
  }

  object(value, depth) {
    const names = Object.keys(value);
    if (names.includes('$')) {
      this.put('{"$":"dict","v":[');
      this.values -= 5;
      this.each(names, (name) => {
        this.values -= 2;
        this.put('[');
        this.text(name);
        this.put(',');
        this.property(value, name, depth + 2);
        this.put(']');
      });
      return this.put(']}');
    }
    this.values -= 1;
    this.put('{');
    let first = true;
    for (const name of names) {
      if (!first) this.put(',');
      first = false;
      // A key cannot be replaced by a cut, so the rest is one more entry.
      if (name.length * 6 + 16 > this.left || this.values <= 0) {
        this.put('"…":');
        this.cut('size', 'the rest');
        break;
      }
      this.values -= 1;
      this.text(name);
      this.put(':');
      this.property(value, name, depth);
    }
    return this.put('}');
  }

  error(value) {
    const read = (name, otherwise) => {
      const text = attempt(() => value[name], otherwise);
      return typeof text === 'string' ? text.slice(0, 1e5) : otherwise;
    };
    const [type, message] = [read('name', 'Error'), read('message', '')];
    if ((type.length + message.length) * 3 > this.left) return this.cut('size', message);
    this.values -= 6;
    return this.put(`{"$":"error","type":${JSON.stringify(type)},"message":${JSON.stringify(message)}}`);
  }

  collection(value, depth) {
    this.values -= 5;
    if (types.isMap(value)) {
      this.put('{"$":"dict","v":[');
      this.each(Reflect.apply(Map.prototype.entries, value, []), (pair) => {
        this.values -= 2;
        this.put('[');
        this.value(pair[0], depth + 2);
        this.put(',');
        this.value(pair[1], depth + 2);
        this.put(']');
      });
      return this.put(']}');
    }
    this.put('{"$":"set","v":[');
    this.each(Reflect.apply(Set.prototype.values, value, []), (item) => this.value(item, depth + 1));
    return this.put(']}');
  }

  value(value, depth) {
    this.values -= 1;
    switch (typeof value) {
      case 'string': return this.text(value);
      case 'number': return this.number(value);
      case 'boolean': return this.put(String(value));
      case 'undefined':
        this.values -= 2;
        return this.put('{"$":"undefined"}');
      case 'bigint': {
        // The decimal text of a huge one takes minutes to work out, so its size is looked at in base 16.
        if (BigInt.asIntN(4096, value) !== value && value.toString(16).length * 1.21 > this.left) return this.cut('size', 'a BigInt');
        return this.tagged('int', value.toString());
      }
      case 'object': break;
      default: return this.other(value);
    }
    if (value === null) return this.put('null');
    if (types.isDate(value)) {
      const time = Reflect.apply(Date.prototype.getTime, value, []);
      if (Number.isNaN(time)) return this.other(value);
      return this.tagged('datetime', new Date(time).toISOString().replace('Z', '+00:00'));
    }
    if (types.isTypedArray(value)) return this.view(value);
    if (types.isAnyArrayBuffer(value)) return this.raw(value, 0, value.byteLength, '{"$":"bytes",');
    if (types.isDataView(value)) return this.raw(dataBuffer(value), dataOffset(value), dataLength(value), '{"$":"bytes",');
    if (types.isNativeError(value)) return this.error(value);
    if (types.isBoxedPrimitive(value) && !types.isSymbolObject(value)) return this.value(value.valueOf(), depth);
    if (this.above.has(value)) return this.cut('cycle', typeName(value));
    if (depth >= this.deepest) return this.cut('depth', typeName(value));
    this.above.add(value);
    try {
      return this.container(value, depth);
    } finally {
      this.above.delete(value);
    }
  }

  container(value, depth) {
    if (types.isMap(value) || types.isSet(value)) return this.collection(value, depth + 2);
    const mark = this.out.length;
    const { left, values } = this;
    try {
      if (typeof value.toJSON === 'function') return this.value(value.toJSON(), depth + 1);
      if (Array.isArray(value) || types.isArgumentsObject(value)) return this.list(value, depth + 1);
      const prototype = Object.getPrototypeOf(value);
      if (prototype === null || Object.getPrototypeOf(prototype) === null) {
        if (Reflect.apply(Object.prototype.toString, value, []) === '[object Object]') return this.object(value, depth + 1);
      }
    } catch (error) {
      if (error instanceof NotData) throw error;
      // It threw when it was looked at, or the stack is used up. What was written of it is taken back.
      this.out.length = mark;
      this.left = left;
      this.values = values;
    }
    return this.other(value);
  }
}

// The JSON text of a value.
exports.encode = function encode(value, limits) {
  const writer = new Writer(limits, false);
  writer.value(value, 1);
  return writer.out.join('');
};

// The JSON text of arguments. Throws a TypeError of the cells' realm if one is not data.
exports.encodeArguments = function encodeArguments(name, args, limits) {
  const writer = new Writer(limits, true);
  for (let i = 0; i < args.length; i++) {
    if (i > 0) writer.put(',');
    try {
      if (writer.values <= 0) writer.cut('size', '');
      writer.value(args[i], 2);
    } catch (error) {
      if (!(error instanceof NotData)) throw error;
      throw host.local.error('TypeError', `argument ${i + 1} of '${name}' is ${error.message}`);
    }
  }
  return `[${writer.out.join('')}]`;
};

exports.repr = repr;
exports.typeName = typeName;
