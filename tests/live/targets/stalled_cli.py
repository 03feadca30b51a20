"""The command line in a process whose Python is stuck most of the time: a thread holds the interpreter's lock.

Arguments are those of `tracehound`. Shows what happens when decode cannot follow, without any switch of the product's.
"""

import ctypes
import sys
import threading
import time

from tracehound.cli import main


def hold_the_lock() -> None:
    usleep = ctypes.PyDLL(None).usleep  # PyDLL calls with the lock held
    time.sleep(1.0)
    for _ in range(10):
        usleep(400_000)
        time.sleep(0.02)


if __name__ == "__main__":
    threading.Thread(target=hold_the_lock, daemon=True).start()
    sys.exit(main())
