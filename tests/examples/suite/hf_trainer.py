"""Hugging Face's Trainer on a model of two numbers."""

import torch
from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainingArguments, set_seed

set_seed(7)


class Config(PretrainedConfig):
    """No settings."""

    model_type = "line"


class Line(PreTrainedModel):
    """One slope and one offset."""

    config_class = Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.line = torch.nn.Linear(1, 1)
        self.post_init()

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the loss and the prediction."""
        found = self.line(x)
        return {"loss": torch.nn.functional.mse_loss(found, labels), "logits": found}


data = [{"x": torch.tensor([place / 64]), "labels": torch.tensor([3 * place / 64 + 0.5])} for place in range(64)]
arguments = TrainingArguments(
    output_dir="out", per_device_train_batch_size=8, num_train_epochs=2, learning_rate=0.1, logging_steps=2, use_cpu=True,
    report_to="none", save_strategy="no", ddp_backend="gloo",
)  # fmt: skip
trainer = Trainer(model=Line(Config()), args=arguments, train_dataset=data)
trainer.train()
weights = [round(float(value), 4) for value in trainer.model.parameters()]
print(f"rank {arguments.process_index} of {arguments.world_size} has {weights}", flush=True)
