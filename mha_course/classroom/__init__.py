"""Who solved what: a teacher's report on a folder of submitted notebooks. See `command`."""
