"""A client of PostgreSQL: `postgresql_load.py WAY URL ROUNDS`; the table `things` (id, name) is there.

WAY is `psycopg` (statements without and with parameters, prepared at the first use), `pipeline` (psycopg's, with an
error in the middle of a batch), `asyncpg` (a pool of two), `errors`, `copy` (both ways), `large` and `large-asyncpg` (a
result of 50 MB), `listen`, `cancel`, or `session`: prepares a statement, writes a line, waits for one, uses it again.
What is expected of the database is asserted here.
"""

import asyncio
import sys
import threading
import time
from collections.abc import Callable

import asyncpg
import psycopg
from psycopg import errors, pq

WAY, URL, ROUNDS = sys.argv[1], sys.argv[2], int(sys.argv[3])
SECRET = "hunter2-planted"
LARGE = "select i, repeat('x', 990) from generate_series(1, 50000) i"


def use_psycopg() -> None:
    with psycopg.connect(URL, autocommit=True) as connection:
        connection.prepare_threshold = 0
        for number in range(ROUNDS):
            connection.execute("insert into things values (%s, %s)", (number, SECRET))
            connection.execute(f"select name from things where id = {number} and name <> 'x'")
            row = connection.execute("select name from things where id = %s", (number,)).fetchone()
            assert row == (SECRET,)
        with connection.transaction():
            connection.execute("update things set name = %s where id < %s", ("other", ROUNDS))
        connection.execute("select 1; select 2; -- nothing\n select 3", prepare=False)


def use_pipeline() -> None:
    with psycopg.connect(URL, autocommit=True) as connection:
        with connection.pipeline():
            for number in range(ROUNDS):
                connection.execute("insert into things values (%s, %s)", (number, SECRET))
        with connection.cursor() as cursor:
            cursor.executemany("update things set name = %s where id = %s", [("n", at) for at in range(ROUNDS)])
        send_together(
            connection.pgconn,
            (b"select count(*) from things where id < $1::int", b"10"),
            (b"insert into things values ($1, $2)", b"0", SECRET.encode()),
            (b"select 'skipped' where 1 = $1::int", b"1"),
            (b"select 'skipped' where 2 = $1::int", b"2"),
        )
        assert connection.execute("select count(*) from things").fetchone() == (ROUNDS,)


def send_together(connection: pq.abc.PGconn, *statements: tuple[bytes, ...]) -> None:
    """Send statements of which the second fails, then a Sync.

    All are in libpq's buffer before the first is sent: `pipeline()` sends each at once and reads in between, so it
    raises the error, and leaves out what is still to be sent, if the server is quick.
    """
    connection.enter_pipeline_mode()
    for text, *parameters in statements:
        connection.send_query_params(text, parameters)
    connection.pipeline_sync()
    statuses = list[int]()
    while not statuses or statuses[-1] != pq.ExecStatus.PIPELINE_SYNC:
        result = connection.get_result()
        if result is not None:  # None ends the results of one statement
            statuses.append(result.status)
    aborted = pq.ExecStatus.PIPELINE_ABORTED
    assert statuses[:-1] == [pq.ExecStatus.TUPLES_OK, pq.ExecStatus.FATAL_ERROR, aborted, aborted], statuses
    connection.exit_pipeline_mode()


def use_errors() -> None:
    with psycopg.connect(URL, autocommit=True) as connection:
        connection.execute("insert into things values (1, %s)", (SECRET,))
        for text, parameters in (
            ("insert into things values (%s, %s)", (1, SECRET)),
            (f"select '{SECRET}'::int", None),
            ("select %s::text::int", (SECRET,)),
            (f"selec '{SECRET}'", None),
            ("select * from missing where a = %s", (SECRET,)),
            (f"do $$ begin raise exception 'user {SECRET}'; end $$", None),
        ):
            try:
                connection.execute(text, parameters)
            except psycopg.Error:
                continue
            raise AssertionError(text)
    try:
        psycopg.connect(URL.replace("secret", "wrong"))
    except psycopg.OperationalError:
        return
    raise AssertionError


def use_copy() -> None:
    with psycopg.connect(URL, autocommit=True) as connection, connection.cursor() as cursor:
        with cursor.copy("copy things from stdin") as copy:
            for number in range(ROUNDS):
                copy.write_row((number, SECRET))
        with cursor.copy("copy (select id, name from things) to stdout") as copy:
            assert len(list(copy.rows())) == ROUNDS
        connection.execute("select 1")


def use_large() -> None:
    with psycopg.connect(URL, autocommit=True) as connection:
        assert len(connection.execute(LARGE).fetchall()) == 50_000
        connection.execute("select 1")


async def use_large_asyncpg() -> None:
    connection = await asyncpg.connect(URL)
    assert len(await connection.fetch(LARGE)) == 50_000
    await connection.fetchval("select 1")
    await connection.close()


async def use_asyncpg() -> None:
    async with asyncpg.create_pool(URL, min_size=2, max_size=2) as pool:

        async def work(first: int) -> None:
            for number in range(first, ROUNDS, 2):
                async with pool.acquire() as connection:
                    await connection.execute("insert into things values ($1, $2)", number, SECRET)
                    assert await connection.fetchval("select name from things where id = $1", number) == SECRET
                    await connection.execute(f"update things set name = 'x{number}' where id = {number}")

        await asyncio.gather(work(0), work(1))


def use_listen() -> None:
    with psycopg.connect(URL, autocommit=True) as one, psycopg.connect(URL, autocommit=True) as other:
        one.execute("listen news")
        for number in range(ROUNDS):
            other.execute(f"notify news, '{SECRET}'")
            assert [note.payload for note in one.notifies(timeout=20, stop_after=1)] == [SECRET], number


def use_cancel() -> None:
    with psycopg.connect(URL, autocommit=True) as connection, psycopg.connect(URL, autocommit=True) as watcher:
        failed: list[str | None] = []

        def sleep() -> None:
            try:
                connection.execute("select pg_sleep(60)")
            except errors.QueryCanceled as error:
                failed.append(error.sqlstate)

        thread = threading.Thread(target=sleep)
        thread.start()
        asleep = "select count(*) from pg_stat_activity where pid = %s and wait_event = 'PgSleep'"
        while watcher.execute(asleep, (connection.info.backend_pid,)).fetchone() != (1,):
            time.sleep(0.01)
        connection.cancel()
        thread.join(30)
        assert failed == ["57014"]


def use_session() -> None:
    with psycopg.connect(URL, autocommit=True) as connection:
        connection.prepare_threshold = 0
        connection.execute("select name from things where id = %s", (1,))
        print("ready", flush=True)
        sys.stdin.readline()
        for number in range(ROUNDS):
            connection.execute("select name from things where id = %s", (number,))
        connection.execute("select count(*) from things")
        connection.execute("select id from things where name = %s", ("a",))
        print("done", flush=True)
        sys.stdin.readline()


WAYS = {
    "psycopg": use_psycopg, "pipeline": use_pipeline, "errors": use_errors, "copy": use_copy, "large": use_large,
    "listen": use_listen, "cancel": use_cancel, "session": use_session, "asyncpg": lambda: asyncio.run(use_asyncpg()),
    "large-asyncpg": lambda: asyncio.run(use_large_asyncpg()),
}  # fmt: skip
way: Callable[[], None] = WAYS[WAY]
way()
