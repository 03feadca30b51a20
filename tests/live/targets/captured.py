"""Runs a command while tcpdump captures loopback: `captured.py FOLDER SNAPLENS -- COMMAND...`, in a network namespace.

For each length of SNAPLENS, divided by commas, FOLDER gets `LENGTH.pcap` with all packets of the command. Datagrams in
a capture show that it has begun, and that it has all.
"""

import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

FOLDER, SNAPLENS = Path(sys.argv[1]), sys.argv[2].split(",")
COMMAND = sys.argv[sys.argv.index("--") + 1 :]
TCPDUMP = shutil.which("tcpdump", path="/usr/sbin:/sbin:/usr/bin:/bin") or "tcpdump"


def mark(text: bytes) -> None:
    """Send datagrams to nobody until every capture holds one."""
    deadline = time.monotonic() + 60
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        while not all(text in (FOLDER / f"{length}.pcap").read_bytes() for length in SNAPLENS):
            assert time.monotonic() < deadline, "tcpdump does not write"
            sender.sendto(text, ("127.0.0.1", 9))
            time.sleep(0.05)


subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
captures = []
for length in SNAPLENS:
    file = FOLDER / f"{length}.pcap"
    file.touch()
    options = ["-Z", "root", "-B", "32768", "--immediate-mode", "-U", "-i", "lo", "-s", length, "-w", str(file)]
    captures.append(subprocess.Popen([TCPDUMP, *options], stderr=subprocess.DEVNULL))
try:
    mark(b"begin")
    code = subprocess.call(COMMAND)
    mark(b"ended")
finally:
    for capture in captures:
        capture.terminate()
    for capture in captures:
        capture.wait(20)
sys.exit(code)
