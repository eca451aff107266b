import asyncio
import logging

from fairway.engines.kubernetes.client import errors
from fairway.engines.kubernetes.controller import KeyController


async def run(work, keys, until, hands=4):
    """Run a controller over the keys until the event is set."""
    controller = KeyController("test", work, hands)
    running = asyncio.create_task(controller.run())
    for key in keys:
        controller.add(key)
    await asyncio.wait_for(until.wait(), 5)
    running.cancel()
    await asyncio.wait([running])
    return controller


async def test_one_at_a_time_per_key_and_several_keys_at_once():
    working, most, seen, done = set(), [0], [], asyncio.Event()

    async def work(key):
        assert key not in working
        working.add(key)
        most[0] = max(most[0], len(working))
        await asyncio.sleep(0)
        working.discard(key)
        seen.append(key)
        if len(seen) == 6:
            done.set()

    controller = KeyController("test", work, 3)
    running = asyncio.create_task(controller.run())
    for key in ("a", "b", "c", "d", "e", "f", "a"):
        controller.add(key)
    await asyncio.wait_for(done.wait(), 5)
    running.cancel()
    await asyncio.wait([running])
    assert sorted(seen) == ["a", "b", "c", "d", "e", "f"]
    assert most[0] == 3
    assert controller.idle


async def test_what_fails_comes_back_and_does_not_hold_up_the_others(caplog):
    tries, done = [], asyncio.Event()

    async def work(key):
        tries.append(key)
        if key == "bad" and tries.count("bad") < 3:
            if tries.count("bad") == 1:
                raise errors.Conflict("somebody was faster")
            raise RuntimeError("broken")
        if tries.count("bad") == 3 and "good" in tries:
            done.set()

    with caplog.at_level(logging.INFO):
        await run(work, ["bad", "good"], done, hands=1)
    assert tries.count("bad") == 3
    (record,) = caplog.records
    assert "test bad failed; again in 0.01 s" in record.getMessage()


async def test_the_api_servers_words_are_told_without_a_traceback(caplog):
    tries, done = [], asyncio.Event()

    async def work(key):
        tries.append(key)
        if len(tries) == 1:
            raise errors.Unavailable("cannot get Pod a/b: nobody answers")
        done.set()

    with caplog.at_level(logging.INFO):
        await run(work, ["a"], done)
    (record,) = caplog.records
    assert record.getMessage() == "test a: cannot get Pod a/b: nobody answers; again in 0.005 s"
    assert record.exc_info is None


async def test_it_looks_again_after_a_while():
    seen, done = [], asyncio.Event()

    async def work(key):
        seen.append(key)
        if len(seen) == 3:
            done.set()
            return None
        return 0.01

    await run(work, ["a"], done)
    assert seen == ["a", "a", "a"]


async def test_what_fails_for_a_key_is_announced_until_it_succeeds():
    told, done = [], asyncio.Event()

    async def work(key):
        if key == "bad" and told.count(("bad", "boom")) < 2:
            raise RuntimeError("boom")
        if key == "bad":
            done.set()

    controller = KeyController(
        "test",
        work,
        failed=lambda key, error: told.append((key, str(error))),
        succeeded=lambda key: told.append((key, "")),
    )
    running = asyncio.create_task(controller.run())
    controller.add("bad")
    controller.add("good")
    async with asyncio.timeout(10):
        await done.wait()
        while ("bad", "") not in told:
            await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running])
    assert ("good", "") in told
    assert [each for each in told if each[0] == "bad"] == [("bad", "boom"), ("bad", "boom"), ("bad", "")]
