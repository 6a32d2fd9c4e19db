"""Ten lines as a user writes them; ``make check`` reads them with mypy's strict rules, and they are
not run."""

import pandas as pd

from heart_utils import fit_ratings, krippendorff_alpha, load_verdicts, open_run

verdicts: pd.DataFrame = load_verdicts("votes.csv", columns={"winner": "verdict"})
ratings = fit_ratings(verdicts, n_resamples=200)
board: pd.DataFrame = ratings.table
agreement = krippendorff_alpha(verdicts)
open_run("mine").write("verdicts", verdicts)
print(board, agreement)
