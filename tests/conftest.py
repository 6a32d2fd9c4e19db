"""What all tests share: the mirror of real data, a generator, and the rule that a required thing
may not be skipped."""

import gc
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from heart_collect.calls.models import load_litellm

# jsonschema imports this to check addresses, which no test has, and it takes two seconds; here, and
# in what tests start.
sys.modules.setdefault("rfc3987_syntax", None)
QUICK = str(Path(__file__).with_name("quick"))
if QUICK not in os.environ.get("PYTHONPATH", "").split(os.pathsep):
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [QUICK, *filter(None, [os.environ.get("PYTHONPATH")])]
    )

# Tests send keys to servers of their own; those on hosts say what is allowed.
os.environ["HEART_ALLOW_HOST"] = "127.0.0.1"

# The same examples in every run, so that a failure is one for all; and no verdict on how fast this
# machine was.
settings.register_profile(
    "repeatable", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("repeatable")

REQUIRED = {name for name in os.environ.get("HEART_REQUIRE", "").split(",") if name}


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """Turn a skip that says `needs NAME: ...` into a failure where HEART_REQUIRE lists NAME."""
    outcome = yield
    report = outcome.get_result()
    if report.skipped and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if reason.startswith("needs ") and reason.removeprefix("needs ").split(":")[0] in REQUIRED:
            report.outcome = "failed"
            report.longrepr = f"HEART_REQUIRE lists it, so this may not be skipped: {reason}"


LONG = {
    "test_adapt.py",
    "test_audit.py",
    "test_converse.py",
    "test_full_run.py",
    "test_gate_notebook.py",
    "test_kernels.py",
    "test_machines.py",
    "test_package.py",
    "test_pages_on_a_phone.py",
    "test_pages_on_a_screen.py",
    "test_plan.py",
    "test_planted_identities.py",
    "test_coverage.py",
    "test_recipe.py",
    "test_stage.py",
    "test_study.py",
}
"""Files of few tests that take long: they begin first, so that none is left to run alone."""


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.name in LONG:
            item.add_marker("long")


def pytest_collection_finish(session):
    """Take what is imported by now out of full collections: statsmodels asks for one at each
    correction of p values. Forks find litellm imported, which takes seconds."""
    if session.config.getoption("forks", 0) and not session.config.option.collectonly:
        load_litellm()
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _what_was_imported_meanwhile():
    """The same for what the tests of another file imported."""
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _keys_of_people(tmp_path_factory):
    """Keep whoever a test makes up out of the key file of whoever runs it."""
    before = os.environ.get("HEART_KEYS")
    os.environ["HEART_KEYS"] = str(tmp_path_factory.mktemp("keys"))
    yield
    os.environ.pop("HEART_KEYS") if before is None else os.environ.update(HEART_KEYS=before)


@pytest.fixture(scope="session")
def mirror() -> Path:
    """The folder that mirrors the real data sets."""
    folder = os.environ.get("HEART_DATA_MIRROR")
    if not folder or not Path(folder).is_dir():
        pytest.skip(
            "needs mirror: set HEART_DATA_MIRROR to the folder that mirrors the real data sets"
        )
    return Path(folder)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20260109)


@pytest.fixture
def forked_kernels(monkeypatch):
    """Kernels are forks of this process, as in a build, and import nothing anew."""
    from jupyter_client.provisioning import local_provisioner

    from tools.kernels import import_libraries

    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setattr(local_provisioner, "launch_kernel", local_provisioner.launch_kernel)
    import_libraries()
