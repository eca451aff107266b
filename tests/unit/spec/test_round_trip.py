"""Text to document to text to document, in both spellings, loses nothing."""

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fairway.spec.text.document import read_data, read_documents, render
from fairway.spec.text.writer import flat_data, kubernetes_data


@pytest.mark.parametrize("spelling", ["flat", "kubernetes"])
@given(data=st.data())
def test_text_of_a_document_reads_as_the_same_document(documents, spelling, data):
    document = data.draw(documents)
    text = render(document, spelling)
    assert read_documents(text) == [document]
    assert render(read_documents(text)[0], spelling) == text


@given(data=st.data())
def test_the_spellings_lead_to_each_other(documents, data):
    document = data.draw(documents)
    there = read_documents(render(document, "flat"))[0]
    back = read_documents(render(there, "kubernetes"))[0]
    assert back == document


@given(data=st.data())
def test_plain_data_and_json_work_like_yaml(documents, data):
    document = data.draw(documents)
    for made in (flat_data(document), kubernetes_data(document)):
        assert read_data(made) == document
        assert read_documents(json.dumps(made)) == [document]


@given(data=st.data())
def test_other_readers_of_yaml_see_the_same_data(documents, data):
    """Editors and kubectl read what we wrote: no text of ours becomes a number or a boolean for them."""
    document = data.draw(documents)
    assert yaml.safe_load(render(document, "kubernetes")) == kubernetes_data(document)


def test_several_documents_follow_each_other():
    text = "---\n".join(f"kind: TrainingJob\nname: {name}\ncommand: run\n" for name in ("a", "b"))
    assert [job.metadata.name for job in read_documents(text + "---\n")] == ["a", "b"]


def test_a_priority_that_was_said_is_not_lost():
    """An explicit priority of 0 is not the queue's default."""
    for text in ("priority: 0", "priority: 3"):
        (job,) = read_documents(f"kind: TrainingJob\nname: a\ncommand: run\n{text}\n")
        for spelling in ("flat", "kubernetes"):
            assert text in render(job, spelling)
            assert "priority" in read_documents(render(job, spelling))[0].spec.model_fields_set
    (silent,) = read_documents("kind: TrainingJob\nname: a\ncommand: run\n")
    assert "priority" not in render(silent, "flat") + render(silent, "kubernetes")
