BEGIN { trace('a'); trace('\n'); trace('\0'); trace('\101'); trace('\x41'); trace('ab'); trace('\''); trace('\377'); }
