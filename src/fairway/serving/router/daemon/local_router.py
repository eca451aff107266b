"""The daemon's side of the routers on this machine: one keeper and one router process per service.

The service's folder holds `plan.json` (which a restarted router follows at once), `port` (kept from the first time on), the
keeper's `lock` and `router.log`. Every router process has a control socket in the runtime folder. During a takeover there are
two processes, and both get every plan.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from fairway.app.port.port import Clock
from fairway.app.system import crash_point
from fairway.errors import BugError, ConflictError, FairwayError, UnavailableError
from fairway.serving.router.access.key_file import read_keys, write_keys
from fairway.serving.router.access.port_protection import access_state, note_uses, protected, renewed, with_uses
from fairway.serving.router.daemon.port_holder import check_free, is_served
from fairway.serving.router.daemon.port_probe import PortProbe
from fairway.serving.router.host_rule import is_loopback
from fairway.serving.router.keeper import LOG, inherit
from fairway.serving.router.router_folder import (
    ACCESS,
    PLAN,
    SERVICE,
    home_of,
    is_kept,
    keeper_command,
    kept_homes,
    make_outcome_token,
    outcome_token,
    read_plan,
    read_port,
    send,
    short_folder,
    write,
)
from fairway.serving.router.wire_format import add_loads, check_plan, decode_load, encode_plan, moved
from fairway.state.serving.access import ApiKey, PortProtection
from fairway.state.serving.load import RouteLoad
from fairway.state.serving.route import RoutePlan, RouterFault
from fairway.version import __version__

log = logging.getLogger("fairway.router")

_PATIENCE = 20.0
"""How long a router may take to start, or a keeper to end."""
_ANSWER_SECONDS = 10.0
_LOAD_SECONDS = 1.0
"""How long a router may take to return its load: the other services wait for it."""
_LOOK_SECONDS = 0.02
_LINE_LIMIT = 16 * 1024 * 1024
_UPKEEP_SECONDS = 60.0
"""Interval at which certificates are renewed and uses of keys are recorded, in seconds."""


class LocalRouter:
    """Implements `Router`.

    `hosts` are the host names allowed in requests to services; `limits` (JSON) replaces the default limits, for tests.
    """

    def __init__(self, folder: Path, runtime_folder: Path, clock: Clock, limits: str = "", hosts: tuple[str, ...] = ()) -> None:
        self._hosts = hosts
        self._folder = folder
        self._runtime = runtime_folder
        self._clock = clock
        self._limits = [limits] if limits else []
        self._wake: Callable[[], None] = _nobody
        self._watches: dict[Path, asyncio.Task[None]] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        """Locks that serialise the changes to each service."""
        self._probes: dict[Path, PortProbe] = {}
        self._kept_up = float("-inf")

    async def start(self, wake: Callable[[], None]) -> None:
        """Start; routers from before a restart are found again."""
        self._wake = wake
        self._folder.mkdir(parents=True, exist_ok=True)
        for service in await self.kept():
            self._watch(self._home(service))

    async def close(self) -> None:
        """Stop watching; the router processes keep running."""
        for probe in self._probes.values():
            await probe.close()
        watches = list(self._watches.values())
        self._watches.clear()
        for watch in watches:
            watch.cancel()
        await asyncio.gather(*watches, return_exceptions=True)

    async def put(self, plan: RoutePlan) -> int:
        """Put the plan in force and return the port."""
        check_plan(plan)
        async with self._locks.setdefault(plan.service, asyncio.Lock()):
            return await self._put(plan)

    async def _put(self, plan: RoutePlan) -> int:
        home = self._home(plan.service)
        home.mkdir(parents=True, exist_ok=True)
        sockets = self._sockets(home)
        sockets.mkdir(mode=0o700, parents=True, exist_ok=True)
        write(home / SERVICE, plan.service.encode())
        make_outcome_token(home)
        # The daemon's names are for loopback; on other addresses only the service's own document gives the allowed names.
        hosts = (*plan.hosts, *self._hosts) if plan.hosts or is_loopback(plan.host) else ()
        plan = await asyncio.to_thread(protected, replace(plan, hosts=hosts), home, self._clock.now())
        port = await self._port(home)
        before = read_plan(home) or plan
        await self._check_port(plan, before, home, port)
        if is_kept(home) and (plan.port not in (0, port) or plan.host != before.host):
            # The address changes: clients of the old one are refused from now on in any case.
            await self._end_keeper(home)
        write(home / PLAN, encode_plan(plan))
        if not is_kept(home):
            port = await self._start_keeper(plan, home, port)
        version, refusing = await self._tell(plan, home)
        if version != __version__:
            await self._replace(home)
        if not version:
            _, refusing = await self._tell(plan, home)
        _end_now(refusing)
        self._watch(home)
        return port

    async def change_keys(self, service: str, change: Callable[[tuple[ApiKey, ...]], tuple[ApiKey, ...]]) -> tuple[ApiKey, ...]:
        """Change the API keys of a service. The change is in force at all its routers when this returns."""
        async with self._locks.setdefault(service, asyncio.Lock()):
            home = self._home(service)
            keys = await asyncio.to_thread(read_keys, home)
            changed = change(keys)
            if changed == keys:
                return keys
            await asyncio.to_thread(write_keys, home, changed)
            plan = read_plan(home)
            if plan is not None and plan.access is not None and plan.access.keys_required:
                rules = tuple(key.rule for key in changed)
                plan = replace(plan, access=replace(plan.access, keys=rules))
                # From here on a restarted router has the new keys too.
                write(home / PLAN, encode_plan(plan))
                if is_kept(home) or _paths(self._sockets(home)):
                    await self._tell(plan, home)
            return changed

    async def keys(self, service: str) -> tuple[ApiKey, ...]:
        """Return the stored records of a service's API keys, with the uses that its routers have counted since."""
        home = self._home(service)
        stored = await asyncio.to_thread(read_keys, home)
        loads = await self._loads(service, home) if stored else []
        return with_uses(stored, add_loads(loads).key_uses, 0.0) if loads else stored

    def access_state(self, service: str) -> PortProtection:
        """Return how the service's port is protected."""
        home = self._home(service)
        plan = read_plan(home)
        return access_state(plan, home, self._clock.now()) if plan is not None else PortProtection()

    async def _check_port(self, plan: RoutePlan, before: RoutePlan, home: Path, port: int) -> None:
        """Raise `ConflictError` before any change if the plan's port is taken; a running router still gets the routes."""
        is_running = is_kept(home)
        if not plan.port or plan.port == port or (not is_running and _paths(self._sockets(home))):
            # At the previous port the holder may be a router of this service: the keeper finds out.
            return
        try:
            await asyncio.to_thread(check_free, plan.service, plan.host, plan.port, self._folder)
        except ConflictError:
            if is_running:
                unmoved = replace(plan, port=port, host=before.host)
                write(home / PLAN, encode_plan(unmoved))
                await self._tell(unmoved, home)
            raise

    async def _port(self, home: Path) -> int:
        """Return the port of the service, current or last. If its file is missing while the keeper lives, the router has it."""
        port = read_port(home)
        deadline = self._clock.now() + _PATIENCE
        while not port and is_kept(home) and self._clock.now() < deadline:
            listener, _ = await asyncio.to_thread(inherit, str(self._sockets(home)), 0)
            if listener is None:
                await asyncio.sleep(_LOOK_SECONDS)
                continue
            with listener:
                port = int(listener.getsockname()[1])
            write(home / "port", str(port).encode())
        return port

    async def drop(self, service: str) -> None:
        """Close the service's socket and end its processes."""
        async with self._locks.setdefault(service, asyncio.Lock()):
            await self._drop(self._home(service))

    async def _drop(self, home: Path) -> None:
        if is_kept(home):
            await self._end_keeper(home)
        sockets = self._sockets(home)
        if home in self._probes:
            await self._probes.pop(home).close()
        with crash_point.reach("router.forget"):
            shutil.rmtree(home, ignore_errors=True)
        # A router whose keeper was killed notices that its folder is gone. One that was killed left its socket file.
        await self._until(lambda: not any(is_served(path) for path in _paths(sockets)), "the router did not end", home)
        shutil.rmtree(sockets, ignore_errors=True)

    async def look(self) -> dict[str, RouteLoad]:
        """Return the load by service; a service whose router is just being restarted is left out."""
        totals: dict[str, RouteLoad] = {}
        for service in await self.kept():
            loads = await self._loads(service, self._home(service))
            if loads:
                totals[service] = add_loads(loads)
        await self._upkeep(totals)
        return totals

    async def _loads(self, service: str, home: Path) -> list[RouteLoad]:
        """Return the load of each router process of a service."""
        loads = []
        for path in _paths(self._sockets(home)):
            answer = await _ask(path, b"look", _LOAD_SECONDS)
            try:
                loads += [self._dated(decode_load(answer))] if answer else []
            except ValueError as problem:
                # A service without measurements stays as it is, and the others must still be measured.
                log.warning("%s: %s; the load is requested again at the next poll", service, problem)
        return loads

    async def _upkeep(self, loads: dict[str, RouteLoad]) -> None:
        """Renew certificates made by Fairway and record when keys were used, if the interval has passed."""
        now = self._clock.now()
        if now < self._kept_up + _UPKEEP_SECONDS:
            return
        self._kept_up = now
        for service, home in kept_homes(self._folder).items():
            plan = read_plan(home)
            if plan is None or plan.access is None:
                continue
            uses = loads[service].key_uses if service in loads else {}
            async with self._locks.setdefault(service, asyncio.Lock()):
                try:
                    await asyncio.to_thread(renewed, plan, home, now)
                    await asyncio.to_thread(note_uses, home, uses)
                except (FairwayError, OSError) as problem:
                    log.warning(
                        "%s: its certificate could not be renewed, or the use of its keys not recorded: %s", service, problem
                    )

    async def troubles(self) -> dict[str, RouterFault]:
        """Return the services whose keeper has ended or whose port does not answer, except those that never listened."""
        problems: dict[str, RouterFault] = {}
        for service, home in kept_homes(self._folder).items():
            port = read_port(home)
            if not port:
                continue
            answers = self._probes.setdefault(home, PortProbe()).answers(read_plan(home), port)
            if not is_kept(home):
                serves = answers and any(is_served(path) for path in _paths(self._sockets(home)))
                problems[service] = RouterFault("the process that holds its port has ended", answers=serves)
            elif not answers:
                message = f"nothing answers at port {port}"
                problems[service] = RouterFault(message, answers=False, lacks_process=False)
        return problems

    async def kept(self) -> list[str]:
        """Return the services with a live keeper, or with a router whose keeper was killed."""
        homes = kept_homes(self._folder)
        return [service for service, home in homes.items() if is_kept(home) or _paths(self._sockets(home))]

    def outcome_token(self, service: str) -> str:
        """Return the token that reports of outcomes must carry; empty if the service has no router yet."""
        return outcome_token(self._home(service))

    def access_folder(self, service: str) -> Path:
        """Return the folder of a service's access log."""
        return self._home(service) / ACCESS

    def _home(self, service: str) -> Path:
        return home_of(self._folder, service)

    def _sockets(self, home: Path) -> Path:
        return short_folder(self._runtime, home)

    def _dated(self, load: RouteLoad) -> RouteLoad:
        return moved(load, self._clock.now())

    async def _start_keeper(self, plan: RoutePlan, home: Path, port: int) -> int:
        """Start a keeper at the plan's port, at the previous one, or at any free one."""
        problem = ""
        for candidate in [plan.port] if plan.port else [port, 0] if port else [0]:
            if candidate != port:
                # Until the new port is written there must be no file: after a crash in between, it would hold the wrong port.
                (home / "port").unlink(missing_ok=True)
            output = await self._run_keeper(plan.host, candidate, home)
            if output.isdecimal():
                write(home / "port", output.encode())
                return int(output)
            problem = output.removeprefix("error ")
        if plan.port:
            await asyncio.to_thread(check_free, plan.service, plan.host, plan.port, self._folder)
        message = f"{plan.service}: cannot listen on {plan.host}:{plan.port or 'any port'}: {problem}"
        raise ConflictError(message, fix="give the service another port, or stop the process that listens there")

    async def _run_keeper(self, host: str, port: int, home: Path) -> str:
        command = keeper_command(home, self._sockets(home), host, port)
        # In a thread, with the standard library's own pipe: an event loop decides for itself what it passes to its children.
        return await asyncio.to_thread(_run, [*command, *self._limits], home / LOG)

    async def _tell(self, plan: RoutePlan, home: Path) -> tuple[str, list[Path]]:
        """Send the plan to every router of the service; return the version of the serving one, and those that refuse the plan.

        Routers of a version without access rules refuse them and follow the previous plan. The version is empty if there are
        only such routers.
        """
        deadline = self._clock.now() + _PATIENCE
        while True:
            with crash_point.reach("router.tell"):
                answers = {path: await _ask(path, b"put " + encode_plan(plan)) for path in _paths(self._sockets(home))}
            replies = [answer.decode().partition(" ") for answer in answers.values()]
            serving = [version for state, _, version in replies if state == "serving"]
            refusing = [path for path, answer in answers.items() if answer.startswith(b"error")]
            # A live router that does not answer follows the previous plan: a revoked key would still be valid there.
            silent = plan.access is not None and any(not answer and is_served(path) for path, answer in answers.items())
            if refusing and not serving and plan.access is None:
                message = f"{plan.service}: its router refuses the plan: {answers[refusing[0]].decode()}"
                raise BugError(message, fix=f"see {home / LOG}")
            if not silent and (serving or refusing):
                return (serving[0] if serving else ""), refusing
            if self._clock.now() > deadline:
                message = f"{plan.service}: its router does not answer"
                raise UnavailableError(message, fix=f"see {home / LOG}")
            await asyncio.sleep(_LOOK_SECONDS)

    async def _replace(self, home: Path) -> None:
        """Have the router restarted from the code that is installed now; the previous one finishes its requests."""
        before = set(_paths(self._sockets(home)))
        send(home, signal.SIGHUP)
        await self._until(lambda: bool(set(_paths(self._sockets(home))) - before), "the new router did not start", home)

    async def _end_keeper(self, home: Path) -> None:
        send(home, signal.SIGTERM)
        await self._until(lambda: not is_kept(home), "the keeper did not end", home)

    async def _until(self, is_so: Callable[[], bool], otherwise: str, home: Path) -> None:
        deadline = self._clock.now() + _PATIENCE
        while not is_so():
            if self._clock.now() > deadline:
                message = f"{home.name}: {otherwise} within {_PATIENCE:.0f} seconds"
                raise UnavailableError(message, fix=f"see {home / LOG}")
            await asyncio.sleep(_LOOK_SECONDS)

    def _watch(self, home: Path) -> None:
        """Watch every router of the service that is not watched yet."""
        for path in _paths(self._sockets(home)):
            if path not in self._watches:
                self._watches[path] = asyncio.get_running_loop().create_task(self._follow(home, path))

    async def _follow(self, home: Path, path: Path) -> None:
        """Pass on a router's wake-ups, then watch the next router. The end of a router is also urgent."""
        try:
            reader, writer = await asyncio.open_unix_connection(path, limit=_LINE_LIMIT)
            try:
                writer.write(b"watch\n")
                while line := await reader.readline():
                    if line == b"wake\n":
                        self._wake()
            finally:
                writer.close()
        except OSError:
            # The router ended; the next one is found below.
            pass
        while is_kept(home) and not [other for other in _paths(self._sockets(home)) if other != path]:
            await asyncio.sleep(_LOOK_SECONDS)
        del self._watches[path]
        if is_kept(home):
            self._watch(home)
        self._wake()


def _run(command: list[str], log_path: Path) -> str:
    """Run a command that ends by itself and return its output."""
    with open(log_path, "ab") as log, crash_point.reach("router.spawn"):
        result = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, check=False)
    return result.stdout.decode().strip()


def _nobody() -> None:
    """Do nothing: the router was not started yet."""


def _end_now(paths: list[Path]) -> None:
    """End routers of an older version, which follow rules that are no longer in force. They finish their requests."""
    for path in paths:
        if is_served(path):
            try:
                with crash_point.reach("router.signal"):
                    os.kill(int(path.stem), signal.SIGUSR1)
            except (OSError, ValueError):
                # The process has ended.
                continue


def _paths(sockets: Path) -> list[Path]:
    return sorted(sockets.glob("*.sock"))


async def _ask(path: Path, line: bytes, within: float = _ANSWER_SECONDS) -> bytes:
    """Send one line to a router and return its answer; empty if there is none within that time."""
    try:
        async with asyncio.timeout(within):
            reader, writer = await asyncio.open_unix_connection(path, limit=_LINE_LIMIT)
            try:
                writer.write(line + b"\n")
                return (await reader.readline()).strip()
            finally:
                writer.close()
    except OSError:
        return b""
