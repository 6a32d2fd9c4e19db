"""Imported by each Python that a test starts (tests/conftest.py names this folder in
PYTHONPATH)."""

import sys

# jsonschema imports this to check addresses, which no test has, and it takes two seconds.
sys.modules.setdefault("rfc3987_syntax", None)
