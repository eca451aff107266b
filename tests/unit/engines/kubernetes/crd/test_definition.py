"""The definitions as data. Other tests apply them to a real API server and test their rules."""

from pathlib import Path

import pytest
import yaml

from fairway.engines.kubernetes.client import api_resource
from fairway.engines.kubernetes.crd.definition import CLUSTER_FIELDS, definition, definitions
from fairway.spec.kind import KINDS

GOLDEN = Path(__file__).with_name("crds.yaml")
"""The definitions that API servers have been given so far."""
NAMES = ["TrainingJob", "JobQueue", "ModelService", "GpuNode"]


def version(kind):
    (found,) = definition(kind)["spec"]["versions"]
    return found


def test_they_are_as_they_were():
    """The API is frozen: check every difference, then delete the file and run this once."""
    now = yaml.safe_dump_all(definitions(), sort_keys=False, width=130, allow_unicode=True)
    if not GOLDEN.exists():
        GOLDEN.write_text(now)
        pytest.fail(f"{GOLDEN.name} was not there; it is written now, look at it and commit it")
    assert now == GOLDEN.read_text()


@pytest.mark.parametrize("kind", NAMES)
def test_the_client_knows_where_they_live(kind):
    made = definition(kind)["spec"]
    resource = api_resource.BY_KIND[f"{made['group']}/{made['versions'][0]['name']}", kind]
    assert (resource.plural, resource.namespaced) == (made["names"]["plural"], made["scope"] == "Namespaced")
    assert definition(kind)["metadata"]["name"] == f"{resource.plural}.{resource.group}"


def test_every_document_has_one():
    assert set(KINDS) < {definition["spec"]["names"]["kind"] for definition in definitions()} == set(NAMES)


def test_scale_writes_a_field_that_is_always_there():
    for kind, field in (("TrainingJob", "size"), ("ModelService", "floor")):
        assert version(kind)["subresources"]["scale"]["specReplicasPath"] == f".spec.{field}"
        schema = version(kind)["schema"]["openAPIV3Schema"]["properties"]
        assert schema["spec"]["properties"][field]["default"] == 0
        assert field in CLUSTER_FIELDS[kind]
        assert {"replicas", "selector"} <= set(schema["status"]["properties"])


@pytest.mark.parametrize("kind", KINDS)
def test_fields_of_a_cluster_alone_are_no_fields_of_the_document(kind):
    spec = version(kind)["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    model = KINDS[kind].model_fields["spec"].annotation
    known = {info.alias or name for name, info in model.model_fields.items()}
    assert set(spec) - known == set(CLUSTER_FIELDS.get(kind, ()))


@pytest.mark.parametrize("kind", NAMES)
def test_columns_show_fields_that_exist(kind):
    made = version(kind)
    schema = made["schema"]["openAPIV3Schema"]
    paths = [column["jsonPath"] for column in made["additionalPrinterColumns"]]
    paths += [one["jsonPath"] for one in made.get("selectableFields", ())]
    for path in paths:
        part = schema
        for name in path.strip(".").split("."):
            if name == "metadata":
                break
            part = part["properties"][name]


def test_conditions_are_merged_by_type():
    for kind in NAMES:
        conditions = version(kind)["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["conditions"]
        assert (conditions["x-kubernetes-list-type"], conditions["x-kubernetes-list-map-keys"]) == ("map", ["type"])
