// What went wrong in a cell, told with the lines that a person wrote and no others.
'use strict';

const { unshift } = load('source.js');
const { repr, typeName } = load('values.js');
const PLACE = /<cell (\d+)>:(\d+):(\d+)/g;
const LONGEST = 64 * 1024;
const KEPT_CELLS = 1000;

// Where text was put between, by cell, for the columns. The oldest are forgotten.
const maps = new Map();
exports.remember = function remember(cell, lines) {
  if (lines.size > 0) maps.set(cell, lines);
  if (maps.size > KEPT_CELLS) maps.delete(maps.keys().next().value);
};

function corrected(text) {
  return text.replace(PLACE, (whole, cell, line, column) => {
    const lines = maps.get(Number(cell));
    return lines ? `<cell ${cell}>:${line}:${unshift(lines, Number(line), Number(column))}` : whole;
  });
}

function read(value, name) {
  try {
    const text = value[name];
    return typeof text === 'string' ? text.slice(0, LONGEST) : null;
  } catch {
    return null;
  }
}

// The stack of an error without Node's own frames and the runner's.
function traceback(error, directory, depth = 0) {
  const stack = read(error, 'stack');
  const title = `${read(error, 'name') || 'Error'}: ${read(error, 'message') || ''}`.replace(/: $/, '');
  let text = title;
  if (stack !== null) {
    const at = stack.search(/\n {4}at /);
    const frames = at < 0 ? [] : stack.slice(at + 1).split('\n');
    const own = frames.filter((frame) => /<cell \d+>/.test(frame) || frame.includes(`${directory}/`));
    text = [at < 0 ? stack : stack.slice(0, at), ...own].join('\n');
  }
  let cause;
  try {
    ({ cause } = error);
  } catch {
    cause = undefined;
  }
  if (depth < 3 && host.types.isNativeError(cause)) text += `\ncaused by: ${traceback(cause, directory, depth + 1)}`;
  return corrected(text).slice(0, LONGEST);
}

// The `error` of a `done`.
exports.describe = function describe(error, cell, directory) {
  if (!host.types.isNativeError(error) && read(error, 'stack') === null) {
    const text = repr(error);
    const message = typeof error === 'string' ? error.slice(0, LONGEST) : text;
    return { type: typeName(error), message, traceback: `Uncaught ${text}`, line: null, column: null };
  }
  const text = traceback(error, directory);
  const place = new RegExp(`<cell ${cell}>:(\\d+):(\\d+)`).exec(text);
  return {
    type: read(error, 'name') || typeName(error),
    message: read(error, 'message') || '',
    traceback: text,
    line: place ? Number(place[1]) : null,
    column: place ? Number(place[2]) : null,
  };
};

// The `error` of a cell that was refused before it ran.
exports.refused = function refused(type, message, cell, { line, column }) {
  return { type, message, traceback: `${type}: ${message}\n    at <cell ${cell}>:${line}:${column}`, line, column };
};

// Where the compiler says that a script is wrong: it is in the first lines of the stack, as a line and a caret.
exports.compileError = function compileError(error, cell) {
  const stack = read(error, 'stack') || '';
  const line = Number((/^<cell \d+>:(\d+)\n/.exec(stack) || [0, 1])[1]);
  const caret = /\n( *)\^/.exec(stack);
  const lines = maps.get(cell);
  const column = caret ? caret[1].length + 1 : 1;
  return exports.refused(read(error, 'name') || 'SyntaxError', read(error, 'message') || '', cell, { line, column: lines ? unshift(lines, line, column) : column });
};
exports.traceback = traceback;
