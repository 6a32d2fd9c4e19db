"""Published sets in the run `public`: read once, read again when a file changed, and never lost for being out of reach."""

import pandas as pd
import pytest
from builders import verdicts
from source_builders import know

from heart_utils.collect import public
from heart_utils.collect.sources import DamagedDataError, Source
from heart_utils.collect.sources.responders import load_responders
from heart_utils.runs import open_run


@pytest.fixture
def run(tmp_path):
    return open_run(tmp_path / "public")


@pytest.fixture
def toy(monkeypatch, tmp_path):
    """One set of one file in a mirror; `write` replaces the file, `loaded` counts how often it was read."""
    folder, loaded = tmp_path / "mirror" / "toy", []
    folder.mkdir(parents=True)
    monkeypatch.setenv("HEART_DATA_MIRROR", str(folder.parent))

    def load():
        loaded.append((folder / "a.txt").read_text())
        return verdicts([("d1", "x", "y", loaded[-1])])

    def write(verdict):
        (folder / "a.txt").write_text(verdict)
        source = Source("toy", "toy", "A toy set", "MIT", "MIT, all of it", "Nobody (2026)", "http://127.0.0.1:1/")
        know(monkeypatch, source, {"a.txt": ("a.txt", "", verdict.encode())})

    monkeypatch.setattr(public, "PARTS", {"toy": ("verdicts", load)})
    monkeypatch.setattr(public, "load_responders", lambda name: load_responders("sample"))
    write("a")
    return folder / "a.txt", write, loaded


def test_a_set_is_written_with_its_terms_and_read_again_only_when_a_file_changed(run, toy):
    _, write, loaded = toy
    assert public.collect_public(run) == {"toy": "1 verdicts, MIT, all of it"}
    assert run.manifest["tables"]["verdicts/toy"]["citation"] == "Nobody (2026)"
    assert public.collect_public(run) == {"toy": "unchanged"}
    write("b")
    public.collect_public(run)
    assert loaded == ["a", "b"]
    assert run.read("verdicts", "toy")["verdict"].tolist() == ["b"]


def test_a_set_out_of_reach_is_named_and_what_was_there_before_stays(run, toy):
    file, _, _ = toy
    file.unlink()
    assert public.collect_public(run)["toy"].startswith("absent. The mirror ")
    file.write_text("a")
    public.collect_public(run)
    file.unlink()
    assert public.collect_public(run) == {"toy": "kept from before"}
    pd.testing.assert_series_equal(run.read("verdicts", "toy")["verdict"], pd.Series(["a"], name="verdict"), check_dtype=False)


def test_a_damaged_file_stops_the_command_and_the_older_table_stays(run, toy, monkeypatch, capsys):
    file, _, _ = toy
    monkeypatch.setattr(public, "open_run", lambda name: run)
    assert public.main() == 0
    assert capsys.readouterr().out == "toy: 1 verdicts, MIT, all of it\n"
    file.write_text("tie")
    with pytest.raises(DamagedDataError):
        public.collect_public(run)
    assert public.main() == 1
    assert "DamagedDataError: " in capsys.readouterr().err
    assert run.read("verdicts", "toy")["verdict"].tolist() == ["a"]
