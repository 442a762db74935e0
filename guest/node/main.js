// The JavaScript runner: see ../PROTOCOL.md. This file says `ready`, waits for the first message, and hands
// over to a program or to a session. Nothing more is loaded before that, so that an idle runner stays small.
//
// It must never leave anything that a program could notice: no listener, no open handle, no global.
'use strict';

const fs = require('fs');

const CHANNEL = 3;
const LARGEST_FRAME = 256 * 1024 * 1024;

// SIGINT goes to a thread of Node's own from now on, which stops running code where that is guarded and
// otherwise takes note. So an interrupt that comes too early or too late ends nothing. These functions are
// what Node's own prompt uses; `process.binding` is the way to them that needs no flag.
const signals = process.binding('contextify');

function writeAll(bytes) {
  for (let at = 0; at < bytes.length; ) {
    try {
      at += fs.writeSync(CHANNEL, bytes, at);
    } catch (error) {
      if (error.code !== 'EAGAIN' && error.code !== 'EINTR') throw error;
    }
  }
}

function frame(text) {
  const body = Buffer.from(text, 'utf8');
  const head = Buffer.allocUnsafe(4);
  head.writeUInt32LE(body.length);
  return Buffer.concat([head, body]);
}

// Fills `bytes` by plain reads that sleep in the kernel. Returns how much there was: less at the end of the
// channel, and `null` if the descriptor does not wait.
function readInto(bytes) {
  let at = 0;
  while (at < bytes.length) {
    try {
      const count = fs.readSync(CHANNEL, bytes, at, bytes.length - at, null);
      if (count === 0) return at;
      at += count;
    } catch (error) {
      if (error.code === 'ECONNRESET') return at;
      if (error.code === 'EAGAIN') {
        // Only a descriptor that another process shares can be like this. Waiting briefly is good enough.
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5);
      } else if (error.code !== 'EINTR') {
        throw error;
      }
    }
  }
  return at;
}

function firstMessage() {
  const head = Buffer.alloc(4);
  if (readInto(head) < 4) return null;
  const length = head.readUInt32LE();
  if (length > LARGEST_FRAME) return null;
  const body = Buffer.alloc(length);
  return readInto(body) < length ? null : body.toString('utf8');
}

function main() {
  signals.startSigintWatchdog();
  writeAll(frame(JSON.stringify({ event: 'ready', language: 'javascript', version: process.versions.node })));
  const text = firstMessage();
  if (text === null) return process.exit(0);
  const message = JSON.parse(text);
  if (message.op === 'program') {
    signals.stopSigintWatchdog();
    return require('./program.js').start(message);
  }
  return require('./realm.js').open({ signals, channel: CHANNEL, largestFrame: LARGEST_FRAME, first: text });
}

main();
