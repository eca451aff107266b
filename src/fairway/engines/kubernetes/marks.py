"""Every label and annotation that we write or read on objects: the contract between operator, scheduler and agent.

Pure. Nobody spells one elsewhere. A pod that names our scheduler and carries none of them is a gang of one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from fairway.state.job import Leaving
from fairway.units.number import finite, int64

DOMAIN = "fairway.dev"
SCHEDULER = "fairway"
"""What a pod calls us by in `schedulerName`."""

MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "fairway"
RUN = f"{DOMAIN}/run"
ROLE = f"{DOMAIN}/role"
INDEX = f"{DOMAIN}/index"
ATTEMPT = f"{DOMAIN}/attempt"

GANG = f"{DOMAIN}/gang"
"""Names the gang within its namespace, anew for each attempt."""
PARTS = f"{DOMAIN}/gang-parts"
SAME_RACK = f"{DOMAIN}/same-rack"
QUEUE = f"{DOMAIN}/queue"
PRIORITY = f"{DOMAIN}/priority"
"""Before other runs of the same kind; where it is missing, the pod's own priority counts."""
USER = f"{DOMAIN}/user"
GROUPS = f"{DOMAIN}/groups"
"""Of the user: those that are members of queues, as a JSON list."""
SERIES = f"{DOMAIN}/series"
TIME_LIMIT = f"{DOMAIN}/time-limit"
SUBMITTED = f"{DOMAIN}/submitted"
SAVED = f"{DOMAIN}/saved"
"""When the run last saved a checkpoint; a run that has can resume."""
GPUS = f"{DOMAIN}/gpus"
GPU_MILLI = f"{DOMAIN}/gpu-milli"
GPU_MEMORY = f"{DOMAIN}/gpu-memory"
GPU_TYPES = f"{DOMAIN}/gpu-types"
NODES = f"{DOMAIN}/nodes"
DEVICES = f"{DOMAIN}/devices"

GPU_IDS = f"{DOMAIN}/gpu-ids"
"""Written in the Binding: the devices that the pod got, by UUID."""
GPU_SHARE = f"{DOMAIN}/gpu-share"
"""Written in the Binding of a pod that shares its devices: thousandths of each."""
GPU_PART = f"{DOMAIN}/gpu-part"
"""Written with it: the part of their memory, `0.250`."""
LEAVE = f"{DOMAIN}/leave"
"""Written by the scheduler: the run must make room."""
DELETED_FOR = f"{DOMAIN}/deleted-for"
"""Written before a pod is deleted by us: why."""
RACK_LABELS = (f"{DOMAIN}/rack", "topology.kubernetes.io/rack", "topology.kubernetes.io/zone")
"""On nodes: the first of these that is there names the rack."""
SERVICE = f"{DOMAIN}/service"
"""On everything that a ModelService consists of: its name."""
REVISION = f"{DOMAIN}/revision"
"""On a revision's Deployment and pods: its number."""
REPLICA = f"{DOMAIN}/replica"
"""On a pod of a revision's Deployment, once it is known which replica it is: the replica's run."""
PART = f"{DOMAIN}/part"
"""What a pod of a service does: `replica` or `router`."""
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
"""On a pod that has drained: the Deployment lets it go before the others."""
CODE = f"{DOMAIN}/code"
"""On a TrainingJob: the ConfigMap that holds its code, or `blob:DIGEST`: a manifest in the operator's blobs."""
BLOB = "blob:"
REQUEST = f"{DOMAIN}/request"
"""On a TrainingJob: names the request that made it, so that the same request again finds it instead of making another."""

TRUSTED = (QUEUE, USER, PRIORITY, SUBMITTED, TIME_LIMIT)
"""On pods: whose turn it is. Believed of pods that Fairway made; admission refuses them on others (`install/pod_marks.py`)."""
MOST_PODS = 1_000_000
"""Pods of a role, at the most."""
SHOWN = 80
"""Characters of a bad value that a message shows."""
COUNTS = {GPUS: (0, 10_000), GPU_MILLI: (1, 1000), GPU_MEMORY: (0, 2**60), PRIORITY: (-(2**31), 2**31 - 1)}
"""Annotations that are whole numbers, and their bounds."""
LONGEST_NUMBER = 20
"""Characters of a number with 64 bits and its sign."""


@dataclass(frozen=True, slots=True)
class PartMark:
    """One role of a gang."""

    size: int
    """Pods that were made: all of them start together."""
    least: int
    most: int
    """How far the scheduler may shrink and grow the run later."""
    together: bool = False
    apart: bool = False


@dataclass(frozen=True, slots=True)
class GangMark:
    """What the scheduler must know of the run that a pod belongs to."""

    name: str
    parts: dict[str, PartMark] = field(default_factory=dict)
    same_rack: bool = False
    queue: str = "default"
    user: str = ""
    series: str = ""
    time_limit: float | None = None
    submitted: float | None = None
    saved: float | None = None

    @property
    def size(self) -> int:
        """Pods of the whole gang."""
        return sum(part.size for part in self.parts.values())


def made_by_us(labels: Mapping[str, str]) -> bool:
    """Whether the labels are those of a pod of a run or of a service."""
    return labels.get(MANAGED_BY) == MANAGER and (RUN in labels or SERVICE in labels)


def write_gang(gang: GangMark) -> dict[str, str]:
    """The annotations that say it."""
    parts = {name: asdict(part) for name, part in gang.parts.items()}
    found = {GANG: gang.name, PARTS: json.dumps(parts, separators=(",", ":")), QUEUE: gang.queue}
    found |= {SAME_RACK: "true"} if gang.same_rack else {}
    found |= {name: text for name, text in ((USER, gang.user), (SERIES, gang.series)) if text}
    times = ((TIME_LIMIT, gang.time_limit), (SUBMITTED, gang.submitted), (SAVED, gang.saved))
    return found | {name: repr(number) for name, number in times if number is not None}


def read_gang(annotations: Mapping[str, str]) -> GangMark | None:
    """The gang that the annotations tell of; None when they tell of none. Raises `ValueError` for what is no mark of ours."""
    name = annotations.get(GANG)
    if name is None:
        return None
    try:
        plain = json.loads(annotations.get(PARTS, "{}"))
        parts = {role: _part(part) for role, part in plain.items()}
    except (TypeError, AttributeError, ValueError, RecursionError) as error:
        message = f"annotation {PARTS} = {annotations.get(PARTS, '')[:SHOWN]!r} does not describe a gang: {error}"
        raise ValueError(message) from error
    return GangMark(
        name=name,
        parts=parts,
        same_rack=annotations.get(SAME_RACK) == "true",
        queue=annotations.get(QUEUE, "default"),
        user=annotations.get(USER, ""),
        series=annotations.get(SERIES, ""),
        time_limit=_number(annotations, TIME_LIMIT),
        submitted=_number(annotations, SUBMITTED),
        saved=_number(annotations, SAVED),
    )


def _part(plain: dict[str, object]) -> PartMark:
    """One role. Raises `TypeError` or `ValueError` where a value has another type, or is out of bounds."""
    for name in ("size", "least", "most"):
        number = plain.get(name)
        if type(number) is not int or not 0 <= number <= MOST_PODS:
            message = f"{name} is no number from 0 to {MOST_PODS}"
            raise ValueError(message)
    if any(type(plain.get(name, False)) is not bool for name in ("together", "apart")):
        message = "together and apart are true or false"
        raise TypeError(message)
    return PartMark(**plain)  # type: ignore[arg-type]


def _number(annotations: Mapping[str, str], name: str) -> float | None:
    text = annotations.get(name)
    if text is None:
        return None
    try:
        number = finite(float(text))
    except ValueError:
        number = None
    if number is None:
        message = f"annotation {name} = {text[:SHOWN]!r} is no finite number"
        raise ValueError(message)
    return number


def read_count(text: str | None, fallback: int, least: int = 0, most: int = 2**63 - 1) -> int:
    """A whole number from an annotation or a label, within its bounds; `fallback` for anything else."""
    # Longer texts are no number of 64 bits, and the conversion of very long ones raises.
    if text is None or len(text) > LONGEST_NUMBER:
        return fallback
    try:
        number = int64(int(text))
    except ValueError:
        return fallback
    return number if number is not None and least <= number <= most else fallback


def miscounted(annotations: Mapping[str, str]) -> str:
    """Which annotation is no number within its bounds, in words; empty when all are."""
    for name, (least, most) in COUNTS.items():
        if name in annotations and read_count(annotations[name], least - 1, least, most) < least:
            return f"annotation {name} = {annotations[name][:SHOWN]!r} is no number from {least} to {most}"
    return ""


def write_leave(leaving: Leaving) -> str:
    """The value of the mark by which a run is told to make room."""
    return json.dumps(asdict(leaving), separators=(",", ":"))


def read_leave(annotations: Mapping[str, str]) -> Leaving | None:
    """What the scheduler asks of the run; None when nothing, or nothing of the right types."""
    text = annotations.get(LEAVE)
    if text is None:
        return None
    try:
        found = Leaving(**json.loads(text))
    except (TypeError, ValueError, RecursionError):
        return None
    since = finite(found.since)
    if type(found.cause) is not str or type(found.message) is not str or since is None or type(found.sizes) is not dict:
        return None
    sizes = {name: size for name, size in found.sizes.items() if type(size) is int and 0 <= size <= MOST_PODS}
    # A lone surrogate, which JSON can spell, cannot be stored.
    return Leaving(storable(found.cause), storable(found.message), since, sizes) if sizes == found.sizes else None


def storable(text: str) -> str:
    """The text with what UTF-8 cannot encode replaced."""
    return text.encode(errors="replace").decode()
