"""Greedy generation against transformers' own, on the small model in float32.

Thirty prompts of up to 64 tokens with `LEVERET_TEST_PARITY_PROMPTS=30` (`make soak`), fewer of them otherwise.
"""

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from daemon.engine.engine import Engine
from daemon.engine.types import Message, Task
from tests.support.fake_engine import load_float32, run

PROMPTS = [
    "What is the capital of France?",
    "Name three colours.",
    "What is 2 + 2?",
    "Write a haiku about the sea.",
    "Translate 'good morning' into Spanish.",
    "What does a baker do?",
    "List the days of the week.",
    "Who wrote Romeo and Juliet?",
    "Give me a recipe for pancakes.",
    "Why is the sky blue?",
    "What is the largest planet?",
    "Explain photosynthesis in one sentence.",
    "Say hello in Japanese.",
    "What is the opposite of hot?",
    "Count from one to ten.",
    "Tell me a short story about a cat.",
    "What is water made of?",
    "How many legs does a spider have?",
    "Complete: The quick brown fox",
    "What is Python?",
    "Summarise: The meeting was moved from Monday to Tuesday because of the holiday.",
    "Is the earth flat?",
    "Name a fruit that is yellow.",
    "What is the boiling point of water?",
    "Write a function that adds two numbers.",
    "日本の首都はどこですか。",
    "Wie heißt die Hauptstadt von Österreich?",
    "🙂 or 🙁?",
    "Repeat after me: abc abc abc",
    "Who are you?",
]
COUNT = int(os.environ.get("LEVERET_TEST_PARITY_PROMPTS", "6"))
TOKENS = 64


@pytest.fixture(scope="module")
def engine(smollm2_dir: Path) -> Engine:
    return load_float32(smollm2_dir)


def generated(reference: Any, prompt: list[int]) -> tuple[list[int], list[float]]:
    """The tokens of `generate(do_sample=False)`, and their log-probabilities from the raw logits."""
    output = reference.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        do_sample=False,
        max_new_tokens=TOKENS,
        output_logits=True,
        return_dict_in_generate=True,
    )
    tokens = output.sequences[0, len(prompt) :].tolist()
    rows = [torch.log_softmax(row[0].double(), dim=-1) for row in output.logits]
    return tokens, [row[token].item() for row, token in zip(rows, tokens, strict=True)]


@pytest.mark.parametrize("prompt", PROMPTS[:: len(PROMPTS) // COUNT])
def test_greedy_tokens_and_logprobs_equal_those_of_generate(prompt: str, engine: Engine, reference: Any) -> None:
    """Guards the whole numeric path: prefill in pieces, cache, argmax, log-probabilities."""
    messages = (Message("user", prompt),)
    tokens, logprobs = generated(reference, engine.tokenizer.encode_chat(messages))
    result, events = run(engine, Task(messages, max_new_tokens=TOKENS, temperature=0.0, logprobs=True))
    ours = [token for event in events for token in event.token_ids]
    ended = tokens[-1] in engine.tokenizer.end_ids
    assert ours == (tokens[:-1] if ended else tokens)
    assert result.usage.completion_tokens == len(tokens)
    assert result.finish_reason == ("stop" if ended else "length")
    assert [entry.logprob for entry in result.logprobs] == pytest.approx(logprobs[: len(ours)], abs=1e-4)


def test_the_capital_of_france_is_paris(engine: Engine) -> None:
    """Guards the main job, streamed and plain alike."""
    result, events = run(engine, Task((Message("user", PROMPTS[0]),), max_new_tokens=32, temperature=0.0))
    assert "Paris" in result.text
    assert "".join(event.text for event in events) == result.text


def test_pieces_do_not_change_the_answer(engine: Engine) -> None:
    """Guards a long prompt that takes several pieces against one that is computed whole."""
    prompt = engine.tokenizer.encode_chat([Message("user", "word " * 150)])
    assert len(prompt) > engine.model.piece_tokens
    whole = engine.model.extend(engine.model.new_state(), prompt)
    state = engine.model.new_state()
    size = engine.model.piece_tokens
    for begin in range(0, len(prompt), size):
        pieces = engine.model.extend(state, prompt[begin : begin + size])
    assert state.length == len(prompt)
    assert pieces[0] == pytest.approx(whole[0], abs=1e-3)


def test_a_fork_and_a_cut_go_on_as_a_fresh_state_does(engine: Engine) -> None:
    """Guards the port: a fork leaves its origin as it was, and what is cut off leaves no trace."""
    model, first, second = engine.model, [1, 9690, 198], [504, 3575]
    state = model.new_state()
    model.extend(state, first)
    fork = model.fork(state)
    expected = model.extend(fork, second, "all")
    model.extend(state, [2, 2, 2], "none")
    model.truncate(state, len(first))
    assert state.length == len(first)
    assert model.extend(state, second, "all") == pytest.approx(expected, abs=1e-4)
    assert model.extend(model.new_state(), first + second, "all")[-2:] == pytest.approx(expected, abs=1e-3)


def test_the_answer_after_a_cancelled_one_is_the_same(engine: Engine) -> None:
    """Guards against state that an interrupted request leaves behind."""
    task = Task((Message("user", "Name three colours."),), max_new_tokens=12, temperature=0.0)
    before = run(engine, task)[0].text
    asked = iter([False] * 4 + [True])
    assert engine.generate(task, lambda: next(asked), lambda _: None).finish_reason == "interrupted"
    assert run(engine, task)[0].text == before


def test_a_state_does_not_outgrow_the_context(engine: Engine) -> None:
    """Guards the port's bound."""
    with pytest.raises(ValueError, match="exceed the context of 8192"):
        engine.model.extend(engine.model.new_state(), [1] * 8193)
