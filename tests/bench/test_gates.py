"""How a bench states its claims."""

import pytest
from bench._gates import Gates, spread


def test_a_gate_is_a_line_and_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    gates = Gates()
    gates.at_least("drain", 25.0, 25)
    gates.at_most("import", 1.5, 1.5)
    gates.holds("nothing lost", True)
    with pytest.raises(SystemExit) as ended:
        gates.exit()
    assert ended.value.code == 0
    assert capsys.readouterr().out.splitlines() == [
        "PASS  drain: 25.00 (at least 25)",
        "PASS  import: 1.50 (at most 1.5)",
        "PASS  nothing lost",
    ]


@pytest.mark.parametrize(("value", "limit"), [(24.99, 25), (0, 1)])
def test_one_gate_that_fails_fails_the_bench(value: float, limit: float, capsys: pytest.CaptureFixture[str]) -> None:
    gates = Gates()
    gates.at_least("first", value, limit)
    gates.at_most("second", value, limit)
    with pytest.raises(SystemExit) as ended:
        gates.exit()
    assert ended.value.code == 1
    assert [line[:4] for line in capsys.readouterr().out.splitlines()] == ["FAIL", "PASS"]


def test_spread_is_median_least_and_most() -> None:
    assert spread([3.0, 1.0, 2.0]) == "2.00 (1.00 to 3.00)"
