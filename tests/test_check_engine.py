"""The machinery of the checks: nothing escapes, nothing is left behind, and the words are plain."""

import json
import math
import random
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mha_lesson import check
from mha_lesson.check import journal
from mha_lesson.check.elsewhere import DEVICE, Elsewhere
from mha_lesson.check.exercise import Case, exercise
from mha_lesson.check.relations import relate, relate_numbers


@pytest.fixture(autouse=True)
def a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(journal, "_state", {})


def right(x: Tensor, n_heads: int) -> Tensor:
    return x.unflatten(-1, (n_heads, -1)).transpose(1, 2)


# --- not attempted yet ---------------------------------------------------------------------------


def _ellipsis(x: Any, n_heads: Any) -> Any: ...


def _returns_ellipsis(x: Any, n_heads: Any) -> Any:
    return ...


def _raises(x: Any, n_heads: Any) -> Any:
    raise NotImplementedError("your turn")


def _scaffold(x: Any, n_heads: Any) -> Any:
    d_k = x.shape[-1] // n_heads  # noqa: F841
    ...


@pytest.mark.parametrize("stub", [_ellipsis, _returns_ellipsis, _raises, _scaffold])
def test_a_stub_is_not_attempted_yet(stub: Any) -> None:
    report = check.split_heads(stub)
    assert report.passed is None and report.slips == ()
    assert str(report) == repr(report) == "split_heads: not attempted yet."


@pytest.mark.parametrize("name", [e.name for e in check.EXERCISES if e.bind is None])
def test_every_stub_function_is_open(name: str) -> None:
    assert getattr(check, name)(lambda *inputs: None).passed is None


class _Stub(nn.Module):
    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        ...

    def forward(self, x: Any, mask: Any = None) -> Any: ...


class _HalfStub(_Stub):
    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__(d_model, n_heads)
        self.w_q = nn.Linear(d_model, d_model)


class _RaisingStub(_Stub):
    def __init__(self, d_model: int, n_heads: int) -> None:
        raise NotImplementedError


@pytest.mark.parametrize("stub", [_Stub, _HalfStub, _RaisingStub])
def test_a_stub_class_is_not_attempted_yet(stub: Any) -> None:
    assert check.MultiHeadAttention(stub).passed is None


def test_a_forgotten_return_is_named() -> None:
    def answer(x: Any, n_heads: Any) -> Any:
        y = right(x, n_heads)  # noqa: F841

    assert check.split_heads(answer).slips == ("no_return",)


# --- nothing escapes -----------------------------------------------------------------------------


class Evil:
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: Any) -> bool:
        raise RuntimeError("no comparing")

    def __repr__(self) -> str:
        raise RuntimeError("no looking")


class BadError(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


def _raise(error: BaseException) -> Any:
    def answer(x: Any, n_heads: Any) -> Any:
        raise error

    return answer


def _endless(x: Any, n_heads: Any) -> Any:
    return _endless(x, n_heads)


@pytest.mark.parametrize(
    "answer",
    [
        *map(
            _raise, (SystemExit(), KeyboardInterrupt(), MemoryError(), BadError(), StopIteration())
        ),
        _endless,
        lambda x, h: Evil(),
        lambda x, h: [Evil()],
        lambda x, h: "text",
        lambda x, h: x.to_sparse(),
        lambda x, h: right(x, h).to(torch.complex64),
        lambda x, h: right(x, h).int(),
        lambda x, h: torch.quantize_per_tensor(x.float(), 0.1, 0, torch.qint8),
        lambda x, h: torch.empty(2, 3, device="meta"),
        lambda x, h: torch.empty(0),
        lambda x, h: (y for y in x),
        lambda x, h: x.resize_(1),
        lambda: None,
        lambda x, h, more: None,
        3,
        None,
        "split_heads",
        int,
    ],
)
def test_whatever_happens_a_check_reports(answer: Any) -> None:
    report = check.split_heads(answer)
    assert report.passed is False and report.findings
    assert "unjudged" not in report.slips
    assert str(report) and report._repr_html_()


def test_an_error_is_explained_by_the_learners_own_line() -> None:
    def answer(x: Tensor) -> Tensor:
        B, h, T, d_k = x.shape
        return x.permute(0, 2, 1, 3).view(B, T, h * d_k)

    report = check.merge_heads(answer)
    assert report.slips == ("error:view_needs_contiguous",)
    line = answer.__code__.co_firstlineno + 2
    assert f"Line {line} of your code, `return x.permute(0, 2, 1, 3).view" in str(report)
    assert "Traceback" not in str(report)


def test_prints_and_warnings_stay_inside(capsys: pytest.CaptureFixture[str]) -> None:
    def answer(x: Tensor, n_heads: int) -> Tensor:
        print("a line per call")
        print("an error", file=sys.stderr)
        warnings.warn("careful", stacklevel=1)
        return right(x, n_heads)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = check.split_heads(answer)
    assert report.passed and "printed" in str(report)
    assert capsys.readouterr() == ("", "")


def _states() -> list[Any]:
    return [
        torch.get_rng_state().tolist(),
        random.getstate(),
        np.random.get_state()[1].tolist(),
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.get_num_threads(),
        torch.get_default_device(),
    ]


def test_no_trace_in_the_global_state() -> None:
    def answer(x: Tensor, n_heads: int) -> Tensor:
        torch.manual_seed(1)
        random.seed(1)
        np.random.seed(1)
        torch.rand(3), np.random.rand(), random.random()
        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(False)
        torch.set_num_threads(2)
        return right(x, n_heads)

    before = _states()
    assert check.split_heads(answer).passed
    assert _states() == before


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_check_works_in_every_gradient_mode(mode: Any) -> None:
    with mode():
        report = check.masked_softmax(
            lambda s, m: (
                (s + torch.zeros_like(s).masked_fill(m, -math.inf)).softmax(-1).nan_to_num()
            )
        )
    assert report.slips == ("nan_gradient",)


def test_chance_is_noticed() -> None:
    report = check.split_heads(lambda x, h: F.dropout(right(x, h), 0.5))
    assert report.slips == ("random",)


def test_writing_into_the_input_is_told_and_forgiven() -> None:
    def answer(Q: Tensor, K: Tensor) -> Tensor:
        Q /= math.sqrt(Q.shape[-1])
        return Q @ K.mT

    report = check.attention_scores(answer)
    assert report.passed and "writes into its input" in str(report)


def test_a_report_says_the_same_every_time() -> None:
    def answer(x: Tensor, n_heads: int) -> Tensor:
        return torch.tanh(right(x, n_heads))

    first, second = check.split_heads(answer), check.split_heads(answer)
    assert str(first) == str(second) and first._repr_html_() == second._repr_html_()
    assert " at 0x" not in str(first)


# --- dtypes and devices --------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_fixed_dtype_is_named(dtype: torch.dtype) -> None:
    assert check.split_heads(lambda x, h: right(x, h).to(dtype)).slips == ("fixed_dtype",)


def test_elsewhere_follows_its_tensors() -> None:
    x, y = torch.ones(2, 3), torch.ones(2, 3)
    with Elsewhere([x]) as there:
        assert x.device == DEVICE and y.device.type == "cpu"
        for moved in (x + 1, x.T, x[0], x.new_zeros(2), torch.zeros(2, device=x.device), y.to(x)):
            assert there.has(moved)
        for stayed in (torch.zeros(2), x.cpu(), x.to("cpu"), torch.tensor([1.0, x[0, 0].item()])):
            assert not there.has(stayed)
        assert there.has(nn.Linear(3, 2, device=x.device)(x))
        for mixed in (
            lambda: x + y,
            lambda: x @ y.T,
            lambda: x.masked_fill(y > 0, 0.0),
            lambda: y[x > 0],
            lambda: torch.einsum("ij,ij->i", x, y),
            lambda: x.numpy(),
        ):
            with pytest.raises((RuntimeError, TypeError), match="device"):
                mixed()
        assert there.has(x / torch.tensor(3.0))  # a single number may come from anywhere


# --- words ---------------------------------------------------------------------------------------


def test_html_escapes_what_a_learner_wrote() -> None:
    def answer(x: Any, n_heads: Any) -> Any:
        raise ValueError("<script>alert(1)</script>")

    html = check.split_heads(answer)._repr_html_()
    assert "<script>" not in html and "&lt;script&gt;" in html


def test_a_wrong_answer_shows_both_tables() -> None:
    report = check.split_heads(lambda x, h: x.reshape(x.shape[0], h, x.shape[1], -1))
    assert report.slips == ("view_only",)
    assert "expected" in str(report) and "*" in str(report)
    assert report._repr_html_().count("<table") == 2


def test_shapes_are_told_in_letters() -> None:
    report = check.split_heads(lambda x, h: right(x, h).flatten(0, 2))
    assert "(B, n_heads, T, d_k)" in str(report)


SIZES = {"T": 5, "d_k": 7}


@pytest.mark.parametrize(
    ("change", "key", "words"),
    [
        (lambda e: e * math.sqrt(7), "factor", "√d_k"),
        (lambda e: e + 2, "offset", "plus 2"),
        (lambda e: e.roll(1, 0), "flipped_or_rolled", "shifted by 1"),
        (lambda e: e.flatten().flip(0).view_as(e), "shuffled", "wrong places"),
        (lambda e: e * 0 + 3, "constant", "is 3"),
        (lambda e: torch.cat([e[:1] + 1, e[1:]]), "partly_right", "but position 0"),
        (lambda e: e.T, "moved_axes", "axis 1, axis 0"),
        (lambda e: e.sum(0), "reduced", "sum"),
        (lambda e: e[1:], "a_slice", "first position"),
    ],
)
def test_relations_between_wrong_and_right(change: Any, key: str, words: str) -> None:
    expected = torch.rand(5, 7, generator=torch.Generator().manual_seed(0)) + 0.1
    finding = relate([(change(expected), expected, SIZES)])
    assert finding is not None and finding.key == f"relation:{key}" and words in finding.does


def test_relations_between_counts() -> None:
    sizes = [{"T": 5, "d_model": 7}, {"T": 3, "d_model": 11}, {"T": 2, "d_model": 13}]
    gap = relate_numbers([(10 + 2 * s["T"] * s["d_model"], 10, s) for s in sizes])
    assert gap is not None and "2·T·d_model too many" in gap.does
    share = relate_numbers([(3 * s["T"], 6 * s["T"], s) for s in sizes])
    assert share is not None and "0.5 times" in share.does


def test_a_teacher_adds_a_slip_with_a_function_and_a_sentence() -> None:
    def doubled(n: int) -> int:
        return 2 * n

    @exercise(0, "00", cases=lambda: (Case((n,), {"n": n}) for n in (2, 3, 5)), gives=("n",))
    def twice(n: int, *, double: Any = doubled) -> int:
        return double(n)

    @twice.slip("double", "It squares n instead of doubling it.", "What is twice 3?")
    def squared(n: int) -> int:
        return n * n

    from mha_lesson.check.engine import check as judge

    report = judge(twice, lambda n: n**2)
    assert report.slips == ("squared",) and "squares n" in str(report)
    assert judge(twice, lambda n: n + n).passed
    with pytest.raises(ValueError, match="squared"):
        twice.slip("double", "Again.", "Why?", key="squared")(squared)
    with pytest.raises(ValueError, match="halve"):
        twice.slip("halve", "No such step.", "Which?")(doubled)


# --- progress ------------------------------------------------------------------------------------


def _states_of(table: journal.Progress) -> dict[str, str]:
    return {name: state for *_, name, state in table.rows}


def test_progress_in_this_kernel() -> None:
    assert set(_states_of(check.progress()).values()) == {"open"}
    check.split_heads(_ellipsis)
    check.split_heads(lambda x, h: x)
    assert _states_of(check.progress())["split_heads"] == "tried"
    check.split_heads(right)
    check.split_heads(lambda x, h: x)  # what was done once stays done
    table = check.progress()
    assert _states_of(table)["split_heads"] == "done"
    assert len(table.rows) == 14 and "1 of 14 done" in str(table)
    assert not Path(journal.FILE).exists()


def test_progress_is_kept_only_where_the_learner_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    check.split_heads(right)
    assert "kept in" in str(check.progress(keep=True))
    monkeypatch.setattr(journal, "_state", {})  # another kernel, in the same folder
    check.causal_mask(lambda T: torch.ones(T, T).triu(1).bool())
    check.merge_heads(lambda x: x)
    kept = json.loads(Path(journal.FILE).read_text())
    assert kept == {"split_heads": "done", "causal_mask": "done", "merge_heads": "tried"}
    assert _states_of(check.progress())["split_heads"] == "done"
    check.progress(keep=False)
    assert not Path(journal.FILE).exists()


@pytest.mark.parametrize("content", ["", "[1]", '{"split_heads": 3}', "\x00"])
def test_a_broken_file_of_progress_is_no_harm(content: str) -> None:
    Path(journal.FILE).write_text(content)
    assert check.split_heads(right).passed
    assert _states_of(check.progress())["split_heads"] == "done"


# --- weight --------------------------------------------------------------------------------------


def test_a_check_imports_nothing_heavy() -> None:
    code = (
        "import sys, torch; from mha_lesson import check; "
        "check.attention_scores(lambda Q, K: Q @ K.mT / K.shape[-1] ** 0.5); "
        "check.attention_scores(lambda Q, K: Q @ K.mT); "
        "print([m for m in ('matplotlib', 'sympy', 'torch._dynamo', 'ipywidgets') "
        "if m in sys.modules])"
    )
    folder = Path(check.__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=folder, check=True
    )
    assert done.stdout.strip() == "[]"
