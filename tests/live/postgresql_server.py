"""A PostgreSQL server of a test's own: a new cluster in a temporary folder, a free port, gone at the end."""

import contextlib
import pwd
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.live.conftest import free_port

BINARIES: Final = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: path.parts[4].zfill(3))
FOLDER: Final = BINARIES[-1].parent if BINARIES else None
SETTINGS: Final = {
    "log_disconnections": "on", "log_min_messages": "info", "log_line_prefix": "", "log_statement": "all",
    "fsync": "off",
    "log_destination": "stderr", "logging_collector": "off", "max_connections": "20", "ssl": "off", "jit": "off",
    "lc_messages": "C", "log_error_verbosity": "terse", "password_encryption": "scram-sha-256",
}  # fmt: skip
USER: Final = "tester"
PASSWORD: Final = "hunter2-secret"
LOGGED: Final = re.compile(r"LOG:  (?:statement|execute [^:]+): ((?:.|\n\t)*)")


class Server:
    """One that runs; `pid` is its main process."""

    def __init__(self, folder: Path, port: int, process: "subprocess.Popen[bytes]") -> None:
        self.folder = folder
        self.port = port
        self.process = process
        self.pid = process.pid
        self.sockets = str(folder)

    def url(self, unix: bool = False) -> str:
        """Return a connection string that libpq, psycopg, asyncpg and Go drivers take."""
        if unix:
            return f"postgresql://{USER}:{PASSWORD}@/postgres?host={self.sockets}&port={self.port}"
        return f"postgresql://{USER}:{PASSWORD}@127.0.0.1:{self.port}/postgres"

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def statements(self, since: int = 0) -> list[str]:
        """Return the statements that the log has, from an offset in it on."""
        lines = re.split(r"\n(?=\w+:  )", self.log()[since:])
        found = (LOGGED.match(line) for line in lines)
        return [one[1].replace("\n\t", "\n").rstrip("\n") for one in found if one]

    def sql(self, text: str) -> str:
        """Run a text with psql and return what it prints."""
        command = [FOLDER / "psql", self.url(unix=True), "-XAtqc", text]  # type: ignore[operator]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


@contextlib.contextmanager
def running_server() -> Iterator[Server]:
    """Start a server as the user `postgres`, or `nobody`; it does not run as root."""
    assert FOLDER is not None
    user = next(user for user in map(find_user, ("postgres", "nobody")) if user is not None)
    folder = Path(tempfile.mkdtemp(prefix="tracehound-pg-", dir="/tmp"))
    shutil.chown(folder, user.pw_uid, user.pw_gid)
    folder.chmod(0o755)
    become = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--"]
    secret = folder / "password"
    secret.write_text(PASSWORD)
    secret.chmod(0o644)
    try:
        subprocess.run(
            [*become, FOLDER / "initdb", "-D", folder / "data", "-U", USER, "-A", "scram-sha-256", "-E", "UTF8",
             "--locale=C", "-N", f"--pwfile={secret}"],
            check=True, capture_output=True, cwd="/", timeout=120,
        )  # fmt: skip
        port = free_port()
        options = [part for name, value in SETTINGS.items() for part in ("-c", f"{name}={value}")]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [*become, FOLDER / "postgres", "-D", folder / "data", "-p", str(port), "-k", folder,
                 "-h", "127.0.0.1", *options],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd="/",
            )  # fmt: skip
        try:
            wait_until_ready(folder, process)
            yield Server(folder, port, process)
        finally:
            process.send_signal(2)  # fast shutdown
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.send_signal(3)
                process.wait(30)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def wait_until_ready(folder: Path, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + 60
    while "ready to accept connections" not in (folder / "log").read_text():
        assert process.poll() is None and time.monotonic() < deadline, (folder / "log").read_text()
        time.sleep(0.05)


def find_user(name: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        return None
