"""What /proc says of a process, read of processes that the tests start."""

import os
import shutil
import subprocess
from pathlib import Path

from tracehound.procfs import read_process


def test_names_need_not_be_utf8(tmp_path: Path) -> None:
    program = os.fsencode(tmp_path) + b"/sl\xffeep"
    shutil.copy(b"/bin/sleep", program)
    with subprocess.Popen([program, b"5"], env={"OTEL_SERVICE_NAME": "x"}) as process:
        found = read_process(process.pid)
        process.kill()
    assert found is not None
    assert found.exe == program and found.argv == program + b"\x005\0" and found.service == b"x"


def test_a_process_that_is_gone_is_none() -> None:
    process = subprocess.Popen(["/bin/true"])
    process.wait()
    assert read_process(process.pid) is None
