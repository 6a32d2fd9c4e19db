"""Settings for the project's repository and contact, empty until they are known.

``[tool.heart]`` in ``pyproject.toml`` holds both. While they are empty no page, badge or button
names an address.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

__all__ = [
    "Settings",
    "SettingsError",
    "contact_words",
    "launch_buttons",
    "launch_words",
    "read_settings",
]

FIRST_NOTEBOOK = "notebooks/05_who_is_preferred.ipynb"


class SettingsError(ValueError):
    """A setting is no address."""


@dataclass(frozen=True)
class Settings:
    """What `[tool.heart]` says.

    Attributes
    ----------
    repository : str
        The web address of the repository, such as ``https://github.com/OWNER/NAME``; empty until
        known.
    contact : str
        Where whoever is responsible is reached: an address of mail or of a page; empty until known.
    """

    repository: str = ""
    contact: str = ""

    @property
    def address(self) -> str:
        """The repository's address as a browser shows it, without what git needs alone."""
        return self.repository.rstrip("/").removesuffix(".git")


def read_settings(root: Path) -> Settings:
    """Read the project's own settings.

    Parameters
    ----------
    root : pathlib.Path
        The project's root.

    Returns
    -------
    Settings

    Raises
    ------
    SettingsError
        If a key is unknown, or the repository is no web address.
    """
    own_table = (
        tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
        .get("tool", {})
        .get("heart", {})
    )
    if strangers := sorted(set(own_table) - set(Settings.__dataclass_fields__)):
        raise SettingsError(
            f"pyproject.toml, [tool.heart]: no setting is called {', '.join(strangers)}."
        )
    settings = Settings(**own_table)
    if settings.repository and not settings.repository.startswith("https://"):
        raise SettingsError(
            f"pyproject.toml, [tool.heart]: repository is {settings.repository!r}; expected an"
            " address that starts with https://, or nothing while it is not known."
        )
    return settings


def launch_words(settings: Settings) -> str:
    """Write the button that opens the project on Binder, or what is missing for one.

    Parameters
    ----------
    settings : Settings
        From :func:`read_settings`.

    Returns
    -------
    str
        MyST. Without a repository it holds no address.

    Examples
    --------
    >>> launch_words(Settings())[:32]
    'This copy does not know where it'
    >>> "mybinder.org/v2/gh/who/what/HEAD" in launch_words(Settings("https://github.com/who/what"))
    True
    """
    if not (address := settings.address):
        return (
            "This copy does not know where its repository is, so there is no button here. Whoever"
            " publishes it fills in\n`repository` under `[tool.heart]` in `pyproject.toml`, and"
            " this page gets one.\n"
        )
    host, _, path = address.removeprefix("https://").partition("/")
    where = {"github.com": f"gh/{path}", "gitlab.com": f"gl/{quote(path, safe='')}"}.get(
        host, f"git/{quote(address, safe='')}"
    )
    binder = f"https://mybinder.org/v2/{where}/HEAD?urlpath=lab/tree/{FIRST_NOTEBOOK}"
    return f"[Open on Binder]({binder}) · [The repository]({address})\n"


def launch_buttons(settings: Settings) -> dict[str, object]:
    """Build the part of `_config.yml` for the buttons of Binder and Colab.

    Parameters
    ----------
    settings : Settings
        From :func:`read_settings`.

    Returns
    -------
    dict
        Empty unless the repository is known and on GitHub, the one host that both can read.

    Examples
    --------
    >>> launch_buttons(Settings())
    {}
    >>> launch_buttons(Settings("https://github.com/who/what"))["launch_buttons"]["colab_url"]
    'https://colab.research.google.com'
    """
    if not (address := settings.address).startswith("https://github.com/"):
        return {}
    hosts = {
        "binderhub_url": "https://mybinder.org",
        "colab_url": "https://colab.research.google.com",
    }
    return {
        "repository": {"url": address, "branch": "main", "path_to_book": ""},
        "launch_buttons": {"notebook_interface": "jupyterlab", **hosts},
    }


def contact_words(settings: Settings) -> str:
    """Write how to ask for something to be taken down or corrected.

    Parameters
    ----------
    settings : Settings
        From :func:`read_settings`.

    Returns
    -------
    str
        MyST.

    Examples
    --------
    >>> "nobody's address" in contact_words(Settings())
    True
    >>> contact_words(Settings(contact="https://example.org/desk")).splitlines()[0]
    'Write to <https://example.org/desk>.'
    """
    if settings.contact:
        return f"Write to <{settings.contact}>.\n"
    issues = f"(<{settings.repository.rstrip('/')}>) " if settings.repository else ""
    return (
        "This copy names nobody's address. Open an issue in the repository that it came from"
        f" {issues}without repeating the\nwords in question; if you cannot, write to whoever gave"
        " or showed you this copy.\n"
    )
