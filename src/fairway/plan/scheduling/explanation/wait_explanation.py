"""Explain why a run waits: turn the scheduler's values into a `WaitReason` with the binding constraint and its numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from fairway.plan.scheduling import resource_amount
from fairway.plan.scheduling.decision import EvictDecision, EvictionCause, LimitObstacle, Obstacle, ReservationObstacle
from fairway.plan.scheduling.gang import WHOLE, CapacityShortfall, GangRole, GangShape, TaskShape
from fairway.plan.scheduling.gang_request import GangRequest
from fairway.plan.scheduling.queueing import queue_rule
from fairway.plan.scheduling.queueing.waiting_room import WaitingLineKey
from fairway.plan.scheduling.scheduler_memory import SeatReservation
from fairway.plan.scheduling.scheduler_state import SchedulerState, key_of
from fairway.state.job import JobKey, WaitReason
from fairway.state.node import ClusterNode
from fairway.units import quantity
from fairway.units import suggestion as units_suggestion

FEW_NODES = 4
"""Maximum number of nodes and devices named in a message."""

_RIGHTS = {
    EvictionCause.PRIORITY: "which is more urgent",
    EvictionCause.RECLAIM: "whose queue reclaims its share or quota",
    EvictionCause.SLICE: "which has run for less time so far",
    EvictionCause.SHRINK: "which can start when this one goes on with fewer tasks",
}


def obstacles(ledger: SchedulerState, requests: Iterable[GangRequest], now: float) -> dict[WaitingLineKey, Obstacle]:
    """Return the obstacle of each of these runs' lines, computed without reservations, so that the free amounts are exact."""
    cluster = ledger.cluster
    obstacles_by_line: dict[WaitingLineKey, Obstacle] = {}
    reservations = sorted(ledger.memory.reservations.items(), key=lambda item: (item[1].at, item[0]))
    mark = cluster.mark()
    for _, reservation in reservations:
        cluster.give(reservation.seats)
    for request in requests:
        line = ledger.line_key(request, now)
        if line not in obstacles_by_line:
            obstacles_by_line[line] = _obstacle(ledger, request, reservations)
    cluster.undo(mark)
    return obstacles_by_line


def _obstacle(ledger: SchedulerState, request: GangRequest, kept: Sequence[tuple[str, SeatReservation]]) -> Obstacle:
    needed = resource_amount.of_gang(request.gang)
    limit = queue_rule.limit(ledger.queue(request.queue), request.user, needed, ledger.accounts)
    if limit is not None:
        return limit
    mark = ledger.cluster.mark()
    seats = ledger.places_for(request)
    ledger.cluster.undo(mark)
    if isinstance(seats, CapacityShortfall):
        return seats
    typed = queue_rule.limit(
        ledger.queue(request.queue), request.user, resource_amount.of_seats(seats, ledger.nodes), ledger.accounts
    )
    if typed is not None:
        return typed
    return _behind(ledger, request, kept)


def _behind(ledger: SchedulerState, request: GangRequest, kept: Sequence[tuple[str, SeatReservation]]) -> ReservationObstacle:
    """Return the owner of the first reservation, in order of expected time, that prevents the run from fitting."""
    cluster = ledger.cluster
    mark = cluster.mark()
    result = ReservationObstacle(request.key)
    for name, reservation in kept:
        if name == str(request.key):
            continue
        cluster.take(reservation.seats)
        if ledger.would_fit(request) is None:
            result = ReservationObstacle(key_of(name), reservation.at)
            break
    cluster.undo(mark)
    return result


def hold(
    request: GangRequest, obstacle: Obstacle, nodes: Mapping[str, ClusterNode] | None = None, spared: Sequence[JobKey] = ()
) -> WaitReason:
    """Return why the run waits and what would help. With `nodes`, if few, it names foreign users of their GPUs.

    `spared` are the runs that are not evicted for it because they would lose all their work.
    """
    result = _hold(request, obstacle, nodes)
    return _sparing(request, result, spared) if spared else result


def _hold(request: GangRequest, obstacle: Obstacle, nodes: Mapping[str, ClusterNode] | None) -> WaitReason:
    match obstacle:
        case CapacityShortfall():
            return _shortfall(request, obstacle, outsiders(nodes or {}))
        case LimitObstacle():
            return _limit(obstacle)
        case ReservationObstacle(key=key) if key == request.key:
            return WaitReason("behind", "there is room for it; it is about to start", "nothing to do; it goes on by itself")
        case ReservationObstacle(key=key):
            message = f"there is room, but it is reserved for {key.name}, which comes first"
            shorter = "a shorter timeout" if request.limit is not None else "a timeout, which limits how long it runs"
            return WaitReason("behind", message, f"{shorter}: a run that ends in time may start first")


def _sparing(request: GangRequest, found: WaitReason, spared: Sequence[JobKey]) -> WaitReason:
    single = len(spared) == 1
    named = ", ".join(key.name for key in spared[:FEW_NODES]) + (" and others" if len(spared) > FEW_NODES else "")
    verb, are, saves = ("has", "is", "it saves or ends") if single else ("have", "are", "they save or end")
    message = f"{found.message}; {named} {verb} saved nothing and {are} not evicted"
    urgent = f"or give the service a `priority` of more than {request.priority}"
    return replace(found, message=message, what_would_help=f"wait until {saves}, or fairway stop {spared[0].name}, {urgent}")


def outsiders(nodes: Mapping[str, ClusterNode]) -> str:
    """Return foreign users of GPUs, `GPU 3: pid 7 (python)`; empty where there are more than `FEW_NODES` nodes."""
    if len(nodes) > FEW_NODES:
        return ""
    users = [
        f"{f'{name} ' if len(nodes) > 1 else ''}GPU {device.index}: {device.busy_with}"
        for name, node in sorted(nodes.items())
        for device in node.devices
        if device.busy_with
    ]
    return ", ".join(users[:FEW_NODES])


def eviction(evict: EvictDecision) -> str:
    """Return why a run is evicted."""
    if evict.cause is EvictionCause.GROW:
        return f"starts again with {_sizes(evict)}: there is room now"
    if evict.cause is EvictionCause.MOVE:
        whom = evict.to_whom.name if evict.to_whom is not None else "another run"
        return f"moves elsewhere, so that {whom} finds its GPUs together"
    whom = evict.to_whom.name if evict.to_whom is not None else "another run"
    whom = f"service {evict.service}" if evict.service else whom
    more = f" ({_sizes(evict)})" if evict.sizes else ""
    return f"makes room for {whom}, {_RIGHTS[evict.cause]}{more}"


def never(shortfall: CapacityShortfall, gang: GangShape, nodes: Sequence[ClusterNode] = ()) -> str:
    """Return why a gang could not start even if nothing ran on these nodes."""
    part = _part(shortfall, gang)
    if shortfall.what == "nodes":
        return "there is no node to run on"
    if shortfall.what in ("placement", "rack"):
        return _unknown_node(part, nodes) or _placement(shortfall, part, gang)
    asks = _asks(shortfall, part, gang)
    total, most = shortfall.total, shortfall.most_on_a_node
    if not total and shortfall.what == "gpu" and part.shape.gpu_types:
        return f"{asks}; {_other_types(part.shape.gpu_types, nodes)}"
    if total in (0, most):
        return f"{asks}; {_there(shortfall.what, total)}"
    return f"{asks}; {_there(shortfall.what, total)}, and no node has more than {number(shortfall.what, most)}"


def _there(what: str, count: int) -> str:
    if not count:
        return "there is none"
    if what == "memory":
        return f"{number(what, count)} is all there is"
    text = number(what, count)
    return f"there {'is' if text == '1' else 'are'} {text}"


def _other_types(asked: Sequence[str], nodes: Sequence[ClusterNode]) -> str:
    types = sorted({device.type for node in nodes for device in node.devices if device.type})
    if not types:
        return "there is none"
    suggestion = next((match for kind in asked if (match := units_suggestion.nearest(kind, types, cutoff=0.8))), "")
    hint = f" (did you mean {suggestion}?)" if suggestion and suggestion not in asked else ""
    return f"there is none of that type, only {' and '.join(types)}{hint}"


def _unknown_node(part: GangRole, nodes: Sequence[ClusterNode]) -> str:
    names = [node.name for node in nodes]
    unknown = [name for name in part.shape.where.nodes if name not in names]
    if not unknown or len(unknown) < len(part.shape.where.nodes):
        return ""
    near = units_suggestion.nearest(unknown[0], names)
    return f"there is no node {' or '.join(unknown)}" + (f" (did you mean {near}?)" if near else "")


def amount(what: str, count: int) -> str:
    """Return an amount with its resource, for display: `4 GPUs`, `2.5 CPUs`, `16Gi of memory`."""
    if what == "gpu" or what.startswith("gpu:"):
        kind = what.partition(":")[2]
        number = quantity.show_number(count / WHOLE)
        return f"{number} {kind + ' ' if kind else ''}GPU{'' if count == WHOLE else 's'}"
    if what == "cpu":
        return f"{quantity.show_number(count / 1000)} CPU{'' if count == 1000 else 's'}"
    if what == "memory":
        return f"{quantity.show_bytes(count << 20)} of memory"
    if what in ("tasks", "runs"):
        return f"{count} {what if count != 1 else what[:-1]}"
    return f"{count} {what}"


def number(what: str, count: int) -> str:
    """Return an amount without its resource, for display: `4`, `2.5`, `16Gi`."""
    if what == "memory":
        return quantity.show_bytes(count << 20)
    return quantity.show_number(count / 1000) if what == "cpu" or what.startswith("gpu") else str(count)


def _part(found: CapacityShortfall, gang: GangShape) -> GangRole:
    return next((part for part in gang.parts if part.role == found.role), gang.parts[0])


def _shortfall(request: GangRequest, found: CapacityShortfall, others: str) -> WaitReason:
    part = _part(found, request.gang)
    if found.what == "nodes":
        return WaitReason("nodes", "there is no node to run on", "a node must come back or be added")
    if found.what in ("placement", "rack"):
        return WaitReason(
            found.what, _placement(found, part, request.gang), "another job must end first, or the placement must be less strict"
        )
    free, most = (number(found.what, max(0, count)) for count in (found.free, found.most_on_a_node))
    if found.free == found.most_on_a_node:
        numbers = f"{free} of {number(found.what, found.total)} {_are(free)} free"
    else:
        numbers = f"the most any node has free is {most}; {free} {_are(free)} free in all"
    named = f" ({others})" if found.what == "gpu" and others else ""
    helps = "a job with GPUs must end first" if found.what == "gpu" else "another job must end first"
    return WaitReason(found.what, f"{_asks(found, part, request.gang)}; {numbers}{named}", helps)


def _are(number: str) -> str:
    return "is" if number == "1" else "are"


def _asks(found: CapacityShortfall, part: GangRole, gang: GangShape) -> str:
    """Return `needs 4 GPUs on one node`, `needs 2 CPUs for each of 3 worker tasks, which start together`."""
    amount_text = amount(found.what, found.asked)
    if found.what == "gpu":
        amount_text = _gpus(found, part)
    is_scattered = found.free > found.most_on_a_node
    if gang.size <= 1:
        return f"needs {amount_text}" + (" on one node" if is_scattered and found.asked > WHOLE and found.what == "gpu" else "")
    tasks = f"{part.least} {part.role} tasks" if part.least > 1 else f"the {part.role} task"
    if part.together and part.least > 1:
        return f"needs {amount_text} on one node for {tasks}, which stay together"
    subject = f"each of {tasks}" if part.least > 1 else tasks
    all_of_them = "which start together" if part.least == gang.size else f"which starts with {gang.size - part.least} others"
    if part.least > 1 and part.least != gang.size:
        all_of_them = f"which start together with {gang.size - part.least} more"
    placed = f" ({found.placed} of {gang.size} would find a place)" if found.placed else ""
    return f"needs {amount_text} for {subject}, {all_of_them}{placed}"


def _gpus(found: CapacityShortfall, part: GangRole) -> str:
    """Return `2 GPUs of type T4`, `50% of a GPU with 4 GiB of its memory`."""
    shape = part.shape
    kind = f" of type {' or '.join(shape.gpu_types)}" if shape.gpu_types else ""
    if shape.shares:
        return _share(shape) + kind
    memory = f" with {quantity.show_bytes(shape.gpu_memory << 20)} of memory" if shape.gpu_memory else ""
    return f"{amount('gpu', found.asked)}{kind}{memory}"


def _share(shape: TaskShape) -> str:
    part = f"{shape.gpu_milli / WHOLE:.0%} of {'a GPU' if shape.gpus == 1 else f'each of {shape.gpus} GPUs'}"
    return part + (f" with {quantity.show_bytes(shape.gpu_memory << 20)} of its memory" if shape.gpu_memory else "")


def _placement(found: CapacityShortfall, part: GangRole, gang: GangShape) -> str:
    where = part.shape.where
    if found.what == "rack":
        return f"no rack has room for all {gang.size} tasks, which must be in one rack"
    if part.apart and part.least > 1:
        return (
            f"needs {part.least} nodes for {part.least} {part.role} tasks, which must be on different nodes; "
            f"only {found.placed} fit"
        )
    wishes = []
    if where.nodes:
        wishes.append(f"called {' or '.join(where.nodes)}")
    if where.devices:
        wishes.append(f"with GPU {' or '.join(where.devices)}")
    if where.labels:
        wishes.append(f"labelled {', '.join(f'{name}={value}' for name, value in where.labels)}")
    wanted = " ".join(["a node", *wishes]) if wishes else "a node without taints that it does not tolerate"
    return f"{part.role} needs {wanted}, and there is none"


def _limit(found: LimitObstacle) -> WaitReason:
    needed, used, allowed = (amount(found.what, count) for count in (found.asked, found.used, found.allowed))
    if found.of == "quota":
        message = f"queue {found.queue} may use {allowed} and uses {used}; this needs {needed} more"
        return WaitReason(
            "quota",
            message,
            f"a run of queue {found.queue} must end first, or its quota must be raised: fairway get queue/{found.queue}",
        )
    who = f"each user of queue {found.queue}" if not found.user else f"{found.user} in queue {found.queue}"
    if found.what == "runs":
        message = f"{who} may have {allowed} at a time, and has {found.used}"
        return WaitReason("limit", message, "one of the same user's runs must end first")
    message = f"{who} may use {allowed} at a time and uses {used}; this needs {needed} more"
    return WaitReason("limit", message, "one of the same user's runs must end first")


def _sizes(evict: EvictDecision) -> str:
    return ", ".join(f"{count} {role}" for role, count in evict.sizes)
