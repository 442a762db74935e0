// Interrupts, exits, what cells leave behind, tools and displays.
'use strict';

const { test } = require('node:test');
const assert = require('node:assert');
const { session, Runner } = require('./harness.js');

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
class LookupError extends Error {
  name = 'LookupError';
}
const tools = {
  add: (a, b) => a + b,
  echo: (value) => value,
  fail: () => { throw new LookupError('no such key'); },
  wrong: () => { throw new TypeError('wrong'); },
  never: () => new Promise(() => {}),
  slow: async (value) => (await pause(100), value),
};

test('an interrupt stops a cell wherever it is, and names stay', () =>
  session({ tools }, async (runner) => {
    await runner.run('let kept = 1');
    for (const code of [
      'while (true);',
      'await 0; while (true);',
      'try { for (;;); } catch {} finally {}',
      'await new Promise(() => {})',
      'await new Promise((r) => setTimeout(r, 30)); while (true);',
      'await add(1, 2); while (true);',
      'await never()',
      'const inner = async () => { await 1; for (;;); }; await inner()',
      'for (;;) await new Promise((r) => setTimeout(r, 5))',
      'for (;;) await null',
      '({ get x() { for (;;); } })',
      '({ toJSON() { for (;;); } })',
      'Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0)',
      '/^(a+)+$/.test("a".repeat(40) + "b")',
    ]) {
      const start = Date.now();
      runner.interrupt(150);
      const done = await runner.run(code);
      assert.equal(done.status, 'interrupted', `${code}\n${done.text}`);
      assert.ok(Date.now() - start < 3000, `${code} took ${Date.now() - start} ms`);
      assert.equal(await runner.value('kept'), 1);
    }
  }));

test('what was interrupted does not go on later', () =>
  session({}, async (runner) => {
    runner.interrupt(100);
    await runner.run('let n = 0; for (;;) { await new Promise((r) => setTimeout(r, 5)); n++ }');
    const before = await runner.value('n');
    await pause(50);
    assert.equal(await runner.value('n'), before);
  }));

test('an interrupt between cells does nothing, also before the first', async () => {
  const runner = new Runner();
  await runner.ready();
  runner.interrupt();
  await pause(50);
  runner.setup();
  for (let i = 0; i < 20; i++) {
    runner.interrupt();
    await pause(10);
    assert.equal(await runner.value('1+1'), 2);
  }
  await runner.close();
});

test('interrupts at random moments never end the runner', () =>
  session({}, async (runner) => {
    const timer = setInterval(() => runner.child.kill('SIGINT'), 3);
    try {
      for (let i = 0; i < 300; i++) {
        const { status, error } = await runner.begin(i % 2 ? 'let s = 0; for (let i = 0; i < 1e5; i++) s += i; s' : 'await new Promise((r) => setTimeout(r, 2)); 1');
        assert.ok(['ok', 'interrupted'].includes(status), JSON.stringify(error));
      }
    } finally {
      clearInterval(timer);
    }
    await pause(20);
    assert.equal(await runner.value('1+1'), 2);
  }));

test('exit ends the cell and not the session', () =>
  session({}, async (runner) => {
    await runner.run('let kept = 1');
    for (const [code, expected] of [
      ['process.exit(3)', '3'],
      ['try { process.exit() } catch {} finally { }\nfor (;;);', '0'],
      ['process.exitCode = 4; process.exit()', '4'],
      ['await new Promise((r) => setTimeout(r, 10)); process.exit(5)', '5'],
      ['setTimeout(() => process.exit(6), 10); await new Promise(() => {})', '6'],
    ]) {
      const done = await runner.run(code);
      assert.deepEqual([done.status, done.error.message], ['exit', expected], code);
      assert.equal(await runner.value('kept'), 1);
    }
  }));

test('errors after a cell are told and end nothing', () =>
  session({}, async (runner) => {
    await runner.run('setTimeout(() => { throw new Error("late") }, 5); Promise.reject(new Error("rejected")); Promise.reject(7); process.nextTick(() => { throw new Error("tick") })');
    await pause(100);
    assert.match(runner.stderr, /Uncaught Error: late\n {4}at .*<cell 1>:1:/);
    assert.match(runner.stderr, /Uncaught Error: rejected/);
    assert.match(runner.stderr, /Uncaught 7/);
    assert.match(runner.stderr, /Uncaught Error: tick/);
    assert.equal(await runner.value('1+1'), 2);
  }));

test('tools', () =>
  session({ tools }, async (runner) => {
    assert.equal(await runner.value('await add(2, 3)'), 5);
    assert.equal(await runner.value('add(1, 1) instanceof Promise'), true);
    const start = Date.now();
    assert.deepEqual(await runner.value('await Promise.all([1, 2, 3, 4, 5].map((x) => slow(x)))'), [1, 2, 3, 4, 5]);
    assert.ok(Date.now() - start < 400);
    assert.deepEqual(
      await runner.value('try { await fail() } catch (e) { [e.name, e.constructor.name, e.message, e instanceof Error] }; try { await fail() } catch (e) { var caught = e }\n[caught.name, caught.constructor.name, caught.message, caught instanceof Error]'),
      ['LookupError', 'LookupError', 'no such key', true]
    );
    assert.equal(await runner.value('try { await wrong() } catch (e) { var w = e }\nw instanceof TypeError'), true);
    const failed = await runner.run('\nawait fail()');
    assert.deepEqual([failed.error.type, failed.error.message], ['LookupError', 'no such key']);
    const before = runner.events.filter((event) => event.event === 'tool_call').length;
    for (const code of ['echo(() => 1)', 'echo(1, Symbol())', 'echo([new (class A {})()])', 'let c = {}; c.c = c; echo(c)', 'echo(new WeakMap())', 'echo("x".repeat(2e6))']) {
      const done = await runner.run(code);
      assert.deepEqual([done.status, done.error.type], ['error', 'TypeError'], `${code} ${done.text}`);
      assert.match(done.error.message, /^argument [12] of 'echo' is /);
    }
    assert.equal(runner.events.filter((event) => event.event === 'tool_call').length, before);
    assert.equal(await runner.value('const later = slow(9); 1'), 1);
    assert.equal(await runner.value('await later'), 9);
  }));

test('an answer to no call, or a second one, is ignored', () =>
  session({ tools: { echo: (v) => v } }, async (runner) => {
    runner.send({ op: 'tool_result', call: 77, value: 1 });
    runner.send({ op: 'tool_error', call: -1, type: 'X', message: '' });
    runner.send({ op: 'nonsense' });
    assert.equal(await runner.value('await echo(1)'), 1);
    runner.send({ op: 'tool_result', call: 1, value: 2 });
    assert.equal(await runner.value('await echo(3)'), 3);
  }));

test('displays', () =>
  session({}, async (runner) => {
    await runner.run(`display("text", {a: 1}); display({ toHtml: () => "<b>x</b>" }); display({ toPng: () => Buffer.from("png") });
      display({ "text/html": "<i>" }); display({ [Symbol.for("Jupyter.display")]: async () => ({ "text/markdown": "*m*" }) }); 1`);
    const shown = () => runner.events.filter((event) => event.event === 'display').map((event) => event.data);
    assert.deepEqual(shown(), [
      { 'text/plain': 'text' }, { 'text/plain': '{ a: 1 }' }, { 'text/html': '<b>x</b>' }, { 'image/png': 'cG5n' }, { 'text/html': '<i>' }, { 'text/markdown': '*m*' },
    ]);
    runner.events = [];
    await runner.run('({ [Symbol.for("Jupyter.display")]: () => ({ "text/html": "last" }) })');
    assert.deepEqual(shown(), [{ 'text/html': 'last' }]);
    runner.events = [];
    await runner.run('for (let i = 0; i < 50; i++) display(i)');
    assert.equal(shown().length, 10);
    assert.match(runner.stderr, /more than 10/);
    runner.events = [];
    const done = await runner.run('display({ "text/html": "x".repeat(5e8) })');
    assert.equal(done.status, 'ok', done.text.slice(0, 300));
    assert.match(shown()[0]['text/plain'], /dropped: the limit is/);
    const thrown = await runner.run('display({ toHtml() { throw new Error("no") } })');
    assert.equal(thrown.status, 'error');
  }));

test('cells that were sent early run in order', () =>
  session({}, async (runner) => {
    const all = [runner.begin('var order = []; await new Promise((r) => setTimeout(r, 20)); order.push(1)'), runner.begin('order.push(2)'), runner.begin('order')];
    assert.deepEqual((await Promise.all(all))[2].value, [1, 2]);
  }));

test('the runner ends with its channel, also from the middle of a wait', async () => {
  const runner = new Runner();
  await runner.ready();
  runner.setup();
  runner.begin('await new Promise(() => {})').catch(() => {});
  await pause(100);
  assert.deepEqual(await runner.close(), { code: 0, signal: null });
  const idle = new Runner();
  await idle.ready();
  assert.deepEqual(await idle.close(), { code: 0, signal: null });
});
