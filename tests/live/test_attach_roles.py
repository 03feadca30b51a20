"""Who opened a connection that is joined in mid-stream, also when nobody listens any more: so its stream begins."""

import json
import subprocess
import sys

import pytest
from tests.live.conftest import rows
from tests.live.test_attach import line_of, say

import tracehound

TARGET = """
import json, socket, sys
sent_by_client, sent_by_server, ending = json.loads(sys.argv[1])
def move(one, other, size):
    one.sendall(bytes(size))
    while size:
        size -= len(other.recv(size))
with socket.create_server(("127.0.0.1", 0)) as listener:
    client = socket.create_connection(listener.getsockname())
    server, _ = listener.accept()
move(client, server, sent_by_client)
move(server, client, sent_by_server)
print(client.getsockname()[1], flush=True)
sys.stdin.readline()
move(client, server, 7)
move(server, client, 9)
if ending == "server first":
    server.close()
"""


@pytest.mark.parametrize(
    ("sent_by_client", "sent_by_server"),
    [(0, 0), (1, 0), (0, 1), (1, 1), (5, 0), (100_000, 3), (3, 100_000), (1_000_000, 1_000_000)],
)
@pytest.mark.parametrize("ending", ["together", "server first"])
def test_roles_and_bytes_without_a_listener(sent_by_client: int, sent_by_server: int, ending: str) -> None:
    arguments = json.dumps([sent_by_client, sent_by_server, ending])
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", TARGET, arguments], stdin=pipe, stdout=pipe, text=True) as process:
        port = int(line_of(process.stdout))
        with tracehound.trace(pid=process.pid) as trace:
            say(process)
            trace.wait(20)
        process.communicate()
    assert rows(trace.losses) == []
    found = {(row["role"], row["event"]): (row["bytes_sent"], row["bytes_received"]) for row in rows(trace.connections)}
    assert found == {
        ("client", "snapshot"): (sent_by_client, sent_by_server),
        ("server", "snapshot"): (sent_by_server, sent_by_client),
        ("client", "close"): (sent_by_client + 7, sent_by_server + 9),
        ("server", "close"): (sent_by_server + 9, sent_by_client + 7),
    }
    clients = {row["local_port"] for row in rows(trace.connections) if row["role"] == "client"}
    assert clients == {port}
