"""Put the data that the project may pass on inside the wheel; the rest of the package is described in pyproject.toml."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithData(build_py):
    """Copy ``data/`` beside the modules, where ``find_root`` looks for it outside a checkout."""

    def run(self) -> None:
        """Build the modules, then copy; an editable install reads the checkout's own folder."""
        super().run()
        if not self.editable_mode:
            shutil.copytree(Path(__file__).parent / "data", Path(self.build_lib, "heart_utils", "data"), dirs_exist_ok=True)


setup(cmdclass={"build_py": BuildWithData})
