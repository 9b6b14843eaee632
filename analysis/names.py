"""The vocabulary of a recorded run: every tag, metric and artifact name that is written to MLflow or read back from it.

The reader owns these names, so that queries need neither torch nor Ray. A study is one MLflow experiment of the study's
name, with one parent run (role `STUDY`) and one run per trial (role `TRIAL`, tag mlflow.parentRunId).
"""

from collections.abc import Mapping
from typing import Literal

# Tags of both kinds of run
ROLE = "ancre.role"  # STUDY or TRIAL
STUDY = "study"
TRIAL = "trial"
STUDY_NAME = "ancre.study"
WORKLOAD = "ancre.workload"

# Tags of a trial's run
TRIAL_ID = "ancre.trial"
CELL = "ancre.cell"
ARM = "ancre.arm"
SEED = "ancre.seed"
STATE = "ancre.state"  # one of STATES
CAUSE = "ancre.cause"  # one line: why it diverged, failed or was stopped ("train/loss is not finite at step 120")
NON_FINITE = (
    "ancre.non_finite"  # as JSON: {metric: {"count": values left out, "first": step of the first}}; absent where none
)
SPEC = "ancre.spec"  # the whole trial spec as JSON; left out where longer than SPEC_LIMIT, SPEC_FILE always has it
AXES = "ancre.axes"  # this cell's value of each axis, as JSON: {"optim.lr": 0.001}
STEPS = "ancre.steps"  # the step of the last row of a trial that runs to its end
CHANGES = "ancre.changes"  # of a member of a population, as CHANGES_FILE; left out where longer than SPEC_LIMIT
COMMIT = "ancre.commit"  # git commit of the code, "-dirty" behind it where the tree was changed
DEVICE = "ancre.device"  # "cpu" or the accelerator's name
VERSIONS = "ancre.versions"  # one line: "python 3.11.4, torch 2.13.0, ray 2.60.0, mlflow 3.17.2"

SPEC_LIMIT = 5000  # characters of a tag

FINISHED = "finished"  # ran to its last step
STOPPED = "stopped"  # ended early by the scheduler
DIVERGED = "diverged"  # a metric became non-finite
FAILED = "failed"
PAUSED = "paused"
RUNNING = "running"
STATES = (FINISHED, STOPPED, DIVERGED, FAILED, PAUSED, RUNNING)

# Tags of the study's run (the whole file is the artifact STUDY_FILE)
HYPOTHESIS = "ancre.hypothesis"
PLANNED_SEEDS = "ancre.seeds"  # as JSON: [0, 1, 2]
METRIC = "ancre.metric"  # what the study ranks by: the last logged value of this metric
MODE = "ancre.mode"  # min or max
SCHEDULER = "ancre.scheduler"  # as JSON: the study's [scheduler] table
PUBLISHED = "ancre.published"  # the key in published.toml of the table that reports print beside; absent where none
ARMS = "ancre.arms"  # as JSON, in the file's order: {arm: {"configurations": cells planned, "axes": {axis: [values]}}};
# a continuous axis has {"low", "high", "log"} for its list. Left out where longer than SPEC_LIMIT, as for SPEC.

# Metrics. A workload may add its own; these are the ones that queries and reports know.
TRAIN_LOSS = "train/loss"
VAL_PERPLEXITY = "val/perplexity"
VAL_LOSS = "val/loss"
PERPLEXITY_GALORE_COMPAT = "val/perplexity_galore_compat"  # as GaLore's code prints it, for its tables; reads low
TOKENS_PER_S = "train/tokens_per_second"
MFU = (
    "train/mfu"  # share of the devices' peak FLOP/s that the network's arithmetic takes; absent where no peak is known
)
MEMORY_PARAMETERS = "memory/parameters"  # bytes on one worker, as all of these, in the first step after a start
MEMORY_GRADIENTS = "memory/gradients"
MEMORY_OPTIMIZER = "memory/optimizer"  # what the optimizer keeps
MEMORY_ACTIVATIONS = "memory/activations"  # what a micro-batch's forward keeps for its backward
MEMORY_AVERAGES = "memory/averages"  # moving averages of all parameters, of networks that keep some
MEMORY_PEAK = "memory/peak"  # of the accelerator's allocator, or of the whole process
MEMORY = (MEMORY_PARAMETERS, MEMORY_GRADIENTS, MEMORY_OPTIMIZER, MEMORY_ACTIVATIONS)
ESTIMATED = "_estimated"  # behind the name of a metric: what the plan said of it
OVERHEAD = "overhead/"  # a topology beside the cascaded network, in one run
SLOWDOWN = "overhead/slowdown"  # time of a training step over the cascaded one's of the same round, median of rounds
SLOWDOWN_LOW = "overhead/slowdown_low"  # its quartiles
SLOWDOWN_HIGH = "overhead/slowdown_high"
OVERHEAD_PARAMETERS = "overhead/parameters"  # that the topology adds
CASCADED_TOKENS_PER_S = "overhead/cascaded_tokens_per_second"
CASCADED_ACTIVATIONS = "overhead/cascaded_activations"  # bytes, as MEMORY_ACTIVATIONS
CASCADED_PEAK = "overhead/cascaded_peak"  # bytes, as MEMORY_PEAK; both without what the other network keeps
EVAL_TIME_AT_GOAL = "eval/time_at_goal"  # steps within the radius, 0 to the episode's length; mean over environments
EVAL_SUCCESS_ANY = "eval/success_any"  # share of environments with at least one such step
EVAL_SUCCESS_EASY = "eval/success_easy"  # as time_at_goal, with the looser radius
EVAL_SUCCESS_HARD = "eval/success_hard"  # with the tighter one
EVAL_FINAL_DISTANCE = "eval/final_distance"  # of the achieved goal from the goal, at the last step of an episode
ENV_STEPS_PER_S = "train/env_steps_per_s"
GRAD_STEPS_PER_S = "train/grad_steps_per_s"
CRITIC_LOSS = "train/critic_loss"
ACTOR_LOSS = "train/actor_loss"
ALPHA_LOSS = "train/alpha_loss"
ALPHA = "train/alpha"
ENTROPY = "train/entropy"
LOGITS_ACCURACY = "train/logits_accuracy"  # share of a batch whose own goal has the largest logit
IMAGES_PER_S = "train/images_per_second"
VAL = "val/"  # in front of one of IMAGE_METRICS: of images drawn without guidance
GUIDED = "guided/"  # of images drawn with it
ACCURACY = "accuracy"  # share of images whose class the feature network names
IMAGE_METRICS = ("fid", "sfid", "inception_score", "precision", "recall", "kid", ACCURACY)
VAL_FID = VAL + "fid"
DRAWN = tuple(under + name for under in (VAL, GUIDED) for name in IMAGE_METRICS)
NAN_RESETS = "env/nan_resets"  # environments that were put back as their state was not finite, so far
TIME_ROLLOUT = "time/rollout"  # seconds since the last row, as all of these
TIME_LEARN = "time/learn"
TIME_EVALUATE = "time/evaluate"
TIME_SYNC = "time/sync"  # weights from the learner to the rollout
TIMES = (TIME_ROLLOUT, TIME_LEARN, TIME_EVALUATE, TIME_SYNC)
AXIS_METRIC = "spec/"  # in front of a numeric axis, so that MLflow can compare its value as a number

# Which end of a metric is best, where neither the study nor the question says so.
MODES: Mapping[str, Literal["min", "max"]] = {
    **dict.fromkeys((TRAIN_LOSS, VAL_PERPLEXITY, PERPLEXITY_GALORE_COMPAT, VAL_LOSS), "min"),
    **dict.fromkeys((EVAL_FINAL_DISTANCE, CRITIC_LOSS, NAN_RESETS, *MEMORY, MEMORY_AVERAGES, MEMORY_PEAK), "min"),
    **dict.fromkeys((SLOWDOWN, SLOWDOWN_LOW, SLOWDOWN_HIGH, OVERHEAD_PARAMETERS), "min"),
    **dict.fromkeys((CASCADED_ACTIVATIONS, CASCADED_PEAK), "min"),
    **dict.fromkeys((EVAL_TIME_AT_GOAL, EVAL_SUCCESS_ANY, EVAL_SUCCESS_EASY, EVAL_SUCCESS_HARD), "max"),
    **{under + name: "min" for under in (VAL, GUIDED) for name in ("fid", "sfid", "kid")},
    **{under + name: "max" for under in (VAL, GUIDED) for name in ("inception_score", "precision", "recall", ACCURACY)},
    **dict.fromkeys((LOGITS_ACCURACY, TOKENS_PER_S, CASCADED_TOKENS_PER_S, MFU, ENV_STEPS_PER_S), "max"),
    **dict.fromkeys((GRAD_STEPS_PER_S, IMAGES_PER_S), "max"),
    **dict.fromkeys(TIMES, "min"),
}

# Artifacts of a trial's run
SPEC_FILE = "spec.json"
TOPOLOGY_FILE = "topology.json"  # as in the last row
CHANGES_FILE = "changes.json"  # what changed on the way: [{"step": after it, "donor": trial, "values": {axis: value}}]
ENVIRONMENT_FILE = "environment.json"
SAMPLES_FILE = "samples.png"  # images that the last evaluation drew: a row a class
DEPTHS_FILE = "depths.jsonl"  # a line for each step that was looked into: {"step": .., and a list for each of DEPTHS}

# In DEPTHS_FILE, of K blocks
DEPTH_STATE_RMS = "state_rms"  # root mean square of h_0 .. h_K
DEPTH_OUTPUT_RMS = "output_rms"  # of what each block returned
DEPTH_COSINE = "cosine"  # of h_{j-1} and h_j, mean over tokens
DEPTH_GRADIENT_NORM = "gradient_norm"  # of each block's weights
DEPTHS = (DEPTH_STATE_RMS, DEPTH_OUTPUT_RMS, DEPTH_COSINE, DEPTH_GRADIENT_NORM)

# Artifacts of the study's run
STUDY_FILE = "study.toml"
ARMS_FILE = "arms.json"
