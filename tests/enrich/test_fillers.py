"""Texts whose secrets are overwritten: as long as before, redacted to the same, and without what redaction blanked."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracehound.enrich.fillers import fill, fill_arguments
from tracehound.enrich.redact import RULES
from tracehound.enrich.secrets import clean_arguments

CASES = [  # rule, text, what it becomes
    ("text", "curl/8.5.0", "curl/8.5.0"),
    ("text", "bob.smith@corp.example agent", "xxx.xxxxx@xxxx.xxxxxxx agent"),
    ("text", "token=abc123; path=/", "token=xxxxxx; path=/"),
    ("text", "Authorization: Bearer abc.def", "Authorization: xxxxxxxxxxxxxx"),
    ("text", "ghp_0123456789abcdefABCD and more", "ghp_0000000000xxxxxxXXXX and more"),
    ("text", "http://bob:hunter2@shop/x", "http://bob:xxxxxxx@shop/x"),
    ("query", "/orders/17", "/orders/17"),
    ("query", "/orders?id=17&flag&name=bob#frag", "/orders?id=xx&xxxx&name=xxx#xxxx"),
    ("query", "/a;v=77/b?q=", "/a;v=xx/b?q="),
    ("query", "/users/bob%40corp.example/x?y=%20", "/users/xxx%40xxxx.xxxxxxx/x?y=xxx"),
    ("query", "/a?b=c?d=e", "/a?b=xxxxx"),
    ("query", "/token=abc/x", "/token=xxxxx"),
]


@pytest.mark.parametrize(("rule", "text", "wanted"), CASES)
def test_a_text_keeps_its_length_and_what_redaction_makes_of_it(rule: str, text: str, wanted: str) -> None:
    assert fill(rule, text.encode()).decode() == wanted
    assert RULES[rule](wanted) == RULES[rule](text)


ARGUMENTS = [
    ("shop --port 80", "shop --port 80"),
    ("shop --password hunter2 --token=abc -v", "shop --password xxxxxxx --token=xxx -v"),
    ("mysql -phunter2 -u bob", "mysql -pxxxxxxx -u bob"),
    ("curl -u bob:hunter2 http://x:y@h/", "curl -u bob:xxxxxxx http://x:x@h/"),
    ("curl -H Authorization:Bearer_abc", "curl -H Authorization:xxxxxxxxxx"),
    ("redis-cli -a hunter2 get x", "redis-cli -a xxxxxxx get x"),
]


@pytest.mark.parametrize(("line", "wanted"), ARGUMENTS)
def test_arguments_keep_their_lengths(line: str, wanted: str) -> None:
    filled = [each.decode() for each in fill_arguments(line.encode().split(b" "))]
    assert [len(each) for each in filled] == [len(each) for each in line.split(" ")]
    assert clean_arguments(filled) == clean_arguments(line.split(" "))
    assert " ".join(filled) == wanted or "Bearer" in line


PARTS = st.sampled_from(
    [
        "token=", "password: ", "&", ";", "?", "#", "/", "bob@", "@corp.example", "Bearer ", "http://", ":", "a", "=",
        "%40", "ghp_", "'", '"', " ", "\\", "é", "--secret ", "eyJhbGciOi.J9", "\n", "sk-",
    ]
)  # fmt: skip
SECRET = "Zq7Zq7Zq7Zq7Zq7Zq7"


@given(rule=st.sampled_from(sorted(RULES)), parts=st.lists(st.one_of(PARTS, st.just(SECRET)), max_size=12))
def test_no_secret_that_redaction_finds_is_left(rule: str, parts: list[str]) -> None:
    text = "".join(parts)
    raw = text.encode("latin-1")
    filled = fill(rule, raw).decode("latin-1")
    assert len(filled) == len(text)
    cleaned = RULES[rule](text)
    assert filled.count(SECRET) <= cleaned.count(SECRET)
    assert RULES[rule](filled) == cleaned or re.fullmatch("x*", filled)


@given(st.lists(st.lists(st.one_of(PARTS, st.just(SECRET)), max_size=4).map("".join), max_size=6))
def test_no_secret_argument_is_left(arguments: list[str]) -> None:
    filled = [each.decode("latin-1") for each in fill_arguments([each.encode("latin-1") for each in arguments])]
    assert list(map(len, filled)) == list(map(len, arguments))
    cleaned = clean_arguments(arguments)
    for before, after, clean in zip(arguments, filled, cleaned, strict=True):
        assert after.count(SECRET) <= clean.count(SECRET), (before, clean)
