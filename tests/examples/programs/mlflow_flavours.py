"""Logs and registers a small model of each flavour named, and saves the predictions of MLflow itself.

MLflow is not installed in the environments of the frameworks: the packages of its own environment come last on the path.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.append(os.environ["MLFLOW_PACKAGES"])

import numpy as np

ROWS = np.random.default_rng(7).normal(size=(200, 4)).astype("float32")
LABELS = (ROWS[:, 0] + ROWS[:, 1] > 0).astype("int64")
ASKED = ROWS[:5]


def sklearn(log: Callable[..., None]) -> None:
    import mlflow.sklearn
    from sklearn.linear_model import LogisticRegression

    log(mlflow.sklearn, LogisticRegression().fit(ROWS, LABELS))


def xgboost(log: Callable[..., None]) -> None:
    import mlflow.xgboost
    from xgboost import XGBRegressor

    log(mlflow.xgboost, XGBRegressor(n_estimators=5).fit(ROWS, ROWS[:, 2]))


def lightgbm(log: Callable[..., None]) -> None:
    import lightgbm
    import mlflow.lightgbm

    trained = lightgbm.train({"objective": "regression", "verbose": -1}, lightgbm.Dataset(ROWS, ROWS[:, 2]), 5)
    log(mlflow.lightgbm, trained)


def catboost(log: Callable[..., None]) -> None:
    import mlflow.catboost
    from catboost import CatBoostRegressor

    log(mlflow.catboost, CatBoostRegressor(iterations=5, verbose=0, allow_writing_files=False).fit(ROWS, ROWS[:, 2]))


def onnx(log: Callable[..., None]) -> None:
    import mlflow.onnx
    from onnx import TensorProto, helper, numpy_helper

    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, size]) for name, size in (("x", 4), ("y", 2))]
    weights = numpy_helper.from_array(np.arange(8, dtype="float32").reshape(4, 2), "w")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "net", ends[:1], ends[1:], [weights])
    log(mlflow.onnx, helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))


def pytorch(log: Callable[..., None]) -> None:
    import mlflow.pytorch
    import torch

    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).eval()
    log(mlflow.pytorch, net, export_model=True, input_example=ASKED)


def keras(log: Callable[..., None]) -> None:
    import keras
    import mlflow.tensorflow

    keras.utils.set_random_seed(1)
    net = keras.Sequential([keras.Input((4,), name="x"), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(2)])
    log(mlflow.tensorflow, net)


def transformers(log: Callable[..., None]) -> None:
    import mlflow.transformers
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast, pipeline

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "bad", "film", "a"]
    plain = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="[UNK]"))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, unk_token="[UNK]", pad_token="[PAD]", model_max_length=16)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    net = BertForSequenceClassification(BertConfig(vocab_size=len(words), max_position_embeddings=16, **sizes))
    asked = ["a good film", "a bad film"]
    log(
        mlflow.transformers,
        pipeline("text-classification", net, tokenizer=tokenizer),
        asked,
        pip_requirements=["transformers", "torch"],
    )


def main() -> None:
    """Log the flavours that are named."""
    import mlflow
    from mlflow.models import infer_signature

    out = Path(sys.argv[1])
    for flavour in sys.argv[2:]:

        def log(module: Any, model: Any, asked: Any = ASKED, **more: Any) -> None:
            name = f"{flavour}-net"  # noqa: B023 - called within this turn of the loop.
            signature = infer_signature(asked, np.zeros((2, 2), "float32")) if module.__name__.endswith("tensorflow") else None
            with mlflow.start_run(nested=True):
                module.log_model(
                    model, name="model", registered_model_name=name, **({"signature": signature} if signature else {}), **more
                )
            told = mlflow.pyfunc.load_model(f"models:/{name}/1").predict(asked)
            told = next(iter(told.values())) if isinstance(told, dict) else told
            plain = told.to_dict("list") if hasattr(told, "to_dict") else np.asarray(told).tolist()
            asked = asked if isinstance(asked, list) else asked.tolist()
            (out / f"{flavour}.json").write_text(json.dumps({"asked": asked, "told": plain}))  # noqa: B023

        globals()[flavour](log)


if __name__ == "__main__":
    main()
