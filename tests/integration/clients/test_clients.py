"""The real clients of other servers, one test per case; `pytest tests/integration/clients` ends with a table of them."""

from __future__ import annotations

from typing import Any

import pytest
from cases import HONOURED, REFUSED, SHARES, cases_of

CLIENTS = ("triton_cases", "kserve_cases", "tfserving_cases", "openai_cases", "mlflow_cases")
LEAST = 0.97

pytestmark = [pytest.mark.framework("clients"), pytest.mark.timeout(200)]


@pytest.mark.parametrize(("module", "name"), [(module, name) for module in CLIENTS for name in cases_of(module)])
def test_case(results: Any, module: str, name: str) -> None:
    found = results(module)["found"][name]
    assert not found, found


@pytest.mark.parametrize("module", CLIENTS)
def test_every_method_and_option_has_a_case(results: Any, module: str) -> None:
    covered = {each for case in cases_of(module).values() for each in case.covers}
    missing = [each for each in results(module)["surface"] if each not in covered]
    assert not missing, f"{len(missing)} without a case: {missing}"


@pytest.mark.parametrize("module", CLIENTS)
def test_share(results: Any, module: str, request: pytest.FixtureRequest) -> None:
    cases, found = cases_of(module), results(module)["found"]
    passed = [case for name, case in cases.items() if not found[name]]
    counts = {outcome: sum(case.outcome == outcome for case in passed) for outcome in (HONOURED, REFUSED)}
    share = len(passed) / len(cases)
    request.config.stash.setdefault(SHARES, []).append(
        f"{module.removesuffix('_cases')}: {len(cases)} cases, {counts[HONOURED]} honoured, {counts[REFUSED]} refused with the"
        f" reason, {len(cases) - len(passed)} failed: {share:.1%}"
    )
    assert share >= LEAST
