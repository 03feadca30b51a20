"""Many short processes: `fork_storm.py COUNT RESULT`. RESULT gets (pid, when it was known to run) of each child."""

import json
import os
import signal
import sys
import time

signal.alarm(90)
COUNT = int(sys.argv[1])
found = []
print(os.getpid(), flush=True)
for number in range(COUNT):
    child = os.fork()
    if child == 0:
        if number % 4 == 0:
            os.execv("/bin/true", ["true", str(number)])
        os._exit(number % 3)
    found.append((child, time.monotonic_ns()))
    os.waitpid(child, 0)
with open(sys.argv[2] + ".unfinished", "w") as result:
    json.dump(found, result)
os.rename(sys.argv[2] + ".unfinished", sys.argv[2])
time.sleep(1)
