"""Peers by service where each has a network namespace of its own, as containers have."""

import shutil
import sys
from pathlib import Path

import pytest
from tests.live.conftest import RunCli, rows

from tracehound.live import TableView
from tracehound.recording import Recording

SERVER, CLIENT = "10.211.0.1", "10.211.0.2"
# In a namespace of the test: a second one for the server, a pair of interfaces between the two, then a request.
SCRIPT = f"""
ip link set lo up
unshare --net sh -c 'until ip link show inside >/dev/null 2>&1; do sleep 0.05; done
  ip link set lo up; ip addr add {SERVER}/24 dev inside; ip link set inside up
  exec "$0" -u -m http.server --bind {SERVER} 8000' "$0" &
until [ "$(readlink /proc/$!/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.05; done
ip link add outside type veth peer name inside netns $!
ip addr add {CLIENT}/24 dev outside && ip link set outside up
"$0" "$1"
code=$?
kill $!
wait $!
exit $code
"""
ASK = f"""
import http.client, time
for _ in range(400):
    try:
        connection = http.client.HTTPConnection("{SERVER}", 8000, timeout=5)
        connection.request("GET", "/")
        assert connection.getresponse().status == 200
        break
    except OSError:
        time.sleep(0.05)
else:
    raise SystemExit("no answer")
"""


def test_peers_across_network_namespaces(run_cli: RunCli, tmp_path: Path) -> None:
    missing = [name for name in ("unshare", "ip") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    (tmp_path / "asker.py").write_text(ASK)
    command = ["unshare", "--net", "sh", "-c", SCRIPT, sys.executable, tmp_path / "asker.py"]
    result = run_cli("run", "--record", tmp_path / "record", "--", *command, cwd=tmp_path)
    assert result.code == 0, result.err
    found = {row["role"]: row for row in rows(TableView(Recording(tmp_path / "record"), "requests"))}
    assert {role: (row["service"], row["peer_service"]) for role, row in found.items()} == {
        "client": ("asker", "http.server"),
        "server": ("http.server", "asker"),
    }
    assert found["client"]["exchange"] == found["server"]["exchange"] is not None
