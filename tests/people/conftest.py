"""Fixtures that several files about people share."""

import jinja2
import pytest
from chat_case import chat_template, folder, run

__all__ = ["chat_template", "folder", "run"]


@pytest.fixture(scope="session", autouse=True)
def _compiled_once():
    """Compile each template once: that takes a third of what writing a study does."""
    compile_anew, compiled = jinja2.Environment.compile, {}

    def compile_once(pages, source, name=None, filename=None, **how):
        key = (name, source, pages.autoescape)
        if key not in compiled:
            compiled[key] = compile_anew(pages, source, name, filename, **how)
        return compiled[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jinja2.Environment, "compile", compile_once)
        yield
