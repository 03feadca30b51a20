"""The table of system calls: whole, of one mind with the headers of this machine, found by names and groups."""

import platform
import re
from pathlib import Path

import pytest

from tracehound.enrich.secrets import is_secret_name
from tracehound.errors import UsageError
from tracehound.syscalls import Hit, calls, find_calls, numbers, plan, render
from tracehound.syscalls.flags import flags_text, name_text

HEADER = Path(f"/usr/include/{platform.machine()}-linux-gnu/asm/unistd_64.h")


def test_every_call_has_a_number_on_one_of_the_machines() -> None:
    both = numbers("x86_64").keys() | numbers("aarch64").keys()
    assert both == calls().keys()
    assert len(calls()) > 380
    assert (numbers("x86_64")["openat"], numbers("aarch64")["openat"]) == (257, 56)
    assert "open" not in numbers("aarch64")


@pytest.mark.skipif(not HEADER.exists(), reason=f"no {HEADER}")
def test_numbers_are_those_of_the_header() -> None:
    known = dict(re.findall(r"#define __NR_(\w+) (\d+)", HEADER.read_text()))
    ours = numbers("x86_64")
    assert {name: ours.get(name) for name in known} == {name: int(number) for name, number in known.items()}


@pytest.mark.parametrize("name", sorted(calls()))
def test_every_call_can_be_planned_and_shown(name: str) -> None:
    call = calls()[name]
    assert len(call.arguments) <= 6
    for with_data in (True, False):
        made = plan(call, 32, with_data, paths=True)
        assert len(made.operations) <= 32
        assert all(len(each) == 24 for each in made.operations)
    assert not [each.name for each in call.arguments if is_secret_name(each.name)], "its value would be blanked"
    for registers in ((0,) * 6, tuple(range(1, 7)), ((1 << 64) - 1,) * 6):
        for result in (0, 1, -1, -512, -4096, None):
            shown = render(call, Hit(registers, result=result))
            assert all(isinstance(text, str) and text for _, _, text in shown.arguments)
            hidden = render(call, Hit(registers, result=result, shows_data=False))
            assert len(hidden.arguments) == len(shown.arguments)


def test_bytes_of_any_length_are_shown_or_not_but_never_break() -> None:
    for call in calls().values():
        for size in (0, 1, 3, 8, 17, 47, 64):
            pieces: dict[tuple[int, int, str], bytes] = {}
            for phase, places in enumerate(plan(call, 8, True, True).pieces):
                pieces |= {(phase, argument, part): (b"\xff\x01" * 64)[:size] for argument, part in places}
            given = {key: (data, False) for key, data in pieces.items() if not (key[2] == "fd" and not data)}
            render(call, Hit((7,) * 6, given, result=3, limit=8))


def names(text: str) -> list[str]:
    return [call.name for call in find_calls(text)]


def test_calls_are_found() -> None:
    here = numbers()
    assert names("openat") == ["openat"]
    assert set(names("get*id,!getpid")) >= {"getuid", "gettid"} and "getpid" not in names("get*id,!getpid")
    assert "openat" in names("%file") and "read" not in names("%file")
    assert {"read", "openat", "epoll_wait"} <= set(names("%desc"))
    assert {"connect", "accept4", "recvmsg"} <= set(names("%network")) and names("%net") == names("%network")
    assert {"clone", "execve", "exit_group", "wait4"} <= set(names("%process"))
    assert {"mmap", "brk", "shmat"} <= set(names("%memory"))
    assert {"rt_sigaction", "kill"} <= set(names("%signal"))
    assert {"semop", "msgget", "shmctl"} <= set(names("%ipc"))
    assert len(names("all")) == len(here)
    assert names("%epoll") == [name for name in calls() if name.startswith("epoll_") and name in here]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("opnat", "no system call opnat. Near: openat"),
        ("%fil", "no group %fil of system calls. Near: %file"),
        ("%zzz", "There are: %file, %desc, %process"),
        ("", "sys: names no system call"),
        ("openat,!openat", "names no system call"),
        ("no*such", "no system call no*such"),
    ],
)
def test_what_is_not_there(text: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        find_calls(text)
    assert said in str(error.value)


def test_flags_and_names() -> None:
    assert flags_text("prot", 0) == "PROT_NONE"
    assert flags_text("prot", 5) == "PROT_READ|PROT_EXEC"
    assert flags_text("open", 0o4010000) == "O_SYNC" if platform.machine() == "x86_64" else True
    assert flags_text("epoll", 0x80000001) == "EPOLLIN|EPOLLET"
    assert flags_text("msg", 0x4040) == "MSG_DONTWAIT|MSG_NOSIGNAL"
    assert flags_text("prot", 0x1000001) == "PROT_READ|PROT_GROWSDOWN"
    assert flags_text("prot", 0x800001) == "PROT_READ|0x800000"
    assert flags_text("prot", 0x800000) == "0x800000 /* PROT_??? */"
    assert name_text("seek", 2) == "SEEK_END"
    assert name_text("seek", 9) == "0x9 /* SEEK_??? */"
