"""Errors of Redis as rows tell them: the code, and the text with every word that is not Redis's own blanked.

An error's text may quote what the client sent (`unknown command 'hunter2'`), name keys and users, or be made by a
script. So only words that stand in Redis's own texts (the strings of Redis 7.0, a few of later ones) and names of
commands are kept; all others, and numbers, become `?`. Of MOVED and ASK the slot and the address are kept.
"""

import re
from typing import Final

from tracehound.protocols._protocol import CLIENT_ERROR, SERVER_ERROR
from tracehound.protocols._redis_commands import COMMANDS

MESSAGE_LIMIT: Final = 512  # of an error's line, that is looked at
BLANK: Final = "?"
# The server cannot do it now, whoever asks
SERVER_CODES: Final = frozenset((
    "BUSY", "CLUSTERDOWN", "FAILOVER", "INPROG", "IOERR", "LOADING", "MASTERDOWN", "MISCONF", "NOGOODSLAVE",
    "NOMASTERLINK", "NOREPLICAS", "NOTREADY", "OOM", "REDIRECT", "STALE", "TRYAGAIN", "UNBLOCKED", "UNKILLABLE",
))  # fmt: skip
_SERVER_TEXTS: Final = ("max number of clients", "max number of clients + cluster")
_CODE: Final = re.compile(r"[A-Z]{2,24}")
REDIRECT: Final = re.compile(r"(\d{1,5}) ([A-Za-z0-9.:\[\]-]{0,253}:\d{1,5})")
_EDGES: Final = ".,:;!()'\"`"
_VOCABULARY: Final = """
    a aborted aborting aborts about accepted accepts access accumulated acl acls active actual add after again
    against ago all allow allow-oom allow-stale allowed already also always an and another any aof append are arg
    argument arguments array arrays as asc asked associated at atoms attempt authenticate authenticated
    authentication avoid background backlog backlog-size bad bar be because been before beginning being between
    bgrewriteaof bgsave bind bit bitfield bits block blocked blocking body both bound buffer bulk bus busy but by
    bybox byradius bytes cache caching call called calling can can't cannot category center centre certain change
    changed changes channel channels check client clients cluster command commands compile compiled concurrently
    config configuration configured connect connected connecting connection connections consecutive consumer
    consumers contain contains context convert copy correct corrupted could count count-only create created creating
    crossed current currently cursor data database databases dataset db dead debug decrement default defined delete
    denied deny depth desc deserialize destination details detected did different directive directly disable
    disabled disallowed discarded disk distance do does doesn't don't double down dump duplicate during each either
    element elements empty enable enabled end enough entry epoch error errors eval evaluate even exceed exceeded
    exceeds exec executable execute executed executing execution exist existing exists expected expire expires
    expiry explicit explicitly external failed failing failover failure false family field fields file filter find
    finished first flag flags float following for format found from fromlonlat frommember full function functions
    get getex getting given global good greater group groups had handle hard has hash have height held hello higher
    hit hold holding host hosts how hyperloglog id idle ids if illegal implemented in incorrect increment index
    indexes infinity info input inside instance instead int integer interface internal intersection into invalid is
    isn't it it's item items its json key keys keyword kill killed kind large larger last later latitude lead least
    left length lengths less level lib library like limit limited limits line link list list-max listening listpack
    load loaded loading local locally lock loglog logs long longer longitude longitude,latitude loopback lower lua
    made manage manually many mapping mark master match matching max maximum maxmemory may maybe member members
    memory message method min minimum missing mode modified modify module modules moment more most moving msetnx
    multi multibulk multiple must my name named names nan nargs need needed needs negative nested network never new
    next nil no no-writes node nodes non non-negative none nonexistent nosave not not-allowed note nothing now null
    number numbers numeric numkeys object objects of off offset on once one only open opened operand operation
    operations option optional options or order other otherwise out output over overflow own pair pairs parameter
    parameters parse parsing partial password path pattern patterns pending permission permissions permitted persist
    persisted persistence pipelined please point pop port position positive possible preceded precision prefix
    previous primary private privileges probability process processed processing progress protected protected-mode
    protocol provided psetex pubsub push query queue queued quit radius raise range ranges rank rdb re-enabled
    reached read read-only reading readonly reason receive received redirect redis redis-cli reduce refer reference
    references refused register registered rehashing reload remote removed replica replica-serve-stale-data replicas
    replicate replication reply report request requested require required requires reset resharding resolved resp
    response rest retry return returned returning rewrite rewriting right role rule rules run running safe same save
    saved saving scan scheduled schema score scores script scripts second see select selected send sent sentinel
    serialization serve served server set setex sets setting shard should shutdown signed simple simultaneously size
    sizes slave slot slots slow small snapshots socket some sorry sort sorted source spawning specific specified
    stack stale start state still stop stop-writes-on-bgsave-error storage store stored stream streams string
    strings subcommand subscribe subscribed subscriptions success such super supplied support supported switch sync
    syntax system table take takes target temporarily termination text than that the them then there they this time
    timed timeout timestamp to token tokens too top track tracking transaction trim true try trying ttl turn two
    type types unable unauthenticated unbalanced under unexpected union unit unix unknown unless unloaded
    unrecognized unrecoverable unsigned unsubscribe unsupported until update updated url us usage use used user
    username username-password using valid valkey value values variable vector version wait waiting want was way
    ways we weight weights were what when where which while whole width will with within without withscores word
    words would writable write writes writing written wrong wrongtype you your zero
"""
_WORDS: Final = frozenset(_VOCABULARY.split())


def read_error(line: bytes) -> tuple[str, str | None, str]:
    """Return error_type, error_message and outcome of an error, `line` being what stands behind its `-`."""
    text = line[:MESSAGE_LIMIT].decode("latin-1")
    code, _, rest = text.partition(" ")
    if not _CODE.fullmatch(code):
        code, rest = "ERR", text
    outcome = SERVER_ERROR if code in SERVER_CODES or rest.startswith(_SERVER_TEXTS) else CLIENT_ERROR
    redirect = REDIRECT.fullmatch(rest) if code in ("MOVED", "ASK") else None
    return code, (redirect[0] if redirect else clean_message(rest)) or None, outcome


def clean_message(text: str) -> str:
    """Return a text with what is not Redis's own word blanked, several in a row as one."""
    text = text.partition(", with args")[0]  # the arguments of a command that was not known
    kept: list[str] = []
    for word in text.split():
        if is_own_word(word):
            kept.append(word)
        elif not kept or kept[-1] != BLANK:
            kept.append(BLANK)
    return " ".join(kept)


def is_own_word(word: str) -> bool:
    """Say whether a word of an error is one of Redis's own, which may be shown."""
    bare = word.strip(_EDGES)
    is_sign = len(word) == 1 and not word.isalnum()
    return is_sign or bare.lower() in _WORDS or bare.upper().encode("utf-8") in COMMANDS
