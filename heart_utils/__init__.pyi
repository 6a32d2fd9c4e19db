"""The public names, each loaded from its module on first use."""

from .agreement.agreement import (
    cohen_kappa as cohen_kappa,
    icc as icc,
    judge_reliability as judge_reliability,
    krippendorff_alpha as krippendorff_alpha,
    pairwise_agreement as pairwise_agreement,
)
from .agreement.generalizability import (
    cheapest_design as cheapest_design,
    variance_components as variance_components,
    win_scores as win_scores,
)
from .agreement.panel import agreement_with_baselines as agreement_with_baselines
from .agreement.prediction_powered import prediction_powered_ratings as prediction_powered_ratings
from .agreement.raters import decide_exclusions as decide_exclusions
from .evidence import (
    measured_effects as measured_effects,
    read_quoted as read_quoted,
    share_between as share_between,
    share_clustered as share_clustered,
)
from .gate import (
    compare_responders as compare_responders,
    GateRule as GateRule,
)
from .heartbench import (
    lint_rubric as lint_rubric,
    score_rubric as score_rubric,
)
from .judges.position import (
    compare_answers as compare_answers,
    feature_bias as feature_bias,
    position_bias as position_bias,
    repeat_reliability as repeat_reliability,
    text_features as text_features,
)
from .judges.report_card import describe_judges as describe_judges
from .ratings.other_models import fit_judge_aware as fit_judge_aware
from .ratings.ratings import (
    fit_boards as fit_boards,
    fit_ratings as fit_ratings,
    Ratings as Ratings,
)
from .ratings.resampling import (
    bootstrap_ci as bootstrap_ci,
    estimate_rng as estimate_rng,
)
from .ratings.verdicts import (
    combine_orders as combine_orders,
    RatingsError as RatingsError,
    won_by_a as won_by_a,
)
from .replies.codes import code_by_words as code_by_words
from .report.audit import audit_votes as audit_votes
from .report.figures import (
    mark_simulated as mark_simulated,
    plot_forest as plot_forest,
    plot_intervals as plot_intervals,
    plot_leaderboard as plot_leaderboard,
    use_book_style as use_book_style,
)
from .report.commands import methods as methods
from .report.kept import kept as kept
from .report.leaderboard import write_leaderboard as write_leaderboard
from .report.seekers import check_seekers as check_seekers
from .report.tables import (
    in_words as in_words,
    read_results as read_results,
    record_results as record_results,
    show_table as show_table,
    show_versions as show_versions,
)
from .runs import (
    find_root as find_root,
    may_publish as may_publish,
    open_run as open_run,
    Run as Run,
)
from .simulate.conversations import (
    ConversationCosts as ConversationCosts,
    plan_conversations as plan_conversations,
)
from .simulate.study import (
    calibrate as calibrate,
    Design as Design,
    minimum_gap as minimum_gap,
    Panel as Panel,
    plan_study as plan_study,
    simulate_study as simulate_study,
)
from .sources.catalogue import DataUnavailableError as DataUnavailableError
from .sources.load import (
    describe_votes as describe_votes,
    load_conversations as load_conversations,
    load_histories as load_histories,
    load_replies as load_replies,
    load_scores as load_scores,
    load_verdicts as load_verdicts,
)
from .sources.pairs import scores_to_verdicts as scores_to_verdicts

__version__: str
