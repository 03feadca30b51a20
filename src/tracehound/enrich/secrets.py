"""What a secret looks like in a text, a URL, or a command line; each function returns the text with `?` in its place.

Sources: RFC 3986 (URLs), RFC 6750 (bearer tokens), RFC 7519 (JWT), the manuals of the programs named. All work in one
pass, linear in the text, as the text may be hostile. In doubt a value is blanked.
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

BLANK: Final = "?"

# Words of a name (`--db-password`, `X-Api-Key`, `authToken`) that make it the name of a secret
_SECRET_WORDS: Final = (
    "pass password passwd passphrase passcode passin passout pwd pw secret secrets token tokens apikey credential "
    "credentials cred creds auth authorization authentication bearer cookie cookies signature sig sas jwt otp pin "
    "session sessionid sid"
)
_WORDS: Final = frozenset(_SECRET_WORDS.split())
_PARTS: Final = (
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "accesskey",
    "privatekey",
    "credential",
)
_KEY_WORDS: Final = (
    "api access secret private account auth encryption master signing shared service app client license admin"
)
_KEYS: Final = frozenset(_KEY_WORDS.split())
_NOT_VALUES: Final = frozenset(("file", "path", "dir", "stdin", "prompt", "tokenizer"))
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SPLIT: Final = re.compile(r"[^a-z0-9]+")

# What stands before a value: NAME=, NAME:, "NAME":, NAME%3D, and `--flag `
_NAME: Final = re.compile(
    r"""(?<![\w.$-])(?:(?P<name>[\w.$-]++)(?P<between>\\?["']?\s{0,2}(?:=>|:=|[=:]|%3[Dd])\s{0,2})"""
    r"""|(?P<flag>--?[A-Za-z][\w-]*+)(?P<space>\s{1,8}))"""
)
# A value: quoted, or up to what ends it; that of a header goes to the end of the line
_VALUE: Final = re.compile(r"""\\"[^"\\]*|"(?:[^"\\]|\\.)*|'(?:[^'\\]|\\.)*|[^\s;&|,"'})\]]+""", re.S)
_HEADER_VALUE: Final = re.compile(r"[^\"'\r\n]+")
_HEADERS: Final = ("authorization", "cookie", "authentication")
_SCHEME_VALUE: Final = re.compile(
    r"\b(Bearer|Basic|Digest|Negotiate|ApiKey|AWS4-HMAC-SHA256)(\s+|%20|\+)[^\s\"',;]+", re.I
)
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\.)*+)"')
_WORD: Final = re.compile(r"[^\s\"]+")
_PORT: Final = re.compile(r"\d{1,5}(?:[/?#,;]|$)")
_KNOWN_TOKENS: Final = re.compile(
    r"(?<![\w-])eyJ[\w-]{8,}(?:\.[\w-]*){1,4}|gh[pousr]_\w{16,}|github_pat_\w{20,}|glpat-[\w-]{16,}|(?:AKIA|ASIA)[0-9A-Z]{16}"
    r"|xox[abeoprs]-[\w-]{10,}|\bsk-[\w-]{16,}|\b[spr]k_(?:live|test)_\w{10,}|AIza[\w-]{30,}|hvs\.\w{20,}"
)
_AT: Final = re.compile(r"(?:@|%40)[\w-]+(?:\.[\w-]+)+")
_LOCAL_PART: Final = frozenset(".+%~!#$'*-_^`|{}")


def is_secret_name(name: str) -> bool:
    """Tell whether a flag, variable, header or key is named like a secret."""
    words = [word for word in _SPLIT.split(_CAMEL.sub("-", name).lower()) if word]
    if not words or words[-1] in _NOT_VALUES:
        return False
    if not _WORDS.isdisjoint(words) or any(part in word for word in words for part in _PARTS):
        return True
    is_key = any(word == "key" and before in _KEYS for before, word in pairwise(words))
    return is_key or words[-1].endswith("pwd")


def clean_text(text: str) -> str:
    """Blank what looks like a secret anywhere in a text."""
    if "://" in text:
        text = _WORD.sub(_blank_user_info, text)
    text = _clean_values(_SCHEME_VALUE.sub(rf"\1\2{BLANK}", text))
    return clean_email(_KNOWN_TOKENS.sub(BLANK, text))


def clean_argument(name: str, value: str, kind: str = "str") -> str:
    """Blank the value of a call's argument of that type, or what looks like a secret in it."""
    if is_secret_name(name):
        return BLANK
    if kind == "path":
        return clean_path(value)
    if kind == "strings":
        return _clean_quoted(value)
    if kind.startswith("str["):  # shown as ["...", "..."]
        words = value.removeprefix('["').split('", "')
        return '["' + '", "'.join(clean_arguments(words)) if value.startswith('["') else value
    if kind != "buf":
        return clean_text(value)
    try:
        text = bytes.fromhex(value.rstrip("\u2026")).decode(errors="replace")
    except ValueError:
        return clean_text(value)
    return value if clean_text(text) == text else BLANK


def _clean_quoted(shown: str) -> str:
    """Blank the secrets of a command line whose arguments stand in quotes, as a system call's do."""
    cleaned = iter(clean_arguments([found[1] for found in _QUOTED.finditer(shown)]))
    return _QUOTED.sub(lambda _: f'"{next(cleaned)}"', shown)


def clean_path(path: str) -> str:
    """Blank what looks like a secret in the path of a file; `@` is part of many names there (`getty@tty1.service`)."""
    if "://" in path:
        path = _WORD.sub(_blank_user_info, path)
    if any(mark in path for mark in "=:% "):  # else no value follows a name, and looking for names costs most
        path = _clean_values(path)
    return _KNOWN_TOKENS.sub(BLANK, path)


def _blank_user_info(found: re.Match[str]) -> str:
    """Blank user:password@ and token@ in a word; a password may have any character, so it ends at the last @."""
    word = found[0]
    last = word.rfind("@")
    start = word.find("://")
    while 0 <= start < last:
        start += 3
        colon = word.find(":", start, last)
        if colon < 0:
            end = word.find("@", start)
            blank = not any(character in word[start:end] for character in "/?#")
            return f"{word[:start]}{BLANK}{word[end:]}" if blank and end > start else word
        user = word[start:colon]
        if not any(character in user for character in "/?#@") and not _PORT.match(word, colon + 1):
            return f"{word[: colon + 1]}{BLANK}{word[last:]}"
        start = word.find("://", colon)
    return word


def _clean_values(text: str) -> str:
    """Blank the values after names of secrets; a name may itself stand in the value of another that is none."""
    kept: list[str] = []
    done = at = 0
    while found := _NAME.search(text, at):
        at = found.end()
        name = found["name"] or found["flag"]
        if text[found.start() - 1 : found.start()] == "%":  # %26token%3D
            name = name[2:]
        if not is_secret_name(name):
            continue
        is_header = name.lower().endswith(_HEADERS) and ":" in (found["between"] or "")
        value = (_HEADER_VALUE if is_header else _VALUE).match(text, at)
        if value is not None and not (found["flag"] and value[0].startswith("--")):
            quote = re.match(r"\\?[\"']?", value[0])
            kept += (text[done:at], quote[0] if quote else "", BLANK)
            done = at = value.end()
    return "".join((*kept, text[done:]))


def clean_email(text: str) -> str:
    """Blank what looks like an e-mail address, also one that is percent-encoded."""
    if "@" not in text and "%40" not in text:
        return text
    kept: list[str] = []
    done = 0
    for found in _AT.finditer(text):
        start = found.start()
        while start > done and (text[start - 1].isalnum() or text[start - 1] in _LOCAL_PART):
            start -= 1
        if start < found.start():
            kept += (text[done:start], BLANK)
            done = found.end()
    return "".join((*kept, text[done:]))


def clean_query(resource: str) -> str:
    """Blank every value of a path's or URL's query, path parameters and fragment; keys are kept."""
    head, hash_, fragment = resource.partition("#")
    path, mark, query = head.partition("?")
    if ";" in path:
        path = "/".join(_blank_parameters(segment) for segment in path.split("/"))
    if mark:
        query = "".join(_blank_item(item) for item in re.split("([&;])", query))
    return clean_text(path + mark + query + (hash_ + BLANK if fragment else hash_))


def _blank_parameters(segment: str) -> str:
    name, *parameters = segment.split(";")
    return ";".join((name, *map(_blank_item, parameters)))


def _blank_item(item: str) -> str:
    if item in ("", "&", ";"):
        return item
    key, equals, _ = item.partition("=")
    return f"{key}={BLANK}" if equals else BLANK


# ---- command lines -------------------------------------------------------------------------------------------------

_MYSQL: Final = re.compile(r"(mysql|mariadb|mycli|mysqlsh|xtrabackup|mariabackup)[\w.-]*")
# short flags whose value, joined or following, is a secret, and the programs where it is
_SHORT_FLAGS: Final = {
    "-p": "sshpass mongo mongosh mongodump mongorestore 7z cqlsh az",
    "-P": "zip unzip sqlcmd bcp ipmitool mosquitto_pub mosquitto_sub",
    "-a": "redis-cli valkey-cli",
    "-w": "ldapsearch ldapmodify ldapadd",
    "-c": "snmpget snmpwalk",
    "-A": "snmpget snmpwalk",
    "-X": "snmpget snmpwalk",
}
_SHORT_SECRETS: Final = {
    program: tuple(flag for flag, programs in _SHORT_FLAGS.items() if program in programs.split())
    for program in " ".join(_SHORT_FLAGS.values()).split()
}
_USER_PASSWORD: Final = {
    "curl": ("-u", "--user", "-U", "--proxy-user"),
    "smbclient": ("-U", "--user"),
    "http": ("-a",),
    "https": ("-a",),
}
_HEADER_FLAGS: Final = ("-H", "--header", "--proxy-header")
_LONG_FLAG: Final = re.compile(r"--[A-Za-z][\w-]*(=.*)?", re.S)


def clean_arguments(arguments: Sequence[str]) -> list[str]:
    """Blank the secrets of a command line; the number of arguments stays."""
    if not arguments:
        return []
    program = next((name for word in arguments[:8] if (name := _program(word))), "")
    if "login" in arguments and any(word.endswith(("docker", "podman")) for word in arguments[:8]):
        program = "az"  # the same flags
    cleaned: list[str] = []
    expected = ""  # what the argument before asks for: a secret, user:password, header
    for argument in arguments:
        if expected == "secret" and not _LONG_FLAG.fullmatch(argument):
            cleaned.append(BLANK)
            expected = ""
            continue
        if expected == "user":
            argument = _blank_user(argument)
        cleaned.append(_clean_argument(argument, program, is_header=expected == "header"))
        expected = _expected_after(argument, program)
    return cleaned


def _program(word: str) -> str:
    """Return the name of a program whose short flags are known, else an empty text."""
    name = word.rpartition("/")[2]
    return name if name in _SHORT_SECRETS or name in _USER_PASSWORD or _MYSQL.fullmatch(name) else ""


def _expected_after(argument: str, program: str) -> str:
    if argument in _HEADER_FLAGS:
        return "header"
    if argument in _USER_PASSWORD.get(program, ()) or (program == "curl" and re.fullmatch("-[a-zA-Z]*[uU]", argument)):
        return "user"
    is_flag = (
        argument.startswith("-") and "=" not in argument and not any(character.isspace() for character in argument)
    )
    if argument in _SHORT_SECRETS.get(program, ()) or (is_flag and is_secret_name(argument)):
        return "secret"
    return ""


def _clean_argument(argument: str, program: str, *, is_header: bool) -> str:
    for flag in _HEADER_FLAGS:
        joined = argument.removeprefix(flag).removeprefix("=") if flag.startswith("--") else argument.removeprefix(flag)
        if joined != argument and ":" in joined:
            return argument[: len(argument) - len(joined)] + _clean_header(joined)
    if is_header:
        return _clean_header(argument)
    for flag in _USER_PASSWORD.get(program, ()):
        rest = argument.removeprefix(flag)
        if rest not in ("", argument) and rest.startswith("=") == flag.startswith("--"):
            return flag + _blank_user(rest)
    short = ("-p",) if _MYSQL.fullmatch(program) else _SHORT_SECRETS.get(program, ())
    for flag in short:
        if argument.startswith(flag) and argument != flag and not argument.startswith("--"):
            return flag + BLANK
    words = re.split(r"(\s+)", argument)
    if len(words) > 1 and any(map(_program, words)):  # sh -c "mysql -pX"
        words[::2] = clean_arguments(words[::2])
        return clean_text("".join(words))
    name, equals, value = argument.partition("=")
    if equals and value and not re.search(r"[\s/?&;]", name) and is_secret_name(name):
        return f"{name}={BLANK}"
    return clean_text(argument)


def _clean_header(header: str) -> str:
    name, colon, value = header.partition(":")
    return f"{name}: {BLANK}" if colon and value.strip() and is_secret_name(name) else clean_text(header)


def _blank_user(text: str) -> str:
    user, separator, password = re.split(r"([:%])", text, maxsplit=1) if re.search("[:%]", text) else (text, "", "")
    return f"{user}{separator}{BLANK}" if password else text
