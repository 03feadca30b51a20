"""The first bytes of values in RESP2 and RESP3."""

from typing import Final

STATUS: Final = 43  # +
ERROR: Final = 45  # -
INTEGER: Final = 58  # :
BULK: Final = 36  # $
ARRAY: Final = 42  # *
NULL: Final = 95  # _
BOOLEAN: Final = 35  # #
DOUBLE: Final = 44  # ,
BIG_NUMBER: Final = 40  # (
BULK_ERROR: Final = 33  # !
VERBATIM: Final = 61  # =
MAP: Final = 37  # %
SET: Final = 126  # ~
PUSHED: Final = 62  # >
ATTRIBUTES: Final = 124  # |
CHUNK: Final = 59  # ;
STREAM_END: Final = 46  # .
