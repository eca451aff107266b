"""The settings of the operator's Deployment."""

from __future__ import annotations

import pytest

from fairway.bootstrap import operator
from fairway.bootstrap.operator import OperatorSettings
from fairway.errors import UsageError


@pytest.mark.parametrize("port", ["abc", "80.5", "tcp://10.0.0.1:8080", "65536", "-1"])
def test_a_wrong_port_is_refused_with_its_variable_and_a_fix(port: str) -> None:
    with pytest.raises(UsageError) as problem:
        OperatorSettings.from_environment({"FAIRWAY_OPERATOR_PORT": port})
    assert problem.value.message == f"FAIRWAY_OPERATOR_PORT={port!r} is not a port"
    assert "FAIRWAY_OPERATOR_PORT=8080" in problem.value.fix


@pytest.mark.parametrize(
    ("given", "port"), [({}, 8080), ({"FAIRWAY_OPERATOR_PORT": "9000"}, 9000), ({"FAIRWAY_OPERATOR_PORT": "0"}, 0)]
)
def test_a_port_is_read(given: dict[str, str], port: int) -> None:
    assert OperatorSettings.from_environment(given).port == port


def test_the_operator_ends_with_the_error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FAIRWAY_OPERATOR_PORT", "abc")
    assert operator.main() == UsageError.exit_code
    assert capsys.readouterr().err.startswith("FAIRWAY_OPERATOR_PORT='abc' is not a port\n")
