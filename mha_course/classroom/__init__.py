"""Who solved what: a report on a folder of submitted notebooks. See `command`.

For teachers. It stands on `check`, on `collection` for the questions, and on `cells` for guesses.
"""
