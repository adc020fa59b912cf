"""Calls libc's strerror(N) from many kinds of Python code, and prints the stack of each call.

    stack N
    FILE:LINE FUNCTION          the innermost first, by the traceback module
"""
import ctypes
import functools
import os
import sys
import threading
import traceback

# Code whose stacks are compared must exist until the tracer has read its names.
KEPT = []
libc = ctypes.CDLL(None)


def where(number):
    lines = ["stack %d" % number]
    for frame in reversed(traceback.extract_stack()[:-1]):
        lines.append("%s:%d %s" % (os.path.basename(frame.filename), frame.lineno, frame.name))
    print("\n".join(lines), flush=True)


def call(number):
    where(number); os.strerror(number)


def recursion(depth, number):
    if depth:
        recursion(depth - 1, number)
    else:
        where(number); os.strerror(number)


def generator(number):
    yield 1
    where(number); os.strerror(number)
    yield 2


def delegating(number):
    yield from generator(number)


class Order:
    def __init__(self, number):
        self.number = number

    def __eq__(self, other):
        where(self.number); os.strerror(self.number)
        return True

    @staticmethod
    def pay(number):
        # A call over several lines: the line is that of the call in the innermost frame.
        return call(
            number
        )

    @property
    def total(self):
        where(self.number); os.strerror(self.number)
        return 0


def decorated(function):
    @functools.wraps(function)
    def wrapper(*arguments):
        return function(*arguments)
    return wrapper


@decorated
def wrapped(number):
    where(number); os.strerror(number)


async def inner(number):
    where(number); os.strerror(number)


async def outer(number):
    await inner(number)


def handler(number):
    try:
        raise ValueError
    except ValueError:
        where(number); os.strerror(number)
    finally:
        call(number + 1)


def without_lock(number):
    """ctypes lets go of the interpreter's lock during the call."""
    where(number); libc.strerror(number)


def long(number):
    values = [
        1,
















































































































































        2,
    ]
    where(number); os.strerror(number)
    return values


def all_kinds(base):
    call(base)
    recursion(40, base + 1)
    list(generator(base + 2))
    list(delegating(base + 3))
    [Order.pay(number) for number in range(base + 4, base + 6)]
    sorted([base + 6], key=lambda number: (where(number), os.strerror(number))[1])
    Order(base + 7) == Order(base + 7)
    Order(base + 8).total
    wrapped(base + 9)
    try:
        outer(base + 10).send(None)
    except StopIteration:
        pass
    handler(base + 11)
    without_lock(base + 13)
    long(base + 14)
    text = "def made(number):\n\n    where(number); os.strerror(number)\nmade(%d)" % (base + 15)
    KEPT.append(compile(text, "<made>", "exec"))
    KEPT.append({"where": where, "os": os})
    exec(KEPT[-2], KEPT[-1])
    for number in range(base + 16, base + 20):
        # The code object of each is freed before the next is made.
        scope = {"where": where, "os": os}
        exec("def made_%d(number):\n%s    where(number); os.strerror(number)\nmade_%d(%d)"
             % (number, "\n" * (number % 7), number, number), scope)
        del scope


def main():
    print("ready", flush=True)
    sys.stdin.readline()
    all_kinds(1000)
    others = [threading.Thread(target=threading.Event().wait, daemon=True) for _ in range(5)]
    for other in others:
        other.start()
    thread = threading.Thread(target=all_kinds, args=(2000,))
    thread.start()
    thread.join()
    all_kinds(3000)
    print("done", flush=True)
    sys.stdin.readline()
    print("OK", flush=True)


main()
