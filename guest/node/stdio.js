// The standard streams of a cell.
'use strict';

const { fs, process, stdio } = host;
const PLACES = ['/tmp', '/dev/shm', '.'];

function fileWith(text) {
  for (const place of PLACES) {
    const name = `${place}/.stdin-${host.pid}-${Math.random().toString(36).slice(2)}`;
    try {
      fs.writeFileSync(name, text, { flag: 'wx', mode: 0o600 });
      return name;
    } catch {
      // Not writable, or too small: the next place.
      remove(name);
    }
  }
  return null;
}

function remove(name) {
  try {
    fs.unlinkSync(name);
  } catch {
    // It was never made.
  }
}

// A descriptor to read `text` from, of a file that has no name any more; `null` if there is no place for one.
exports.file = function file(text) {
  const name = fileWith(text);
  if (name === null) return null;
  try {
    return fs.openSync(name, 'r');
  } catch {
    return null;
  } finally {
    remove(name);
  }
};

let untouched = true;

// Makes `text` the input: descriptor 0 itself, so that `process.stdin`, `fs.readFileSync(0)` and child
// processes all read it. The file behind it has no name any more when the cell starts.
exports.input = function input(text) {
  if (text === null && untouched) {
    stream();
    return;
  }
  untouched = text === null;
  const file = text === null ? null : fileWith(text);
  try {
    fs.closeSync(0);
  } catch {
    // A cell closed it: the number is free just the same.
  }
  // The lowest free number is the one that was just closed.
  fs.openSync(file === null ? '/dev/null' : file, 'r');
  if (file !== null) fs.unlinkSync(file);
  stream();
  if (text !== null && file === null) throw host.local.error('Error', 'standard input needs a writable /tmp, /dev/shm or work directory');
};

// A new `process.stdin`, made when a cell looks at it.
function stream() {
  let made = null;
  Object.defineProperty(process, 'stdin', {
    configurable: true,
    enumerable: true,
    get() {
      if (!made) {
        made = new fs.ReadStream(null, { fd: 0, autoClose: false });
        made.fd = 0;
        made.isTTY = false;
      }
      return made;
    },
    set(value) {
      made = value;
    },
  });
}

const output = [];
const writes = [];
exports.open = function open() {
  for (const get of [stdio.stdout, stdio.stderr]) {
    const out = get();
    output.push(out);
    writes.push(out.write);
    // A reader that went away must not end the session.
    out.on('error', () => {});
  }
};

// Calls `then` when everything that was printed is with the kernel.
exports.flush = function flush(then) {
  let waiting = 1;
  const one = () => {
    if (--waiting === 0) then();
  };
  output.forEach((out, i) => {
    if (out.destroyed || out.writableLength === 0) return;
    waiting++;
    try {
      Reflect.apply(writes[i], out, ['', one]);
    } catch {
      one();
    }
  });
  one();
};

exports.complain = function complain(text) {
  try {
    Reflect.apply(writes[1], output[1], [`${text}\n`]);
  } catch {
    // Nobody is there to tell.
  }
};
