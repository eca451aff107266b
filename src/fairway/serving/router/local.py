"""The daemon's side of the routers on this machine: one keeper and one router process a service.

In the service's folder lie `plan.json` (what a router that starts anew follows at once), `port` (kept from the first time on),
the keeper's `lock` and `router.log`. Every router process has a control socket in the runtime folder; while one takes over
from another there are two, and both are told every plan.
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

from fairway.app import crash
from fairway.app.ports import Clock
from fairway.errors import BugError, ConflictError, FairwayError, UnavailableError
from fairway.serving.router.access.key_file import read_keys, write_keys
from fairway.serving.router.access.protection import access_state, note_uses, protected, renewed, with_uses
from fairway.serving.router.home import (
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
from fairway.serving.router.keeper import LOG, inherit
from fairway.serving.router.port import check_free, is_served
from fairway.serving.router.probe import Probe
from fairway.serving.router.site import is_loopback
from fairway.serving.router.wire import add_loads, check_plan, decode_load, encode_plan, moved
from fairway.state.access import AccessState, ApiKey
from fairway.state.load import RouteLoad
from fairway.state.route import RoutePlan, RouteTrouble
from fairway.version import __version__

log = logging.getLogger("fairway.router")

_PATIENCE = 20.0
"""How long a router may take to start, or a keeper to end."""
_ANSWER_SECONDS = 10.0
_LOAD_SECONDS = 1.0
"""How long a router may take to say what it has measured: the other services wait for it."""
_LOOK_SECONDS = 0.02
_LINE_LIMIT = 16 * 1024 * 1024
_UPKEEP_SECONDS = 60.0
"""How often certificates and uses of keys are looked at."""


class LocalRouter:
    """Implements `Router`. `hosts`: names by which services may be asked; `limits` (JSON): other ones than usual, for tests."""

    def __init__(self, folder: Path, runtime_folder: Path, clock: Clock, limits: str = "", hosts: tuple[str, ...] = ()) -> None:
        self._hosts = hosts
        self._folder = folder
        self._runtime = runtime_folder
        self._clock = clock
        self._limits = [limits] if limits else []
        self._wake: Callable[[], None] = _nobody
        self._watches: dict[Path, asyncio.Task[None]] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        """A service is told one thing at a time."""
        self._probes: dict[Path, Probe] = {}
        self._kept_up = float("-inf")

    async def start(self, wake: Callable[[], None]) -> None:
        """Begin; routers from before are found again."""
        self._wake = wake
        self._folder.mkdir(parents=True, exist_ok=True)
        for service in await self.kept():
            self._watch(self._home(service))

    async def close(self) -> None:
        """Let go. Routers go on."""
        for probe in self._probes.values():
            await probe.close()
        watches = list(self._watches.values())
        self._watches.clear()
        for watch in watches:
            watch.cancel()
        await asyncio.gather(*watches, return_exceptions=True)

    async def put(self, plan: RoutePlan) -> int:
        """Follow this plan from now on; gives the port."""
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
        # Names of the daemon are for loopback; elsewhere only the document says by which names a service may be asked.
        named = (*plan.hosts, *self._hosts) if plan.hosts or is_loopback(plan.host) else ()
        plan = await asyncio.to_thread(protected, replace(plan, hosts=named), home, self._clock.now())
        port = await self._port(home)
        before = read_plan(home) or plan
        await self._check_port(plan, before, home, port)
        if is_kept(home) and (plan.port not in (0, port) or plan.host != before.host):
            # It moves: clients at the old place are refused from now on, whatever is done here.
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
        """Change the API keys of a service. What changed is in force at every router of it when this returns."""
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
                # From here on also a router that starts anew knows them.
                write(home / PLAN, encode_plan(plan))
                if is_kept(home) or _paths(self._sockets(home)):
                    await self._tell(plan, home)
            return changed

    async def keys(self, service: str) -> tuple[ApiKey, ...]:
        """What is kept of the API keys of a service, with the uses that its routers counted meanwhile."""
        home = self._home(service)
        kept = await asyncio.to_thread(read_keys, home)
        loads = await self._loads(service, home) if kept else []
        return with_uses(kept, add_loads(loads).key_uses, 0.0) if loads else kept

    def access_state(self, service: str) -> AccessState:
        """How the port of a service is protected."""
        home = self._home(service)
        plan = read_plan(home)
        return access_state(plan, home, self._clock.now()) if plan is not None else AccessState()

    async def _check_port(self, plan: RoutePlan, before: RoutePlan, home: Path, port: int) -> None:
        """Raise `ConflictError` before anything changes when the plan's port is taken; a router that runs follows the routes."""
        kept = is_kept(home)
        if not plan.port or plan.port == port or (not kept and _paths(self._sockets(home))):
            # Where it was before, a router of its own may hold the port: its keeper finds out.
            return
        try:
            await asyncio.to_thread(check_free, plan.service, plan.host, plan.port, self._folder)
        except ConflictError:
            if kept:
                stays = replace(plan, port=port, host=before.host)
                write(home / PLAN, encode_plan(stays))
                await self._tell(stays, home)
            raise

    async def _port(self, home: Path) -> int:
        """Where the service listens, or did last. The note of it may be missing while its keeper lives: the router knows."""
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
        """Close the service's socket; its processes end."""
        async with self._locks.setdefault(service, asyncio.Lock()):
            await self._drop(self._home(service))

    async def _drop(self, home: Path) -> None:
        if is_kept(home):
            await self._end_keeper(home)
        sockets = self._sockets(home)
        if home in self._probes:
            await self._probes.pop(home).close()
        with crash.reach("router.forget"):
            shutil.rmtree(home, ignore_errors=True)
        # A router whose keeper was killed sees that its folder is gone. One that was killed left the name of its socket.
        await self._until(lambda: not any(is_served(path) for path in _paths(sockets)), "the router did not end", home)
        shutil.rmtree(sockets, ignore_errors=True)

    async def look(self) -> dict[str, RouteLoad]:
        """What was seen, by service; one whose router is just being started again is left out."""
        found: dict[str, RouteLoad] = {}
        for service in await self.kept():
            loads = await self._loads(service, self._home(service))
            if loads:
                found[service] = add_loads(loads)
        await self._upkeep(found)
        return found

    async def _loads(self, service: str, home: Path) -> list[RouteLoad]:
        """What each router process of a service has counted."""
        loads = []
        for path in _paths(self._sockets(home)):
            answer = await _ask(path, b"look", _LOAD_SECONDS)
            try:
                loads += [self._dated(decode_load(answer))] if answer else []
            except ValueError as problem:
                # What is not measured changes nothing; the other services must be looked at.
                log.warning("%s: %s; its router is asked again at the next look", service, problem)
        return loads

    async def _upkeep(self, loads: dict[str, RouteLoad]) -> None:
        """From time to time: renew certificates that Fairway made, and note when keys were used."""
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
                    log.warning("%s: its certificate or keys could not be kept up: %s", service, problem)

    async def troubles(self) -> dict[str, RouteTrouble]:
        """The services whose keeper has ended, or whose port does not answer. One that never listened is not among them."""
        found: dict[str, RouteTrouble] = {}
        for service, home in kept_homes(self._folder).items():
            port = read_port(home)
            if not port:
                continue
            answers = self._probes.setdefault(home, Probe()).answers(read_plan(home), port)
            if not is_kept(home):
                serves = answers and any(is_served(path) for path in _paths(self._sockets(home)))
                found[service] = RouteTrouble("the process that holds its port has ended", answers=serves)
            elif not answers:
                message = f"nothing answers at port {port}"
                found[service] = RouteTrouble(message, answers=False, lacks_process=False)
        return found

    async def kept(self) -> list[str]:
        """The services for which a keeper lives, or a router whose keeper was killed."""
        homes = kept_homes(self._folder)
        return [service for service, home in homes.items() if is_kept(home) or _paths(self._sockets(home))]

    def outcome_token(self, service: str) -> str:
        """What reports of outcomes to a service must show; empty when it has no router yet."""
        return outcome_token(self._home(service))

    def access_folder(self, service: str) -> Path:
        """Where the access log of a service lies."""
        return self._home(service) / ACCESS

    def _home(self, service: str) -> Path:
        return home_of(self._folder, service)

    def _sockets(self, home: Path) -> Path:
        return short_folder(self._runtime, home)

    def _dated(self, load: RouteLoad) -> RouteLoad:
        return moved(load, self._clock.now())

    async def _start_keeper(self, plan: RoutePlan, home: Path, port: int) -> int:
        """Start a keeper at the plan's port, at the one it had, or at any."""
        problem = ""
        for wanted in [plan.port] if plan.port else [port, 0] if port else [0]:
            if wanted != port:
                # Until the new one is noted there must be none: a crash in between would leave the wrong one.
                (home / "port").unlink(missing_ok=True)
            said = await self._run_keeper(plan.host, wanted, home)
            if said.isdecimal():
                write(home / "port", said.encode())
                return int(said)
            problem = said.removeprefix("error ")
        if plan.port:
            await asyncio.to_thread(check_free, plan.service, plan.host, plan.port, self._folder)
        message = f"{plan.service}: cannot listen on {plan.host}:{plan.port or 'any port'}: {problem}"
        raise ConflictError(message, fix="give the service another port, or end what listens there")

    async def _run_keeper(self, host: str, port: int, home: Path) -> str:
        command = keeper_command(home, self._sockets(home), host, port)
        # In a thread, with the standard library's own pipe: what a loop hands to its children is the loop's affair.
        return await asyncio.to_thread(_run, [*command, *self._limits], home / LOG)

    async def _tell(self, plan: RoutePlan, home: Path) -> tuple[str, list[Path]]:
        """Tell every router of the service the plan; gives the version of the one that serves, and those that refuse the plan.

        Routers of a version without rules of access refuse them, and follow the plan before. The version is empty where only
        such are there.
        """
        deadline = self._clock.now() + _PATIENCE
        while True:
            with crash.reach("router.tell"):
                answers = {path: await _ask(path, b"put " + encode_plan(plan)) for path in _paths(self._sockets(home))}
            said = [answer.decode().partition(" ") for answer in answers.values()]
            serving = [version for word, _, version in said if word == "serving"]
            refusing = [path for path, answer in answers.items() if answer.startswith(b"error")]
            # One that says nothing and lives follows the plan before: a key that was revoked would still be valid there.
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
        """Have the router started anew, from the code that is installed now; the one before finishes what it has."""
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
        """Listen to every router of the service that is not listened to."""
        for path in _paths(self._sockets(home)):
            if path not in self._watches:
                self._watches[path] = asyncio.get_running_loop().create_task(self._follow(home, path))

    async def _follow(self, home: Path, path: Path) -> None:
        """Pass on what a router calls urgent, then find the next router. That one has ended is urgent too."""
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
            # It ended; the next one is looked for below.
            pass
        while is_kept(home) and not [other for other in _paths(self._sockets(home)) if other != path]:
            await asyncio.sleep(_LOOK_SECONDS)
        del self._watches[path]
        if is_kept(home):
            self._watch(home)
        self._wake()


def _run(command: list[str], log_path: Path) -> str:
    """What a command that ends by itself says."""
    with open(log_path, "ab") as log, crash.reach("router.spawn"):
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, check=False)
    return done.stdout.decode().strip()


def _nobody() -> None:
    """Nothing was started yet."""


def _end_now(paths: list[Path]) -> None:
    """End routers of an older version, which follow rules that are not in force any more. They finish what they have."""
    for path in paths:
        if is_served(path):
            try:
                with crash.reach("router.signal"):
                    os.kill(int(path.stem), signal.SIGUSR1)
            except (OSError, ValueError):
                # It has ended.
                continue


def _paths(sockets: Path) -> list[Path]:
    return sorted(sockets.glob("*.sock"))


async def _ask(path: Path, line: bytes, within: float = _ANSWER_SECONDS) -> bytes:
    """The answer of a router to one line; empty when there is none within that time."""
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
