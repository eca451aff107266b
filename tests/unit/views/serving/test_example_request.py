"""Example requests generated from a model's inputs."""

import json
import subprocess

import pytest

from fairway.state.model import ModelSignature, ModelVersion, TensorSpec
from fairway.views.serving.example_request import curl_line, example_request


def a_version(*inputs: TensorSpec) -> ModelVersion:
    return ModelVersion("mnist", 3, "0" * 64, "onnx", 1, 10, 0.0, ModelSignature(inputs))


def test_one_row_of_zeros_of_the_right_shape() -> None:
    request = example_request(a_version(TensorSpec("x", "FP32", (-1, 2, 3)), TensorSpec("ids", "INT64", (-1,))))
    assert request is not None
    assert request.path == "/v2/models/mnist/infer"
    first, second = json.loads(request.body)["inputs"]
    assert first == {"name": "x", "datatype": "FP32", "shape": [1, 2, 3], "data": [0.0] * 6}
    assert second == {"name": "ids", "datatype": "INT64", "shape": [1], "data": [0]}
    assert curl_line("http://h:1", request) == f"curl -s http://h:1/v2/models/mnist/infer -d '{request.body}'"


@pytest.mark.parametrize("name", ["x", 'it\'s; "$(touch /tmp/never)" {é}'])
def test_a_large_row_is_written_by_a_program_in_the_line(name: str) -> None:
    request = example_request(a_version(TensorSpec(name, "FP32", (-1, 1, 28, 28))))
    line = curl_line("http://h:1", request)
    assert len(line) < 350
    program, _, rest = line.rpartition(" | ")
    assert rest == "curl -s http://h:1/v2/models/mnist/infer -d @-"
    made = subprocess.run(["bash", "-c", program], capture_output=True, check=True, text=True).stdout
    assert json.loads(made) == json.loads(request.body if request else "")


def test_without_a_signature_there_is_nothing_to_show() -> None:
    assert example_request(a_version()) is None
    assert curl_line("http://h:1", None) == "curl -s http://h:1/"
