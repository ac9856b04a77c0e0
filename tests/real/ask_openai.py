"""Asks `weft serve` by the package openai, and compares with `weft generate` and `weft embed`. Usage:
ask_openai.py WEFT FOLDER LANGUAGE_URL ENCODER_URL TOKENS; FOLDER has the runs smollm2 and minilm."""
import concurrent.futures
import json
import subprocess
import sys

import openai

weft, folder, language_url, encoder_url, tokens = *sys.argv[1:5], int(sys.argv[5])
language = openai.OpenAI(base_url=language_url, api_key="a key")
encoder = openai.OpenAI(base_url=encoder_url, api_key="a key")
PROMPTS = ["The capital of France is", "Once upon a time", "def main():", "1 2 3 4 5", "Die Katze", "The capital of France",
           "In the beginning God created the heaven and the earth. And the earth was", "Roses are red,"]
QUESTION = [{"role": "system", "content": "You answer briefly."},
            {"role": "user", "content": "What is the capital of France?"}]
# What the template of SmolLM2 makes of it.
TEXT = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in QUESTION) + "<|im_start|>assistant\n"


def same(what, got, wanted):
    if got != wanted:
        sys.exit(f"{what}: got {got!r}, expected {wanted!r}")


def generate(prompt, *options):
    """What `weft generate` writes after a prompt."""
    text = subprocess.run([weft, "generate", f"{folder}/smollm2", "--prompt", prompt, *options], check=True,
                          capture_output=True).stdout
    return text.decode()[len(prompt):-1]


def alone(prompt, i):
    return generate(prompt, "--tokens", str(tokens), "--seed", str(i), "--temperature", "0.8", "--top-p", "0.95")


def complete(i, stream):
    options = {"model": "smollm2", "prompt": PROMPTS[i], "max_tokens": tokens, "seed": i, "temperature": 0.8, "top_p": 0.95}
    if not stream:
        return language.completions.create(**options).choices[0].text
    return "".join(e.choices[0].text for e in language.completions.create(stream=True, **options))


def main():
    same("models", [m.id for m in language.models.list()], ["smollm2"])
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for stream in (False, True):
            texts = list(pool.map(lambda i: complete(i, stream), range(8)))
            for i, text in enumerate(texts):
                same(f"completion {i}", text, alone(PROMPTS[i], i))
    whole = language.chat.completions.create(model="smollm2", messages=QUESTION, temperature=0, max_completion_tokens=30,
                                             logprobs=True, top_logprobs=2)
    message = whole.choices[0].message.content
    print(f"chat: {message!r}")
    same("chat", message, generate(TEXT, "--special", "--tokens", "30", "--temperature", "0"))
    same("log probabilities", len(whole.choices[0].logprobs.content), whole.usage.completion_tokens)
    stream = language.chat.completions.create(model="smollm2", messages=QUESTION, temperature=0, max_completion_tokens=30,
                                              stream=True, stream_options={"include_usage": True})
    events = list(stream)
    same("stream", "".join(e.choices[0].delta.content or "" for e in events if e.choices), message)
    same("usage", events[-1].usage.completion_tokens, whole.usage.completion_tokens)
    for wrong, status in (({"model": "gpt-4", "messages": QUESTION}, 404),
                          ({"model": "smollm2", "messages": QUESTION, "temperature": -1}, 400)):
        try:
            language.chat.completions.create(**wrong)
        except openai.APIStatusError as e:
            same("status", e.status_code, status)
        else:
            sys.exit(f"{wrong} is not refused")
    try:
        openai.OpenAI(base_url=language_url, api_key="another").models.list()
    except openai.AuthenticationError:
        pass
    else:
        sys.exit("a wrong key is taken")
    lines = subprocess.run([weft, "embed", f"{folder}/minilm"], input="\n".join(PROMPTS) + "\n", check=True,
                           capture_output=True, text=True).stdout.splitlines()
    found = encoder.embeddings.create(model="minilm", input=PROMPTS)
    for i, line in enumerate(lines):
        got, wanted = found.data[i].embedding, json.loads(line)["embedding"]
        same(f"dimensions of embedding {i}", len(got), len(wanted))
        worst = max(abs(a - b) for a, b in zip(got, wanted))
        same(f"embedding {i}", worst < 1e-7, True)
    print("16 completions, a chat, its stream, and 8 embeddings are those of weft generate and weft embed")


main()
