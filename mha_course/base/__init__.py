"""What every room above uses: notebooks read, files written whole, scripts joined, numbers as text.

For maintainers. It stands on `mha_lesson` alone.
"""
