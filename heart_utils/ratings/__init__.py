"""From verdicts to strengths, with one interval rule."""
