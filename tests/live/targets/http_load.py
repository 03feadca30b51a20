"""A server and its clients in one process tree: `http_load.py SERVER CLIENT MODE REQUESTS CONNECTIONS FOLDER`.

SERVER is nginx, http.server or uvicorn; CLIENT python (threads of this process) or curl (a process a connection); MODE
keep-alive or close. FOLDER gets `access.log` (`METHOD PATH STATUS` by the server) and `sent.json` (port, and the same
triples as the client saw them).
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

SERVER, CLIENT, MODE = sys.argv[1:4]
REQUESTS, CONNECTIONS = int(sys.argv[4]), int(sys.argv[5])
FOLDER = Path(sys.argv[6])
LOG = FOLDER / "access.log"
NGINX = """
daemon off; worker_processes 2; user root; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 256; }}
http {{
  log_format triple '$request_method $uri $status'; access_log {folder}/access.log triple;
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
Triple = tuple[str, str, int]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def start_server(port: int) -> "subprocess.Popen[bytes]":
    if SERVER == "nginx":
        binary = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
        assert binary, "nginx is not installed"
        (FOLDER / "nginx.conf").write_text(NGINX.format(folder=FOLDER, port=port))
        command = [binary, "-p", str(FOLDER), "-c", str(FOLDER / "nginx.conf"), "-e", str(FOLDER / "error.log")]
    else:
        command = [sys.executable, str(Path(__file__).with_name("serve_http.py")), SERVER, str(port), str(LOG)]
    server = subprocess.Popen(command)
    deadline = time.monotonic() + 15
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return server
        except OSError:
            assert time.monotonic() < deadline and server.poll() is None, f"{SERVER} did not start"
            time.sleep(0.02)


def plan(number: int) -> tuple[str, str, bytes | None]:
    """Return method, path and body of a request."""
    kind = {7: "missing", 8: "broken"}.get(number % 10, "items")
    if number % 10 == 9 and CLIENT == "python":
        return "POST", f"/{kind}/{number}", b"x" * number
    return "GET", f"/{kind}/{number}", None


def run_python(port: int) -> list[Triple]:
    sent: list[Triple] = []

    def work(first: int) -> None:
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        for number in range(first, REQUESTS, CONNECTIONS):
            method, path, body = plan(number)
            client.request(method, path, body, {"Connection": "close"} if MODE == "close" else {})
            response = client.getresponse()
            response.read()
            sent.append((method, path, response.status))
            if MODE == "close":
                client.close()
        client.close()

    with ThreadPoolExecutor(CONNECTIONS) as threads:
        list(threads.map(work, range(CONNECTIONS)))
    return sent


def run_curl(port: int) -> list[Triple]:
    started = []
    for first in range(CONNECTIONS):
        paths = [plan(number)[1] for number in range(first, REQUESTS, CONNECTIONS)]
        (FOLDER / f"curl-{first}").write_text(
            "".join(f'url = "http://127.0.0.1:{port}{path}"\noutput = "/dev/null"\n' for path in paths)
        )
        command = ["curl", "-s", "-w", "GET %{url_effective} %{http_code}\n", "-K", str(FOLDER / f"curl-{first}")]
        command += ["-H", "Connection: close"] if MODE == "close" else []
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    sent = []
    for process in started:
        for line in process.communicate(timeout=30)[0].splitlines():
            method, url, status = line.split()
            sent.append((method, "/" + url.split("/", 3)[3], int(status)))
    return sent


def main() -> None:
    signal.alarm(60)
    port = free_port()
    server = start_server(port)
    try:
        sent = {"python": run_python, "curl": run_curl}[CLIENT](port)
        deadline = time.monotonic() + 5
        while len(LOG.read_text().splitlines()) < len(sent) and time.monotonic() < deadline:
            time.sleep(0.02)
    finally:
        server.send_signal(signal.SIGQUIT if SERVER == "nginx" else signal.SIGTERM)
        server.wait(10)
    (FOLDER / "sent.json").write_text(json.dumps({"port": port, "sent": sent}))


if __name__ == "__main__":
    main()
