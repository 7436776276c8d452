"""Writes sentence.safetensors: one real sentence, its vectors and one layer of the published model.

    python data/make_sentence.py

Needs the pretrained weights (`make setup` installs them); their hash is compared before they are
read. On the same torch version and processor family the file is written bit for bit the same.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import save

from mha_lesson import pretrained
from mha_lesson.text import LAYER, SENTENCE

FILE = Path(__file__).parent / "sentence.safetensors"


def main(path: Path = FILE) -> None:
    torch.set_num_threads(1)
    model = pretrained.load()
    encoded = model.encode(SENTENCE)
    attention = model.encoder.layers[LAYER].attention
    tensors = {"embeddings": encoded.hidden[0], "hidden": encoded.hidden[LAYER]}
    for name, weight, bias in zip(
        ("q", "k", "v"),
        attention.w_qkv.weight.chunk(3),
        attention.w_qkv.bias.chunk(3),
        strict=True,
    ):
        tensors[f"w_{name}"], tensors[f"b_{name}"] = weight, bias
    tensors["w_o"], tensors["b_o"] = attention.w_o.weight, attention.w_o.bias
    # One entry only: safetensors writes several in an order that changes from run to run.
    words = json.dumps({"text": SENTENCE, "tokens": encoded.tokens, "layer": LAYER})
    tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
    path.write_bytes(save(tensors, {"sentence": words}))


if __name__ == "__main__":
    main()
