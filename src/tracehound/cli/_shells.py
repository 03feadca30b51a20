"""Completion scripts of three shells, written from one description of commands and options.

What follows `run --` is completed as the command line that it is.
"""

import enum
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple


class Value(enum.Enum):
    """What an option or an argument takes."""

    NONE = "none"
    WORDS = "words"
    FILE = "file"
    FOLDER = "folder"
    RECORDING = "recording"  # a folder, or `last`
    COMMAND = "command"  # `--` and a command line
    OTHER = "other"  # what no shell can guess


class Completion(NamedTuple):
    """One option with its spellings, or a positional argument without any."""

    flags: tuple[str, ...]
    help: str
    value: Value
    words: tuple[str, ...] = ()

    @property
    def takes(self) -> bool:
        """Whether a value follows."""
        return self.value is not Value.NONE


class Program(NamedTuple):
    """The options before a command, and each command's help and completions."""

    options: list[Completion]
    commands: Mapping[str, tuple[str, list[Completion]]]


def _flags(completions: Iterable[Completion]) -> list[str]:
    return [flag for one in completions for flag in one.flags]


def _positionals(completions: Iterable[Completion]) -> list[Completion]:
    return [one for one in completions if not one.flags]


# ---- bash ------------------------------------------------------------------------------------------------------------

_BASH: Final = """\
# Completion of tracehound for bash: `tracehound completion bash` made it.
_tracehound() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command="" at=0 i
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
        --)
            if declare -F _command_offset >/dev/null; then
                _command_offset $((i + 1))
            else
                mapfile -t COMPREPLY < <(compgen -c -- "$cur")
            fi
            return
            ;;
        -* | =) ;;
        *)
            case ${COMP_WORDS[i - 1]} in @TAKING@ | =) continue ;; esac
            if [[ -z $command ]]; then command=${COMP_WORDS[i]}; else ((at++)); fi
            ;;
        esac
    done
    if [[ $cur == = ]]; then cur=""; elif [[ $prev == = ]]; then prev=${COMP_WORDS[COMP_CWORD - 2]}; fi
    case "$command $prev" in
@VALUES@
    esac
    if [[ $cur == -* ]]; then
        case $command in
@OPTIONS@
        esac
        return
    fi
    case $command in
@ARGUMENTS@
    esac
}
_tracehound_words() { mapfile -t COMPREPLY < <(compgen -W "$2" -- "$1"); }
_tracehound_paths() {
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen "$2" -- "$1")
}
complete -F _tracehound tracehound
"""


def bash(program: Program) -> str:
    """Return the script for bash."""
    values = [
        f"    {' | '.join(shlex.quote(f'{name} {flag}') for flag in one.flags)}) {_bash_value(one)}; return ;;"
        for name, (_, completions) in program.commands.items()
        for one in completions
        if one.flags and one.takes
    ]
    options = [f'        "") _tracehound_words "$cur" {shlex.quote(" ".join(_flags(program.options)))} ;;']
    arguments = [f'    "") _tracehound_words "$cur" {shlex.quote(" ".join(program.commands))} ;;']
    for name, (_, completions) in program.commands.items():
        options.append(f'        {name}) _tracehound_words "$cur" {shlex.quote(" ".join(_flags(completions)))} ;;')
        first = [one for one in _positionals(completions) if one.value not in (Value.COMMAND, Value.OTHER)][:1]
        arguments += [f"    {name}) ((at)) || {_bash_value(one)} ;;" for one in first]
    taking = {flag for _, every in program.commands.values() for one in every for flag in one.flags if one.takes}
    return (
        _BASH.replace("@TAKING@", " | ".join(sorted(taking)))
        .replace("@VALUES@", "\n".join(values))
        .replace("@OPTIONS@", "\n".join(options))
        .replace("@ARGUMENTS@", "\n".join(arguments))
    )


def _bash_value(one: Completion) -> str:
    match one.value:
        case Value.WORDS:
            return f'_tracehound_words "$cur" {shlex.quote(" ".join(one.words))}'
        case Value.FILE:
            return '_tracehound_paths "$cur" -f'
        case Value.FOLDER:
            return '_tracehound_paths "$cur" -d'
        case Value.RECORDING:
            return '{ _tracehound_paths "$cur" -d; [[ last == "$cur"* ]] && COMPREPLY+=(last); }'
    return ":"


# ---- zsh -------------------------------------------------------------------------------------------------------------

_ZSH: Final = """\
#compdef tracehound
# Completion of tracehound for zsh: `tracehound completion zsh` made it.
_tracehound() {
    local context state state_descr line
    typeset -A opt_args
    local -a commands
    commands=(
@COMMANDS@
    )
    _arguments -C @OPTIONS@ '1:command:->command' '*::argument:->argument'
    case $state in
    command) _describe -t commands command commands ;;
    argument)
        case $words[1] in
@ARGUMENTS@
        esac
        ;;
    esac
}
_tracehound_recording() { compadd last; _files -/; }
_tracehound_line() {
    local -i at=${words[(ie)--]}
    if ((at < CURRENT)); then
        shift at words
        ((CURRENT -= at))
    fi
    _normal
}
if [[ $funcstack[1] == _tracehound ]]; then _tracehound "$@"; else compdef _tracehound tracehound; fi
"""
_ZSH_VALUES: Final = {
    Value.FILE: "_files",
    Value.FOLDER: "_files -/",
    Value.RECORDING: "_tracehound_recording",
    Value.COMMAND: "_tracehound_line",
    Value.OTHER: " ",
}


def zsh(program: Program) -> str:
    """Return the script for zsh."""
    commands = [f"        {shlex.quote(f'{name}:{text}')}" for name, (text, _) in program.commands.items()]
    arguments = [
        f"        {name}) _arguments {_zsh_words(completions)} ;;"
        for name, (_, completions) in program.commands.items()
    ]
    return (
        _ZSH.replace("@COMMANDS@", "\n".join(commands))
        .replace("@OPTIONS@", _zsh_words(program.options))
        .replace("@ARGUMENTS@", "\n".join(arguments))
    )


def _zsh_words(completions: Sequence[Completion]) -> str:
    return " ".join(shlex.quote(word) for one in completions for word in _zsh_word(one))


def _zsh_word(one: Completion) -> Iterable[str]:
    """Yield one specification of `_arguments` a spelling."""
    action = f"({' '.join(one.words)})" if one.value is Value.WORDS else _ZSH_VALUES.get(one.value, "")
    text = re.sub(r"([\[\]:\\])", r"\\\1", one.help)
    if not one.flags:
        yield f"*::{text}:{action}" if one.value is Value.COMMAND else f":{text}:{action}"
    for flag in one.flags:
        yield f"{flag}[{text}]" if one.value is Value.NONE else f"{flag}=[{text}]:value:{action}"


# ---- fish ------------------------------------------------------------------------------------------------------------

_FISH: Final = """\
# Completion of tracehound for fish: `tracehound completion fish` made it.
function __tracehound_command_line
    set -l words (commandline -opc)
    set -l at (contains -i -- -- $words); or return
    set -l rest (string escape -- $words[(math $at + 1)..-1])
    complete -C (string join ' ' -- $rest (commandline -ct))
end
function __tracehound_is
    not contains -- -- (commandline -opc); and __fish_seen_subcommand_from $argv
end
complete -c tracehound -f
complete -c tracehound -n 'contains -- -- (commandline -opc)' -a '(__tracehound_command_line)'
"""
_FISH_VALUES: Final = {
    Value.FILE: "-rF",
    Value.FOLDER: "-xa '(__fish_complete_directories (commandline -ct))'",
    Value.RECORDING: "-xa 'last (__fish_complete_directories (commandline -ct))'",
    Value.OTHER: "-x",
    Value.NONE: "",
}


def fish(program: Program) -> str:
    """Return the script for fish."""
    lines = [_fish_line("__fish_use_subcommand", one) for one in program.options]
    for name, (text, completions) in program.commands.items():
        lines.append(f"complete -c tracehound -n __fish_use_subcommand -a {name} -d {_fish_quote(text)}")
        lines += [_fish_line(f"__tracehound_is {name}", one) for one in completions if one.value is not Value.COMMAND]
    return _FISH + "".join(f"{line}\n" for line in lines if line)


def _fish_line(condition: str, one: Completion) -> str:
    value = f"-xa {_fish_quote(' '.join(one.words))}" if one.value is Value.WORDS else _FISH_VALUES[one.value]
    if not one.flags and one.value is Value.OTHER:
        return ""
    spelled = " ".join(f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in one.flags)
    words = ["complete -c tracehound -n", _fish_quote(condition), spelled, value, "-d", _fish_quote(one.help)]
    return " ".join(word for word in words if word)


def _fish_quote(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


SHELLS: Final[Mapping[str, Callable[[Program], str]]] = {"bash": bash, "zsh": zsh, "fish": fish}
