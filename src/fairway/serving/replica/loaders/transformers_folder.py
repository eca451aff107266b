"""Hugging Face `transformers` folders: classification of texts and images, embeddings, and text generation."""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np


def load(order: Any) -> Any:
    """Load the model according to its first architecture."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["TRANSFORMERS_OFFLINE"] = "1"
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    import torch  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415
    import transformers  # type: ignore[import-untyped,import-not-found,unused-ignore]  # noqa: PLC0415

    torch.set_num_threads(order.threads)
    torch.set_grad_enabled(False)
    folder = TransformersFolder(order, torch, transformers)
    names = folder.config.architectures or [""]
    for ending, kind in _KINDS.items():
        if names[0].endswith(ending):
            return kind(folder)
    return EmbeddingModel(folder)


class TransformersFolder:
    """What all tasks share: configuration, weights, tokenizer, device."""

    def __init__(self, order: Any, torch: Any, transformers: Any) -> None:
        self.order = order
        self.torch = torch
        self.transformers = transformers
        self.path: str = order.entry
        self._how = {"local_files_only": True, "trust_remote_code": order.trusted}
        self.device: str = order.module("torchscript").device(torch, order.device)
        self.config = transformers.AutoConfig.from_pretrained(self.path, **self._how)

    def model(self, kind: str) -> Any:
        """Load the weights with this head, in the data type in which they were saved."""
        options = self._how if self.order.trusted else {**self._how, "use_safetensors": True}
        loaded = getattr(self.transformers, kind).from_pretrained(self.path, dtype="auto", **options)
        if self.device == "cpu" and loaded.dtype == self.torch.float16:
            loaded = loaded.float()
        return loaded.to(self.device).eval()

    def tokenizer(self) -> Any:
        """Load the tokenizer from the folder, or from where MLflow stores it."""
        mlflow_path = os.path.join(self.order.root, "components", "tokenizer")
        is_in_folder = any(name.startswith("tokenizer") or name.startswith("vocab") for name in os.listdir(self.path))
        path = self.path if is_in_folder or not os.path.isdir(mlflow_path) else mlflow_path
        return self.transformers.AutoTokenizer.from_pretrained(path, **self._how)

    def processor(self) -> Any:
        """Load the image processor from the folder, or from where MLflow stores it."""
        mlflow_path = os.path.join(self.order.root, "components", "image_processor")
        is_in_folder = os.path.exists(os.path.join(self.path, "preprocessor_config.json"))
        return self.transformers.AutoImageProcessor.from_pretrained(self.path if is_in_folder else mlflow_path, **self._how)

    def tokens(self, tokenizer: Any, texts: list[str]) -> Any:
        """Tokenize texts as a batch, padded to the longest."""
        longest = min(tokenizer.model_max_length, getattr(self.config, "max_position_embeddings", 1 << 30))
        options = {"truncation": True, "max_length": longest} if longest < 1 << 20 else {}
        batch = tokenizer(texts, padding=True, return_tensors="pt", **options)
        if not bool(batch["attention_mask"].sum(-1).all()):
            raise ValueError("a text has no tokens")
        return batch.to(self.device)

    def groups(self, tokenizer: Any, texts: list[str]) -> list[list[str]]:
        """Return all texts as one batch, or singly if the tokenizer has no padding token."""
        return [texts] if tokenizer.pad_token is not None else [[text] for text in texts]


class _Classifier:
    """Labels with scores, as in the transformers pipelines `text-classification` and `image-classification`."""

    platform = "huggingface_transformers"

    def __init__(self, folder: TransformersFolder) -> None:
        self._torch = folder.torch
        self._config = folder.config
        self.outputs = [
            {"name": "label", "datatype": "BYTES", "shape": [-1]},
            {"name": "score", "datatype": "FP32", "shape": [-1]},
            {"name": "scores", "datatype": "FP32", "shape": [-1, folder.config.num_labels]},
        ]

    def _scored(self, logits: Any) -> list[Any]:
        logits = logits.float()
        is_multi_label = getattr(self._config, "problem_type", None) == "multi_label_classification"
        if self._config.problem_type == "regression":
            scores = logits
        elif is_multi_label or self._config.num_labels == 1:
            scores = logits.sigmoid()
        else:
            scores = logits.softmax(-1)
        best = scores.argmax(-1)
        labels = np.array([self._config.id2label[int(index)].encode() for index in best], dtype=object)
        return [labels, scores.gather(-1, best[:, None])[:, 0].cpu().numpy(), scores.cpu().numpy()]


class TextClassifier(_Classifier):
    """Classifies texts."""

    def __init__(self, folder: TransformersFolder) -> None:
        super().__init__(folder)
        self._folder = folder
        self._model = folder.model("AutoModelForSequenceClassification")
        self._tokenizer = folder.tokenizer()
        self.inputs = [{"name": "text", "datatype": "BYTES", "shape": [-1]}]

    def predict(self, inputs: list[Any]) -> list[Any]:
        """Return labels, their scores, and the scores of all labels."""
        groups = self._folder.groups(self._tokenizer, _texts(inputs[0]))
        logits = [self._model(**self._folder.tokens(self._tokenizer, group)).logits for group in groups]
        return self._scored(self._torch.cat(logits))


class ImageClassifier(_Classifier):
    """Classifies 8-bit RGB images."""

    def __init__(self, folder: TransformersFolder) -> None:
        super().__init__(folder)
        self._device = folder.device
        self._model = folder.model("AutoModelForImageClassification")
        self._processor = folder.processor()
        self.inputs = [{"name": "image", "datatype": "UINT8", "shape": [-1, -1, -1, 3]}]

    def predict(self, inputs: list[Any]) -> list[Any]:
        """Return labels, their scores, and the scores of all labels."""
        prepared = self._processor(images=list(np.array(inputs[0])), return_tensors="pt", input_data_format="channels_last")
        return self._scored(self._model(**prepared.to(self._device)).logits)


class EmbeddingModel:
    """One vector per text: the mean over its tokens, or the pooling that sentence-transformers recorded in the folder."""

    platform = "huggingface_transformers"

    def __init__(self, folder: TransformersFolder) -> None:
        self._folder = folder
        self._torch = folder.torch
        self._model_ = folder.model("AutoModel")
        self._tokenizer = folder.tokenizer()
        pooling = _json(os.path.join(folder.path, "1_Pooling", "config.json"))
        self._mode = next(
            (mode for mode in ("cls_token", "max_tokens", "mean_tokens") if pooling.get(f"pooling_mode_{mode}")), "mean_tokens"
        )
        modules = _json(os.path.join(folder.path, "modules.json"), list)
        self._unit = any(str(module.get("type", "")).endswith("Normalize") for module in modules)
        self.inputs = [{"name": "text", "datatype": "BYTES", "shape": [-1]}]
        width = len(self.embed(["a"])[0])
        self.outputs = [{"name": "embedding", "datatype": "FP32", "shape": [-1, width]}]
        self.model = self

    def predict(self, inputs: list[Any]) -> list[Any]:
        """Return the vectors."""
        return [self.embed(_texts(inputs[0]))]

    def embed(self, texts: list[str]) -> Any:
        """Return one vector per text."""
        groups = self._folder.groups(self._tokenizer, texts)
        return np.concatenate([self._pooled(group) for group in groups])

    def count(self, text: str) -> int:
        """Return the number of tokens of a text."""
        return len(self._tokenizer(text)["input_ids"])

    def _pooled(self, texts: list[str]) -> Any:
        torch = self._torch
        tokens = self._folder.tokens(self._tokenizer, texts)
        hidden = self._model_(**tokens).last_hidden_state.float()
        mask = tokens["attention_mask"][..., None].float()
        if self._mode == "cls_token":
            pooled = hidden[:, 0]
        elif self._mode == "max_tokens":
            pooled = hidden.masked_fill(mask == 0, -1e9).amax(1)
        else:
            pooled = (hidden * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
        return (torch.nn.functional.normalize(pooled, dim=-1) if self._unit else pooled).cpu().numpy()


class CausalTextModel:
    """Generates text one token at a time, so that several requests are interleaved."""

    platform = "huggingface_transformers"
    generate_options = ("logprobs", "seed", "temperature", "top_k", "top_p")

    def __init__(self, folder: TransformersFolder, kind: str = "AutoModelForCausalLM") -> None:
        self.inputs: list[dict[str, Any]] = []
        self.outputs: list[dict[str, Any]] = []
        self._torch = folder.torch
        self._folder = folder
        self._model_ = folder.model(kind)
        self._tokenizer = folder.tokenizer()
        ends = self._model_.generation_config.eos_token_id
        self._ends = set(ends if isinstance(ends, list) else [] if ends is None else [ends])
        self._longest = getattr(folder.config, "max_position_embeddings", None) or 1 << 30
        self.model = self

    def count(self, text: str) -> int:
        """Return the number of tokens of a text."""
        return len(self._tokenizer(text)["input_ids"])

    def generate(self, prompt: Any, options: dict[str, Any]) -> Any:
        """Yield pieces of text, with log probabilities if requested."""
        tokens = self._tokens(prompt)
        length = int(tokens.shape[1])
        if length >= self._longest:
            raise ValueError(f"the prompt has {length} tokens, and the model takes at most {self._longest}")
        sampler = TokenSampler(self._torch, options, self._model_.generation_config)
        step = self._begin(tokens)
        generated: list[int] = []
        shown = ""
        limit = min(options.get("max_tokens") or self._longest, self._longest - length)
        while len(generated) < limit:
            scores = step.scores(generated)
            token, details = sampler.choose(scores)
            if token in self._ends:
                yield {"usage": {"prompt_tokens": length, "completion_tokens": len(generated)}, "finish_reason": "stop"}
                return
            generated.append(token)
            text = self._tokenizer.decode(generated, skip_special_tokens=True)
            piece = "" if text.endswith("\ufffd") else text[len(shown) :]  # a character may span several tokens
            shown += piece
            yield {"text": piece, **self._named(details)}
        yield {"usage": {"prompt_tokens": length, "completion_tokens": len(generated)}, "finish_reason": "length"}

    def _begin(self, tokens: Any) -> Any:
        return CachedDecoder(self._torch, self._model_, tokens)

    def _tokens(self, prompt: Any) -> Any:
        if isinstance(prompt, str):
            tokens = self._tokenizer(prompt, return_tensors="pt")["input_ids"]
        elif self._tokenizer.chat_template:
            text = self._tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=False)
            tokens = self._tokenizer(text, return_tensors="pt", add_special_tokens=False)["input_ids"]
        else:
            raise ValueError("the model has no chat template; ask for completions, or save its tokenizer with a template")
        if not tokens.shape[1]:
            raise ValueError("the prompt has no tokens")
        return tokens.to(self._folder.device)

    def _named(self, told: dict[str, Any]) -> dict[str, Any]:
        if not told:
            return {}
        top = [{"token": self._tokenizer.decode([token]), "logprob": value} for token, value in told["top"]]
        return {"logprob": told["logprob"], "top_logprobs": top}


class CachedDecoder:
    """Computes the scores of the next token, with the cache of earlier steps."""

    def __init__(self, torch: Any, model: Any, tokens: Any, **more: Any) -> None:
        self._torch = torch
        self._model = model
        self._next = tokens
        self._more = more
        self._kept: Any = None

    def scores(self, given: list[int]) -> Any:
        """Return the score of each token after the generated ones."""
        if given:
            self._next = self._torch.tensor([given[-1:]], device=self._next.device)
        with self._torch.no_grad():
            name = "decoder_input_ids" if self._more else "input_ids"
            result = self._model(**{name: self._next}, past_key_values=self._kept, use_cache=True, **self._more)
        self._kept = result.past_key_values
        return result.logits[0, -1].float()


class Seq2SeqTextModel(CausalTextModel):
    """Generates text from text with an encoder and a decoder."""

    def __init__(self, folder: TransformersFolder) -> None:
        super().__init__(folder, "AutoModelForSeq2SeqLM")

    def _begin(self, tokens: Any) -> Any:
        encoded = self._model_.get_encoder()(input_ids=tokens)
        start = self._model_.generation_config.decoder_start_token_id
        start = self._model_.config.decoder_start_token_id if start is None else start
        first = self._torch.tensor([[start]], device=tokens.device)
        return CachedDecoder(self._torch, self._model_, first, encoder_outputs=encoded)


class TokenSampler:
    """Chooses tokens by the options of a request, or by the model's generation configuration."""

    def __init__(self, torch: Any, options: dict[str, Any], defaults: Any) -> None:
        self._torch = torch
        self._logprobs = options.get("logprobs")
        sample = "temperature" in options or "top_p" in options or "top_k" in options or bool(defaults.do_sample)
        temperature = options.get("temperature", defaults.temperature)
        self._temperature = float(1.0 if temperature is None else temperature) if sample else 0.0
        self._top_p = float(options.get("top_p") or (sample and defaults.top_p) or 1.0)
        self._top_k = int(options.get("top_k") or (bool(defaults.do_sample) and defaults.top_k) or 0)
        self._random = torch.Generator()
        if options.get("seed") is None:
            self._random.seed()
        else:
            self._random.manual_seed(int(options["seed"]) & 0xFFFFFFFFFFFFFFFF)

    def choose(self, scores: Any) -> tuple[int, dict[str, Any]]:
        """Return the next token, and the log probabilities that were requested."""
        torch = self._torch
        token = int(scores.argmax()) if self._temperature <= 0 else self._drawn(scores / self._temperature)
        if self._logprobs is None:
            return token, {}
        logs = torch.log_softmax(scores, -1)
        values, tokens = logs.topk(min(int(self._logprobs), len(logs)))
        return token, {"logprob": float(logs[token]), "top": list(zip(tokens.tolist(), values.tolist()))}

    def _drawn(self, scores: Any) -> int:
        torch = self._torch
        if self._top_k:
            threshold = scores.topk(min(self._top_k, len(scores))).values[-1]
            scores = scores.masked_fill(scores < threshold, float("-inf"))
        values, tokens = scores.softmax(-1).sort(descending=True)
        if self._top_p < 1.0:
            values[values.cumsum(-1) - values > self._top_p] = 0
        return int(tokens[torch.multinomial(values.cpu(), 1, generator=self._random)[0]])


_KINDS = {
    "ForSequenceClassification": TextClassifier,
    "ForImageClassification": ImageClassifier,
    "ForCausalLM": CausalTextModel,
    "LMHeadModel": CausalTextModel,
    "ForConditionalGeneration": Seq2SeqTextModel,
}


def _texts(array: Any) -> list[str]:
    try:
        return [text.decode() if isinstance(text, bytes) else str(text) for text in array.ravel().tolist()]
    except UnicodeDecodeError as error:
        raise ValueError(f"a text is not valid UTF-8: {error}") from None


def _json(path: str, kind: Any = dict) -> Any:
    try:
        with open(path) as file:
            content = json.load(file)
    except (OSError, ValueError):
        return kind()
    return content if isinstance(content, kind) else kind()
