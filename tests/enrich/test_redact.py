"""Rows in, the same rows without secrets out."""

import random

import pytest
from tests.enrich.rows import column, table
from tests.enrich.test_secrets import leaks, make_secret

from tracehound.enrich import make_enrichers
from tracehound.enrich.redact import MEMO_BYTES, Redactor
from tracehound.protocols import load_protocols

PROTOCOLS = load_protocols()


def test_columns_and_nothing_else() -> None:
    requests = table(
        "requests",
        {
            "protocol": "http1",
            "resource": "/a?x=1",
            "error_message": "no bob@example.com",
            "operation": "GET",
            "status": 200,
        },
        {"protocol": "redis", "resource": "/a?x=1", "statement": "AUTH password=hunter2"},
        {"protocol": None, "resource": "/a?x=1"},
        {"protocol": "http1", "resource": None},
    )
    connections = table("connections", {"local_ip": "1.2.3.4"})
    found = Redactor(PROTOCOLS).add({"requests": requests, "connections": connections})
    assert column(found, "requests", "resource") == ["/a?x=?", "/a?x=1", "/a?x=1", None]
    assert column(found, "requests", "error_message") == ["no ?", None, None, None]
    assert column(found, "requests", "statement") == [None, "AUTH password=?", None, None]
    same = [name for name in requests.schema.names if name not in ("resource", "error_message", "statement")]
    assert found["requests"].select(same).equals(requests.select(same))
    assert found["requests"].schema.equals(requests.schema)
    assert found["connections"] is connections


def test_argv() -> None:
    rows = table(
        "processes", {"argv": ["app", "--password", "x"]}, {"argv": None}, {"argv": []}, {"argv": ["ls", "-l"]}
    )
    found = Redactor(PROTOCOLS).add({"processes": rows})
    assert column(found, "processes", "argv") == [["app", "--password", "?"], None, [], ["ls", "-l"]]


def test_every_text_extra_is_cleaned() -> None:
    extras = [c.name for p in PROTOCOLS for c in (*p.request_extras, *p.response_extras) if c.type == "string"]
    rows = table("requests", {"protocol": "http1"} | dict.fromkeys(extras, "bob@example.com"))
    found = Redactor(PROTOCOLS).add({"requests": rows})
    assert {name: column(found, "requests", name) for name in extras} == {name: ["?"] for name in extras}


def test_no_planted_secret_survives_in_rows() -> None:
    rng = random.Random(7)
    secrets = [make_secret(rng, "abcdefghijkXYZ0123456789-_.") for _ in range(1_000)]
    requests = table(
        "requests", *({"protocol": "http1", "resource": f"/p/{n % 7}?key={secret}"} for n, secret in enumerate(secrets))
    )
    processes = table(
        "processes", *({"argv": ["app", f"--token={secret}", "mail", f"{secret}@x.org"]} for secret in secrets)
    )
    found = Redactor(PROTOCOLS).add({"requests": requests, "processes": processes})
    texts = zip(secrets, column(found, "requests", "resource"), column(found, "processes", "argv"), strict=True)
    assert not [secret for secret, resource, argv in texts if leaks(secret, "\0".join((resource, *argv)))]


def test_the_memo_is_bounded() -> None:
    redactor = Redactor(PROTOCOLS)
    for number in range(8):
        rows = ({"protocol": "http1", "resource": f"/{number}/{at}/" + "x" * 10_000} for at in range(200))
        redactor.add({"requests": table("requests", *rows)})
    assert redactor._memos["query"]._bytes <= MEMO_BYTES + 30_000


def test_unknown_rule_is_refused() -> None:
    with pytest.raises(ValueError, match="no redaction rule magic"):
        Redactor([PROTOCOLS[0]._replace(secrets=(("resource", "magic"),))])


def test_the_redactor_is_last_and_can_be_left_out() -> None:
    assert isinstance(make_enrichers(PROTOCOLS)[-1], Redactor)
    assert not any(isinstance(one, Redactor) for one in make_enrichers(PROTOCOLS, redact=False))


def test_empty_tables_pass() -> None:
    tables = {
        name: table(name)
        for name in ("requests", "processes", "connections", "listens", "losses", "fact_process", "fact_clock")
    }
    for enricher in make_enrichers(PROTOCOLS):
        tables = enricher.add(tables)
    assert {name: rows.num_rows for name, rows in tables.items()} == dict.fromkeys(tables, 0)


@pytest.mark.parametrize(
    ("path", "cleaned"),
    [
        ("/tmp/dump?token=abc123/x", "/tmp/dump?token=?"),
        ("/cache/https://ann:hunter2@shop.example/a", "/cache/https://ann:?@shop.example/a"),
        ("/tmp/ghp_0123456789abcdefghij", "/tmp/?"),
        ("/run/secrets/db_password", "/run/secrets/db_password"),
        ("/lib/systemd/system/getty@tty1.service", "/lib/systemd/system/getty@tty1.service"),
        ("/node_modules/.pnpm/lodash@4.17.21/index.js", "/node_modules/.pnpm/lodash@4.17.21/index.js"),
        ("/sys/devices/pci0000:00/0000:00:1f.2/vendor", "/sys/devices/pci0000:00/0000:00:1f.2/vendor"),
    ],
)
def test_paths_of_files(path: str, cleaned: str) -> None:
    files = table("files", {"path": path, "resolved_path": path}, {"path": None}, {"path": "/a", "resolved_path": path})
    found = Redactor(load_protocols()).add({"files": files})
    assert column(found, "files", "path", "resolved_path") == [(cleaned, cleaned), (None, None), ("/a", cleaned)]


@pytest.mark.parametrize(
    ("name", "kind", "value", "cleaned"),
    [
        ("password", "str", "hunter2", "?"),
        ("token@exit", "buf", "00ff", "?"),
        ("api_key", "int64", "5", "?"),
        ("arg0", "str", "GET /?password=hunter2 HTTP/1.1", "GET /?password=? HTTP/1.1"),
        ("arg0", "str", "mail to ada@example.org", "mail to ?"),
        (
            "arg0",
            "str[]",
            '["mysql", "--token", "x", "--user=ada@example.org", "z"]',
            '["mysql", "--token", "?", "--user=?", "z"]',
        ),
        ("arg0", "str[]", "[]", "[]"),
        ("arg1", "buf", b"Authorization: Bearer abcdefgh".hex(), "?"),
        ("arg1", "buf", b"plain".hex() + "\u2026", b"plain".hex() + "\u2026"),
        ("arg1", "buf", "00ff80", "00ff80"),
        ("count", "*int32", "5", "5"),
        ("size", "uint64", None, None),
    ],
)
def test_arguments_of_calls(name: str, kind: str, value: str | None, cleaned: str | None) -> None:
    other = {"name": "other", "type": "str", "value": "kept"}
    rows = table("calls", {"args": [{"name": name, "type": kind, "value": value}, other]}, {"args": []})
    (given, nothing) = column(Redactor(load_protocols()).add({"calls": rows}), "calls", "args")
    assert nothing == [] and given[1] == other
    assert given[0]["value"] == cleaned
