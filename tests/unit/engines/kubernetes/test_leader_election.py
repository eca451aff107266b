from fairway.engines.kubernetes.leader_election import LeaseState, LeaseTiming, micro_time
from fairway.engines.kubernetes.objects import KubernetesLease, LeaseSpec, ObjectMetadata

PACE = LeaseTiming()


def lease(holder, version="1", **spec):
    return KubernetesLease(
        ObjectMetadata(name="l", namespace="n", resource_version=version), LeaseSpec(holder_identity=holder, **spec)
    )


def test_no_lease_is_free():
    tenure = LeaseState("me")
    tenure.look(None, 0)
    assert tenure.may_take(0)
    assert not tenure.leading(0)
    spec = tenure.record("n", "l", "now")["spec"]
    assert (spec["holderIdentity"], spec["leaseTransitions"], spec["acquireTime"]) == ("me", 0, "now")
    assert "resourceVersion" not in tenure.record("n", "l", "now")["metadata"]


def test_anothers_lease_runs_out_by_our_own_clock_alone():
    tenure = LeaseState("me")
    long_ago = "2001-01-01T00:00:00.000000Z"
    tenure.look(lease("other", "1", renew_time=long_ago, lease_duration_seconds=15), 100)
    assert not tenure.may_take(100)
    tenure.look(lease("other", "2", renew_time=long_ago), 110)  # the lease changed: its holder is alive, whatever its clock
    assert not tenure.may_take(110 + PACE.duration)
    tenure.look(lease("other", "2"), 120)
    assert tenure.may_take(110 + PACE.duration + 0.1)


def test_a_lease_that_was_given_back_is_free_at_once():
    tenure = LeaseState("me")
    tenure.look(lease("", lease_transitions=3), 0)
    assert tenure.may_take(0)
    record = tenure.record("n", "l", "now")
    assert record["metadata"]["resourceVersion"] == "1"
    assert record["spec"]["leaseTransitions"] == 4


def test_a_leader_knows_when_to_stop():
    tenure = LeaseState("me")
    tenure.look(None, 0)
    tenure.wrote(lease("me", acquire_time="then", lease_transitions=2), 100)
    assert tenure.leading(100 + PACE.deadline - 0.1)
    assert not tenure.leading(100 + PACE.deadline)
    assert PACE.deadline < PACE.duration
    spec = tenure.record("n", "l", "now")["spec"]
    assert (spec["acquireTime"], spec["renewTime"], spec["leaseTransitions"]) == ("then", "now", 2)


def test_a_leader_that_sees_another_stops_at_once():
    tenure = LeaseState("me")
    tenure.look(None, 0)
    tenure.wrote(lease("me"), 100)
    tenure.look(lease("other", "2"), 101)
    assert not tenure.leading(101)
    assert not tenure.may_take(101)


def test_times_as_the_api_writes_them():
    assert micro_time(1_794_726_635.96006) == "2026-11-15T07:10:35.960060Z"
