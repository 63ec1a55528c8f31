"""Drives a running server with the `openai` package: pip install openai; python openai_smoke.py URL.

Checks shapes that hold for any model, so it serves a scripted and a real engine alike.
"""

import sys

import openai

url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"
client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
model = client.models.list().data[0].id
messages = [{"role": "user", "content": "What is the capital of France?"}]
common = dict(model=model, messages=messages, temperature=0, max_tokens=40)

whole = client.chat.completions.create(**common, logprobs=True, top_logprobs=2)
choice = whole.choices[0]
assert choice.message.role == "assistant" and choice.finish_reason in ("stop", "length"), choice
text = choice.message.content
print("whole:", repr(text), whole.usage)
assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
spoken = b"".join(bytes(entry.bytes) for entry in choice.logprobs.content)
assert text.encode() == spoken, (text, spoken)
assert all(len(entry.top_logprobs) == 2 for entry in choice.logprobs.content)

chunks = list(client.chat.completions.create(**common, stream=True, stream_options={"include_usage": True}))
streamed = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
assert streamed == text, (streamed, text)
assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
assert all(c.usage is None for c in chunks[:-1])

both = client.chat.completions.create(**common, n=2, seed=7)
assert [c.index for c in both.choices] == [0, 1]

stop = text[3:6]
cut = client.chat.completions.create(**common, stop=stop)
assert cut.choices[0].message.content == text[: text.index(stop)], cut
assert cut.choices[0].finish_reason == "stop"

ids = client.chat.completions.create(**common, extra_body={"return_token_ids": True})
assert ids.prompt_token_ids and len(ids.choices[0].token_ids) == ids.usage.completion_tokens

tools = [{"type": "function", "function": {"name": "get_time", "parameters": {"type": "object", "properties": {}}}}]
history = messages + [
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "functions.get_time:0", "type": "function", "function": {"name": "get_time", "arguments": "{}"}}
        ],
    },
    {"role": "tool", "tool_call_id": "functions.get_time:0", "content": "12:00"},
]
assert client.chat.completions.create(**{**common, "messages": history}, tools=tools).choices

raw = client.completions.create(model=model, prompt="Once upon a time", max_tokens=8, temperature=0)
parts = client.completions.create(model=model, prompt="Once upon a time", max_tokens=8, temperature=0, stream=True)
assert "".join(part.choices[0].text for part in parts) == raw.choices[0].text

for bad, param in (({"temperature": 9}, "temperature"), ({"stop": [""]}, "stop")):
    try:
        client.chat.completions.create(**{**common, **bad})
        raise SystemExit(f"{bad} was served")
    except openai.BadRequestError as error:
        assert error.param == param, error
try:
    client.chat.completions.create(**{**common, "model": "other"})
    raise SystemExit("an unknown model was served")
except openai.NotFoundError as error:
    assert error.code == "model_not_found", error

stream = client.chat.completions.create(**common, stream=True)
next(iter(stream))
stream.close()
assert client.chat.completions.create(**common).choices[0].message.content == text
print("ok")
