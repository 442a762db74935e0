// What a cell is: values, names, imports, input, errors.
'use strict';

const { test } = require('node:test');
const assert = require('node:assert');
const fs = require('fs');
const os = require('os');
const path = require('path');
const { session } = require('./harness.js');

// Cells of one session, one after the other: what each gives.
function cells(name, list, options) {
  test(name, () =>
    session(options, async (runner) => {
      for (const [code, expected, stdin] of list) {
        const done = await runner.run(code, stdin);
        if (expected instanceof RegExp) {
          assert.match(done.text, expected, code);
        } else {
          assert.equal(done.status, 'ok', `${code}\n${done.text}`);
          assert.deepEqual(done.value, expected, code);
        }
      }
    })
  );
}

const NONE = undefined;

cells('the last expression is the value, a statement has none', [
  ['1+1', 2],
  ['1+1;', 2],
  ['1+1 // and a comment', 2],
  ['1+1 /* c */ ;\n// more\n', 2],
  ['let a = 1', NONE],
  ['if (true) { 5 }', NONE],
  ['for (const x of [1]) x', NONE],
  ['undefined', NONE],
  ['null', null],
  ['', NONE],
  ['// only a comment', NONE],
  ['return 7; 8', 7],
  ['if (true) return "early"\n9', 'early'],
  ['{a: 1, b: [2]}', { a: 1, b: [2] }],
  ['{ let q = 1; q }', NONE],
  ['({a: 1})', { a: 1 }],
  ['(1, 2)', 2],
  ['`a${`b${1}`}c`', 'ab1c'],
  ['x = 5', 5],
  ['"just text"', 'just text'],
  ['#!/usr/bin/env node\n3', 3],
  ['a:1', NONE],
  ['Promise.resolve(4)', 4],
]);

cells('names stay and may be declared again', [
  ['const a = 1, {b, ...rest} = {b: 2, c: 3, d: 4}', NONE],
  ['[a, b, rest]', [1, 2, { c: 3, d: 4 }]],
  ['const a = 10; let [x, , y = 5] = [1, 2]', NONE],
  ['[a, x, y]', [10, 1, 5]],
  ['function see() { return a }\nclass K { static n = 1; get v() { return this.#p } #p = 3 }', NONE],
  ['let a = 11', NONE],
  ['see()', 11],
  ['class K { static n = 2 }', NONE],
  ['[K.n, K.name, new K() instanceof K]', [2, 'K', true]],
  ['function see() { return -a }', NONE],
  ['see()', -11],
  ['const see = () => 1', NONE],
  ['see()', 1],
  ['function see() { return 2 } see.name + see()', 'see2'],
  ['var v; v', NONE],
  ['v = 3; var v; v', 3],
  ['let v; v', NONE],
  ['const got = early(); async function* early2() {} function early() { return "hoisted" }\ngot', 'hoisted'],
  ['for (var i = 0, n = 2; i < n; i++) { var inner = i }', NONE],
  ['[i, n, inner]', [2, 2, 1]],
  ['for (var {k} of [{k: 1}]); for (var key in {z: 1}); [k, key]', [1, 'z']],
  ['if (0) var p = 1; else var p = 2\nl: { var q = 3; break l }\ndo var r = 1; while (0)\nswitch (1) { case 1: var s = 4 }', NONE],
  ['[p, q, r, s]', [2, 3, 1, 4]],
  ['for (let j = 0; j < 1; j++); typeof j', 'undefined'],
  ['const crypto = require("crypto"); typeof crypto.createHash', 'function'],
  ['const f = () => {}, g = class {}; [f.name, g.name]', ['f', 'g']],
  ['function fact(n) { return n < 2 ? 1 : n * fact(n - 1) } fact.toString()', 'function fact(n) { return n < 2 ? 1 : n * fact(n - 1) }'],
  ['var fact = fact(5); fact', 120],
]);

cells('awkward code is read as Node reads it', [
  ['const d = 4 / 2 / 1, re = /[/]\\/`/g\nre.source', '[/]\\/`'],
  ['let t = `}${[1].map((x) => `${x}\\``)}`\nt', '}1`'],
  ['let m = 1\n;[m] = [2]\nm', 2],
  ['foo = () => 1\nlet after = 1\nafter', 1],
  ['let u = 1\nconst w = 2\n;(() => {})()\nclass Z {}\n[u, w]', [1, 2]],
  ['const \\u0061bc = 1; abc', 1],
  ['async () => { await 1 }; const h = async x => await x; await h(3)', 3],
  ['outer: for (const a of [1]) { for (;;) { continue outer } }\n"ok"', 'ok'],
  ['const { a: { b = 2 } = {}, ...others } = { z: 1 }; [b, others]', [2, { z: 1 }]],
  ['await Promise.all([1, 2].map(async (x) => { await null; return x }))', [1, 2]],
  ['(await Promise.resolve({ x: 1 })).x + await 2 * 3', 7],
  ['for await (const c of (async function* () { yield 1; yield 2 })()) var lastOne = c\nlastOne', 2],
  ['"use strict"; (function () { return this === undefined })()', true],
  ['"use strict"\nfunction strict() { return this === undefined }\nstrict()', true],
  ['(function () { return this === globalThis })()', true],
  ['const o = { async *g() { yield await 1 }, get [`x${1}`]() { return 2 } }; o.x1', 2],
  ['export const exported = 1\nexported', 1],
  ['1;\u2028 2', 2],
  ['"a\\\nb"', 'ab'],
  ['let yield_ = 1, async = 2, of = 3, get = 4; async + of + get', 9],
  ['class B { static { var hidden = 1 } x = () => this; static async y() { return await 5 } }\n[typeof hidden, await B.y()]', ['undefined', 5]],
  ['a = b = 3\n++a\nb', 3],
  ['<!-- html comment\n 6', 6],
  ['typeof import.meta.url', 'string'],
  ['let big = 0; for (let i = 0; i < 1e6; i++) big += i; big', 499999500000],
]);

cells('modules', [
  ['import fs, { readFileSync as rf } from "fs"\nimport * as p from "node:path"\nimport "os"\n[rf === fs.readFileSync, p.sep]', [true, '/']],
  ['import {\n  nothing\n} from "fs"', /does not provide an export named 'nothing'/],
  ['require("./local.js").two', 2],
  ['(await import("./local.mjs")).default', 3],
  ['function lazy() { return import("./local.mjs") }\n(await lazy()).default', 3],
  ['import three from "./local.mjs"; three', 3],
  ['import data from "./data.json" with { type: "json" }; data.x', 1],
  ['require("nowhere")', /"type":"Error","message":"Cannot find module 'nowhere'/],
  ['await import("nowhere")', /Cannot find package 'nowhere'/],
  ['require("internal/deps/acorn/acorn/dist/acorn")', /Cannot find module/],
], { cwd: workspace() });

function workspace() {
  const directory = fs.mkdtempSync(path.join(os.tmpdir(), 'cells-'));
  fs.writeFileSync(path.join(directory, 'local.js'), 'module.exports = { two: 2 }');
  fs.writeFileSync(path.join(directory, 'local.mjs'), 'export default 3');
  fs.writeFileSync(path.join(directory, 'data.json'), '{"x": 1}');
  fs.writeFileSync(path.join(directory, 'broken.js'), 'exports.go = () => { null.x }');
  fs.writeFileSync(path.join(directory, 'asks.js'), 'exports.ask = () => require("fs")');
  return directory;
}

cells('standard input', [
  ['require("fs").readFileSync(0, "utf8")', 'one\ntwo\n', 'one\ntwo\n'],
  ['let all = ""; for await (const c of process.stdin) all += c; all', 'text é', 'text é'],
  ['const lines = []; for await (const l of require("readline").createInterface({ input: process.stdin })) lines.push(l); lines', ['a', 'b'], 'a\nb'],
  ['require("child_process").execSync("cat", { stdio: ["inherit", "pipe", "inherit"] }).toString()', 'to a child', 'to a child'],
  ['require("fs").readFileSync("/dev/stdin", "utf8")', 'by name', 'by name'],
  ['require("fs").readFileSync(0, "utf8")', ''],
]);

test('values and tools of a cell replace names and stay', () =>
  session({ setup: { globals: { n: 1, kept: 0 }, forbidden_calls: ['eval'] } }, async (runner) => {
    runner.tools = { double: (x) => x * 2 };
    const given = (globals, ...names) => ({ globals, tools: names.map((name) => ({ name })) });
    assert.deepEqual(await runner.value('[n, kept]', null, given({ n: 2 })), [2, 0]);
    assert.equal(await runner.value('n'), 2);
    // What a cell declared in any of the ways.
    await runner.run('let a = 1; const b = 2; var c = 3; function d() {} class e {} let _a = 0, value = 0; f = 4');
    assert.deepEqual(await runner.value('[a, b, c, d, e, f, _a, value]', null, given({ a: 5, b: 6, c: 7, d: 8, e: 9, f: [10], value: 11 })), [5, 6, 7, 8, 9, [10], 0, 11]);
    assert.deepEqual(await runner.value('let a = a0, n = 3; const b = 4; [a, b, n]', null, given({ a0: 1 })), [1, 4, 3]);
    assert.deepEqual(await runner.value('[n, m instanceof Map]', null, given({ n: 4, m: { $: 'dict', v: [] } })), [4, true]);
    assert.equal((await runner.run('await double(4)')).error.type, 'ReferenceError');
    assert.equal(await runner.value('await double(4)', null, given({}, 'double')), 8);
    assert.deepEqual(await runner.value('[await double(5), double.name]'), [10, 'double']);
    assert.deepEqual(await runner.value('Promise.all([double(1), double(2)])'), [2, 4]);
    await runner.run('let double = 3');
    assert.equal(await runner.value('double'), 3);
    assert.equal(await runner.value('await double(n)', null, given({ n: 6 }, 'double')), 12);
    // Before the code is looked at, so they are there whatever comes of that.
    assert.equal((await runner.run('let q = ;', null, given({ n: 7 }))).error.type, 'SyntaxError');
    assert.equal((await runner.run('eval("1")', null, given({ a: 8 }))).status, 'refused');
    assert.deepEqual(await runner.value('[n, a]'), [7, 8]);
    await runner.run('Object.defineProperty(globalThis, "fixed", { value: 1 })');
    assert.equal((await runner.run('1', null, given({ fixed: 2 }))).error.type, 'TypeError');
    assert.equal(await runner.value('1 + 1'), 2);
  }));

test('output is complete before the end of the cell', () =>
  session({}, async (runner) => {
    const done = await runner.run('for (let i = 0; i < 20000; i++) console.log("line " + i); console.error("e"); process.stdout.write("last")');
    assert.equal(done.status, 'ok');
    await new Promise((resolve) => setTimeout(resolve, 100));
    assert.equal(runner.stdout.split('\n').length, 20001);
    assert.ok(runner.stdout.endsWith('last'));
    assert.equal(runner.stderr, 'e\n');
  }));

function fails(name, list, options) {
  test(name, () =>
    session(options, async (runner) => {
      for (const [code, type, message, line, column, status = 'error'] of list) {
        const done = await runner.run(code);
        assert.equal(done.status, status, done.text);
        assert.deepEqual([done.error.type, done.error.line, done.error.column], [type, line, column], `${code}\n${done.error.traceback}`);
        assert.match(done.error.message, message);
        assert.doesNotMatch(done.error.traceback, /node:|\.belljar|guest\/node/);
      }
    })
  );
}

fails('errors have the lines and columns that a person wrote', [
  ['throw new TypeError("x")', 'TypeError', /^x$/, 1, 7],
  ['\n\n  foo.bar()', 'ReferenceError', /foo is not defined/, 3, 3],
  ['let a = 1; a.b.c', 'TypeError', /undefined/, 1, 16],
  ['let a\n  null.x', 'TypeError', /null/, 2, 8],
  ['await 1; await null.x', 'TypeError', /null/, 1, 21],
  ['const f = async () => { throw new RangeError("r") }\nawait f()', 'RangeError', /r/, 1, 31],
  ['\n  function f() {\n    null.x }\nf()', 'TypeError', /null/, 3, 10],
  ['/* 1 */ function f() { null.x }\nf()', 'TypeError', /null/, 1, 29],
  ['class A { m() { null.x } }\nnew A().m()', 'TypeError', /null/, 1, 22],
  ['let q = ;', 'SyntaxError', /Unexpected token ';'/, 1, 9],
  ['console.log("never")\nx = (1', 'SyntaxError', /Unexpected end of input/, 2, 7],
  ['let a = 1\nlet a = 2', 'SyntaxError', /already been declared/, 2, 5],
  ['export default 1', 'SyntaxError', /export/, 1, 1],
  ['var x = 1;\n\u0000', 'SyntaxError', /./, 2, 1],
  ['/(/', 'SyntaxError', /regular expression/, 1, 2],
  ['"use strict"; with (a) {}', 'SyntaxError', /with/, 1, 15],
  ['throw "text"', 'String', /^text$/, null, null],
  ['throw {a: 1}', 'Object', /a: 1/, null, null],
  ['throw null', 'null', /null/, null, null],
  ['require("./broken.js").go()', 'TypeError', /null/, 1, 24],
  ['class Own extends Error { name = "Own" }; throw new Own("m", { cause: new Error("c") })', 'Own', /^m$/, 1, 49],
  ['[].reduce((a) => a)', 'TypeError', /Reduce of empty/, 1, 4],
  ['throw Object.defineProperty(new Error("m"), "stack", { get() { throw 1 } })', 'Error', /m/, null, null],
  ['throw new Proxy({}, { get() { throw 1 } })', 'object', /./, null, null],
  ['(function f() { f() })()', 'RangeError', /call stack/, 1, 12],
], { cwd: workspace() });

test('a mistake is found before anything runs', () =>
  session({}, async (runner) => {
    const done = await runner.run('console.log("ran")\nlet x = ;');
    assert.equal(done.status, 'error');
    assert.equal(runner.stdout, '');
    assert.equal(await runner.value('typeof x'), 'undefined');
  }));

fails('only listed modules, and no forbidden call', [
  ['require("fs")', 'ImportError', /^Import 'fs' not allowed$/, 1, 1],
  ['require("node:fs")', 'ImportError', /^Import 'fs' not allowed$/, 1, 1],
  ['import fs from "node:fs/promises"', 'ImportError', /^Import 'fs\/promises' not allowed$/, 1, 1],
  ['await import("child_process")', 'ImportError', /^Import 'child_process' not allowed$/, 1, 7],
  ['1;\n  eval("1")', 'ForbiddenCall', /^Call of 'eval' not allowed$/, 2, 3, 'refused'],
  ['globalThis.eval("1")', 'ForbiddenCall', /eval/, 1, 1, 'refused'],
  ['(0, eval)("1")', 'ForbiddenCall', /eval/, 1, 1, 'refused'],
  ['const o = require("os"); o["hostname"]()', 'ForbiddenCall', /'os.hostname'/, 1, 26, 'refused'],
  ['const { hostname: h } = require("os"); h()', 'ForbiddenCall', /'os.hostname'/, 1, 40, 'refused'],
  ['new Function("1")', 'ForbiddenCall', /'Function'/, 1, 1, 'refused'],
  ['require("./asks.js").ask()', 'ImportError', /'fs'/, 1, 22],
], { cwd: workspace(), setup: { imports: ['os', 'path'], forbidden_calls: ['eval', 'Function', 'os.hostname'] } });

cells('what is listed works', [
  ['require("os").EOL + require("node:path").sep', '\n/'],
  ['import { sep } from "path"; sep + (await import("node:path")).sep', '//'],
  ['const evaluate = 1; ({ eval: 1 }).eval', 1],
], { setup: { imports: ['os', 'node:path'], forbidden_calls: ['eval'] } });
