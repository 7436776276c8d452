"""Writes minilm_reference.safetensors: what the published code makes of the published weights.

    pip install -e '.[dev]' -c constraints.txt
    python data/make_minilm_reference.py

Nothing of this package computes here, only transformers' BertModel, on a padded batch of sentences.
In float64, then rounded: so these are the true values, and any machine writes the same bytes.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import save
from transformers import BertModel, BertTokenizerFast

from mha_lesson.pretrained import weights_path
from mha_lesson.text import SENTENCE

FILE = Path(__file__).parent / "minilm_reference.safetensors"
TEXTS = (
    SENTENCE,
    "Attention!",
    "A quokka's unhurried yawn amused 27 ornithologists.",
    "Where did the keys to the cellar go?",
)


@torch.no_grad()
def main(path: Path = FILE) -> None:
    folder = weights_path().parent
    tokenizer = BertTokenizerFast.from_pretrained(folder)
    model = BertModel.from_pretrained(
        folder, attn_implementation="eager", dtype=torch.float64
    ).eval()
    batch = tokenizer(list(TEXTS), padding=True, return_tensors="pt")
    found = model(**batch, output_hidden_states=True, output_attentions=True)
    tensors = {
        "ids": batch["input_ids"],
        "lengths": batch["attention_mask"].sum(dim=1),
        "hidden": torch.stack(found.hidden_states).to(torch.float32),  # (7, B, T, d_model)
        "weights": torch.stack(found.attentions).to(torch.float32),  # (6, B, h, T, T)
    }
    path.write_bytes(save(tensors, {"texts": json.dumps(TEXTS)}))


if __name__ == "__main__":
    main()
