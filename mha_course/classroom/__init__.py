"""Who solved what: a report on a folder of submitted notebooks. See `command`.

For teachers. It stands on `check`, on `cells` for guesses, and on `pages` for a test on paper.

In the order of the work: `files` (whose file it is, and which counts), `unpack` (what a zip
holds), `reading` (its cells), `grading` (has each judged, keeps the results), `sandbox` (time,
memory, disk, network), in it `sandboxed` with `slices` (the statements that an answer needs),
outside it again `values` (a right answer's values, compared once more) and `signs` (what in a right
answer makes one look), `review` (what to look at and to teach again), `pages` with `templates/`
(what the teacher reads). `final_test` writes what a class hands in at the end, `words` gathers it
by question.
"""
