# Attaches Frida to a process and probes one function, or (*) all that the program exports, until its input ends:
# frida.py PID FUNCTION WAY
import sys

import frida

SCRIPT = """
const one = () => Process.mainModule.getSymbolByName
  ? Process.mainModule.findSymbolByName('FUNCTION') : Module.findExportByName(null, 'FUNCTION');
const targets = 'FUNCTION' !== '*' ? [one()]
  : Process.mainModule.enumerateExports().filter(exported => exported.type === 'function').map(exported => exported.address);
const memory = Memory.alloc(16);
const native = new CModule(`
#include <gum/guminterceptor.h>
#include <gum/gumprocess.h>
extern unsigned long hits;
extern unsigned long spent;
static unsigned long now (void)
{
  unsigned int low, high;
  __asm__ volatile ("rdtsc" : "=a" (low), "=d" (high));
  return (unsigned long) high << 32 | low;
}
void on_hit (GumInvocationContext * ic)
{
  hits++;
}
void on_enter (GumInvocationContext * ic)
{
  unsigned long * start = GUM_IC_GET_INVOCATION_DATA (ic, unsigned long);
  *start = now ();
}
void on_leave (GumInvocationContext * ic)
{
  unsigned long * start = GUM_IC_GET_INVOCATION_DATA (ic, unsigned long);
  spent += now () - *start;
  hits++;
}
`, { hits: memory, spent: memory.add(8) });
let hits = 0;
let started = 0;
const seen = new Map();
const ways = {
  'c': () => native.on_hit,
  'c-both': () => ({ onEnter: native.on_enter, onLeave: native.on_leave }),
  'js': () => ({ onEnter() { hits++; } }),
  'js-both': () => ({ onEnter() { this.start = Date.now(); }, onLeave() { started += Date.now() - this.start; hits++; } }),
  'js-string': () => ({ onEnter(args) {
    const key = args[0].readUtf8String(); seen.set(key, (seen.get(key) || 0) + 1); hits++; } }),
  'js-stack': () => ({ onEnter() {
    const key = Thread.backtrace(this.context, Backtracer.FUZZY).join(); seen.set(key, (seen.get(key) || 0) + 1); hits++; } }),
};
const listener = ways['WAY']();
let refused = 0;
for (const target of targets) {
  try {
    Interceptor.attach(target, listener);
  } catch (error) {
    if (targets.length === 1)
      throw error;
    refused++;
  }
}
Interceptor.flush();
rpc.exports = { hits() { return hits + memory.readU64().toNumber(); } };
"""

process, function, way = int(sys.argv[1]), sys.argv[2], sys.argv[3]
session = frida.attach(process)
script = session.create_script(SCRIPT.replace("FUNCTION", function).replace("WAY", way))
script.load()
print("ready", flush=True)
sys.stdin.read()
print("hits", script.exports_sync.hits(), flush=True)
session.detach()
