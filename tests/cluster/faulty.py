"""A faulty proxy to the API server, controlled by a test: it cuts connections, or answers writes with a conflict."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import Callable
from pathlib import Path

import aiohttp
from aiohttp import web

from cluster.control_plane import LOOPBACK, ControlPlane
from cluster.installed import SYSTEM

WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_CONFLICT = {
    "kind": "Status",
    "apiVersion": "v1",
    "status": "Failure",
    "reason": "Conflict",
    "message": "the object has been modified; so says the test",
    "code": 409,
}


class FaultyWay:
    """`with FaultyWay(plane, "operator") as way:` proxies the account of a process to the API server, by `way.kubeconfig`."""

    def __init__(self, plane: ControlPlane, process: str) -> None:
        self._plane = plane
        self._account = f"system:serviceaccount:{SYSTEM}:fairway-{process}"
        self._groups = ["system:serviceaccounts", f"system:serviceaccounts:{SYSTEM}"]
        self.kubeconfig = plane.folder / f"faulty-{process}.kubeconfig"
        self.wrote: list[tuple[str, str]] = []
        """Writes that were forwarded: method and path."""
        self.conflicts: Callable[[int], bool] = lambda _number: False
        """Whether the write of this number, from 0, is answered with a conflict instead of being forwarded."""
        self._writes = 0
        self._is_cut = False
        self._streams: set[asyncio.Task[object]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run)
        self._ready = threading.Event()

    def __enter__(self) -> FaultyWay:
        self._thread.start()
        assert self._ready.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    def cut(self) -> None:
        """Stop forwarding in both directions, without closing any connection."""
        self._is_cut = True

    def mend(self) -> None:
        """Accept new connections again; requests in flight are lost."""
        self._is_cut = False
        self._loop.call_soon_threadsafe(self._drop)

    def _drop(self) -> None:
        for stream in list(self._streams):
            stream.cancel()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        self._over = asyncio.Event()
        authority, plane = self._plane.authority, self._plane
        pair = authority.client(self._account, self._groups)
        onward = ssl.create_default_context(cafile=str(authority.pair.certificate))
        onward.load_cert_chain(pair.certificate, pair.key)
        own = authority.server("faulty", [f"IP:{LOOPBACK}"])
        inward = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        inward.load_cert_chain(own.certificate, own.key)
        async with aiohttp.ClientSession(
            plane.server, connector=aiohttp.TCPConnector(ssl=onward, limit=0), timeout=aiohttp.ClientTimeout(total=None)
        ) as self._session:
            app = web.Application(client_max_size=64 << 20)
            app.router.add_route("*", "/{path:.*}", self._pass)
            runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
            await runner.setup()
            site = web.TCPSite(runner, LOOPBACK, 0, ssl_context=inward)
            await site.start()
            self._write_kubeconfig(runner.addresses[0][1])
            self._ready.set()
            await self._over.wait()
            self._drop()
            await runner.cleanup()

    def _write_kubeconfig(self, port: int) -> None:
        real = json.loads(self._plane.kubeconfig(self._account, self._groups).read_text())
        real["clusters"][0]["cluster"]["server"] = f"https://{LOOPBACK}:{port}"
        Path(self.kubeconfig).write_text(json.dumps(real))

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        task = asyncio.current_task()
        assert task is not None
        self._streams.add(task)
        try:
            return await self._forward(request)
        finally:
            self._streams.discard(task)

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        await self._through()
        if request.method in WRITES:
            number, self._writes = self._writes, self._writes + 1
            if self.conflicts(number):
                return web.json_response(_CONFLICT, status=409)
            self.wrote.append((request.method, request.path))
        kept = {name: request.headers[name] for name in ("Accept", "Content-Type", "User-Agent") if name in request.headers}
        async with self._session.request(request.method, request.raw_path, data=body or None, headers=kept) as answer:
            given = web.StreamResponse(status=answer.status, headers={"Content-Type": answer.headers.get("Content-Type", "")})
            await self._through()
            await given.prepare(request)
            async for piece in answer.content.iter_any():
                await self._through()
                await given.write(piece)
            await given.write_eof()
            return given

    async def _through(self) -> None:
        """Return at once; while the proxy is cut, never return."""
        if self._is_cut:
            await asyncio.Event().wait()
