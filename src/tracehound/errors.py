"""The exceptions that Tracehound raises.

TracehoundError
|- KernelError            keeps errno
|  |- NotSupported        names the feature and what would enable it
|  |- PermissionDenied    names the capability
|  |- LoadError           the lines of the verifier that matter; the whole log in .log
|  `- AttachError         names the program and the target
|- UsageError             options that do not go together, a bad setting
|- QueryError             SQL that DuckDB refuses: the place in the text
|- TargetError            no such command, process, cgroup, container, symbol, offset
|- LayoutError            a type or member that the BTF lacks, or that a record may not have
|- ProtocolError          bytes that break a protocol; counted in decode, never seen above it
|- RecordingError         a recording or tape that is damaged or of another version
`- SinkError              an output that cannot be written
"""


class TracehoundError(Exception):
    """Whatever Tracehound cannot do; the message says what was tried, on what, and what to do."""


class KernelError(TracehoundError):
    """The kernel refused something; `errno` is its number, 0 if it gave none."""

    def __init__(self, message: str, errno: int = 0) -> None:
        super().__init__(message)
        self.errno = errno


class NotSupported(KernelError):  # noqa: N818 - the name DESIGN.md gives
    """The running kernel lacks a feature."""


class PermissionDenied(KernelError):  # noqa: N818
    """A capability is missing."""


class LoadError(KernelError):
    """A BPF object or program was refused; `log` holds all that libbpf and the verifier said."""

    def __init__(self, message: str, errno: int = 0, log: str = "") -> None:
        super().__init__(message, errno)
        self.log = log


class AttachError(KernelError):
    """A BPF program could not be attached."""


class UsageError(TracehoundError):
    """Options that do not go together, or a setting that cannot be."""


class QueryError(TracehoundError):
    """SQL that DuckDB refuses."""


class TargetError(TracehoundError):
    """What was to be traced is not there; `exit_code` is what a shell gives: 127 not found, 126 not executable."""

    def __init__(self, message: str, exit_code: int = 2) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class LayoutError(TracehoundError):
    """A record type or member that the BTF lacks, or that a record may not have."""


class ProtocolError(TracehoundError):
    """Bytes that break a protocol."""


class RecordingError(TracehoundError):
    """A recording that is damaged or of another version."""


class SinkError(TracehoundError):
    """An output that cannot be written."""
