"""Write `TIME_NS RSS_BYTES` of a process every 20 ms: `sample_memory.py PID FILE`; ends with it, or after 40 s."""

import os
import signal
import sys
import time

PAGE = os.sysconf("SC_PAGE_SIZE")

signal.alarm(180)
with open(sys.argv[2], "w", buffering=1) as out:
    while True:
        try:
            with open(f"/proc/{sys.argv[1]}/statm") as statm:
                pages = int(statm.read().split()[1])
        except OSError:
            break
        out.write(f"{time.monotonic_ns()} {pages * PAGE}\n")
        time.sleep(0.02)
