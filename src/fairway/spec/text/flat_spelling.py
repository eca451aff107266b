"""Convert the short forms of the flat spelling to the fields of the models.

Each function takes a tree as the user wrote it and returns the tree of the model, with the same positions and paths. Values that
cannot be understood are reported and left unchanged, so that the model rejects them too.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable

from fairway.spec import endpoint, field, job, queue, resource, service
from fairway.spec.spec_model import SpecModel
from fairway.spec.text.mistake_report import MistakeReport, show
from fairway.spec.text.syntax_tree import (
    Node,
    YamlEntry,
    YamlMapping,
    YamlScalar,
    YamlSequence,
    is_nothing,
    resolve,
    step_into,
)
from fairway.units import quantity, suggestion

SHORTHAND_ROLE = "worker"
"""The role that gets top-level fields such as `command` when there are no `roles`."""
SHORTHAND = tuple(name for name in field.fields_of(job.TaskRole) if name not in field.fields_of(job.JobSpec))

_SHELL_WORDS = frozenset({"&&", "||", "|", "&", ";", ">", ">>", "<", "<<", "2>", "2>&1", "&>"})
_PLAIN_WORD = re.compile(r"""[^\s'"\\]+""")
_GPU_SHORT = re.compile(r"(?P<type>[A-Za-z0-9._-]+):(?P<count>[0-9.]+)")
_SYNONYMS = {"mem": "memory", "ram": "memory", "cores": "cpu", "cpus": "cpu", "gpus": "gpu", "gpu_count": "gpu"}

Sugar = Callable[[Node, str, MistakeReport], Node]
GpuSugar = Callable[[YamlEntry, YamlMapping, str, MistakeReport], list[YamlEntry]]


def known_names(model: type[SpecModel]) -> tuple[str, ...]:
    """Return the field names allowed where the model stands."""
    own = tuple(field.fields_of(model))
    if "spec" in own and "metadata" in own:
        parts = [field.fields_of(model)[name].shape.model for name in ("metadata", "spec")]
        return ("kind", "apiVersion", *(name for part in parts if part for name in known_names(part)))
    extra = {job.JobSpec: SHORTHAND, job.CodeSource: ("ref",)}
    return (*own, *extra.get(model, ()))


def is_open(model: type[SpecModel], name: str) -> bool:
    """Return whether an unknown field name is allowed in the model.

    Models that count resources allow any name that is not a likely typing error.
    """
    if not counts_resources(model):
        return False
    # `runs` is the limit on concurrent runs at every level, never a resource.
    return "/" in name or not (resource_slip(model, name) or name == "runs")


def counts_resources(model: type[SpecModel]) -> bool:
    """Return whether the model accepts any countable resource by name."""
    return model in (resource.ResourceAmounts, queue.ResourceQuota, queue.UserLimits)


def resource_slip(model: type[SpecModel], name: str) -> str:
    """Return the known resource that an unknown name was probably meant to be."""
    return _SYNONYMS.get(name.lower()) or suggestion.nearest(name, field.fields_of(model))


def without_sugar(model: type[SpecModel], node: Node, path: str, report: MistakeReport) -> Node:
    """Return the node in the form of the model, without short forms."""
    if "metadata" in field.fields_of(model):
        return _split_root(model, node)
    sugar = _SUGAR.get(model)
    return sugar(node, path, report) if sugar else node


def _split_root(model: type[SpecModel], node: Node) -> Node:
    """Move name, namespace, labels and annotations to `metadata`, the rest to `spec`."""
    about = field.fields_of(model)["metadata"].shape.model
    if not isinstance(node, YamlMapping) or about is None:
        return node
    head: list[YamlEntry] = []
    metadata: list[YamlEntry] = []
    spec: list[YamlEntry] = []
    for entry in node.entries:
        if entry.name in ("kind", "apiVersion"):
            head.append(
                YamlEntry("api_version" if entry.name == "apiVersion" else "kind", entry.value, entry.place, entry.written)
            )
        else:
            (metadata if entry.name in field.fields_of(about) else spec).append(entry)
    return YamlMapping(
        (
            *head,
            _unwritten("metadata", YamlMapping(tuple(metadata), node.place)),
            _unwritten("spec", YamlMapping(tuple(spec), node.place)),
        ),
        node.place,
    )


def _job(node: Node, path: str, report: MistakeReport) -> Node:
    """Move role fields at the top level into the role `worker`; top-level `env` stays with the job."""
    if not isinstance(node, YamlMapping):
        return node
    lifted = tuple(entry for entry in node.entries if entry.name in SHORTHAND)
    rest = tuple(entry for entry in node.entries if entry.name not in SHORTHAND)
    roles = node.get("roles")
    if not lifted or roles is None:
        worker = YamlMapping(lifted, node.place)
        return (
            YamlMapping((*rest, _unwritten("roles", YamlMapping((_unwritten(SHORTHAND_ROLE, worker),), node.place))), node.place)
            if lifted
            else node
        )
    role = roles.value.entries[0].name if isinstance(roles.value, YamlMapping) and roles.value.entries else "worker"
    for entry in lifted:
        report.add(
            "is set together with `roles`, so it is not clear which role it belongs to",
            path=entry.written or entry.name,
            place=entry.place,
            fix=f"move it into a role, as `roles.{role}.{entry.name}`",
        )
    return YamlMapping(rest, node.place)


def _role(node: Node, path: str, report: MistakeReport) -> Node:
    if not isinstance(node, YamlMapping):
        return node
    return YamlMapping(tuple(_role_entry(entry, path, report) for entry in node.entries), node.place)


def _role_entry(entry: YamlEntry, path: str, report: MistakeReport) -> YamlEntry:
    value = entry.value
    if not isinstance(value, YamlScalar):
        return entry
    if entry.name == "processes" and value.text == "auto":
        return _with_value(entry, YamlScalar("0", value.place))
    if entry.name == "processes" and isinstance(resolve(value), str):
        report.add(
            "is not a number of processes",
            path=_below(path, entry),
            place=value.place,
            value=show(value.text),
            fix="write auto, or a whole number without quotes",
        )
    if entry.name == "command" and not is_nothing(value):
        words = _split_command(value, _below(path, entry), report, "use `script:`")
        return entry if words is None else _with_value(entry, words)
    return entry


def _service(node: Node, path: str, report: MistakeReport) -> Node:
    if not isinstance(node, YamlMapping):
        return node
    return YamlMapping(tuple(_service_entry(entry, path, report) for entry in node.entries), node.place)


def _service_entry(entry: YamlEntry, path: str, report: MistakeReport) -> YamlEntry:
    if entry.name != "command" or not isinstance(entry.value, YamlScalar) or is_nothing(entry.value):
        return entry
    words = _split_command(entry.value, _below(path, entry), report, "save a script and run `bash FILE`")
    return entry if words is None else _with_value(entry, words)


def join_command(words: tuple[str, ...]) -> str:
    """Join words into one text that splits into the same words again. Quotes are added only where needed."""
    return " ".join(word if _PLAIN_WORD.fullmatch(word) and word not in _SHELL_WORDS else shlex.quote(word) for word in words)


def _split_command(value: YamlScalar, path: str, report: MistakeReport, script: str) -> YamlSequence | None:
    """Split a command into words. No shell is involved, so shell operators are reported as mistakes."""
    text = value.text.replace("\\\n", " ").strip()
    try:
        words = shlex.split(text)
        raw = shlex.shlex(text, posix=False)
        raw.whitespace_split, raw.commenters = True, ""
        operators = sorted(_SHELL_WORDS & set(raw))
        lines = shlex.shlex(text, posix=True)
        lines.whitespace_split, lines.commenters, lines.whitespace = True, "", " \t"
        several = list(lines) != words
    except ValueError as error:
        message = "has a quote that is not closed" if "quotation" in str(error) else "ends in a backslash"
        report.add(message, path=path, place=value.place, value=show(value.text), fix="close it, or write the command as a list")
        return None
    if operators:
        report.add(
            f"has `{operators[0]}`, which only a shell interprets",
            path=path,
            place=value.place,
            value=show(value.text),
            fix=f"{script} for bash, or put quotes round it",
        )
        return None
    if several:
        report.add(
            "has several lines, but a command is one line",
            path=path,
            place=value.place,
            value=show(value.text),
            fix=f"{script} for several commands, or end each line but the last with a backslash",
        )
        return None
    return YamlSequence(tuple(YamlScalar(word, value.place, plain=False) for word in words), value.place, written=False)


def _replicas(node: Node, path: str, report: MistakeReport) -> Node:
    if isinstance(node, YamlScalar):
        return YamlMapping((_unwritten("min", node), _unwritten("max", node)), node.place)
    if isinstance(node, YamlMapping):
        least = node.get("min")
        if (
            least
            and not node.get("max")
            and isinstance(least.value, YamlScalar)
            and isinstance(resolve(least.value), int)
            and resolve(least.value) != 0
        ):
            return YamlMapping((*node.entries, YamlEntry("max", least.value, least.place, "min")), node.place)
    return node


def _code(node: Node, path: str, report: MistakeReport) -> Node:
    """Convert the short forms of code: `code: .`, `{git: URL, ref: main}`, `{path: ., in_place: true}`."""
    if isinstance(node, YamlScalar):
        return _only("path", node)
    if not isinstance(node, YamlMapping):
        return node
    git, ref = node.get("git"), node.get("ref")
    rest = tuple(entry for entry in node.entries if entry.name not in ("git", "ref"))
    if git is None or is_nothing(git.value):
        if ref is not None:
            report.add("needs a repository", path=_below(path, ref), place=ref.place, fix="add `git: URL`, or remove it")
        return YamlMapping(rest, node.place)
    if isinstance(git.value, YamlMapping):
        if ref is not None:
            report.add(
                "is set together with a `git` that has its own fields",
                path=_below(path, ref),
                place=ref.place,
                fix="move it into `git`",
            )
        return YamlMapping((*rest, git), node.place)
    source = [YamlEntry("url", git.value, git.place, git.written)]
    if ref is not None:
        source.append(YamlEntry("ref", ref.value, ref.place, ref.written))
    return YamlMapping((*rest, _unwritten("git", YamlMapping(tuple(source), git.value.place))), node.place)


def _resources(node: Node, path: str, report: MistakeReport) -> Node:
    """Convert resources: `gpu: H100:8` means eight GPUs of type H100, and unknown names are counted resources."""
    return _counted(resource.ResourceAmounts, _gpu, node, path, report)


def _allotment(node: Node, path: str, report: MistakeReport) -> Node:
    return _counted(queue.ResourceQuota, _gpu_by_type, node, path, report)


def _user_limits(node: Node, path: str, report: MistakeReport) -> Node:
    return _counted(queue.UserLimits, _gpu_by_type, node, path, report)


def _counted(model: type[SpecModel], gpu: GpuSugar, node: Node, path: str, report: MistakeReport) -> Node:
    if not isinstance(node, YamlMapping):
        return node
    own = field.fields_of(model)
    other = node.get("other")
    spelt_out = other.value.entries if other and isinstance(other.value, YamlMapping) else ()
    counted = [YamlEntry(entry.name, entry.value, entry.place, f"other.{entry.name}") for entry in spelt_out]
    kept: list[YamlEntry] = []
    for entry in node.entries:
        if entry.name not in own:
            counted.append(entry)
        elif entry.name == "gpu":
            kept.extend(gpu(entry, node, path, report))
        elif not (entry is other and isinstance(other.value, YamlMapping)):
            kept.append(entry)
    if counted:
        place = other.value.place if other else node.place
        kept.append(YamlEntry("other", YamlMapping(tuple(counted), place), place, None))
    return YamlMapping(tuple(kept), node.place)


def _gpu(entry: YamlEntry, node: YamlMapping, path: str, report: MistakeReport) -> list[YamlEntry]:
    value = entry.value
    if not isinstance(value, YamlScalar) or _is_amount(value.text) or is_nothing(value):
        return [entry]
    match = _GPU_SHORT.fullmatch(value.text)
    if not match or not _is_amount(match["count"]):
        report.add(
            "is not a number of GPUs",
            path=_below(path, entry),
            place=value.place,
            value=show(value.text),
            fix="write for example 1, 0.5 or H100:8",
        )
        return [entry]
    if node.get("gpu_type"):
        report.add(
            "names a type, and so does `gpu_type`",
            path=_below(path, entry),
            place=value.place,
            value=show(value.text),
            fix=f"write {match['count']}, or remove `gpu_type`",
        )
        return [entry]
    kind = YamlSequence((YamlScalar(match["type"], value.place, plain=False),), value.place, written=False)
    return [
        _with_value(entry, YamlScalar(match["count"], value.place, plain=False)),
        YamlEntry("gpu_type", kind, entry.place, entry.written),
    ]


def _gpu_by_type(entry: YamlEntry, node: YamlMapping, path: str, report: MistakeReport) -> list[YamlEntry]:
    """Convert GPU amounts: `gpu: 8` counts GPUs of any type, `gpu: {A100: 8}` and `gpu: A100:8` those of one type."""
    value = entry.value
    match = _GPU_SHORT.fullmatch(value.text) if isinstance(value, YamlScalar) else None
    if isinstance(value, YamlScalar) and not (match and _is_amount(match["count"])):
        if _is_amount(value.text) or is_nothing(value):
            return [entry]
        fix = "write for example 8, or {A100: 8} for GPUs of one type"
        report.add("is not a number of GPUs", path=_below(path, entry), place=value.place, value=show(value.text), fix=fix)
        return []
    if node.get("gpu_types"):
        fix = "move its types into `gpu_types`, or remove `gpu_types`"
        report.add("names types, and so does `gpu_types`", path=_below(path, entry), place=value.place, fix=fix)
        return []
    if isinstance(value, YamlScalar) and match:
        count = YamlScalar(match["count"], value.place, plain=False)
        value = YamlMapping((YamlEntry(match["type"], count, value.place, None),), value.place)
    return [YamlEntry("gpu_types", value, entry.place, entry.written)]


def _is_amount(text: str) -> bool:
    try:
        quantity.number(text)
    except ValueError:
        return False
    return True


def _short_for(name: str) -> Sugar:
    """Return the conversion for models where a single value stands for the field `name`."""

    def sugar(node: Node, path: str, report: MistakeReport) -> Node:
        return _only(name, node) if isinstance(node, YamlScalar) else node

    return sugar


_SUGAR: dict[type[SpecModel], Sugar] = {
    job.JobSpec: _job,
    job.TaskRole: _role,
    job.RoleReplicas: _replicas,
    job.CodeSource: _code,
    resource.ResourceAmounts: _resources,
    queue.ResourceQuota: _allotment,
    queue.UserLimits: _user_limits,
    job.RuntimeEnvironment: _short_for("python"),
    job.RestartPolicy: _short_for("max"),
    job.CheckpointPolicy: _short_for("every"),
    job.TensorBoardSource: _short_for("dir"),
    service.ServiceSpec: _service,
    service.ServiceReplicas: _replicas,
    service.ServiceObjective: _short_for("p95"),
    service.SamplingPolicy: _short_for("rate"),
    service.ServiceLogs: _short_for("access"),
    service.RolloutPolicy: _short_for("strategy"),
    service.RolloutStep: _short_for("to"),
    service.MetricGuard: _short_for("name"),
    service.OutputsGuard: _short_for("differ"),
    endpoint.ServiceEndpoint: _short_for("bind"),
    endpoint.EndpointTls: _short_for("mode"),
}


def _only(name: str, node: YamlScalar) -> YamlMapping:
    return YamlMapping((_unwritten(name, node),), node.place)


def _unwritten(name: str, value: Node) -> YamlEntry:
    return YamlEntry(name, value, value.place, None)


def _with_value(entry: YamlEntry, value: Node) -> YamlEntry:
    return YamlEntry(entry.name, value, entry.place, entry.written)


def _below(path: str, entry: YamlEntry) -> str:
    return step_into(path, entry.written or entry.name)
