"""Texts in, the same texts without their secrets out."""

import random
import string
import time

import pytest

from tracehound.enrich.secrets import (
    clean_argument,
    clean_arguments,
    clean_email,
    clean_query,
    clean_text,
    is_secret_name,
)


@pytest.mark.parametrize(
    ("resource", "cleaned"),
    [
        ("/orders/17", "/orders/17"),
        ("/orders?id=17&page=2", "/orders?id=?&page=?"),
        ("/orders?id=", "/orders?id=?"),
        ("/a?x=1;y=2", "/a?x=?;y=?"),
        ("/a?flag", "/a??"),
        ("/a?", "/a?"),
        ("/a?a=b=c?d", "/a?a=?"),
        ("/a;jsessionid=ABC/b;v=1?q=1", "/a;jsessionid=?/b;v=??q=?"),
        ("/a#section", "/a#?"),
        ("http://bob:hunter2@example.com:8080/a?q=1", "http://bob:?@example.com:8080/a?q=?"),
        ("/users/bob@example.com/cart", "/users/?/cart"),
        ("/users/bob%40example.com?to=eve%40x.org", "/users/??to=?"),
        ("*", "*"),
        ("example.com:443", "example.com:443"),
        ("/" + "%20" * 3, "/%20%20%20"),
    ],
)
def test_query(resource: str, cleaned: str) -> None:
    assert clean_query(resource) == cleaned


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("no such table: orders", "no such table: orders"),
        ("connect to postgres://shop:s3cr/et@db:5432/shop failed", "connect to postgres://shop:?@db:5432/shop failed"),
        ("https://ghp_abc@github.com/x", "https://?@github.com/x"),
        ("redis://:pw@cache:6379/0", "redis://:?@cache:6379/0"),
        ("http://127.0.0.1:8000/a@b", "http://127.0.0.1:8000/a@b"),
        ("mail bob.o'hara+x@mail.example.com now", "mail ? now"),
        ("Authorization: Basic dXNlcjpwYXNz", "Authorization: ?"),
        ("curl -H 'Authorization: Custom a b c' x", "curl -H 'Authorization: ?' x"),
        ("Cookie: a=1; b=2\r\nHost: x", "Cookie: ?\r\nHost: x"),
        ("host=db password=abc dbname=x", "host=db password=? dbname=x"),
        ("Server=db;Pwd='a b;c';Database=x", "Server=db;Pwd='?';Database=x"),
        ('{"user": "bob", "password": "a\\"b", "n": 1}', '{"user": "bob", "password": "?", "n": 1}'),
        ('data="password=abc"', 'data="password=?"'),
        ("run --token abc --verbose", "run --token ? --verbose"),
        ("run --token --verbose", "run --token --verbose"),
        ("redirect=%2Fx%3Fsid%3Dabc", "redirect=%2Fx%3Fsid%3D?"),
        ("got Bearer abc.def-ghi", "got Bearer ?"),
        ("key eyJhbGciOiJI.eyJzdWIiOiIx.sig", "key ?"),
        ("tokenizer=fast monkey=1 passenger=2 author=me", "tokenizer=fast monkey=1 passenger=2 author=me"),
        ("", ""),
    ],
)
def test_text(text: str, cleaned: str) -> None:
    assert clean_text(text) == cleaned
    assert clean_text(cleaned) == cleaned


@pytest.mark.parametrize(
    ("command", "cleaned"),
    [
        ("python shop.py --port 8000", "python shop.py --port 8000"),
        ("app --password hunter2 --port 1", "app --password ? --port 1"),
        ("app --password=hunter2 x", "app --password=? x"),
        ("app --db-password -weird- x", "app --db-password ? x"),
        ("app --password --port 1", "app --password --port 1"),
        ("app --password-file /run/secrets/pw", "app --password-file /run/secrets/pw"),
        ("mysql -uroot -phunter2 shop", "mysql -uroot -p? shop"),
        ("sudo /usr/bin/mysqldump -phunter2", "sudo /usr/bin/mysqldump -p?"),
        ("ssh -p2222 host", "ssh -p2222 host"),
        ("sshpass -p hunter2 ssh host", "sshpass -p ? ssh host"),
        ("redis-cli -a hunter2 get x", "redis-cli -a ? get x"),
        ("docker run -p 80:80 nginx", "docker run -p 80:80 nginx"),
        ("docker login -u bob -p hunter2", "docker login -u bob -p ?"),
        ("curl -u bob:hunter2 http://x/", "curl -u bob:? http://x/"),
        ("curl -ubob:hunter2 http://x/", "curl -ubob:? http://x/"),
        ("curl --user=bob:hunter2 --user-agent=a:b x", "curl --user=bob:? --user-agent=a:b x"),
        ("curl -sSu bob:hunter2 x", "curl -sSu bob:? x"),
        ("env TOKEN=hunter2 PATH=/bin app", "env TOKEN=? PATH=/bin app"),
        ("psql postgresql://bob:hunter2@db/shop", "psql postgresql://bob:?@db/shop"),
        ("git clone https://hunter2@host/x.git", "git clone https://?@host/x.git"),
        ("sendmail bob@example.com", "sendmail ?"),
        ("app --apiKey hunter2 --awsSecretAccessKey=hunter2", "app --apiKey ? --awsSecretAccessKey=?"),
        ("openssl rsa -passin pass:hunter2", "openssl rsa -passin ?"),
        ("", ""),
    ],
)
def test_arguments(command: str, cleaned: str) -> None:
    assert clean_arguments(command.split()) == cleaned.split()


def test_arguments_with_spaces() -> None:
    assert clean_arguments(["sh", "-c", "mysql -phunter2 -e 'select 1' | tee x"]) == [
        "sh",
        "-c",
        "mysql -p? -e 'select 1' | tee x",
    ]
    assert clean_arguments(["curl", "-H", "X-Api-Key: hunter2", "-H", "Accept: */*"]) == [
        "curl",
        "-H",
        "X-Api-Key: ?",
        "-H",
        "Accept: */*",
    ]
    assert clean_arguments(["curl", "-HAuthorization: t hunter2"]) == ["curl", "-HAuthorization: ?"]
    assert clean_arguments(["app", "--password=a b; c & d"]) == ["app", "--password=?"]
    assert clean_arguments(["app", "--password", "a b", ""]) == ["app", "--password", "?", ""]


SECRET_NAMES = (
    "password PGPASSWORD MYSQL_PWD db-passwd --pass apiKey X-API-Key AWS_SECRET_ACCESS_KEY authToken client_secret "
    "Authorization Set-Cookie sessionid PassPhrase access_token signing-key"
)
OTHER_NAMES = "author compass monkey keyboard passenger bypass path tokenizer key --password-file host"


@pytest.mark.parametrize("name", SECRET_NAMES.split())
def test_names_of_secrets(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", OTHER_NAMES.split())
def test_other_names(name: str) -> None:
    assert not is_secret_name(name)


def make_secret(rng: random.Random, alphabet: str) -> str:
    return "Zq" + "".join(rng.choices(alphabet, k=rng.randint(6, 30))) + "9X"


WORDS = string.ascii_letters + string.digits
TEMPLATES = [  # (template, function, alphabet of the secret)
    ("/a/b?id={}&x=1", clean_query, WORDS + "-._~!$'()*+,:@/?%="),
    ("/a?{}", clean_query, WORDS + "-._~"),
    ("/a;sid={}/b", clean_query, WORDS + "-._~"),
    ("/a#access_token={}", clean_query, WORDS + "-._~=&"),
    ("https://bob:{}@host.example/x", clean_query, WORDS + "-._~!$'()*+,%"),
    ("/u/{}@example.com/x", clean_query, WORDS + "-._+"),
    ("cannot open amqp://svc:{}@mq:5672/vhost: refused", clean_text, WORDS + "-._~!$()*+,;:@/%="),
    ("FATAL: password={} is wrong", clean_text, WORDS + "-._~!$(*+:@/?%="),
    ('{{"apiKey": "{}"}}', clean_text, WORDS + "-._~ !$()*+,;:@/?%=&{}[]'"),
    ("Authorization: Bearer {}", clean_text, WORDS + "-._~+/="),
    ("Cookie: session={}; other=1", clean_text, WORDS + "-._~=; "),
    ("to {}@mail.example.org failed", clean_text, WORDS + "-._+"),
    ("curl -H 'X-Auth-Token: {}' http://x/", clean_text, WORDS + "-._~+/="),
    ("export TOKEN={}; run", clean_text, WORDS + "-._~+/=:@"),
    ("run --client-secret {} -v", clean_text, WORDS + "-._~+/=:@"),
]
ODD = WORDS + "-._~ !$()*+,;:@/?%=&{}[]'\"\\\n\té€"
COMMANDS = [
    (("app", "--password", "{}"), ODD),
    (("app", "--password={}", "-v"), ODD),
    (("env", "GITHUB_TOKEN={}", "app"), ODD),
    (("mysql", "-p{}", "db"), ODD),
    (("sshpass", "-p", "{}", "ssh", "h"), ODD),
    (("curl", "-u", "bob:{}", "http://h/"), ODD),
    (("curl", "-H", "Authorization: {}", "http://h/"), ODD),
    (("psql", "postgres://bob:{}@db/x"), WORDS + "-._~!$()*+,;:@/%="),
    (("bash", "-c", "mysql -p{} -e 'select 1'"), WORDS + "-._~!$*+,:@/%="),
    (("app", "--notify", "{}@example.com"), WORDS + "-._+"),
]


def test_no_planted_secret_survives() -> None:
    rng = random.Random(20)
    for number in range(1_500):
        template, clean, alphabet = TEMPLATES[number % len(TEMPLATES)]
        secret = make_secret(rng, alphabet)
        cleaned = clean(template.format(secret))
        assert not leaks(secret, cleaned), f"{template.format(secret)!r} -> {cleaned!r}"
    for number in range(1_000):
        command, alphabet = COMMANDS[number % len(COMMANDS)]
        secret = make_secret(rng, alphabet)
        given = [word.replace("{}", secret) for word in command]
        cleaned = "\0".join(clean_arguments(given))
        assert cleaned.count("\0") == len(given) - 1
        assert not leaks(secret, cleaned), f"{given!r} -> {cleaned!r}"


def leaks(secret: str, text: str) -> bool:
    """Tell whether any six characters of a secret are in a text."""
    return any(secret[at : at + 6] in text for at in range(len(secret) - 5))


@pytest.mark.parametrize(
    "text",
    [
        "a" * 65_536,
        "a@" * 32_768,
        "%40" * 20_000,
        "password=" * 7_000,
        'x="' * 20_000,
        "--a " * 16_000,
        "://" * 20_000,
        "://a:" * 13_000,
        "eyJ" * 20_000,
        "a." * 30_000 + "@",
        "Bearer" + " " * 60_000,
        ";" * 65_000 + "?" * 9,
        "a=\\" * 20_000,
    ],
    ids=lambda text: text[:8],
)
def test_hostile_texts_take_linear_time(text: str) -> None:
    started = time.process_time()
    clean_text(text)
    clean_query(text)
    clean_arguments(["mysql", text])
    assert time.process_time() - started < 3


def test_email_at_the_edges() -> None:
    assert clean_email("@example.com a@b a@b.c") == "@example.com a@b ?"


@pytest.mark.parametrize(
    ("kind", "value", "cleaned"),
    [
        ("strings", '["mysql", "-psecret"]', '["mysql", "-p?"]'),
        ("strings", '["echo", "x\\"y"]', '["echo", "x\\"y"]'),
        (
            "strings",
            '["curl", "--user", "me:word", "--token", "a"...]',
            '["curl", "--user", "me:?", "--token", "?"...]',
        ),
        ("strings", '["sh", ...]', '["sh", ...]'),
        ("strings", "0x7ffc00001000", "0x7ffc00001000"),
        ("path", '"/run/getty@tty1.service"', '"/run/getty@tty1.service"'),
        ("path", '"/d/token=abc"', '"/d/token=?"'),
        ("str", '"mail me@example.com"', '"mail ?"'),
        ("sockaddr", "{sa_family=AF_INET, sin_port=htons(80)}", "{sa_family=AF_INET, sin_port=htons(80)}"),
        ("sigaction", "{sa_handler=0x5, sa_mask=[], sa_flags=0}", "{sa_handler=0x5, sa_mask=[], sa_flags=0}"),
    ],
)
def test_arguments_of_system_calls(kind: str, value: str, cleaned: str) -> None:
    assert clean_argument("argument", value, kind) == cleaned
