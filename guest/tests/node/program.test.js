// A program must not notice that it was not started by `node FILE`. Each is run both ways.
'use strict';

const { test } = require('node:test');
const assert = require('node:assert');
const { spawnSync } = require('child_process');
const fs = require('fs');
const os = require('os');
const path = require('path');
const { Runner } = require('./harness.js');

const NODE = process.env.RUNNER_NODE || process.execPath;
const ENV = { PATH: process.env.PATH, ONE: '1' };

async function through(directory, file, args, input) {
  const runner = new Runner({ cwd: directory });
  await runner.ready();
  runner.send({ op: 'program', path: file, args, env: ENV });
  runner.child.stdin.end(input);
  const how = await runner.exited;
  return { ...how, stdout: runner.stdout, stderr: runner.stderr };
}

// Node's own frames at the bottom of a trace are not part of the comparison.
const clean = (text) => text.replace(/\n {4}at .*(?:node:internal|executeUserEntryPoint).*/g, '');

const PROGRAMS = {
  'main.js': 'console.log(require.main === module, module.parent, __filename, process.argv.slice(1), process.execArgv, JSON.stringify(process.env), Object.keys(require.cache).length, process.argv0, module.id, module.children.length)',
  'esm.mjs': 'import fs from "fs"; console.log(import.meta.url, process.argv.slice(1)); await new Promise((r) => setTimeout(r, 10)); console.log(typeof require, fs.readFileSync(0, "utf8"))',
  'throws.js': 'function f() { throw new TypeError("bad") }\nconsole.log("before"); f()',
  'throws.mjs': 'throw new Error("in a module")',
  'rejects.js': 'Promise.reject(new Error("r"))',
  'syntax.js': 'let x = ;',
  'exitcode.js': 'process.exitCode = 3; process.on("exit", (c) => console.log("exit", c))',
  'exit.js': 'setTimeout(() => console.log("never"), 1000); process.exit(4)',
  'drain.js': 'setTimeout(() => { console.log("timer"); setImmediate(() => console.log("immediate")) }, 20); process.on("beforeExit", () => console.log("beforeExit"))',
  'stdin.js': 'process.stdin.on("data", (d) => console.log(String(d))).on("end", () => console.log("end"))',
  'order.js': 'process.nextTick(() => console.log("tick")); Promise.resolve().then(() => console.log("micro")); console.log("sync")',
  'globals.js': 'console.log(Object.getOwnPropertyNames(globalThis).sort().join(), process.listenerCount("SIGINT"), process.eventNames().length, process._getActiveHandles().length)',
  'requires.js': 'console.log(require("./lib").name, require("module").builtinModules.length, process.mainModule === module)',
  'signal.js': 'process.kill(process.pid, "SIGINT"); setTimeout(() => {}, 5000)',
  'caught.js': 'process.on("SIGINT", () => { console.log("caught"); process.exit(7) }); process.kill(process.pid, "SIGINT"); setTimeout(() => {}, 5000)',
  'big.js': 'process.stdout.write("x".repeat(3e6)); process.stderr.write("e")',
  'noext': 'console.log("no extension")',
  'import.js': 'import("./esm2.mjs").then((m) => console.log(m.default))',
  'hashbang.js': '#!/usr/bin/env node\nconsole.log("hash")',
};

const directory = fs.realpathSync(fs.mkdtempSync(path.join(os.tmpdir(), 'program-')));
for (const [name, text] of Object.entries(PROGRAMS)) fs.writeFileSync(path.join(directory, name), text);
fs.writeFileSync(path.join(directory, 'lib.js'), 'exports.name = "lib " + (module.parent === require.main)');
fs.writeFileSync(path.join(directory, 'esm2.mjs'), 'export default "dynamic"');
fs.mkdirSync(path.join(directory, 'typed'));
fs.writeFileSync(path.join(directory, 'typed', 'package.json'), '{"type":"module"}');
fs.writeFileSync(path.join(directory, 'typed', 'index.js'), 'console.log(typeof require, import.meta.url)');

for (const name of [...Object.keys(PROGRAMS), 'typed/index.js', 'missing.js']) {
  test(`as node would: ${name}`, async () => {
    const file = name === 'main.js' ? path.join(directory, name) : name;
    const expected = spawnSync(NODE, [file, 'a', '--b'], { cwd: directory, env: ENV, input: 'given', encoding: 'utf8', maxBuffer: 1e8 });
    const got = await through(directory, file, ['a', '--b'], 'given');
    assert.equal(got.stdout, expected.stdout);
    assert.equal(clean(got.stderr), clean(expected.stderr));
    assert.deepEqual([got.code, got.signal], [expected.status, expected.signal]);
    assert.doesNotMatch(got.stderr, /guest\/node/);
  });
}
