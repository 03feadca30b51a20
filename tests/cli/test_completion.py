"""Shell completion: the scripts know every command and option, and complete as they should where the shell is there."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tracehound import cli
from tracehound.cli._shells import SHELLS

OPTIONS = {
    (name, flag)
    for name, (_, parser) in cli.all_parsers()[1].items()
    for action in parser._actions
    for flag in action.option_strings
}


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.main(["completion", shell]) == 0
    return capsys.readouterr().out


def needs(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_knows_every_command_and_option(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = script(shell, capsys)
    assert "@" not in re.sub(r'"\$@"|\[@\]', "", text)
    assert len(OPTIONS) > 20
    for name, flag in OPTIONS:
        spelled = f"-l {flag[2:]} " if shell == "fish" and flag.startswith("--") else flag
        spelled = f"-s {flag[1:]} " if shell == "fish" and not flag.startswith("--") else spelled
        assert any(spelled in f"{line} " for line in text.splitlines() if re.search(rf"\b{name}\b", line)), (name, flag)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_is_one_that_its_shell_can_read(
    shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    needs(shell)
    path = tmp_path / "script"
    path.write_text(script(shell, capsys))
    found = subprocess.run([shell, "-n", path], check=False, capture_output=True, text=True)
    assert (found.returncode, found.stderr) == (0, "")


def complete_in_bash(text: str, line: list[str], folder: Path) -> list[str]:
    """Return what bash offers for the last word of a line."""
    ask = f'{text}\nCOMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _tracehound; printf "%s\\n" "${{COMPREPLY[@]}}"'
    run = ["bash", "--norc", "-c", ask, "bash", "tracehound", *line]
    found = subprocess.run(run, check=True, capture_output=True, text=True, cwd=folder)
    assert found.stderr == ""
    return sorted(set(found.stdout.split()))


def complete_in_fish(text: str, line: list[str], folder: Path) -> list[str]:
    """Return what fish offers for the last word of a line."""
    (folder / ".script.fish").write_text(text)
    ask = f"source .script.fish; complete -C '{' '.join(['tracehound', *line])}'"
    run = ["fish", "--no-config", "-c", ask]
    found = subprocess.run(run, check=True, capture_output=True, text=True, cwd=folder, env={"HOME": str(folder)})
    return sorted(offer.split("\t")[0] for offer in found.stdout.splitlines())


@pytest.mark.parametrize(("shell", "complete"), [("bash", complete_in_bash), ("fish", complete_in_fish)])
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        (["qu"], ["query"]),
        (["--ver"], ["--version"]),
        (["completion", "b"], ["bash"]),
        (["run", "--strict", "--no-rec"], ["--no-record"]),
        (["run", "--format", ""], ["json", "none", "table"]),
        (["query", "--format", "c"], ["csv"]),
        (["query", "la"], ["last"]),
        (["query", "--format", "csv", "la"], ["last"]),
        (["query", "last", "sel"], []),
        (["run", "--memory-mib", ""], []),
        (["run", "--", "basenam"], ["basename"]),
    ],
)
def test_what_is_offered(
    shell: str,
    complete: object,
    line: list[str],
    offered: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    needs(shell)
    text = script(shell, capsys)
    assert complete(text, line, tmp_path) == offered  # type: ignore[operator]


@pytest.mark.parametrize(("shell", "complete"), [("bash", complete_in_bash), ("fish", complete_in_fish)])
def test_folders_are_offered_for_a_recording(
    shell: str, complete: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    needs(shell)
    (tmp_path / "shop").mkdir()
    (tmp_path / "notes.txt").touch()
    offered = complete(script(shell, capsys), ["run", "--record", ""], tmp_path)  # type: ignore[operator]
    assert [name.rstrip("/") for name in offered] == ["shop"]
