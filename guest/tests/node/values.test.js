// Values in both directions, and values that do not want to be looked at.
'use strict';

const { test } = require('node:test');
const assert = require('node:assert');
const { session, LIMITS } = require('./harness.js');

test('values go out with their types', () =>
  session({}, async (runner) => {
    for (const [code, expected] of [
      ['[1, -1, 2 ** 53 - 1]', '[1,-1,9007199254740991]'],
      ['[1.5, -0, 1e300, 2 ** 53, 1e18, 1e21]', '[1.5,-0.0,1e+300,9007199254740992.0,1000000000000000000.0,1e+21]'],
      ['[NaN, Infinity, -Infinity]', '[{"$":"float","v":"nan"},{"$":"float","v":"inf"},{"$":"float","v":"-inf"}]'],
      ['-(2n ** 70n)', '{"$":"int","v":"-1180591620717411303424"}'],
      ['new Set([1, "a"])', '{"$":"set","v":[1,"a"]}'],
      ['new Map([[{a: 1}, 2]])', '{"$":"dict","v":[[{"a":1},2]]}'],
      ['({ $: 1, b: 2 })', '{"$":"dict","v":[["$",1],["b",2]]}'],
      ['Buffer.from("hi")', '{"$":"bytes","v":"aGk="}'],
      ['new Uint8Array([1, 2]).subarray(1)', '{"$":"bytes","v":"Ag=="}'],
      ['new Uint8Array([1]).buffer', '{"$":"bytes","v":"AQ=="}'],
      ['new DataView(new ArrayBuffer(1))', '{"$":"bytes","v":"AA=="}'],
      ['new Int16Array([1, -1])', '{"$":"ndarray","dtype":"int16","shape":[2],"v":"AQD//w=="}'],
      ['new BigInt64Array([1n])', '{"$":"ndarray","dtype":"int64","shape":[1],"v":"AQAAAAAAAAA="}'],
      ['new Date(Date.UTC(2024, 0, 2, 3, 4, 5, 6))', '{"$":"datetime","v":"2024-01-02T03:04:05.006+00:00"}'],
      ['new RangeError("m")', '{"$":"error","type":"RangeError","message":"m"}'],
      ['[undefined, , null]', '[{"$":"undefined"},{"$":"undefined"},null]'],
      ['Object.create(null)', '{}'],
      ['[new String("s"), new Number(1), Object(2n)]', '["s",1,{"$":"int","v":"2"}]'],
      ['/x/g', '{"$":"repr","type":"RegExp","v":"/x/g"}'],
      ['new (class P { x = 1 })()', '{"$":"repr","type":"P","v":"P { x: 1 }"}'],
      ['(a) => a', '{"$":"repr","type":"function","v":"[Function (anonymous)]"}'],
      ['Symbol("s")', '{"$":"repr","type":"Symbol","v":"Symbol(s)"}'],
      ['new URL("http://x/")', '"http://x/"'],
      ['"\\ud800"', '"\\ud800"'],
      ['let c = { n: 1 }; c.self = c; c', '{"n":1,"self":{"$":"cut","why":"cycle","v":"Object"}}'],
      ['const shared = {}; [shared, shared]', '[{},{}]'],
      ['new Date(NaN)', '{"$":"repr","type":"Date","v":"Invalid Date"}'],
      ['({ get a() { throw new TypeError("t") }, b: 1 })', '{"a":{"$":"error","type":"TypeError","message":"t"},"b":1}'],
      ['(function () { return arguments })(1, 2)', '[1,2]'],
      ['JSON.parse(\'{"__proto__": 1}\')', '{"__proto__":1}'],
    ]) {
      const done = await runner.run(code);
      assert.equal(done.text, `{"event":"done","id":${done.id},"status":"ok","value":${expected}}`, code);
    }
  }));

const IN = {
  list: [1, 'a', null, { x: [] }],
  int: { $: 'int', v: '1180591620717411303424' },
  nan: { $: 'float', v: 'nan' },
  bytes: { $: 'bytes', v: 'aGk=' },
  tuple: { $: 'tuple', v: [1, 2] },
  set: { $: 'frozenset', v: [1] },
  dict: { $: 'dict', v: [[1, { $: 'set', v: [] }]] },
  when: { $: 'datetime', v: '2024-01-02T03:04:05.006+00:00' },
  arr: { $: 'ndarray', dtype: '<f8', shape: [2], v: Buffer.from(new Float64Array([1, 2]).buffer).toString('base64') },
  grid: { $: 'ndarray', dtype: 'int16', shape: [2, 2], v: Buffer.from(new Int16Array([1, 2, 3, 4]).buffer).toString('base64') },
  bools: { $: 'ndarray', dtype: 'bool', shape: [2], v: 'AQA=' },
  err: { $: 'error', type: 'KeyError', message: 'k' },
  odd: { $: 'unheard', v: 1 },
  undef: { $: 'undefined' },
  proto: JSON.parse('{"__proto__": {"polluted": 1}}'),
};

test('values come in with their types, as globals and from tools', () =>
  session({ setup: { globals: IN }, tools: { give: (name) => IN[name] } }, async (runner) => {
    for (const where of ['(name) => globalThis[name]', 'give']) {
      await runner.run(`get = ${where}`);
      assert.deepEqual(
        await runner.value(`
          const v = {}; for (const n of ${JSON.stringify(Object.keys(IN))}) v[n] = await get(n);
          [v.list instanceof Array, v.list, v.int === 2n ** 70n, v.nan !== v.nan, Buffer.isBuffer(v.bytes), v.bytes.toString(), v.tuple, v.set instanceof Set, v.set.has(1),
           v.dict instanceof Map && v.dict.get(1) instanceof Set, v.when instanceof Date, v.when.getTime(), v.arr instanceof Float64Array, v.arr[1],
           v.grid[1][0], v.bools, v.err instanceof Error, v.err.name, v.odd.v, v.undef === undefined, v.proto.polluted === undefined]`),
        [true, [1, 'a', null, { x: [] }], true, true, true, 'hi', [1, 2], true, true, true, true, 1704164645006, true, 2, 3, [true, false], true, 'KeyError', 1, true, true]
      );
    }
  }));

test('whole numbers beyond a double are exact', () =>
  session({}, async (runner) => {
    runner.raw(runner.frame('{"op":"setup","globals":{"n":9223372036854775807,"t":"9223372036854775807 \\" 12345678901234567890","f":1.2345678901234567890}}'));
    assert.deepEqual(await runner.value('[n === 9223372036854775807n, t, f]'), [true, '9223372036854775807 " 12345678901234567890', 1.2345678901234568]);
  }));

test('hostile and huge values are cut and never end the runner', () =>
  session({}, async (runner) => {
    const deepest = (value) => (value && typeof value === 'object' ? 1 + Object.values(value).reduce((most, item) => Math.max(most, deepest(item)), 0) : 0);
    for (const code of [
      'let deep = []; for (let i = 0; i < 10000; i++) deep = [deep]; deep',
      'let m = new Map(); for (let i = 0; i < 10000; i++) m = new Map([[1, m]]); m',
      '"x".repeat(5e7)',
      '"é".repeat(1e6)',
      '"\\u0001".repeat(9e5)',
      'new Array(1e9)',
      'Array.from({ length: 1e6 }, (_, i) => i)',
      'Object.fromEntries(Array.from({ length: 1e6 }, (_, i) => ["k" + i, i]))',
      'Buffer.alloc(1e8)',
      '2n ** 10000000n',
      'new Proxy({}, { ownKeys() { throw 1 } })',
      'new Proxy([], { get(t, k) { return k === "length" ? 2 ** 50 : 1 } })',
      'new Proxy({}, { getPrototypeOf() { throw null } })',
      '({ toJSON() { return this } })',
      '({ toJSON() { return { toJSON: this.toJSON } } })',
      '({ toJSON() { throw new Error("no") } })',
      '({ get a() { return { get a() { throw undefined } } } })',
      'new (class { [Symbol.for("nodejs.util.inspect.custom")]() { throw 1 } })()',
      'Object.create(class {}.prototype, { constructor: { get() { throw 1 } } })',
      'const p = Proxy.revocable({}, {}); p.revoke(); [p.proxy]',
      'Object.defineProperty(new Error("e"), "name", { get() { throw 1 } })',
      'const e = new Error("e"); Object.defineProperty(e, "message", { get() { throw 1 } }); e',
      'let ab = new ArrayBuffer(8); let ta = new Uint8Array(ab); structuredClone(ab, { transfer: [ab] }); ta',
    ]) {
      const done = await runner.run(code);
      assert.equal(done.status, 'ok', `${code} ${done.text.slice(0, 300)}`);
      assert.ok(done.text.length < LIMITS.value_bytes * 6 + 10000, code);
      assert.ok(deepest(done.value) < 190, code);
    }
    assert.equal(await runner.value('1+1'), 2);
  }));
