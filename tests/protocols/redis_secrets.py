"""Where secrets stand in a conversation with Redis: templates for `secret_cases.py`."""

import re

from tests.protocols.secret_cases import SECRET, WORDS, Talk, Template

from tracehound.protocols._protocol import REQUEST, RESPONSE

ANY = WORDS + "-._~+/= :;,!?(){}[]'\"%&#@"
NAME = WORDS + "-._"
OK = "+OK"
# a command, and its reply; `@` is the secret
VALUES = (
    ("SET k @", OK),
    ("SET k @ EX 60 GET", "$ @"),
    ("GETSET k @", "$ @"),
    ("APPEND k @", ":9"),
    ("HSET h @ v", ":1"),
    ("HSET h f @", ":1"),
    ("HGET h @", "$ @"),
    ("HGETALL h", "* f @"),
    ("LPUSH l @ @ @", ":3"),
    ("LRANGE l 0 -1", "* @ @"),
    ("SADD s @", ":1"),
    ("SMEMBERS s", "~ @"),
    ("ZADD z 1 @", ":1"),
    ("ZSCORE z @", ",1.5"),
    ("XADD x * f @", "$ 1-0"),
    ("XREAD STREAMS x 0", "* @"),
    ("PUBLISH news @", ":0"),
    ("ECHO @", "$ @"),
    ("PING @", "$ @"),
    ("MSET a @ b @", OK),
    ("GET k", "= txt:@"),
    ("GET k", "% a @"),
    ("SCAN @ MATCH @", "* 0 @"),
    ("KEYS @", "* @"),
    ("OBJECT ENCODING k @", "$ @"),
    ("RESTORE k 0 @", OK),
    ("SETEX k 10 @", OK),
    ("CLIENT SETNAME @", OK),
    ("CLIENT LIST", "$ addr=@"),
    ("ACL LOG", "* @"),
    ("SLOWLOG GET", "* @"),
    ("FT.SEARCH idx @", "* @"),
    ("JSON.SET doc $ @", OK),
    ("MINE.CALL @ @", "$ @"),
)
PASSWORDS = (
    ("AUTH @", OK),
    ("AUTH @", "-WRONGPASS invalid username-password pair"),
    ("AUTH shop @", OK),
    ("HELLO 3 AUTH shop @", "% server redis"),
    ("HELLO 3 AUTH @ @ SETNAME @", "-NOPROTO unsupported protocol version"),
    ("CONFIG SET requirepass @", OK),
    ("CONFIG SET masterauth @ requirepass @", OK),
    ("CONFIG GET requirepass", "* requirepass @"),
    ("CONFIG @ @", "-ERR unknown subcommand '@'"),
    ("ACL SETUSER bob on >@ ~*", OK),
    ("ACL SETUSER bob #@", OK),
    ("ACL GETUSER bob", "* passwords @"),
    ("ACL GENPASS", "$ @"),
    ("MIGRATE h 6379 k 0 9 AUTH @", OK),
    ("MIGRATE h 6379 k 0 9 AUTH2 shop @", OK),
    ("SENTINEL SET m auth-pass @", OK),
    ("REPLICAOF @ 6379", OK),
    ("MODULE LOAD @ @", "-ERR Error loading @"),
)
SCRIPTS = (
    ("EVAL @ 0", ":1"),
    ("EVAL @ 1 k @", "$ @"),
    ("EVALSHA @ 1 k @", "-NOSCRIPT No matching script"),
    ("FCALL f 1 k @", "$ @"),
    ("SCRIPT LOAD @", "$ 0123"),
    ("FUNCTION LOAD @", "$ f"),
    ("EVAL x 0", "-@ is what the script says"),
    ("EVAL x 0", "-ERR user_script:1: bad token @ script: @, on @user_script:1."),
)
ERRORS = (
    ("@ k v", "-ERR unknown command '@', with args beginning with: 'k' 'v' "),
    ("GET k @", "-ERR wrong number of arguments for '@'"),
    ("GET k", "-@"),
    ("GET k", "-ERR @"),
    ("GET k", "-WRONGTYPE @ holds @"),
    ("GET k", "-NOPERM user @ has no permissions"),
    ("GET k", "-MOVED @"),
    ("GET k", "! ERR @ is wrong"),
    ("EXEC", "* -@"),
    ("SELECT @", "-ERR invalid DB index '@'"),
    ("XREADGROUP GROUP @ @ STREAMS x >", "-NOGROUP No such key 'x' or consumer group '@'"),
)
KEYS = (
    "session:@",
    "sess:@",
    "app:sessions:@:data",
    "token_@",
    "auth-token:@",
    "api_key:@",
    "user:password:@",
    "otp:@:tries",
    "spring:session:@",
    "cookie:@",
    "{secret}:@",
    "jwt:@",
)
MAILS = ("user:@@mail.example.org", "@@example.com", "mail:{@@mail.example.org}:cart", "cart:17:@@shop.example")
USES = (
    "GET {}",
    "SET {} v",
    "MGET a {} b",
    "EVAL x 1 {} v",
    "XREAD STREAMS {} 0",
    "SUBSCRIBE {}",
    "DEL {} {}",
    "OBJECT FREQ {}",
)


def words_of(line: str) -> list[bytes]:
    return [
        word.replace("@@", "\0").replace("@", SECRET.decode()).replace("\0", SECRET.decode() + "@").encode()
        for word in line.split()
    ]


def array(line: str) -> bytes:
    words = words_of(line)
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def inline(line: str) -> bytes:
    return b" ".join(words_of(line)) + b"\r\n"


def reply(line: str) -> bytes:
    """Return a reply: a line as it is, or a type and its elements."""
    kind, _, rest = line.partition(" ")
    if kind in ("$", "=", "!"):
        text = rest.replace("@", SECRET.decode()).encode()
        return b"%s%d\r\n%s\r\n" % (kind.encode(), len(text), text)
    if kind in ("*", "~", "%"):
        words = words_of(rest)
        strings = b"".join(
            b"%s\r\n" % word if word[:1] == b"-" else b"$%d\r\n%s\r\n" % (len(word), word) for word in words
        )
        return b"%s%d\r\n" % (kind.encode(), len(words) // (1 + (kind == "%"))) + strings
    return line.replace("@", SECRET.decode()).encode() + b"\r\n"


def plant(data: bytes, secret: bytes) -> bytes:
    """Put a secret into bytes whose lengths then say so: of every bulk string, and as it is into lines."""
    grown = re.compile(rb"([$=!])(\d+)\r\n((?:(?!\r\n).)*?%s(?:(?!\r\n).)*)\r\n" % SECRET, re.S)

    def grow(found: re.Match[bytes]) -> bytes:
        text = found[3].replace(SECRET, secret)
        return b"%s%d\r\n%s\r\n" % (found[1], len(text), text)

    return grown.sub(grow, data).replace(SECRET, secret)


def talk(command: bytes, answer: bytes) -> Talk:
    return (REQUEST, array("GET k")), (RESPONSE, b"$-1\r\n"), (REQUEST, command), (RESPONSE, answer)


def make_templates() -> list[Template]:
    """Return all places."""
    made: list[Template] = []
    for command, answer in (*VALUES, *PASSWORDS, *SCRIPTS, *ERRORS):
        in_line = answer[:1] in "+-:," or "@" not in answer
        alphabet = ANY if not in_line or "@" not in answer else NAME
        made.append((talk(array(command), reply(answer)), alphabet))
    made += [(talk(inline(command), reply(answer)), NAME) for command, answer in PASSWORDS if command[:1] != "@"]
    for keys, alphabet in ((KEYS, WORDS + "-._~+/="), (MAILS, WORDS + "-._+")):
        made += [(talk(array(use.replace("{}", key)), reply("$ @")), alphabet) for key in keys for use in USES]
    for push in (
        b"*3\r\n$7\r\nmessage\r\n$1\r\na\r\n",
        b">3\r\n$7\r\nmessage\r\n$9\r\nsession:a\r\n",
        b">2\r\n$9\r\nsomething\r\n",
    ):
        confirmed = b"*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n" + push + reply("$ @")
        made.append((talk(array("SUBSCRIBE a"), confirmed), ANY))
    line = b'+OK\r\n+1339518083.107412 [0 127.0.0.1:60866] "AUTH" "@"\r\n'.replace(b"@", SECRET)
    made.append((talk(array("MONITOR"), line), NAME))
    made.append((talk(array("GET k"), b"|1\r\n+ttl\r\n" + reply("$ @") + b"$1\r\nx\r\n"), ANY))
    return made
