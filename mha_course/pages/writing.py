"""The published writing model as files beside the pages: its own 4 and 8 bits, in scripts.

A file for the merges, one for each layer, one for the last norm, and one for each 1,024 words: in
this order writer.js asks for them. Of a tensor come first its whole numbers, then all float16
factors; norms are float32.
"""

import json
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mha_course.base.scripts import bundle
from mha_course.pages.published import SCRIPTS, File, kernel, made, put
from mha_lesson import smollm

SHARD = 1024  # words in a file
PROMPT = 8  # such files that a prompt of a dozen words asks for: of 400 in data/'s novel none more
SCRIPT = "writing.js"  # on the site
NAME = f"model-{smollm.SHA256[smollm.FILE][:12]}"
LAYER = {  # what the script calls the parts of a layer, each of rows one below the other
    "before": ["norm_1"],
    "qkv": ["attn_q", "attn_k", "attn_v"],
    "o": ["attention.w_o"],
    "after": ["norm_2"],
    "gate_up": ["gate", "up"],
    "down": ["down"],
}


def write(folder: Path) -> dict[str, Any]:
    """Writes the model's files into `folder / NAME`, and gives what writer.js is told about them.

    Raises:
        WeightsMissing: the weights are not installed, or not the published ones.
    """
    said, *stored = smollm.stored_in(smollm.PACKAGE.path(smollm.FILE))
    first, merges = _tokens(said["tokenizer.ggml.tokens"], said["tokenizer.ggml.merges"])
    tensors = _parts({name: rest for name, *rest in stored})
    about = put(folder / NAME, chain([("merges", merges, [])], tensors))
    return about | {"shard": SHARD, "first": first}


def offers(typed: dict[str, Any] | None, writer: dict[str, Any] | None) -> str:
    """What offers the models of which `write`, here and in `published`, has told this."""
    said: dict[str, Any] = {}
    if typed:
        said["typed"] = f"Type your own: get the model, {typed['bytes'] / 1e6:.0f} MB"
    if writer:
        sizes = writer["sizes"]
        first = sizes["merges"] + sizes["layer-0"] + PROMPT * sizes["words-0"]
        said["writer"] = {"first": first, "all": writer["all"]}
    return f"window.mhaOffers = {json.dumps(said)};\n{bundle(SCRIPTS / 'offer.js')}"


def script(about: dict[str, Any]) -> str:
    """What makes `window.mhaWriting`, a promise of `Writing`; no other file is fetched by it."""
    # Not a module: on a disk a page cannot start one.
    worker = re.sub("^export ", "", bundle(SCRIPTS / "worker.js"), flags=re.M)
    writing = made("writing.js", "Writing", json.dumps(about), json.dumps(worker), kernel())
    return f"window.mhaWriting ??= {writing};\n"


def _parts(stored: dict[str, Any]) -> Iterator[File]:
    for i in range(smollm.N_LAYERS):
        tensors = {}
        for name, joined in LAYER.items():
            rows = [_rows(of, *stored[f"layers.{i}.{of}.weight"]) for of in joined]
            tensors[f"{i}.{name}"] = torch.cat([row for row, _ in rows]), rows[0][1]
        yield _file(f"layer-{i}", tensors)
    yield _file("last", {"last": _rows("norm.weight", *stored["norm.weight"])})
    shape, kind, words = stored["words"]
    for i, some in enumerate(words.view(shape[0], -1).split(SHARD)):
        yield _file(f"words-{i}", {f"words-{i}": (some, kind)})


def _file(name: str, tensors: dict[str, tuple[Tensor, int]]) -> File:
    apart = {of: _apart(*rows) for of, rows in tensors.items()}
    sizes = [(of, len(whole), len(factors) // 2) for of, (whole, factors) in apart.items()]
    return name, b"".join(whole + factors for whole, factors in apart.values()), sizes


def _rows(name: str, shape: list[int], kind: int, data: Tensor) -> tuple[Tensor, int]:
    """A tensor's bytes row by row, in the order of `rotate`, and its kind."""
    rows = data.view(shape[0], -1)
    n_heads = {"attn_q": smollm.N_HEADS, "attn_k": smollm.N_KV_HEADS}.get(name)
    return (smollm.in_halves(rows, n_heads) if n_heads else rows), kind


def _apart(rows: Tensor, kind: int) -> tuple[bytes, bytes]:
    """Whole numbers of all blocks, and all factors, two of a block (Q4_1) or one; or float32."""
    if kind == 0:
        return rows.numpy().tobytes(), b""
    n_factors = {3: 4, 8: 2}[kind]
    blocks = rows.reshape(-1, n_factors + {3: 16, 8: 32}[kind])
    return blocks[:, n_factors:].numpy().tobytes(), blocks[:, :n_factors].numpy().tobytes()


def _tokens(tokens: list[str], merges: list[str]) -> tuple[list[int | str], bytes]:
    """Tokens before any merge, each a byte or a special one's name; pairs of numbers, uint16."""
    n_first = len(tokens) - len(merges)
    number = {token: i for i, token in enumerate(tokens)}
    pairs = [merge.split(" ") for merge in merges]
    if tokens[n_first:] != ["".join(pair) for pair in pairs]:
        raise ValueError("tokens must be what the merges make, in their order; they are not.")
    seen = [*range(33, 127), *range(161, 173), *range(174, 256)]  # stand for themselves
    hidden = [byte for byte in range(256) if byte not in seen]
    byte_of = {chr(byte): byte for byte in seen}
    byte_of |= {chr(256 + i): byte for i, byte in enumerate(hidden)}
    halves = torch.tensor([[number[half] for half in pair] for pair in pairs], dtype=torch.uint16)
    return [byte_of.get(token, token) for token in tokens[:n_first]], halves.numpy().tobytes()
