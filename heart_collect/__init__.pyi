"""The public names, each loaded from its module on first use."""

from .calls.prices import price as price
from .calls.ledger import open_ledger as open_ledger
from .judging.calibration import calibrate_judge as calibrate_judge, LabelSource as LabelSource
from .judging.respond import (
    collect_conversations as collect_conversations,
    conversation_replies as conversation_replies,
)
from .judging.design import pair_replies as pair_replies
from .judging.judge import (
    collect_verdicts as collect_verdicts,
    plan_questions as plan_questions,
    plan_verdicts as plan_verdicts,
)
from .judging.design import profile_features as profile_features
from .judging.prompts import (
    load_protocol as load_protocol,
    load_rubric as load_rubric,
    prompt_hash as prompt_hash,
)
from .judging.recipe import read_recipe as read_recipe, RecipeError as RecipeError
from .judging.respond import collect_replies as collect_replies
from .judging.rewriting import (
    accept_rewrites as accept_rewrites,
    check_rewrites as check_rewrites,
)
from .judging.trained import load_trained_judge as load_trained_judge, train_judge as train_judge
from .people.assignment import (
    add_people as add_people,
    assign_raters as assign_raters,
    assign_writers as assign_writers,
    check_balance as check_balance,
    choose_pairs as choose_pairs,
    study_cost as study_cost,
)

__version__: str
