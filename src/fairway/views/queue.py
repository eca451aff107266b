"""Views of queues: quota, use and waiting runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from fairway.state.queue import GPU_TYPE, Queue, QueueUsage
from fairway.units import quantity
from fairway.units.notebook_card import NotebookView
from fairway.views.text import phrase
from fairway.views.text.table import Column, TextPage, table


class QueueAmount(msgspec.Struct, frozen=True):
    """A resource of a queue: cores, bytes of memory, GPUs, or a count."""

    resource: str
    """`cpu`, `memory`, `gpu` (of any type), `gpu:A100`, or another by name."""
    used: float
    quota: float | None = None
    """None for no limit."""
    borrowed: float = 0.0
    """Use beyond the quota."""


class QueueView(NotebookView, frozen=True):
    """A queue with its state."""

    name: str
    weight: float
    running: int
    """Number of runs that hold resources."""
    waiting: int
    share: float
    """Its part of its dominant resource, in percent of the total."""
    dominant: str
    usage: float
    """Recent use, decayed with age."""
    resources: tuple[QueueAmount, ...]
    borrow: bool
    members: tuple[str, ...]
    per_user: dict[str, float]
    """Limit by resource, as in `resources`; `runs` is the number of running runs."""
    timeout: float | None
    """The longest timeout that a run may request, in seconds."""
    priority: int | None
    """The highest priority that a run may request."""
    time_slice: float | None
    """Seconds; None if runs are not rotated."""
    default_timeout: float | None
    default_priority: int
    labels: dict[str, str]


class QueueList(msgspec.Struct, frozen=True):
    """All queues, in order of name."""

    queues: tuple[QueueView, ...]


def queue_view(queue: Queue, standing: QueueUsage) -> QueueView:
    """Return the view of a queue."""
    resource_names = [*queue.quota, *(name for name in standing.used if name not in queue.quota)]
    return QueueView(
        name=queue.name,
        weight=queue.weight,
        running=standing.running,
        waiting=standing.waiting,
        share=round(100.0 * standing.share, 1),
        dominant=standing.dominant,
        usage=standing.usage,
        resources=tuple(_amount(name, queue, standing) for name in sorted(resource_names, key=_place)),
        borrow=queue.borrow,
        members=queue.members,
        per_user=_measured(queue.per_user),
        timeout=queue.timeout,
        priority=queue.priority,
        time_slice=queue.time_slice,
        default_timeout=queue.default_timeout,
        default_priority=queue.default_priority,
        labels=dict(queue.labels),
    )


def queues_text(queues: Sequence[QueueView], page: TextPage = TextPage()) -> str:
    """Return the text of `fairway queue list`: one line per queue."""
    columns = [
        Column("NAME", always=True),
        Column("WEIGHT", right=True),
        Column("RUNNING", right=True, always=True),
        Column("WAITING", right=True, always=True),
        Column("SHARE", right=True),
        Column("USED", loose=True),
        Column("BORROWED", loose=True),
    ]
    more = [Column("USAGE", right=True), Column("BORROW"), Column("SLICE"), Column("TIMEOUT"), Column("MEMBERS", loose=True)]
    rows = [_row(queue) + (_more(queue) if page.wide else []) for queue in queues]
    return table([*columns, *more] if page.wide else columns, rows, page)


def queue_text(queue: QueueView, page: TextPage = TextPage()) -> str:
    """Return the text of `fairway queue get`: all details of a queue."""
    lines = [
        ("weight", quantity.show_number(queue.weight)),
        ("members", ", ".join(queue.members)),
        ("runs", f"{queue.running} running, {queue.waiting} waiting"),
        ("share", _share(queue)),
        (
            "borrow",
            "uses idle quota of other queues, and gives it back when they need it" if queue.borrow else "never exceeds its quota",
        ),
        ("time slice", "never" if queue.time_slice is None else phrase.span(queue.time_slice)),
        ("per user", ", ".join(f"{name} {_show(name, amount)}" for name, amount in queue.per_user.items()) or "-"),
        ("timeout", _limit(queue.timeout, queue.default_timeout)),
        ("priority", _highest(queue)),
        ("labels", ", ".join(f"{key}={value}" for key, value in queue.labels.items()) or "-"),
    ]
    text = page.paint(queue.name, "bold") + "\n"
    text += "".join(f"  {name:12}{value}\n" for name, value in lines if value != "-")
    if not queue.resources:
        return text
    columns = (Column("RESOURCE", always=True), Column("USED", True), Column("QUOTA", True), Column("BORROWED", True))
    rows = [
        [
            amount.resource,
            _show(amount.resource, amount.used),
            "-" if amount.quota is None else _show(amount.resource, amount.quota),
            _show(amount.resource, amount.borrowed) if amount.borrowed else "",
        ]
        for amount in queue.resources
    ]
    return text + "\n" + table(columns, rows, page, indent="  ")


def difference(before: Queue | None, after: Queue) -> str:
    """Return the difference between two versions of a queue: `weight 1 -> 2, quota.cpu none -> 64`."""
    if before is None:
        return ""
    old, new = _facts(before), _facts(after)
    names = dict.fromkeys([*old, *new])
    return ", ".join(
        f"{name} {old.get(name, 'none')} -> {new.get(name, 'none')}" for name in names if old.get(name) != new.get(name)
    )


def _facts(queue: Queue) -> dict[str, str]:
    facts = {
        "weight": quantity.show_number(queue.weight),
        "members": " ".join(queue.members),
        "borrow": "yes" if queue.borrow else "no",
        "time_slice": "never" if queue.time_slice is None else phrase.span(queue.time_slice),
        "limits.timeout": "none" if queue.timeout is None else phrase.span(queue.timeout),
        "limits.priority": "none" if queue.priority is None else str(queue.priority),
        "defaults.timeout": "none" if queue.default_timeout is None else phrase.span(queue.default_timeout),
        "defaults.priority": str(queue.default_priority),
    }
    for group, amounts in (("quota", queue.quota), ("limits.per_user", queue.per_user)):
        facts.update((f"{group}.{name}", _show(name, amount)) for name, amount in _measured(amounts).items())
    for group, pairs in (("labels", queue.labels), ("annotations", queue.annotations)):
        facts.update((f"{group}.{name}", value) for name, value in pairs.items())
    return facts


def _amount(name: str, queue: Queue, standing: QueueUsage) -> QueueAmount:
    return QueueAmount(
        name,
        _measure(name, standing.used.get(name, 0)),
        _measure(name, queue.quota[name]) if name in queue.quota else None,
        _measure(name, standing.borrowed.get(name, 0)),
    )


def _measured(amounts: Mapping[str, int]) -> dict[str, float]:
    return {name: _measure(name, amount) for name, amount in amounts.items()}


def _measure(name: str, amount: int) -> float:
    """Convert from the scheduler's units to cores, bytes and GPUs."""
    if name == "memory":
        return amount << 20
    return amount / 1000 if name in ("cpu", "gpu") or name.startswith(GPU_TYPE) else amount


def _show(name: str, amount: float) -> str:
    return quantity.show_bytes(amount) if name == "memory" else quantity.show_number(amount)


def _place(name: str) -> tuple[int, str]:
    """Return the sort key of a resource; GPUs come first because users look for them."""
    kinds = ("gpu", "cpu", "memory")
    return (0 if name.startswith(GPU_TYPE) else kinds.index(name) if name in kinds else len(kinds), name)


def _row(queue: QueueView) -> list[str]:
    used = [
        f"{_show(use.resource, use.used)}{'' if use.quota is None else f'/{_show(use.resource, use.quota)}'} {use.resource}"
        for use in queue.resources
        if use.quota is not None or use.used
    ]
    borrowed = [f"{_show(use.resource, use.borrowed)} {use.resource}" for use in queue.resources if use.borrowed]
    return [
        queue.name,
        quantity.show_number(queue.weight),
        str(queue.running),
        str(queue.waiting),
        _share(queue),
        ", ".join(used),
        ", ".join(borrowed),
    ]


def _more(queue: QueueView) -> list[str]:
    return [
        quantity.show_number(queue.usage) if queue.usage else "-",
        "yes" if queue.borrow else "no",
        phrase.span(queue.time_slice),
        phrase.span(queue.timeout),
        " ".join(queue.members),
    ]


def _share(queue: QueueView) -> str:
    return f"{queue.share:g}% of {queue.dominant}" if queue.dominant else "-"


def _limit(longest: float | None, default: float | None) -> str:
    parts = [] if longest is None else [f"at most {phrase.span(longest)}"]
    return ", ".join([*parts, *([] if default is None else [f"{phrase.span(default)} by default"])]) or "-"


def _highest(queue: QueueView) -> str:
    parts = [] if queue.priority is None else [f"at most {queue.priority}"]
    return ", ".join([*parts, *([f"{queue.default_priority} by default"] if queue.default_priority else [])]) or "-"
