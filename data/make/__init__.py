"""What derives the files of ``data/`` from official files; no chapter and no user runs it."""
