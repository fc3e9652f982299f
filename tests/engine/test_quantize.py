"""Quantising a checkpoint: the numbers, the file, what is out of date or damaged, what cannot be written."""

import errno
import json
import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
import torch
from safetensors import safe_open

from daemon.engine import fast_pack
from daemon.engine.fast_checkpoint import Checkpoint, Floats
from daemon.engine.fast_file import Array
from daemon.engine.fast_int4 import dequantize_int4, quantize_int4
from daemon.engine.fast_pack import dequantize_int8, quantize_int8
from daemon.engine.quantize import KINDS, open_weights, quantize_directory, weights_path
from daemon.errors import ConfigurationError
from tests.support.tiny_models import edit_config, make_network, save


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    """A tiny model with its own head and biases."""
    return save(make_network("llama"), tmp_path)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Each kind of weights."""
    return str(request.param)


def test_a_weight_moves_by_half_a_step_at_most() -> None:
    """The largest weight of a row sets its step; rows must not share one."""
    rows = np.random.default_rng(0).standard_normal((32, 50)).astype(np.float32)
    rows[3] *= 1000
    rows[5] = 0
    weight, scale = quantize_int8(rows)
    assert weight.shape == (2, 50, 16)
    steps = scale.reshape(-1, 1)
    assert (np.abs(dequantize_int8(weight, scale) - rows) <= steps / 2 * 1.0001).all()
    assert np.abs(weight).max() == 127


def test_int4_loses_less_than_plain_levels_from_least_to_largest() -> None:
    """The search for levels must pay; rows and groups must not share theirs, nor must zeros move."""
    rows = np.random.default_rng(0).standard_normal((32, 96)).astype(np.float32)
    rows[3] *= 1000
    rows[5, 32:64] = 0
    weight = quantize_int4(rows)
    assert (weight.shape, weight.dtype) == ((2, 3, 320), np.uint8)
    groups = rows.reshape(32, 3, 32)
    moved = dequantize_int4(weight).reshape(groups.shape) - groups
    ranges = groups.max(axis=2) - groups.min(axis=2)
    assert (np.abs(moved).max(axis=2) <= ranges / 15 * 1.5).all()
    plain = ranges / 15 / np.sqrt(12)
    assert np.sqrt(np.square(moved).mean(axis=2)).sum() < plain.sum()
    assert (moved[5, 1] == 0).all()


def test_what_lies_on_16_levels_is_kept_exactly() -> None:
    """A checkpoint that was of four bits once loses nothing more, whatever its columns' order in memory."""
    random = np.random.default_rng(1)
    levels = random.integers(0, 16, (16, 2, 32)).astype(np.float32)
    levels[..., :2] = 0, 15
    rows = (levels * random.choice([0.5, 2.0], (16, 2, 1)) - random.integers(0, 8, (16, 2, 1))).astype(np.float32)
    assert np.array_equal(dequantize_int4(quantize_int4(rows.reshape(16, 64))), rows.reshape(16, 64))


def test_matrices_that_four_bits_harm_stay_int8(tmp_path: Path, model_dir: Path) -> None:
    """The embedding, query, key, value and down; and rows of 72 weights, which are no whole groups of 32."""
    whole = open_weights(save(make_network("qwen2"), tmp_path / "96"), "int4").tensors
    odd = open_weights(model_dir, "int4").tensors
    assert [name for name in _int4_names(whole) if ".0." in name] == ["layers.0.out.weight", "layers.0.gate_up.weight"]
    assert _int4_names(odd) == ["layers.0.out.weight", "layers.1.out.weight"]


def _int4_names(tensors: Mapping[str, Array]) -> list[str]:
    return [name for name, tensor in tensors.items() if tensor.dtype == np.uint8]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_every_type_on_disk_is_read_exactly(dtype: str, tmp_path: Path) -> None:
    """Checkpoints come in bfloat16, which numpy does not know."""
    network = make_network("llama")
    save(network, tmp_path, dtype)
    name = "model.layers.1.mlp.up_proj.weight"
    expected = network.get_parameter(name).detach().to(getattr(torch, dtype)).float().numpy()
    assert np.array_equal(Checkpoint(tmp_path).rows(name, 3, 20), expected[3:20])


def test_a_checkpoint_in_several_files_gives_the_same_weights(kind: str, tmp_path: Path) -> None:
    """Larger models come in shards with an index."""
    network = make_network("llama")
    save(network, tmp_path / "one")
    network.save_pretrained(tmp_path / "many", max_shard_size="50KB")
    assert not (tmp_path / "many" / "model.safetensors").exists()
    one, many = (open_weights(tmp_path / name, kind).tensors for name in ("one", "many"))
    assert one.keys() == many.keys()
    assert all(np.array_equal(one[name], many[name]) for name in one)


def test_the_file_is_a_safetensors_file_and_is_mapped(kind: str, model_dir: Path) -> None:
    """Other tools can look into it; and what is mapped must be what was written."""
    path = quantize_directory(model_dir, kind)
    assert path == model_dir / f"leveret-{kind}.safetensors"
    tensors = open_weights(model_dir, kind).tensors
    with safe_open(path, "numpy") as file:
        assert set(file.keys()) == set(tensors)
        assert file.metadata()["kind"] == kind
        assert all(np.array_equal(file.get_tensor(name), tensors[name]) for name in tensors)
    assert not tensors["head.weight"].flags.writeable
    assert sorted(path.name for path in model_dir.glob("*leveret*")) == [f"leveret-{kind}.safetensors"]


def test_a_file_that_is_up_to_date_is_left_alone(kind: str, model_dir: Path) -> None:
    """Quantising takes seconds to minutes; a start must not repeat it."""
    before = quantize_directory(model_dir, kind).stat()
    open_weights(model_dir, kind)
    quantize_directory(model_dir, kind)
    after = weights_path(model_dir, kind).stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize("damage", ["other weights", "cut off", "no header", "empty"])
def test_a_stale_or_damaged_file_is_written_anew(kind: str, damage: str, model_dir: Path) -> None:
    """Old weights beside a new checkpoint would answer as the old model, a cut file would crash in the middle."""
    path = quantize_directory(model_dir, kind)
    whole, before = path.read_bytes(), _scales(model_dir, kind)
    if damage == "other weights":
        network = make_network("llama")
        with torch.no_grad():
            network.get_parameter("model.layers.1.mlp.down_proj.weight").mul_(2)
        save(network, model_dir)
    else:
        path.unlink()
        path.write_bytes({"cut off": whole[:-100], "no header": b"\x00" * 1000, "empty": b""}[damage])
    assert np.array_equal(_scales(model_dir, kind), 2 * before if damage == "other weights" else before)
    with safe_open(path, "numpy") as file:
        assert len(file.keys()) > 1


def _scales(model_dir: Path, kind: str) -> Floats:
    """The steps of one matrix's 72 rows."""
    return np.array(open_weights(model_dir, kind).tensors["layers.1.down.scale"]).ravel()[:72]


def test_the_quantised_file_alone_is_enough(kind: str, model_dir: Path) -> None:
    """An image can leave the float checkpoint, three quarters of its size, behind."""
    before = {name: tensor.copy() for name, tensor in open_weights(model_dir, kind).tensors.items()}
    (model_dir / "model.safetensors").unlink()
    after = open_weights(model_dir, kind).tensors
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_without_any_weights_it_says_so(kind: str, model_dir: Path) -> None:
    """A half-copied model must end the start with a sentence."""
    (model_dir / "model.safetensors").unlink()
    with pytest.raises(ConfigurationError, match=r"holds neither model\.safetensors nor"):
        open_weights(model_dir, kind)


def test_where_it_cannot_be_written_it_is_made_in_memory(
    kind: str, model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Models are often mounted read-only; that costs time at the start, nothing else."""
    expected = open_weights(model_dir, kind).tensors
    weights_path(model_dir, kind).unlink()

    def refuse(*_: object, **__: object) -> NoReturn:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("tempfile.mkstemp", refuse)
    tensors = open_weights(model_dir, kind).tensors
    assert all(np.array_equal(tensors[name], expected[name]) for name in expected)
    assert not weights_path(model_dir, kind).exists()
    with pytest.raises(OSError, match="Read-only"):
        quantize_directory(model_dir, kind)


def test_a_failure_leaves_nothing_behind(kind: str, model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk must not leave half a file under any name."""

    def fail(*_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    before = sorted(model_dir.iterdir())
    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="No space"):
        quantize_directory(model_dir, kind)
    assert sorted(model_dir.iterdir()) == before


def test_the_float_model_is_never_in_memory(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Peak memory at the first start decides how small a machine can be."""
    monkeypatch.setattr(fast_pack, "_CHUNK_ITEMS", 2000)
    network = make_network("qwen2")
    network.resize_token_embeddings(40_000)
    save(network, tmp_path)
    floats = (tmp_path / "model.safetensors").stat().st_size
    tracemalloc.start()
    quantize_directory(tmp_path, kind)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert floats > 15_000_000
    assert peak < floats / 10


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_weight_that_is_no_number_is_refused(kind: str, value: float, tmp_path: Path) -> None:
    """It would make every logit NaN, at every request."""
    network = make_network("qwen3")
    with torch.no_grad():
        network.get_parameter("model.layers.0.self_attn.o_proj.weight")[5, 5] = value
    with pytest.raises(ConfigurationError, match="o_proj is not a finite number"):
        open_weights(save(network, tmp_path), kind)


def test_shapes_that_do_not_fit_the_config_are_refused(kind: str, model_dir: Path) -> None:
    """A config.json of another size would read beyond the weights."""
    edit_config(model_dir, intermediate_size=96)
    with pytest.raises(ConfigurationError, match=r"gate_proj.weight has the shape \[88, 72\], config.json makes it"):
        open_weights(model_dir, kind)


def test_a_damaged_checkpoint_is_refused(model_dir: Path) -> None:
    """A download that was cut off."""
    path = model_dir / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-10_000])
    with pytest.raises(ConfigurationError, match="ends inside the tensor"):
        open_weights(model_dir, "int8")
    path.write_bytes(b"\xff" * 100)
    with pytest.raises(ConfigurationError, match="no safetensors file"):
        open_weights(model_dir, "int8")


def test_a_missing_shard_is_named(model_dir: Path) -> None:
    """One of several files was not copied."""
    (model_dir / "model.safetensors").unlink()
    index = {"weight_map": {"model.norm.weight": "model-00002-of-00002.safetensors"}}
    (model_dir / "model.safetensors.index.json").write_text(json.dumps(index), "utf-8")
    with pytest.raises(ConfigurationError, match=r"lacks the file 'model-00002-of-00002\.safetensors'"):
        open_weights(model_dir, "int8")


def test_an_unknown_kind_is_refused(model_dir: Path) -> None:
    """Only the kinds that there are."""
    with pytest.raises(ConfigurationError, match="'int3' are no quantised kind"):
        open_weights(model_dir, "int3")
