"""Text to document to text to document, in both spellings, loses nothing."""

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fairway.spec.document import read_data, read_documents, render
from fairway.spec.writer import flat_data, kubernetes_data


@pytest.mark.parametrize("spelling", ["flat", "kubernetes"])
@given(data=st.data())
def test_text_of_a_document_reads_as_the_same_document(jobs, spelling, data):
    job = data.draw(jobs)
    text = render(job, spelling)
    assert read_documents(text) == [job]
    assert render(read_documents(text)[0], spelling) == text


@given(data=st.data())
def test_the_spellings_lead_to_each_other(jobs, data):
    job = data.draw(jobs)
    there = read_documents(render(job, "flat"))[0]
    back = read_documents(render(there, "kubernetes"))[0]
    assert back == job


@given(data=st.data())
def test_plain_data_and_json_work_like_yaml(jobs, data):
    job = data.draw(jobs)
    for made in (flat_data(job), kubernetes_data(job)):
        assert read_data(made) == job
        assert read_documents(json.dumps(made)) == [job]


@given(data=st.data())
def test_other_readers_of_yaml_see_the_same_data(jobs, data):
    """What kubectl and editors read is what we wrote: no text of ours turns into a number or a yes for them."""
    job = data.draw(jobs)
    assert yaml.safe_load(render(job, "kubernetes")) == kubernetes_data(job)


def test_several_documents_follow_each_other(jobs):
    text = "---\n".join(f"kind: TrainingJob\nname: {name}\ncommand: run\n" for name in ("a", "b"))
    assert [job.metadata.name for job in read_documents(text + "---\n")] == ["a", "b"]
