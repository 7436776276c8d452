"""Running the course: opening it, its first page, its verdicts, pages to hand out, a class."""
