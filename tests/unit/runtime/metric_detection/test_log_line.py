"""Metrics in printed lines: what is recognized, and above all what is not."""

from __future__ import annotations

import math
import time

import pytest

from fairway.runtime.metric_detection.log_line import Found, MetricLineReader, key_of


def read(*lines: str) -> list[Found]:
    reader = MetricLineReader()
    found = [point for line in lines for point in reader.read(line.encode())]
    return found + reader.flush()


@pytest.mark.parametrize(
    ("line", "step", "metrics"),
    [
        # Hugging Face Trainer, version 4 and version 5.
        (
            "{'loss': 0.5, 'grad_norm': 1.25, 'learning_rate': 5e-05, 'epoch': 0.1}",
            None,
            {"loss": 0.5, "grad_norm": 1.25, "learning_rate": 5e-05},
        ),
        ("{'loss': '0.693', 'learning_rate': '5e-05', 'epoch': '1'}", None, {"loss": 0.693, "learning_rate": 5e-05}),
        (
            "{'eval_loss': 0.4, 'eval_accuracy': 0.9, 'eval_runtime': 1.5, 'epoch': 1.0}",
            None,
            {"eval_loss": 0.4, "eval_accuracy": 0.9},
        ),
        # Keras 3 and 2, with and without a progress bar.
        (
            "\x1b[1m3/10\x1b[0m \x1b[32m━━━\x1b[0m\x1b[37m━━━━\x1b[0m \x1b[1m1s\x1b[0m 12ms/step - accuracy: 0.91 - loss: 0.32",
            3,
            {"accuracy": 0.91, "loss": 0.32},
        ),
        ("\b\b\b\b 3/10 [=======>......] - ETA: 0s - loss: 0.32 - accuracy: 0.91", 3, {"accuracy": 0.91, "loss": 0.32}),
        (
            "10/10 - 1s - 12ms/step - accuracy: 0.91 - loss: 0.32 - val_accuracy: 0.8 - val_loss: 0.5",
            10,
            {"accuracy": 0.91, "loss": 0.32, "val_accuracy": 0.8, "val_loss": 0.5},
        ),
        # pytorch/examples: MNIST and ImageNet.
        ("Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.300000", 640, {"loss": 2.3}),
        ("Test set: Average loss: 0.0264, Accuracy: 9911/10000 (99%)", None, {"test_loss": 0.0264, "test_accuracy": 0.9911}),
        (
            "Epoch: [0][  10/5005]\tTime  0.5 ( 0.7)\tLoss 6.9e+00 (7.0e+00)\tAcc@1   1.50 (  0.50)\tAcc@5 2.00 (1.00)",
            10,
            {"loss": 6.9, "acc@1": 1.5, "acc@5": 2.0},
        ),
        # Hand-written training loops.
        ("step 100 loss=0.53 acc=0.91", 100, {"loss": 0.53, "acc": 0.91}),
        ("loss: 0.53 | acc 0.91", None, {"loss": 0.53, "acc": 0.91}),
        ("Epoch [2/5], Step [100/600], Loss: 0.3104", 700, {"loss": 0.3104}),
        ("iter 250: loss 2.4671, time 34.82ms, mfu 5.2%", 250, {"loss": 2.4671}),
        ("step 500: train loss 1.5269, val loss 1.7332", 500, {"loss": 1.5269, "val_loss": 1.7332}),
        ("2026-11-18 08:03:44,120 INFO epoch 3 val_loss=0.25 f1: 0.81 auc 0.93", 3, {"val_loss": 0.25, "f1": 0.81, "auc": 0.93}),
        ('{"step": 10, "loss": 0.5, "policy_loss": 1.5}', 10, {"loss": 0.5, "policy_loss": 1.5}),
        ("loss: tensor(0.5312, grad_fn=<NllLossBackward0>)", None, {"loss": 0.5312}),
        ("{'loss': np.float64(0.25)}", None, {"loss": 0.25}),
        ("Accuracy: 91%", None, {"accuracy": 91.0}),
        ("Test accuracy 97.5 %", None, {"test_accuracy": 97.5}),
        ("val/loss: 0.5 train/acc: 0.25", None, {"val/loss": 0.5, "train/acc": 0.25}),
        ("Epoch 1:  10%|█         | 50/500 [00:10<01:30,  5.0it/s, loss=0.53, acc=0.9]", 50, {"loss": 0.53, "acc": 0.9}),
        (
            "Epoch 0: 100%|██████████| 32/32 [00:00<00:00, 99.1it/s, v_num=0, train_loss_step=0.5]",
            32,
            {"train_loss_step": 0.5},
        ),
        ("lr 0.001 loss 0.5", None, {"lr": 0.001, "loss": 0.5}),
        # XGBoost.
        ("[7]\ttrain-rmse:0.51234\teval-logloss:0.49000", 7, {"train-rmse": 0.51234, "eval-logloss": 0.49}),
        ("[09:14:01] [4]\ttrain-rmse:0.38031", 4, {"train-rmse": 0.38031}),
        ("[7]\ttrain-rmse:0.51234+0.01\teval-rmse:0.49000+0.02", 7, {"train-rmse": 0.51234, "eval-rmse": 0.49}),
    ],
)
def test_metrics_of_a_line(line: str, step: int | None, metrics: dict[str, float]) -> None:
    assert read(line) == [(step, metrics)]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "loss",
        "loss: ",
        "loss: low",
        "torch 2.9.1, accuracy-tools 1.2.3",
        "loss 1.2.3",
        "loss: 1.2.3-rc1",
        "precision: 08:03:44",
        "recall 2020",
        "acc 12 files",
        "f1 10",
        "Namespace(lr=0.001, batch_size=64, epochs=10)",
        "learning_rate: 5e-05",
        "usage: train.py [--loss 0.5] --accuracy 0.9",
        "/data/loss=0.5/part-0",
        "reading checkpoint loss-0.53.ckpt",
        "model_loss.0.weight 1.5",
        "losing: 0.5",
        "accessed: 5",
        "glossary: 3.5",
        "accuracy: 0x1f",
        "accuracy: 12abc",
        "loss: 2026-11-18",
        "accuracy: 12000/10000",
        "accuracy: nan",
        "loss nan",
        "the loss of 0.5 was expected",
        "Epoch 2/10",
        "3/10 files read",
        '  File "train.py", line 3, in loss',
    ],
)
def test_other_text_is_no_metric(line: str) -> None:
    assert read(line) == []


def test_a_loss_that_broke_is_shown() -> None:
    ((_, found),) = read("step 3 loss: nan")
    assert math.isnan(found["loss"])
    assert read("grad_norm=inf loss=-inf") == [(None, {"grad_norm": math.inf, "loss": -math.inf})]


def test_steps_go_on_over_epochs_and_validation_stands_at_the_last_one() -> None:
    found = read(
        "Train Epoch: 1 [640/1000 (64%)]\tLoss: 2.0",
        "Test set: Average loss: 1.5, Accuracy: 5/10 (50%)",
        "Train Epoch: 2 [640/1000 (64%)]\tLoss: 1.0",
        "epoch 2 val_loss=0.5",
    )
    assert [step for step, _ in found] == [640, 640, 1640, 1640]


def test_epochs_from_zero_are_counted_from_zero() -> None:
    assert [step for step, _ in read("epoch 0 batch 5/10 loss=1", "epoch 1 batch 5/10 loss=1")] == [5, 15]


def test_keras_says_the_epoch_in_a_line_of_its_own() -> None:
    found = read(
        "Epoch 1/2",
        "10/10 ━━━━━━━━━━━━━━━━━━━━ 1s 12ms/step - loss: 0.5",
        "Epoch 2/2",
        "10/10 ━━━━━━━━━━━━━━━━━━━━ 1s 12ms/step - loss: 0.25 - val_loss: 0.3",
    )
    assert found == [(10, {"loss": 0.5}), (20, {"loss": 0.25, "val_loss": 0.3})]


def test_batches_without_their_number_give_no_step() -> None:
    assert read("epoch 1 batch 20 loss=0.5") == [(None, {"loss": 0.5})]


def test_hugging_face_draws_the_step_behind_its_metrics() -> None:
    found = read(
        "  4%|▍         | 9/250 [00:01<00:30,  8.00it/s]",
        "                                        ",
        "{'loss': 0.5, 'epoch': 0.1}",
        "",
        "   \x1b[A  ",
        "  4%|▍         | 10/250 [00:01<00:30,  8.00it/s]",
        "{'eval_loss': 0.25, 'eval_accuracy': 0.75, 'epoch': 0.1}",
        "100%|██████████| 7/7 [00:00<00:00, 70.00it/s]",
        "{'loss': 0.4, 'epoch': 0.2}",
        "  8%|▊         | 20/250 [00:02<00:30,  8.00it/s]",
    )
    assert found == [(10, {"loss": 0.5}), (10, {"eval_loss": 0.25, "eval_accuracy": 0.75}), (20, {"loss": 0.4})]


def test_metrics_whose_bar_never_comes_are_not_lost() -> None:
    reader = MetricLineReader()
    assert reader.read(b"  4%|#   | 9/250 [00:01<00:30,  8.00it/s]") == []
    assert reader.read(b"{'loss': 0.5, 'epoch': 0.1}") == []
    assert reader.flush() == [(None, {"loss": 0.5})]
    assert reader.flush() == []
    reader.read(b"{'loss': 0.25, 'epoch': 0.2}")
    assert reader.flush("  8%|▊         | 20/250 [00:02<00:30,".encode()) == [(20, {"loss": 0.25})]


def test_names_of_one_metric_have_one_key() -> None:
    assert key_of("train/loss") == key_of("train_loss") == key_of("Loss") == "loss"
    assert key_of("eval/loss") == key_of("eval_loss") != key_of("loss")


@pytest.mark.parametrize(
    "text", ["loss=" * 2000, "a_" * 5000, "loss" * 3000, " " * 9000, "[" * 5000, "1/" * 5000, "train " * 2000, "epoch: [" * 1000]
)
def test_an_unlucky_line_costs_little(text: str) -> None:
    reader = MetricLineReader()
    began = time.process_time()
    for _ in range(20):
        reader.read(text.encode() + b" loss")
    assert time.process_time() - began < 1.0
