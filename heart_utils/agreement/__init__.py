"""How far raters agree, and what agreement can show."""
