"""How replicas are called."""

from __future__ import annotations

from fairway.plan.service.replica import highest_number, replica_key
from fairway.state.job import JobKey
from fairway.state.service import ServiceKey

KEY = ServiceKey("default", "mnist")


def test_numbers_go_on_after_every_run_of_the_name_and_of_no_other() -> None:
    others = [
        JobKey("default", "mnist-r1-90"),
        replica_key(ServiceKey("other", "mnist"), 1, 91),
        replica_key(ServiceKey("default", "mnist-r1"), 1, 92),
        replica_key(ServiceKey("default", "mnis"), 1, 93),
        JobKey("default.services", "mnist-r1-94-evaluation"),
    ]
    assert highest_number(KEY, []) == 0
    assert highest_number(KEY, others) == 0
    assert highest_number(KEY, [*others, replica_key(KEY, 1, 9), replica_key(KEY, 2, 10)]) == 10
    assert highest_number(ServiceKey("default", "mnist-r1"), others) == 92
