"""Names: what C++, Rust and Go sources say, and the forms by which they may be called."""

import shutil
import subprocess
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracehound.symbols.demangle import demangle, names_of, without_parameters

CASES = [
    ("main", "main"),
    ("main.(*T).Method", "main.(*T).Method"),
    ("_Z3fooi", "foo(int)"),
    ("_Z3fooi@@V_1", "foo(int)@@V_1"),
    ("_ZNK4shop4Cart5totalEiPKc", "shop::Cart::total(int, char const*) const"),
    ("_Z3foov.cold", "foo() (.cold)"),
    ("_Zbad", "_Zbad"),
    ("_Z", "_Z"),
    ("_R", "_R"),
    ("_RNvCskwGfYPst2Cb_3foo3bar", "foo::bar"),
    ("_RINvCsd7U9rWHuKO9_5names5twiceyEB2_", "names::twice::<u64>"),
    ("_RNvXs_Csd7U9rWHuKO9_5namesNtB4_4CartNtB4_6Priced5price", "<names::Cart as names::Priced>::price"),
    ("_ZN5names4Cart5total17h4ab67b0b970124cbE", "names::Cart::total"),
    ("_ZN5names4Cart5total17h4ab67b0b970124cbE.llvm.8A7F", "names::Cart::total"),
    (
        "_ZN45_$LT$names..Cart$u20$as$u20$names..Priced$GT$5price17hb3006dc94dafeaa4E",
        "<names::Cart as names::Priced>::price",
    ),
    ("_ZN4core3ptr29drop_in_place$LT$$RF$bool$GT$17h0123456789abcdefE", "core::ptr::drop_in_place<&bool>"),
    ("_ZN99short17h0123456789abcdefE", "_ZN99short17h0123456789abcdefE"),
    ("_ZN1$u110000$17h0123456789abcdefE", "_ZN1$u110000$17h0123456789abcdefE"),
]


@pytest.mark.parametrize(("name", "shown"), CASES)
def test_demangled(name: str, shown: str) -> None:
    assert demangle(name) == shown


@pytest.mark.parametrize(
    ("name", "bare"),
    [
        ("foo", "foo"),
        ("foo()", "foo"),
        ("foo() (.cold)", "foo"),
        ("foo() [clone .part.0] [clone .cold]", "foo"),
        ("void foo::bar<int>(int)", "foo::bar<int>"),
        ("foo::bar::baz(int, char const*) const", "foo::bar::baz"),
        ("f(void (*)(int)) &&", "f"),
        ("unsigned long f<int (*)(char)>(int) noexcept", "f<int (*)(char)>"),
        ("main::'lambda'()::operator()() const", "main::'lambda'()::operator()"),
        ("x::operator()(int (*)(char)) const", "x::operator()"),
        ("x::operator->() const", "x::operator->"),
        ("foo::operator bool() const", "foo::operator bool"),
        ("foo::operator new(unsigned long)", "foo::operator new"),
        ("bool a::operator< <int>(int, int)", "a::operator< <int>"),
        ("(anonymous namespace)::f(int)", "(anonymous namespace)::f"),
        ("int (anonymous namespace)::f<int>((anonymous namespace)::X)", "(anonymous namespace)::f<int>"),
        ("decltype(auto) f<int>(int)", "f<int>"),
        ("operators(int)", "operators"),
        ("names::twice::<u64>", "names::twice"),
        ("<A as B<(C, D)>>::call::<(E,)>", "<A as B<(C, D)>>::call"),
        ("<A as core::fmt::Debug>::fmt", "<A as core::fmt::Debug>::fmt"),
        ("a::b::{closure#0}", "a::b::{closure#0}"),
    ],
)
def test_without_parameters(name: str, bare: str) -> None:
    assert without_parameters(name) == bare


def test_forms() -> None:
    assert names_of("qsort@@GLIBC_2.2.5") == ("qsort@@GLIBC_2.2.5", "qsort")
    assert names_of("_Z3fooi@V") == ("_Z3fooi@V", "_Z3fooi", "foo(int)", "foo")
    assert names_of("runtime.memmove.abi0") == ("runtime.memmove.abi0", "runtime.memmove")
    assert names_of("main.(*T).Method") == ("main.(*T).Method",)


@pytest.mark.skipif(not shutil.which("c++filt"), reason="binutils are not installed")
def test_as_binutils_has_them() -> None:
    """The names of libstdc++ without what two demanglers write in ways of their own."""
    from pathlib import Path

    paths = [*Path("/usr/lib").glob("*/libstdc++.so.6"), *Path("/lib").glob("*/libstdc++.so.6")]
    if not paths:
        pytest.skip("libstdc++ is not installed")
    from tracehound.symbols.elf import Elf

    symbols = Elf.open(paths[0]).symbols
    names = sorted({symbols.name(at).partition("@")[0] for at in range(len(symbols))})
    names = [name for name in names if name.startswith("_ZN") and "S" not in name][:500]
    shown = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True)
    same = [demangle(name) == line for name, line in zip(names, shown.stdout.splitlines(), strict=True)]
    assert len(same) > 50
    assert sum(same) > 0.9 * len(same)


def bomb(levels: int) -> str:
    """Return a C++ name whose every part is the one before three times."""
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return "_Z1f1PI1aS0_S0_E" + "".join(f"S_I{3 * f'S{digits[at + 1]}_'}E" for at in range(levels))


def test_names_that_grow() -> None:
    assert len(demangle(bomb(7))) > 40_000
    assert demangle(bomb(8)) == bomb(8)
    began = time.monotonic()
    assert demangle(bomb(30)) == bomb(30)
    assert demangle("_Z1f" + "P" * 100_000 + "i") == "_Z1f" + "P" * 100_000 + "i"
    assert len(demangle("_Z1f" + "P" * 4000 + "i")) > 4000
    assert time.monotonic() - began < 10


@given(st.sampled_from([name for name, _ in CASES]), st.data())
def test_damaged_names(name: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(name)))
    text = name[:at] + data.draw(st.text(max_size=6)) + name[at + data.draw(st.integers(0, 6)) :]
    for form in (*names_of(text), without_parameters(text)):
        assert isinstance(form, str)


@given(st.text(alphabet="ab:<>()[]{} *&,-operatoconst.", max_size=60))
def test_any_text_has_a_bare_form(text: str) -> None:
    assert len(without_parameters(text)) <= len(text)
