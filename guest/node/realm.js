// Opens the room that a session's runner lives in: a realm of its own, with an Array, a JSON, a Promise of
// its own. A cell runs in the main realm and may replace anything there; the runner does not notice.
//
// What the runner takes from the main realm is taken here, once, before the first cell.
'use strict';

const fs = require('fs');
const net = require('net');
const path = require('path');
const util = require('util');
const vm = require('vm');
const Module = require('module');
const { spawn } = require('child_process');
const events = require('events');
const os = require('os');
const local = require('./local.js');

function capture(given) {
  const { Buffer } = globalThis;
  return {
    ...given,
    fs: { ...fs },
    net: { ...net },
    path,
    vm: { ...vm },
    process,
    global: globalThis,
    local,
    Module,
    stdio: { stdout: () => process.stdout, stderr: () => process.stderr },
    types: { ...util.types },
    inspect: util.inspect,
    natives: process.binding('natives'),
    exit: process.reallyExit.bind(process),
    tick: process._tickCallback,
    uncaught: process._fatalException,
    executionAsyncId: require('async_hooks').executionAsyncId,
    kill: process.kill.bind(process),
    pid: process.pid,
    spawn,
    on: events.prototype.on,
    end: net.Socket.prototype.end,
    signalNumbers: { ...os.constants.signals },
    // The binding's own `run`: the public one takes away the listeners of SIGINT first, and for that moment
    // an interrupt would end the process.
    runInContext: Object.getPrototypeOf(vm.Script.prototype).runInContext,
    setImmediate,
    setInterval,
    clearInterval,
    then: Promise.prototype.then,
    Promise,
    promiseResolve: Promise.resolve.bind(Promise),
    buffer: {
      from: Buffer.from,
      concat: Buffer.concat,
      allocUnsafe: Buffer.allocUnsafe,
      byteLength: Buffer.byteLength,
      toString: Buffer.prototype.toString,
      readUInt32LE: Buffer.prototype.readUInt32LE,
      writeUInt32LE: Buffer.prototype.writeUInt32LE,
      subarray: Buffer.prototype.subarray,
      on: net.Socket.prototype.on,
    },
  };
}

exports.open = function open(given) {
  const host = capture(given);
  const realm = vm.createContext({}, { name: 'runner' });
  const loaded = Object.create(null);
  const load = (name) => {
    if (loaded[name]) return loaded[name];
    const filename = path.join(__dirname, name);
    const text = fs.readFileSync(filename, 'utf8');
    const body = vm.compileFunction(text, ['load', 'host', 'exports'], { filename, parsingContext: realm });
    const exported = (loaded[name] = {});
    body(load, host, exported);
    return exported;
  };
  host.realm = realm;
  for (const name of Object.keys(Module._cache)) delete Module._cache[name];
  load('session.js').start();
};
