"""Resource usage of replicas: limits beside a measured rate, and the only rule for servers that report nothing."""

from dataclasses import replace

import pytest

from fairway.plan.service import autoscaler, resource_use
from fairway.plan.service.service_plan import ServiceMeasurements, ServiceSample
from fairway.simulation.service import load_shape
from fairway.simulation.service.simulated_service import SimulatedService
from fairway.simulation.service.version_behaviour import VersionBehaviour
from fairway.spec.service import ScalingPolicy, ServiceSpec
from fairway.state.serving.load import BackendLoad, ReplicaUse, RouteLoad
from fairway.testing.builder.service_builder import a_service, service_looks

NAMES = frozenset({"r1-1", "r1-2"})


def with_use(measured, every=5.0, names=("r1-1",), **use):
    """Return the same measurements with the replicas' resource usage, sampled every five seconds."""
    samples = [
        replace(sample, use={name: ReplicaUse(sample.time // every * every, **use) for name in names})
        for sample in measured.samples
    ]
    return ServiceMeasurements(tuple(samples))


def decide(service, measured, now=60.0, names=("r1-1",)):
    return autoscaler.decide(service, {1: frozenset(names)}, {1: 1.0}, measured, now, may_shrink=True)


def test_the_sum_of_what_replicas_use_is_averaged_over_its_looks():
    measured = with_use(service_looks(60, 5.0), names=sorted(NAMES), cpu=0.4, gpu=0.5, memory=0.6)
    use = resource_use.of_replicas(measured, NAMES)
    assert (use.cpu, use.gpu, use.memory) == (pytest.approx(0.8), pytest.approx(1.0), pytest.approx(0.6))


def test_a_moment_says_nothing():
    measured = with_use(service_looks(60, 5.0), every=60.0, cpu=5.0)
    assert resource_use.of_replicas(measured, NAMES).cpu is None
    assert resource_use.of_replicas(ServiceMeasurements(), NAMES) == resource_use.FleetUse()


@pytest.mark.parametrize("what", ["cpu", "gpu"])
def test_what_is_used_adds_replicas_though_the_rate_says_no(what):
    tired = with_use(service_looks(60, 5.0), **{what: 0.98})
    scale = decide(a_service(), tired)
    assert (scale.wanted, scale.rule) == (2, what)
    assert "replicas use 98% of their" in scale.why
    assert "they should use at most 90%" in scale.why
    assert decide(a_service(scaling={what: "0%"}), tired).wanted == 1
    assert f"scaling.{what}" in autoscaler.would_change(a_service().spec, scale)


def test_it_at_most_doubles_them():
    assert decide(a_service(), with_use(service_looks(60, 5.0), cpu=7.0)).wanted == 2


def test_nobody_asks_so_what_replicas_do_for_themselves_adds_nothing():
    assert decide(a_service(), with_use(service_looks(60, 0.0), cpu=1.0)).wanted == 1


def test_what_two_use_is_not_given_to_one():
    """By the rate, one replica suffices; but together they use 1.7 times the cores of one."""
    service = replace(a_service(2), scale=replace(a_service(2).scale, service_rate={1: 100.0}))
    names = ("r1-1", "r1-2")
    scale = decide(service, with_use(service_looks(60, 5.0, replicas=names), names=names, cpu=0.85), names=names)
    assert (scale.wanted, scale.rule) == (2, "cpu")


def test_short_memory_lets_nothing_go_and_says_so():
    service = a_service(2, scaling={"hold": "1s"})
    service = replace(service, scale=replace(service.scale, service_rate={1: 100.0}, recommendations=((59.5, 1),)))
    full = with_use(service_looks(60, 5.0), memory=0.95)
    scale = decide(service, full)
    assert (scale.wanted, scale.rule) == (2, "memory")
    assert scale.why.startswith(
        "replicas use 95% of their memory; none is removed at 90% or more; 1 would be enough: 5 requests/s"
    )
    assert "limits.memory" in autoscaler.would_change(service.spec, scale)
    assert decide(service, with_use(service_looks(60, 5.0), memory=0.8)).wanted == 1
    assert decide(replace(service, spec=a_service(scaling={"hold": "1s", "memory": "0%"}).spec), full).wanted == 1


def a_command(wanted=1, **fields):
    return a_service(wanted, model="", command=["serve"], **fields)


def at_once(count, seconds=60, rate=10.0, names=("r1-1",)):
    """Return measurements of servers that report nothing: the router sees `count` requests in flight at each."""
    measured = ServiceMeasurements()
    for step in range(int(seconds / 2) + 1):
        time = 2.0 * step
        backend = BackendLoad(in_flight=count, answered=round(rate * time), busy_seconds=time)
        measured = measured.add(
            ServiceSample(time, RouteLoad(time, arrived=round(rate * time), backends=dict.fromkeys(names, backend)))
        )
    return measured


def test_a_command_is_as_busy_as_its_requests_at_once():
    scale = decide(a_command(), at_once(8))
    assert (scale.wanted, scale.rule, scale.service_rate) == (1, "requests", {})
    assert scale.why == "8 requests at once, and a replica can take 32; the target is 75%"
    assert decide(a_command(), at_once(40)).wanted == 2
    assert decide(a_command(), at_once(400)).wanted == 3
    assert decide(a_command(scaling={"concurrency": 4}), at_once(8)).wanted == 3


def test_a_command_is_as_busy_as_its_cores_or_its_gpu_when_that_is_more():
    scale = decide(a_command(), with_use(at_once(2), cpu=0.8))
    assert (scale.wanted, scale.rule) == (2, "cpu")
    scale = decide(a_command(), with_use(at_once(2), cpu=0.1, gpu=0.9))
    assert (scale.wanted, scale.rule) == (2, "gpu")
    assert "replicas use 90% of their GPUs; the target is 75%" in scale.why


def test_a_missed_objective_of_a_command_looks_at_what_it_uses():
    assert resource_use.busy(ScalingPolicy(), resource_use.FleetUse(), 1) is None
    assert decide(a_command(), at_once(0, rate=0.0)).rule == "min"


def test_a_command_that_can_do_many_things_at_once_is_not_given_a_replica_for_each():
    """The time with a request in flight does not tell its capacity; by that, it would get the maximum of replicas."""
    world = SimulatedService(load_shape.steady(30.0), seed=1, tick=1.0)
    spec = {"command": ["serve"], "replicas": {"min": 1, "max": 20}, "scaling": {"hold": "30s"}}
    world.apply(ServiceSpec.model_validate(spec), VersionBehaviour(rate=200.0))
    world.run(300)
    assert world.service.scale.wanted == 1
    world.traffic = load_shape.steady(400.0)
    world.run(200)
    assert world.service.scale.wanted in (3, 4)
    assert {plan.service.scale.rule for _, plan in world.plans[-60:]} <= {"cpu", "requests", "hold", "pace"}
    world.traffic = load_shape.steady(30.0)
    world.run(200)
    assert world.service.scale.wanted == 1
