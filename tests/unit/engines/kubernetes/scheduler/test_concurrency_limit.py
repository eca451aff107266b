"""Concurrency: as many requests at a time as are answered quickly."""

from __future__ import annotations

import asyncio

from fairway.engines.kubernetes.scheduler.concurrency_limit import LEAST, MOST, QUICK, SLOW, AdaptiveConcurrencyLimit


class Server:
    """Takes a fixed time for each request, and records the highest concurrency."""

    def __init__(self, takes: float) -> None:
        self.now, self.takes = 0.0, takes
        self.inside = self.most = 0
        self.order: list[int] = []

    async def answer(self, pace: AdaptiveConcurrencyLimit, number: int) -> None:
        async with pace.turn():
            self.order.append(number)
            self.inside += 1
            self.most = max(self.most, self.inside)
            await asyncio.sleep(0)
            self.now += self.takes
            self.inside -= 1


def run(server: Server, pace: AdaptiveConcurrencyLimit, count: int) -> None:
    async def scene() -> None:
        await asyncio.gather(*(server.answer(pace, number) for number in range(count)))

    asyncio.run(scene())


def test_a_quick_server_gets_more_and_a_slow_one_fewer_at_a_time() -> None:
    server = Server(takes=QUICK / 1000)
    pace = AdaptiveConcurrencyLimit(lambda: server.now)
    run(server, pace, 600)
    assert (server.most, pace.width) == (MOST, MOST)
    server.takes = SLOW * 2
    run(server, pace, 200)
    assert pace.width == LEAST
    assert server.order == [*range(600), *range(200)]


def test_one_that_is_cancelled_leaves_its_turn_to_the_next() -> None:
    async def scene() -> None:
        pace, going = AdaptiveConcurrencyLimit(), asyncio.Event()

        async def hold() -> None:
            async with pace.turn():
                await going.wait()

        holding = [asyncio.create_task(hold()) for _ in range(LEAST)]
        waiting = [asyncio.create_task(hold()) for _ in range(2)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        going.set()
        await asyncio.gather(*holding, waiting[1])
        async with asyncio.timeout(5), pace.turn():
            pass

    asyncio.run(scene())
