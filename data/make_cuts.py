"""Writes cuts.safetensors: what a cut of a ribbon does, in the first sentences that are offered.

    python data/make_cuts.py

Needs the pretrained weights. The model runs once for each cut, in float32; then the numbers are
rounded, so that another processor may write a last digit that differs by one: a test makes one
head's anew. One core takes some five minutes.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import save

from mha_course.explore.n00_cut import N_HEADS, N_LAYERS, Effects, computed
from mha_course.explore.n08_real_heads import OFFERED
from mha_lesson import pretrained

FILE = Path(__file__).parent / "cuts.safetensors"
WORDS = (14, 7, 7, 2)  # of the first sentences that are offered: the token that takes


def main(path: Path = FILE) -> None:
    torch.set_num_threads(1)
    model = pretrained.load()
    tensors, sentences = {}, []
    for i, (text, word) in enumerate(zip(OFFERED, WORDS, strict=False)):
        heads = [
            [computed(model, text, word, layer, head) for head in range(N_HEADS)]
            for layer in range(N_LAYERS)
        ]
        first = heads[0][0]
        sentences.append((text, first.labels, word))
        for name, scale in Effects.SCALES.items():
            rows = [torch.stack([getattr(head, name) for head in row]) for row in heads]
            values = first.widest if name == "widest" else torch.stack(rows)
            tensors[f"{i} {name}"] = (values * scale).round().to(torch.int16).contiguous()
    # One entry only: safetensors writes several in an order that changes from run to run.
    path.write_bytes(save(tensors, {"sentences": json.dumps(sentences)}))


if __name__ == "__main__":
    main()
