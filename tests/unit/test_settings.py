"""Settings from the environment that are wrong."""

from __future__ import annotations

import pytest

from fairway.bootstrap import startup
from fairway.errors import UsageError
from fairway.settings import Settings


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("name", "value", "wrong"),
    [
        ("FAIRWAY_CPUS", "abc", "'abc' is not a number"),
        ("FAIRWAY_RESOURCES", "x=abc", "'x=abc': the count 'abc' of x is not a whole number"),
        ("FAIRWAY_RESOURCES", "a=1,rdma/hca=", "'a=1,rdma/hca=': the count '' of rdma/hca is not a whole number"),
    ],
)
def test_a_wrong_number_is_refused_with_its_variable_and_a_fix(name: str, value: str, wrong: str) -> None:
    with pytest.raises(UsageError) as problem:
        Settings.from_environment({name: value})
    assert problem.value.message == f"{name}={wrong}"
    assert f"{name}=" in problem.value.fix


@pytest.mark.usefixtures("home")
def test_right_numbers_are_read() -> None:
    settings = Settings.from_environment({"FAIRWAY_CPUS": "2.5", "FAIRWAY_RESOURCES": "rdma/hca=2, licence=1"})
    assert settings.cpus == 2.5
    assert settings.other_resources() == {"rdma/hca": 2, "licence": 1}
    assert Settings.from_environment({}).cpus is None


@pytest.mark.usefixtures("home")
def test_the_daemon_ends_with_the_error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FAIRWAY_CPUS", "abc")
    assert startup.main() == UsageError.exit_code
    assert capsys.readouterr().err.startswith("FAIRWAY_CPUS='abc' is not a number\n")
