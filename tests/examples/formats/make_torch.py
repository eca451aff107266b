"""Small models of PyTorch and transformers with random weights, each with inputs and the predictions of the framework itself."""

import numpy as np
import torch
import transformers
from kept import OUT, keep, made, spec
from tokenizers import Tokenizer, models, pre_tokenizers

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "the",
    "sea",
    "is",
    "blue",
    "ship",
    "sails",
    "to",
    "a",
    "far",
    "away",
    "land",
    "x1",
    "no",
    "yes",
]
TEXTS = ["the sea is blue", "a ship sails", "far away", "the land", "no", "yes the ship is far away", "x1", "to the sea"]


def tokenizer():
    found = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="[UNK]"))
    found.pre_tokenizer = pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=found, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]", model_max_length=64
    )


def saved(name, model):
    folder = OUT / name
    model.eval().save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return model


def bert(kind, **more):
    config = transformers.BertConfig(
        vocab_size=len(WORDS),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        initializer_range=0.5,
        **more,
    )
    return kind(config)


def texts():
    labels = ("sad", "so", "glad")
    model = saved(
        "hf-text-classification", bert(transformers.BertForSequenceClassification, num_labels=3, id2label=dict(enumerate(labels)))
    )
    pipe = transformers.pipeline("text-classification", model=model, tokenizer=tokenizer(), top_k=None)

    def classified(inputs):
        found = [{each["label"]: each["score"] for each in row} for row in pipe(inputs["text"])]
        best = [max(row, key=row.get) for row in found]
        return {
            "label": best,
            "score": np.array([row[label] for row, label in zip(found, best, strict=True)], "f4"),
            "scores": np.array([[row[label] for label in labels] for row in found], "f4"),
        }

    keep("hf-text-classification", {"text": TEXTS}, classified)
    encoder = saved("hf-embeddings", bert(transformers.BertModel))

    def embedded(inputs):
        tokens = tokenizer()(inputs["text"], padding=True, return_tensors="pt")
        hidden = encoder(**tokens).last_hidden_state
        mask = tokens["attention_mask"][..., None].float()
        return {"embedding": ((hidden * mask).sum(1) / mask.sum(1)).detach().numpy()}

    keep("hf-embeddings", {"text": TEXTS}, embedded)


def generation():
    config = transformers.GPT2Config(
        vocab_size=len(WORDS),
        n_embd=16,
        n_layer=2,
        n_head=2,
        n_positions=64,
        bos_token_id=2,
        eos_token_id=3,
        initializer_range=0.5,
    )
    model = saved("hf-generation", transformers.GPT2LMHeadModel(config))

    def continued(inputs):
        answers = []
        for text in inputs["prompt"]:
            tokens = tokenizer()(text, return_tensors="pt")
            given = model.generate(input_ids=tokens["input_ids"], max_new_tokens=12, do_sample=False, pad_token_id=0)
            answers.append(tokenizer().decode(given[0, tokens["input_ids"].shape[1] :], skip_special_tokens=True))
        return {"text": answers}

    keep("hf-generation", {"prompt": TEXTS}, continued, max_tokens=12)


class Net(torch.nn.Module):
    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.layer = torch.nn.Linear(4, 3, dtype=dtype)

    def forward(self, x):
        return torch.softmax(self.layer(x), -1)


class Mixing(torch.nn.Module):
    """Rows depend on each other."""

    def forward(self, x):
        return x - x.mean(0, keepdim=True)


class Wide(torch.nn.Module):
    """Rows of variable length."""

    def forward(self, x, y):
        return (x * 2).cumsum(1), y.sum(1)


def plain(output):
    several = output if isinstance(output, tuple) else (output,)
    return {
        f"output_{place}": (each.float() if each.dtype == torch.bfloat16 else each).detach().numpy()
        for place, each in enumerate(several)
    }


def script(name, net, inputs, specs):
    folder = made(name, format="torchscript", signature={"inputs": specs})
    torch.jit.save(torch.jit.script(net.eval()), folder / "model.pt")
    keep(name, inputs, lambda given: plain(net(*map(torch.from_numpy, given.values()))))


def scripts():
    generator = np.random.default_rng(0)
    x = generator.standard_normal((8, 4))
    script("ts-fp32", Net(), {"x": x.astype("f4")}, [spec("x", "FP32", [-1, 4])])
    script("ts-fp64", Net(torch.float64), {"x": x}, [spec("x", "FP64", [-1, 4])])
    script("ts-mixing", Mixing(), {"x": x.astype("f4")}, [spec("x", "FP32", [-1, 4])])
    several = {"x": generator.integers(0, 100, (8, 5)), "y": x[:, :2].astype("f4")}
    script("ts-dynamic", Wide(), several, [spec("x", "INT64", [-1, -1]), spec("y", "FP32", [-1, 2])])


def exported():
    x = torch.from_numpy(np.random.default_rng(1).standard_normal((8, 4)).astype("f4"))
    for name, dtype in (("pt2-fp32", torch.float32), ("pt2-bf16", torch.bfloat16), ("pt2-fp16", torch.float16)):
        net = Net(dtype).eval()
        shapes = ({0: torch.export.Dim("batch")},)
        torch.export.save(torch.export.export(net, (x.to(dtype),), dynamic_shapes=shapes), made(name) / "model.pt2")
        given = x.to(dtype).float().numpy() if dtype == torch.bfloat16 else x.to(dtype).numpy()
        keep(name, {"x": given}, lambda inputs, net=net, dtype=dtype: plain(net(torch.from_numpy(inputs["x"]).to(dtype))))


torch.manual_seed(0)
torch.set_num_threads(1)
for make in (texts, generation, scripts, exported):
    make()
