"""The metrics page of a service, and scrapes that wake no replica."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text
from router_stage import Answer, Stage, until

from fairway.serving.router.observe.service_observer import ServiceObserver
from fairway.state.serving.route import RouteBackend, RouteObservation

MODEL = RouteObservation(model="m", version="7", metrics="/metrics")
ASLEEP = RouteObservation(model="m", version="7", metrics="/metrics", asleep=True)


@pytest.fixture
def observed(stage: Stage) -> Stage:
    stage.desk.observer = ServiceObserver(stage.desk)
    return stage


async def get(stage: Stage, path: str, *lines: str, method: str = "GET") -> Answer:
    return Answer(
        await stage.talk(
            "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close", *lines, "", ""]).encode()
        )
    )


def samples(text: bytes, read: Any = read_text) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    families = list(read(text.decode()))
    assert len({family.name for family in families}) == len(families)
    return {(sample.name, frozenset(sample.labels.items())): sample.value for family in families for sample in family.samples}


def of(text: bytes, name: str) -> dict[str, float]:
    """Return values by revision."""
    return {dict(labels).get("revision", ""): value for (found, labels), value in samples(text).items() if found == name}


class Counter:
    """A replica that counts its requests, and shows the count at /metrics."""

    def __init__(self, stage: Stage, name: str, revision: int) -> None:
        self.stage, self.name, self.revision = stage, name, revision
        self.asked = 0
        self.scrapes = 0
        self.page: str | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def start(self) -> RouteBackend:
        return await self.stage.play(self._play, self.name, self.revision)

    async def _play(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            body = b"{}"
            if head.startswith(b"GET /metrics"):
                self.scrapes += 1
                await self.gate.wait()
                text = f'# TYPE asked_total counter\nasked_total{{model="m"}} {self.asked}\n# TYPE waiting gauge\nwaiting 1\n'
                body = (self.page if self.page is not None else text).encode()
            elif b" /x " in head:
                self.asked += 1
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))


async def test_one_page_for_all_replicas_and_counters_that_never_fall(observed: Stage) -> None:
    one, two = Counter(observed, "one", 1), Counter(observed, "two", 2)
    first, second = await one.start(), await two.start()
    observed.plan(observed=MODEL)  # replicas that are added later are counted from zero
    observed.plan(first, second, observed=MODEL)
    for _ in range(10):
        assert (await observed.ask()).status == 200
    answer = await get(observed, "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert of(answer.body, "asked_total") == {"1": 5, "2": 5}
    assert of(answer.body, "waiting") == {"1": 1, "2": 1}
    assert of(answer.body, "fairway_router_requests_total") == {"1": 5, "2": 5}
    assert of(answer.body, "fairway_replica_up") == {"1": 1, "2": 1}
    assert samples(answer.body)[("fairway_router_arrived_total", frozenset())] == 10
    # A replica is removed: its counts stay, also those after the last scrape.
    await observed.ask()
    await observed.ask()
    observed.plan(second, observed=MODEL)
    page = (await get(observed, "/metrics")).body
    assert of(page, "asked_total") == {"1": 6, "2": 6}
    assert of(page, "fairway_replica_up") == {"2": 1}


async def test_requests_under_their_names_of_knative(observed: Stage) -> None:
    observed.plan((await observed.replica()).backend, observed=MODEL)
    await observed.ask()
    page = (await get(observed, "/metrics")).body
    names = {"namespace_name": "a", "service_name": "b", "configuration_name": "b", "revision_name": "b-r1"}
    good = frozenset({**names, "response_code": "200", "response_code_class": "2xx"}.items())
    found = samples(page)
    assert found[("revision_request_count_total", good)] == found[("revision_app_request_latencies_count", good)] == 1


async def test_openmetrics_where_it_is_asked_for(observed: Stage) -> None:
    observed.plan((await observed.replica()).backend, observed=MODEL)
    await observed.ask()
    answer = await get(observed, "/metrics", "Accept: application/openmetrics-text;version=1.0.0")
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert samples(answer.body, read_openmetrics)[("fairway_router_arrived_total", frozenset())] == 1


async def test_a_slow_or_broken_replica_does_not_fail_the_page(observed: Stage) -> None:
    slow, broken, good = (Counter(observed, name, 1) for name in ("slow", "broken", "good"))
    slow.gate.clear()
    broken.page = "<html>"
    backends = [await each.start() for each in (slow, broken, good)]
    observed.plan(observed=MODEL)
    observed.plan(*backends, observed=MODEL)
    began = observed.desk.now()
    answers = await asyncio.gather(*(get(observed, "/metrics") for _ in range(5)))
    assert observed.desk.now() - began < 8
    assert slow.scrapes <= 2  # concurrent requests share one scrape
    for answer in answers:
        up = {
            dict(labels)["replica"]: value
            for (name, labels), value in samples(answer.body).items()
            if name == "fairway_replica_up"
        }
        assert up == {"slow": 0, "broken": 0, "good": 1}
    slow.gate.set()


async def test_a_router_that_comes_later_counts_from_zero(observed: Stage) -> None:
    replica = Counter(observed, "one", 1)
    replica.asked = 1000
    backend = await replica.start()
    observed.desk.observer = ServiceObserver(observed.desk)
    observed.plan(backend, observed=MODEL)
    await get(observed, "/metrics")
    await observed.ask()
    assert of((await get(observed, "/metrics")).body, "asked_total") == {"1": 1}


async def test_the_page_of_a_command_is_its_own(observed: Stage) -> None:
    replica = Counter(observed, "one", 1)
    backend = await replica.start()
    observed.plan(backend, observed=RouteObservation())
    assert b"fairway" not in (await get(observed, "/metrics")).body
    page = (await get(observed, "/fairway/metrics")).body
    assert of(page, "asked_total") == {}
    assert ("fairway_router_held_requests", frozenset()) in samples(page)
    # If the document sets the path, the pages of the replicas are added to the router's.
    observed.desk.observer = ServiceObserver(observed.desk)
    observed.plan(observed=RouteObservation(metrics="/metrics"))
    observed.plan(backend, observed=RouteObservation(metrics="/metrics"))
    await observed.ask()
    assert of((await get(observed, "/fairway/metrics")).body, "asked_total") == {"1": 1}


@pytest.mark.parametrize(
    ("path", "lines", "status"),
    [
        ("/v2/health/live", (), 200),
        ("/v2/health/ready", (), 200),
        ("/v2/models/m/ready", (), 200),
        ("/v2/models/m/versions/7/ready?x=1", (), 200),
        ("/v1/models/m", (), 200),
        ("/healthz", (), 200),
        ("/ping", (), 200),
        ("/metrics", (), 200),
        ("/anything", ("User-Agent: kube-probe/1.36",), 200),
        ("/anything", ("User-Agent: Prometheus/3.0",), 200),
        ("/anything", ("User-Agent: GoogleHC/1.0",), 200),
        ("/anything", ("User-Agent: ELB-HealthChecker/2.0",), 200),
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_probes_wake_nothing(observed: Stage, path: str, lines: tuple[str, ...], status: int, method: str) -> None:
    observed.plan(observed=ASLEEP)
    answer = await get(observed, path, *lines, method=method)
    assert answer.status == status
    assert (answer.body == b"") == (method == "HEAD")
    assert (observed.wakes, observed.load().arrived, observed.load().held) == (0, 0, 0)


async def test_what_is_no_probe_waits_for_a_replica(observed: Stage) -> None:
    observed.plan(observed=ASLEEP)
    asked = [asyncio.create_task(get(observed, path)) for path in ("/v2/models/m", "/v2/models/other/ready", "/docs")]
    asked.append(asyncio.create_task(observed.ask(method="POST", body=b"x")))
    await until(lambda: observed.load().held == 4)
    assert observed.wakes
    observed.plan((await observed.replica()).backend, observed=MODEL)
    assert {answer.status for answer in await asyncio.gather(*asked)} == {200}


async def test_a_post_is_no_probe_whoever_sends_it(observed: Stage) -> None:
    observed.plan(observed=ASLEEP, hold_seconds=0.1)
    lines = b"Host: localhost\r\nUser-Agent: kube-probe/1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    answer = Answer(await observed.talk(b"POST /v2/health/ready HTTP/1.1\r\n" + lines))
    assert (answer.status, observed.load().arrived) == (503, 1)
    assert observed.wakes


async def test_a_service_that_should_have_a_replica_is_not_ready(observed: Stage) -> None:
    observed.plan(observed=MODEL)
    assert (await get(observed, "/v2/health/live")).status == 200
    ready = await get(observed, "/v2/health/ready")
    assert ready.status == 503
    assert json.loads(ready.body) == {"ready": False, "reason": "no replica is ready"}
    assert (await get(observed, "/v1/models/m")).status == 503


async def test_probes_count_when_the_document_says_so(observed: Stage) -> None:
    about = RouteObservation(model="m", asleep=True, probes_wake=True)
    observed.plan(observed=about)
    request = asyncio.create_task(get(observed, "/v2/health/ready"))
    await until(lambda: observed.load().held == 1)
    assert observed.load().arrived == 1
    observed.plan((await observed.replica()).backend, observed=about)
    assert (await request).status == 200


async def test_a_probe_of_a_replica_counts_nowhere(observed: Stage) -> None:
    replica = await observed.replica()
    observed.plan(replica.backend, observed=MODEL)
    assert (await get(observed, "/v2/health/ready")).status == 200
    load = observed.load()
    assert (load.arrived, load.revisions[1].arrived, load.revisions[1].answered, sum(load.revisions[1].latency)) == (0, 0, 0, 0)
    assert observed.desk.probes == 1


async def test_the_path_that_says_a_command_is_ready_is_a_probe(observed: Stage) -> None:
    observed.plan(observed=RouteObservation(ready="/up", asleep=True))
    assert (await get(observed, "/up")).status == 200
    assert not observed.wakes


async def test_bytes_of_clients_are_counted(observed: Stage) -> None:
    observed.plan((await observed.replica()).backend, observed=MODEL)
    sent = b"POST /x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 1000\r\n\r\n" + b"x" * 1000
    received = await observed.talk(sent)
    assert observed.desk.bytes_passed() == (len(sent), len(received))
