"""The verdicts of notebook 13, with other seeds and sizes than the notebook's."""

import json
import re

import pytest
from test_published_models import BOOK, lines_of_the_notebook

from mha_course.collection.shipped import draw
from mha_lesson import text

SEEDS = (21, 22, 23)


def test_the_caches_side_by_side_grow_in_as_many_layers_as_the_words_beside_them_say():
    models = {m["name"]: m for m in json.loads(text.data_file("models.json").read_text())["models"]}
    cells = json.loads(BOOK.read_text("utf-8"))["cells"]
    [cell] = [c for c in cells if "".join(c["source"]).startswith("why = {")]
    _, *rows = "".join(cell["outputs"][0]["text"]).splitlines()
    assert len(rows) == 10
    for row in rows:
        about = models[row[:18].strip()]
        growing, of = re.search(r"(\d+)(?: of (\d+))?(?: layers)? grow", row).groups()
        far = [about["kinds"][one]["far"] for one in about["pattern"]]
        assert (int(growing), int(of or growing)) == (sum(map(bool, far)), len(far))
        for heads, width in re.findall(r"(\d+) (?:key )?heads of (\d+)$", row):
            kept = {kind["kept_far"] for kind in about["kinds"].values() if kind["far"]}
            assert kept == {2 * int(heads) * int(width)}


@pytest.mark.parametrize("seed", SEEDS)
def test_speculative_decoding_draws_from_the_large_model(seed):
    p, q = draw(2, 7, seed=seed).mul(2).softmax(dim=-1)
    exact = lines_of_the_notebook().spoken
    for small in (q, p, p * (1 + 1e-14 * draw(7, seed=seed + 1))):  # itself, or nearly so, too
        assert (exact(p, small) - p).abs().max() < 1e-12
