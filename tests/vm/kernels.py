"""Debian's kernels of several ages, fetched and unpacked, not installed: a private root of apt in the cache folder.

The sources are the machine's own, with other suite names, so mirror, keys and proxy are what this machine uses anyway;
nothing in /etc/apt is changed. DEBIAN_MIRROR names an archive where apt has no Debian source. Of each series the
newest version is taken whose parts are all served: an archive loses point releases.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SUITES: Final = ("bullseye", "bookworm", "bookworm-backports", "trixie", "trixie-backports", "sid")
SECURITY_SUITES: Final = ("bullseye-security", "bookworm-security")
TRIES: Final = 4  # versions of a series before it counts as not served


class NotServedError(Exception):
    """A kernel cannot be had; the text says why."""


@dataclass(frozen=True, slots=True)
class Series:
    """A line of kernels: what the newest of it is searched for with."""

    name: str
    pattern: str


SERIES: Final = (
    Series("5.10", r"5\.10\.0-\d+-cloud-amd64"),
    Series("6.1", r"6\.1\.0-\d+-cloud-amd64"),
    Series("6.12", r"6\.12\.[\d.]+\+deb\d+-cloud-amd64"),
    Series("6.18", r"6\.18\.[\d.]+(\+deb\d+)?-cloud-amd64"),
    Series("newest", r"\d+\.\d+\.[\d.]+(\+deb\d+)?-cloud-amd64"),
)


@dataclass(frozen=True, slots=True)
class Kernel:
    """An unpacked kernel: its release, its image, and the folder with its modules."""

    series: str
    release: str
    image: Path
    modules: Path


class Archive:
    """The private root of apt in `folder`; what is there already is used again."""

    def __init__(self, folder: Path) -> None:
        """Write the sources and read the lists; raises NotServedError."""
        if shutil.which("apt-get") is None:
            raise NotServedError("there is no apt-get on this machine")
        self._folder = folder
        apt = folder / "apt"
        for name in ("lists/partial", "cache/archives/partial"):
            (apt / name).mkdir(parents=True, exist_ok=True)
        sources = list(debian_sources())
        if not sources:
            raise NotServedError("apt has no source of Debian here; DEBIAN_MIRROR=URL names one")
        (apt / "sources.list").write_text("".join(f"{line}\n" for line in sources))
        (apt / "apt.conf").write_text(
            f'Dir::Etc::SourceList "{apt}/sources.list";\nDir::Etc::SourceParts "-";\n'
            f'Dir::State::Lists "{apt}/lists";\nDir::Cache "{apt}/cache";\nDir::Etc::Preferences "-";\n'
            'Dir::Etc::PreferencesParts "-";\nAcquire::Check-Valid-Until "false";\nAcquire::Languages "none";\n'
            'Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";\nAPT::Sandbox::User "root";\n'
        )
        self._environment = os.environ | {"APT_CONFIG": str(apt / "apt.conf"), "LC_ALL": "C"}
        # a suite that is gone fails the update but not the others' lists
        self._update = self._apt("apt-get", "update", "-q")
        names = self._apt("apt-cache", "pkgnames", "linux-").stdout.split()
        self._names = frozenset(names)

    def _apt(self, *command: str, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            command,
            env=self._environment,
            cwd=cwd,
            check=False,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def fetch(self, series: Series) -> Kernel:
        """Return the newest kernel of a series, fetched if it is not there; raises NotServedError."""
        found = re.compile(f"linux-image-({series.pattern})").fullmatch
        releases = sorted({hit[1] for name in self._names if (hit := found(name))}, key=version_key, reverse=True)
        if not releases:
            errors = [line for line in self._update.stdout.splitlines() if line.startswith(("E:", "Err:"))]
            reason = f"; apt: {without_address(errors[0])}" if errors else ""
            raise NotServedError(f"no suite here serves linux-image-{series.pattern}{reason}")
        said = ""
        for release in releases[:TRIES]:
            try:
                return self._unpack(series, release)
            except NotServedError as error:
                said = said or str(error)
        raise NotServedError(said)

    def _unpack(self, series: Series, release: str) -> Kernel:
        target = self._folder / release
        if not (target / "complete").exists():
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir()
            # newer kernels are cut in three, of which the image package is one or only points at them
            parts = [f"linux-{part}-{release}" for part in ("image", "binary", "modules")]
            wanted = [part for part in parts if part in self._names]
            done = self._apt("apt-get", "download", "-q", *wanted, cwd=target)
            if done.returncode:
                raise NotServedError(f"{release}: {without_address(done.stdout.strip().splitlines()[-1])}")
            for package in target.glob("*.deb"):
                subprocess.run(["dpkg-deb", "-x", package, target], check=True)
                package.unlink()
            (target / "complete").touch()
        image = next((path for path in target.glob("**/vmlinuz*") if path.is_file()), None)
        modules = next((path for path in target.glob(f"**/lib/modules/{release}") if path.is_dir()), None)
        if image is None or modules is None:
            raise NotServedError(f"{release}: its packages hold no {'vmlinuz' if image is None else 'modules'}")
        return Kernel(series.name, release, image, modules)


def version_key(release: str) -> list[int]:
    """Return what releases are ordered by: the numbers in them."""
    return [int(number) for number in re.findall(r"\d+", release)]


def without_address(line: str) -> str:
    """Return a line of apt without the archive's address."""
    return re.sub(r"https?://\S+", "(archive)", line)


def debian_sources() -> Iterator[str]:
    """Yield lines of a sources.list with the suites above, from the machine's own sources of Debian."""
    mirror = os.environ.get("DEBIAN_MIRROR")
    found = [("", mirror)] if mirror else sorted(set(own_sources()))
    for options, address in found:
        suites = SECURITY_SUITES if address.rstrip("/").endswith("-security") else SUITES
        for suite in suites:
            yield f"deb {options}{address} {suite} main"


def own_sources() -> Iterator[tuple[str, str]]:
    """Yield (options, address) of each source of Debian that apt has on this machine."""
    for path in [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*.list"))]:
        text = path.read_text() if path.exists() else ""
        for options, address in re.findall(r"^deb\s+(\[[^]]*\]\s+)?(\S+)", text, re.MULTILINE):
            if is_debian(address):
                yield options, address
    for path in sorted(Path("/etc/apt/sources.list.d").glob("*.sources")):
        for block in re.split(r"\n\s*\n", path.read_text()):
            fields = dict(re.findall(r"^([\w-]+):\s*(.*)$", block, re.MULTILINE))
            key = fields.get("Signed-By", "").strip()
            options = f"[signed-by={key}] " if key.startswith("/") else ""
            yield from ((options, address) for address in fields.get("URIs", "").split() if is_debian(address))


def is_debian(address: str) -> bool:
    """Tell whether an archive is Debian's, or Debian's security archive."""
    return address.rstrip("/").endswith(("/debian", "/debian-security"))
