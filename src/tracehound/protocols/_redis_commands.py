"""What Redis commands are there, and which of their arguments are keys: nothing else of a command is ever shown.

Source: the reply to COMMAND of Redis 7.0, and the command pages of redis.io and valkey.io for what came later; names of
the modules shipped with Redis 8. A command that is not here is shown as `?`, unless its name has a module's form
(`JSON.GET`): one that was renamed to be kept secret, or a password typed in the wrong place, must not become a name.
"""

import re
from typing import Final, final

# What a command means for what follows on its connection
PLAIN: Final = 0
SUBSCRIBE: Final = 1  # SUBSCRIBE, PSUBSCRIBE, SSUBSCRIBE and their opposites: an answer for each channel
UNSUBSCRIBE: Final = 2
SELECT: Final = 3
AUTH: Final = 4
HELLO: Final = 5
RESET: Final = 6
MONITOR: Final = 7
SYNC: Final = 8
REPLY: Final = 9  # CLIENT REPLY
EXEC: Final = 10
DISCARD: Final = 11
STREAMS: Final = 12  # XREAD: keys stand behind the word STREAMS


@final
class Command:
    """One command: its keys are the arguments `first` (0: none) to `last` (from the end if negative), each `step`th.

    `count_at`: the argument that tells how many keys stand behind it, 0 if there is none.
    """

    __slots__ = (
        "can_block", "count_at", "effect", "first", "is_named", "last", "operation", "size", "step", "within",
    )  # fmt: skip

    def __init__(
        self,
        operation: str,
        first: int = 0,
        last: int = 0,
        step: int = 1,
        count_at: int = 0,
        effect: int = PLAIN,
        can_block: bool = False,
    ) -> None:
        self.operation = operation
        self.size = operation.count(" ") + 1  # of its name, in arguments
        self.first = first
        self.last = last
        self.step = step
        self.count_at = count_at
        self.effect = effect
        self.can_block = can_block  # it may wait for as long as it was told to
        self.is_named = False  # its first argument names a script or a function
        self.within: dict[bytes, Command] | None = None  # sub-commands


# first, last, step -> commands
_KEYS: Final = {
    (0, 0, 1): (
        "ASKING BGREWRITEAOF BGSAVE CLUSTERSCAN DBSIZE DEBUG ECHO FAILOVER FLUSHALL FLUSHDB INFO KEYS LASTSAVE "
        "LOLWUT MULTI PFSELFTEST PING QUIT RANDOMKEY READONLY READWRITE REPLCONF REPLICAOF ROLE SAVE SCAN SHUTDOWN "
        "SLAVEOF SWAPDB TIME UNWATCH HOTKEYS TRIMSLOTS"
    ),
    (1, 1, 1): (
        "APPEND BITCOUNT BITFIELD BITFIELD_RO BITPOS DECR DECRBY DELEX DELIFEQ DIGEST DUMP EXPIRE EXPIREAT EXPIRETIME "
        "GEOADD GEODIST GEOHASH GEOPOS GEORADIUS GEORADIUS_RO GEORADIUSBYMEMBER GEORADIUSBYMEMBER_RO GEOSEARCH GET "
        "GETBIT GETDEL GETEX GETRANGE GETSET HDEL HEXISTS HEXPIRE HEXPIREAT HEXPIRETIME HGET HGETALL HGETDEL HGETEX "
        "HINCRBY HINCRBYFLOAT HKEYS HLEN HMGET HMSET HPERSIST HPEXPIRE HPEXPIREAT HPEXPIRETIME HPTTL HRANDFIELD "
        "HSCAN HSET HSETEX HSETNX HSTRLEN HTTL HVALS INCR INCRBY INCRBYFLOAT LINDEX LINSERT LLEN LPOP LPOS LPUSH "
        "LPUSHX LRANGE LREM LSET LTRIM MOVE PERSIST PEXPIRE PEXPIREAT PEXPIRETIME PFADD PSETEX PTTL PUBLISH RESTORE "
        "RESTORE-ASKING RPOP RPUSH RPUSHX SADD SCARD SET SETBIT SETEX SETNX SETRANGE SISMEMBER SMEMBERS SMISMEMBER "
        "SORT SORT_RO SPOP SPUBLISH SRANDMEMBER SREM SSCAN STRLEN SUBSTR TTL TYPE XACK XACKDEL XADD XAUTOCLAIM XCFGSET "
        "XCLAIM XDEL XDELEX XLEN XNACK XPENDING XRANGE XREVRANGE XSETID XTRIM ZADD ZCARD ZCOUNT ZINCRBY ZLEXCOUNT "
        "ZMSCORE ZPOPMAX ZPOPMIN ZRANDMEMBER ZRANGE ZRANGEBYLEX ZRANGEBYSCORE ZRANK ZREM ZREMRANGEBYLEX "
        "ZREMRANGEBYRANK ZREMRANGEBYSCORE ZREVRANGE ZREVRANGEBYLEX ZREVRANGEBYSCORE ZREVRANK ZSCAN ZSCORE VADD VCARD "
        "VDIM VEMB VGETATTR VINFO VISMEMBER VLINKS VRANDMEMBER VRANGE VREM VSETATTR VSIM "
        "JSON.ARRAPPEND JSON.ARRINDEX JSON.ARRINSERT JSON.ARRLEN JSON.ARRPOP JSON.ARRTRIM JSON.CLEAR JSON.DEL "
        "JSON.FORGET JSON.GET JSON.MERGE JSON.NUMINCRBY JSON.NUMMULTBY JSON.OBJKEYS JSON.OBJLEN JSON.RESP JSON.SET "
        "JSON.STRAPPEND JSON.STRLEN JSON.TOGGLE JSON.TYPE BF.ADD BF.CARD BF.EXISTS BF.INFO BF.INSERT BF.MADD "
        "BF.MEXISTS BF.RESERVE CF.ADD CF.ADDNX CF.COUNT CF.DEL CF.EXISTS CF.INFO CF.INSERT CF.INSERTNX CF.MEXISTS "
        "CF.RESERVE CMS.INCRBY CMS.INFO CMS.INITBYDIM CMS.INITBYPROB CMS.QUERY TOPK.ADD TOPK.INCRBY TOPK.INFO "
        "TOPK.LIST TOPK.QUERY TOPK.RESERVE TDIGEST.ADD TDIGEST.CDF TDIGEST.CREATE TDIGEST.INFO TDIGEST.MAX "
        "TDIGEST.MIN TDIGEST.QUANTILE TDIGEST.RANK TS.ADD TS.ALTER TS.CREATE TS.DECRBY TS.DEL TS.GET TS.INCRBY "
        "TS.INFO TS.RANGE TS.REVRANGE FT.SEARCH FT.AGGREGATE FT.CREATE FT.INFO FT.ALTER FT.DROPINDEX"
    ),
    (1, -1, 1): (
        "DEL EXISTS MGET PFCOUNT PFMERGE SDIFF SDIFFSTORE SINTER SINTERSTORE SUNION SUNIONSTORE TOUCH UNLINK WATCH"
    ),
    (1, -2, 1): "BLPOP BRPOP BZPOPMAX BZPOPMIN JSON.MGET",
    (1, -1, 2): "MSET MSETNX",
    (1, -1, 3): "TS.MADD JSON.MSET",
    (1, 2, 1): (
        "BLMOVE BRPOPLPUSH COPY GEOSEARCHSTORE LCS LMOVE RENAME RENAMENX RPOPLPUSH SMOVE ZRANGESTORE TS.CREATERULE "
        "TS.DELETERULE"
    ),
    (2, -1, 1): "BITOP",
    (2, 2, 1): "PFDEBUG",
    (3, 3, 1): "MIGRATE",
}  # fmt: skip
# first, last, count_at -> commands
_COUNTED: Final = {
    (0, 0, 1): "LMPOP SINTERCARD SUNIONCARD SDIFFCARD ZDIFF ZINTER ZINTERCARD ZMPOP ZUNION",
    (0, 0, 2): "BLMPOP BZMPOP EVAL EVAL_RO EVALSHA EVALSHA_RO FCALL FCALL_RO",
    (1, 1, 2): "ZDIFFSTORE ZINTERSTORE ZUNIONSTORE CMS.MERGE TDIGEST.MERGE",
}
# sub-commands; those behind a colon have a key
_WITHIN: Final = {
    "ACL": "CAT DELUSER DRYRUN GENPASS GETUSER HELP LIST LOAD LOG SAVE SETUSER USERS WHOAMI",
    "CLIENT": (
        "CACHING GETNAME GETREDIR HELP ID INFO KILL LIST MAINT_NOTIFICATIONS NO-EVICT NO-TOUCH PAUSE REPLY SETINFO "
        "SETNAME TRACKING TRACKINGINFO UNBLOCK UNPAUSE CAPA IMPORT-SOURCE"
    ),
    "CLUSTER": (
        "ADDSLOTS ADDSLOTSRANGE BUMPEPOCH COUNT-FAILURE-REPORTS COUNTKEYSINSLOT DELSLOTS DELSLOTSRANGE FAILOVER "
        "FLUSHSLOTS FORGET GETKEYSINSLOT HELP INFO KEYSLOT LINKS MEET MIGRATION MYID MYSHARDID NODES REPLICAS "
        "REPLICATE RESET SAVECONFIG SET-CONFIG-EPOCH SETSLOT SHARDS SLAVES SLOT-STATS SLOTS SYNCSLOTS"
    ),
    "COMMAND": "COUNT DOCS GETKEYS GETKEYSANDFLAGS HELP INFO LIST",
    "COMMANDLOG": "GET HELP LEN RESET",
    "CONFIG": "GET HELP RESETSTAT REWRITE SET",
    "FUNCTION": "DELETE DUMP FLUSH HELP KILL LIST LOAD RESTORE STATS",
    "LATENCY": "DOCTOR GRAPH HELP HISTOGRAM HISTORY LATEST RESET",
    "MEMORY": "DOCTOR HELP MALLOC-STATS PURGE STATS : USAGE",
    "MODULE": "HELP LIST LOAD LOADEX UNLOAD",
    "OBJECT": "HELP : ENCODING FREQ IDLETIME REFCOUNT",
    "PUBSUB": "CHANNELS HELP NUMPAT NUMSUB SHARDCHANNELS SHARDNUMSUB",
    "SCRIPT": "DEBUG EXISTS FLUSH HELP KILL LOAD SHOW",
    "SENTINEL": (
        "CKQUORUM CONFIG FAILOVER FLUSHCONFIG GET-MASTER-ADDR-BY-NAME GET-PRIMARY-ADDR-BY-NAME INFO-CACHE "
        "IS-MASTER-DOWN-BY-ADDR MASTER MASTERS MONITOR MYID PENDING-SCRIPTS PRIMARIES PRIMARY REMOVE REPLICAS RESET "
        "SENTINELS SET SLAVES"
    ),
    "SLOWLOG": "GET HELP LEN RESET",
    "XGROUP": "HELP : CREATE CREATECONSUMER DELCONSUMER DESTROY SETID",
    "XINFO": "HELP : CONSUMERS GROUPS STREAM",
}
_SPECIAL: Final = (
    Command("SUBSCRIBE", 1, -1, effect=SUBSCRIBE),
    Command("PSUBSCRIBE", 1, -1, effect=SUBSCRIBE),
    Command("SSUBSCRIBE", 1, -1, effect=SUBSCRIBE),
    Command("UNSUBSCRIBE", 1, -1, effect=UNSUBSCRIBE),
    Command("PUNSUBSCRIBE", 1, -1, effect=UNSUBSCRIBE),
    Command("SUNSUBSCRIBE", 1, -1, effect=UNSUBSCRIBE),
    Command("SELECT", 1, 1, effect=SELECT),
    Command("AUTH", 1, -2, effect=AUTH),  # the password is the last
    Command("HELLO", 2, 3, effect=HELLO),  # HELLO 3 AUTH user password
    Command("RESET", effect=RESET),
    Command("MONITOR", effect=MONITOR),
    Command("PSYNC", effect=SYNC),
    Command("SYNC", effect=SYNC),
    Command("EXEC", effect=EXEC),
    Command("DISCARD", effect=DISCARD),
    Command("XREAD", 1, -1, effect=STREAMS, can_block=True),
    Command("XREADGROUP", 1, -1, effect=STREAMS, can_block=True),
    Command("WAIT", can_block=True),
    Command("WAITAOF", can_block=True),
)
_BLOCKING: Final = "BLPOP BRPOP BLMOVE BRPOPLPUSH BLMPOP BZPOPMIN BZPOPMAX BZMPOP DEBUG"
_NAMED: Final = "EVALSHA EVALSHA_RO FCALL FCALL_RO"
_MODULE: Final = re.compile(rb"[A-Z]{2,10}\.[A-Z_]{2,20}")

UNKNOWN: Final = Command("?")


def _make_commands() -> dict[bytes, Command]:
    found = {one.operation: one for one in _SPECIAL}
    for (first, last, step), names in _KEYS.items():
        found |= {name: Command(name, first, last, step) for name in names.split()}
    for (first, last, count_at), names in _COUNTED.items():
        found |= {name: Command(name, first, last, 1, count_at) for name in names.split()}
    for name in _BLOCKING.split():
        found[name].can_block = True
    for name in _NAMED.split():
        found[name].is_named = True
        found[name].first = found[name].last = 1  # until the number of keys is known
    for name, names in _WITHIN.items():
        plain, _, keyed = names.partition(":")
        command = found[name] = Command(name)
        command.within = {sub.encode(): Command(f"{name} {sub}") for sub in plain.split()}
        command.within |= {sub.encode(): Command(f"{name} {sub}", 2, 2) for sub in keyed.split()}
    reply = found["CLIENT"].within
    assert reply is not None
    reply[b"REPLY"] = Command("CLIENT REPLY", 2, 2, effect=REPLY)
    return {name.encode(): command for name, command in found.items()}


COMMANDS: Final = _make_commands()


def find_command(name: bytes) -> Command:
    """Return a command by its name in any case; `UNKNOWN` if it is none."""
    upper = name.upper()
    known = COMMANDS.get(upper)
    if known is None:
        return Command(upper.decode()) if _MODULE.fullmatch(upper) else UNKNOWN
    return known


def key_range(command: Command, count: int) -> tuple[int, int, int]:
    """Return first, last and step of the keys of a command of `count` arguments."""
    if not command.first:
        return 0, -1, 1
    return command.first, command.last if command.last >= 0 else count + command.last, command.step


def find_within(command: Command, name: bytes) -> Command:
    """Return a sub-command; that of an unknown one has only the command's name."""
    assert command.within is not None
    return command.within.get(name.upper()) or Command(command.operation)


def is_command(name: bytes) -> bool:
    """Say whether it is the name of a command."""
    return find_command(name) is not UNKNOWN
