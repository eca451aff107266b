"""Watches against a small scripted server: their requests, and their reactions to the answers."""

import asyncio
import json

import pytest
from aiohttp import web

from fairway.app.system.clock import SystemClock
from fairway.engines.kubernetes.client import errors
from fairway.engines.kubernetes.client import informer as mirror_module
from fairway.engines.kubernetes.client.api import ApiClient
from fairway.engines.kubernetes.client.api_resource import PODS
from fairway.engines.kubernetes.client.cluster_target import ClusterTarget
from fairway.engines.kubernetes.client.connection import ApiConnection
from fairway.engines.kubernetes.client.informer import Informer
from fairway.engines.kubernetes.client.watch import WatchChange, WatchScope, WatchSnapshot, follow

END = {"k8s.io/initial-events-end": "true"}


def pod(name, version):
    return {"metadata": {"name": name, "namespace": "t", "resourceVersion": str(version)}, "status": {"phase": "Running"}}


def event(kind, thing):
    return {"type": kind, "object": thing}


def bookmark(version, annotations=None):
    return event("BOOKMARK", {"metadata": {"resourceVersion": str(version), "annotations": annotations or {}}})


def failure(code, reason):
    return {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": reason}


@pytest.fixture
async def world():
    """(client, script, asked): each request takes the next entry of the script: events, a dict to list, or (code, reason)."""
    script, asked = [], []

    async def answer(request):
        asked.append(dict(request.query))
        given = script.pop(0)
        if isinstance(given, tuple):
            return web.json_response(failure(*given), status=given[0])
        if isinstance(given, dict):
            return web.json_response(given)
        response = web.StreamResponse()
        await response.prepare(request)
        text = "".join(json.dumps(one) + "\n" for one in given).encode()
        for start in range(0, len(text), 37):  # lines arrive in pieces
            await response.write(text[start : start + 37])
        return response

    application = web.Application()
    application.router.add_get("/{tail:.*}", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    target = ClusterTarget(f"http://127.0.0.1:{runner.addresses[0][1]}")
    async with ApiConnection(target, SystemClock(), lambda: 0.0) as connection:
        yield ApiClient(connection), script, asked
    await runner.cleanup()


async def collect(client, until, **options):
    """Collect lists and changes, flattened, until there are `until` of them."""
    found = []
    async for one in follow(client, PODS, WatchScope(namespace="t", labels="a=b"), **options):
        if isinstance(one, WatchSnapshot):
            found.append(sorted(thing.metadata.name for thing in one.things))
        else:
            found += [(change.what.value, change.thing.metadata.name) for change in one if isinstance(change, WatchChange)]
        if len(found) >= until:
            break
    return found


async def test_a_watch_list_then_changes_then_a_resumed_watch(world):
    client, script, asked = world
    begin = [event("ADDED", pod("a", 1)), bookmark(3), event("ADDED", pod("b", 2)), bookmark(5, END)]
    script += [
        [*begin, event("MODIFIED", pod("a", 6)), bookmark(9)],
        [event("DELETED", pod("b", 11))],
    ]
    found = await collect(client, 3)
    assert found == [["a", "b"], ("MODIFIED", "a"), ("DELETED", "b")]
    assert (
        asked[0].items() >= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "labelSelector": "a=b"}.items()
    )
    assert "resourceVersion" not in asked[0]
    assert (asked[1]["resourceVersion"], asked[1]["timeoutSeconds"]) == ("9", "290")
    assert "sendInitialEvents" not in asked[1]


async def test_a_server_without_watch_lists_is_listed_page_by_page(world):
    client, script, asked = world
    script += [
        (422, "Invalid"),
        {"metadata": {"resourceVersion": "4", "continue": "more"}, "items": [pod("a", 1)]},
        {"metadata": {"resourceVersion": "4"}, "items": [pod("b", 2)]},
        [event("ADDED", pod("c", 7))],
    ]
    assert await collect(client, 2) == [["a", "b"], ("ADDED", "c")]
    assert [one.get("continue") for one in asked[1:3]] == [None, "more"]
    assert asked[3]["resourceVersion"] == "4"


async def test_a_list_that_gets_too_old_while_it_is_read_begins_again(world):
    client, script, _ = world
    more = {"metadata": {"resourceVersion": "4", "continue": "more"}, "items": [pod("a", 1)]}
    script += [(400, "BadRequest"), more, (410, "Expired"), {"metadata": {"resourceVersion": "9"}, "items": [pod("b", 2)]}]
    assert await collect(client, 1) == [["b"]]


@pytest.mark.parametrize("told", ["at once", "in the middle"])
async def test_a_version_that_is_too_old_begins_anew(world, told):
    client, script, asked = world
    late = (410, "Gone") if told == "at once" else [event("ERROR", failure(410, "Expired"))]
    script += [
        [event("ADDED", pod("a", 1)), bookmark(5, END)],
        late,
        [event("ADDED", pod("b", 8)), bookmark(9, END)],
    ]
    assert await collect(client, 2) == [["a"], ["b"]]
    assert [one.get("resourceVersion") for one in asked] == [None, "5", None]


async def test_a_watch_list_that_breaks_off_begins_again(world):
    client, script, _ = world
    script += [[event("ADDED", pod("a", 1))], [event("ADDED", pod("b", 2)), bookmark(5, END)]]
    assert await collect(client, 1) == [["b"]]


async def test_trouble_is_told_and_the_place_kept(world):
    client, script, asked = world
    script += [[bookmark(5, END)], (500, "InternalError"), [event("ADDED", pod("a", 6))]]
    told = []
    assert await collect(client, 2, trouble=told.append) == [[], ("ADDED", "a")]
    assert [type(error) for error in told] == [errors.ApiError]
    assert asked[2]["resourceVersion"] == "5"


async def test_what_is_not_allowed_ends_it(world):
    client, script, _ = world
    script += [(403, "Forbidden"), (403, "Forbidden")]
    with pytest.raises(errors.Forbidden):
        await collect(client, 1)


async def test_an_event_that_nobody_can_read_is_trouble(world):
    client, script, _ = world
    script += [[event("ADDED", {"metadata": {"name": 7}})], [bookmark(5, END)]]
    told = []
    assert await collect(client, 1, trouble=told.append) == [[]]
    assert "does not match the API" in told[0].message


BAD = {"metadata": {"name": "bad", "namespace": "t", "resourceVersion": "7"}, "status": {"phase": 4711}}


@pytest.mark.parametrize("listed", [False, True])
async def test_an_object_that_cannot_be_decoded_is_left_out_and_the_others_are_followed(world, listed):
    client, script, _asked = world
    if listed:
        page = {"metadata": {"resourceVersion": "3"}, "items": [pod("a", 1), BAD]}
        script += [(400, "BadRequest"), page, [event("MODIFIED", BAD), event("ADDED", pod("b", 8)), event("DELETED", BAD)]]
    else:
        begin = [event("ADDED", pod("a", 1)), event("ADDED", BAD), bookmark(3, END)]
        script += [[*begin, event("MODIFIED", BAD), event("ADDED", pod("b", 8)), event("DELETED", BAD)]]
    mirror = Informer(client, PODS, WatchScope(namespace="t"))
    noted, changes = [], []
    mirror.noted.append(lambda found: noted.append((found.head.metadata.name, "phase" in found.cause)))
    mirror.listen(lambda key, _before, now: changes.append((key, now is not None)))
    running = asyncio.create_task(mirror.run())
    async with asyncio.timeout(10):
        while ("t/b", True) not in changes or mirror.unreadable:
            await asyncio.sleep(0.01)
    running.cancel()
    assert mirror.complete
    assert [thing.metadata.name for thing in mirror] == ["a", "b"]
    assert noted == [("bad", True), ("bad", True)]


async def test_an_object_that_becomes_unreadable_keeps_its_last_state(world):
    client, script, _asked = world
    script += [[event("ADDED", pod("bad", 1)), bookmark(3, END), event("MODIFIED", BAD)]]
    mirror = Informer(client, PODS, WatchScope(namespace="t"))
    running = asyncio.create_task(mirror.run())
    async with asyncio.timeout(10):
        while not mirror.unreadable:
            await asyncio.sleep(0.01)
    running.cancel()
    assert mirror.get("t/bad").metadata.resource_version == "1"


async def test_a_mirror_whose_reading_fails_is_read_anew(world, monkeypatch):
    client, script, _asked = world
    script += [[event("ADDED", pod("a", 1)), bookmark(3, END)]] * 2
    monkeypatch.setattr(mirror_module, "RESTART_AFTER", 0.01)
    mirror = Informer(client, PODS, WatchScope(namespace="t"))
    reset, failures = mirror.reset, []

    def fail_once(things, unreadable):
        if not failures:
            failures.append(1)
            raise RuntimeError("boom")
        reset(things, unreadable)

    monkeypatch.setattr(mirror, "reset", fail_once)
    running = asyncio.create_task(mirror.run())
    async with asyncio.timeout(10):
        await mirror.synced()
    running.cancel()
    assert [thing.metadata.name for thing in mirror] == ["a"]
