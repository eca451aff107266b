"""Services and releases, as displayed to users."""

from dataclasses import replace

import msgspec

from fairway.plan.service.measurement import ServiceMeasurements, ServiceSample
from fairway.spec.service import RolloutPolicy
from fairway.state.fault import WorkFault
from fairway.state.job import JobKey
from fairway.state.service import (
    ReplicaPhase,
    RolloutPhase,
    ScaleDecision,
    ServiceRecord,
    ServiceReplica,
    ServiceRevision,
    ServiceRollout,
)
from fairway.state.serving.batching_verdict import BatchingBasis, BatchingVerdict
from fairway.state.serving.load import LATENCY_BOUNDS, BackendLoad, RevisionLoad, RouteLoad
from fairway.testing.conformance.service_conformance import a_service
from fairway.views.serving.endpoint import EndpointView
from fairway.views.serving.release import history_text, release_line, release_text, release_view
from fairway.views.serving.service import (
    ServiceExplanationView,
    ServiceList,
    change_sentence,
    service_text,
    service_view,
    services_text,
    why_service_text,
    why_service_view,
)
from fairway.views.text.table import TextPage

NOW = 1000.0
ENDPOINT = EndpointView("http://127.0.0.1:4711", "curl -s http://127.0.0.1:4711/")


def a_record(**changes: object) -> ServiceRecord:
    service = replace(a_service(), stable=1, port=4711, scale=ScaleDecision(2, "rate", "20 requests a second"), created=940.0)
    replicas = (
        ServiceReplica(
            service.key, 1, 1, JobKey("default.services", "mnist-r1-1"), ReplicaPhase.READY, 950.0, address="127.0.0.1:1"
        ),
        ServiceReplica(
            service.key, 1, 2, JobKey("default.services", "mnist-r1-2"), ReplicaPhase.STARTING, 990.0, message="not yet"
        ),
        ServiceReplica(service.key, 1, 3, JobKey("default.services", "mnist-r1-3"), ReplicaPhase.GONE, 960.0),
    )
    return ServiceRecord(replace(service, **changes), replicas)  # type: ignore[arg-type]


def measured() -> ServiceMeasurements:
    bars = [0] * (len(LATENCY_BOUNDS) + 1)
    bars[10] = 100
    looks = ServiceMeasurements()
    for time, arrived in ((940.0, 0), (999.0, 590)):
        load = RevisionLoad(arrived=arrived, answered=arrived, failed=3, latency=tuple(bars) if arrived else ())
        looks = looks.add(
            ServiceSample(time, RouteLoad(time, "e", arrived=arrived, revisions={1: load}, backends={"r1-1": BackendLoad(2, 7)}))
        )
    return looks


def test_a_line_a_service() -> None:
    view = service_view(a_record(), measured(), ENDPOINT)
    text = services_text(ServiceList((view,)), NOW, TextPage())
    assert text.splitlines()[0].split() == ["NAME", "PHASE", "SERVES", "READY", "REQ/S", "P95", "URL", "AGE"]
    assert text.splitlines()[1].split() == ["mnist", "Ready", "mnist@7", "1/2", "10", "1.4ms", "http://127.0.0.1:4711", "60s"]
    assert "fairway serve" in services_text(ServiceList(()), NOW, TextPage())


def test_the_page_says_who_answers_and_why_there_are_so_many() -> None:
    text = service_text(service_view(a_record(), measured(), ENDPOINT), NOW, TextPage())
    assert "1 ready, 2 wanted (1 to 3 allowed): 20 requests a second" in text
    assert "10 requests a second, 95 of 100 within 1.4ms, 3 failed" in text
    assert "try:      curl -s http://127.0.0.1:4711/" in text
    assert "r1-1" in text
    assert "r1-3" not in text, "who is gone is not shown"


def test_the_page_has_a_line_that_reports_an_outcome() -> None:
    view = service_view(a_record(), measured(), ENDPOINT)
    assert "report:" not in service_text(msgspec.structs.replace(view, outcome_token="secret"), NOW, TextPage())
    text = service_text(msgspec.structs.replace(view, outcome_token="secret", metric="clicks"), NOW, TextPage())
    headers = "-H 'Authorization: Bearer secret' -H 'fairway-revision: 1' -H 'fairway-outcome: clicks=1'"
    assert f"report:   curl -X POST {headers} http://127.0.0.1:4711/fairway/outcome\n" in text


def test_phases() -> None:
    def phase(record: ServiceRecord) -> str:
        return service_view(record, ServiceMeasurements(), ENDPOINT).phase

    assert phase(a_record()) == "Ready"
    assert phase(a_record(deleting=True)) == "Deleting"
    assert phase(a_record(rollout=ServiceRollout(1, 2, RolloutPhase.STEPPING))) == "Releasing"
    nobody = replace(a_record(), replicas=())
    assert phase(nobody) == "Starting"
    assert phase(replace(nobody, service=replace(nobody.service, scale=ScaleDecision(0)))) == "Idle"
    assert phase(replace(nobody, service=replace(nobody.service, message="r1-1: exited with 1"))) == "Failing"


def test_why_names_the_rule_and_what_would_change_it() -> None:
    fault = WorkFault("service:default/mnist", "route", "port 80 is taken", since=0.0, tries=3, retry_at=14.0)
    view = why_service_view(a_record(message="r1-2 waits: cpu"), [fault])
    text = why_service_text(view, 10.0, TextPage())
    assert "route failed: port 80 is taken; tried 3 times in 10s, again in 4s" in text
    assert "why 2: 20 requests a second (rule: rate)" in text
    assert "what would change it: " in text
    assert "problem: r1-2 waits: cpu" in text


def test_a_release_in_words_and_those_before() -> None:
    second = ServiceRevision(2, a_service().spec, model="mnist@8", model_format="onnx")
    past = ServiceRollout(0, 1, RolloutPhase.DONE, started=100.0, finished=130.0)
    now = ServiceRollout(1, 2, RolloutPhase.STEPPING, 0, 990.0, 980.0, marks={"share": 0.05})
    service = replace(a_record().service, revisions=(*a_service().revisions, second), rollout=now, history=(past,))
    view = release_view(service)
    assert release_line(view) == "r1 -> r2 (mnist@8), rolling, Stepping, 5% of the traffic"
    assert "at this step for 10s" in release_text(view, NOW, TextPage())
    lines = history_text(view, NOW, TextPage()).splitlines()
    assert lines[1].startswith("r1 -> r2")
    assert lines[2].split()[:3] == ["r1", "mnist@7", "Done"]
    assert "never released" in history_text(release_view(replace(service, rollout=None, history=())), NOW, TextPage())


def test_what_an_apply_would_do() -> None:
    service = a_record().service
    second = ServiceRevision(2, service.spec, model="mnist@8")
    assert change_sentence(None, service) == "the service mnist would be created: mnist@7"
    assert "left alone" in change_sentence(service, service)
    assert change_sentence(service, replace(service, floor=2)) == "the service mnist would be changed; what it serves stays"
    released = change_sentence(service, replace(service, revisions=(*service.revisions, second)))
    assert released == "the service mnist would release mnist@8 as r2 (rolling)"


def with_verdict(verdict: BatchingVerdict) -> ServiceRecord:
    service = a_record().service
    return a_record(revisions=tuple(replace(revision, batching=verdict) for revision in service.revisions))


def test_the_pages_say_whether_requests_are_batched_and_why() -> None:
    proven = with_verdict(BatchingVerdict(True, BatchingBasis.PROVEN, "in batches of up to 64 rows", 64))
    view = service_view(proven, ServiceMeasurements(), ENDPOINT)
    assert (view.batching, view.revisions[0].batching) == ("batched (proven): in batches of up to 64 rows",) * 2
    assert "batching: batched (proven): in batches of up to 64 rows" in service_text(view, NOW, TextPage())
    why = why_service_text(why_service_view(proven), NOW, TextPage())
    assert "batching: batched (proven): in batches of up to 64 rows\n" in why
    assert "--batching" not in why


def test_why_says_how_to_declare_what_could_not_be_proven() -> None:
    unknown = with_verdict(BatchingVerdict(False, BatchingBasis.UNKNOWN, "took too long"))
    text = why_service_text(why_service_view(unknown), NOW, TextPage())
    assert "batching: not batched (unknown): took too long\n" in text
    assert "declare it: batching: {mode: always}, or fairway serve --batching" in text
    mixed = with_verdict(BatchingVerdict(False, BatchingBasis.MIXED, "output 'y'"))
    assert "declare it" not in why_service_text(why_service_view(mixed), NOW, TextPage())


def test_before_a_replica_reports_it_nothing_is_said_of_batching() -> None:
    assert "batching" not in service_text(service_view(a_record(), ServiceMeasurements(), ENDPOINT), NOW, TextPage())
    assert "batching" not in why_service_text(why_service_view(a_record()), NOW, TextPage())


def test_what_the_guards_have_seen_is_on_every_page_about_the_service() -> None:
    guard = {"outputs": {"differ": "1%", "tolerance": "0.01"}}
    marks = {"mirror": 0.5, "outputs.n": 200.0, "outputs.k": 3.0, "outputs.largest": 0.25, "outputs.incomparable": 7.0}
    marks |= {"outputs.classes.n": 200.0, "outputs.classes.k": 1.0, "outputs.non_finite.k": 2.0, "outputs.non_finite.n": 200.0}
    rollout = ServiceRollout(1, 2, RolloutPhase.STEPPING, step=0, marks=marks)
    record = a_record(rollout=rollout)
    policy = RolloutPolicy.model_validate({"strategy": "shadow", "guard": guard})
    record = replace(record, service=replace(record.service, spec=record.service.spec.model_copy(update={"rollout": policy})))
    said = (
        "outputs: 1.5% of r2's answers differ from r1's to the same requests (3 of 200 compared; values differ by at most 0.25 "
        "of the largest in their output, tolerance 0.01); allowed is 1%",
        "outputs: 0.5% of r2's answers name another class than r1's to the same requests (1 of 200); allowed is 100%",
        "outputs: 1.0% of r2's answers have NaN or infinity where r1's answers to the same requests are finite (2 of 200)",
        "outputs: not compared: 7 answers in a form that is not comparable",
    )
    status = release_text(release_view(record.service), NOW, TextPage())
    page = service_text(service_view(record, measured(), ENDPOINT), NOW, TextPage())
    why = why_service_text(why_service_view(record), NOW, TextPage())
    assert "shadow, Stepping, 50% of the requests as copies" in status
    for sentence in said:
        assert sentence in status
        assert f"guard:    {sentence}" in page
        assert f"guard: {sentence}" in why
    old = msgspec.json.decode(
        b'{"name":"m","wanted":1,"ready":1,"rule":"r","why":"","would_change":""}', type=ServiceExplanationView
    )
    assert old.release is None
