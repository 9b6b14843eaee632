"""What is kept of a study: the ledger and the spools on disk, and their way to MLflow."""
