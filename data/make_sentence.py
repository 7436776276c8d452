"""Writes sentence.safetensors: one real sentence, its vectors and one layer of the published model.

    python data/make_sentence.py

Needs the pretrained weights (`make setup` installs them); their hash is compared before they are
read. The vectors are computed in float64 and then rounded, so that another processor or another
torch writes the same bytes: their last digits differ far below what float32 keeps.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import save

from mha_lesson import pretrained
from mha_lesson.text import LAYER, SENTENCE

FILE = Path(__file__).parent / "sentence.safetensors"


def main(path: Path = FILE) -> None:
    model = pretrained.load()
    model.encoder.double()
    encoded = model.encode(SENTENCE)
    attention = model.encoder.layers[LAYER].attention
    tensors = {"embeddings": encoded.hidden[0], "hidden": encoded.hidden[LAYER]}
    for kind, stacked in (("w", attention.w_qkv.weight), ("b", attention.w_qkv.bias)):
        for name, rows in zip("qkv", stacked.chunk(3), strict=True):
            tensors[f"{kind}_{name}"] = rows
    tensors["w_o"], tensors["b_o"] = attention.w_o.weight, attention.w_o.bias
    tensors = {name: tensor.to(torch.float32).contiguous() for name, tensor in tensors.items()}
    # One entry only: safetensors writes several in an order that changes from run to run.
    words = json.dumps({"text": SENTENCE, "tokens": encoded.tokens, "layer": LAYER})
    path.write_bytes(save(tensors, {"sentence": words}))


if __name__ == "__main__":
    main()
