"""Which programs are wanted after others were refused, and what is told of them."""

from tracehound.kernel.probes import PROGRAMS, Program, ProgramStatus, is_wanted, with_stand_ins

SEND = Program("on_send", "data", "sock_send_length", "requests", "nothing sent is seen")
STAND_IN = Program(
    "on_tcp_send", "data_fallback", "tcp_sendmsg", "requests", "nothing sent is seen", False, "on_send", "no TLS"
)
SAME = Program("on_send_old", "data_old", "sock_send_length", "requests", "nothing sent is seen", False, "on_send")
PAGES = Program("on_tcp_send_page", "data_fallback", "tcp_sendpage", "requests", "no files", False, "on_send")


def test_a_stand_in_is_wanted_only_where_its_program_is_not_attached() -> None:
    assert is_wanted(SEND, [])
    assert not is_wanted(STAND_IN, [ProgramStatus(SEND, True)])
    assert is_wanted(STAND_IN, [ProgramStatus(SEND, False, "refused")])


def test_what_is_lost_with_a_stand_in_is_told_once() -> None:
    refused = ProgramStatus(SEND, False, "refused")
    first, second = with_stand_ins([refused, ProgramStatus(STAND_IN, True)])
    assert (first.program.lost_by_it, first.reason, first.stand_in) == ("no TLS", "refused", STAND_IN)
    assert second == ProgramStatus(STAND_IN, True)
    assert with_stand_ins([refused, ProgramStatus(SAME, True)]) == [ProgramStatus(SAME, True)]


def test_a_stand_in_that_was_refused_is_told_only_beside_one_that_was_not() -> None:
    refused, pages = ProgramStatus(SEND, False, "refused"), ProgramStatus(PAGES, False, "refused")
    assert with_stand_ins([refused, ProgramStatus(STAND_IN, False, "refused"), pages]) == [refused]
    assert with_stand_ins([refused, ProgramStatus(STAND_IN, True), pages])[1:] == [ProgramStatus(STAND_IN, True), pages]


def test_stand_ins_come_after_what_they_stand_in_for() -> None:
    names = [program.name for program in PROGRAMS]
    for place, program in enumerate(PROGRAMS):
        assert program.instead_of is None or program.instead_of in names[:place]


def test_each_program_has_a_name_of_its_own() -> None:
    names = [program.name for program in PROGRAMS]
    assert len(names) == len(set(names))
