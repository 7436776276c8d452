"""Practice: what comes back when, in which dress, and what is said of the last time."""

import random
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import notebooks
from mha_course import check
from mha_course.__main__ import main as command
from mha_course.check import from_memory, journal, schedule
from mha_course.check.engine.changes import changes
from mha_course.check.engine.compare import difference
from mha_course.check.engine.places import Bounded, versions
from mha_course.check.engine.safely import fresh, undisturbed
from mha_course.check.engine.source import Source
from mha_course.check.exercises.variants import VARIANTS
from mha_course.check.journal import Attempt

pytestmark = pytest.mark.plain

MONDAY = date(2026, 3, 2)
COURSE = [name for name in check.practice.exercises]
ALL = {v.name: v for found in VARIANTS.values() for v in found}


@pytest.fixture
def sitting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A learner's folder, with an empty journal and a clock that the test sets."""
    (tmp_path / journal.COPY).write_text("{}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(journal, "_state", {})
    monkeypatch.setattr(journal, "_attempts", [])

    def on(day: date) -> None:
        monkeypatch.setattr(journal, "today", lambda: day)

    on(MONDAY)
    return on


def days_until(tried: list[tuple[int, bool]], name: str = "split_heads") -> int:
    """Days from the last practice until it is due; (day, known at the first try)."""
    attempts = []
    for n, known in tried:
        attempts.append(Attempt(MONDAY + timedelta(n), name, known, asked=name))
    (found,) = schedule.due(attempts, {}, COURSE)
    return (found.day - attempts[-1].day).days


def test_the_wait_doubles_as_long_as_it_is_known():
    assert days_until([(0, False)]) == 1
    known = [(n, True) for n in (0, 2, 6, 14, 30, 62, 126, 190)]
    assert [days_until(known[:n]) for n in range(1, 9)] == [2, 4, 8, 16, 32, 64, 64, 64]
    assert days_until([*known[:3], (14, False)]) == 1
    assert days_until([*known[:3], (14, False), (15, True)]) == 2


def test_what_is_mended_after_a_message_keeps_its_wait():
    assert days_until([(0, True), (2, True), (6, False), (6, True)]) == 4
    in_the_course = [Attempt(MONDAY, "split_heads", True), Attempt(MONDAY, "split_heads", False)]
    (found,) = schedule.due(in_the_course, {}, COURSE)
    assert (found.box, found.sittings, found.day) == (0, 0, MONDAY + timedelta(1))


def test_first_what_was_never_solved_by_heart_then_what_is_due_longest():
    def at(n: int, name: str, *slips: str, asked: bool = True) -> Attempt:
        day = MONDAY + timedelta(n)
        return Attempt(day, name, not slips, slips, name if asked else "")

    attempts = [
        at(0, "split_heads"), at(0, "merge_heads"), at(1, "attention", asked=False),
        at(1, "causal_mask", "keep_mask", asked=False), at(2, "merge_heads"),
        at(3, "rotate", asked=False),
    ]  # fmt: skip
    found = [
        d.name for d in schedule.due(attempts, {"solved": "done", "cached_mask": "done"}, COURSE)
    ]
    assert found == [
        "cached_mask", "causal_mask", "attention", "rotate", "split_heads", "merge_heads",
    ]  # fmt: skip


def test_six_weeks_bring_back_what_they_should(sitting):
    """Answers right, wrong and skipped; against a table kept by hand, as cards in boxes."""
    chance = random.Random(3)
    card: dict[str, tuple[int, date]] = {}  # name -> box, due
    asked: dict[str, int] = dict.fromkeys(COURSE, 0)
    for name in COURSE[:8]:
        journal.remember(check.Report(name, True))
        card[name] = 0, MONDAY + timedelta(1)
    for n in range(1, 43):
        day = MONDAY + timedelta(n)
        sitting(day)
        ready = [name for name, (_, due) in card.items() if due <= day]
        chosen = check.practice.chosen(day)
        names = [d.name for d in chosen]
        never = [name for name in ready if card[name][0] == 0]
        assert names == [from_memory.CLASS] or from_memory.CLASS not in names
        minutes = sum(from_memory.statements()[name].minutes for name in names)
        assert len(names) == from_memory.MOST or minutes > from_memory.MINUTES - 20
        assert minutes <= from_memory.MINUTES
        assert not never or card[names[0]][0] == 0
        if len(ready) == 1:
            assert ready[0] in names
        for one in chosen:
            dress = check.practice.dressed(one)
            assert dress.name in (one.name, *(v.name for v in VARIANTS.get(one.name, ())))
            does = chance.choice(["right", "wrong", "mended", "skipped"])
            if does == "skipped":
                continue
            asked[one.name] += 1
            box = card.get(one.name, (0, day))[0]
            if does != "right":
                journal.remember(check.Report(dress.name, False), one.name)
            if does != "wrong":
                journal.remember(check.Report(dress.name, True), one.name)
            box = {"right": min(box + 1, 6), "mended": box, "wrong": 0}[does]
            card[one.name] = box, day + timedelta(2**box)
        assert {d.name: (d.box, d.day) for d in check.practice.due()} == card
    assert sum(asked.values()) > 60 and min(asked[name] for name in COURSE[:6]) >= 2


def test_without_a_journal_it_begins_with_the_short_way(sitting):
    assert [d.name for d in check.practice.chosen(MONDAY)] == [
        "attention_scores", "attention", "project_qkv",
    ]  # fmt: skip


def test_a_log_that_was_cut_off_or_is_not_ours_loses_nothing_else(sitting):
    journal.remember(check.Report("split_heads", True), "split_heads")
    log = Path(journal.LOG)
    whole = log.read_text()
    log.write_text('{"day": "2026-0\n[1]\nnull\n\n' + whole + '{"name": "split')
    assert [a.name for a in journal.attempts()] == ["split_heads"]
    check.progress(keep=False)
    assert not log.exists()
    journal.remember(check.Report("split_heads", True), "split_heads")
    assert not log.exists()


def test_the_notebook(sitting, tmp_path):
    first, second = check.practice(), check.practice(whole_class=True)
    assert first.path != second.path and first.path.parent == tmp_path
    notebook = notebooks.read(first.path)
    code = [c for c in notebook.cells if c.cell_type == "code"]
    assert not any(c.outputs for c in code)
    text = "\n".join(c.source for c in notebook.cells)
    assert "Solution" not in text and "<summary>Hint" in text
    assert text.count("So it is.") + text.count("Measured:") == from_memory.MOST
    names = {}
    exec(code[0].source, names)
    for cell in code[1:]:
        exec(cell.source, names)
    assert sum("check.practice." in c.source for c in code) == 1 + from_memory.MOST
    whole = "\n".join(c.source for c in notebooks.read(second.path).cells)
    assert "class MultiHeadAttention" in whole and "Twenty minutes" in whole


def test_the_command_writes_into_my_notebooks(sitting, tmp_path, monkeypatch, capsys):
    journal.remember(check.Report("rotate", False))
    tmp_path.rename(tmp_path.with_name("my_notebooks"))
    monkeypatch.chdir(tmp_path.parent)
    sitting(MONDAY + timedelta(1))
    assert command(["practice"]) == 0
    path = tmp_path.with_name("my_notebooks") / "practice_2026-03-03.ipynb"
    assert str(path) in capsys.readouterr().out
    assert "check.practice.rotate(rotate)" in path.read_text()


def test_every_exercise_can_be_written_from_an_empty_page():
    """The solution of the course, with nothing but what the first cell imports."""
    for path in notebooks.paths():
        for code in notebooks.solutions(notebooks.read(path)).values():
            names: dict[str, Any] = {}
            exec(from_memory.SETUP.split("from mha_course")[0], names)
            exec(code, names)
            name = next(n for n in names if n in from_memory.statements())
            if name in COURSE:
                assert from_memory.statements()[name].says and from_memory.statements()[name].stub
                report = getattr(check, name)(names[name])
                assert report.passed, report


def test_what_has_changed_since_last_time(sitting, monkeypatch):
    def unscaled(Q, K):
        return Q @ K.mT

    first = check.practice.attention_scores(unscaled)
    assert not first.passed and "March" not in str(first)
    sitting(MONDAY + timedelta(8))
    again = str(check.practice.attention_scores(unscaled))
    assert "As on Monday, 2 March: " in again
    mended = check.practice.attention_scores(
        check.attention_scores.right.__wrapped__
        if False
        else lambda Q, K: Q @ K.mT / K.shape[-1] ** 0.5
    )
    assert mended.passed and "Not as on Monday, 2 March: " in str(mended)
    assert [a.passed for a in journal.attempts()] == [False, False, True]
    monkeypatch.setattr(from_memory.time, "monotonic", lambda: 0.0)
    check.practice.begin()
    monkeypatch.setattr(from_memory.time, "monotonic", lambda: 14 * 60.0)

    class MultiHeadAttention(torch.nn.Module):
        def __init__(self, d_model, n_heads):
            super().__init__()
            self.n_heads = n_heads
            self.w_q, self.w_k, self.w_v, self.w_o = (
                torch.nn.Linear(d_model, d_model) for _ in range(4)
            )

        def forward(self, x, mask=None):
            return x

    assert "It took 14 minutes." in str(check.practice.MultiHeadAttention(MultiHeadAttention))


def test_an_untouched_stub_is_no_attempt(sitting):
    assert check.practice.split_heads(lambda x, n_heads: ...).passed is None
    assert journal.attempts() == []
    with pytest.raises(AttributeError, match=r"practice asks for .*; got no_such"):
        _ = check.practice.no_such


def test_progress_names_what_is_due(sitting):
    assert "practice" not in str(check.progress())
    journal.remember(check.Report("split_heads", True), "split_heads")
    assert "practice" not in str(check.progress())
    sitting(MONDAY + timedelta(2))
    assert "`check.practice()` has ready: split_heads." in str(check.progress())


# --- the variants ---------------------------------------------------------------------------------


def scores_of(Q, K):
    return (
        torch.stack([q @ k.T for q, k in zip(Q.unbind(1), K.unbind(1), strict=True)])
        / Q.shape[2] ** 0.5
    )


def scores_of_2(Q, K):
    return torch.einsum("ibd,jbd->bij", Q / Q.shape[-1] ** 0.5, K)


def by_einsum(Q, K):
    return torch.einsum("bhid,bhjd->bhij", Q, K) / Q.size(-1) ** 0.5


def by_einsum_2(Q, K):
    return torch.einsum("...id,...jd->...ij", Q / K.shape[-1] ** 0.5, K)


def fused(X, W_qkv):
    d = X.shape[-1]
    q, k, v = X @ W_qkv[:d].T, X @ W_qkv[d : 2 * d].T, X @ W_qkv[2 * d :].T
    return F.softmax(q @ k.transpose(1, 2) / d**0.5, dim=-1) @ v


def fused_2(X, W_qkv):
    q, k, v = F.linear(X, W_qkv).unflatten(-1, (3, -1)).unbind(2)
    return F.scaled_dot_product_attention(q, k, v)


def head_by_head(X, W_qkv, n_heads):
    B, T, D = X.shape
    y = (X @ W_qkv.T).reshape(B, T, n_heads, 3, D // n_heads).transpose(1, 2)
    return y[..., 0, :], y[..., 1, :], y[..., 2, :]


def head_by_head_2(X, W_qkv, n_heads):
    each = [X @ w.T for w in W_qkv.chunk(3 * n_heads)]
    return tuple(torch.stack(each[i::3], 1) for i in range(3))


def split_first(x, n_heads):
    T, B, D = x.shape
    return x.view(T, B, n_heads, D // n_heads).permute(1, 2, 0, 3)


def split_first_2(x, n_heads):
    return torch.stack(x.transpose(0, 1).chunk(n_heads, -1), 1)


def merge_first(x):
    B, h, T, d_k = x.shape
    return x.permute(2, 0, 1, 3).reshape(T, B, h * d_k)


def merge_first_2(x):
    return torch.cat(x.unbind(1), -1).transpose(0, 1)


def keep(T):
    return torch.tril(torch.ones(T, T, dtype=torch.bool))


def keep_2(T):
    return torch.arange(T)[None] <= torch.arange(T)[:, None]


def last(T_q, T_k):
    return torch.arange(T_k)[None] > torch.arange(T_k - T_q, T_k)[:, None]


def last_2(T_q, T_k):
    return torch.ones(T_k, T_k, dtype=torch.bool).triu(1)[T_k - T_q :]


def from_ids(tokens, pad):
    return (tokens == pad)[:, None, None]


def from_ids_2(tokens, pad):
    return tokens.eq(pad).view(tokens.shape[0], 1, 1, -1)


def kept(scores, keep):
    low = torch.finfo(scores.dtype).min
    weights = scores.masked_fill(~keep, low).softmax(-1)
    return weights * keep


def kept_2(scores, keep):
    alive = keep.any(-1, keepdim=True)
    filled = torch.where(keep | ~alive, scores, -torch.inf)
    return torch.where(alive & keep, filled.softmax(-1), 0.0)


def one_write(heads, W_o, i):
    d_k = heads.shape[-1]
    return heads[:, i] @ W_o[:, i * d_k : (i + 1) * d_k].T


def one_write_2(heads, W_o, i):
    return F.linear(heads[:, i], W_o.chunk(heads.shape[1], dim=1)[i])


def real_loss(logits, tokens, lengths):
    losses = F.cross_entropy(logits[:, :-1].mT, tokens[:, 1:], reduction="none")
    real = torch.arange(1, tokens.shape[1], device=tokens.device) < lengths[:, None]
    return losses[real].mean()


def real_loss_2(logits, tokens, lengths):
    parts = [
        F.cross_entropy(row[: n - 1], ids[1:n], reduction="sum")
        for row, ids, n in zip(logits, tokens, lengths.tolist(), strict=True)
    ]
    return torch.stack(parts).sum() / (lengths - 1).sum()


def neighbours(x, positions):
    d_k = x.shape[-1]
    pairs = torch.arange(0, d_k, 2, device=x.device)
    angle = positions[:, None] * 10_000.0 ** (-pairs / d_k)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    out = torch.empty_like(x)
    out[..., 0::2] = x[..., 0::2] * cos - x[..., 1::2] * sin
    out[..., 1::2] = x[..., 0::2] * sin + x[..., 1::2] * cos
    return out


def spread(k, h):
    return k.repeat_interleave(h // k.shape[1], 1)


def spread_2(k, h):
    B, h_kv, T, d_k = k.shape
    return k[:, :, None].expand(B, h_kv, h // h_kv, T, d_k).reshape(B, h, T, d_k)


RIGHT = {
    "scores_tokens_first": (scores_of, scores_of_2),
    "scores_by_einsum": (by_einsum, by_einsum_2),
    "attention_from_fused": (fused, fused_2),
    "project_head_by_head": (head_by_head, head_by_head_2),
    "split_tokens_first": (split_first, split_first_2),
    "merge_tokens_first": (merge_first, merge_first_2),
    "causal_keep": (keep, keep_2),
    "causal_last_queries": (last, last_2),
    "padding_from_ids": (from_ids, from_ids_2),
    "softmax_of_kept": (kept, kept_2),
    "write_of_one_head": (one_write, one_write_2),
    "loss_without_padding": (real_loss, real_loss_2),
    "rotate_neighbours": (neighbours,),
    "spread_keys": (spread, spread_2),
}


@pytest.mark.parametrize("name", [*ALL])
def test_right_answers_pass_and_slips_are_named(name):
    for answer in RIGHT[name]:
        report = ALL[name](answer)
        assert report.passed, report
    for slip in ALL[name].slips:
        own = any(f.__globals__["__name__"].endswith("variants") for f in slip.steps.values())
        if own and slip.is_mistake:
            report = ALL[name](lambda *inputs, slip=slip: ALL[name].variant((slip,), inputs))
            assert report.passed is False
            errors = any(key.startswith("error:") for key in report.slips)
            assert slip.key in report.slips or errors, report


def test_einsum_is_asked_for():
    report = ALL["scores_by_einsum"](lambda Q, K: Q @ K.mT / K.shape[-1] ** 0.5)
    assert report.slips == ("not_einsum",)


@pytest.mark.parametrize("name", [*ALL])
def test_no_mutant_of_a_right_answer_passes(name):
    """A mutant that passes gives what the answer gives, on inputs that no check uses."""
    problem = ALL[name]
    chance = random.Random(7)
    for answer in RIGHT[name]:
        source = Source(answer)
        some = (c for c in changes(source.tree) if chance.random() < 0.05)
        for _, mutant in versions(source, some):
            if callable(mutant) and problem(mutant).passed:
                for case in problem.cases:
                    inputs = [changed(x, chance) for x in case.inputs]
                    with undisturbed(), torch.no_grad():
                        right = answer(*map(fresh, inputs))
                        assert difference(Bounded(mutant)(*map(fresh, inputs)), right) is None


def changed(x: Any, chance: random.Random) -> Any:
    """Other numbers of the same kind and shape, seldom used to."""
    if isinstance(x, torch.Tensor) and x.is_floating_point():
        return torch.randn(x.shape, dtype=x.dtype)
    return x
