import multiprocessing
import os
import resource
import subprocess
import sys

import pandas as pd
import pytest
from builders import histories, verdicts

from heart_utils.runs import (
    FORMAT,
    RunError,
    find_root,
    open_run,
    strictest_licence,
    write_atomically,
)
from heart_utils.tables import TableError, check_table

GOOD = verdicts([("d1", "x", "y", "a"), ("d2", "y", "z", "b")])


@pytest.fixture
def run(tmp_path):
    return open_run(tmp_path / "trial")


def test_a_bare_name_is_under_the_root_and_a_path_stays_where_the_caller_was(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert open_run("trial").folder == find_root() / "runs" / "trial"
    assert open_run(tmp_path / "trial").folder == tmp_path / "trial"
    run = open_run("./trial")
    monkeypatch.chdir("/")
    run.write("verdicts", GOOD)
    assert (tmp_path / "trial" / "verdicts.parquet").is_file()


def test_parts_are_read_as_one_table_and_alone_and_as_they_were_written(run):
    assert run.write("verdicts", GOOD)
    run.write("verdicts", GOOD.assign(rater="anna"), part="people")
    assert len(run.read("verdicts")) == 4
    again = run.read("verdicts", "people")
    pd.testing.assert_frame_equal(again, check_table("verdicts", GOOD.assign(rater="anna")))


def test_the_same_row_in_two_parts_is_an_error_that_names_the_files(run):
    run.write("verdicts", GOOD)
    run.write("verdicts", GOOD, part="people")
    with pytest.raises(TableError, match=r"repeat another row's .*people\.parquet"):
        run.read("verdicts")


def test_a_file_is_replaced_only_when_its_content_changes(run):
    run.write("verdicts", GOOD)
    file = run.folder / "verdicts.parquet"
    os.utime(file, (1, 1))
    assert not run.write("verdicts", GOOD.copy())
    assert file.stat().st_mtime == 1
    with pytest.raises(TableError):
        run.write("verdicts", GOOD.assign(verdict="both bad"))
    assert run.read("verdicts")["verdict"].tolist() == ["a", "b"]
    assert run.write("verdicts", GOOD.assign(verdict="tie"))


def test_others_may_read_what_the_umask_lets_them(tmp_path, monkeypatch):
    for umask, mode in ((0o022, 0o644), (0o077, 0o600), (0o002, 0o664)):
        monkeypatch.setattr("heart_utils.runs.UMASK", umask)
        file = tmp_path / f"{umask}"
        write_atomically(file, b"words")
        assert file.stat().st_mode & 0o777 == mode
    private = tmp_path / "private"
    private.write_bytes(b"words")
    private.chmod(0o644)
    assert not write_atomically(private, b"words", private=True)
    assert private.stat().st_mode & 0o777 == 0o600


def test_a_table_that_is_not_there_says_what_makes_it(run):
    run.write("histories", histories())
    with pytest.raises(
        RunError, match=r"has no verdicts .*holds histories\. `make book RUN=trial`"
    ):
        run.read("verdicts")


def test_a_newer_or_a_damaged_manifest_and_a_damaged_table_are_named(run):
    run.write("verdicts", GOOD)
    file = run.folder / "verdicts.parquet"
    file.write_bytes(file.read_bytes()[:500])
    with pytest.raises(TableError, match=r"verdicts\.parquet cannot be read .* cut short"):
        run.read("verdicts")
    run.record(format=FORMAT + 1)
    with pytest.raises(RunError, match="written by a newer version"):
        open_run(run.folder)
    (run.folder / "manifest.json").write_text("{", encoding="utf-8")
    with pytest.raises(RunError, match=r"manifest\.json is not JSON"):
        open_run(run.folder)


def test_a_file_is_not_a_run_and_a_run_that_must_be_there_lists_the_others(tmp_path):
    (tmp_path / "f").write_text("", encoding="utf-8")
    with pytest.raises(RunError, match="is a file"):
        open_run(tmp_path / "f")
    with pytest.raises(RunError, match="There is no run 'never'"):
        open_run("never", create=False)
    with pytest.raises(RunError, match="needs a name"):
        open_run(" ")


def test_records_are_merged_and_keep_what_others_wrote(run):
    run.record(parameters={"05": {"seed": 1}}, commit="abc")
    run.record(parameters={"06": {"seed": 2}})
    assert run.manifest["parameters"] == {"05": {"seed": 1}, "06": {"seed": 2}}
    assert run.manifest["commit"] == "abc"


def begin(function, *arguments):
    """Begin a function in a process of its own."""
    process = multiprocessing.get_context("fork").Process(target=function, args=arguments)
    process.start()
    return process


def test_many_processes_can_record_at_once(run):
    writers = [begin(lambda name: run.record(seen={name: True}), str(n)) for n in range(4)]
    for writer in writers:
        writer.join(60)
    assert [writer.exitcode for writer in writers] == [0, 0, 0, 0]
    assert run.manifest["seen"] == {"0": True, "1": True, "2": True, "3": True}


def fill_the_disk(run):
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, most))
    words = r"could not be written \(File too large\); what was there before is untouched"
    with pytest.raises(RunError, match=words):
        run.write("verdicts", GOOD.assign(verdict="tie"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))  # what measures coverage writes too


def test_a_disk_with_no_room_leaves_the_old_table_and_no_rubbish(run):
    run.write("verdicts", GOOD)
    writer = begin(fill_the_disk, run)
    writer.join(60)
    assert writer.exitcode == 0
    assert run.read("verdicts")["verdict"].tolist() == ["a", "b"]
    assert sorted(path.name for path in run.folder.iterdir()) == ["verdicts.parquet"]


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "f").write_text("", encoding="utf-8")
    run = open_run(tmp_path / "f" / "trial")
    with pytest.raises(RunError, match="could not be written"):
        run.write("verdicts", GOOD)
    with pytest.raises(RunError, match="could not be written"):
        run.record(note=1)


def test_an_interrupt_while_writing_leaves_the_old_file_and_no_rubbish(tmp_path, monkeypatch):
    file = tmp_path / "t.json"
    write_atomically(file, b"old")

    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(file, b"new")
    assert file.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["t.json"]


def test_an_unknown_licence_binds_most():
    assert strictest_licence(["MIT", "something else", "CC-BY-NC-4.0"]) == "something else"
    assert strictest_licence([]) == "CC0-1.0"


def test_importing_the_package_is_cheap_and_pulls_in_nothing_heavy():
    code = (
        "import sys, time; t = time.process_time(); import heart_utils; t = time.process_time() -"
        " t;heavy = {'litellm', 'seaborn', 'pingouin', 'pandas'} & set(sys.modules); print(t,"
        " *heavy)"
    )
    seconds, *heavy = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert heavy == []
    assert float(seconds) < 0.3
