"""Two functions take turns to call a third one. The line of the third function says which of them it is.

    pycallers.py ITERATIONS SECONDS
"""
import sys
import time


def leaf(is_left, iterations):
    if is_left:
        for _ in range(iterations): hash("left")
    else:
        for _ in range(iterations): hash("right")


def left(iterations):
    leaf(True, iterations)


def right(iterations):
    leaf(False, iterations)


def main():
    iterations, seconds = int(sys.argv[1]), float(sys.argv[2])
    print("ready", flush=True)
    sys.stdin.readline()
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        left(iterations)
        right(iterations)
    print("done", flush=True)


main()
