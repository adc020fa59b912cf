//! A live process: its map, its threads, its memory, system calls made in it.
