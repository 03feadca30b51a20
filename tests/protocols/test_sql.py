"""SQL texts: what stays of them, in a table; what is remembered holds no literal; linear time."""

import time

import pytest

from tracehound.protocols._sql import MEMO_BYTES, STATEMENT_LIMIT, Sql, cut_trace

TRACE = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
ONE = {  # text -> operation, resource, statement
    "SELECT 1": ("SELECT", None, "SELECT ?"),
    "select * from t where a='x''y' and b = E'it\\'s' and c>-1.5e-3": (
        "SELECT", "t", "select * from t where a=? and b = ? and c>?"),
    "select N'a', U&'\\0041', B'101', x'1F', $$a$$, $q$ $$ $q$, .5, 1_000, 0xFF": (
        "SELECT", None, "select ?, ?, ?, ?, ?, ?, ?, ?, ?"),
    "select t1.a2, $1, $2::int, \"a1\", tag$x from \"S\".\"a\"\"b\" t1": (
        "SELECT", 'S.a"b', "select t1.a2, $1, $2::int, \"a1\", tag$x from \"S\".\"a\"\"b\" t1"),
    "select a -5, b - 5, c + -5": ("SELECT", None, "select a -?, b - ?, c + ?"),
    "select 1 -- why 'not'\n, /* a /* nested */ b */ 2": ("SELECT", None, "select ? , ?"),
    "/* first */ select\n\t 1": ("SELECT", None, "select ?"),
    "select a in (1, 2,3), b IN ('x'), c in ($1,$2), d = any(ARRAY[1,2])": (
        "SELECT", None, "select a in (?), b IN (?), c in (?), d = any(ARRAY[?])"),
    "insert into s.t (a, b) values (1, 'x'), (2, 'y'),(3,null)": (
        "INSERT", "s.t", "insert into s.t (a, b) values (?, ?), ...,(?,null)"),
    "WITH a AS (SELECT 1 FROM q), b AS (DELETE FROM z) UPDATE ONLY t SET x = 1": (
        "UPDATE", "t", "WITH a AS (SELECT ? FROM q), b AS (DELETE FROM z) UPDATE ONLY t SET x = ?"),
    "with a as (select 1) select * from b, a": ("SELECT", "b", "with a as (select ?) select * from b, a"),
    "(select 1 from t) union (select 2 from u)": ("SELECT", "t", "(select ? from t) union (select ? from u)"),
    "select extract(year from d) from t": ("SELECT", "t", "select extract(year from d) from t"),
    "select a is distinct from b from t": ("SELECT", "t", "select a is distinct from b from t"),
    "select * from (select * from inside) x": ("SELECT", "inside", "select * from (select * from inside) x"),
    "delete from only a.b where c": ("DELETE", "a.b", "delete from only a.b where c"),
    "COPY t (a) FROM STDIN": ("COPY", "t", "COPY t (a) FROM STDIN"),
    "copy (select 1) to stdout": ("COPY", None, "copy (select ?) to stdout"),
    "create unique index concurrently if not exists i on t (a)": (
        "CREATE", "i", "create unique index concurrently if not exists i on t (a)"),
    "drop table if exists a.b cascade": ("DROP", "a.b", "drop table if exists a.b cascade"),
    "truncate table t": ("TRUNCATE", "t", "truncate table t"),
    "create user u password 'secret'": ("CREATE", "u", "create user u password ?"),
    "set app.key to deadbeef": ("SET", "app.key", "set app.key to ?"),
    "SET LOCAL search_path = a, b": ("SET", "search_path", "SET LOCAL search_path = ?"),
    "set time zone 'UTC'": ("SET", "time", "set time zone ?"),
    "alter role bob set x to secret": ("ALTER", "bob", "alter role bob set x to ?"),
    "notify c, 'payload'": ("NOTIFY", "c", "notify c, ?"),
    "do $body$ begin secret; end $body$": ("DO", None, "do ?"),
    "execute q(1, 'a')": ("EXECUTE", "q", "execute q(?, ?)"),
    "BEGIN": ("BEGIN", None, "BEGIN"),
    "select 'never ends; secret": ("SELECT", None, "select ?"),
    "select \"never ends; secret": ("SELECT", None, "select ?"),
    "select $a$ never ends $b$ secret": ("SELECT", None, "select ?"),
    "select /* never ends secret": ("SELECT", None, "select"),
    "hunter2 secret": ("UNKNOWN", None, None),
    "'secret'": ("UNKNOWN", None, None),
    "select 'ü', \"ü\" from ü": ("SELECT", "ü", "select ?, \"ü\" from ü"),
    "": ("EMPTY", None, None),
    " ; ;": ("EMPTY", None, None),
    "-- ping": ("EMPTY", None, None),
}  # fmt: skip


@pytest.mark.parametrize("text", ONE)
def test_one_statement(text: str) -> None:
    ((offset, statement),) = Sql().read(text.encode())
    assert (offset, statement.operation, statement.resource, statement.text) == (0, *ONE[text])


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("begin; select ';' ; commit;", [(0, "begin"), (6, "select ?"), (19, "commit")]),
        ("select 1;; -- a;b\n select 2", [(0, "select ?"), (10, "select ?")]),
        ("create rule r as on insert to t do (select 1; select 2); end",
         [(0, "create rule r as on insert to t do (select ?; select ?)"), (56, "end")]),
        ("create function f() begin atomic select case when a then 1 end; select 2; end; begin",
         [(0, "create function f() begin atomic select case when a then ? end; select ?; end"), (78, "begin")]),
        ("select \"a;b\" ; select \"(\"; select 3", [(0, 'select "a;b"'), (14, 'select "("'), (26, "select ?")]),
        ("select ((1); select 2", [(0, "select ((?); select ?")]),
    ],
)  # fmt: skip
def test_several_statements(text: str, parts: list[tuple[int, str]]) -> None:
    assert [(offset, statement.text) for offset, statement in Sql().read(text.encode())] == parts


def test_backslashes_by_the_setting() -> None:
    text = b"select 'a\\' , secret , 'b'"
    assert Sql().read(text)[0][1].text == "select ? , secret , ?"
    assert Sql(backslashes=True).read(text)[0][1].text == "select ?"


@pytest.mark.parametrize(
    ("text", "left", "trace"),
    [
        (b"select 1 /*traceparent='%s'*/", b"select 1 ", TRACE),
        (b"select 1 /*app='x',traceparent='%s',route='y'*/;", b"select 1 ", TRACE),
        (b"/*traceparent='%s'*/ select 1", b" " * 73 + b" select 1", TRACE),
        (b"select '/*traceparent=''%s''*/'", b"select '/*traceparent=''%s''*/'" % TRACE, None),
        (b"select 1 /*traceparent='%s'*/ , 2", b"select 1 /*traceparent='%s'*/ , 2" % TRACE, None),
        (b"select 1 /* %s */", b"select 1 /* %s */" % TRACE, None),
    ],
)  # fmt: skip
def test_traceparent_of_a_comment(text: bytes, left: bytes, trace: bytes | None) -> None:
    assert cut_trace(text % TRACE) == (left, trace)


def test_equal_texts_are_looked_up_and_literals_are_not_kept() -> None:
    sql = Sql()
    plain, literal = b"select a from t where b = $1", b"select a from t where b = 'secret' -- hidden"
    assert sql.read(plain) is sql.read(bytes(bytearray(plain)))
    assert sql.read(literal) is sql.read(bytes(bytearray(literal)))
    assert sql.read(b"select a from t where b = 'x'")[0][1] is sql.read(literal)[0][1]  # one statement for all
    kept = repr((sql._known, sql._shapes, [one.text for one in sql._shapes.values()]))
    assert plain.decode() in kept and "secret" not in kept and "hidden" not in kept


def test_what_is_remembered_is_bounded() -> None:
    sql = Sql()
    for number in range(30_000):
        sql.read(b"select a%d from t where b = '%d'" % (number, number))
        sql.read(b"select b%d from t" % number)
    for memo in (sql._known, sql._shapes):
        assert 0 < sum(map(len, memo)) < MEMO_BYTES and len(memo) < 20_000


def test_a_long_statement_is_cut() -> None:
    text = Sql().read(b"select " + b"a, " * 5000)[0][1].text
    assert text is not None and len(text) == STATEMENT_LIMIT and text.endswith("…")


HOSTILE = (
    b"$a$b", b"'", b'"', b"/*", b"(", b"1,", b"in (", b'"a".', b"(1),", b"a ", b"set ", b"-", b"e'", b"case;", b"()",
    b"begin atomic ", b"$$", b"$1,", b"\\'", b"1e", b"values (1),", b"from (", b";", b"traceparent=",
    b"/*traceparent='",
)  # fmt: skip


@pytest.mark.parametrize("word", HOSTILE)
@pytest.mark.parametrize("start", [b"", b"select ", b"with a as (", b"create function ", b"alter role ", b"values "])
def test_hostile_texts_take_bounded_time(start: bytes, word: bytes) -> None:
    """16 KiB, the most that is read of a text: 20 ms at most (measured: 0.1 to 6)."""
    text = start + word * (16384 // len(word))
    least = float("inf")
    for _ in range(3):
        began = time.thread_time()
        Sql().read(cut_trace(text)[0])
        least = min(least, time.thread_time() - began)
    assert least < 0.1
