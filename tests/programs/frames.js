// Calls umask(2) below functions of all kinds, and prints the stack of each call as V8 tells it.
'use strict';

const fs = require('fs');
const path = require('path');
const vm = require('vm');

let number = 0;
const lines = [];
Error.stackTraceLimit = 1000;

function told() {
  const prepare = Error.prepareStackTrace;
  Error.prepareStackTrace = (error, sites) => sites;
  const sites = new Error().stack.slice(1);
  Error.prepareStackTrace = prepare;
  return sites;
}

function note(sites) {
  lines.push(`stack ${number}`);
  for (const site of sites) {
    const file = site.getFileName();
    // Builtins have no file, and callers that wait are not on the machine's stack.
    if (site.isAsync() || (!file && !site.isEval())) continue;
    const shown = !file ? '<anonymous>' : file.startsWith('node:') ? file : path.basename(file);
    lines.push(`${shown}:${site.getLineNumber()} ${site.getFunctionName() || '(anonymous)'}`);
  }
  number = (number + 1) % 512;
}

// The call and the stack are on one line.
// prettier-ignore
function call() { const sites = told(); process.umask(number); note(sites); }

function recursion(depth) {
  if (depth > 0) return recursion(depth - 1) + 1;
  call();
  return 0;
}

class Base {
  constructor() { this.made = true; call(); }
  method() {
    call();
  }
  static still() {
    call();
  }
  get value() {
    call();
    return 1;
  }
}

class Derived extends Base {
  constructor() {
    super();
    call();
  }
  method() {
    super.method();
    call();
  }
}

function Old() {
  this.old = true;
  call();
}

Old.prototype.late = function () {
  call();
};

function closure(count) {
  const kept = { count };
  return () => {
    if (kept.count) call();
    return kept;
  };
}

const named = function own() {
  call();
};

function* generator() {
  call();
  yield 1;
  call();
}

async function waits() {
  call();
  await null;
  call();
}

function many(a, b, c, d) {
  const v0 = 0, v1 = 1, v2 = 2, v3 = 3, v4 = 4, v5 = 5, v6 = 6, v7 = 7, v8 = 8, v9 = 9;
  const uses = () => v0 + v1 + v2 + v3 + v4 + v5 + v6 + v7 + v8 + v9;
  call();
  return uses() + a + b + c + d;
}

function thrown() {
  try {
    throw new Error('no');
  } catch (error) {
    call();
  } finally {
    call();
  }
}

function natives() {
  [1].map(() => call());
  [2, 1].sort((a, b) => { call(); return a - b; });
  JSON.stringify({ toJSON() { call(); return 1; } });
  JSON.parse('[1]', (key, value) => { if (key) call(); return value; });
  'a'.replace(/a/, () => { call(); return 'b'; });
  new Proxy({}, { get() { call(); } }).any;
  Reflect.apply(function reflected() { call(); }, null, []);
  new Map([[1, 1]]).forEach(() => call());
  [...generator()];
  closure(1).bind(null, 1)();
  new Function('call', '\n\ncall()')(call);
  eval('(() => {\n call(); })()');
  vm.runInThisContext('(function run(call) {\n\n  call();\n})', 'made.js')(call);
}

function all() {
  call();
  recursion(20);
  const one = new Derived();
  one.method();
  Base.still();
  one.value;
  new Old().late();
  closure(2)();
  named();
  many(1);
  many(1, 2, 3, 4, 5, 6);
  thrown();
  natives();
}

function hot(times) {
  let sum = 0;
  for (let index = 0; index < times; index++) sum += index % 7;
  if (times < 0) call();
  return sum;
}

// A function of which a loop becomes optimised code, and calls.
function warm() {
  let sum = 0;
  for (let round = 0; round < 200; round++) {
    for (let index = 0; index < 20000; index++) sum += index ^ round;
    if (round % 40 === 39) call();
  }
  return sum;
}

async function main() {
  fs.writeSync(1, 'ready\n');
  fs.readSync(0, Buffer.alloc(100));
  for (let round = 0; round < 3; round++) all();
  await waits();
  hot(100000);
  warm();
  fs.writeSync(1, lines.join('\n') + '\ndone\n');
  fs.readSync(0, Buffer.alloc(100));
}

main();
