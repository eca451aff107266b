"""Sends requests to a service with common client libraries: `python clients.py LIBRARY URL`. Prints `good` at the end."""

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor

SIZE = 3_000_000


def pieces():
    for _ in range(30):
        yield b"x" * 100_000


def use_requests(url: str) -> None:
    import requests

    with requests.Session() as session:
        for number in range(30):
            answer = session.post(f"{url}/{number}", json={"inputs": [1, 2, 3]}, timeout=30)
            assert (answer.status_code, answer.json()["path"]) == (200, f"/{number}")
            assert answer.headers["fairway-revision"] == "1"
        assert session.post(url, data=pieces(), timeout=30).json()["size"] == SIZE
        assert len(session.get(f"{url}/large/{SIZE}", timeout=30).content) == SIZE
        assert session.head(url, timeout=30).status_code == 200
        assert session.get(f"{url}/status/404", timeout=30).status_code == 404
        assert session.post(f"{url}/status/500", timeout=30).status_code == 500
        lines = [line for line in session.get(f"{url}/events", stream=True, timeout=30).iter_lines() if line]
        assert lines == [*(b"data: %d" % number for number in range(5)), b"data: [DONE]"]
        with ThreadPoolExecutor(8) as pool:
            found = pool.map(lambda number: requests.get(f"{url}/{number}", timeout=30).json()["path"], range(80))
            assert list(found) == [f"/{number}" for number in range(80)]


def use_httpx(url: str) -> None:
    import httpx

    with httpx.Client(timeout=30) as client:
        for number in range(30):
            assert client.put(f"{url}/{number}", content=b"abc").json()["size"] == 3
        assert client.post(url, content=pieces()).json()["size"] == SIZE
        assert len(client.get(f"{url}/large/{SIZE}").content) == SIZE
        assert client.head(url).status_code == 200
        assert client.options(url).json()["method"] == "OPTIONS"
        with client.stream("GET", f"{url}/events") as answer:
            assert [line for line in answer.iter_lines() if line][-1] == "data: [DONE]"


def use_aiohttp(url: str) -> None:
    import aiohttp

    async def one(session: aiohttp.ClientSession, number: int) -> None:
        async with session.post(f"{url}/{number}", json={"a": number}) as answer:
            assert answer.status == 200
            assert (await answer.json())["path"] == f"/{number}"

    async def main() -> None:
        async def body():
            for piece in pieces():
                yield piece

        async with aiohttp.ClientSession() as session:
            await asyncio.gather(*(one(session, number) for number in range(200)))
            async with session.post(url, data=body(), expect100=True) as answer:
                assert (await answer.json())["size"] == SIZE
            async with session.get(f"{url}/large/{SIZE}") as answer:
                assert len(await answer.read()) == SIZE
            async with session.get(f"{url}/events") as answer:
                assert (await answer.read()).endswith(b"data: [DONE]\n\n")

    asyncio.run(main())


if __name__ == "__main__":
    {"requests": use_requests, "httpx": use_httpx, "aiohttp": use_aiohttp}[sys.argv[1]](sys.argv[2])
    print("good")
