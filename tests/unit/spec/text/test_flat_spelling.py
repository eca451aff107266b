"""Each short form of the flat spelling means the same as the long form in the Kubernetes spelling."""

import pytest

from fairway.errors import SpecError
from fairway.spec.text import flat_spelling
from fairway.spec.text.document import read_data, read_documents
from fairway.spec.text.writer import flat_data, kubernetes_data


def canonical(text, head="kind: TrainingJob\nname: x\n"):
    """Return the spec of a flat text, in the Kubernetes spelling."""
    (job,) = read_documents(head + text)
    return kubernetes_data(job)["spec"]


def role(text):
    return canonical(f"command: run\n{text}")["roles"]["worker"]


def mistakes(text, head="kind: TrainingJob\nname: x\n"):
    with pytest.raises(SpecError) as caught:
        read_documents(head + text)
    return [str(mistake) for mistake in caught.value.mistakes]


@pytest.mark.parametrize(
    ("text", "replicas"),
    [
        ("replicas: 2", {"min": 2, "max": 2}),
        ("replicas: {min: 1, max: 4}", {"min": 1, "max": 4}),
        ("replicas: {max: 4}", {"min": 1, "max": 4}),
        ("replicas: {min: 3}", {"min": 3, "max": 3}),
        ("replicas: {min: 0}", {"min": 0, "max": 1}),
    ],
)
def test_replicas(text, replicas):
    assert role(text)["replicas"] == replicas


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("command: python train.py --x 1", ["python", "train.py", "--x", "1"]),
        ("command: [python, train.py, 1, yes, 0123, 1e3]", ["python", "train.py", "1", "yes", "0123", "1e3"]),
        ("command: 'a \"b c\" d\\ e'", ["a", "b c", "d e"]),
        ("command: echo $HOME `x` a;b *.py #x", ["echo", "$HOME", "`x`", "a;b", "*.py"]),
        ("command: echo '&&'", ["echo", "&&"]),
        ("command: >-\n  python train.py\n  --x 1", ["python", "train.py", "--x", "1"]),
        ("command: |\n  python train.py \\\n    --x 1\n", ["python", "train.py", "--x", "1"]),
        ("command: |\n  python -c 'a\n  b'\n", ["python", "-c", "a\nb"]),
        ("command: 7", ["7"]),
        ("command: --data {{data.d}}\ndata: {d: x}", ["--data", "{{data.d}}"]),
    ],
)
def test_commands_are_split_without_a_shell(text, command):
    assert canonical(text)["roles"]["worker"]["command"] == command


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("command: python 'x", "a quote that is not closed"),
        ('command: python "x', "a quote that is not closed"),
        ("command: python x\\", "ends in a backslash"),
        ("command: cd x && python y", "`&&`, which only a shell interprets; use `script:`"),
        ("command: python x > log", "`>`, which only a shell"),
        ("command: python x | tee log", "`|`, which only a shell"),
        ("command: |\n  cd x\n  python y\n", "has several lines"),
        ("command: {a: b}", "is a mapping, not a list"),
        ("command: [[a]]", "is a list, not text"),
        ("command: []", "has nothing to run"),
        ("command: ''", "has nothing to run"),
        ("script: ''", "has nothing to run"),
        ("script: x\ncommand: y", "both a command and a script"),
    ],
)
def test_commands_that_make_no_sense(text, words):
    (mistake,) = mistakes(text)
    assert words in mistake


def test_joined_commands_have_quotes_only_where_needed():
    words = ("python", "a b", "{{index}}", "&&", "", "it's", "--x=$HOME", "#")
    text = flat_spelling.join_command(words)
    assert text == """python 'a b' {{index}} '&&' '' 'it'"'"'s' --x=$HOME #"""
    assert read_data({"kind": "TrainingJob", "name": "x", "command": text}).spec.roles["worker"].command == words


@pytest.mark.parametrize(
    ("text", "resources"),
    [
        ("{cpu: 1, memory: 1073741824, gpu: 0.5}", {"cpu": "1", "memory": "1073741824", "gpu": "0.5"}),
        ("{cpu: 500m, gpu: H100:8}", {"cpu": "500m", "gpu": "8", "gpuType": ["H100"]}),
        ("{gpu: 1, gpu_type: A100}", {"gpu": "1", "gpuType": ["A100"]}),
        ("{gpu: 1, gpu_type: [A100, H100]}", {"gpu": "1", "gpuType": ["A100", "H100"]}),
        ("{rdma/hca: 1, tpu: 4, other: {npu: 2}}", {"other": {"npu": 2, "rdma/hca": 1, "tpu": 4}}),
        ("{other: {cpu: 2, gpus: 1}}", {"other": {"cpu": 2, "gpus": 1}}),
        ("{shm: auto, gpu: }", None),
    ],
)
def test_resources(text, resources):
    assert role(f"resources: {text}").get("resources") == resources


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{gpu: H100}", "write for example 1, 0.5 or H100:8"),
        ("{gpu: 'H100:'}", "is not a number of GPUs"),
        ("{gpu: 'H100:1.2.3'}", "is not a number of GPUs"),
        ("{gpu: H100:2, gpu_type: A100}", "names a type, and so does `gpu_type`"),
        ("{gpu: 1.5}", "is more than one GPU and not a whole number; write 1 or 2"),
        ("{gpu: [1]}", "is a list, not text"),
        ("{gpus: 1}", "did you mean `gpu`?"),
        ("{mem: 1Gi}", "did you mean `memory`?"),
        ("{gpuType: A100}", "did you mean `gpu_type`?"),
        ("{tpu: many}", 'resources.tpu: "many" is text, not a whole number'),
        ("{tpu: -1}", "-1 is less than 0"),
        ("{nvidia.com/gpu: 1}", "write `gpu`"),
        ("{memory: 5 potatoes}", "is not an amount of memory"),
        ("4", "is a number, not a mapping"),
    ],
)
def test_resources_that_make_no_sense(text, words):
    (mistake,) = mistakes(f"command: run\nresources: {text}")
    assert words in mistake


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("code: .", "code", {"path": "."}),
        ("code: ~", "code", {"path": "~"}),
        ("code: {git: URL, ref: 1.10}", "code", {"git": {"url": "URL", "ref": "1.10"}}),
        ("code: {git: {url: URL}}", "code", {"git": {"url": "URL"}}),
        ("code: {git: , path: }", "code", None),
        ("code: {path: ., in_place: yes}", "code", {"path": ".", "inPlace": True}),
        ("code: {path: ., in_place: off}", "code", {"path": "."}),
        ("environment: .venv", "environment", {"python": ".venv"}),
        ("environment: {requirements: r.txt}", "environment", {"requirements": "r.txt"}),
        ("restart: 5", "restart", {"max": 5}),
        ("restart: {max: 5, scope: task}", "restart", {"max": 5, "scope": "task"}),
        ("checkpoint: 10m", "checkpoint", {"every": "10m"}),
        ("checkpoint: 600", "checkpoint", {"every": "600"}),
        ("tensorboard: runs", "tensorboard", {"dir": "runs"}),
        ("secrets: HF_TOKEN", "secrets", ["HF_TOKEN"]),
        ("secrets: [A, B]", "secrets", ["A", "B"]),
        ("timeout: 90", "timeout", "90"),
        (
            "env: {A: yes, B: 1, C: 0123, D: 1e3, E: , F: ~, G: null, H: 1_0}",
            "env",
            {"A": "yes", "B": "1", "C": "0123", "D": "1e3", "E": "", "F": "~", "G": "null", "H": "1_0"},
        ),
        ("env:\n  NO: 1\n  y: 2", "env", {"NO": "1", "y": "2"}),
        ("env:", "env", None),
        ("stop:\n  when: a > 1\n  at_step: 5", "stop", {"when": "a > 1", "atStep": 5}),
        (
            "kubernetes: {pod: {hostNetwork: true, n: 1, t: 'yes', u: yes}}",
            "kubernetes",
            {"pod": {"hostNetwork": True, "n": 1, "t": "yes", "u": "yes"}},
        ),
    ],
)
def test_other_short_forms(text, name, value):
    assert canonical(f"command: run\n{text}").get(name) == value


def test_processes():
    assert "processes" not in role("processes: auto")
    assert role("processes: 4")["processes"] == 4
    assert "write auto, or a whole number" in mistakes("command: run\nprocesses: atuo")[0]


def test_top_level_fields_are_the_one_worker():
    spec = canonical("command: run\nreplicas: 2\nlimits: {memory: 1Gi}\nenv: {A: b}\nplacement: {nodes: a}")
    assert spec == {
        "env": {"A": "b"},
        "roles": {
            "worker": {
                "replicas": {"min": 2, "max": 2},
                "command": ["run"],
                "limits": {"memory": "1Gi"},
                "placement": {"nodes": ["a"]},
            }
        },
    }


def test_top_level_fields_beside_roles_are_refused():
    found = mistakes("command: run\nreplicas: 2\nroles: {ps: {command: run}}")
    assert [mistake.partition(";")[2] for mistake in found] == [
        " move it into a role, as `roles.ps.command`",
        " move it into a role, as `roles.ps.replicas`",
    ]


def test_metadata_at_the_top():
    (job,) = read_documents("kind: TrainingJob\nname: yes\nnamespace: on\nlabels: {a: 1}\nannotations: {b: true}\ncommand: run")
    assert job.metadata.model_dump() == {"name": "yes", "namespace": "on", "labels": {"a": "1"}, "annotations": {"b": "true"}}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("code: {ref: main}", "code.ref: needs a repository"),
        ("code: {git: {url: a}, ref: main}", "code.ref: is set together with a `git`"),
        ("code: {git: a, path: b}", "code: has a path and a git source"),
        ("code: https://host/x.git", "write `code: {git: URL}`"),
        ("restart: often", 'restart: "often" is text, not a whole number'),
        ("checkpoint: often", 'checkpoint: "often" is not a duration'),
        ("environment: [a]", "environment: is a list, not a mapping"),
        ("replicas: {min: 3, max: 2}", "replicas: min 3 is more than max 2"),
        ("replicas: 0", "replicas: 0 is less than 1"),
        ("replicas: -1", "replicas: -1 is less than 1"),
        ("replicas: 1.5", "replicas: 1.5 is a number, not a whole number"),
        ("replicas: 20000", "replicas: 20000 is more than 10000"),
    ],
)
def test_short_forms_that_make_no_sense(text, words):
    (mistake,) = mistakes(f"command: run\n{text}")
    assert words in mistake


def test_written_short():
    text = (
        "kind: TrainingJob\nname: x\ncode: .\nenvironment: .venv\nreplicas: 2\ncommand: python train.py\n"
        "resources: {cpu: 1, memory: 2Gi, gpu: 'H100:8', rdma/hca: 1}\nrestart: 5\ncheckpoint: 10m\ntensorboard: runs\n"
    )
    (job,) = read_documents(text)
    assert flat_data(job) == {
        "kind": "TrainingJob",
        "name": "x",
        "code": ".",
        "environment": ".venv",
        "replicas": 2,
        "command": "python train.py",
        "resources": {"cpu": 1, "memory": "2Gi", "gpu": "H100:8", "rdma/hca": 1},
        "restart": 5,
        "checkpoint": "10m",
        "tensorboard": "runs",
    }


def test_variables_of_the_worker_itself_keep_it_a_role():
    (job,) = read_documents("kind: TrainingJob\nname: x\nroles: {worker: {command: run, env: {A: b}}}")
    assert flat_data(job)["roles"] == {"worker": {"command": "run", "env": {"A": "b"}}}
