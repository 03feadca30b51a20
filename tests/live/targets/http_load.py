"""A server and its clients in one process tree: `http_load.py SERVER CLIENTS MODE REQUESTS CONNECTIONS FOLDER`.

SERVER is nginx, haproxy (before an nginx), http.server, uvicorn, aiohttp, gunicorn, node or go. CLIENTS, divided by
commas, one after another: python (threads of this process), curl (a process a connection), requests, httpx, aiohttp,
node, go. MODE is keep-alive, close or mixed (every other connection). REQUESTS is for each client. FOLDER holds the
binary `http_go` where go is asked for; it gets `access.log` (`METHOD PATH STATUS` by the server), `proxy.log` (the same
by haproxy) and `sent.json` (port, nginx's port behind haproxy, and for each client the same triples as it saw them).
"""

import http.client
import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

SERVER, CLIENTS, MODE = sys.argv[1], sys.argv[2].split(","), sys.argv[3]
REQUESTS, CONNECTIONS = int(sys.argv[4]), int(sys.argv[5])
FOLDER = Path(sys.argv[6])
LOG = FOLDER / "access.log"
NGINX = """
daemon off; worker_processes 2; user root; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 256; }}
http {{
  log_format triple '$request_method $request_uri $status'; access_log {folder}/access.log triple;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  server {{
    listen 127.0.0.1:{port};
    location /items/ {{ if ($request_method = POST) {{ return 201 "made $uri\\n"; }} return 200 "here is $uri\\n"; }}
    location /missing/ {{ return 404; }}
    location /broken/ {{ return 503; }}
  }}
}}
"""
HAPROXY = """
global
  log stdout format raw local0
defaults
  mode http
  log global
  log-format "%HM %HP %ST"
  option http-ignore-probes
  timeout connect 5s
  timeout client 20s
  timeout server 20s
listen proxy
  bind 127.0.0.1:{port}
  server nginx 127.0.0.1:{behind}
"""
HERE = Path(__file__).parent
Triple = tuple[str, str, int]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def installed(name: str) -> str:
    path = shutil.which(name, path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    assert path, f"{name} is not installed"
    return path


def nginx(port: int) -> list[str]:
    (FOLDER / "nginx.conf").write_text(NGINX.format(folder=FOLDER, port=port))
    return [installed("nginx"), "-p", str(FOLDER), "-c", str(FOLDER / "nginx.conf"), "-e", str(FOLDER / "error.log")]


def gunicorn(port: int) -> list[str]:
    options = ["--bind", f"127.0.0.1:{port}", "--workers", "2", "--threads", "4", "--keep-alive", "20"]
    options += ["--access-logfile", str(LOG), "--access-logformat", "%(m)s %(U)s %(s)s", "--log-level", "warning"]
    return [sys.executable, "-m", "gunicorn", *options, "--chdir", str(HERE), "serve_wsgi:application"]


def command_of(server: str, port: int) -> list[str]:
    match server:
        case "nginx":
            return nginx(port)
        case "gunicorn":
            return gunicorn(port)
        case "node":
            return ["node", str(HERE / "http_node.js"), "serve", str(port), str(LOG)]
        case "go":
            return [str(FOLDER / "http_go"), "serve", str(port), str(LOG)]
        case _:
            return [sys.executable, str(HERE / "serve_http.py"), server, str(port), str(LOG)]


def start(name: str, command: list[str], port: int, **streams: Any) -> "subprocess.Popen[bytes]":
    server = subprocess.Popen(command, **streams)
    deadline = time.monotonic() + 15
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return server
        except OSError:
            assert time.monotonic() < deadline and server.poll() is None, f"{name} did not start"
            time.sleep(0.02)


def start_servers(port: int, behind: int) -> "list[subprocess.Popen[bytes]]":
    """Start the server, or the proxy and the one behind it."""
    if SERVER != "haproxy":
        return [start(SERVER, command_of(SERVER, port), port)]
    (FOLDER / "haproxy.conf").write_text(HAPROXY.format(port=port, behind=behind))
    command = [installed("haproxy"), "-db", "-f", str(FOLDER / "haproxy.conf")]
    with (FOLDER / "proxy.log").open("wb") as log:
        return [start("nginx", nginx(behind), behind), start("haproxy", command, port, stdout=log)]


def plan(client: str, first: int) -> list[tuple[str, str, int | None]]:
    """Return method, path and size of body of each request of a connection."""
    requests: list[tuple[str, str, int | None]] = []
    for number in range(first, REQUESTS, CONNECTIONS):
        kind = {7: "missing", 8: "broken"}.get(number % 10, "items")
        is_post = number % 10 == 9 and client != "curl"
        requests.append(("POST" if is_post else "GET", f"/{kind}/{client}/{number}", number if is_post else None))
    return requests


def closes(connection: int) -> bool:
    """Return whether each request of a connection gets one of its own."""
    return MODE == "close" or (MODE == "mixed" and connection % 2 == 1)


def run_python(port: int) -> list[Triple]:
    sent: list[Triple] = []

    def work(first: int) -> None:
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        for method, path, size in plan("python", first):
            body = None if size is None else b"x" * size
            client.request(method, path, body, {"Connection": "close"} if closes(first) else {})
            response = client.getresponse()
            response.read()
            sent.append((method, path, response.status))
            if closes(first):
                client.close()
        client.close()

    with ThreadPoolExecutor(CONNECTIONS) as threads:
        list(threads.map(work, range(CONNECTIONS)))
    return sent


def curl(port: int, connection: int) -> list[str]:
    config = FOLDER / f"curl-{connection}"
    paths = [path for _, path, _ in plan("curl", connection)]
    config.write_text("".join(f'url = "http://127.0.0.1:{port}{path}"\noutput = "/dev/null"\n' for path in paths))
    command = ["curl", "-s", "--noproxy", "*", "-w", "GET %{url_effective} %{http_code}\n", "-K", str(config)]
    return [*command, "-H", "Connection: close"] if closes(connection) else command


def run_programs(client: str, port: int) -> list[Triple]:
    plans = FOLDER / f"plan-{client}"
    connections = range(CONNECTIONS)
    plans.write_text(
        json.dumps([{"close": closes(number), "requests": plan(client, number)} for number in connections])
    )
    commands = {
        "curl": [curl(port, number) for number in connections],
        "node": [["node", str(HERE / "http_node.js"), "call", str(port), str(plans)]],
        "go": [[str(FOLDER / "http_go"), "call", str(port), str(plans)]],
    }.get(client, [[sys.executable, str(HERE / "call_http.py"), client, str(port), str(plans)]])
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    sent = []
    for process in started:
        for line in process.communicate(timeout=30)[0].splitlines():
            method, url, status = line.split()
            sent.append((method, url.removeprefix(f"http://127.0.0.1:{port}"), int(status)))
        assert process.returncode == 0, f"{client} ended with {process.returncode}"
    return sent


def wait_for_logs(requests: int) -> None:
    """Some servers log a request after its response."""
    deadline = time.monotonic() + 5
    for log in [LOG, FOLDER / "proxy.log"] if SERVER == "haproxy" else [LOG]:
        while len(log.read_text().splitlines()) < requests and time.monotonic() < deadline:
            time.sleep(0.02)


def main() -> None:
    signal.alarm(60)
    port, behind = free_port(), free_port()
    servers = start_servers(port, behind)
    try:
        sent = {client: run_python(port) if client == "python" else run_programs(client, port) for client in CLIENTS}
        wait_for_logs(sum(map(len, sent.values())))
    finally:
        for server in servers:
            server.send_signal(signal.SIGQUIT if SERVER == "nginx" else signal.SIGTERM)
            server.wait(10)
    (FOLDER / "sent.json").write_text(json.dumps({"port": port, "behind": behind, "sent": sent}))


if __name__ == "__main__":
    main()
