// Turns the text of a cell into scripts. Names that a cell declares become names of the whole session, so
// that later cells and earlier functions see them; the rest of the text stays where it is, so that lines are
// right, and what had to be put between is known, so that columns can be corrected.
//
// The parser is the one that every Node carries for its own prompt. It is compiled in the runner's realm.
'use strict';

const PARSER = 'internal/deps/acorn/acorn/dist/acorn';
const HEAD = '(async(__await,__import,__meta)=>{';
const TAIL = '\n})';
const LARGEST_SOURCE = 16 * 1024 * 1024;

let acorn = null;
function parser() {
  if (acorn) return acorn;
  const text = host.natives[PARSER];
  if (typeof text !== 'string') throw new Error(`this build of Node (${host.process.version}) carries no parser: use Node 18 to 24`);
  const module = { exports: {} };
  host.vm.compileFunction(text, ['exports', 'module', 'require'], { filename: 'node:acorn', parsingContext: host.realm })(module.exports, module);
  acorn = module.exports;
  return acorn;
}

const OPTIONS = {
  ecmaVersion: 'latest',
  sourceType: 'script',
  allowHashBang: true,
  allowAwaitOutsideFunction: true,
  allowReturnOutsideFunction: true,
  allowImportExportEverywhere: true,
};

class Refusal extends Error {
  constructor(type, message, offset) {
    super(message);
    this.type = type;
    this.offset = offset;
  }
}

// A cell that is an object literal and nothing else is meant as one, not as a block with labels.
function asObject(text) {
  if (!/^\s*\{/.test(text)) return null;
  try {
    const start = text.indexOf('{');
    const expression = parser().parseExpressionAt(text, start, OPTIONS);
    if (expression.type !== 'ObjectExpression') return null;
    if (parser().tokenizer(text.slice(expression.end), OPTIONS).getToken().type !== parser().tokTypes.eof) return null;
    return { body: [{ type: 'ExpressionStatement', start, end: expression.end, expression }] };
  } catch {
    return null;
  }
}

// The parser's message in the words that Node uses.
function wording({ message, pos }, text) {
  const words = message.replace(/ \(\d+:\d+\)$/, '');
  if (words !== 'Unexpected token') return words;
  if (pos >= text.length) return 'Unexpected end of input';
  return `Unexpected token '${/^(?:[\p{ID_Start}$_][\p{ID_Continue}$]*|[^])/u.exec(text.slice(pos, pos + 100))[0]}'`;
}

function parse(text) {
  if (text.length > LARGEST_SOURCE) {
    throw new Refusal('SyntaxError', `a cell of ${text.length} characters is too large (at most ${LARGEST_SOURCE}): put data into a file`, 0);
  }
  const object = asObject(text);
  if (object) return object;
  try {
    return parser().parse(text, OPTIONS);
  } catch (error) {
    if (error instanceof SyntaxError && typeof error.pos === 'number') {
      throw new Refusal('SyntaxError', wording(error, text), error.pos);
    }
    if (error instanceof RangeError) throw new Refusal('SyntaxError', 'the code is nested too deeply', 0);
    throw error;
  }
}

const isNode = (value) => value !== null && typeof value === 'object' && typeof value.type === 'string';

function children(node, visit) {
  for (const key of Object.keys(node)) {
    const value = node[key];
    if (Array.isArray(value)) {
      for (const item of value) if (isNode(item)) visit(item, key);
    } else if (isNode(value)) {
      visit(value, key);
    }
  }
}

function boundNames(pattern, names) {
  switch (pattern.type) {
    case 'Identifier': names.add(pattern.name); break;
    case 'ObjectPattern': for (const property of pattern.properties) boundNames(property.type === 'RestElement' ? property : property.value, names); break;
    case 'ArrayPattern': for (const element of pattern.elements) if (element) boundNames(element, names); break;
    case 'AssignmentPattern': boundNames(pattern.left, names); break;
    case 'RestElement': boundNames(pattern.argument, names); break;
    default: break;
  }
}

const FUNCTIONS = new Set(['FunctionDeclaration', 'FunctionExpression', 'ArrowFunctionExpression', 'StaticBlock']);
const LISTS = new Set(['Program', 'BlockStatement', 'SwitchCase']);

class Rewriter {
  constructor(text) {
    this.text = text;
    this.edits = [];
    this.names = new Set();
    this.functions = [];
  }

  edit(at, remove, text) {
    this.edits.push({ at, remove, text });
  }

  // Blanks a range but keeps its lines.
  blank(start, end, text = '') {
    const lines = this.text.slice(start, end).replace(/[^\n]+/g, '');
    this.edit(start, end - start, lines === '' ? text.padEnd(end - start) : text + lines);
  }

  visit(node, parent, key, inside) {
    switch (node.type) {
      case 'ImportExpression': this.edit(node.start, 6, '__import'); break;
      case 'MetaProperty': if (node.meta.name === 'import') this.edit(node.start, node.end - node.start, '__meta'); break;
      case 'AwaitExpression':
        if (!inside) {
          this.edit(node.start + 5, 0, ' __await(');
          children(node, (child, at) => this.visit(child, node, at, inside));
          this.edit(node.end, 0, ')');
          return;
        }
        break;
      case 'VariableDeclaration':
        if (!inside && node.kind === 'var') return this.declaration(node, parent, key);
        break;
      default: break;
    }
    children(node, (child, at) => {
      const within = inside || FUNCTIONS.has(node.type) || (node.type === 'PropertyDefinition' && at === 'value');
      this.visit(child, node, at, within);
    });
  }

  // `let a = 1, {b} = c` becomes `;( a = 1, {b} = c);`.
  declaration(node, parent, key) {
    const inList = LISTS.has(parent.type);
    const inFor = parent.type === 'ForStatement' || key === 'left';
    for (const { id } of node.declarations) boundNames(id, this.names);
    this.edit(node.start, node.kind.length, (inFor ? '' : inList ? ';(' : '(').padEnd(node.kind.length));
    for (const declarator of node.declarations) {
      children(declarator, (child, at) => this.visit(child, declarator, at, false));
      if (!declarator.init && node.kind !== 'var') this.edit(declarator.end, 0, '=void 0');
    }
    if (!inFor) this.edit(node.declarations[node.declarations.length - 1].end, 0, inList ? ');' : ')');
  }

  import(node) {
    const picked = [];
    let whole = null;
    for (const { type, imported, local } of node.specifiers) {
      this.names.add(local.name);
      if (type === 'ImportNamespaceSpecifier') whole = local.name;
      else picked.push([type === 'ImportDefaultSpecifier' ? 'default' : imported.name || imported.value, local.name]);
    }
    const attributes = (node.attributes || []).map(({ key, value }) => `${JSON.stringify(key.name || key.value)}:${JSON.stringify(value.value)}`).join(',');
    const options = attributes ? `{with:{${attributes}},assert:{${attributes}}}` : 'void 0';
    const wanted = JSON.stringify(picked.map(([name]) => name));
    const call = `await __await(__import(${JSON.stringify(node.source.value)},${options},${wanted}))`;
    const pattern = `{${picked.map(([name, local]) => `${JSON.stringify(name)}:${local}`).join(',')}}`;
    const assign = whole ? `${whole}=${call}${picked.length ? `,${pattern}=${whole}` : ''}` : picked.length ? `${pattern}=${call}` : call;
    this.blank(node.start, node.end, `;(${assign});`);
  }

  // A function of the top level exists before anything runs. It is a script of its own.
  hoist(node) {
    const outer = this.edits;
    this.edits = [];
    children(node, (child, at) => this.visit(child, node, at, true));
    this.functions.push({ name: node.id.name, start: node.start, end: node.end, edits: this.edits });
    this.edits = outer;
    this.blank(node.start, node.end, ';');
    this.names.add(node.id.name);
  }

  statement(node, last) {
    switch (node.type) {
      case 'FunctionDeclaration': return this.hoist(node);
      case 'VariableDeclaration':
        if (['var', 'let', 'const'].includes(node.kind)) return this.declaration(node, { type: 'Program' }, 'body');
        break;
      case 'ClassDeclaration':
        this.names.add(node.id.name);
        this.edit(node.start, 0, `;${node.id.name}=`);
        this.visit(node, { type: 'Program' }, 'body', false);
        return this.edit(node.end, 0, ';');
      case 'ImportDeclaration': return this.import(node);
      case 'ExportNamedDeclaration':
        if (!node.declaration) throw new Refusal('SyntaxError', 'a cell has nothing to export to', node.start);
        this.blank(node.start, node.declaration.start);
        return this.statement(node.declaration, false);
      case 'ExportDefaultDeclaration':
      case 'ExportAllDeclaration':
        throw new Refusal('SyntaxError', 'a cell has nothing to export to', node.start);
      case 'ExpressionStatement':
        if (last) {
          this.edit(node.start, 0, ';return (');
          this.visit(node.expression, node, 'expression', false);
          return this.edit(this.text[node.end - 1] === ';' ? node.end - 1 : node.end, 0, ')');
        }
        break;
      default: break;
    }
    return this.visit(node, { type: 'Program' }, 'body', false);
  }

  program(body) {
    if (this.text.startsWith('#!')) this.edit(0, 2, '//');
    body.forEach((node, i) => this.statement(node, i === body.length - 1));
  }
}

// Applies edits to one range of the text.
function render(text, start, end, edits) {
  let out = '';
  let at = start;
  // Sorting is stable, so what was put at one place first stays first.
  for (const edit of [...edits].sort((a, b) => a.at - b.at)) {
    out += text.slice(at, edit.at) + edit.text;
    at = edit.at + edit.remove;
  }
  return out + text.slice(at, end);
}

function position(text, offset) {
  let line = 1;
  let from = 0;
  for (let next; (next = text.indexOf('\n', from)) !== -1 && next < offset; from = next + 1) line++;
  return { line, column: offset - from + 1 };
}

// What was put between on each line, to find the column that a person wrote.
function shifts(text, edits) {
  const lines = new Map();
  for (const { at, remove, text: put } of [...edits].sort((a, b) => a.at - b.at)) {
    if (put.length === remove || put.includes('\n')) continue;
    const { line, column } = position(text, at);
    if (!lines.has(line)) lines.set(line, []);
    lines.get(line).push({ column, by: put.length - remove, length: put.length });
  }
  return lines;
}

exports.unshift = function unshift(lines, line, column) {
  let moved = 0;
  for (const { column: at, by, length } of lines.get(line) || []) {
    if (column < at + moved) break;
    if (column < at + moved + length) return at;
    moved += by;
  }
  return Math.max(1, column - moved);
};

// `check` sees the tree before anything is made of it, and may throw a Refusal.
exports.prepare = function prepare(text, check) {
  const tree = parse(text);
  check(tree);
  const rewriter = new Rewriter(text);
  try {
    rewriter.program(tree.body);
  } catch (error) {
    if (error instanceof RangeError) throw new Refusal('SyntaxError', 'the code is nested too deeply', 0);
    throw error;
  }
  const strict = tree.body.some((node) => node.directive === 'use strict');
  const functions = rewriter.functions.map(({ name, start, end, edits }) => ({
    name,
    ...position(text, start),
    text: render(text, start, end, edits),
    imports: edits.length > 0,
    strict,
  }));
  return {
    names: [...rewriter.names],
    functions,
    body: HEAD + render(text, 0, text.length, rewriter.edits) + TAIL,
    columnOffset: -HEAD.length,
    shifts: shifts(text, rewriter.edits),
  };
};

exports.Refusal = Refusal;
exports.position = position;
exports.children = children;
exports.warm = () => parser().parse('const a = await b(`${1}`); /x/.test(a)', OPTIONS);
