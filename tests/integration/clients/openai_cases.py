"""openai.OpenAI and AsyncOpenAI: completions, chat, embeddings and models, with every parameter."""

from __future__ import annotations

import asyncio
import inspect
import json
from typing import Any

from cases import REFUSED, Cases, refused, same

CASES = Cases()
CHAT = [{"role": "user", "content": "hello"}]
OPTIONS = [{"role": "user", "content": "options"}]
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
KEYS = ("messages", "model")


class World:
    """Clients of the model that declares everything, and of the one that declares nothing."""

    def __init__(self, at: dict[str, str]) -> None:
        import openai

        self.at = at
        self.openai = openai
        self.full, self.plain, self.number = (self.made(name) for name in ("talker", "plain", "m"))
        self.loop = asyncio.new_event_loop()
        self.later = openai.AsyncOpenAI(base_url=f"{at['talker']}/openai/v1", api_key="none", max_retries=0)

    def made(self, name: str, prefix: str = "/v1") -> Any:
        return self.openai.OpenAI(base_url=self.at[name] + prefix, api_key="none", max_retries=0)

    def close(self) -> None:
        for client in (self.full, self.plain, self.number):
            client.close()
        self.loop.run_until_complete(self.later.close())

    def chat(self, **named: Any) -> Any:
        return self.full.chat.completions.create(**{"model": "talker", "messages": CHAT, **named})

    def complete(self, **named: Any) -> Any:
        return self.full.completions.create(**{"model": "talker", "prompt": "hello", **named})

    def refuses(self, parameter: str, call: Any) -> None:
        """Assert that the response is a 400 that names the parameter."""
        try:
            found = call()
        except self.openai.BadRequestError as error:
            same([error.param, error.code, parameter in error.message], [parameter, "unsupported_parameter", True])
        else:
            raise AssertionError(f"not refused: {found!r}")


def case(*covers: str, outcome: str = "honoured", name: str = "") -> Any:
    def keep(run: Any) -> Any:
        CASES.add(run.__name__.strip("_") + name, run, *covers, outcome=outcome)
        return run

    return keep


def chat(*options: str) -> tuple[str, ...]:
    return tuple(f"chat.completions.create.{option}" for option in options)


def completion(*options: str) -> tuple[str, ...]:
    return tuple(f"completions.create.{option}" for option in options)


# Options that are passed to the model unchanged, if it declares them; else they are refused unless they have no effect.
_PASSED: dict[str, tuple[Any, Any]] = {
    "frequency_penalty": (0.5, 0), "logit_bias": ({"5": 10}, {}), "presence_penalty": (-0.5, 0), "seed": (7, None),
    "temperature": (0.5, 1), "top_p": (0.25, 1),
}  # fmt: skip
_ONLY_CHAT: dict[str, tuple[Any, Any]] = {"reasoning_effort": ("low", None), "verbosity": ("low", "medium")}


def _add_passed() -> None:
    for option, (value, nothing) in {**_PASSED, **_ONLY_CHAT}.items():

        def honoured(world: World, option: str = option, value: Any = value) -> None:
            same(json.loads(world.chat(messages=OPTIONS, **{option: value}).choices[0].message.content), {option: value})
            if option in _PASSED:
                same(json.loads(world.complete(prompt="options", **{option: value}).choices[0].text), {option: value})

        def plain(world: World, option: str = option, value: Any = value, nothing: Any = nothing) -> None:
            create = world.plain.chat.completions.create
            world.refuses(option, lambda: create(model="plain", messages=CHAT, **{option: value}))
            same(create(model="plain", messages=CHAT, **{option: nothing}).choices[0].message.content, "plain words []")
            if option in _PASSED:
                complete = world.plain.completions.create
                world.refuses(option, lambda: complete(model="plain", prompt="a", **{option: value}))
                same(complete(model="plain", prompt="a", **{option: nothing}).choices[0].text, "plain words []")

        covers = chat(option) + (completion(option) if option in _PASSED else ())
        CASES.add(f"{option}-declared", honoured, *covers)
        CASES.add(f"{option}-not-declared", plain, *covers, outcome=REFUSED)


_add_passed()

_REFUSED: dict[str, Any] = {
    "audio": {"voice": "alloy", "format": "wav"}, "function_call": {"name": "f"}, "functions": [{"name": "f"}], "logprobs": True,
    "modalities": ["text", "audio"], "moderation": {"model": "omni"}, "parallel_tool_calls": None,
    "prediction": {"type": "content", "content": "x"}, "response_format": {"type": "json_object"}, "service_tier": "flex",
    "store": True, "tool_choice": "required", "tools": TOOLS, "top_logprobs": 3, "web_search_options": {},
}  # fmt: skip


def _add_refused() -> None:
    for option, value in _REFUSED.items():

        def run(world: World, option: str = option, value: Any = value) -> None:
            create = world.plain.chat.completions.create
            if value is not None:
                world.refuses(option, lambda: create(model="plain", messages=CHAT, **{option: value}))
            else:
                same(create(model="plain", messages=CHAT, **{option: True}).choices[0].message.content, "plain words []")

        CASES.add(f"{option}-of-a-model-without-it", run, *chat(option), outcome=REFUSED)


_add_refused()


@case("chat.completions.create", *chat(*KEYS))
def a_chat(world: World) -> None:
    found = world.chat()
    same([found.object, found.model, found.choices[0].finish_reason], ["chat.completion", "talker", "stop"])
    same([found.choices[0].message.role, found.choices[0].message.content], ["assistant", "one two three seed0"])
    same([found.usage.prompt_tokens, found.usage.completion_tokens, found.usage.total_tokens], [1, 4, 5])
    assert found.id.startswith("chatcmpl-"), found.id


@case(*chat("messages"))
def messages_of_every_role(world: World) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    messages = [
        {"role": "developer", "content": "be brief", "name": "boss"},
        {"role": "system", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "rain"},
        {"role": "user", "content": "messages"},
    ]
    found = json.loads(world.chat(messages=messages, tools=TOOLS).choices[0].message.content)
    same(found[0], messages[0])
    same(found[1]["content"], "ab")
    same([found[2]["tool_calls"], found[3]["tool_call_id"]], [[call], "c1"])
    parts = [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]
    messages = [{"role": "user", "content": parts}]
    same(world.chat(messages=messages).choices[0].message.content.split()[0], "one")


@case(*chat("messages"), outcome=REFUSED)
def messages_that_the_model_does_not_take(world: World) -> None:
    create = world.plain.chat.completions.create
    image = [{"type": "image_url", "image_url": {"url": "x"}}]
    for messages in (
        [{"role": "user", "content": image}],
        [{"role": "user", "content": "a"}, {"role": "tool", "tool_call_id": "c1", "content": "rain"}],
        [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}]}],
    ):
        refused(lambda messages=messages: create(model="plain", messages=messages), world.openai.BadRequestError, "message")
    refused(lambda: world.chat(messages=[]), world.openai.BadRequestError, "messages is empty")


@case(*chat("model"), *completion("model"), outcome=REFUSED)
def another_model(world: World) -> None:
    refused(lambda: world.chat(model="other"), world.openai.NotFoundError, "other", "'talker' is served")
    refused(lambda: world.complete(model="other"), world.openai.NotFoundError, "other")


@case(*chat("max_tokens", "max_completion_tokens"), *completion("max_tokens"))
def a_limit_of_tokens(world: World) -> None:
    for named in ({"max_tokens": 2}, {"max_completion_tokens": 2}):
        choice = world.chat(**named).choices[0]
        same([choice.message.content, choice.finish_reason], ["one two ", "length"])
    same(world.complete(max_tokens=3).choices[0].text, "one two three ")
    refused(lambda: world.complete(max_tokens=-1), world.openai.BadRequestError, "max_tokens is -1")


@case(*chat("n", "seed"), *completion("n", "seed"))
def several_answers(world: World) -> None:
    found = world.chat(n=3, seed=5)
    same([each.message.content.split()[-1] for each in found.choices], ["seed5", "seed6", "seed7"])
    same([each.index for each in found.choices], [0, 1, 2])
    same([found.usage.prompt_tokens, found.usage.completion_tokens], [1, 12])
    same(len(world.complete(prompt=["a", "b"], n=2).choices), 4)
    for n in (0, 129, 10**9):
        refused(lambda n=n: world.chat(n=n), world.openai.BadRequestError, f"n is {n}", "1 to 128")


@case(*chat("n", "stream"), *completion("n", "stream", "prompt"))
def several_streamed_answers(world: World) -> None:
    texts = {0: "", 1: ""}
    for event in world.chat(n=2, stream=True, seed=1):
        texts[event.choices[0].index] += event.choices[0].delta.content or ""
    same(texts, {0: "one two three seed1", 1: "one two three seed2"})
    places = [event.choices[0].index for event in world.complete(prompt=["a", "b"], stream=True)]
    same(sorted(set(places)), [0, 1])


@case(*chat("stop"), *completion("stop"))
def words_that_end_it(world: World) -> None:
    same(world.chat(stop="two").choices[0].message.content, "one ")
    same(world.complete(stop=["x", "three"]).choices[0].text, "one two ")
    same(world.complete(stop="o three").choices[0].text, "one tw")
    refused(lambda: world.complete(stop=["x"] * 100), world.openai.BadRequestError, "stop has 100 texts")


@case(*chat("stream", "stream_options"), *completion("stream", "stream_options"))
def streams_with_usage(world: World) -> None:
    events = list(world.chat(stream=True, stream_options={"include_usage": True}))
    same([events[-1].choices, events[-1].usage.total_tokens, events[0].usage], [[], 5, None])
    same(events[0].choices[0].delta.role, "assistant")
    events = list(world.complete(stream=True, stream_options={"include_usage": True}))
    same([events[-1].usage.total_tokens, "".join(each.choices[0].text for each in events[:-1])], [5, "one two three seed0"])


@case(*chat("stream_options"), outcome=REFUSED)
def usage_that_is_not_counted(world: World) -> None:
    create = world.plain.chat.completions.create
    asked = {"model": "plain", "messages": CHAT, "stream": True}
    world.refuses("stream_options", lambda: create(**asked, stream_options={"include_usage": True}))
    world.refuses("stream_options", lambda: create(**asked, stream_options={"other": True}))
    refused(lambda: world.chat(stream_options={"include_usage": True}), world.openai.BadRequestError, "without stream")


@case(*chat("logprobs", "top_logprobs"))
def logprobs_of_a_chat(world: World) -> None:
    found = world.chat(logprobs=True, top_logprobs=2).choices[0]
    same([each.token for each in found.logprobs.content], ["one ", "two ", "three ", "seed0"])
    same([each.logprob for each in found.logprobs.content], [-0.25, -1.25, -2.25, -3.25])
    same([(each.token, each.logprob) for each in found.logprobs.content[0].top_logprobs], [("one ", -0.25), ("other", -2.5)])
    same(bytes(found.logprobs.content[0].bytes), b"one ")
    same(world.chat(logprobs=True).choices[0].logprobs.content[0].top_logprobs, [])
    same(world.chat(logprobs=True, top_logprobs=3).choices[0].logprobs.content[0].top_logprobs[2].logprob, -9999.0)
    same(world.chat(logprobs=False).choices[0].logprobs, None)
    streamed = [each.choices[0].logprobs for each in world.chat(logprobs=True, stream=True)]
    same([each.content[0].token for each in streamed if each is not None and each.content], ["one ", "two ", "three ", "seed0"])


@case(*chat("logprobs", "top_logprobs"), outcome=REFUSED)
def logprobs_out_of_range(world: World) -> None:
    for named in ({"top_logprobs": 3}, {"logprobs": True, "top_logprobs": 21}, {"logprobs": True, "top_logprobs": -1}):
        refused(lambda named=named: world.chat(**named), world.openai.BadRequestError, "top_logprobs")
    for value in (-1, 21, 10**9):
        refused(lambda value=value: world.complete(logprobs=value), world.openai.BadRequestError, f"logprobs is {value}")


@case(*completion("logprobs"))
def logprobs_of_a_completion(world: World) -> None:
    found = world.complete(logprobs=1).choices[0].logprobs
    same([found.tokens, found.token_logprobs], [["one ", "two ", "three ", "seed0"], [-0.25, -1.25, -2.25, -3.25]])
    same([found.text_offset, found.top_logprobs[0]], [[0, 4, 8, 14], {"one ": -0.25}])
    offsets = [each.choices[0].logprobs.text_offset for each in world.complete(logprobs=0, stream=True) if each.choices[0].text]
    same(offsets, [[0], [4], [8], [14]])


@case(*chat("tools", "tool_choice", "parallel_tool_calls"))
def calls_of_tools(world: World) -> None:
    asked = {"messages": [{"role": "user", "content": "call"}], "tools": TOOLS, "parallel_tool_calls": True}
    found = world.chat(**asked, tool_choice="required").choices[0]
    same([found.finish_reason, found.message.content], ["tool_calls", None])
    same([(each.function.name, json.loads(each.function.arguments)) for each in found.message.tool_calls],
         [("weather", {"city": "Oslo"}), ("second", {})])  # fmt: skip
    same(len({each.id for each in found.message.tool_calls}), 2)
    same(world.chat(**asked, tool_choice="none").choices[0].message.tool_calls, None)
    calls = [call for each in world.chat(**asked, stream=True) for call in each.choices[0].delta.tool_calls or ()]
    same([(each.index, each.function.name) for each in calls], [(0, "weather"), (1, "second")])


@case(*chat("functions", "function_call"))
def calls_of_functions(world: World) -> None:
    messages = [{"role": "user", "content": "call"}]
    found = world.chat(messages=messages, functions=[{"name": "old"}], function_call="auto").choices[0]
    same([found.finish_reason, found.message.function_call.name], ["function_call", "old"])


@case(*chat("response_format"), "chat.completions.parse", "chat.completions.parse.response_format")
def json_answers(world: World) -> None:
    from pydantic import BaseModel

    class Reply(BaseModel):
        answer: int

    same(json.loads(world.chat(response_format={"type": "json_object"}).choices[0].message.content), {"answer": 42})
    found = world.full.chat.completions.parse(model="talker", messages=CHAT, response_format=Reply)
    same(found.choices[0].message.parsed.answer, 42)
    with world.full.chat.completions.stream(model="talker", messages=CHAT, response_format=Reply) as stream:
        same(stream.get_final_completion().choices[0].message.parsed.answer, 42)


@case(*chat("response_format"))
def text_answers(world: World) -> None:
    create = world.plain.chat.completions.create
    found = create(model="plain", messages=CHAT, response_format={"type": "text"}).choices[0].message.content
    same(found, "plain words []")


@case("chat.completions.stream", "chat.completions.stream.messages", "chat.completions.stream.model")
def the_helper_for_streams(world: World) -> None:
    with world.full.chat.completions.stream(model="talker", messages=CHAT) as stream:
        kinds = {event.type for event in stream}
        same(stream.get_final_completion().choices[0].message.content, "one two three seed0")
    assert {"chunk", "content.delta", "content.done"} <= kinds, kinds


@case(*chat("user", "metadata", "safety_identifier", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"))
def labels(world: World) -> None:
    found = world.chat(
        messages=OPTIONS, user="u", metadata={"a": "b"}, safety_identifier="s", prompt_cache_key="k",
        prompt_cache_options={"mode": "x"}, prompt_cache_retention="24h",
    )  # fmt: skip
    same(json.loads(found.choices[0].message.content), {})


@case(*chat("store", "service_tier", "modalities"))
def what_asks_for_nothing(world: World) -> None:
    asked = {"store": False, "service_tier": "auto", "modalities": ["text"], "parallel_tool_calls": True, "top_p": None}
    found = world.plain.chat.completions.create(model="plain", messages=CHAT, **asked)
    same(found.choices[0].message.content, "plain words []")


@case("chat.completions.create.extra_body", "completions.create.extra_body")
def parameters_of_other_servers(world: World) -> None:
    same(json.loads(world.chat(messages=OPTIONS, extra_body={"top_k": 5}).choices[0].message.content), {"top_k": 5})
    same(json.loads(world.complete(prompt="options", extra_body={"top_k": 5}).choices[0].text), {"top_k": 5})


@case("chat.completions.create.extra_body", "completions.create.extra_body", outcome=REFUSED)
def unknown_parameters(world: World) -> None:
    world.refuses("min_p", lambda: world.chat(extra_body={"min_p": 0.1}))
    world.refuses("guided_json", lambda: world.complete(extra_body={"guided_json": {}}))
    create = world.plain.completions.create
    world.refuses("tools", lambda: create(model="plain", prompt="a", extra_body={"tools": []}))


@case("chat.completions.create.extra_headers", "chat.completions.create.extra_query", "chat.completions.create.timeout",
      "completions.create.extra_headers", "completions.create.extra_query", "completions.create.timeout")  # fmt: skip
def options_of_the_client(world: World) -> None:
    named = {"extra_headers": {"X-User": "a"}, "extra_query": {"a": "b"}, "timeout": 20.0}
    same(world.chat(**named).choices[0].message.content, "one two three seed0")
    same(world.complete(**named).choices[0].text, "one two three seed0")


@case("completions.create", *completion("prompt"))
def a_completion(world: World) -> None:
    found = world.complete()
    same(
        [found.object, found.choices[0].text, found.choices[0].finish_reason], ["text_completion", "one two three seed0", "stop"]
    )
    found = world.complete(prompt=["a", "b c"])
    same([len(found.choices), found.usage.prompt_tokens, found.usage.completion_tokens], [2, 3, 8])


@case(*completion("prompt"), outcome=REFUSED)
def prompts_of_token_ids(world: World) -> None:
    for prompt in ([1, 2], [[1, 2], [3]]):
        refused(lambda prompt=prompt: world.complete(prompt=prompt), world.openai.BadRequestError, "token ids")
    refused(lambda: world.complete(prompt=[]), world.openai.BadRequestError, "prompt is empty")


@case(*completion("echo"))
def the_prompt_again(world: World) -> None:
    found = world.complete(prompt="hello ", echo=True)
    same([found.choices[0].text, found.usage.completion_tokens], ["hello one two three seed0", 4])
    same("".join(each.choices[0].text for each in world.complete(prompt="hi ", echo=True, stream=True)), "hi one two three seed0")
    same(world.complete(echo=False).choices[0].text, "one two three seed0")


@case(*completion("echo"), outcome=REFUSED)
def the_prompt_with_logprobs(world: World) -> None:
    refused(lambda: world.complete(echo=True, logprobs=1), world.openai.BadRequestError, "echo with logprobs")


@case(*completion("best_of"))
def the_best_of_as_many(world: World) -> None:
    same(len(world.complete(n=2, best_of=2).choices), 2)


@case(*completion("best_of"), outcome=REFUSED)
def the_best_of_more(world: World) -> None:
    refused(lambda: world.complete(n=2, best_of=5), world.openai.BadRequestError, "best_of is 5 with n 2")


@case(*completion("suffix"))
def a_suffix(world: World) -> None:
    same(json.loads(world.complete(prompt="options", suffix="end").choices[0].text), {"suffix": "end"})
    world.refuses("suffix", lambda: world.plain.completions.create(model="plain", prompt="a", suffix="end"))


@case(*completion("user"))
def a_label_of_a_completion(world: World) -> None:
    same(json.loads(world.complete(prompt="options", user="u").choices[0].text), {})


@case("chat.completions.create")
def another_reason_to_end(world: World) -> None:
    same(world.chat(messages=[{"role": "user", "content": "filter"}]).choices[0].finish_reason, "content_filter")


@case(*chat("temperature", "top_p", "presence_penalty", "frequency_penalty", "seed"), outcome=REFUSED)
def numbers_out_of_range(world: World) -> None:
    wrong = {"temperature": (-1, 3, "hot", True), "top_p": (1.5,), "presence_penalty": (9,), "frequency_penalty": (-9,),
             "seed": (1.5, 2**64)}  # fmt: skip
    for option, value in ((option, value) for option, values in wrong.items() for value in values):
        refused(lambda named={option: value}: world.chat(**named), world.openai.BadRequestError, option)


@case("embeddings.create", *(f"embeddings.create.{each}" for each in ("input", "model", "encoding_format", "user")))
def vectors(world: World) -> None:
    create = world.full.embeddings.create
    found = create(model="talker", input=["abc", "defgh"], user="u")
    same([len(found.data), found.data[1].index, found.data[1].embedding[:3]], [2, 1, [5.0, 6.0, 7.0]])
    same(create(model="talker", input="abc", encoding_format="float").data[0].embedding[0], 3.0)
    text = create(model="talker", input="abc", encoding_format="base64").data[0].embedding
    import base64
    import struct

    same(struct.unpack("<8f", base64.b64decode(text))[0] if isinstance(text, str) else text[0], 3.0)
    same(found.usage.prompt_tokens, 2)


@case("embeddings.create.dimensions")
def vectors_of_another_length(world: World) -> None:
    same(len(world.full.embeddings.create(model="talker", input="abc", dimensions=3).data[0].embedding), 3)
    world.refuses("dimensions", lambda: world.plain.embeddings.create(model="plain", input="abc", dimensions=2))


@case("embeddings.create.input", "embeddings.create.dimensions", "embeddings.create.encoding_format", outcome=REFUSED)
def vectors_of_what_is_no_text(world: World) -> None:
    create = world.full.embeddings.create
    refused(lambda: create(model="talker", input=[1, 2]), world.openai.BadRequestError, "token ids")
    refused(lambda: create(model="talker", input=[]), world.openai.BadRequestError, "input is empty")
    refused(lambda: create(model="talker", input="a", dimensions=0), world.openai.BadRequestError, "dimensions is 0")
    refused(lambda: create(model="talker", input="a", encoding_format="int8"), world.openai.BadRequestError, "int8")
    refused(lambda: create(model="other", input="a"), world.openai.NotFoundError, "other")


@case(
    "embeddings.create.extra_headers",
    "embeddings.create.extra_query",
    "embeddings.create.extra_body",
    "embeddings.create.timeout",
)
def options_of_the_client_for_vectors(world: World) -> None:
    create = world.full.embeddings.create
    named = {"extra_headers": {"X-User": "a"}, "extra_query": {"a": "b"}, "timeout": 20.0, "extra_body": {"user": "x"}}
    same(create(model="talker", input="a", **named).data[0].embedding[0], 1.0)
    world.refuses("input_type", lambda: create(model="talker", input="a", extra_body={"input_type": "query"}))


@case("models.list", "models.retrieve", "models.retrieve.model", *(f"models.{verb}.{option}" for verb in ("list", "retrieve")
      for option in ("extra_headers", "extra_query", "timeout")))  # fmt: skip
def models(world: World) -> None:
    named = {"extra_headers": {"X-User": "a"}, "extra_query": {"a": "b"}, "timeout": 20.0}
    for client, name in ((world.full, "talker"), (world.number, "m"), (world.made("talker", "/openai/v1"), "talker")):
        same([each.id for each in client.models.list(**named)], [name])
        found = client.models.retrieve(name, **named)
        same([found.id, found.object, found.owned_by], [name, "model", "fairway"])


@case("models.retrieve.model", "models.delete", "models.delete.model", outcome=REFUSED)
def models_that_are_not_there(world: World) -> None:
    for client in (world.full, world.made("talker", "/openai/v1")):
        refused(lambda client=client: client.models.retrieve("other"), world.openai.NotFoundError, "other")
        refused(lambda client=client: client.models.delete("talker"), world.openai.APIStatusError, "DELETE")


@case("chat.completions.retrieve", "chat.completions.list", "chat.completions.update", "chat.completions.delete", outcome=REFUSED)
def stored_answers(world: World) -> None:
    stored = world.full.chat.completions
    for call in (lambda: stored.retrieve("x"), lambda: list(stored.list()), lambda: stored.delete("x"),
                 lambda: stored.update("x", metadata={})):  # fmt: skip
        refused(call, world.openai.APIStatusError, "chat/completions")


@case("responses.create", "images.generate", "files.list", "moderations.create", outcome=REFUSED)
def other_routes(world: World) -> None:
    client = world.full
    for call in (lambda: client.responses.create(model="talker", input="a"), lambda: client.images.generate(prompt="a"),
                 lambda: list(client.files.list()), lambda: client.moderations.create(input="a")):  # fmt: skip
        refused(call, world.openai.NotFoundError, "unknown path", "docs/protocols.md")
    refused(lambda: world.number.completions.create(model="m", prompt="a"), world.openai.NotFoundError, "does not support")


@case("with_raw_response", "with_streaming_response")
def raw_answers(world: World) -> None:
    found = world.full.chat.completions.with_raw_response.create(model="talker", messages=CHAT)
    same([found.status_code, found.parse().choices[0].message.content], [200, "one two three seed0"])
    with world.full.completions.with_streaming_response.create(model="talker", prompt="a") as answer:
        same(json.loads(answer.read())["choices"][0]["text"], "one two three seed0")


@case("async.chat.completions.create", "async.completions.create", "async.embeddings.create", "async.models.list")
def the_asynchronous_client(world: World) -> None:
    async def ask() -> None:
        client = world.later
        found = await client.chat.completions.create(model="talker", messages=CHAT)
        same(found.choices[0].message.content, "one two three seed0")
        stream = await client.completions.create(model="talker", prompt="a", stream=True)
        same("".join([each.choices[0].text async for each in stream]), "one two three seed0")
        async with client.chat.completions.stream(model="talker", messages=CHAT) as helper:
            same((await helper.get_final_completion()).choices[0].message.content, "one two three seed0")
        same(len((await client.embeddings.create(model="talker", input="a")).data), 1)
        same([each.id async for each in client.models.list()], ["talker"])
        asked = [client.completions.create(model="talker", prompt="a", seed=seed) for seed in range(8)]
        same([each.choices[0].text.split()[-1] for each in await asyncio.gather(*asked)], [f"seed{seed}" for seed in range(8)])

    world.loop.run_until_complete(ask())


@case("retries")
def an_error_in_the_middle(world: World) -> None:
    refused(lambda: list(world.full.completions.create(model="talker", prompt="a", stream=True, logprobs=99)),
            world.openai.BadRequestError, "logprobs is 99")  # fmt: skip


def surface() -> set[str]:
    """Return every method, and each parameter of those that create."""
    import openai

    client = openai.OpenAI(api_key="none")
    found = set()
    for name, resource in (("chat.completions", client.chat.completions), ("completions", client.completions),
                           ("embeddings", client.embeddings), ("models", client.models)):  # fmt: skip
        for method, function in inspect.getmembers(type(resource), inspect.isfunction):
            if method.startswith("_"):
                continue
            found.add(f"{name}.{method}")
            if method == "create":
                found |= {f"{name}.create.{each}" for each in list(inspect.signature(function).parameters) if each != "self"}
    return found - {"chat.completions.with_raw_response", "chat.completions.with_streaming_response"}
