"""The vocabulary of a recorded run: every tag, metric and artifact name that is written to MLflow or read back from it.

The reader owns these names, so that queries need neither torch nor Ray.
"""

# Tags of an MLflow run. The experiment has the study's name; it holds one parent run and one run per trial.
ROLE = "ancre.role"  # STUDY on the parent run, TRIAL on the others
STUDY = "study"
TRIAL = "trial"
STUDY_NAME = "ancre.study"
WORKLOAD = "ancre.workload"
TRIAL_ID = "ancre.trial"
CELL = "ancre.cell"
ARM = "ancre.arm"
SEED = "ancre.seed"
STATE = "ancre.state"  # finished, stopped, diverged, failed, running
CAUSE = "ancre.cause"  # why it diverged or failed
SPEC = "ancre.spec"  # the whole trial spec as JSON
AXES = "ancre.axes"  # this cell's value of each axis, as JSON
PLANNED_SEEDS = "ancre.seeds"  # on the parent: the study's seeds, as JSON
METRIC = "ancre.metric"  # on the parent: what the study ranks by
MODE = "ancre.mode"  # on the parent: min or max

# Metrics. A workload may add its own; these are the ones that queries and reports know.
TRAIN_LOSS = "train/loss"
VAL_PERPLEXITY = "val/perplexity"
VAL_LOSS = "val/loss"

# Artifacts
STUDY_FILE = "study.toml"
SPEC_FILE = "spec.json"
TOPOLOGY_FILE = "topology.json"
ENVIRONMENT_FILE = "environment.json"
