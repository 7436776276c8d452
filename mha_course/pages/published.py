"""The published model as files beside the pages: float16 in scripts, which load from a disk too."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import Tensor

from mha_course.base.scripts import bundle
from mha_course.explore import n08_real_heads
from mha_course.pictures import live
from mha_lesson import pretrained

SHARD = 128  # words in a file
POSITIONS = 128  # tokens of the longest text that a page takes
# The folder: another model, another name.
NAME = f"model-{pretrained.PACKAGE.sha256[pretrained.WEIGHTS][:12]}"
SCRIPTS = Path(__file__).with_name("model")


def write(folder: Path) -> dict[str, Any]:
    """Writes the model's files into `folder / NAME`, and gives what model.js is told about them.

    Raises:
        WeightsMissing: the weights are not installed, or not the published ones.
    """
    model = pretrained.load()
    (folder / NAME).mkdir()
    tensors = dict(model.encoder.state_dict())
    words = tensors.pop("words.weight")
    parts = dict(_parts(tensors))
    size = 0

    def put(name: str, text: str) -> None:
        nonlocal size
        size += (folder / NAME / f"{name}.js").write_bytes(_handed_on(name, text).encode())

    vocabulary = model.tokenizer.get_vocab()
    put("vocabulary", "\n".join(sorted(vocabulary, key=lambda piece: vocabulary[piece])))
    for name, part in parts.items():
        put(name, _coded(*part.values()))
    needed = size
    for i in range(0, len(words), SHARD):
        put(f"words-{i // SHARD}", _coded(words[i : i + SHARD]))
    return {
        "folder": NAME,
        "shard": SHARD,
        "bytes": needed,
        "all": size,
        "parts": {
            name: [[tensor, values.numel()] for tensor, values in part.items()]
            for name, part in parts.items()
        },
    }


def pictures() -> str:
    """The file for `folder / NAME` with the pictures that typed sentences fill."""
    packed = live.whole(n08_real_heads.places().pack())
    return _handed_on("heads", base64.b64encode(packed).decode())


def offer(about: dict[str, Any]) -> str:
    """What asks for the script of the model where a sentence may be typed."""
    words = f"Type your own: get the model, {about['bytes'] / 1e6:.0f} MB"
    return f"window.mhaOffer = {json.dumps(words)};\n{bundle(SCRIPTS / 'offer.js')}"


def _handed_on(name: str, text: str) -> str:
    return f"mhaPart({json.dumps(name)}, {json.dumps(text, ensure_ascii=False)});\n"


def script(about: dict[str, Any]) -> str:
    """What makes `window.mhaTyped`, a promise of `Typed`; no other file is fetched by it."""
    source, kernel = bundle(SCRIPTS / "typed.js").encode(), (SCRIPTS / "kernel.wasm").read_bytes()
    coded, wasm = (base64.b64encode(raw).decode() for raw in (source, kernel))
    return (
        f'window.mhaTyped ??= import("data:text/javascript;base64,{coded}").then(({{ Typed }}) => '
        f"new Typed({json.dumps(about)}, "
        f'Uint8Array.from(atob("{wasm}"), (c) => c.charCodeAt(0))));\n'
    )


def _parts(tensors: dict[str, Tensor]) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Names of files, each with its tensors: three of one size for each layer, and the rest."""
    yield (
        "embeddings",
        {
            "positions": tensors["positions.weight"][:POSITIONS],
            "segments": tensors["segments.weight"][0],
            **{name: tensors[name] for name in ("norm.weight", "norm.bias")},
        },
    )
    layers = {name: tensor for name, tensor in tensors.items() if name.startswith("layers.")}
    for i in range(len({name.split(".")[1] for name in layers})):
        for which, kinds in _KINDS.items():
            of_it = tuple(f"layers.{i}.{kind}." for kind in kinds)
            yield (
                f"layer-{i}-{which}",
                {name: tensor for name, tensor in layers.items() if name.startswith(of_it)},
            )


_KINDS = {"attention": ("attention", "norm_1"), "widen": ("widen",), "narrow": ("narrow", "norm_2")}


def _coded(*tensors: Tensor) -> str:
    """Their numbers, one after the other, as float16 in base64."""
    return base64.b64encode(
        b"".join(tensor.numpy().astype("<f2").tobytes() for tensor in tensors)
    ).decode()
