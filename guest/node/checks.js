// The checks that a policy asks for: calls that the source must not contain, and modules that may be
// imported. They are for honest code. The walls do not depend on them.
'use strict';

const { Refusal, children } = load('source.js');
const GLOBALS = /^(?:globalThis|global|window|self)\./;
const plain = (name) => (name.startsWith('node:') ? name.slice(5) : name);

// Which module a name stands for, as far as plain declarations say: `fs`, or `fs.readFile`.
const aliases = new Map();

function required(node) {
  if (!node) return null;
  if (node.type === 'AwaitExpression') return required(node.argument);
  const source =
    node.type === 'ImportExpression' ? node.source
    : node.type === 'CallExpression' && node.callee.type === 'Identifier' && node.callee.name === 'require' ? node.arguments[0]
    : null;
  return source && typeof source.value === 'string' ? plain(source.value) : null;
}

function learn(node) {
  if (node.type === 'VariableDeclarator') {
    const module = required(node.init);
    if (!module) return;
    if (node.id.type === 'Identifier') aliases.set(node.id.name, module);
    if (node.id.type !== 'ObjectPattern') return;
    for (const { key, value } of node.id.properties) {
      if (key && key.name && value.type === 'Identifier') aliases.set(value.name, `${module}.${key.name}`);
    }
  }
  if (node.type === 'ImportDeclaration') {
    for (const { type, imported, local } of node.specifiers) {
      const module = plain(node.source.value);
      aliases.set(local.name, type === 'ImportSpecifier' ? `${module}.${imported.name || imported.value}` : module);
    }
  }
}

// The dotted name of what is called, with modules under their own names.
function dotted(node) {
  switch (node.type) {
    case 'Identifier': return aliases.get(node.name) || node.name;
    case 'ChainExpression':
    case 'ParenthesizedExpression': return dotted(node.expression);
    case 'SequenceExpression': return dotted(node.expressions[node.expressions.length - 1]);
    case 'MemberExpression': {
      const object = required(node.object) || dotted(node.object);
      const name = node.computed ? node.property.value : node.property.name;
      return object && typeof name === 'string' ? `${object}.${name}` : null;
    }
    default: return null;
  }
}

exports.calls = function calls(tree, forbidden) {
  if (forbidden.length === 0) return;
  const names = new Set(forbidden.map(plain));
  const look = (node) => {
    learn(node);
    const callee = node.type === 'CallExpression' || node.type === 'NewExpression' ? node.callee : node.type === 'TaggedTemplateExpression' ? node.tag : null;
    const full = callee && dotted(callee);
    const name = full && full.replace(GLOBALS, '');
    if (name && names.has(name)) throw new Refusal('ForbiddenCall', `Call of '${name}' not allowed`, node.start);
    children(node, look);
  };
  for (const node of tree.body) look(node);
};

// Throws if `name` is a module that is not on the list. Files of the work directory are always allowed.
exports.module = function module(name, allowed) {
  if (allowed === null || typeof name !== 'string' || /^(?:\.{0,2}\/|\.{1,2}$|file:)/.test(name)) return;
  const wanted = plain(name);
  const root = wanted.startsWith('@') ? wanted.split('/').slice(0, 2).join('/') : wanted.split('/')[0];
  if (!allowed.some((entry) => plain(entry) === wanted || plain(entry) === root)) {
    throw host.local.error('ImportError', `Import '${wanted}' not allowed`);
  }
};
