// A session: cells, one after the other, that share their names.
'use strict';

const source = load('source.js');
const checks = load('checks.js');
const values = load('values.js');
const errors = load('errors.js');
const guarded = load('guarded.js');
const commands = load('commands.js');
const stdio = load('stdio.js');
const modules = load('modules.js');
const display = load('display.js');
const channel = load('channel.js');

const { global, process, local, vm } = host;
const POLL = 20; // milliseconds between looks for an interrupt while a cell waits
const DEFAULT_LIMITS = { value_bytes: 1 << 20, values: 100000, depth: 64, displays: 100, display_bytes: 8 << 20 };

const directory = process.cwd();
const known = new Set(); // names that are declared for the session
let config = { imports: null, forbidden_calls: [], limits: DEFAULT_LIMITS };
let link = null;
let imports = null;
let cell = null; // the one that runs, or what stands for a command that does
let waiting = []; // those that came early
const calls = new Map();
let nextCall = 1;

const json = JSON.stringify;

// ---- messages

function receive(message) {
  switch (message.op) {
    case 'setup': return setup(message);
    case 'execute':
    case 'command':
      if (cell) waiting.push(message);
      else begin(message);
      return undefined;
    case 'tool_result': return answer(message.call, (call) => call.resolve(local.decode(message.value)));
    case 'tool_error': return answer(message.call, (call) => call.reject(local.error(String(message.type), String(message.message))));
    default: return stdio.complain(`runner: unknown message '${message.op}'`);
  }
}

function setup({ env, globals, tools, imports: allowed, forbidden_calls: forbidden, limits }) {
  if (env) {
    for (const name of Object.keys(process.env)) delete process.env[name];
    for (const name of Object.keys(env)) process.env[name] = env[name];
  }
  config = { imports: allowed || null, forbidden_calls: forbidden || [], limits: { ...DEFAULT_LIMITS, ...limits } };
  imports = modules.open(directory, config.imports);
  give(globals, tools);
  own('display', local.plain(show, 'display'));
}

// Puts values and tools among the session's names.
function give(globals, tools) {
  for (const name of Object.keys(globals || {})) own(name, local.decode(globals[name]));
  for (const { name } of tools || []) own(name, local.tool(name, (args, resolve, reject) => callTool(name, args, resolve, reject)));
}

function own(name, value) {
  // What a cell has declared would hide a property. The parameter must have another name than that.
  if (known.has(name)) return new vm.Script(`((_${name})=>{${name}=_${name}})`).runInThisContext()(value);
  return Object.defineProperty(global, name, { value, writable: true, configurable: true, enumerable: true });
}

// ---- tools

function callTool(name, args, resolve, reject) {
  let text;
  try {
    text = values.encodeArguments(name, args, config.limits);
  } catch (error) {
    return reject(error);
  }
  const call = nextCall++;
  calls.set(call, { resolve, reject });
  return link.send(`{"event":"tool_call","id":${cell ? cell.id : 0},"call":${call},"name":${json(name)},"args":${text},"kwargs":{}}`);
}

function answer(number, settle) {
  const call = calls.get(number);
  if (!call) return;
  calls.delete(number);
  enter(() => settle(call));
}

// ---- displays

function show(args) {
  const current = cell;
  for (let i = 0; i < args.length; i++) {
    const made = display.bundle(args[i]);
    if (host.types.isPromise(made)) {
      if (current) current.showing++;
      const ended = () => {
        if (current && --current.showing === 0 && current.ending) current.ending();
      };
      Reflect.apply(host.then, made, [
        (data) => (send(current, data), ended()),
        (error) => (stdio.complain(errors.traceback(error, directory)), ended()),
      ]);
    } else {
      send(current, made);
    }
  }
}

function send(current, data) {
  const { displays, display_bytes: most } = config.limits;
  if (current && ++current.shown > displays) {
    if (current.shown === displays + 1) stdio.complain(`display: more than ${displays} in one cell, the rest is dropped`);
    return;
  }
  let size = 0;
  for (const mime of Object.keys(data)) size += host.buffer.byteLength(data[mime]);
  // As JSON a character may take six bytes, and the engine keeps no message that is far beyond the limit.
  let text = size <= most ? json(data) : '';
  if (size * 6 > most && text !== '') size = host.buffer.byteLength(text);
  if (size > most) text = json({ 'text/plain': `[display of ${size} bytes dropped: the limit is ${most}]` });
  link.send(`{"event":"display","id":${current ? current.id : 0},"data":${text}}`);
}

// ---- cells

// Compiles everything, then runs it: a mistake in the last line is found before the first one runs.
function compile(prepared, id) {
  const filename = `<cell ${id}>`;
  const fresh = prepared.names.filter((name) => !known.has(name));
  const scripts = [];
  const lexical = new Set(fresh);
  for (const made of prepared.functions) {
    const placed = { filename, lineOffset: made.line - 1 };
    const strict = made.strict ? "'use strict';" : '';
    // As a function of the whole session it keeps its own text and name. That needs a name that nobody has.
    const only = prepared.functions.filter(({ name }) => name === made.name).length === 1;
    if (lexical.has(made.name) && only && !made.imports && !strict && !Object.prototype.hasOwnProperty.call(global, made.name)) {
      lexical.delete(made.name);
      scripts.push(new vm.Script(made.text, { ...placed, columnOffset: made.column - 1 }));
    } else {
      const head = `((__import,__meta)=>{${strict}${made.name}=`;
      scripts.push(new vm.Script(`${head}${made.text}\n})`, { ...placed, columnOffset: made.column - 1 - head.length }));
    }
  }
  const body = new vm.Script(prepared.body, { filename, columnOffset: prepared.columnOffset });
  const declaration = lexical.size > 0 ? new vm.Script(`let ${[...lexical].join(',')};`, { filename }) : null;
  return { fresh, lexical, declaration, scripts, body };
}

// Declares a cell's names. Nothing of the cell runs then, and no interrupt comes between: a name that is declared and not
// known could never be declared again.
function declare({ lexical, declaration }) {
  if (declaration !== null) declaration.runInThisContext();
  for (const name of lexical) known.add(name);
}

function begin(message) {
  const { id } = message;
  cell = { id, command: message.op === 'command', dead: false, shown: 0, showing: 0, ending: null };
  guarded.pending(); // an interrupt that came before belongs to nobody
  if (cell.command) command(cell, message);
  else execute(cell, message);
}

function execute(current, { id, code, stdin, globals, tools }) {
  let compiled;
  try {
    give(globals, tools);
    stdio.input(typeof stdin === 'string' ? stdin : null);
    const text = String(code);
    let prepared;
    try {
      prepared = source.prepare(text, (tree) => checks.calls(tree, config.forbidden_calls));
    } catch (error) {
      if (!(error instanceof source.Refusal)) throw error;
      const status = error.type === 'SyntaxError' ? 'error' : 'refused';
      return end(current, status, errors.refused(error.type, error.message, id, source.position(text, error.offset)));
    }
    errors.remember(id, prepared.shifts);
    try {
      compiled = compile(prepared, id);
    } catch (error) {
      return end(current, 'error', errors.compileError(error, id));
    }
  } catch (error) {
    return end(current, 'error', errors.describe(error, id, directory));
  }
  try {
    declare(compiled);
  } catch (error) {
    return end(current, 'error', errors.describe(error, id, directory));
  }
  return enter(() => start(current, compiled));
}

function start(current, { fresh, scripts, body }) {
  let promise;
  try {
    for (const script of scripts) {
      const made = script.runInThisContext();
      if (typeof made === 'function') made(imports.importModule, imports.meta);
    }
    for (const name of fresh) known.add(name);
    promise = body.runInThisContext()((value) => wait(current, value), imports.importModule, imports.meta);
  } catch (error) {
    return fail(current, error);
  }
  Reflect.apply(host.then, promise, [
    (value) => inside(current, () => succeed(current, value)),
    (error) => inside(current, () => fail(current, error)),
  ]);
  return undefined;
}

// What an `await` of a cell waits for. It goes on only within a guarded call, and never after the cell's end.
function wait(current, value) {
  return new host.Promise((resolve, reject) => {
    Reflect.apply(host.then, host.promiseResolve(value), [
      (result) => inside(current, () => resolve(result)),
      (error) => inside(current, () => reject(error)),
    ]);
  });
}

function inside(current, job) {
  if (current.dead || current.result !== undefined) return;
  if (guarded.running()) job();
  else host.setImmediate(() => current.dead || enter(job));
}

// A guarded call on behalf of the cell that runs.
function enter(job) {
  const current = cell;
  const how = guarded.run(job);
  if (current && current.result !== undefined) return deliver(current);
  if (how === 'interrupted') {
    if (current && current.exit !== undefined) end(current, 'exit', exitError(current.exit));
    else if (current) interrupt(current);
    return undefined;
  }
  if (current && !current.dead && !current.poll) watch(current);
  return undefined;
}

// Looks for interrupts from now on.
function watch(current) {
  current.poll = host.setInterval(() => {
    if (guarded.pending()) interrupt(current);
  }, POLL);
}

function interrupt(current) {
  if (current.command) commands.interrupt();
  else end(current, 'interrupted', interruptError());
}

const interruptError = () => ({ type: 'Interrupted', message: 'interrupted', traceback: 'Interrupted', line: null, column: null });
const exitError = (code) => ({ type: 'Exit', message: String(code), traceback: '', line: null, column: null });

function succeed(current, value) {
  let text = '';
  try {
    if (display.isShown(value)) show([value]);
    if (value !== undefined) text = `,"value":${values.encode(value, config.limits)}`;
  } catch (error) {
    return fail(current, error);
  }
  if (current.dead) return undefined;
  if (current.showing > 0) {
    current.ending = () => finish(current, `"status":"ok"${text}`);
    return undefined;
  }
  return finish(current, `"status":"ok"${text}`);
}

function fail(current, error) {
  if (current.exit !== undefined) return end(current, 'exit', exitError(current.exit));
  return end(current, 'error', errors.describe(error, current.id, directory));
}

function end(current, status, error) {
  finish(current, `"status":"${status}","error":${json(error)}`);
}

// Within a guarded call an interrupt may come between any two steps. So there only the result is kept, in
// one step, and what follows is done outside.
function finish(current, text) {
  if (current.result === undefined) current.result = text;
  if (!guarded.running()) deliver(current);
}

function deliver(current) {
  if (current.dead) return;
  current.dead = true;
  const text = current.result;
  if (current.poll) host.clearInterval(current.poll);
  // From the loop, so that what the cell printed last has been handed over.
  host.setImmediate(() =>
    stdio.flush(() => {
      link.send(`{"event":"done","id":${current.id},${text}}`);
      if (cell === current) cell = null;
      if (!cell && waiting.length > 0) begin(waiting.shift());
    })
  );
}

// ---- commands

function command(current, { argv, stdin }) {
  watch(current);
  commands.start(argv, typeof stdin === 'string' ? stdin : null, (how) => finish(current, `"status":"command",${json(how).slice(1, -1)}`));
}

// ---- what a cell leaves behind

// An error that no cell waits for.
function lost(error) {
  if (error === guarded.STOPPED) return;
  const text = host.types.isNativeError(error) ? errors.traceback(error, directory) : values.repr(error);
  stdio.complain(`Uncaught ${text}`);
}

// The process belongs to the session: `exit` ends the cell. Stopping it as an interrupt would is the one
// way that no `catch` of the cell gets hold of.
function exit(args) {
  const code = args.length > 0 && args[0] !== undefined && args[0] !== null ? args[0] : process.exitCode;
  const current = cell;
  if (current && !current.dead && !current.command) {
    current.exit = code === undefined ? 0 : Number(code) | 0;
    process.exitCode = undefined;
    if (guarded.running()) {
      host.kill(host.pid, 'SIGINT');
      for (;;);
    }
    end(current, 'exit', exitError(current.exit));
  }
  throw guarded.STOPPED;
}

exports.start = function start() {
  local.put(Array.prototype, local.isList, true);
  Object.defineProperty(Array.prototype, local.isList, { enumerable: false });
  stdio.open();
  process.on('uncaughtException', lost);
  process.on('unhandledRejection', lost);
  process.exit = local.plain(exit, 'exit');
  link = channel.open(receive, () => (commands.end(), host.exit(0)));
  const first = channel.parse(host.first);
  if (first.op !== 'setup') setup({});
  receive(first);
  try {
    source.warm();
  } catch {
    // Each cell will say what is missing.
  }
};
