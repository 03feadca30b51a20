"""What a target names: processes, cgroups and containers, and what is said when they are not there."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tracehound import resolve
from tracehound.errors import TargetError
from tracehound.resolve import Found, container_of, find_cgroup, near_processes
from tracehound.target import Cgroup, Command, Container, Host, Processes, describe

ID = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (f"0::/docker/{ID}", (ID, f"/docker/{ID}")),
        (f"0::/system.slice/docker-{ID}.scope", (ID, f"/system.slice/docker-{ID}.scope")),
        (f"0::/machine.slice/libpod-{ID}.scope/container", (ID, f"/machine.slice/libpod-{ID}.scope")),
        (f"4:memory:/docker/{ID}", (ID, "")),
        (f"0::/kubepods/pod1/cri-containerd-{ID}.scope/init", (ID, f"/kubepods/pod1/cri-containerd-{ID}.scope")),
        (f"0::/machine.slice/libpod-conmon-{ID}.scope", ("", "")),
        ("0::/lxc.payload.web/system.slice", ("web", "/lxc.payload.web")),
        ("0::/machine.slice/machine-db.scope/payload", ("db", "/machine.slice/machine-db.scope")),
        ("0::/system.slice/nginx.service", ("", "")),
        ("0::/", ("", "")),
    ],
)  # fmt: skip
def test_container_of_a_cgroup(line: str, expected: tuple[str, str]) -> None:
    assert container_of(line) == expected


def test_a_container_is_found_by_name_and_by_id(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = tmp_path / ID / "config.v2.json"
    config.parent.mkdir()
    config.write_text(json.dumps({"Name": "/shop-db"}))
    names = list(resolve._names_of_ids(str(tmp_path), ()))
    assert names == [(ID, "shop-db")]
    seen = {ID: resolve._Seen([os.getpid()], "")}
    monkeypatch.setattr(resolve, "_containers", lambda: seen)
    monkeypatch.setattr(resolve, "_names_of_ids", lambda: iter(names))
    for name in ("shop-db", ID, ID[:8]):
        assert resolve.resolve(Container(name)).pids == (os.getpid(),)
    with pytest.raises(TargetError, match=r"no running container shop-bd\. Running: shop-db"):
        resolve.resolve(Container("shop-bd"))


def test_near_processes_are_named() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        said = near_processes(f"{child.pid}0")
        assert f"{child.pid} (" in said
        with pytest.raises(TargetError, match=f"no process {child.pid}00000"):
            resolve.resolve(Processes((int(f"{child.pid}00000"),)))
        assert resolve.resolve(Processes((child.pid,))) == Found(pids=(child.pid,))
        child.communicate(b"\n")


@pytest.mark.parametrize(
    ("target", "text"),
    [
        (Command(("echo", "a b")), "echo 'a b'"),
        (Processes((1, 2)), "pid 1, pid 2"),
        (Cgroup("x"), "cgroup x"),
        (Container("x"), "container x"),
        (Host(), "all processes"),
    ],
)
def test_targets_have_a_name(target: Command | Processes | Cgroup | Container | Host, text: str) -> None:
    assert describe(target) == text


def test_a_cgroup_that_is_not_there_is_told_with_near_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "system.slice" / "nginx.service").mkdir(parents=True)
    monkeypatch.setattr(resolve, "cgroup_mounts", lambda: [tmp_path])
    assert find_cgroup("system.slice/nginx.service") == tmp_path / "system.slice" / "nginx.service"
    assert find_cgroup(str(tmp_path / "system.slice")) == tmp_path / "system.slice"
    with pytest.raises(TargetError, match=r"no cgroup system\.slice/nginx\. Near: .*/system\.slice/nginx\.service"):
        find_cgroup("system.slice/nginx")
    monkeypatch.setattr(resolve, "cgroup_mounts", list)
    with pytest.raises(TargetError, match="no version-2 cgroups are mounted"):
        find_cgroup("x")
