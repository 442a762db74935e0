// Programs that the engine asks for between cells.
'use strict';

const { test } = require('node:test');
const assert = require('node:assert');
const fs = require('fs');
const os = require('os');
const path = require('path');
const { session, Runner } = require('./harness.js');

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const directory = () => fs.realpathSync(fs.mkdtempSync(path.join(os.tmpdir(), 'commands-')));
const sh = (text) => ['sh', '-c', text];

async function printed(runner, text) {
  for (const end = Date.now() + 10000; !runner.stdout.includes(text); await pause(5)) {
    assert.ok(Date.now() < end, `not printed: ${text}`);
  }
}

// Whether a process has ended; it may still be waited for.
function isGone(pid) {
  try {
    return /\) [ZX] /.test(fs.readFileSync(`/proc/${pid}/stat`, 'utf8'));
  } catch {
    return true;
  }
}

function script(place, text, mode = 0o755) {
  const file = path.join(place, 'script');
  fs.rmSync(file, { force: true });
  fs.writeFileSync(file, text, { mode });
}

test('a program writes to the streams of the session, and its end is told', () =>
  session({}, async (runner) => {
    assert.deepEqual(await runner.ends(sh('echo out; echo err >&2')), { exit_code: 0 });
    assert.deepEqual([runner.stdout, runner.stderr], ['out\n', 'err\n']);
    assert.deepEqual(await runner.ends(['printf', '%s|', 'é', 'a b', '$HOME', '*', '']), { exit_code: 0 });
    assert.equal(runner.stdout, 'é|a b|$HOME|*||');
    assert.deepEqual(await runner.ends(sh('exit 7')), { exit_code: 7 });
    assert.deepEqual(await runner.ends(sh('exit 255')), { exit_code: 255 });
    for (const number of [9, 15, 2, 13]) assert.deepEqual(await runner.ends(sh(`kill -${number} $$`)), { signal: number });
  }));

test('much output is complete, and in order', () =>
  session({}, async (runner) => {
    runner.begin('console.log("first"); process.stdout.write("x".repeat(300000) + "\\n")');
    runner.command(['head', '-c', '20000000', '/dev/zero']);
    await runner.begin('console.log("last")');
    await pause(200);
    assert.equal(runner.stdout.length, 6 + 300001 + 20000000 + 5);
    assert.ok(runner.stdout.startsWith('first\nxxx') && runner.stdout.endsWith('\0last\n'));
  }));

test('a program that cannot be started', () => {
  const cwd = directory();
  return session({ cwd }, async (runner) => {
    const error = async (...argv) => (await runner.ends(argv)).error;
    assert.deepEqual(await error('no-such-program'), { type: 'FileNotFoundError', message: '`no-such-program` is not there' });
    assert.deepEqual(await error('./script', 'x'), { type: 'FileNotFoundError', message: '`./script` is not there' });
    script(cwd, '#!/bin/sh\n', 0o644);
    assert.deepEqual(await error('./script'), { type: 'PermissionError', message: '`./script` cannot be executed' });
    assert.deepEqual(await error('/'), { type: 'PermissionError', message: '`/` cannot be executed' });
    const long = await error('true', 'x'.repeat(1e7));
    assert.equal(long.type, 'OSError');
    assert.match(long.message, /^`true` cannot be started: .*E2BIG/);
    assert.equal((await error('true', 'a\0b')).type, 'ValueError');
    assert.equal((await error()).type, 'ValueError');
    assert.deepEqual(await runner.ends(['true'], 'x'), { exit_code: 0 });
  });
});

test('no more processes', { skip: process.getuid() !== 0 && 'NOT TESTED: only root can be somebody else' }, () =>
  session({ through: ['prlimit', '--nproc=100:100'] }, async (runner) => {
    // The limit does not hold for root, so the runner is somebody else: one who has as many processes already.
    await runner.run('const { spawn } = require("child_process"); process.setuid(54321); const held = []; for (let i = 0; i < 120; i++) { const c = spawn("sleep", ["60"]); c.on("error", () => {}); held.push(c) }; await new Promise((r) => setTimeout(r, 300))');
    const { error } = await runner.ends(['true']);
    assert.equal(error.type, 'BlockingIOError', error.message);
    assert.match(error.message, /^`true` cannot be started: .*EAGAIN/);
    await runner.run('const gone = held.filter((c) => c.pid).map((c) => new Promise((r) => c.on("exit", r))); for (const c of held) c.kill(); await Promise.all(gone)');
    assert.deepEqual(await runner.ends(['true']), { exit_code: 0 });
  }));

test('directory, variables and names are those of the session', () => {
  const cwd = directory();
  return session({ cwd }, async (runner) => {
    await runner.run('let kept = [1]; process.env.MINE = "é"; fs = require("fs"); fs.mkdirSync("below"); process.env.PATH = process.cwd() + ":" + process.env.PATH');
    script(cwd, '#!/bin/sh\necho $MINE $HOME $0');
    assert.deepEqual(await runner.ends(['pwd']), { exit_code: 0 });
    assert.equal(runner.stdout, `${cwd}\n`);
    assert.deepEqual(await runner.ends(['script']), { exit_code: 0 });
    assert.equal(runner.stdout, `é /tmp ${cwd}/script\n`);
    await runner.run('process.chdir("below"); kept.push(2)');
    await runner.ends(['pwd']);
    assert.equal(runner.stdout, `${cwd}/below\n`);
    assert.deepEqual(await runner.value('kept'), [1, 2]);
  });
});

test('lists of modules and calls say nothing about a command', () =>
  session({ setup: { imports: [], forbidden_calls: ['echo'] } }, async (runner) => {
    assert.deepEqual(await runner.ends(['echo', 'require("fs"); echo()']), { exit_code: 0 });
    assert.equal(runner.stdout, 'require("fs"); echo()\n');
  }));

test('a program has no descriptor above 2, and none is left', () =>
  session({}, async (runner) => {
    const count = 'fs = require("fs"); kept = fs.openSync("/dev/null"); fs.closeSync(kept); fs.readdirSync("/proc/self/fd").length';
    const before = await runner.value(count);
    await runner.ends(sh('for n in 3 4 5 6 7 8 9 11 12 13 14 15 16 17 18 19 20 21 22 23 24; do [ -e /proc/$$/fd/$n ] && echo $n; done'), 'x');
    assert.equal(runner.stdout, '');
    assert.deepEqual(await runner.ends(sh('echo forged >&3')), { exit_code: 2 });
    await runner.ends(['no-such-program'], 'x');
    assert.equal(await runner.value(count), before);
  }));

test('standard input', () =>
  session({}, async (runner) => {
    for (const [argv, stdin, expected] of [
      [['cat'], 'text é\n', 'text é\n'],
      [['cat'], null, ''],
      [['cat'], '', ''],
      [['cat', '/dev/stdin'], 'by name', 'by name'],
      [['cat'], '0123456789'.repeat(2e6), '0123456789'.repeat(2e6)],
      [['true'], 'x'.repeat(2e7), ''],
      [sh('exec <&-; sleep 0.3'), 'x'.repeat(1e6), ''],
    ]) {
      assert.deepEqual(await runner.ends(argv, stdin), { exit_code: 0 });
      await pause(50);
      assert.ok(runner.stdout === expected, `${argv}: ${runner.stdout.slice(0, 100)}`);
    }
    assert.equal(await runner.value('require("fs").readFileSync(0, "utf8")', 'for the cell'), 'for the cell');
    await runner.ends(['cat']);
    assert.equal(runner.stdout, '');
  }));

test('standard input where no file may be as large', () => {
  const cwd = directory();
  return session({ cwd, through: ['prlimit', '--fsize=1000'] }, async (runner) => {
    assert.deepEqual(await runner.ends(['cat'], 'y'.repeat(1e6)), { exit_code: 0 });
    await pause(50);
    assert.equal(runner.stdout.length, 1e6);
    assert.deepEqual(await runner.ends(['true'], 'y'.repeat(1e7)), { exit_code: 0 });
    assert.equal(runner.stderr, '');
    assert.deepEqual(fs.readdirSync(cwd), []);
    assert.equal(await runner.value('1 + 1'), 2);
  });
});

test('an interrupt ends a program, and names stay', () =>
  session({}, async (runner) => {
    await runner.run('let kept = 1');
    for (const [argv, stdin] of [[['sleep', '60']], [['sleep', '60'], 'x'.repeat(1e6)], [sh('sleep 60; echo never')]]) {
      const start = Date.now();
      runner.interrupt(300);
      assert.deepEqual(await runner.ends(argv, stdin), { signal: 2 });
      assert.ok(Date.now() - start < 1800, `${argv}: ${Date.now() - start} ms`);
      assert.equal(runner.stdout, '');
      assert.equal(await runner.value('kept'), 1);
    }
    const handled = runner.ends(sh('trap "echo cleaned; exit 4" INT; echo ready; while :; do sleep 0.05; done'));
    await printed(runner, 'ready');
    runner.interrupt();
    assert.deepEqual(await handled, { exit_code: 4 });
    assert.equal(runner.stdout, 'ready\ncleaned\n');
  }));

test('a program that ignores an interrupt is killed', () =>
  session({}, async (runner) => {
    const done = runner.ends(sh('trap "" INT; echo ready; while :; do sleep 0.05; done'));
    await printed(runner, 'ready');
    const start = Date.now();
    for (let i = 0; i < 5; i++) runner.interrupt(i * 100);
    assert.deepEqual(await done, { signal: 9 });
    const took = Date.now() - start;
    assert.ok(took > 1800 && took < 6000, `${took} ms`);
    await pause(100);
    assert.deepEqual(await runner.ends(['sleep', '2.5']), { exit_code: 0 });
  }));

test('interrupts at any moment end a program and nothing else', () =>
  session({}, async (runner) => {
    for (let i = 0; i < 60; i++) {
      runner.interrupt(i % 12);
      const { exit_code: code, signal } = await runner.command(['sleep', '0.02']);
      assert.ok(code === 0 || signal === 2);
    }
    await pause(50);
    assert.equal(await runner.value('1 + 1'), 2);
  }));

test('what a cell left behind goes on during a command, and does not end it', () =>
  session({ tools: { slow: async (value) => (await pause(100), value) } }, async (runner) => {
    await runner.run('let seen = []; slow(3).then((x) => { seen.push(x); process.exit(5) }); setTimeout(() => { seen.push(4); process.exit(6) }, 150); 1');
    assert.deepEqual(await runner.ends(['sleep', '0.5']), { exit_code: 0 });
    assert.deepEqual(await runner.value('seen'), [3, 4]);
    // An interrupt that such code takes notice of first is the program's as well.
    await runner.run('slow(1).then(() => { for (;;); }); 1');
    runner.interrupt(400);
    assert.deepEqual(await runner.ends(['sleep', '60']), { signal: 2 });
    assert.equal(await runner.value('1 + 1'), 2);
  }));

test('a command may come first, and early', async () => {
  const runner = new Runner();
  await runner.ready();
  const all = [runner.command(['true']), runner.begin('1 + 1'), runner.command(['false']), runner.begin('2 + 2')];
  assert.deepEqual((await Promise.all(all)).map((done) => done.exit_code ?? done.value), [0, 2, 1, 4]);
  await runner.close();
});

test('a program ends with its session', async () => {
  const runner = new Runner();
  await runner.ready();
  runner.setup();
  runner.command(sh('echo $$; exec sleep 60')).catch(() => {});
  await printed(runner, '\n');
  assert.deepEqual(await runner.close(), { code: 0, signal: null });
  await pause(100);
  assert.ok(isGone(Number(runner.stdout)));
});
