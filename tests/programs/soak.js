// A program for the soak on node: batches of system calls by libuv on request, and work in between; see soak.c.
const fs = require('fs');
const readline = require('readline');

// Work that is not counted in any batch: code that V8 compiles, and garbage.
setInterval(() => {
  const words = new Map();
  for (let word = 0; word < 5000; word++) words.set('w' + word, { word, squared: word * word });
  let sum = 0;
  for (const { squared } of words.values()) sum += squared;
  if (sum !== 41654167500) {
    console.log('FAILED: wrong sum');
    process.exit(1);
  }
}, 5);

console.log('working');
const input = readline.createInterface({ input: process.stdin });
input.on('line', (line) => {
  const count = Number(line);
  for (let call = 0; call < count; call++) fs.accessSync('/');
  console.log('done ' + count);
});
input.on('close', () => {
  console.log('OK');
  process.exit(0);
});
