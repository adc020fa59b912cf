// Calls umask(2) in functions that V8 has inlined into others, and prints the stack of each call as V8 tells it.
// Needs --expose-gc.
'use strict';

const fs = require('fs');
const path = require('path');

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
    if (!file) continue;
    const shown = file.startsWith('node:') ? file : path.basename(file);
    lines.push(`${shown}:${site.getLineNumber()} ${site.getFunctionName() || '(anonymous)'}`);
  }
  number = (number + 1) % 512;
}

// The call and the stack are on one line.
// prettier-ignore
function call() { const sites = told(); process.umask(number); note(sites); }

function inner() {
  call();
  return 1;
}

function middle(depth) {
  let sum = 0;
  sum += inner();
  return sum + depth;
}

function outer() {
  return middle(
    1,
  ) + middle(2);
}

class Point {
  constructor(x) {
    this.x = x + inner();
  }
  get value() {
    return this.x + inner();
  }
  set value(x) {
    this.x = inner() + x;
  }
}

class Line extends Point {
  constructor(x) {
    super(x);
    inner();
  }
}

function objects() {
  const line = new Line(1);
  line.value = 2;
  return line.value;
}

function callbacks() {
  let sum = [1, 2].map((x) => x + inner()).length;
  [1].forEach(() => {
    sum += inner();
  });
  return sum + [1, 2].reduce((a, b) => a + b + inner(), 0) + [3].findIndex((x) => inner() === x);
}

function fewer(a, b, c) {
  return inner() + (b === undefined) + (c === undefined) + a;
}

function more() {
  return arguments.length + inner();
}

function passes() {
  return fewer(1) + more(1, 2, 3) + fewer.call(null, 1) + more.apply(null, [1, 2]) + Reflect.apply(fewer, null, [1, 2]) +
    more(...[1, 2, 3]) + fewer.bind(null, 1)(2);
}

function caught() {
  try {
    inner();
    throw new Error('no');
  } catch (error) {
    return inner();
  } finally {
    inner();
  }
}

function recursion(depth) {
  return depth > 0 ? recursion(depth - 1) + 1 : inner();
}

// What optimised code takes for constant: when it changes, the code that is on the stack is no longer valid.
const assumed = { first: 1 };

// So many functions are called there that none is inlined.
// prettier-ignore
const actions = [
  () => inner() + 1, () => inner() + 2, () => inner() + 3, () => inner() + 4, () => inner() + 5, () => inner() + 6,
];
let isLast = false;
let turn = 0;

function change() {
  assumed.first++;
  return inner();
}

function assumes() {
  const action = isLast ? change : actions[turn++ % actions.length];
  return assumed.first + action() + assumed.first;
}

function invalid() {
  return assumes() + 1;
}

// The code of the loop: it goes on in the frame of the function that has begun the loop.
function loop(rounds) {
  let sum = 0;
  for (let round = 0; round < rounds; round++) {
    for (let index = 0; index < 30000; index++) sum += index ^ round;
    if (round % 50 === 49) sum += middle(round);
  }
  return sum;
}

const works = [outer, objects, callbacks, passes, caught, () => recursion(6), invalid];

function main() {
  for (const work of works) for (let round = 0; round < 1500; round++) work();
  // Code that is made by another thread comes with one of the next calls.
  const end = Date.now() + 500;
  while (Date.now() < end) for (const work of works) work();
  lines.length = number = 0;
  // What is left is moved now, and not while the calls are compared.
  gc();
  fs.writeSync(1, 'ready\n');
  fs.readSync(0, Buffer.alloc(100));
  for (let round = 0; round < 3; round++) for (const work of works) work();
  loop(200);
  isLast = true;
  invalid();
  fs.writeSync(1, lines.join('\n') + '\ndone\n');
  fs.readSync(0, Buffer.alloc(100));
}

main();
