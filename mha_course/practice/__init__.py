"""What is due again, and from memory: a journal of what was tried, questions, a notebook for a day.

It names no exercise: those that come back, and other forms of them, are handed to `Practice`.

- journal: the learner's own table, and a line for each check
- schedule: when something is asked for again
- asked: questions of the bank, as practice asks and judges them
- from_memory: the notebook with what is due

For learners. It stands on `collection` and `engine`.
"""
