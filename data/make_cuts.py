"""Writes cuts.safetensors: what a cut does, in the offered sentences and the famous one.

    python data/make_cuts.py

Needs the pretrained weights. The model runs once for each cut, in float32; then the numbers are
rounded, so that another processor may write a last digit that differs by one: a test makes one
head's anew. One core takes some four minutes.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import save

from mha_course.explore.n00_cut import N_HEADS, N_LAYERS, Effects, computed
from mha_course.explore.n08_real_heads import OFFERED
from mha_lesson import pretrained

FILE = Path(__file__).parent / "cuts.safetensors"
FAMOUS = "The animal didn't cross the street because it was too tired."  # of notebook 08
WORDS = (14, 7, 7, 2, 10, 10, 5, 3, 8, 6, 5, 5, 8, 4, 4, 10)  # of each: the token that takes


def main(path: Path = FILE) -> None:
    torch.set_num_threads(1)
    model = pretrained.load()
    tensors, sentences = {}, []
    for i, (text, word) in enumerate(zip((*OFFERED, FAMOUS), WORDS, strict=True)):
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
