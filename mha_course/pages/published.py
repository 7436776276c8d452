"""The published model as files beside the pages: float16 in scripts, which load from a disk too.

What a file holds are bytes in a string of a script, so that model/files.js can take them from a
server as they are and from a disk by running the script, which is read with a sign for each byte.
"""

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
SCRIPT = "typed.js"  # on the site
# Its name, its bytes, and its tensors: each with how many bytes stay, and how many float16 follow.
File = tuple[str, bytes, list[tuple[str, int, int]]]


def write(folder: Path) -> dict[str, Any]:
    """Writes the model's files into `folder / NAME`, and gives what model.js is told about them.

    Raises:
        WeightsMissing: the weights are not installed, or not the published ones.
    """
    about = put(folder / NAME, _files(pretrained.load())) | {"shard": SHARD}
    words = sum(size for name, size in about["sizes"].items() if name.startswith("words-"))
    return about | {"bytes": about["all"] - words}


def put(folder: Path, files: Iterator[File]) -> dict[str, Any]:
    """Makes a folder of such files, and gives what the `Memory` of model/kernel.js is told."""
    folder.mkdir()
    parts, sizes = {}, {}
    for name, raw, tensors in files:
        parts[name] = tensors
        sizes[name] = (folder / f"{name}.js").write_bytes(handed_on(name, raw))
    return {"folder": folder.name, "parts": parts, "sizes": sizes, "all": sum(sizes.values())}


def pictures() -> bytes:
    """The file for `folder / NAME` with the pictures that typed sentences fill."""
    return handed_on("heads", live.whole(n08_real_heads.places().pack()))


def handed_on(name: str, raw: bytes) -> bytes:
    """A file of model/files.js: all bytes but four stand for themselves."""
    for sign, written in ((b"\\", b"\\\\"), (b'"', b'\\"'), (b"\n", b"\\n"), (b"\r", b"\\r")):
        raw = raw.replace(sign, written)
    return b'mhaPart("%s","%s");\n' % (name.encode(), raw)


def script(about: dict[str, Any]) -> str:
    """What makes `window.mhaTyped`, a promise of `Typed`; no other file is fetched by it."""
    return f"window.mhaTyped ??= {made('typed.js', 'Typed', json.dumps(about), kernel())};\n"


def made(entry: str, name: str, *arguments: str) -> str:
    """A script's expression: the promise of a class of a module of model/, made with these."""
    source = base64.b64encode(bundle(SCRIPTS / entry).encode()).decode()
    module = f'import("data:text/javascript;base64,{source}")'
    return f"{module}.then((module) => new module.{name}({', '.join(arguments)}))"


def kernel() -> str:
    """A script's expression for the bytes of kernel.wasm."""
    wasm = base64.b64encode((SCRIPTS / "kernel.wasm").read_bytes()).decode()
    return f'Uint8Array.from(atob("{wasm}"), (c) => c.charCodeAt(0))'


def _files(model: pretrained.PretrainedModel) -> Iterator[File]:
    """The vocabulary, layers, and the table of words, whose rows stay as they are coded."""
    vocabulary, tensors = model.tokenizer.get_vocab(), dict(model.encoder.state_dict())
    pieces = sorted(vocabulary, key=lambda piece: vocabulary[piece])
    yield "vocabulary", "\n".join(pieces).encode(), []
    words = tensors.pop("words.weight")
    for name, part in _parts(tensors):
        sizes = [(of.removesuffix(".weight"), 0, values.numel()) for of, values in part.items()]
        yield name, _coded(*part.values()), sizes
    for i, some in enumerate(words.split(SHARD)):
        yield f"words-{i}", _coded(some), []


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


def _coded(*tensors: Tensor) -> bytes:
    """Their numbers, one after the other, as float16."""
    return b"".join(tensor.numpy().astype("<f2").tobytes() for tensor in tensors)
