"""What every room above uses: files written whole, scripts joined, numbers and sentences as text.

For maintainers. It stands on `mha_lesson` alone.
"""
