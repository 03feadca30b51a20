"""Boots a kernel in emulation (qemu, no KVM needed) with this machine's own files, read-only, and runs a command there.

The initramfs holds busybox, the modules for virtiofs and `init`. Everything else, Python and this checkout too, is the
host's root over virtiofs at the same paths. Emulated time says nothing about speed.
"""

import lzma
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tests.vm.kernels import Kernel

VIRTIOFSD: Final = ("/usr/lib/qemu/virtiofsd", "/usr/libexec/virtiofsd")
MODULES: Final = ("virtio_pci", "virtiofs", "virtio_rng")
MEMORY_MIB: Final = 1536
INIT: Final = """#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
for module in $(cat /modules/order); do insmod /modules/$module || echo "no module $module"; done
mount -t virtiofs -o ro root /root || { echo "@@NO ROOT"; poweroff -f; }
for kind in proc sysfs:sys devtmpfs:dev; do mount -t ${kind%:*} ${kind%:*} /root/${kind#*:}; done
mount -t securityfs securityfs /root/sys/kernel/security
mount -t tracefs tracefs /root/sys/kernel/tracing
for place in tmp run dev/shm; do mkdir -p /root/$place; mount -t tmpfs tmpfs /root/$place; done
ifconfig lo 127.0.0.1 up
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp
export PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
chroot /root /bin/sh -c "exec </dev/null; $(cat /command)"
echo "@@RC $?"
poweroff -f
"""


class Result(NamedTuple):
    """What a guest said, and the exit code of its command; None: it did not get so far."""

    code: int | None
    text: str


def missing_tools() -> list[str]:
    """Return what emulation needs and this machine lacks."""
    tools = [name for name in ("qemu-system-x86_64", "busybox") if shutil.which(name) is None]
    return tools if find_virtiofsd() else [*tools, "virtiofsd"]


def find_virtiofsd() -> str | None:
    """Return the path of the daemon that shares a folder with the guest."""
    return next((path for path in VIRTIOFSD if Path(path).exists()), None)


def run_in(kernel: Kernel, command: Sequence[str], arguments: str = "", timeout_s: float = 420) -> Result:
    """Boot, run a command as root in the host's root folder, power off. `arguments`: more kernel command line.

    An emulator that says nothing at all, which happens, is started once more.
    """
    result = boot_once(kernel, command, arguments, timeout_s)
    return result if result.text.strip() else boot_once(kernel, command, arguments, timeout_s)


def boot_once(kernel: Kernel, command: Sequence[str], arguments: str, timeout_s: float) -> Result:
    """Boot once; the text is what came over the serial line, also if the time was up."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        initramfs = folder / "initramfs"
        initramfs.write_bytes(pack_initramfs(kernel, shlex.join(command)))
        with shared_root(folder / "socket"):
            argv = qemu_command(kernel, initramfs, folder / "socket", arguments)
            try:
                said = subprocess.run(
                    argv, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=timeout_s
                )
                raw = said.stdout + said.stderr
            except subprocess.TimeoutExpired as late:
                raw = late.stdout or b""
    text = raw.decode(errors="replace").replace("\r", "")
    code = re.search(r"^@@RC (\d+)$", text, re.MULTILINE)
    return Result(int(code[1]) if code else None, text)


def qemu_command(kernel: Kernel, initramfs: Path, socket: Path, arguments: str) -> list[str]:
    """Return the command line of the emulator."""
    append = f"console=ttyS0 panic=-1 loglevel=3 edd=off {arguments}"
    return [
        "qemu-system-x86_64", "-M", "q35", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2",
        "-m", str(MEMORY_MIB), "-nodefaults", "-display", "none", "-no-reboot", "-serial", "stdio",
        "-object", f"memory-backend-memfd,id=memory,size={MEMORY_MIB}M,share=on", "-numa", "node,memdev=memory",
        "-chardev", f"socket,id=share,path={socket}",
        "-device", "vhost-user-fs-pci,chardev=share,tag=root", "-device", "virtio-rng-pci",
        "-kernel", str(kernel.image), "-initrd", str(initramfs), "-append", append,
    ]  # fmt: skip


@contextmanager
def shared_root(socket: Path) -> Iterator[None]:
    """Share this machine's root folder with a guest until the end of the block."""
    daemon = find_virtiofsd()
    assert daemon is not None
    # the guest mounts it read-only; chroot as sandbox works in containers too
    command = [daemon, f"--socket-path={socket}", "-o", "source=/,sandbox=chroot,cache=always"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            while not socket.exists() and process.poll() is None:
                time.sleep(0.01)
            yield
        finally:
            process.terminate()


def pack_initramfs(kernel: Kernel, command: str) -> bytes:
    """Return an initramfs (newc) whose `init` runs a shell command in the shared root."""
    busybox = shutil.which("busybox")
    assert busybox is not None
    modules = list(ordered_modules(kernel.modules))
    files = {
        "init": INIT.encode(),
        "command": command.encode(),
        "bin/busybox": Path(busybox).read_bytes(),
        "modules/order": "".join(f"{name}\n" for name, _ in modules).encode(),
    } | {f"modules/{name}": data for name, data in modules}
    folders = ("bin", "proc", "root", "modules", "dev")
    entries = [(name, 0o40755, b"") for name in folders] + [(name, 0o100755, data) for name, data in files.items()]
    return b"".join(cpio_entry(number, *entry) for number, entry in enumerate([*entries, ("TRAILER!!!", 0, b"")]))


def cpio_entry(number: int, name: str, mode: int, data: bytes) -> bytes:
    """Return one entry of a newc archive; source: the kernel's buffer-format document on initramfs."""
    fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
    header = b"070701" + b"".join(b"%08x" % field for field in fields) + name.encode() + b"\0"
    return padded(header) + padded(data)


def padded(data: bytes) -> bytes:
    """Return data with zeros up to a multiple of 4."""
    return data + bytes(-len(data) % 4)


def ordered_modules(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield (file name, content) of the modules that virtiofs needs, what each depends on before it."""
    paths = {path.name.split(".")[0].replace("-", "_"): path for path in folder.glob("kernel/**/*.ko*")}
    seen: set[str] = set()

    def load(name: str) -> Iterator[tuple[str, bytes]]:
        if name in seen or name not in paths:  # a module that is not there is built in
            return
        seen.add(name)
        data = paths[name].read_bytes()
        if paths[name].suffix == ".xz":
            data = lzma.decompress(data)
        depends = re.search(rb"\0depends=([\w,-]*)\0", data)
        for each in depends[1].decode().replace("-", "_").split(",") if depends else ():
            yield from load(each)
        yield f"{name}.ko", data

    for name in MODULES:
        yield from load(name)
