'use strict';
/* Spends known shares of the thread's time in known functions.
 *
 *     node shares.js SECONDS
 *
 * Prints `ready`, waits for a line, works, and prints for each kind of work `KIND MILLISECONDS`, by the processor time of
 * the main thread. Each function `workKIND` is called by `part` only. */
const fs = require('fs');

let sink = 0;

function now() {
	return process.cpuUsage().user * 1000 + process.cpuUsage().system * 1000;
}

function churn(rounds) {
	let mixed = sink;
	for (let i = 0; i < rounds; i++)
		mixed = Math.imul(mixed, 1664525) + small(i) | 0;
	return mixed;
}

function small(number) {
	return number & 7;
}

function spin(seconds) {
	const end = now() + seconds * 1e9;
	while (now() < end)
		sink ^= churn(20000);
}

function workDirect(seconds) {
	spin(seconds);
}

function workDeep(depth, seconds) {
	if (depth > 0)
		workDeep(depth - 1, seconds);
	else
		spin(seconds);
}

function deep(seconds) {
	workDeep(12, seconds);
}

function workClosure(seconds) {
	[1].forEach(() => spin(seconds));
}

/* One long loop: its optimised code goes on in the frame of the interpreter. */
function workLoop(seconds) {
	const end = now() + seconds * 1e9;
	for (;;) {
		for (let i = 0; i < 300000; i++)
			sink = Math.imul(sink, 1664525) + i | 0;
		if (now() >= end)
			return;
	}
}

/* Many short calls, which allocate: the collector moves their objects, and the closure. */
function workShort(seconds) {
	const end = now() + seconds * 1e9;
	while (now() < end) {
		for (let i = 0; i < 1000; i++) {
			const short = (number) => ({ number, list: [number, i] });
			sink ^= short(i).list.length;
		}
	}
}

function part(seconds, times) {
	const works = [['Direct', 3, workDirect], ['Deep', 2, deep], ['Closure', 2, workClosure],
		['Loop', 2, workLoop], ['Short', 1, workShort]];
	for (const [kind, share, work] of works) {
		const start = now();
		work(seconds * share);
		times[kind] = (times[kind] || 0) + now() - start;
	}
}

function main() {
	const seconds = Number(process.argv[2]), rounds = 10, times = {};
	now();
	console.log('ready');
	fs.readSync(0, Buffer.alloc(1));
	for (let round = 0; round < rounds; round++)
		part(seconds / rounds / 10, times);
	for (const kind of Object.keys(times))
		console.log(kind + ' ' + Math.round(times[kind] / 1e6));
	console.log('done');
}

main();
