"""Notebook 11: how its counts grow, and the lines that compile a step."""

import re
from functools import partial

import pytest
import torch

import notebooks
from mha_course import runs
from mha_lesson import (
    GroupedQueryAttention,
    KVCache,
)

# That a cache changes no number: tests/lesson/test_decoding.py, any way of cutting.


def scores_made(n, cached):
    """Counted in a layer that writes n tokens, not on paper."""
    layer, x, made = GroupedQueryAttention(6, 1, 1), torch.zeros(1, n, 6), 0
    cache = KVCache()
    with torch.no_grad():
        for t in range(n):
            if cached:
                weights = layer(x[:, t : t + 1], cache, return_weights=True)[1]
            else:
                weights = layer(x[:, : t + 1], return_weights=True)[1]
            made += int((weights > 0).sum())
    return made


def test_rows_grow_in_line_and_scores_with_the_square():
    for n in (5, 13, 29):
        assert scores_made(n, True) == n * (n + 1) // 2
        assert scores_made(n, False) == n * (n + 1) * (n + 2) // 6
    assert scores_made(58, True) > 3.8 * scores_made(29, True)


@pytest.mark.plain
@pytest.mark.long  # imports PyTorch's compiler
def test_the_three_lines_that_compile_a_step_write_the_same(monkeypatch, capsys):
    """As the text has them, traced but not made into a program, which takes long."""
    book = notebooks.read(notebooks.paths("11")[0])
    sources = {cell.id: cell.source for cell in book.cells}
    writing = [s for s in sources.values() if s.startswith("@torch.no_grad()\ndef write")]
    (lines,) = re.findall(r"```python\n(.*?)```", sources["time-compiled"], re.S)
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    torch.compiler.reset()
    scope = {"torch": torch, "KVCache": KVCache, "alphabet": runs.alphabet(), "device": "cpu"}
    scope["writer"] = runs.load("writer").model.cpu().eval()
    exec("\n".join(writing), scope)
    plain = scope["write_cached"](scope["writer"], "Catherine ", 60)
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend, fullgraph=True))
    exec(lines, scope)
    assert capsys.readouterr().out == f"{plain}\n" and len(lines.splitlines()) == 3
    assert len(graphs) <= 3, "a prompt, its first letter, all others"
