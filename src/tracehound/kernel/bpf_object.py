"""One compiled BPF object: open, configure, load without what the kernel refuses, attach.

Stands on libbpf (through the native module). An object whose program the kernel refuses is opened again without it, so
one refusal does not take the others down; why each was refused is kept.
"""

import errno as errno_names
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tracehound.btf import OBJECTS, Btf
from tracehound.errors import AttachError, LoadError, PermissionDenied
from tracehound.native import ffi, lib

# How libbpf names the program it could not load, and the lines around it that say nothing to a reader.
FAILED_PROGRAM = re.compile(
    r"libbpf: prog '([^']+)': (?:BPF program load failed|failed to (?:load|find|prepare|auto-attach))"
)
NOISE = re.compile(
    r"^libbpf: (failed to load (object|program)|prog '[^']+': (-- |failed to load))|(^|: )-- (BEGIN|END) PROG LOAD LOG"
    r"|^processed \d+ insns|^(stack depth|verification time)|^\s*$"
)
CAPABILITIES = (
    "cannot load BPF programs: CAP_BPF and CAP_PERFMON are missing. Run with sudo, or give them to the interpreter: "
    "setcap cap_bpf,cap_perfmon,cap_net_admin,cap_sys_ptrace,cap_sys_resource+ep {executable}"
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a program was not loaded: one line for people, and all that was said."""

    program: str
    reason: str
    log: str = field(repr=False, default="")


class ProgramRuns(NamedTuple):
    """What the kernel counted of a program: runs and time are 0 unless it counts them (kernel.bpf_stats_enabled)."""

    hits: int
    misses: int  # runs left out because the program was running on that CPU
    run_time_ns: int


@dataclass(frozen=True, slots=True)
class ObjectOptions:
    """What is set before an object is loaded.

    `config`: value of each `const volatile` variable, by name; variables that the object lacks are left out.
    `sizes`: max_entries by map name. `shared`: descriptors of maps that already exist, by map name. `attach_types`: the
    attach type that a program is loaded for, by its name, where that is not the one of its section.
    """

    config: Mapping[str, int] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    shared: Mapping[str, int] = field(default_factory=dict)
    btf_path: str | None = None
    attach_types: Mapping[str, int] = field(default_factory=dict)


class BpfObject:
    """A loaded object; owns its programs, its links and its maps. A context manager: leaving it undoes everything."""

    def __init__(self, name: str, options: ObjectOptions) -> None:
        """Load `name`.bpf.o; raises LoadError if nothing of it can be loaded, PermissionDenied without the rights."""
        self.name = name
        self.refusals: list[Refusal] = []
        self._image = (OBJECTS / f"{name}.bpf.o").read_bytes()
        self._links: dict[str, Any] = {}
        self._object: Any = self._load(options)
        self.maps = {
            ffi.string(lib.bpf_map__name(each)).decode(): lib.bpf_map__fd(each) for each in _maps(self._object)
        }

    def _load(self, options: ObjectOptions) -> Any:
        while True:
            opened = self._open(options)
            status = lib.bpf_object__load(opened)
            log = take_log()
            if status == 0:
                return opened
            lib.bpf_object__close(opened)
            if -status == errno_names.EPERM and not can_load_bpf():
                raise PermissionDenied(CAPABILITIES.format(executable=os.path.realpath("/proc/self/exe")), -status)
            failed = FAILED_PROGRAM.findall(log)
            known = {refusal.program for refusal in self.refusals}
            if not failed or failed[-1] in known:
                raise LoadError(
                    f"cannot load {self.name}.bpf.o: {first_line(log) or os.strerror(-status)}", -status, log
                )
            self.refusals.append(Refusal(failed[-1], explain(log, -status), log))

    def _open(self, options: ObjectOptions) -> Any:
        btf_path = options.btf_path.encode() if options.btf_path else ffi.NULL
        opened = lib.bpf_open(self._image, len(self._image), self.name.encode(), btf_path)
        if not opened:
            code = ffi.errno
            raise LoadError(f"cannot read {self.name}.bpf.o: {os.strerror(code)}", code, take_log())
        skipped = {refusal.program for refusal in self.refusals}
        for program in _programs(opened):
            if program_name(program) in skipped:
                lib.bpf_program__set_autoload(program, False)
            if program_name(program) in options.attach_types:
                lib.bpf_program__set_expected_attach_type(program, options.attach_types[program_name(program)])
        for each in _maps(opened):
            map_name = ffi.string(lib.bpf_map__name(each)).decode()
            if map_name in options.shared:
                lib.bpf_map__reuse_fd(each, options.shared[map_name])
            elif map_name in options.sizes:
                lib.bpf_map__set_max_entries(each, options.sizes[map_name])
            elif map_name.endswith(".rodata"):
                self._write_config(opened, each, options.config)
        return opened

    @staticmethod
    def _write_config(opened: Any, rodata: Any, config: Mapping[str, int]) -> None:
        size = ffi.new("size_t *")
        value = ffi.buffer(lib.bpf_map__initial_value(rodata, size), size[0])
        btf_size = ffi.new("uint32_t *")
        raw = lib.bpf_object_btf(opened, btf_size)
        variables = Btf(bytes(ffi.buffer(raw, btf_size[0]))).variables(".rodata")
        for name, (offset, length) in variables.items():
            if name in config:
                value[offset : offset + length] = int(config[name]).to_bytes(length, "little")

    def programs(self) -> list[str]:
        """Names of the programs that were loaded."""
        refused = {refusal.program for refusal in self.refusals}
        return [name for name in map(program_name, _programs(self._object)) if name not in refused]

    def program_fd(self, name: str) -> int:
        """Return the descriptor of a loaded program."""
        return next(int(lib.bpf_program__fd(p)) for p in _programs(self._object) if program_name(p) == name)

    def runs(self, name: str) -> ProgramRuns:
        """Return the kernel's own account of a loaded program; source: its fdinfo."""
        text = Path(f"/proc/self/fdinfo/{self.program_fd(name)}").read_text()
        fields = dict(line.split(":", 1) for line in text.splitlines())
        return ProgramRuns(*(int(fields.get(field, 0)) for field in ("run_cnt", "recursion_misses", "run_time_ns")))

    def attach(self, name: str) -> None:
        """Attach one loaded program where its section says, unless it is; raises AttachError."""
        if name in self._links:
            return
        program = next(each for each in _programs(self._object) if program_name(each) == name)
        link = lib.bpf_program__attach(program)
        if not link:
            code = ffi.errno
            section = ffi.string(lib.bpf_program__section_name(program)).decode()
            log = take_log()
            raise AttachError(f"cannot attach {name} to {section}: {first_line(log) or os.strerror(code)}", code)
        self._links[name] = link

    def attach_at(self, name: str, path: str, offset: int, cookie: int) -> Any:
        """Attach one loaded uprobe program at an offset of a file; return the link, which is the caller's."""
        program = next(each for each in _programs(self._object) if program_name(each) == name)
        link = lib.bpf_attach_point(program, os.fsencode(path), offset, cookie)
        if not link:
            code = ffi.errno
            log = take_log()
            raise AttachError(
                f"cannot attach {name} to {path}:{offset:#x}: {first_line(log) or os.strerror(code)}", code
            )
        return link

    def open_iterator(self, name: str) -> int:
        """Return a new descriptor of what one loaded iterator program lists; raises AttachError."""
        program = next(each for each in _programs(self._object) if program_name(each) == name)
        fd = int(lib.bpf_open_iterator(program))
        if fd < 0:
            log = take_log()
            raise AttachError(f"cannot run the iterator {name}: {first_line(log) or os.strerror(-fd)}", -fd)
        return fd

    def attached(self) -> list[str]:
        """Names of the programs that are attached."""
        return list(self._links)

    def detach(self, name: str) -> None:
        """Destroy a program's link, if it has one; its maps stay readable."""
        link = self._links.pop(name, None)
        if link:
            lib.bpf_link__destroy(link)

    def close(self) -> None:
        """Detach and unload; idempotent."""
        for name in self.attached():
            self.detach(name)
        if self._object:
            lib.bpf_object__close(self._object)
            self._object = None

    def __enter__(self) -> "BpfObject":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _programs(opened: Any) -> list[Any]:
    found: list[Any] = []
    while each := lib.bpf_object__next_program(opened, found[-1] if found else ffi.NULL):
        found.append(each)
    return found


def _maps(opened: Any) -> list[Any]:
    found: list[Any] = []
    while each := lib.bpf_object__next_map(opened, found[-1] if found else ffi.NULL):
        found.append(each)
    return found


def program_name(program: Any) -> str:
    """Return the name of a libbpf program."""
    return str(ffi.string(lib.bpf_program__name(program)).decode())


def take_log() -> str:
    """Return, and forget, what libbpf has said in this thread."""
    room = 1 << 18
    text = ffi.new("char[]", room)
    return bytes(ffi.buffer(text, lib.bpf_take_log(text, room))).decode(errors="replace")


def first_line(log: str) -> str:
    """Return the first line of a libbpf log that says something."""
    lines = (line for line in log.splitlines() if not NOISE.match(line))
    return next(lines, "").removeprefix("libbpf: ").strip()


def explain(log: str, code: int) -> str:
    """Return why the last program in a libbpf log was refused: the verifier's last words, else libbpf's."""
    lines = [line.strip() for line in log.splitlines() if not NOISE.match(line)]
    verifier = [line for line in lines if not line.startswith("libbpf:")]
    said = verifier[-1] if verifier else (lines[0].removeprefix("libbpf: ") if lines else "")
    return f"{said or os.strerror(code)} ({errno_names.errorcode.get(code, code)})"


def effective_capabilities() -> int:
    """Return the capabilities that this process has in effect, as a mask; source: capabilities(7)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return int(line.split()[1], 16)
    return 0


def can_load_bpf() -> bool:
    """Tell whether this process has CAP_BPF and CAP_PERFMON, or CAP_SYS_ADMIN, in effect."""
    effective = effective_capabilities()
    sys_admin, perfmon, bpf = (effective >> bit & 1 for bit in (21, 38, 39))
    return bool(sys_admin or (perfmon and bpf))
