// Bad input and cells that break things on purpose. The runner answers, or ends; it never hangs.
'use strict';

const { test } = require('node:test');
const assert = require('node:assert');
const { session, Runner } = require('./harness.js');

test('code that is broken, huge, or nested deeply is an error of the cell', () =>
  session({}, async (runner) => {
    for (const code of [
      '\u0000', '(', ')', '`${', '/', "'", '}}}}', '{{{{', '\\', '@', '#', 'await', 'let', 'class', 'return return', '\ud800', 'import', 'export', 'import.meta = 1',
      '['.repeat(10000) + ']'.repeat(10000),
      '('.repeat(10000) + '1' + ')'.repeat(10000),
      '{'.repeat(100000),
      'x' + '.x'.repeat(100000),
      '1' + '+1'.repeat(100000),
      '`${'.repeat(10000),
      'async()=>'.repeat(10000) + '1',
      'x'.repeat(2e7),
      'let undefined = 1',
      'let a\\u{110000}',
    ]) {
      const done = await runner.run(code);
      assert.ok(done.status === 'ok' || done.status === 'error', code.slice(0, 50));
    }
    assert.equal((await runner.run('x'.repeat(1e8))).error.type, 'SyntaxError');
    assert.equal(await runner.value('1+1'), 2);
    assert.equal(await runner.value(`"${'y'.repeat(5e6)}".length`), 5e6);
  }));

test('a session goes on when its globals are replaced', () =>
  session({ tools: { add: (a, b) => a + b } }, async (runner) => {
    await runner.run(`
      for (const name of ['JSON', 'Promise', 'Map', 'Set', 'Error', 'Object', 'Array', 'Reflect', 'Symbol', 'String', 'Number', 'RegExp', 'Uint8Array', 'setImmediate', 'setInterval', 'setTimeout', 'clearInterval', 'queueMicrotask', 'process', 'Buffer', 'display'])
        globalThis[name] = null;
    `);
    assert.equal(await runner.value('await add(1, 2)'), 3);
    assert.deepEqual(await runner.value('let o = { a: [1, 2n] }; o'), { a: [1, { $: 'int', v: '2' }] });
    const done = await runner.run('null.x');
    assert.equal(done.error.type, 'TypeError');
    assert.equal(await runner.value('import { sep } from "path"; sep'), '/');
    assert.deepEqual(await runner.value('[n, await add(n, 1)]', null, { globals: { n: 1 }, tools: [{ name: 'add' }] }), [1, 2]);
    assert.deepEqual(await runner.ends(['cat'], 'x'), { exit_code: 0 });
  }));

test('a session goes on when prototypes are replaced', () =>
  session({ tools: { add: (a, b) => a + b } }, async (runner) => {
    await runner.run(`
      const bad = () => { throw new Error('replaced') };
      for (const name of ['push', 'map', 'forEach', 'filter', 'join', 'slice', 'concat', 'includes', 'some', 'indexOf']) Array.prototype[name] = bad;
      Array.prototype[Symbol.iterator] = bad; Object.prototype.toString = bad; String.prototype.replace = bad; String.prototype.slice = bad; String.prototype.split = bad;
      RegExp.prototype.exec = bad; RegExp.prototype.test = bad; Promise.prototype.then = bad; Promise.resolve = bad; Map.prototype.get = bad; Map.prototype.set = bad; Set.prototype.has = bad;
      JSON.stringify = bad; JSON.parse = bad; Buffer.from = bad; Buffer.concat = bad; Buffer.prototype.toString = bad; Object.keys = bad; Object.defineProperty = bad; Reflect.apply = bad;
      Error.prepareStackTrace = bad; process.exit = bad; process.kill = bad; Date.prototype.toISOString = bad;
    `);
    assert.deepEqual(await runner.value('const fresh = { a: [1, 2n, new Map()], d: new Date(0) }\nfresh'), {
      a: [1, { $: 'int', v: '2' }, { $: 'dict', v: [] }],
      d: { $: 'datetime', v: '1970-01-01T00:00:00.000+00:00' },
    });
    assert.equal(await runner.value('await add(1, 2)'), 3);
    assert.equal((await runner.run('throw new Error("e")')).error.message, 'e');
    runner.interrupt(100);
    assert.equal((await runner.run('for (;;);')).status, 'interrupted');
    // Node's own code goes by this iterator where it starts a program.
    assert.match((await runner.ends(['true'])).error.message, /^`true` cannot be started: replaced$/);
    assert.deepEqual(await runner.value('[n, await add(n, 1)]', null, { globals: { n: 1 }, tools: [{ name: 'add' }] }), [1, 2]);
  }));

test('commands run when what starts them is replaced', () =>
  session({}, async (runner) => {
    await runner.run(`
      const bad = () => { throw new Error('replaced') };
      for (const name of ['push', 'map', 'forEach', 'filter', 'join', 'slice', 'concat', 'includes', 'some', 'indexOf']) Array.prototype[name] = bad;
      const fs = require('fs'); fs.openSync = fs.closeSync = fs.writeFileSync = fs.unlinkSync = bad; require('child_process').spawn = bad;
      require('net').Socket.prototype.end = bad; process.kill = bad; Object.prototype.shell = true;
      for (const name of ['JSON', 'Object', 'Array', 'Reflect', 'setInterval', 'clearInterval', 'process']) globalThis[name] = null;
    `);
    assert.deepEqual(await runner.ends(['cat'], 'x'), { exit_code: 0 });
    assert.equal(runner.stdout, 'x');
    assert.equal((await runner.ends(['no-such-program'])).error.type, 'FileNotFoundError');
    runner.interrupt(200);
    assert.deepEqual(await runner.ends(['sleep', '60']), { signal: 2 });
  }));

test('frames in pieces, and frames that are none', async () => {
  const runner = new Runner();
  await runner.ready();
  const setup = runner.frame('{"op":"setup"}');
  for (const byte of setup) {
    runner.raw(Buffer.from([byte]));
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
  const done = runner.wait((event) => event.event === 'done' && event.id === 2);
  const both = Buffer.concat([runner.frame('{"op":"execute","id":1,"code":"let a = 1","stdin":null}'), runner.frame('{"op":"execute","id":2,"code":"a + 1"}')]);
  for (let i = 0; i < both.length; i += 7) runner.raw(both.subarray(i, i + 7));
  assert.equal((await done).value, 2);
  runner.raw(Buffer.from([255, 255, 255, 255, 1]));
  assert.deepEqual(await runner.exited, { code: 0, signal: null });
  for (const bytes of [Buffer.from([5, 0, 0, 0]), Buffer.from([1]), Buffer.from([255, 255, 255, 255])]) {
    const other = new Runner();
    await other.ready();
    other.raw(bytes);
    assert.deepEqual(await other.close(), { code: 0, signal: null });
  }
});

test('a flood of calls and of output is answered', () =>
  session({ tools: { echo: (v) => v } }, async (runner) => {
    assert.equal(await runner.value('(await Promise.all(Array.from({ length: 20000 }, (_, i) => echo(i)))).length'), 20000);
    const done = await runner.run('for (let i = 0; i < 2e5; i++) console.log("x".repeat(100)); process.memoryUsage().rss');
    assert.ok(done.value < 400e6, `${done.value}`);
  }));

test('closing the channel or the streams harms only the session itself', async () => {
  const runner = new Runner();
  await runner.ready();
  runner.setup();
  await runner.run('require("fs").closeSync(1); console.log("nowhere"); 1');
  assert.equal(await runner.value('1+1'), 2);
  runner.begin('require("fs").closeSync(3)').catch(() => {});
  await runner.close();
});
