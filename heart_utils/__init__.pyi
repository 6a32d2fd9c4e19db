"""The public names with their types; a test holds that they are those of ``__init__.py``."""

from heart_utils.agreement.agreement import (
    Agreement as Agreement,
    pairwise_agreement as pairwise_agreement,
)
from heart_utils.agreement.baselines import (
    agreement_with_baselines as agreement_with_baselines,
    estimate_ceiling as estimate_ceiling,
)
from heart_utils.agreement.generalizability import (
    cheapest_design as cheapest_design,
    check_reliability as check_reliability,
    score_differences as score_differences,
    variance_components as variance_components,
    win_scores as win_scores,
)
from heart_utils.agreement.kappa import (
    cohen_kappa as cohen_kappa,
    gwet_ac as gwet_ac,
    icc as icc,
    judge_reliability as judge_reliability,
    krippendorff_alpha as krippendorff_alpha,
)
from heart_utils.agreement.panel import (
    alternative_annotator_test as alternative_annotator_test,
    calibrate_abstention as calibrate_abstention,
    effective_judges as effective_judges,
)
from heart_utils.agreement.prediction_powered import (
    prediction_powered_ratings as prediction_powered_ratings,
)
from heart_utils.agreement.ranks import (
    order_changes as order_changes,
    rank_agreement as rank_agreement,
    track_recipients as track_recipients,
)
from heart_utils.agreement.raters import (
    ExclusionRule as ExclusionRule,
    decide_exclusions as decide_exclusions,
    rate_writers as rate_writers,
    rater_quality as rater_quality,
)
from heart_utils.calls.records import open_ledger as open_ledger
from heart_utils.calls.prices import price as price
from heart_utils.evidence.claims import check_claims as check_claims
from heart_utils.evidence.effects import (
    count_wins as count_wins,
    measured_effects as measured_effects,
    read_quoted as read_quoted,
    share_between as share_between,
    share_clustered as share_clustered,
)
from heart_utils.gate import (
    betting_bound as betting_bound,
    compare_anytime as compare_anytime,
    compare_responders as compare_responders,
)
from heart_utils.heartbench.formula import (
    ability_variance as ability_variance,
    rubric_board as rubric_board,
    score_rubric as score_rubric,
    simulate_hits as simulate_hits,
)
from heart_utils.heartbench.linter import lint_rubric as lint_rubric, lint_rule as lint_rule
from heart_utils.judges.halo import measure_halo as measure_halo
from heart_utils.judges.position import (
    BiasError as BiasError,
    compare_answers as compare_answers,
    feature_bias as feature_bias,
    position_bias as position_bias,
    text_features as text_features,
)
from heart_utils.judges.report_card import (
    describe_judges as describe_judges,
    grade_probes as grade_probes,
)
from heart_utils.judges.retest import (
    measure_drift as measure_drift,
    price_of_repeats as price_of_repeats,
    repeat_reliability as repeat_reliability,
)
from heart_utils.judges.self_preference import self_preference as self_preference
from heart_utils.judging.calibration import (
    calibrate_judge as calibrate_judge,
    judge_identity as judge_identity,
    load_calibration as load_calibration,
)
from heart_utils.judging.converse import (
    collect_conversations as collect_conversations,
    conversation_replies as conversation_replies,
)
from heart_utils.judging.design import pair_replies as pair_replies
from heart_utils.judging.judge import (
    collect_verdicts as collect_verdicts,
    plan_questions as plan_questions,
)
from heart_utils.judging.probes import profile_features as profile_features
from heart_utils.judging.prompts import (
    load_codebooks as load_codebooks,
    load_protocol as load_protocol,
    load_rubric as load_rubric,
    prompt_hash as prompt_hash,
)
from heart_utils.judging.recipe import (
    RecipeError as RecipeError,
    read_recipe as read_recipe,
    recipe_comparisons as recipe_comparisons,
    recipe_histories as recipe_histories,
    recipe_responders as recipe_responders,
)
from heart_utils.judging.respond import collect_replies as collect_replies
from heart_utils.judging.steps import (
    recipe_conversations as recipe_conversations,
    recipe_replies as recipe_replies,
    recipe_step as recipe_step,
)
from heart_utils.judging.trained import (
    load_trained_judge as load_trained_judge,
    train_judge as train_judge,
)
from heart_utils.people.assignment import (
    assign_raters as assign_raters,
    assign_writers as assign_writers,
    check_balance as check_balance,
    choose_pairs as choose_pairs,
    study_cost as study_cost,
)
from heart_utils.people.raters import add_people as add_people
from heart_utils.ratings.consistency import consistency as consistency, head_to_head as head_to_head
from heart_utils.ratings.contrasts import twin_contrasts as twin_contrasts
from heart_utils.ratings.fragility import find_fragility as find_fragility
from heart_utils.ratings.judge_aware import fit_judge_aware as fit_judge_aware
from heart_utils.ratings.pooling import pool_strengths as pool_strengths
from heart_utils.ratings.ratings import (
    Ratings as Ratings,
    fit_boards as fit_boards,
    fit_ratings as fit_ratings,
)
from heart_utils.ratings.resampling import (
    bootstrap_ci as bootstrap_ci,
    estimate_rng as estimate_rng,
)
from heart_utils.ratings.spread import simultaneous_quantile as simultaneous_quantile
from heart_utils.ratings.verdicts import (
    AgreementError as AgreementError,
    RatingsError as RatingsError,
    combine_orders as combine_orders,
    won_by_a as won_by_a,
)
from heart_utils.replies.codes import code_by_words as code_by_words, theme_overlap as theme_overlap
from heart_utils.replies.sameness import (
    measure_overlap as measure_overlap,
    measure_sameness as measure_sameness,
)
from heart_utils.replies.scaling import (
    ScalingError as ScalingError,
    correlate_scale as correlate_scale,
    spearman_interval as spearman_interval,
)
from heart_utils.replies.seekers import (
    agree_with_outside as agree_with_outside,
    describe_seekers as describe_seekers,
    probes_lose as probes_lose,
    seeker_card as seeker_card,
    tell_from_real as tell_from_real,
    told_by_raters as told_by_raters,
)
from heart_utils.replies.turns import (
    TurnsError as TurnsError,
    describe_turns as describe_turns,
    drift_by_turn as drift_by_turn,
    path_by_turn as path_by_turn,
    split_turns as split_turns,
    stopping_paths as stopping_paths,
)
from heart_utils.report.conversation import (
    practise_comparisons as practise_comparisons,
    read_conversation as read_conversation,
)
from heart_utils.report.figures import (
    mark_simulated as mark_simulated,
    plot_boards as plot_boards,
    plot_forest as plot_forest,
    plot_intervals as plot_intervals,
    plot_leaderboard as plot_leaderboard,
    plot_measures as plot_measures,
    plot_profile as plot_profile,
    plot_trend as plot_trend,
    use_book_style as use_book_style,
    use_cjk_font as use_cjk_font,
)
from heart_utils.report.gate_report import read_sides as read_sides, write_reports as write_reports
from heart_utils.report.kept import kept as kept
from heart_utils.report.leaderboard import (
    leaderboard_html as leaderboard_html,
    weigh_by_hand as weigh_by_hand,
    write_leaderboard as write_leaderboard,
)
from heart_utils.report.provenance import (
    methods as methods,
    note_tables as note_tables,
    read_glued as read_glued,
    show_versions as show_versions,
)
from heart_utils.report.seekers import check_seekers as check_seekers
from heart_utils.report.tables import (
    glue_numbers as glue_numbers,
    in_words as in_words,
    show_table as show_table,
    write_excel as write_excel,
)
from heart_utils.runs import (
    Run as Run,
    RunError as RunError,
    find_root as find_root,
    may_publish as may_publish,
    open_run as open_run,
    strictest_licence as strictest_licence,
)
from heart_utils.scores import (
    average_scores as average_scores,
    calibrate_scores as calibrate_scores,
    pairs_against_scores as pairs_against_scores,
    sweep_weights as sweep_weights,
    weigh_scores as weigh_scores,
)
from heart_utils.simulate.asking import (
    compare_designs as compare_designs,
    simulate_designs as simulate_designs,
)
from heart_utils.simulate.conversations import (
    difference_error as difference_error,
    plan_conversations as plan_conversations,
)
from heart_utils.simulate.coverage import (
    check_coverage as check_coverage,
    check_saving as check_saving,
    simulate_coverage as simulate_coverage,
    simulate_gate as simulate_gate,
    simulate_power as simulate_power,
)
from heart_utils.simulate.faulty_judge import recover_faults as recover_faults
from heart_utils.simulate.full_study import (
    Margins as Margins,
    calibrate as calibrate,
    simulate_heart as simulate_heart,
)
from heart_utils.simulate.power import (
    Design as Design,
    minimum_gap as minimum_gap,
    plan_study as plan_study,
)
from heart_utils.simulate.study import (
    Panel as Panel,
    simulate_raters as simulate_raters,
    simulate_study as simulate_study,
    simulate_writers as simulate_writers,
)
from heart_utils.sources.catalogue import DataUnavailableError as DataUnavailableError
from heart_utils.sources.heart import next_seeker_turns as next_seeker_turns
from heart_utils.sources.load import (
    describe_votes as describe_votes,
    load_conversations as load_conversations,
    load_histories as load_histories,
    load_replies as load_replies,
    load_scores as load_scores,
    load_verdicts as load_verdicts,
    scores_to_verdicts as scores_to_verdicts,
)
from heart_utils.tables import TableError as TableError, check_table as check_table

__version__: str
__all__: list[str]
_PUBLIC: dict[str, str]
