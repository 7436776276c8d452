"""What a notebook's cell shows besides pictures: a verdict, a question, the first page's table.

For learners. It stands on `collection` and `check`, and on `pictures` for what a saved page needs.
"""
