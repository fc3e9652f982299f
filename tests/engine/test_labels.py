"""Choosing among labels: exact probabilities, the contract's counts, drawing at a temperature."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from daemon.engine.engine import Engine
from daemon.engine.labels import Label, _batches, choose
from daemon.engine.types import Choice, Message, Result, Task, TextEvent
from daemon.errors import InvalidRequest
from tests.support.fake_engine import WrappedModel, load_float32, run
from tests.support.scripted_model import write_scripted_model

LABEL_SETS = [
    ("Paris", "Paris, France", "Par", "Berlin"),
    ("yes", "no"),
    ("東京", "Zürich", "São Paulo", "Ωmega", "😀"),
    ("a", "a much longer label of several words", "", " a"),
    ("<|im_end|>", "positive", "negative"),
]
QUESTION = "What is the capital of France?"


@pytest.fixture(scope="module")
def real(smollm2_dir: Path) -> Engine:
    return load_float32(smollm2_dir)


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return load_float32(write_scripted_model(tmp_path_factory.mktemp("model"), ["y"]))


def ask(engine: Engine, labels: Sequence[str], **fields: Any) -> tuple[Result, list[TextEvent]]:
    settings: dict[str, Any] = {"temperature": 0.0, "max_new_tokens": 50, **fields}
    return run(engine, Task((Message("user", QUESTION),), constraint=Choice(tuple(labels)), **settings))


@torch.inference_mode()
def brute_force(model: transformers.PreTrainedModel, engine: Engine, labels: Sequence[str]) -> list[float]:
    """The contract's formula, one whole forward pass for each label."""
    prompt = engine.tokenizer.encode_chat([Message("user", QUESTION)])
    scores = []
    for label in labels:
        ids = engine.tokenizer.encode_continuation(label)
        logits = model(input_ids=torch.tensor([prompt + ids])).logits[0].double()
        logprobs = torch.log_softmax(logits, dim=-1)[len(prompt) - 1 :]
        ends = torch.logsumexp(logprobs[-1][sorted(engine.tokenizer.end_ids)], dim=0)
        scores.append(sum(logprobs[i, token].item() for i, token in enumerate(ids)) + ends.item())
    return torch.softmax(torch.tensor(scores, dtype=torch.float64), dim=0).tolist()


@pytest.mark.parametrize("labels", LABEL_SETS)
def test_probabilities_equal_brute_force(
    labels: tuple[str, ...], real: Engine, reference: transformers.PreTrainedModel
) -> None:
    """Guards the formula: prefixes of each other, different lengths, not ASCII, empty, and control tokens as text."""
    result, events = ask(real, labels)
    expected = brute_force(reference, real, labels)
    assert result.label_probs is not None
    assert list(result.label_probs) == list(labels)
    assert list(result.label_probs.values()) == pytest.approx(expected, abs=1e-4)
    assert math.isclose(sum(result.label_probs.values()), 1)
    best = labels[expected.index(max(expected))]
    assert result.text == "".join(event.text for event in events) == best


def test_labels_are_the_tokens_that_transformers_would_take(real: Engine, smollm2_dir: Path) -> None:
    """Guards the encoding that the probabilities rest on."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(smollm2_dir)
    for label in ("Paris, France", "東京", " a", "positive"):
        assert real.tokenizer.encode_continuation(label) == tokenizer.encode(label, add_special_tokens=False)


def test_one_pass_reads_the_prompt_and_all_labels(scripted: Engine) -> None:
    """Guards the cost: a short prompt and its labels together."""

    class CountingModel(WrappedModel):
        passes = 0

        def extend(self, *args: Any, **options: Any) -> Any:
            """As the port's."""
            self.passes += 1
            return super().extend(*args, **options)

        def branches(self, *args: Any) -> Any:
            """As the port's."""
            self.passes += 1
            return scripted.model.branches(*args)  # type: ignore[attr-defined] # it branches

    model = CountingModel(scripted.model)
    together = ask(Engine(model, scripted.tokenizer), ["y", "no", "maybe"])[0]
    one_by_one = ask(Engine(WrappedModel(scripted.model), scripted.tokenizer), ["y", "no", "maybe"])[0]
    assert model.passes == 1
    assert together.label_probs == pytest.approx(one_by_one.label_probs, abs=1e-6)


def test_counts_include_the_label_and_the_end(scripted: Engine) -> None:
    """Guards `completion_tokens`, `max_new_tokens` and `finish_reason` of the contract."""
    result, _ = ask(scripted, ["yes", "no"], max_new_tokens=4)
    assert result.finish_reason == "stop"
    assert result.usage.completion_tokens == len(result.text) + 1
    assert result.timings.prefill_seconds > 0
    assert result.timings.tokens_per_second == 0, "nothing was decoded"


@pytest.mark.parametrize(
    ("labels", "fields", "param"),
    [
        (["no", "yes"], {"max_new_tokens": 3}, "structured_outputs.choice[1]"),
        (["a", "a"], {}, "structured_outputs.choice"),
        (["a", "b"], {"stop": ("x",)}, "stop"),
    ],
)
def test_impossible_choices_are_refused(
    labels: list[str], fields: dict[str, Any], param: str, scripted: Engine
) -> None:
    """Guards against a label that is cut off, a probability that is overwritten, a stop inside a label."""
    with pytest.raises(InvalidRequest) as caught:
        ask(scripted, labels, **fields)
    assert caught.value.param == param


def test_temperature_draws_from_the_models_own_distribution() -> None:
    """Guards the draw: at temperature 1 in proportion, at 2 flatter, and the probabilities told stay the model's."""
    labels = [Label("a", (1,)), Label("b", (2,))]
    scores = [math.log(0.8), math.log(0.2)]
    for temperature, share in ((1.0, 0.8), (2.0, 2 / 3)):
        picks = [choose(Task((), temperature=temperature, seed=seed), labels, scores) for seed in range(2000)]
        assert sum(label.text == "a" for label, _ in picks) / 2000 == pytest.approx(share, abs=0.05)
        assert all(shares == pytest.approx({"a": 0.8, "b": 0.2}) for _, shares in picks)


@pytest.mark.parametrize("temperature", [0.0, 1e-6])
def test_greedy_takes_the_most_probable(temperature: float) -> None:
    """Guards temperature 0, and that the first of equals is taken."""
    labels = [Label("a", ()), Label("b", ()), Label("c", ())]
    assert choose(Task((), temperature=temperature), labels, [-2.0, -1.0, -1.0])[0].text == "b"


def test_hopeless_labels_are_no_nan() -> None:
    """Guards labels that the model all but rules out."""
    labels = [Label("a", ()), Label("b", ())]
    label, shares = choose(Task((), temperature=1e-4, seed=1), labels, [-9000.0, -20000.0])
    assert (label.text, shares) == ("a", {"a": 1.0, "b": 0.0})


def test_logprobs_of_the_chosen_label(scripted: Engine) -> None:
    """Guards alignment: one entry for each token of the label, from the same logits."""
    result, events = ask(scripted, ["y", "yes"], logprobs=True, top_logprobs=1)
    assert [entry.token for entry in result.logprobs] == list(result.text)
    assert list(result.logprobs) == [entry for event in events for entry in event.logprobs]
    assert result.logprobs[0].logprob == pytest.approx(0, abs=1e-4)


@pytest.mark.parametrize(
    ("labels", "asked"), [(("a", "b"), [True]), (("a" * 150, "b"), [False, True])], ids=["with prompt", "behind it"]
)
def test_an_interrupted_choice_has_no_answer(labels: tuple[str, ...], asked: list[bool], scripted: Engine) -> None:
    """Guards cancel before the prompt, and between it and labels that are too long to be read with it."""
    calls = iter(asked)
    task = Task((Message("user", "q"),), constraint=Choice(labels), max_new_tokens=200)
    result = scripted.generate(task, lambda: next(calls), lambda _: None)
    assert next(calls, None) is None
    assert (result.text, result.finish_reason, result.label_probs) == ("", "interrupted", None)


@pytest.mark.parametrize("limit", [1, 4, 6, 100])
def test_batches_hold_every_label_once_and_stay_bounded(limit: int) -> None:
    """Guards the division: no pass is longer than a piece unless one label alone is."""
    labels = [tuple(range(size)) for size in (1, 3, 2, 5, 1, 1)]
    batches = list(_batches(labels, limit))
    assert [label for batch in batches for label in batch] == labels
    assert all(len(batch) == 1 or len(batch) * max(map(len, batch)) <= limit for batch in batches)
