"""What the course has gathered: public mistakes with their threads, trained runs, the questions.

For notebooks and for the rooms that compare, judge, draw and ask. It stands on `base`.
"""
