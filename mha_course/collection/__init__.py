"""What the course has gathered: mistakes of public code with their threads, and trained runs.

For notebooks and for the rooms that compare, judge and draw. It stands on `base`.
"""
