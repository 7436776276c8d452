"""How an answer is judged, and how what it does is found out; no exercise is named here.

check.split_heads(answer)        a Problem (right answer, cases, slips) that can be called
  judge(problem, answer)         judge.py: nothing escapes, nothing is left behind (safely.py)
    stale                        cells_run.py: a later cell that failed, so this is not the latest
    Attempt                      attempt.py: the answer, its source, and what it did on every case
    wrong? chance, or the first of NAMERS (judge.py) that explains it, in this order:
      three_dots, kept_nothing           rules.py: open dots; a line whose result is not kept
      another_type                       differs.py: right numbers of another type
      one_slip                           search.py: a known slip gives the same on every case
      in_the_lines, arguments_exchanged  rules.py: a stub that is called, a name of another cell
      one_place                          places.py: one change (changes.py) of the code mends all
      several_slips, slip_in_part        search.py: two slips; one, on some cases
      its_error                          rules.py: what torch's message (errors.py) means, and where
      what_differs                       differs.py: shape, numbers, how they relate (relations.py),
                                         and in which line they first go wrong (first_wrong.py)
    right? all of ASKED (judge.py), and what any of them finds:
      other_dtypes, other_device         beyond.py: float32, halves; a device that is played
      gradient                           gradients.py: whether it gets through
      further                            beyond.py: what the exercise asks itself
    Report                       report.py: findings become sentences

For the rooms with exercises. It stands on `base`.
"""
