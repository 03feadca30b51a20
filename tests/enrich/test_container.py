"""Paths of cgroups in, containers out."""

import pytest
from tests.enrich.rows import column, table

from tracehound.enrich.container import Containers, container_id

ID = "0123456789abcdef" * 4
OTHER = "f" * 64


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (f"/docker/{ID}", ID),
        (f"/system.slice/docker-{ID}.scope", ID),
        (f"/kubepods.slice/kubepods-pod1.slice/cri-containerd-{ID}.scope", ID),
        (f"/kubepods/besteffort/pod0a1b/{ID}", ID),
        (f"/system.slice/containerd.service/kubepods-burstable-pod1.slice:cri-containerd:{ID}", ID),
        (f"/kubepods.slice/crio-{ID}.scope", ID),
        (f"/kubepods.slice/crio-{ID}.scope/container", ID),
        (f"/machine.slice/libpod-{ID}.scope/container", ID),
        (f"/machine.slice/libpod-conmon-{ID}.scope", None),
        (f"/kubepods.slice/crio-conmon-{ID}.scope", None),
        (f"/docker/{ID}/docker/{OTHER}/init.scope", OTHER),
        (f"/docker/{ID}0", None),
        (f"/x{ID}", None),
        ("/user.slice/user-0.slice/session-1.scope", None),
        ("/", None),
        ("", None),
        (None, None),
    ],
)
def test_container_id(path: str | None, expected: str | None) -> None:
    assert container_id(path) == expected


def test_a_path_holds_from_its_fact_on() -> None:
    containers = Containers()
    facts = table(
        "fact_cgroup", {"time_ns": 10, "id": 77, "path": f"/docker/{ID}"}, {"time_ns": 11, "id": 78, "path": "/user"}
    )
    rows = table(
        "processes",
        *({"time_ns": at, "cgroup_id": number} for at, number in ((9, 77), (10, 77), (20, 78), (20, 79), (20, None))),
    )
    found = containers.add({"fact_cgroup": facts, "processes": rows})
    assert column(found, "processes", "cgroup", "container") == [
        (None, None), (f"/docker/{ID}", ID), ("/user", None), (None, None), (None, None),
    ]  # fmt: skip
    later = containers.add({"processes": table("processes", {"time_ns": 99, "cgroup_id": 77})})
    assert column(later, "processes", "container") == [ID]
