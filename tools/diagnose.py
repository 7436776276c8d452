"""How well the checks judge and name: `python tools/diagnose.py [-v] [--mutants] [name or file]`.

Runs every answer in tests/exercises/answers and prints, per exercise: right answers failed and
wrong answers passed (both must be 0), the share of wrong answers that were named, and milliseconds
per check, of the processor's time (p50, p95, most). With `--mutants` (as `make diagnose` runs it)
every right answer is also broken in one place at a time: those that pass and are wrong are printed,
and there must be none.
"""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles

sys.path += [str(Path(__file__).resolve().parents[1] / at) for at in ("tests", "tests/exercises")]
from answers import Answer, all_answers
from mha_course import check
from mutants import survivors

VAGUE = ("values", "shape", "nan", "low_precision", "result_type", "result_count")


@dataclass(frozen=True)
class Verdict:
    answer: Answer
    report: check.Report
    milliseconds: float  # of the processor's time: other programs do not count

    @property
    def misjudged(self) -> bool:
        return self.report.passed is not self.answer.right

    @property
    def named(self) -> bool:
        return named(self.report.slips)


def named(slips: Sequence[str]) -> bool:
    """A slip, or an error of which the meaning is known: not just "other numbers"."""
    return not all(key in VAGUE or key.startswith(("relation:", "error:error_")) for key in slips)


def judge(answer: Answer) -> Verdict:
    start = time.process_time()
    report = getattr(check, answer.exercise)(answer.function)
    return Verdict(answer, report, 1000 * (time.process_time() - start))


def table(verdicts: list[Verdict]) -> str:
    names = [e.name for e in (*check.EXERCISES, *check.SHORT)]
    lines = ["exercise                right failed  wrong passed  named  p50 ms   p95   max"]
    for name in (*names, "all"):
        rows = [v for v in verdicts if name in (v.answer.exercise, "all")]
        if not rows:
            continue
        right = [v for v in rows if v.answer.right]
        wrong = [v for v in rows if not v.answer.right]
        named = sum(v.named for v in wrong) / max(1, len(wrong))
        cuts = quantiles([v.milliseconds for v in rows], n=20) if len(rows) > 1 else [0.0] * 19
        lines.append(
            f"{name:<22}{len(right):>7}{sum(v.misjudged for v in right):>7}"
            f"{len(wrong):>7}{sum(v.report.passed is True for v in wrong):>7}{named:>7.0%}"
            f"{cuts[9]:>8.0f}{cuts[18]:>6.0f}{max(v.milliseconds for v in rows):>6.0f}"
        )
    return "\n".join(lines)


def main() -> None:
    verbose = "-v" in sys.argv
    wanted = [a for a in sys.argv[1:] if a[0] != "-"]
    answers = [a for a in all_answers() if not wanted or {*a.id.split("-")} & {*wanted}]
    verdicts = [judge(a) for a in answers]
    for v in verdicts:
        if verbose or v.misjudged or (not v.answer.right and not v.named):
            mark = "MISJUDGED" if v.misjudged else "named" if v.named else "unnamed"
            print(f"\n--- {v.answer.id} [{mark}, {v.milliseconds:.0f} ms]\n{v.report.slips}")
            print(v.report)
    print("\n" + table(verdicts))
    survived = []
    if "--mutants" in sys.argv:
        survived = [(a, what) for a, what in survivors(answers) if what]
        for answer, what in survived:
            print(f"\n--- a mutant of {answer.id} passes, and is wrong: {what}")
        print(f"\n{len(survived)} wrong mutants of right answers passed.")
    sys.exit(1 if survived or any(v.misjudged for v in verdicts) else 0)


if __name__ == "__main__":
    main()
