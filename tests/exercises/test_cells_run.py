"""A check notices that the cell it is to judge did not run: in IPython, where cells are kept."""

import gc
from collections.abc import Iterator

import pytest
from IPython.core.interactiveshell import InteractiveShell

from mha_course import check

RIGHT = "def causal_mask(T):\n    return torch.ones(T, T, dtype=torch.bool).triu(1)"
FAILS = {
    "no colon": "def causal_mask(T)\n    return None",
    "a bracket too few": "def causal_mask(T):\n    return (torch.ones(T, T)",
    "indented further": "def causal_mask(T):\n    x = T\n      return x",
    "misspelt": "dfe causal_mask(T):\n    return T",
    "an error before it": "import nowhere_at_all\n\ndef causal_mask(T):\n    return T",
    "an error of a decorator": "@nobody\ndef causal_mask(T):\n    return T",
}
RUNS = {
    "another cell": "x = 1",
    "another cell that fails": "1 / 0",
    "a cell that speaks of it": "print(causal_mask(3)",
    "a helper of that name": "class Masks:\n    def causal_mask(self):\n        return 1 / 0",
    "the same again": RIGHT,
    "an error after it": f"{RIGHT}\n\n1 / 0",
    "timed": f"%%time\n{RIGHT}",
    "by other means": f"exec({RIGHT!r})",
}


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Iterator[InteractiveShell]:
    gc.freeze()  # else each reset, which collects, looks through all that other tests have left
    shell = InteractiveShell.instance()
    shell.reset()
    for cell in ("import torch\nfrom mha_course import check", RIGHT):
        shell.run_cell(cell, store_history=True)
    yield shell
    InteractiveShell.clear_instance()


def report_on(shell: InteractiveShell, cell: str) -> check.Report:
    shell.run_cell(cell, store_history=True)
    shell.run_cell("report = check.causal_mask(causal_mask)", store_history=True)
    report: check.Report = shell.user_ns["report"]
    return report


@pytest.mark.parametrize("cell", FAILS.values(), ids=[*FAILS])
def test_what_stood_there_before_is_not_judged(shell: InteractiveShell, cell: str) -> None:
    report = report_on(shell, cell)
    assert (report.passed, report.slips) == (None, ("stale",)), report
    assert report_on(shell, RIGHT).passed


@pytest.mark.parametrize("cell", RUNS.values(), ids=[*RUNS])
def test_what_ran_is_judged(shell: InteractiveShell, cell: str) -> None:
    assert report_on(shell, cell).passed


def test_a_class_whose_cell_failed(shell: InteractiveShell) -> None:
    cell = "from torch import nn\n\nclass MultiHeadAttention(nn.Module):\n    h = {}\n"
    cell += "    def forward(self, x): return x"
    shell.run_cell(cell.format(1), store_history=True)
    shell.run_cell(cell.format("nobody"), store_history=True)
    shell.run_cell("report = check.MultiHeadAttention(MultiHeadAttention)", store_history=True)
    assert shell.user_ns["report"].slips == ("stale",)


def test_without_ipython_nothing_is_said() -> None:
    assert check.causal_mask(lambda T: None).slips == ()
