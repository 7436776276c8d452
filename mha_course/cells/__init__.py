"""What a cell shows besides pictures: a verdict, a question, a line judged, the first page's table.

For learners. It stands on `collection` and `check`, and on `pictures` for what a saved page needs.
"""
