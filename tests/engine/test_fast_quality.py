"""What quantised weights cost the real small model: its answers must stay those of the float model."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import transformers
from tokenizers import Tokenizer

from daemon.engine.fast_model import FastModel, load_fast_model
from tests.support.tiny_models import quantize_network, reference_logits

TEXTS = Path(__file__).parent.parent / "data" / "quality" / "texts.txt"
CONTEXT = 512

BOUNDS = {"int8": (0.005, 0.94), "int4": (0.03, 0.9)}
"""For each kind of weights: how far the loss may move, relatively, and how many most probable tokens must stay."""

LOGITS_WITHIN = {"int8": 1e-3, "int4": 1e-2}
"""Of transformers' on the same dequantised weights; int4 rounds its activations too."""

Rows = npt.NDArray[np.float32]


@pytest.fixture(scope="module", params=BOUNDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Each kind of weights."""
    return str(request.param)


@pytest.fixture(scope="module")
def model(smollm2_dir: Path, kind: str, tmp_path_factory: pytest.TempPathFactory) -> FastModel:
    """SmolLM2-135M in weights of that kind; what has to be quantised is not left beside the shared checkpoint."""
    directory = tmp_path_factory.mktemp(kind)
    for path in smollm2_dir.iterdir():
        (directory / path.name).symlink_to(path.resolve())
    return load_fast_model(directory, kind, CONTEXT, 2)


@pytest.fixture(scope="module")
def texts(smollm2_dir: Path) -> list[list[int]]:
    """The token ids of each text."""
    tokenizer = Tokenizer.from_file(str(smollm2_dir / "tokenizer.json"))
    return [tokenizer.encode(text).ids for text in TEXTS.read_text("utf-8").split("\n\n")]


def _log_probabilities(rows: Rows, token_ids: list[int]) -> npt.NDArray[np.float64]:
    """Of each token but the first, given those before it."""
    logits = rows[:-1].astype(np.float64)
    logits -= logits.max(axis=1, keepdims=True)
    chosen = logits[np.arange(len(logits)), token_ids[1:]]
    return np.asarray(chosen - np.log(np.exp(logits).sum(axis=1)))


def test_it_predicts_as_the_float_model_does(
    kind: str, model: FastModel, texts: list[list[int]], smollm2_dir: Path
) -> None:
    """The loss within 0.5 % in int8 and 3 % in int4, and the same most probable token in most places."""
    network = transformers.AutoModelForCausalLM.from_pretrained(smollm2_dir, dtype="float32")
    floats = [reference_logits(network, ids) for ids in texts]
    ours = [model.extend(model.new_state(), ids, "all") for ids in texts]
    losses = [
        -np.concatenate([_log_probabilities(rows, ids) for rows, ids in zip(kind, texts, strict=True)]).mean()
        for kind in (ours, floats)
    ]
    same = np.concatenate([a.argmax(1) == b.argmax(1) for a, b in zip(ours, floats, strict=True)])
    assert len(same) > 300
    most_moved, least_same = BOUNDS[kind]
    assert abs(losses[0] / losses[1] - 1) < most_moved
    assert same.mean() >= least_same


def test_logits_are_those_of_transformers_on_the_same_weights(
    kind: str, model: FastModel, texts: list[list[int]], smollm2_dir: Path
) -> None:
    """The real model's logits reach 40 and its activations much more: what a tiny random model cannot show."""
    network = transformers.AutoModelForCausalLM.from_pretrained(smollm2_dir, dtype="float32")
    expected = reference_logits(quantize_network(network, kind), texts[0])
    logits = model.extend(model.new_state(), texts[0], "all")
    assert np.abs(expected).max() > 20
    assert np.abs(logits - expected).max() < LOGITS_WITHIN[kind]


def test_the_capital_of_france(model: FastModel, smollm2_dir: Path) -> None:
    """A whole greedy answer of a real model, tokenizer and template aside."""
    tokenizer = Tokenizer.from_file(str(smollm2_dir / "tokenizer.json"))
    state = model.new_state()
    ids = tokenizer.encode("The capital of France is").ids
    row = model.extend(state, ids)[0]
    answer = []
    for _ in range(2):
        answer.append(int(row.argmax()))
        row = model.extend(state, answer[-1:])[0]
    assert tokenizer.decode(answer).strip().startswith("Paris")
