"""From tables to tables: no network, no files."""
