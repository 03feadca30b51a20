"""What /proc says of a process, read of processes that the tests start."""

import os
import shutil
import subprocess
from pathlib import Path

from tracehound.procfs import read_process


def test_names_need_not_be_utf8(tmp_path: Path) -> None:
    program = os.fsencode(tmp_path) + b"/c\xffat"
    shutil.copy(b"/bin/cat", program)
    pipe = subprocess.PIPE
    with subprocess.Popen([program, b"-"], env={"OTEL_SERVICE_NAME": "x"}, stdin=pipe, stdout=pipe) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(b"x")
        process.stdin.flush()
        # It answers, so its execve has ended: before that, /proc shows its new exe with no arguments.
        assert process.stdout.read(1) == b"x"
        found = read_process(process.pid)
        process.kill()
    assert found is not None
    assert found.exe == program and found.argv == program + b"\0-\0" and found.service == b"x"


def test_a_process_that_is_gone_is_none() -> None:
    process = subprocess.Popen(["/bin/true"])
    process.wait()
    assert read_process(process.pid) is None
