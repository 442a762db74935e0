// Programs that the engine asks for between cells, by `command`.
//
// Such a program has a process group of its own, so that an interrupt reaches what it has started in turn, as
// at a terminal. Its output goes where the runner's goes.
'use strict';

const stdio = load('stdio.js');
const { fs, process } = host;
const PATIENCE = 2000; // milliseconds that a program has after an interrupt
const REASONS = {
  ENOENT: ['FileNotFoundError', 'is not there'],
  EACCES: ['PermissionError', 'cannot be executed'],
  EPERM: ['PermissionError', 'cannot be executed'],
};

let child = null; // the one that runs
let impatient = null;

function kill(signal) {
  try {
    host.kill(-child.pid, signal);
  } catch {
    // It ended just now.
  }
}

function failure(name, error) {
  const { code, message } = error;
  const known = REASONS[code];
  if (known) return { type: known[0], message: `\`${name}\` ${known[1]}` };
  const type = code === 'EAGAIN' ? 'BlockingIOError' : error.errno === undefined ? 'ValueError' : 'OSError';
  return { type, message: `\`${name}\` cannot be started: ${message}` };
}

// Starts a program. `ended` gets what `done` says of its end, once.
exports.start = function start(argv, text, ended) {
  const over = (how) => {
    if (impatient) host.clearInterval(impatient);
    child = impatient = null;
    ended(how);
  };
  const failed = (error) => child && over({ error: failure(argv[0], error) });
  const exited = (code, signal) => child && over(signal ? { signal: host.signalNumbers[signal] } : { exit_code: code });
  // A file and not a pipe: what Node calls one is a socket, and that cannot be opened as `/dev/stdin`.
  const file = text === null ? null : stdio.file(text);
  try {
    const input = text === null ? 'ignore' : file === null ? 'pipe' : file;
    child = host.spawn(argv[0], argv.slice(1), { stdio: [input, 'inherit', 'inherit'], env: process.env, detached: true });
  } catch (error) {
    return over({ error: failure(argv[0], error) });
  } finally {
    if (file !== null) fs.closeSync(file);
  }
  Reflect.apply(host.on, child, ['error', failed]);
  Reflect.apply(host.on, child, ['exit', exited]);
  if (child.stdin) {
    Reflect.apply(host.on, child.stdin, ['error', () => {}]); // it does not read all
    Reflect.apply(host.end, child.stdin, [text]);
  }
  return undefined;
};

// Asks it to end, and sees to it.
exports.interrupt = function interrupt() {
  if (!child || impatient) return;
  kill('SIGINT');
  impatient = host.setInterval(() => kill('SIGKILL'), PATIENCE);
};

exports.end = () => child && kill('SIGKILL');
