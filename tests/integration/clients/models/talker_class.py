"""A model that declares everything: it repeats its options, counts, calls tools, rates tokens and embeds."""

import json

import numpy as np


class Model:
    generate_options = {
        "frequency_penalty", "functions", "image_url", "logit_bias", "logprobs", "presence_penalty", "reasoning_effort",
        "response_format", "seed", "suffix", "temperature", "tools", "top_k", "top_p", "verbosity",
    }  # fmt: skip
    embed_options = {"dimensions"}

    def generate(self, prompt, options):
        asked = prompt if isinstance(prompt, str) else prompt[-1]["content"]
        if isinstance(asked, list):
            asked = f"{len(asked)} parts"
        if asked == "options":
            yield json.dumps(options, sort_keys=True)
        elif asked == "messages":
            yield json.dumps(prompt, sort_keys=True)
        elif options.get("tools") and options.get("tool_choice") != "none" and asked == "call":
            yield {"tool_calls": [{"name": options["tools"][0]["function"]["name"], "arguments": {"city": "Oslo"}}]}
            yield {"tool_calls": [{"name": "second", "arguments": "{}"}]}
            yield {"finish_reason": "tool_calls", "usage": {"prompt_tokens": 5, "completion_tokens": 2}}
        elif options.get("functions") and asked == "call":
            yield {"function_call": {"name": options["functions"][0]["name"], "arguments": "{}"}}
            yield {"finish_reason": "function_call"}
        elif (options.get("response_format") or {}).get("type", "text") != "text":
            yield from ('{"answer"', ": 42}")
        elif asked == "filter":
            yield "some"
            yield {"finish_reason": "content_filter"}
        else:
            seed = options.get("seed", 0)
            for place, word in enumerate(["one ", "two ", "three ", f"seed{seed}"]):
                if options.get("logprobs") is None:
                    yield word
                    continue
                likely = [
                    {"token": word, "logprob": -0.25},
                    {"token": "other", "logprob": -2.5},
                    {"token": "no", "logprob": float("-inf")},
                ]
                yield {"text": word, "logprob": -0.25 - place, "top_logprobs": likely}

    def embed(self, texts, options=None):
        length = (options or {}).get("dimensions", 8)
        return np.array([[len(text) + place for place in range(length)] for text in texts], np.float32)

    def count(self, text):
        return len(text.split())
