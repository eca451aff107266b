"""The installation as a Helm chart whose values are the administrator's settings. Pure.

The chart is generated from an installation in which every setting is a placeholder. Each placeholder is then replaced by the
template of its value. So the objects are defined in a single place.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import json
import re
from typing import Any

import msgspec
import yaml

from fairway.engines.kubernetes.install.manifest import CLAIMED, NAMESPACE, SECTIONS, digest, settings
from fairway.engines.kubernetes.install.section import Manifest
from fairway.engines.kubernetes.operator import installation as described
from fairway.engines.kubernetes.operator.installation import PROCESS_RESOURCES, InstallationSettings
from fairway.version import VERSION

KEEP = {"helm.sh/resource-policy": "keep"}
"""For definitions: the objects of users would be deleted with them."""
_NO_VOLUME: dict[str, Any] = {"emptyDir": {}}
SHARED = "fairway"
"""The choice of `gpus` that changes objects."""
_WIDTH = 130
_MARK = re.compile(r"@@([a-z_.]+)@@")
_WHOLE = re.compile(r"'@@([a-z_.]+)@@'")
_OPTIONAL = re.compile(r"^( *)(\w+): '@@(gpu_runtime_class)@@'\n", re.MULTILINE)
_SWITCH = re.compile(r"'?@@(\w+)=(\w+)\?(\w+):(\w+)@@'?")
_MERGED = re.compile(r"^( *)'@@([a-z_.]+)@@': null\n", re.MULTILINE)

_TEMPLATES = {
    "image": '(required "image: name the image of Fairway itself" .Values.image)',
    "namespace": ".Release.Namespace",
    "settings": '(include "fairway.settings" .)',
    "settings_digest": '(include "fairway.settings" . | sha256sum)',
    "run_volume": '(include "fairway.runs" . | fromJson)',
    "record": f"(.Values.record | default (fromJson `{json.dumps(CLAIMED)}`))",
}
"""Templates of placeholders that do not stand for the value of the same name."""

_HELPERS = """\
{{/* Helm merges given values into the defaults: a default volume would remain beside a given one. */}}
{{- define "fairway.runs" -}}
{{ toJson (.Values.run_volume | default (dict "emptyDir" dict)) }}
{{- end -}}
{{/* The operator's settings: these values, and the namespace of the release. */}}
{{- define "fairway.settings" -}}
{{ $runs := include "fairway.runs" . | fromJson -}}
{{ mustToPrettyJson (merge (dict "namespace" .Release.Namespace "run_volume" $runs) (omit .Values "global" "run_volume")) }}
{{- end -}}
"""
_NOTES = """\
Fairway {{ .Chart.AppVersion }} is installed in {{ .Release.Namespace }}.
{{- if hasKey .Values.record "emptyDir" }}
WARNING: the operator keeps its record in an emptyDir: history and models are lost with its pod.
{{- end }}

kubectl -n {{ .Release.Namespace }} get pods     # operator and scheduler
kubectl get trainingjobs -A                      # all jobs
"""


def chart(installation: InstallationSettings) -> dict[str, str]:
    """Return the files of the chart, by path; the default values are those of this installation."""
    values: dict[str, Any] = msgspec.to_builtins(installation)
    del values["namespace"]  # the namespace is where the release is installed
    if values["run_volume"] == _NO_VOLUME:
        values["run_volume"] = {}
    about = {
        "apiVersion": "v2",
        "name": "fairway",
        "description": "Training and serving of machine learning models: operator, scheduler and kinds.",
        "type": "application",
        "version": VERSION,
        "appVersion": VERSION,
        "kubeVersion": ">=1.35.0-0",
    }
    return {
        "Chart.yaml": _yaml(about),
        "values.yaml": _values(values),
        "values.schema.json": json.dumps(_schema(), indent=2) + "\n",
        "templates/_helpers.tpl": _HELPERS,
        "templates/NOTES.txt": _NOTES,
        **_templates(),
    }


def _templates() -> dict[str, str]:
    marked = _marked()
    shared = msgspec.structs.replace(marked, gpus=SHARED)
    placeholders: dict[str, str] = {}
    for variant in (marked, shared):
        text = settings(variant)
        placeholders |= {text: "@@settings@@", digest(text): "@@settings_digest@@"}
    files = {}
    for section in SECTIONS:
        if section.name == NAMESPACE:
            continue
        pairs = zip(section.objects(shared), section.objects(marked), strict=True)
        both = [_either(_replaced(one, placeholders), _replaced(other, placeholders), "gpus", SHARED) for one, other in pairs]
        objects = [_kept(one) for one in both]
        written = "".join(f"---\n{_as_template(_yaml(one))}" for one in objects)
        files[f"templates/{section.name}.yaml"] = (
            f"{{{{- if {section.condition} }}}}\n{written}{{{{- end }}}}\n" if section.condition else written
        )
    return files


def _marked() -> InstallationSettings:
    """Return an installation in which every setting that objects contain is a placeholder."""
    return msgspec.structs.replace(
        InstallationSettings(image="@@image@@"),
        namespace="@@namespace@@",
        cluster_domain="@@cluster_domain@@",
        run_volume={"@@run_volume@@": None},
        record={"@@record@@": None},
        record_size="@@record_size@@",
        replicas="@@replicas@@",
        gpu_nodes={"@@gpu_nodes@@": None},
        gpu_runtime_class="@@gpu_runtime_class@@",
        resources={process: {f"@@resources.{process}@@": None} for process in PROCESS_RESOURCES},
    )


def _replaced(value: Any, known: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _replaced(item, known) for key, item in value.items()}
    if isinstance(value, list):
        return [_replaced(item, known) for item in value]
    return known.get(value, value) if isinstance(value, str) else value


def _kept(one: Manifest) -> Manifest:
    """Keep definitions when the release is uninstalled."""
    if one["kind"] != "CustomResourceDefinition":
        return one
    metadata = one["metadata"]
    return {**one, "metadata": {**metadata, "annotations": {**metadata.get("annotations", {}), **KEEP}}}


def _as_template(text: str) -> str:
    text = text.replace("{{", '{{ "{{" }}')
    text = _MERGED.sub(_merged, text)
    text = _OPTIONAL.sub(_optional, text)
    text = _SWITCH.sub(_switch, text)
    text = _WHOLE.sub(lambda match: f"{{{{ toJson {_value(match[1])} }}}}", text)
    return _MARK.sub(lambda match: f"{{{{ {_value(match[1])} }}}}", text)


def _merged(found: re.Match[str]) -> str:
    """Return the template that merges the fields of a value into a mapping."""
    return f"{{{{- with {_value(found[2])} }}}}{{{{- toYaml . | nindent {len(found[1])} }}}}{{{{- end }}}}\n"


def _optional(found: re.Match[str]) -> str:
    """Return the template of a field that is only present when its value is."""
    return f"{{{{- with {_value(found[3])} }}}}\n{found[1]}{found[2]}: {{{{ toJson . }}}}\n{{{{- end }}}}\n"


def _switch(found: re.Match[str]) -> str:
    """Return the template that switches between two texts by a value."""
    name, value, one, other = found.groups()
    return f'{{{{ if eq .Values.{name} "{value}" }}}}{json.dumps(one)}{{{{ else }}}}{json.dumps(other)}{{{{ end }}}}'


def _either(one: Any, other: Any, name: str, value: str) -> Any:
    """Merge two variants of an object: where their texts differ, put a switch on the value."""
    if isinstance(one, dict):
        return {key: _either(item, other[key], name, value) for key, item in one.items()}
    if isinstance(one, list):
        return [_either(item, beside, name, value) for item, beside in zip(one, other, strict=True)]
    return one if one == other else f"@@{name}={value}?{one}:{other}@@"


def _value(name: str) -> str:
    return _TEMPLATES.get(name, f".Values.{name}")


def _values(values: dict[str, Any]) -> str:
    """Return the values file, with a comment above each value."""
    texts = _said()
    heads = {name: f"# {texts[name]}\n" if name in texts else "" for name in values}
    return "\n".join(heads[name] + _yaml({name: value}) for name, value in values.items())


def _said() -> dict[str, str]:
    """Return the docstrings of the settings, by name: the strings under the fields."""
    tree = ast.parse(inspect.getsource(described))
    body = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == InstallationSettings.__name__).body
    texts = {}
    for field, text in itertools.pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
            texts[field.target.id] = str(ast.literal_eval(text.value))
    return texts


def _schema() -> dict[str, Any]:
    """Return the schema of the values: by it Helm refuses the same values as `fairway install` does."""
    schema = msgspec.json.schema(InstallationSettings)
    del schema["$defs"]["InstallationSettings"]["properties"]["namespace"]
    schema["$defs"]["InstallationSettings"]["properties"]["global"] = {"description": "Global values of Helm."}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _yaml(data: Any) -> str:
    text: str = yaml.safe_dump(data, sort_keys=False, width=_WIDTH, allow_unicode=True)
    return text
