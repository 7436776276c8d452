"""A test that was handed in: answers by question, and points as Canvas and Moodle take them."""

import csv
import re
from dataclasses import replace
from pathlib import Path

import pytest

from mha_course.classroom import files, pages, words
from mha_course.classroom.files import HandIn, Learner
from mha_course.classroom.final_test import Part
from mha_course.classroom.grading import DONE, MISSING, OPEN, TRIED, UNKNOWN, Row, Submission
from mha_course.exercises.variants import named

NAME = "split_tokens_first"
SLIPS = [slip.key for slip in named()[NAME].slips][:3]
TEST = [
    Part(5, f"Write `{NAME}`.", "k", NAME, f"def {NAME}(x, n_heads):\n    ..."),
    Part(2, "Why, in $W^O$?", "k"),
    Part(1, "Which?", "k", choices=("one", "two"), right="two"),
]


def test_an_answer_is_what_stands_below_its_question_or_beside_it():
    one, two, three = (part.cell(n) for n, part in enumerate(TEST, 1))
    for cells, found in [
        ([one, "def f(): 1", two, "*Your answer:*", three, "*Your answer:*"], ["", ""]),
        ([two, "*Your answer:* so", three, "2"], ["so", "2"]),
        ([two, "*Your answer: so, *so*\n*", three, "Your answer: 2"], ["so, *so*", "2"]),
        ([two, "*Your answer:* *so* *is*", three, "**Your answer:** 2*3"], ["*so* *is*", "2*3"]),
        ([two, "*Your answer: *", three, "_so_"], ["", "_so_"]),
        ([two + "\n\nso", "and so", "*Your answer:*", three.replace("2. two", "**two**")],
         ["so\n\nand so", "1. one\n**two**"]),
        ([three, "2", two, "so"], ["so", "2"]),
        (["so", "2"], ["", ""]),
    ]:  # fmt: skip
        assert words.below(cells, TEST)[1:] == found


def rows(**said):
    one, two, three = (part.cell(n) for n, part in enumerate(TEST, 1))
    made = {who: Submission("x", texts=[one, two, text, three, "2"]) for who, text in said.items()}
    return [Row(Learner(who), [one], (NAME,)) for who, one in made.items()]


def test_of_two_files_the_later_answer_counts_however_long_and_an_empty_one_does_not():
    [row] = rows(ada="so")
    row.submissions += [replace(rows(ada="because")[0].submissions[0], file="old")]
    row.submissions += [replace(rows(ada="")[0].submissions[0], file="empty")]
    for late, text in (("x", "so"), ("old", "because"), ("empty", "because")):
        times = {"x": 2.0, "old": 3.0, "empty": 1.0} | {late: 4.0}
        row.learner.notebooks = [HandIn(Path(f), f, "", when) for f, when in times.items()]
        assert words.answers([row], TEST, {})[1].text == text
    for submission, file in zip(row.submissions, ("x (2)", "x", "x (10)"), strict=True):
        submission.file = file  # a browser's copies, unpacked in one moment
    row.learner.notebooks = [HandIn(Path(s.file), s.file, "", 1.0) for s in row.submissions]
    assert words.answers([row], TEST, {})[1].text == "so"


def test_what_is_another_test_or_unreadable_gets_no_points_and_is_named(tmp_path):
    made = rows(ada="", bob="x", cid="", dan="", eve="y")
    made[1].submissions[0].texts[:] = ["## 1 · 2 points\n\nOf another test?", "x"]
    made[2].submissions[0].texts[0] = "## 1 · 5 points\n\nAnother?"  # tests share questions
    made[3].submissions[0].texts[:] = [TEST[1].cell(1), TEST[2].cell(2), TEST[0].cell(3)]
    made[4].submissions[0].texts.clear()
    made[4].submissions[0].trouble = "cut off"
    assert [one.state(NAME) for one in made[3:]] == [MISSING, UNKNOWN]
    said = words.save(made, TEST, {}, tmp_path, files.Roster())
    assert said.endswith("no points there, look: bob; cid; dan; eve")
    assert f"{said.splitlines()[-1]}." in (tmp_path / "words.html").read_text("utf-8")
    whole = [[*line.values()][:3] for line in table(tmp_path / "points.csv")]
    unseen = [[who, "", ""] for who in ("bob", "dan", "eve")]
    assert sorted(whole) == [["ada", "0", "0"], unseen[0], ["cid", "", "0"], *unseen[1:]]


@pytest.mark.parametrize(
    ("state", "slips", "points"),
    [(DONE, [], "5"), (TRIED, SLIPS[:1], "3"), (TRIED, SLIPS, "0"), (TRIED, [], ""),
     (TRIED, ["=1+1"], ""), (OPEN, [], "0"), (UNKNOWN, [], "")],
)  # fmt: skip
def test_code_that_is_wrong_in_one_step_earns_points_and_what_has_no_name_is_read(
    tmp_path, state, slips, points
):
    [row] = rows(ada="so")
    row.submissions[0].states, row.submissions[0].slips = {NAME: state}, {NAME: slips}
    words.save([row], TEST, {}, tmp_path, files.Roster())
    [line] = table(tmp_path / "points.csv")
    assert (line["question 1"], line["question 2"], line["all"]) == (points, "", "")
    assert pages.LABELS[NAME] == NAME and re.search("^ +1$", pages.words([row]), re.M)


@pytest.mark.parametrize("states", [{}, {NAME: OPEN}])
def test_code_of_another_name_is_read_and_an_open_stub_is_not(states):
    for code, points in (("def mine(x): return x", None), ("", 0), (TEST[0].stub, 0)):
        [row] = rows(ada="so")
        row.submissions[0].texts.insert(1, code)
        row.submissions[0].states = states
        assert words.answers([row], TEST, {})[0][2:4] == (code, points)


FACTOR = Part(1, "How many times?", "k", right="0.125")
THOUSANDS = Part(1, "How many?", "k", right="4000")


@pytest.mark.parametrize(
    ("part", "right", "wrong", "read"),
    [
        (TEST[2], ("2", "2.", "**(2)**", "２"), ("1", "3", "2.5"), ("two", "2 or 1", "1/2")),
        (
            FACTOR,
            ("0.125", ".125", "0,125"),
            ("8", "−0.125", "125"),
            ("1/8", "about 0.125", "1.2.5", "0.12", ".13"),
        ),
        (
            THOUSANDS,
            ("4000", "4,000", "4.000", "4000.0"),
            ("400", "4,500", "4001", "4.0"),
            ("4 · 1000", "4 000"),
        ),
        (Part(1, "How?", "k", right="125"), ("125", "125.0"), ("0.125", "0,125"), ("125 000",)),
        (TEST[1], (), (), ("2", "so")),
    ],
    ids=lambda part: getattr(part, "asks", ""),
)
def test_a_bare_number_or_choice_is_judged_and_all_else_is_read(part, right, wrong, read):
    for some, points in ((right, 1.0), (wrong, 0.0), (read, None)):
        for said in some:
            texts = [part.cell(1), said]
            rows = [Row(Learner("ada"), [Submission("x", texts=texts)], ())]
            assert [a.points for a in words.answers(rows, [part], {})] == [points], said


def table(path):
    with path.open(encoding="utf-8-sig", newline="") as file:
        return [*csv.DictReader(file)]


def test_equal_answers_stand_once_and_typed_points_are_added_up(tmp_path):
    made = rows(ada="- so\n\nand so", bob="<b>no</b>", eve="- so\n\nand so", zoe="")
    save = lambda some=made: words.save(  # noqa: E731
        some, TEST, words.typed_in(tmp_path, TEST), tmp_path, files.Roster()
    )
    assert save().startswith("3 answers still without points")
    back = tmp_path / "learners/ada.html"  # handed back
    assert "1 of 8 points so far. By question,\n1: 0 of 5,\n2: not marked" in back.read_text(
        "utf-8"
    )
    page = (tmp_path / "words.html").read_text("utf-8")
    assert page.count("<pre>- so\n\nand so</pre>") == 1 and "<b>no" not in page
    lines = table(tmp_path / words.FILE)
    for line in lines:  # as a spreadsheet of a country saves it
        line["points"] = "1,5" if line["answer"] and line["question"] == "2" else ""
    with (tmp_path / words.FILE).open("w", encoding="cp1252", newline="") as file:
        writer = csv.DictWriter(file, words.HEAD, delimiter=";", lineterminator="\r\n")
        writer.writeheader()
        writer.writerows(lines)
    for _ in range(2):
        assert save() == ""
        assert [line["all"] for line in table(tmp_path / "points.csv")] == [*["2.5"] * 3, "1"]
    assert "2.5 of 8 points. By question" in back.read_text("utf-8")
    said = save(rows(ada="another", bob="<b>no</b>", eve="- so\n\nand so", zoe=""))
    assert "1 answer still" in said
    kept = Path(re.search(r"these on the page\): (.*)", said)[1])
    assert [line["points"] for line in table(kept)].count("1.5") == 3


# What each system writes and takes again: its columns, in its order.
CANVAS = """Student,ID,SIS User ID,SIS Login ID,Section,Essay (77)
    Points Possible,,,,,10
"Löwe, Ada",17,S1,ada5,Monday,9
"Ray, Bob",19,S2,bob7,Monday,
"Student, Test",99,,,Monday,
"""
GRADES = """First name;Last name;ID number;"Email address";Quiz (Real)
Ada;Löwe;17;ada@example.org;-
Bob;Ray;19;bob@example.org;4.00
"""
WORKSHEET = """Identifier,"Full name",Status,Grade,"Maximum grade","Last modified (grade)"
"Participant 4","Ada Löwe",No submission,,3.00,-
"Participant 5","Bob Ray",No submission,,3.00,-
"""


@pytest.mark.parametrize(
    ("given", "whose", "filled"),
    [
        (CANVAS, ["Löwe, Ada", "Ray, Bob"], {}),
        (GRADES, ["Ada Löwe", "Bob Ray"], {}),
        (WORKSHEET, ["Ada Löwe", "Bob Ray"], {"Grade": "1"}),
        ("Ada;17\nBob;19\n", ["Ada", "Bob"], {}),
    ],
    ids=["Canvas", "Moodle's grades", "Moodle's worksheet", "no heads"],
)
def test_points_go_back_as_the_system_that_wrote_the_roster_reads_them(
    tmp_path, given, whose, filled
):
    """Canvas: its export's columns, in their order, then ours, the most points below them, and no
    mark before a quote (`lib/gradebook_importer.rb`); Moodle: any column of the learner's, or its
    worksheet with Identifier and Grade (`mod/assign/feedback/offline/importgradeslib.php`)."""
    (tmp_path / "class.csv").write_text(given, encoding="utf-8")
    roster = files.read_roster(tmp_path / "class.csv")
    assert [*roster.cells] == whose
    pages.points(tmp_path, roster, {"03 (of 2)": 2}, dict(zip(whose, [[1.0], [None]], strict=True)))
    raw = (tmp_path / "points.csv").read_bytes()
    assert raw[:1] == b'"' and raw.count(b'"') == 2 * (raw.count(b'","') + raw.count(b"\r\n"))
    theirs = [
        line for line in files.table_in(tmp_path / "class.csv") if "Student, Test" not in line
    ]
    head, *lines = theirs if given[0] in "SFI" else [["learner", "column 2"], *theirs]
    more = {"Ada": ["1", "1"], "Bob": ["", ""], "Poi": ["2", "2"]}
    for line in lines:
        is_ada = "Ada" in str(line)
        line[:] = [filled.get(h, c) if is_ada else c for h, c in zip(head, line, strict=True)]
        line[0] = line[0].strip()
        line += next(cells for who, cells in more.items() if who in str(line))
    assert files.table_in(tmp_path / "points.csv") == [[*head, "03 (of 2)", "all"], *lines]
