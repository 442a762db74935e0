// Plays the engine: starts a runner, speaks the protocol, collects what comes back.
'use strict';

const { spawn } = require('child_process');
const path = require('path');

const MAIN = path.join(__dirname, '..', '..', 'node', 'main.js');
const LIMITS = { value_bytes: 1 << 20, values: 100000, depth: 64, displays: 10, display_bytes: 1 << 20 };

class Runner {
  constructor(options = {}) {
    const command = [...(options.through || []), process.env.RUNNER_NODE || process.execPath, MAIN];
    this.child = spawn(command[0], command.slice(1), {
      cwd: options.cwd,
      env: { PATH: process.env.PATH },
      stdio: ['pipe', 'pipe', 'pipe', 'pipe'],
    });
    this.socket = this.child.stdio[3];
    this.events = [];
    this.stdout = '';
    this.stderr = '';
    this.tools = options.tools || {};
    this.id = 0;
    this.held = Buffer.alloc(0);
    this.waiters = [];
    this.child.stdout.on('data', (data) => (this.stdout += data));
    this.child.stderr.on('data', (data) => (this.stderr += data));
    this.exited = new Promise((resolve) => this.child.on('close', (code, signal) => resolve({ code, signal })));
    this.exited.then((how) => this.waiters.splice(0).forEach((w) => w.reject(new Error(`runner ended: ${JSON.stringify(how)} ${this.stderr}`))));
    this.socket.on('data', (data) => this.feed(data));
    this.socket.on('error', () => {});
    this.child.stdin.on('error', () => {});
  }

  feed(data) {
    this.held = Buffer.concat([this.held, data]);
    while (this.held.length >= 4) {
      const length = this.held.readUInt32LE();
      if (this.held.length < 4 + length) return;
      const text = this.held.subarray(4, 4 + length).toString();
      this.held = this.held.subarray(4 + length);
      const event = JSON.parse(text);
      event.text = text;
      this.events.push(event);
      if (event.event === 'tool_call') this.tool(event);
      this.waiters = this.waiters.filter((w) => !(w.test(event) && (w.resolve(event), true)));
    }
  }

  async tool({ call, name, args }) {
    const tool = this.tools[name];
    if (!tool) return;
    try {
      this.send({ op: 'tool_result', call, value: await tool(...args) });
    } catch (error) {
      this.send({ op: 'tool_error', call, type: error.name, message: error.message });
    }
  }

  raw(bytes) {
    this.socket.write(bytes);
  }

  frame(text) {
    const body = Buffer.from(text);
    const head = Buffer.alloc(4);
    head.writeUInt32LE(body.length);
    return Buffer.concat([head, body]);
  }

  send(message) {
    this.raw(this.frame(JSON.stringify(message)));
  }

  wait(test) {
    const found = this.events.find(test);
    if (found) return Promise.resolve(found);
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error('no answer within 20 s')), 20000);
      const settle = (how) => (value) => (clearTimeout(timer), how(value));
      this.waiters.push({ test, resolve: settle(resolve), reject: settle(reject) });
    });
  }

  ready() {
    return this.wait((event) => event.event === 'ready');
  }

  setup(more = {}) {
    const tools = Object.keys(this.tools).map((name) => ({ name }));
    this.send({ op: 'setup', env: { PATH: process.env.PATH, HOME: '/tmp' }, globals: {}, tools, imports: null, forbidden_calls: [], limits: LIMITS, ...more });
  }

  begin(code, stdin = null, given = {}) {
    return this.ask({ op: 'execute', code, stdin, ...given });
  }

  command(argv, stdin = null) {
    return this.ask({ op: 'command', argv, stdin });
  }

  ask(message) {
    const id = ++this.id;
    this.send({ ...message, id });
    return this.wait((event) => event.event === 'done' && event.id === id);
  }

  // Runs a cell and gives its `done`, with what it printed.
  run(code, stdin, given) {
    return this.ended(() => this.begin(code, stdin, given));
  }

  // How a program ended: its `done`, without what every one has.
  async ends(argv, stdin) {
    const { event, id, status, text, ...how } = await this.ended(() => this.command(argv, stdin));
    if (status !== 'command') throw new Error(text);
    return how;
  }

  async ended(start) {
    this.stdout = '';
    this.stderr = '';
    const done = await start();
    // The pipes and the channel are read separately here; the bytes are in the pipe by now.
    await new Promise((resolve) => setTimeout(resolve, 5));
    return done;
  }

  async value(code, stdin, given) {
    const done = await this.run(code, stdin, given);
    if (done.status !== 'ok') throw new Error(`${code}\n${JSON.stringify(done.error)}`);
    return done.value;
  }

  interrupt(after = 0) {
    setTimeout(() => this.child.kill('SIGINT'), after);
  }

  async close() {
    this.socket.end();
    const timer = setTimeout(() => this.child.kill('SIGKILL'), 2000);
    const how = await this.exited;
    clearTimeout(timer);
    return how;
  }
}

// A session that is set up, for one test.
async function session(options = {}, work) {
  const runner = new Runner(options);
  try {
    await runner.ready();
    runner.setup(options.setup);
    await work(runner);
  } finally {
    await runner.close();
  }
}

module.exports = { Runner, session, LIMITS };
