"""What *What replies do* says of a coder of strategies is what ESConv's official file gives."""

import pandas as pd
import pytest

from data.make.strategy_results import load_strategy_turns, strategy_results
from heart_utils.runs import find_root


@pytest.mark.mirror
@pytest.mark.slow
def test_the_tables_of_the_learned_coder_are_those_that_esconv_gives(mirror):
    for name, table in strategy_results(load_strategy_turns()).items():
        shipped = pd.read_csv(find_root() / "data" / "esconv" / f"{name}.csv")
        # files hold six decimals
        loosely = {"rtol": 1e-4, "atol": 5e-6, "check_dtype": False, "check_names": False}
        pd.testing.assert_frame_equal(shipped, table.reset_index(drop=True), **loosely)
