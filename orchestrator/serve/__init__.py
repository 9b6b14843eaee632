"""`ancre serve`, a read-only page per study that follows it while it runs, and `ancre ui`, MLflow's own pages."""
