dtrace:::END { ustack(); }
