"""Spends known shares of each thread's time in known functions.

    pyshares.py SECONDS WORKERS

Prints `ready`, waits for a line, works, and prints for each kind of work `KIND MILLISECONDS`, by the threads' own clocks.
Each function `work_KIND` is called by `part` only, and each line that calls a function of this file names it.
"""
import sys
import threading
import time


def spin(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def work_direct(seconds):
    spin(seconds)


def work_deep(depth, seconds):
    if depth:
        work_deep(depth - 1, seconds)
    else:
        spin(seconds)


def work_generator(seconds):
    spin(seconds)
    return 1


def work_sorted(seconds):
    def key(value):
        spin(seconds / 4)
        return -value
    sorted([1, 2, 3, 4], key=key)


def work_short_left():
    spin(0.00003)


def work_short_right():
    spin(0.00003)


def work_short(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        work_short_left()
        work_short_right()


def part(seconds, times):
    for name, share in (("direct", 4), ("deep", 2), ("generator", 2), ("sorted", 1), ("short", 1)):
        start = time.thread_time()
        if name == "direct":
            work_direct(seconds * share)
        elif name == "deep":
            work_deep(12, seconds * share)
        elif name == "generator":
            sum(work_generator(seconds * share / 4) for _ in range(4))
        elif name == "sorted":
            work_sorted(seconds * share)
        else:
            work_short(seconds * share)
        times[name] = times.get(name, 0) + time.thread_time() - start


def run(seconds, rounds, times):
    for _ in range(rounds):
        part(seconds, times)


def main():
    seconds, workers = float(sys.argv[1]), int(sys.argv[2])
    print("ready", flush=True)
    sys.stdin.readline()
    all_times = [{} for _ in range(workers)]
    threads = [threading.Thread(target=run, args=(seconds / 100, 10, times)) for times in all_times]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in all_times[0]:
        print("%s %d" % (name, 1000 * sum(times[name] for times in all_times)))
    print("done", flush=True)


main()
