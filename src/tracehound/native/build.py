"""Builds what is not Python: the l7 dispatcher, the BPF objects and the native module (cffi, API mode).

Run by setup.py. Imports nothing of tracehound: it runs before tracehound exists.
"""

import os
import platform
import subprocess
from pathlib import Path

from cffi import FFI

NATIVE = Path(__file__).parent
ROOT = NATIVE.parents[2]
L7 = ROOT / "bpf" / "l7"
GENERATED = ROOT / "build" / "generated"

# C files of the native module; each X.c has its prototypes in X.h, which is also the cdef.
SOURCES = ("split", "arena", "perf", "watch", "drain", "detect", "unwind", "bpf")

CLANG_FLAGS = (
    "-O2", "-g", "-target", "bpf", "-mcpu=v3", "-Wall", "-Wextra", "-Werror", "-Wpadded",
    "-Wno-unused-parameter",  # every detector has the same ones
    "-fno-stack-protector",
)  # fmt: skip
TARGET_ARCH = {"x86_64": "x86", "aarch64": "arm64"}


def generate_l7_header(folder: Path) -> str:
    """Return the C text of the protocol enum and the dispatcher over every `l7/NAME.h` in `folder`.

    The dispatcher calls each `detect_NAME`; one strongest verdict wins, two equal ones are `L7_AMBIGUOUS`.
    """
    names = sorted(path.stem for path in folder.glob("*.h"))
    lines = [
        "/* Generated from the names in bpf/l7 by native/build.py. */",
        "#ifndef TRACEHOUND_L7_H",
        "#define TRACEHOUND_L7_H",
        "#include <linux/types.h>",
        "enum l7_match { MATCH_NO = 0, MATCH_WEAK = 1, MATCH_STRONG = 2 };",
        "enum l7_protocol {",
        "\tL7_NONE = 0,",
        "\tL7_AMBIGUOUS = 1,",
        *(f"\tL7_{name.upper()} = {number}," for number, name in enumerate(names, start=2)),
        "};",
        *(f'#include "{name}.h"' for name in names),
        "",
        "/* verdict << 8 | strength */",
        "static inline __u32 detect_l7(const __u8 *head, __u32 size, __u32 direction, __u32 transport, __u32 port)",
        "{",
        "\t__u32 verdict = L7_NONE, strength = MATCH_NO, match;",
        "",
    ]
    for name in names:
        lines += [
            f"\tmatch = detect_{name}(head, size, direction, transport, port);",
            "\tif (match > strength) {",
            "\t\tstrength = match;",
            f"\t\tverdict = L7_{name.upper()};",
            "\t} else if (match && match == strength) {",
            "\t\tverdict = L7_AMBIGUOUS;",
            "\t}",
        ]
    lines += ["\treturn verdict << 8 | strength;", "}", "#endif", ""]
    return "\n".join(lines)


def write_l7_header() -> None:
    """Write build/generated/l7.h, only if its text changed."""
    GENERATED.mkdir(parents=True, exist_ok=True)
    target, text = GENERATED / "l7.h", generate_l7_header(L7)
    if not target.exists() or target.read_text() != text:
        target.write_text(text)


def compile_bpf_objects(sources: Path, objects: Path) -> None:
    """Compile every `sources/*.bpf.c` into `objects/*.bpf.o`, without DWARF; objects without a source are removed.

    An object is whole or absent. What clang says goes to stderr; SystemExit with one line if it refuses a file.
    """
    write_l7_header()
    objects.mkdir(parents=True, exist_ok=True)
    wanted = {source.name.removesuffix(".c") + ".o": source for source in sorted(sources.glob("*.bpf.c"))}
    for stale in objects.glob("*.bpf.o"):
        if stale.name not in wanted:
            stale.unlink()
    for name, source in wanted.items():
        unfinished = objects / (name + ".tmp")
        try:
            compile_bpf_object(source, unfinished)
            unfinished.replace(objects / name)
        except FileNotFoundError as error:
            raise SystemExit(f"{error.filename} is missing; the BPF objects need clang >= 14 and llvm") from error
        except subprocess.CalledProcessError as error:
            raise SystemExit(f"{source} could not be compiled, see above") from error
        finally:
            unfinished.unlink(missing_ok=True)


def compile_bpf_object(source: Path, target: Path) -> None:
    """Compile one BPF program file; CLANG and LLVM_STRIP in the environment name other tools."""
    machine = platform.machine()
    include = [source.parent / "include", source.parent / "l7", GENERATED, f"/usr/include/{machine}-linux-gnu"]
    flags = [*CLANG_FLAGS, f"-D__TARGET_ARCH_{TARGET_ARCH[machine]}", *(f"-I{path}" for path in include)]
    subprocess.run([os.environ.get("CLANG", "clang"), *flags, "-c", str(source), "-o", str(target)], check=True)
    subprocess.run([os.environ.get("LLVM_STRIP", "llvm-strip"), "-g", str(target)], check=True)


def make_ffibuilder() -> FFI:
    """Describe the native module to cffi."""
    write_l7_header()
    ffi = FFI()
    for name in SOURCES:
        ffi.cdef((NATIVE / f"{name}.h").read_text())
    prototypes = "".join(f'#include "{name}.h"\n' for name in SOURCES)
    ffi.set_source(
        "tracehound.native._native",
        "#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n" + prototypes,
        sources=[f"src/tracehound/native/{name}.c" for name in SOURCES],
        include_dirs=[str(NATIVE), str(ROOT / "bpf" / "include"), str(L7), str(GENERATED)],
        libraries=["bpf"],
        extra_compile_args=["-O2", "-Wall", "-Wextra", "-Wno-unused-parameter", "-fvisibility=hidden", "-pthread"],
        extra_link_args=["-pthread"],
    )
    return ffi


ffibuilder = make_ffibuilder()
